"""A node is lost: how soon that is known, and how soon the programs of all nodes run again.

The programs import nothing that takes long: what torch and torchrun take comes on top.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from bench.rows import Row, row
from tests.support.cluster import cluster
from tests.support.launching import Launched, launching
from tests.support.netlab import Lab
from tests.support.waiting import until

_NODES = 4
_SILENT_NODES = 3
_LOST_SLOT = 2
_PAUSE_SECONDS = (0.3, 1.3)
_REPLACE = ("--framework", "command", "--on-node-loss", "replace", "--grace", "1")
FIRST = """
import time
first = time.monotonic()
import os, pathlib, signal, sys
folder, name = pathlib.Path(sys.argv[1]), os.environ["RDZV_EPOCH"] + "-" + os.environ["NODE_RANK"]
def write(what, at):
    (folder / ("." + name)).write_text(str(at))
    (folder / ("." + name)).rename(folder / (what + "-" + name))
def stop(*_):
    write("stop", time.monotonic())
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
write("first", first)
while not (folder / "over").exists():
    time.sleep(0.02)
"""
"""A program that writes down when its first statement ran and when it was told to stop."""


def killed_agent(rounds: int) -> Iterator[Row]:
    """An agent is killed, with a standby and without one: SIGKILL until the others know and run."""
    found = {standby: [_killed(standby) for _ in range(rounds)] for standby in (1, 0)}
    stops = [stop for each in found.values() for stop, _, _ in each]
    yield row("killed agent known to all", _NODES, stops, "s", "their programs are told to stop")
    yield row("killed agent, a standby", _NODES, [one[1] for one in found[1]], "s", "all run again")
    yield row("killed agent, none", _NODES, [one[1] for one in found[0]], "s", "all run again")
    yield row("agent of a standby", _NODES, [one[2] for one in found[1]], "MB", "while it waits")


def _killed(standby: int) -> tuple[float, float, float]:
    """Seconds until all others were told to stop and until all ran again; MB of a waiting agent."""
    options = ("--nnodes", f"{_NODES}", "--standby", f"{standby}", *_REPLACE)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with launching(folder / "s", *options, command=_program(folder)) as launched:
            _moments(folder, "first", 0.0, _NODES)
            launched.wait_for_phase("running")
            time.sleep(random.uniform(*_PAUSE_SECONDS))
            waiting = max(_waiting_mb(launched), default=0.0)
            victim = launched.child(" worker ", f"127.0.0.{_LOST_SLOT + 1}")
            killed = time.monotonic()
            victim.kill()
            stop = max(_moments(folder, "stop", killed, _NODES - 1)) - killed
            again = max(_moments(folder, "first", killed, _NODES)) - killed
            (folder / "over").touch()
            outcome = launched.finish()
    if outcome.code != 0:
        raise RuntimeError(f"a run that lost a node ended with {outcome.code}: {outcome.err}")
    return stop, again, waiting


def _waiting_mb(launched: Launched) -> Iterator[float]:
    """Of the agents that have started no program."""
    for one in psutil.Process(launched.process.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if any("worker" in word for word in one.cmdline()) and not one.children():
                yield one.memory_info().rss / 1e6


def _program(folder: Path) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", FIRST, str(folder)]


def _moments(folder: Path, what: str, after: float, count: int) -> list[float]:
    """What the programs have written after a moment, once there are so many."""

    def look() -> list[float] | None:
        found = [float(path.read_text()) for path in folder.glob(f"{what}-*")]
        found = [at for at in found if at > after]
        return found if len(found) >= count else None

    return until(look, 60.0)


def silent_host(rounds: int, lease: int = 15, fence: int = 30) -> Iterator[Row]:
    """A host falls silent, with a standby: its program may run on until the fence is over."""
    if os.geteuid() != 0:
        print("a silent host is not measured: emulated hosts need root")
        return
    seconds = [_silent(lease, fence) for _ in range(rounds)]
    yield row("silent host, a standby", _SILENT_NODES, seconds, "s", f"--fence-timeout {fence}")


def _silent(lease: int, fence: int) -> float:
    options = ["--nnodes", f"{_SILENT_NODES}", "--standby", "1", *_REPLACE]
    options += ["--lease", f"{lease}", "--fence-timeout", f"{fence}"]
    with tempfile.TemporaryDirectory() as name, Lab(_SILENT_NODES + 1) as lab:
        folder = Path(name)
        with cluster(lab, folder, *options, command=_program(folder)) as run:
            run.start_workers()
            _moments(folder, "first", 0.0, _SILENT_NODES)
            run.launched.wait_for_phase("running")
            time.sleep(random.uniform(*_PAUSE_SECONDS))
            cut = time.monotonic()
            lab.lose(lab.hosts[1], 100)
            seconds = max(_moments(folder, "first", cut, _SILENT_NODES)) - cut
            (folder / "over").touch()
            said, _ = run.launcher.communicate(timeout=60.0)
    if run.launcher.returncode != 0:
        raise RuntimeError(f"a run that lost a host ended so: {said}")
    return seconds
