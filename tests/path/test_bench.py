"""`rdzv bench` on one machine, from the command to the report and its exit code."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.launching import LIMIT_SECONDS, RDZV, environment

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.real_time,
    pytest.mark.torch,
    pytest.mark.timeout(120),
]


@pytest.mark.nightly
def test_the_nodes_of_one_machine_are_measured(tmp_path: Path) -> None:
    saved = tmp_path / "result.json"
    options = ("--sizes", "4K", "--nproc-per-node", "2,1", "--save", str(saved))
    done = subprocess.run(
        [RDZV, "bench", "--nnodes", "2", "--rdzv-id", "r", *options],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=2 * LIMIT_SECONDS,
        check=False,
    )
    found = json.loads(saved.read_text())
    assert done.returncode == int(bool(found["slow_nodes"] or found["slow_pairs"])), done.stderr
    assert found["backend"] == "gloo"
    assert [node["processes"] for node in found["nodes"]] == [2, 1]
    assert [row["bytes"] for row in found["all_reduce"]] == [4096]
    assert found["all_reduce"][0]["bus_gb"] == found["all_reduce"][0]["algorithm_gb"] * 2 * 2 / 3
    [[one, other, speed]] = found["pairs"]
    assert (one, other) == (0, 1)
    assert speed > 0
    assert done.stdout.rstrip().endswith(found["sentences"][-1])
