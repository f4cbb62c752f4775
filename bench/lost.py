"""A node is lost: how soon the programs of all nodes run again: `python -m bench.lost`.

`python -m bench` measures it beside all else, and keeps it; this prints these rows alone. The
programs import nothing that takes long: what torch and torchrun take comes on top.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.agents import standby_rss
from bench.machine import describe, watching
from bench.registry import raise_file_limit
from bench.rows import HEADER, Figure, Report, Row
from rendezvous.wire.run import SlotState
from tests.support.cluster import cluster
from tests.support.launching import Launched, launching
from tests.support.netlab import Lab
from tests.support.waiting import until

Work = Callable[[], Iterable[Row | Figure]]

_NODES = 4
_SILENT_NODES = 3
_LOST_SLOT = 2
_PAUSE_SECONDS = (0.3, 1.3)
_LIMIT_SECONDS = 60.0
_STANDBY_SECONDS = 2.0
_RESUBMITTED_SECONDS = 1.5
_FENCED_SECONDS = 1.0
_REPLACE = ("--framework", "command", "--on-node-loss", "replace", "--grace", "1")
FIRST = """
import time
first = time.monotonic()
import os, pathlib, sys
folder = pathlib.Path(sys.argv[1])
name = os.environ["RDZV_EPOCH"] + "-" + os.environ["NODE_RANK"]
(folder / ("." + name)).write_text(str(first))
(folder / ("." + name)).rename(folder / ("first-" + name))
while not (folder / "over").exists():
    time.sleep(0.02)
"""
"""A program that writes down when its first statement ran, and waits for the end."""


@dataclass(frozen=True, slots=True)
class Amount:
    """How much is measured: rounds of each."""

    killed: int
    silent: int


FULL = Amount(killed=5, silent=3)
QUICK = Amount(killed=1, silent=0)
_LEASE, _FENCE = 15, 30


@dataclass(frozen=True, slots=True)
class Replaced:
    """Seconds of one loss.

    Attributes:
        known: From the SIGKILL of the agent until the launcher says that its node is lost.
        first: From the SIGKILL until the last node's program has run its first statement again.
        scheduler: From the submission of the next worker run until its node has joined; 0 where a
            standby takes the place.
    """

    known: float
    first: float
    scheduler: float


def after_kill(rounds: int) -> Iterator[Figure]:
    """An agent is killed, with a standby and without one."""
    ready = [replaced(standby=1) for _ in range(rounds)]
    known, first = _medians(ready, ("known", "first"))
    note = f"SIGKILL of an agent until the first statement of all, a standby there; {known:g} s of "
    note += "it until the loss is known"
    yield Figure("standby_first", _NODES, first, "s", _STANDBY_SECONDS, rounds, note=note)
    again = [replaced(standby=0) for _ in range(rounds)]
    known, first, scheduler = _medians(again, ("known", "first", "scheduler"))
    left = round(statistics.median(one.first - one.known - one.scheduler for one in again), 2)
    note = "from the known loss until the first statement of all, less the scheduler's time (from "
    note += f"the submission until the node has joined, here {scheduler:g} s); {first:g} s from the"
    note += f" SIGKILL, {known:g} s of it until the loss is known"
    yield Figure("resubmitted_first", _NODES, left, "s", _RESUBMITTED_SECONDS, rounds, note=note)


def _medians(found: Sequence[Replaced], names: Iterable[str]) -> list[float]:
    return [round(statistics.median(getattr(one, name) for one in found), 2) for name in names]


def replaced(*, standby: int) -> Replaced:
    """One launch on this machine, of which one agent is killed."""
    options = ("--nnodes", f"{_NODES}", "--standby", f"{standby}", *_REPLACE)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with launching(folder / "s", *options, command=_program(folder)) as launched:
            _firsts(folder, 0.0, _NODES)
            launched.wait_for_phase("running")
            time.sleep(random.uniform(*_PAUSE_SECONDS))
            victim = launched.child(" worker ", f"127.0.0.{_LOST_SLOT + 1}")
            killed = time.monotonic()
            victim.kill()
            known = _told(launched, " was lost: ")
            again = _firsts(folder, killed, _NODES)
            (folder / "over").touch()
            outcome = launched.finish()
            scheduler = 0.0 if standby else _join_seconds(launched)
    if outcome.code != 0:
        raise RuntimeError(f"a run that lost a node ended with {outcome.code}: {outcome.err}")
    return Replaced(known - killed, max(again) - killed, scheduler)


def _program(folder: Path) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", FIRST, str(folder)]


def _firsts(folder: Path, after: float, count: int) -> list[float]:
    """The first statements of all programs after a moment, once there are so many."""

    def look() -> list[float] | None:
        found = [float(path.read_text()) for path in folder.glob("first-*")]
        found = [at for at in found if at > after]
        return found if len(found) >= count else None

    return until(look, _LIMIT_SECONDS)


def _told(launched: Launched, words: str) -> float:
    """When the launcher says so."""
    assert launched.process.stderr is not None
    for line in launched.process.stderr:
        if words in line:
            return time.monotonic()
    raise RuntimeError(f"a run ended and did not say{words}")


def _join_seconds(launched: Launched) -> float:
    """From the submission of the lost slot's next worker run until its node has joined."""
    own = [one for one in launched.events() if one["slot"] == _LOST_SLOT]
    submitting = [one for one in own if one["state"] is SlotState.SUBMITTING]
    joined = [one for one in own if one["kind"] == "joined"]
    return float(str(joined[-1]["at_seconds"])) - float(str(submitting[-1]["at_seconds"]))


