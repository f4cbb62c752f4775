"""Programs of runs that start again: each writes down when it started, and who was still alive."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from worker.offer.ports import find_free

OWN_PORT = ("--master-port", str(find_free(12_000 + os.getpid() % 6_000)))
"""Options of a launch whose epochs are counted: another test's launch that takes the port that this
one has chosen, at the same moment, costs it an epoch."""

# Each holds a lock for as long as it lives: the kernel gives it back, however it ends. A program
# that starts looks whether one of an earlier epoch is still held, on whatever node: all are here.
_PROLOGUE = """
import fcntl, json, os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
epoch, restarts = int(os.environ["RDZV_EPOCH"]), int(os.environ["RDZV_RESTARTS"])
rank = int(os.environ.get("RANK", os.environ["NODE_RANK"]))
def write(name, words):
    (folder / f".{name}.{os.getpid()}").write_text(str(words))
    (folder / f".{name}.{os.getpid()}").rename(folder / name)
def until(*names):
    while not all((folder / name).exists() for name in names):
        time.sleep(0.01)
def hear(number, then=None):
    heard = []
    def handle(*_):
        heard.append(time.monotonic())
        write(f"{signal.Signals(number).name}-{epoch}-{rank}", json.dumps(heard))
        if then:
            then()
    signal.signal(number, handle)
def lives(lock):
    with open(lock) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
def fail(code):
    write(f"failed-{epoch}", json.dumps([time.monotonic()]))
    sys.exit(code)
life = open(folder / f"life-{epoch}-{rank}", "w")
fcntl.flock(life, fcntl.LOCK_EX)
old = [one.name for one in folder.glob("life-*") if int(one.name.split("-")[1]) < epoch]
own = {"restarts": restarts, "port": os.environ["MASTER_PORT"]}
own |= {"at": time.monotonic(), "old": [name for name in old if lives(folder / name)]}
own |= {"failure": os.environ["RDZV_LAST_FAILURE"], "epoch": epoch, "rank": rank}
"""
_READY = """
write(f"start-{epoch}-{rank}", json.dumps(own))
"""


@dataclass(frozen=True)
class Start:
    """What a program has found as it started.

    Attributes:
        at: On the clock that all processes of a machine share.
        old: Programs of earlier epochs that were still alive.
    """

    epoch: int
    rank: int
    restarts: int
    at: float
    port: str
    failure: str
    old: list[str]


def program(folder: Path, body: str, before: str = "") -> list[str]:
    """COMMAND: a Python script that knows `folder`, `epoch`, `restarts` and `rank`.

    Its start is written down between `before` and `body`.
    """
    script = folder / "program.py"
    script.write_text(_PROLOGUE + before + _READY + body)
    return [sys.executable, str(script), str(folder)]


def starts_in(folder: Path) -> list[Start]:
    """All starts, in their order: by epoch, then by rank."""
    found = [Start(**json.loads(path.read_text())) for path in folder.glob("start-*")]
    return sorted(found, key=lambda start: (start.epoch, start.rank))


def starts_apart(folder: Path) -> list[tuple[int, int]]:
    """Epoch and rank of all starts, none of which has met a program of an earlier epoch."""
    starts = starts_in(folder)
    assert [start for start in starts if start.old] == []
    return [(start.epoch, start.rank) for start in starts]


def moments(folder: Path, name: str) -> list[float]:
    """When that happened, by what programs have written down: `SIGTERM-EPOCH-RANK`, `failed-EPOCH`;
    a pattern finds those of several.
    """
    return [at for path in sorted(folder.glob(name)) for at in json.loads(path.read_text())]
