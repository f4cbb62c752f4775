"""How soon a failure is known, and how soon all is stopped: the figures of docs/faults.md.

The limits are such that a busy machine keeps them as well; RDZV_ROUNDS=N makes N times the trials.
"""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cluster import cluster
from tests.support.launching import BIN, launch, launching, processes_with
from tests.support.netlab import Lab
from tests.support.nightly import ROUNDS, at_night
from tests.support.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300 * ROUNDS)]

TRIALS = ROUNDS
NODES = 3
GRACE = 2
# Worker 1 of node 0 fails; the others say that they are alive until they are ended. Worker 2,
# beside it, always ends at TERM: that torchrun ends all is certain when a second one has ended.
FAIL = """
import os, pathlib, signal, sys, time
folder, deaf = pathlib.Path(sys.argv[1]), sys.argv[2] == "deaf"
rank = os.environ["RANK"]
if deaf and rank != "2":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
(folder / f"up-{rank}").touch()
while len(list(folder.glob("up-*"))) < int(os.environ["WORLD_SIZE"]):
    time.sleep(0.02)
if rank == "1":
    time.sleep(1)
    (folder / "failed").write_text(str(time.monotonic()))
    sys.exit("the loss is not a number")
while True:
    (folder / f".alive-{rank}").write_text(str(time.monotonic()))
    (folder / f".alive-{rank}").replace(folder / f"alive-{rank}")
    time.sleep(0.02)
"""
# Writes down when it is told to stop.
TOLD = """
import os, pathlib, signal, sys, time
folder, rank = pathlib.Path(sys.argv[1]), os.environ["NODE_RANK"]
def told(*_):
    (folder / f".{rank}").write_text(str(time.monotonic()))
    (folder / f".{rank}").rename(folder / f"told-{rank}")
    sys.exit(0)
signal.signal(signal.SIGTERM, told)
(folder / f"up-{rank}").touch()
signal.pause()
"""


def measured(folder: Path, name: str, one: Callable[[Path], list[float]]) -> list[float]:
    """The seconds of all trials, each in a folder of its own."""
    seconds: list[float] = []
    for number in range(TRIALS):
        (folder / str(number)).mkdir()
        seconds += one(folder / str(number))
    print(f"{name}: {sorted(seconds)}")
    return seconds


def program(folder: Path, text: str, *words: str) -> list[str]:
    """COMMAND: a script that works in this folder."""
    (folder / "program.py").write_text(text)
    return [str(folder / "program.py"), str(folder), *words]


def times(folder: Path, pattern: str) -> list[float]:
    """The moments that programs have written down."""
    return [float(path.read_text()) for path in folder.glob(pattern)]


def killed_agent(folder: Path) -> list[float]:
    """SIGKILL of one node's agent -> every other node's program is told to stop."""
    command = [str(BIN / "python"), *program(folder, TOLD)]
    options = ("--nnodes", str(NODES), "--framework", "command")
    with launching(folder / "s", *options, command=command) as launched:
        until(lambda: len(list(folder.glob("up-*"))) == NODES)
        time.sleep(random.uniform(0.2, 2.2))  # at any moment of a poll
        victim = launched.child("worker", f"127.0.0.{NODES}")
        killed = time.monotonic()
        victim.kill()
        outcome = launched.finish()
        assert outcome.code == 86
        lost = f"node 2 ({socket.gethostname()}) was lost: its worker run ended: pid"
        assert lost in outcome.last_line
        until(lambda: not processes_with(str(folder)))
    return [at - killed for at in times(folder, "told-[01]")]


def silent_host(folder: Path, lease: int) -> list[float]:
    """All packets of one host are dropped -> every other node's program is told to stop."""
    command = [str(BIN / "python"), *program(folder, TOLD)]
    options = ("--framework", "command", "--lease", str(lease), "--orphan-timeout", "6")
    with Lab(NODES) as lab, cluster(lab, folder, *options, command=command) as run:
        run.start_workers()
        until(lambda: len(list(folder.glob("up-*"))) == NODES)
        time.sleep(random.uniform(0.0, 2.0))
        cut = time.monotonic()
        lab.lose(lab.hosts[2], 100)
        assert run.finish().code == 86
        assert run.workers[2].returncode == 85
    return [at - cut for at in times(folder, "told-[01]")]


def stopped_run(folder: Path, others: str) -> list[float]:
    """A worker process fails -> the last program of the run has ended."""
    options = ("--nnodes", "2", "--nproc-per-node", "3,1", "--grace", str(GRACE))
    outcome = launch(folder / "s", *options, command=program(folder, FAIL, others))
    assert outcome.code == 1, outcome.err
    assert "failed: rank 1 ended with exit code 1" in outcome.last_line
    assert "'the loss is not a number'" in outcome.last_line
    until(lambda: not processes_with(str(folder)))
    return [max(times(folder, "alive-*")) - times(folder, "failed")[0]]


def test_a_killed_agent_is_known_to_all_soon(tmp_path: Path) -> None:
    seconds = measured(tmp_path, "killed agent -> others told", killed_agent)
    assert len(seconds) == 2 * TRIALS
    assert max(seconds) < 3 * 1.5


@pytest.mark.netns
@pytest.mark.nightly
@pytest.mark.parametrize("lease", [5, 15])
def test_a_silent_host_is_known_to_all_when_its_lease_is_over(tmp_path: Path, lease: int) -> None:
    name = f"silent host -> others told, lease {lease} s"
    seconds = measured(tmp_path, name, lambda folder: silent_host(folder, lease))
    assert len(seconds) == 2 * TRIALS
    assert lease / 2 < min(seconds)
    assert max(seconds) < lease + 2 + 10


@pytest.mark.torch
@pytest.mark.parametrize(("others", "target"), [at_night("deaf", 3 + GRACE), ("obey", 3)])
def test_a_run_is_stopped_soon_after_a_worker_has_failed(
    tmp_path: Path, others: str, target: int
) -> None:
    """Without the early report torchrun itself would wait 30 s for the siblings."""
    name = f"worker fails -> all ended, grace {GRACE} s, others {others}"
    seconds = measured(tmp_path, name, lambda folder: stopped_run(folder, others))
    assert max(seconds) < 3 * target
