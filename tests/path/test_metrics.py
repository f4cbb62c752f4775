"""Progress on its whole way: program, agent, registry, launcher, `rdzv status` and `metrics`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.launching import launching, rdzv_here
from tests.support.waiting import until

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
PROGRAM = """
import os, time, rdzv_metrics as m
for step in range(40):
    m.send(step, loss=1 / (1 + step), lr=0.1)
    while step == 2 and not os.path.exists(os.environ['GO']):
        time.sleep(0.05)
os._exit(3 if m.own_rank() == 1 else 0)
"""

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(120)]


def rows_of(state: Path, rank: int) -> list[dict[str, Any]]:
    lines = rdzv_here(state, "metrics", "r", "--json").splitlines()
    return [row for row in map(json.loads, lines) if row["rank"] == rank]


def test_what_a_program_tells_is_shown_while_it_runs_and_kept_however_soon_it_ends(
    tmp_path: Path,
) -> None:
    state, go = tmp_path / "s", tmp_path / "go"
    with launching(
        state,
        *("--nnodes", "2", "--framework", "command"),
        command=[sys.executable, "-c", PROGRAM],
        cwd=EXAMPLES,
        env={"GO": str(go)},
    ) as launched:
        launched.wait_for_phase("running")

        def told() -> list[list[str]] | None:
            lines = [line.split() for line in rdzv_here(state, "status", "r").splitlines()]
            found = [line[:4] for line in lines if line[1:3] == ["2", "0.3333"]]
            return found if len(found) == 2 else None

        assert until(told) == [["0", "2", "0.3333", "0.1"], ["1", "2", "0.3333", "0.1"]]
        as_json = json.loads(rdzv_here(state, "status", "r", "--json"))["metrics"]
        assert {(row["rank"], row["step"]) for row in as_json} == {(0, 2), (1, 2)}
        until(lambda: len(rows_of(state, 0)) == 3)
        go.touch()
        outcome = launched.finish()
    assert outcome.code == 3, outcome.err
    # What the failing node has told comes before its failure, which stops the other one.
    rows = rows_of(state, 1)
    assert [row["step"] for row in rows] == list(range(40))
    assert {row["slot"] for row in rows} == {1}
    assert rows[-1]["values"] == {"loss": 1 / 40, "lr": 0.1}
    assert "rdzv: progress: step" in outcome.err
