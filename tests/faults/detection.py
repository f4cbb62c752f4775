"""How soon a failure is known, and how soon all is stopped: the figures of docs/faults.md.

    python -m tests.faults.detection killed|silent|stopped|silences [TRIALS]

killed    SIGKILL of one node's agent -> every other node's program is told to stop.
silent    All packets of one host are dropped -> every other node is told to stop; at lease 15 and
          5, real clients and registry over TLS, each trial a run of its own.
stopped   A worker process fails -> the last program of the run has ended; grace 2 s, programs that
          end at TERM, and programs that ignore it.
silences  The longest silence that the registry sees of 32 members at 0, 10, 20 and 30 % loss.

Needs root (silent, silences) and torch (stopped). Prints a line of JSON for each figure.
"""

from __future__ import annotations

import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.faults.crowd import Crowd, crowd, read_lines, wait_for_go
from tests.support.launching import launch, launching, processes_with
from tests.support.netlab import Lab
from tests.support.waiting import until

NODES = 3
GRACE = 2.0
VICTIMS = 10
# Says when it was told to stop; the machine's monotonic clock is one for all processes.
TOLD = """
import pathlib, signal, sys, time
folder, rank = pathlib.Path(sys.argv[1]), sys.argv[2]
def told(*_):
    (folder / f"told-{rank}").write_text(str(time.monotonic()))
    sys.exit(0)
signal.signal(signal.SIGTERM, told)
(folder / f"up-{rank}").touch()
while True:
    time.sleep(60)
"""
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
    sys.exit(3)
while True:
    (folder / f".alive-{rank}").write_text(str(time.monotonic()))
    (folder / f".alive-{rank}").replace(folder / f"alive-{rank}")
    time.sleep(0.02)
"""


@dataclass(frozen=True)
class Figure:
    """A named list of seconds."""

    name: str
    trials: int
    seconds: list[float]

    def line(self) -> str:
        """As JSON."""
        ordered = sorted(self.seconds)
        p99 = ordered[math.ceil(0.99 * len(ordered)) - 1]
        shown = {"p50": median(ordered), "p99": p99, "max": ordered[-1]}
        rounded = {name: round(value, 2) for name, value in shown.items()}
        counts = {"trials": self.trials, "samples": len(ordered)}
        return json.dumps({"figure": self.name, **counts, **rounded})


def killed_agents(trials: int) -> Figure:
    """See the module's docstring."""
    return Figure("killed agent -> others told", trials, _each(trials, _killed_agent))


def _each(trials: int, one: Callable[[Path], list[float]]) -> list[float]:
    found: list[float] = []
    for _ in range(trials):
        with _folder() as folder:
            found += one(folder)
    return found


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="detection-") as name:
        yield Path(name)


def _killed_agent(folder: Path) -> list[float]:
    (folder / "told.py").write_text(TOLD)
    command = ["sh", "-c", f"exec {sys.executable} {folder}/told.py {folder} $NODE_RANK"]
    options = ("--nnodes", str(NODES), "--framework", "command")
    with launching(folder / "s", *options, command=command) as launched:
        until(lambda: len(list(folder.glob("up-*"))) == NODES, 40)
        time.sleep(random.uniform(0.2, 2.2))  # at any moment of a poll
        victim = launched.child("worker", f"127.0.0.{NODES}")
        killed = time.monotonic()
        victim.kill()
        launched.finish()
        until(lambda: not processes_with(str(folder)))
    told = [float((folder / f"told-{rank}").read_text()) for rank in range(NODES - 1)]
    return [at - killed for at in told]


def silent_hosts(lease: float, trials: int) -> Figure:
    """See the module's docstring; `VICTIMS` runs side by side, each with one host that goes."""
    seconds: list[float] = []
    done = 0
    while done < trials:
        count = min(VICTIMS, trials - done)
        with _folder() as folder, Lab(count + 2) as lab, crowd(lab, folder) as people:
            seconds += _silent_hosts(lab, people, lease, count)
        done += count
    return Figure(f"silent host -> others told, lease {lease:.0f} s", trials, seconds)


def _silent_hosts(lab: Lab, people: Crowd, lease: float, count: int) -> list[float]:
    """In run i, slots 0 and 1 live on host 1, and slot 2 on a host of its own, which is cut off."""
    watching, victims = [], []
    for index in range(count):
        how = {"nodes": 3, "lease": lease, "seconds": 600.0}
        run, host = f"r{index}", lab.hosts[index + 2]
        watching.append(people.start(lab.hosts[1], run, 0, 1, **how))  # type: ignore[arg-type]
        victims.append(people.start(host, run, 2, **how))  # type: ignore[arg-type]
    wait_for_go(victims)
    cut: dict[str, float] = {}
    for index in range(count):
        time.sleep(random.uniform(0.0, 0.4))  # at any moment of a poll
        cut[f"r{index}"] = time.monotonic()
        lab.lose(lab.hosts[index + 2], 100)
    found = []
    for index, process in enumerate(watching):
        lines = read_lines([process], 10 * lease)
        found += [line["at"] - cut[f"r{index}"] for line in lines if line["what"] == "stop"]
    return found


def stopped_runs(how: str, trials: int) -> Figure:
    """See the module's docstring."""
    seconds = _each(trials, lambda folder: [_stopped_run(folder, how)])
    return Figure(f"worker fails -> all ended, grace {GRACE:.0f} s, others {how}", trials, seconds)


def _stopped_run(folder: Path, how: str) -> float:
    (folder / "fail.py").write_text(FAIL)
    options = ("--nnodes", "2", "--nproc-per-node", "3,1", "--grace", str(GRACE))
    command = [str(folder / "fail.py"), str(folder), how]
    outcome = launch(folder / "s", *options, command=command)
    assert outcome.code == 3, outcome.err
    until(lambda: not processes_with(str(folder)))
    last = max(float(path.read_text()) for path in folder.glob("alive-*"))
    return last - float((folder / "failed").read_text())


def silences(percent: float, seconds: float) -> Figure:
    """The longest silence of 32 members that lose so many of their packets each way."""
    how = {"nodes": 32, "lease": 15.0, "seconds": seconds}
    with _folder() as folder, Lab(5) as lab, crowd(lab, folder) as people:
        for host in lab.hosts[1:]:
            lab.lose(host, percent)
        members = [
            people.start(host, "r", *range(index, 32, 4), **how)  # type: ignore[arg-type]
            for index, host in enumerate(lab.hosts[1:])
        ]
        watch = people.start(lab.hosts[0], "r", "watch", **how)  # type: ignore[arg-type]
        (silence,) = read_lines([watch], seconds + 300)
        ends = read_lines(members, 60)
    assert {line["message"] for line in ends if line["what"] == "result"} == {silence["message"]}
    name = (
        f"longest silence, {percent:.0f} % loss, {32 * seconds:.0f} member-s; {silence['message']}"
    )
    return Figure(name, 1, [silence["longest"]])


def main(what: str, trials: str = "20") -> None:
    """Run as the module's docstring says."""
    count = int(trials)
    figures: dict[str, Sequence[Callable[[], Figure]]] = {
        "killed": [lambda: killed_agents(count)],
        "silent": [lambda: silent_hosts(15, count), lambda: silent_hosts(5, count)],
        "stopped": [lambda: stopped_runs("obey", count), lambda: stopped_runs("deaf", count)],
        "silences": [
            lambda percent=percent: silences(percent, 3.0 * count)  # type: ignore[misc]
            for percent in (0, 10, 20, 30)
        ],
    }
    for figure in figures[what]:
        print(figure().line(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
