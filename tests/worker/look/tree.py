"""A /proc of processes that are none, and a clock by which they go on."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

SIGNAL = 41
"""In place of the one behind SIGRTMIN."""


@dataclass(frozen=True)
class One:
    """A process; of its times and counters no two are alike."""

    parent: int = 1
    state: str = "S"
    cpu: tuple[int, int] = (0, 0)
    reaped: tuple[int, int] = (0, 0)
    faults: int = 0
    started: int = 0
    read: int = 0
    written: int = 0
    words: Sequence[str] = ("/usr/bin/python3", "train.py")
    name: str = "py (thon) 3"
    environ: Sequence[str] = ("HOME=/root",)
    waits_in: str = "0"
    children: Sequence[int] = ()
    threads: Mapping[int, tuple[str, int, int, str]] = field(default_factory=dict)
    """State, switches, ticks of CPU and name of each; the main one has the process's number."""
    caught: bool = True
    pending: bool = False
    blocked: Sequence[int] = ()
    """The threads that block the signal."""
    fds: Mapping[int, str] = field(default_factory=dict)


class Tree:
    """The folder, and what is in it; `writes` are the files that are no process's."""

    def __init__(self, root: Path) -> None:
        self.proc = root / "proc"
        self.now: dict[int, One] = {}
        self.put("uptime", "5000.25 7000.50\n")

    def put(self, name: str, text: str) -> None:
        """A file of this text."""
        path = self.proc / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def has(self, pid: int, one: One | None = None, **changes: Any) -> None:
        """The process is so from now on."""
        one = replace(one or self.now.get(pid, One()), **changes)
        self.now[pid] = one
        self.put(f"{pid}/stat", _stat(pid, one.name, one.state, one.parent, one))
        self.put(f"{pid}/io", f"rchar: {one.read}\nwchar: {one.written}\nsyscr: 9\n")
        self.put(f"{pid}/cmdline", "".join(f"{word}\0" for word in one.words))
        self.put(f"{pid}/environ", "".join(f"{word}\0" for word in one.environ))
        self.put(f"{pid}/wchan", one.waits_in)
        self.put(f"{pid}/status", _status(one.name, one, blocks=pid in one.blocked, switches=0))
        shutil.rmtree(self.proc / f"{pid}/task", ignore_errors=True)
        for tid, (state, switches, ticks, name) in (one.threads or {pid: ("S", 7, 0, "")}).items():
            thread = replace(one, cpu=(ticks, 1))
            self.put(f"{pid}/task/{tid}/stat", _stat(tid, name, state, pid, thread))
            blocks = tid in one.blocked
            self.put(
                f"{pid}/task/{tid}/status", _status(name, one, blocks=blocks, switches=switches)
            )
            own = one.children if tid == pid else ()
            self.put(f"{pid}/task/{tid}/children", " ".join(map(str, own)))
        for fd, target in one.fds.items():
            link = self.proc / f"{pid}/fd/{fd}"
            link.parent.mkdir(exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(target)


def _stat(pid: int, name: str, state: str, parent: int, one: One) -> str:
    numbers = [parent, 3, 4, 5, 6, 7, 8, 9, one.faults, 11, *one.cpu, *one.reaped, 20, 0, 1, 0]
    return f"{pid} ({name}) {state} {' '.join(map(str, numbers))} {one.started} 22 23\n"


def _status(name: str, one: One, *, blocks: bool, switches: int) -> str:
    bit = 1 << (SIGNAL - 1)
    masks = {
        "SigPnd": 0,
        "ShdPnd": bit * one.pending | 2,
        "SigBlk": bit * blocks | 4,
        "SigIgn": 8,
        "SigCgt": bit * one.caught | 16,
    }
    lines = [f"Name:\t{name}", "Umask:\t0022", *(f"{k}:\t{v:016x}" for k, v in masks.items())]
    counts = {"voluntary_ctxt_switches": switches, "nonvoluntary_ctxt_switches": 2}
    return "\n".join([*lines, *(f"{k}:\t{v}" for k, v in counts.items()), ""])


class Clock:
    """In place of the module `time`: who sleeps lets all happen that is due by then."""

    def __init__(self, *due: tuple[float, Callable[[], None]]) -> None:
        self.now = 100.0
        self.due = sorted(due, key=lambda one: one[0])

    def monotonic(self) -> float:
        """Seconds."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let them pass, and a little more: nobody wakes up at once."""
        self.now += seconds + 0.001
        while self.due and self.due[0][0] <= self.now:
            self.due.pop(0)[1]()
