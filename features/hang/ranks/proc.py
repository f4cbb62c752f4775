"""What /proc tells of a process that belongs to somebody else: its state, its use, its signals.

Each answer is empty where the process is gone, or may not be looked at.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")
_MOST_BYTES = 65_536
_GENERATIONS = 16
_MOST_FAMILY = 512
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Process(NamedTuple):
    """A process at one moment.

    Attributes:
        state: The letter of its state; empty where there is no such process.
        parent: The number of its parent.
        started: When it was started, in ticks since the machine was.
        cpu: Seconds of CPU that it has used.
        bytes: What it has read and written, and the pages of mapped files that it waited for.
        reaped: Seconds of CPU of its children that have ended.
    """

    state: str = ""
    parent: int = 0
    started: int = 0
    cpu: float = 0.0
    bytes: int = 0
    reaped: float = 0.0

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
    """A thread at one moment: its state, how often it has stopped running, its CPU time, and its
    name."""

    state: str
    switches: int
    cpu: float
    name: str = ""


def read_process(proc: Path, pid: int) -> Process:
    """Look at one process."""
    # The name of the program, in parentheses, may hold blanks and parentheses itself.
    fields = _read(proc / f"{pid}/stat").rpartition(b")")[2].split()
    try:
        cpu = (int(fields[11]) + int(fields[12])) / _TICKS
        reaped = (int(fields[13]) + int(fields[14])) / _TICKS
        done = _counters(_read(proc / f"{pid}/io")) + int(fields[9]) * _PAGE_BYTES
        return Process(fields[0].decode()[:1], int(fields[1]), int(fields[19]), cpu, done, reaped)
    except (IndexError, ValueError):
        return Process()


def _counters(text: bytes) -> int:
    lines = (line.split() for line in text.splitlines())
    return sum(int(line[1]) for line in lines if line and line[0] in (b"rchar:", b"wchar:"))


def descendants(proc: Path, pid: int, but: Collection[int] = ()) -> dict[int, Process]:
    """The processes that one has started, and those that these have, the nearest first.

    Args:
        proc: Where /proc is.
        pid: The one.
        but: Processes that are left out, with their own.
    """
    found: dict[int, Process] = {}
    todo = [pid]
    for parent in todo:
        for child in _children(proc, parent):
            if child not in found and child not in but and len(found) < _MOST_FAMILY:
                found[child] = read_process(proc, child)
                todo.append(child)
    return {child: process for child, process in found.items() if process.lives}


def _children(proc: Path, pid: int) -> list[int]:
    """Children of a process, in the order of their start; none where the kernel lists none."""
    tasks = (_read(proc / f"{pid}/task/{name}/children") for name in _threads(proc, pid))
    return sorted(int(word) for text in tasks for word in text.split() if word.isdigit())


def command(proc: Path, pid: int) -> str:
    """The words that a process was started with, without their folders."""
    words = _read(proc / f"{pid}/cmdline").split(b"\0")
    return " ".join(word.rpartition(b"/")[2].decode(errors="replace") for word in words).strip()


def has_variable(proc: Path, pid: int, names: Iterable[str]) -> bool:
    """Return whether a process was started with one of these variables, or may have been."""
    text = _read(proc / f"{pid}/environ")
    given = {line.partition(b"=")[0].decode(errors="replace") for line in text.split(b"\0")}
    return not text or not given.isdisjoint(names)


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
        head, _, tail = _read(folder / "stat").rpartition(b")")
        fields, called = tail.split(), head.partition(b"(")[2].decode(errors="replace")
        status = _lines(_read(folder / "status"))
        counts = [status.get(kind + b"voluntary_ctxt_switches") for kind in (b"", b"non")]
        try:
            cpu = (int(fields[11]) + int(fields[12])) / _TICKS
            switches = sum(int(count or b"0") for count in counts)
            found[name] = Thread(fields[0].decode()[:1], switches, cpu, called)
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
