"""What /proc tells of a process that belongs to somebody else: its state, its use, its signals.

Each answer is empty where the process is gone, or may not be looked at.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")
_MOST_BYTES = 65_536
_GENERATIONS = 16


class Process(NamedTuple):
    """A process at one moment.

    Attributes:
        state: The letter of its state; empty where there is no such process.
        parent: The number of its parent.
        started: When it was started, in ticks since the machine was.
        cpu: Seconds of CPU that it has used.
        bytes: What it has read and written.
    """

    state: str = ""
    parent: int = 0
    started: int = 0
    cpu: float = 0.0
    bytes: int = 0

    @property
    def lives(self) -> bool:
        """Whether it is there, and not only waits to be reaped."""
        return self.state not in ("", "Z", "X", "x")

    @property
    def can_run(self) -> bool:
        """Whether it lives, and nobody has stopped it."""
        return self.lives and self.state not in ("T", "t")


class Signals(NamedTuple):
    """What becomes of signals; bit n - 1 stands for signal n."""

    pending: int = 0
    blocked: int = 0
    caught: int = 0


class Thread(NamedTuple):
    """A thread at one moment: its state, how often it has stopped running, and its CPU time."""

    state: str
    switches: int
    cpu: float


def read_process(proc: Path, pid: int) -> Process:
    """Look at one process."""
    # The name of the program, in parentheses, may hold blanks and parentheses itself.
    fields = _read(proc / f"{pid}/stat").rpartition(b")")[2].split()
    try:
        cpu = (int(fields[11]) + int(fields[12])) / _TICKS
        done = _counters(_read(proc / f"{pid}/io"))
        return Process(fields[0].decode()[:1], int(fields[1]), int(fields[19]), cpu, done)
    except (IndexError, ValueError):
        return Process()


def _counters(text: bytes) -> int:
    lines = (line.split() for line in text.splitlines())
    return sum(int(line[1]) for line in lines if line and line[0] in (b"rchar:", b"wchar:"))


def waits_in(proc: Path, pid: int) -> str:
    """What a process waits for in the kernel; empty where it does not wait, or nobody may know."""
    place = _read(proc / f"{pid}/wchan").decode(errors="replace").strip()
    return "" if place == "0" else place


def seconds_since(proc: Path, started: int) -> float:
    """How long ago a process was started."""
    try:
        return max(0.0, float(_read(proc / "uptime").split()[0]) - started / _TICKS)
    except (IndexError, ValueError):
        return 0.0


def is_below(proc: Path, pid: int, ancestor: int) -> bool:
    """Whether a process is this one, or was started by it or by what it has started."""
    for _ in range(_GENERATIONS):
        if pid == ancestor:
            return True
        pid = read_process(proc, pid).parent
    return False


def read_signals(proc: Path, pid: int) -> Signals:
    """The signals of a process's main thread; those that wait for any thread are among them."""
    return _signals_in(_read(proc / f"{pid}/status"))


def blocked_by_thread(proc: Path, pid: int) -> dict[str, int]:
    """Which signals each thread of a process blocks just now."""
    folder = proc / f"{pid}/task"
    return {
        name: _signals_in(_read(folder / name / "status")).blocked for name in _threads(proc, pid)
    }


def read_threads(proc: Path, pid: int) -> dict[str, Thread]:
    """The threads of a process, by number."""
    found = {}
    for name in _threads(proc, pid):
        folder = proc / f"{pid}/task/{name}"
        fields = _read(folder / "stat").rpartition(b")")[2].split()
        status = _lines(_read(folder / "status"))
        counts = [status.get(kind + b"voluntary_ctxt_switches") for kind in (b"", b"non")]
        try:
            cpu = (int(fields[11]) + int(fields[12])) / _TICKS
            switches = sum(int(count or b"0") for count in counts)
            found[name] = Thread(fields[0].decode()[:1], switches, cpu)
        except (IndexError, ValueError):  # it has ended
            continue
    return found


def _threads(proc: Path, pid: int) -> list[str]:
    try:
        return os.listdir(proc / f"{pid}/task")
    except OSError:
        return []


def _lines(text: bytes) -> dict[bytes, bytes]:
    # The program's name, the first line's, may hold anything but a line's end.
    return {
        name: value for name, _, value in (line.partition(b":\t") for line in text.split(b"\n"))
    }


def _signals_in(text: bytes) -> Signals:
    lines = _lines(text)

    def mask(name: bytes) -> int:
        try:
            return int(lines.get(name, b"0"), 16)
        except ValueError:
            return 0

    return Signals(mask(b"ShdPnd") | mask(b"SigPnd"), mask(b"SigBlk"), mask(b"SigCgt"))


def _read(path: Path) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, _MOST_BYTES)
    except OSError:
        return b""
    finally:
        os.close(fd)
