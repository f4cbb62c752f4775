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


def test_a_slow_node_makes_the_exit_code_and_ends_the_report(tmp_path: Path) -> None:
    saved = tmp_path / "result.json"
    line = f'printf %s {shlex.quote(json.dumps(FOUND))} > "$RDZV_BENCH_RESULT"'
    outcome = bench(tmp_path, "--save", str(saved), torchrun=line)
    assert outcome.code == 1, outcome.err
    assert outcome.out.splitlines()[0] == "3 nodes, 3 processes, gloo on CPU, torch 2.13.0"
    assert outcome.out.splitlines()[-1] == "node 2 (h2) is slow"
    assert json.loads(saved.read_text()) == FOUND


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
