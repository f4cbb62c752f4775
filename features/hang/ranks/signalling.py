"""Reads the stack of a process that does not answer, by the signal that the hook has prepared.

faulthandler then writes it without the GIL and without care: a thread that runs Python code
meanwhile changes what it reads, and the process crashes. So the signal is sent only where no thread
does, as `may_signal` finds, and only to a process that has prepared for it, since each other one
would die of it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from features.hang.ranks import proc as processes
from features.hang.ranks.proc import Thread
from features.hang.ranks.stacks import MOST_TEXT, Stacks, stacks_in
from worker.look.site.sitecustomize import HIGH_FILES

MOST_THREADS = 512
SLEEPS_SECONDS = 0.1
"""A process whose threads have all slept so long is not about to run Python code."""

WORKS_SECONDS = 0.02
"""Who has had the CPU so long, and gave the GIL to nobody that waited, runs no Python code."""

WATCH_SECONDS = 0.3
WRITE_SECONDS = 0.8
_WATCH_PAUSE_SECONDS = 0.03
_WRITE_PAUSE_SECONDS = 0.002
_CALM = 2
_GRACE_SECONDS = 0.05

NATIVE = frozenset({"gloo_tcp_loop"})
"""Threads of C++ that wake up a hundred times a second, and never run Python code."""

Threads = Mapping[str, Thread]
Watched = list[tuple[float, Threads]]
"""The threads of a process at several times, in seconds."""


def may_signal(watched: Watched, *, silent: bool) -> bool:
    """Whether no thread of a process runs Python code, or will in the next moment. Pure.

    Args:
        watched: Its threads until now.
        silent: Whether its answering thread has waited for the GIL all the time. Then the thread
            that has it runs no Python code, or would have given it up; unless it only wants the
            CPU. If not, all threads have to be asleep, and to have slept for a while.
    """
    now, threads = watched[-1]
    if not threads or any(each.keys() != threads.keys() for _, each in watched):
        return False
    if silent:
        first = watched[0][1]
        return len(watched) > 1 and not any(
            thread.cpu - first[name].cpu < WORKS_SECONDS
            and all(each[name].state == "R" for _, each in watched)
            for name, thread in threads.items()
        )
    before = [each for at, each in watched if at <= now - SLEEPS_SECONDS]
    return bool(before) and all(
        thread.state == "S" and thread.switches == before[-1][name].switches
        for name, thread in threads.items()
        if thread.name not in NATIVE
    )


class Suspect:
    """A process that does not answer: what says so, and what its threads have done since.

    Args:
        pid: Its process.
        signal: The one of the hook.
        path: The file into which it writes.
        silent: Whether it has a thread that should answer.
        proc: Where /proc is.
    """

    def __init__(
        self, pid: int, signal: int, path: Path, *, silent: bool = False, proc: Path
    ) -> None:
        self.pid, self.signal, self.path, self.silent = pid, signal, path, silent
        self._proc = proc
        self._watched: Watched = []
        self.may_signal()

    def may_signal(self) -> bool:
        """Look at it once more: whether it can be sent the signal just now."""
        threads = processes.read_threads(self._proc, self.pid)
        self._watched.append((time.monotonic(), threads))
        return len(threads) <= MOST_THREADS and may_signal(self._watched, silent=self.silent)


def stacks_by_turns(suspects: Iterable[Suspect], proc: Path, seconds: float) -> dict[int, Stacks]:
    """The main threads' stacks, by process: those that share a file write one after the other.

    Args:
        suspects: They were made some tenths of a second ago.
        proc: Where /proc is.
        seconds: After which no other turn begins.
    """
    deadline = time.monotonic() + seconds
    turns: list[dict[int, Suspect]] = []
    for each in suspects:
        free = (turn for turn in turns if all(one.path != each.path for one in turn.values()))
        turn = next(free, None)
        if turn is None:
            turns.append(turn := {})
        turn[each.pid] = each
    found: dict[int, Stacks] = {}
    for turn in turns:
        if time.monotonic() < deadline:
            found |= stacks_by_signal(turn, proc)
    return found


def stacks_by_signal(suspects: Mapping[int, Suspect], proc: Path) -> dict[int, Stacks]:
    """The main threads' stacks, of those processes that write one; takes 1.1 s at most.

    Args:
        suspects: By any number, each with a file of its own; those that are not silent were made
            some tenths of a second ago.
        proc: Where /proc is.
    """
    watched, sent = dict(suspects), dict[int, _Writing]()
    deadline = time.monotonic() + WATCH_SECONDS
    while watched and time.monotonic() < deadline:
        for rank, each in list(watched.items()):
            asked = each.may_signal()
            if asked or not each.silent:  # the others have been watched long enough
                del watched[rank]
            writing = _send(each, proc) if asked else None
            sent |= {rank: writing} if writing else {}
        time.sleep(_WATCH_PAUSE_SECONDS if watched else 0.0)
    waiting, deadline = dict(sent), time.monotonic() + WRITE_SECONDS
    while waiting and time.monotonic() < deadline:
        time.sleep(_WRITE_PAUSE_SECONDS)
        waiting = {rank: writing for rank, writing in waiting.items() if not writing.is_over()}
    return {
        rank: stacks_in(_tail(writing.path), finished=rank not in waiting)
        for rank, writing in sent.items()
    }


def _send(suspect: Suspect, proc: Path) -> _Writing | None:
    pid, number, path = suspect.pid, suspect.signal, suspect.path
    if not _is_prepared(proc, pid, number, path):
        return None
    writing = _Writing(proc, pid, number, path)
    try:
        os.truncate(path, 0)
        os.kill(pid, number)
    except OSError:
        return None
    return writing


class _Writing:
    """A process that has been sent the signal."""

    def __init__(self, proc: Path, pid: int, number: int, path: Path) -> None:
        self.path = path
        self._process = (proc, pid, number)
        self._blocked = _blocking(*self._process)
        self._calm = 0
        self._until = time.monotonic() + _GRACE_SECONDS

    def is_over(self) -> bool:
        """Whether it has written all that it will, or has been stopped."""
        proc, pid, number = self._process
        if not processes.read_process(proc, pid).can_run:
            return True
        pending = processes.read_signals(proc, pid).pending >> (number - 1) & 1
        at_it = pending or _blocking(proc, pid, number) - self._blocked
        self._calm = 0 if at_it else self._calm + 1
        return self._calm >= _CALM and (_size(self.path) > 0 or time.monotonic() > self._until)


def _blocking(proc: Path, pid: int, number: int) -> set[str]:
    """The threads that block a signal: also each that handles it just now."""
    masks = processes.blocked_by_thread(proc, pid)
    return {name for name, mask in masks.items() if mask >> (number - 1) & 1}


def _is_prepared(proc: Path, pid: int, number: int, path: Path) -> bool:
    """Whether a process handles the signal, has none waiting, and writes to this very file."""
    bit = 1 << (number - 1)
    signals = processes.read_signals(proc, pid)
    if not signals.caught & bit or signals.pending & bit:
        return False
    return any(_is_same(proc / f"{pid}/fd/{fd}", path) for fd in HIGH_FILES)


def _is_same(path: Path, other: Path) -> bool:
    try:
        return os.path.samefile(path, other)
    except OSError:
        return False


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _tail(path: Path) -> str:
    """The end of a file, where the main thread is."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, _size(path) - MOST_TEXT))
            return file.read(MOST_TEXT).decode(errors="replace")
    except OSError:
        return ""
