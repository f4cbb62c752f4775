"""Progress on its whole way: program, agent, registry, launcher, `rdzv status` and `metrics`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.launching import RDZV, environment, launch, launching, shell
from tests.support.waiting import until

EXAMPLES = Path(__file__).parent.parent.parent / "examples"

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(120)]


def program(steps: int, then: str = "") -> list[str]:
    """COMMAND: a program that tells of so many steps at once, and then does something else."""
    script = (
        f"import os, time, rdzv_metrics as m\n"
        f"for step in range({steps}):\n"
        f"    m.send(step, loss=1 / (1 + step), lr=0.1)\n"
        f"{then}"
    )
    return [sys.executable, "-c", script]


def rdzv(state: Path, *words: str) -> str:
    """What a person reads who asks."""
    asked = subprocess.run(
        [RDZV, *words],
        capture_output=True,
        text=True,
        timeout=30,
        env=environment(state),
        check=True,
    )
    return asked.stdout


def rows_of(state: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in rdzv(state, "metrics", "r", "--json").splitlines()]


@pytest.mark.parametrize("code", [0, 3])
def test_all_that_a_program_has_told_is_kept_however_soon_it_ends(
    code: int, tmp_path: Path
) -> None:
    outcome = launch(
        tmp_path / "s",
        *("--nnodes", "2", "--framework", "command"),
        command=program(40, f"os._exit({code} if m.own_rank() == 1 else 0)"),
        cwd=EXAMPLES,
    )
    assert outcome.code == code, outcome.err
    rows = rows_of(tmp_path / "s")
    # What the failing node has told comes before its failure, which stops the other one.
    for rank in (0, 1) if code == 0 else (1,):
        mine = [row for row in rows if row["rank"] == rank]
        assert [row["step"] for row in mine] == list(range(40))
        assert {row["slot"] for row in mine} == {rank}
        assert mine[-1]["values"] == {"loss": 1 / 40, "lr": 0.1}
    assert "rdzv: progress: step" in outcome.err


def test_while_the_program_runs_its_progress_is_shown(tmp_path: Path) -> None:
    waits = "while not os.path.exists(os.environ['DONE']): time.sleep(0.05)"
    done = tmp_path / "done"
    with launching(
        tmp_path / "s",
        *("--nnodes", "2", "--framework", "command"),
        command=program(3, waits),
        cwd=EXAMPLES,
        env={"DONE": str(done)},
    ) as launched:
        launched.wait_for_phase("running")

        def told() -> list[list[str]] | None:
            lines = [line.split() for line in rdzv(tmp_path / "s", "status", "r").splitlines()]
            found = [line[:4] for line in lines if line[1:3] == ["2", "0.3333"]]
            return found if len(found) == 2 else None

        assert until(told) == [["0", "2", "0.3333", "0.1"], ["1", "2", "0.3333", "0.1"]]
        until(lambda: len(rows_of(tmp_path / "s")) == 6)
        done.touch()
        assert launched.finish().code == 0


def test_a_run_that_tells_nothing_keeps_nothing(tmp_path: Path) -> None:
    outcome = launch(
        tmp_path / "s", "--nnodes", "1", "--framework", "command", command=shell("true")
    )
    assert outcome.code == 0, outcome.err
    assert not (tmp_path / "s" / "r" / "metrics.jsonl").exists()
    assert "progress" not in outcome.err
