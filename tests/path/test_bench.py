"""`rdzv bench` on one machine, from the command to the report and its exit code."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support.launching import BIN, LIMIT_SECONDS, RDZV, Outcome, environment

pytestmark = pytest.mark.real_time

# Where a test needs no measurement, this result comes from what stands in torchrun's place.
FOUND = {
    "backend": "gloo",
    "device": "CPU",
    "torch": "2.13.0",
    "nodes": [{"hostname": f"h{node}", "processes": 1} for node in range(3)],
    "all_reduce": [],
    "too_long": 0,
    "pairs": [[0, 1, 1.0], [0, 2, 0.1], [1, 2, 0.1]],
    "second_pass": [],
    "usual": 1.0,
    "slow_below": 0.5,
    "slow_nodes": [2],
    "slow_pairs": [],
    "sentences": ["node 2 (h2) is slow"],
}


def bench(state: Path, *options: str, nodes: int = 1, torchrun: str | None = None) -> Outcome:
    """Measure so many nodes of this machine; or else a line of shell does, in torchrun's place."""
    path = str(BIN)
    if torchrun is not None:
        program = state / "bin" / "torchrun"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\n{torchrun}\n")
        program.chmod(0o755)
        path = f"{program.parent}:{BIN}"
    done = subprocess.run(
        [RDZV, "bench", "--nnodes", str(nodes), "--rdzv-id", "r", *options],
        env=environment(state, PATH=f"{path}:/usr/bin:/bin"),
        capture_output=True,
        text=True,
        timeout=2 * LIMIT_SECONDS,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def delivering(found: dict[str, object]) -> str:
    """A line of shell that leaves the result where the launcher looks for it."""
    return f'printf %s {shlex.quote(json.dumps(found))} > "$RDZV_BENCH_RESULT"'


def test_a_slow_node_makes_the_exit_code_and_ends_the_report(tmp_path: Path) -> None:
    saved = tmp_path / "result.json"
    outcome = bench(tmp_path, "--save", str(saved), torchrun=delivering(FOUND))
    assert outcome.code == 1, outcome.err
    assert outcome.out.splitlines() == [
        "3 nodes, 3 processes, gloo on CPU, torch 2.13.0",
        "",
        "pairs of nodes, % of the usual 1 GB/s each way",
        "          0    1    2",
        "0 (h0)    -  100   10",
        "1 (h1)  100    -   10",
        "2 (h2)   10   10    -  slow",
        "",
        "node 2 (h2) is slow",
    ]
    assert json.loads(saved.read_text()) == FOUND


def test_with_json_the_result_is_the_last_line_of_the_events(tmp_path: Path) -> None:
    good = FOUND | {"slow_nodes": []}
    outcome = bench(tmp_path, "--json", torchrun=delivering(good))
    assert outcome.code == 0, outcome.err
    lines = [json.loads(line) for line in outcome.out.splitlines()]
    assert lines[-1] == {"bench": good}
    assert len(lines) > 1


def test_a_report_that_rank_0_has_printed_elsewhere_is_pointed_to(tmp_path: Path) -> None:
    outcome = bench(tmp_path, torchrun="echo the report")
    assert outcome.code == 0
    assert outcome.last_line == "rdzv: the report is in rank 0's log: rdzv logs r --rank 0"


def test_a_measurement_that_fails_is_a_run_that_fails(tmp_path: Path) -> None:
    outcome = bench(tmp_path, torchrun="echo no torch here >&2; exit 3")
    assert outcome.code == 3
    assert "'no torch here'" in outcome.last_line


@pytest.mark.torch
@pytest.mark.timeout(120)
def test_the_nodes_of_one_machine_are_measured(tmp_path: Path) -> None:
    saved = tmp_path / "result.json"
    outcome = bench(
        tmp_path, "--sizes", "4K", "--nproc-per-node", "2,1", "--save", str(saved), nodes=2
    )
    assert outcome.code == 0, outcome.err
    found = json.loads(saved.read_text())
    assert found["backend"] == "gloo"
    assert [node["processes"] for node in found["nodes"]] == [2, 1]
    assert [row["bytes"] for row in found["all_reduce"]] == [4096]
    assert found["all_reduce"][0]["bus_gb"] == found["all_reduce"][0]["algorithm_gb"] * 2 * 2 / 3
    [[one, other, speed]] = found["pairs"]
    assert (one, other) == (0, 1)
    assert speed > 0
    assert outcome.out.rstrip().endswith(found["sentences"][-1])
