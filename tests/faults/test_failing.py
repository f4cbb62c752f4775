"""A worker process fails while its siblings would go on: the whole run is stopped at once.

torchrun itself waits up to 30 s for the siblings before it ends with its own failure.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.faults.record import record
from tests.path.launching import launch, launching, until

pytestmark = [pytest.mark.faults, pytest.mark.torch, pytest.mark.timeout(150)]

# Rank 1 fails; the others are deaf to TERM, as a trainer is that saves its state first.
TRAIN = """
import json, os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
rank = os.environ["RANK"]
signal.signal(signal.SIGTERM, signal.SIG_IGN)
(folder / f"ready-{rank}").touch()
while len(list(folder.glob("ready-*"))) < int(os.environ["WORLD_SIZE"]):
    time.sleep(0.05)
if rank == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    (folder / "failed-at").write_text(str(time.monotonic()))
    sys.exit("the loss is not a number")
while not (folder / "end").exists():
    (folder / f".alive-{rank}").write_text(str(time.monotonic()))
    (folder / f".alive-{rank}").replace(folder / f"alive-{rank}")
    time.sleep(0.05)
"""


def script_in(folder: Path) -> list[str]:
    (folder / "train.py").write_text(TRAIN)
    return [str(folder / "train.py"), str(folder)]


def seconds_after_failure(folder: Path) -> float:
    """When the last worker was still alive, after the first one had failed."""
    failed = float((folder / "failed-at").read_text())
    return max(float(path.read_text()) for path in folder.glob("alive-*")) - failed


def test_a_failed_worker_stops_all_nodes_though_its_siblings_are_deaf_to_term(
    tmp_path: Path,
) -> None:
    options = ("--nnodes", "2", "--nproc-per-node", "2,1", "--grace", "2")
    started = time.monotonic()
    outcome = launch(tmp_path / "s", *options, command=script_in(tmp_path))
    assert outcome.code == 1
    assert "failed: rank 1 ended with exit code 1" in outcome.last_line
    assert "'the loss is not a number'" in outcome.last_line
    seconds = seconds_after_failure(tmp_path)
    record("a worker process fails, its siblings are deaf to TERM (grace 2 s)", outcome, seconds)
    # Without the early report: 30 s until torchrun ends, then the grace of the other node.
    assert seconds < 15
    assert time.monotonic() - started < 60


def test_a_worker_that_torchrun_starts_again_stops_nobody(tmp_path: Path) -> None:
    options = ("--nnodes", "1", "--nproc-per-node", "2")
    command = ["--max-restarts", "1", *script_in(tmp_path)]
    with launching(tmp_path / "s", *options, command=command) as launched:
        until(lambda: (tmp_path / "failed-at").exists(), 30)
        # torchrun ends the deaf sibling after 30 s and starts both again.
        until(lambda: (tmp_path / "alive-1").exists(), 60)
        (tmp_path / "end").touch()
        outcome = launched.finish()
    assert outcome.code == 0, outcome.err
    assert json.loads((launched.folder / "result.json").read_text())["status"] == "ok"