def silent(rounds: int, lease: int, fence: int) -> Iterator[Figure]:
    """A host falls silent, with a standby: its program may run on until the fence is over."""
    seconds = [_silent(lease, fence) for _ in range(rounds)]
    value, target = round(statistics.median(seconds), 2), max(lease, fence) + _FENCED_SECONDS
    note = f"a host is cut off until the first statement of all; lease {lease} s, fence {fence} s"
    yield Figure("silent_first", _SILENT_NODES, value, "s", target, rounds, note=note)


def _silent(lease: int, fence: int) -> float:
    options = ["--nnodes", f"{_SILENT_NODES}", "--standby", "1", *_REPLACE]
    options += ["--lease", f"{lease}", "--fence-timeout", f"{fence}"]
    with tempfile.TemporaryDirectory() as name, Lab(_SILENT_NODES + 1) as lab:
        folder = Path(name)
        with cluster(lab, folder, *options, command=_program(folder)) as run:
            run.start_workers()
            _firsts(folder, 0.0, _SILENT_NODES)
            run.launched.wait_for_phase("running")
            time.sleep(random.uniform(*_PAUSE_SECONDS))
            cut = time.monotonic()
            lab.lose(lab.hosts[1], 100)
            seconds = max(_firsts(folder, cut, _SILENT_NODES)) - cut
            (folder / "over").touch()
            told, _ = run.launcher.communicate(timeout=_LIMIT_SECONDS)
    if run.launcher.returncode != 0:
        raise RuntimeError(f"a run that lost a host ended so: {told}")
    return seconds


def works(amount: Amount) -> Iterator[Work]:
    """All of it, in parts that are measured one after the other."""
    yield partial(after_kill, amount.killed)
    yield partial(standby_rss, amount.killed)
    if not amount.silent:
        return  # the tests of faults show it, with a short fence
    if os.geteuid() == 0:
        yield partial(silent, amount.silent, _LEASE, _FENCE)
    else:
        print("a silent host is not measured: emulated hosts need root")


def main() -> None:
    """Print these rows alone."""
    parser = argparse.ArgumentParser(prog="python -m bench.lost", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a round of each, and no silent host")
    raise_file_limit()
    report = Report(describe())
    print(f"{describe()}\n{HEADER}")
    for work in works(QUICK if parser.parse_args().quick else FULL):
        with watching() as load:
            done = list(work())
        for one in done:
            report.add(one, load.others_percent)


if __name__ == "__main__":
    main()
