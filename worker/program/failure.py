"""Watches a program's child processes: which end, how, and with which ranks.

torchrun waits up to 30 s for the siblings of a rank that failed before it exits itself: too late
to tell the first cause of a run's end from the failures that followed it. What may be concluded
from what is seen here, `worker.program.family` decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from worker.program.family import RANK_VARIABLES, Child, Family, Ranks, ranks_in
from worker.program.keeper import unsigned
from worker.program.process_table import Process, environment_of, processes, read_process

RECENT_SECONDS = 60.0
"""A child that ended longer ago did not end the program: torchrun had restarted it by then."""

_SWEEP_SECONDS = 0.05
_SLOW_SWEEP_SECONDS = 1.0
_YOUNG_SECONDS = 3.0
_YOUNG_LOOK_SECONDS = 0.01
_NOTED = ("T", "t", "D")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class _Watched:
    """A direct child of the program, as last seen, `started` in ticks; without a `pidfd` its end is
    seen only by looking."""

    child: Child
    started: int
    pidfd: int | None = None

    @property
    def pid(self) -> int:
        return self.child.pid

    @property
    def ranks(self) -> Ranks | None:
        return self.child.ranks

    @property
    def ended(self) -> bool:
        return self.child.ended_at is not None


class ChildWatch:
    """Looks at the children of the main process. What it misses is missing; it never raises.

    Args:
        own: The ranks in the main process's environment.
        changed: Called when a child has ended of which something may be concluded.
    """

    def __init__(self, own: Ranks | None, changed: Callable[[], None]) -> None:
        self._own = own
        self._changed = changed
        self._main_pid = 0
        self._watched: dict[int, _Watched] = {}
        self._ended: list[Child] = []
        self._interval = _SWEEP_SECONDS
        self._timer: asyncio.TimerHandle | None = None
        self._last: Family | None = None

    def open(self, main_pid: int) -> None:
        """Begin to watch."""
        self._main_pid = main_pid
        self._sweep()

    def close(self) -> None:
        """What happens from now on does not count."""
        if self._last is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
        for watched in list(self._watched.values()):
            self._look_at(watched)
        self._last = self._family()
        for watched in list(self._watched.values()):
            self._forget(watched)

    @property
    def family(self) -> Family:
        """The children that live, and of those that ended in the last `RECENT_SECONDS` the ranks
        and what failed; when the watch is closed, as they were then."""
        return self._last or self._family()

    def _family(self) -> Family:
        since = time.monotonic() - RECENT_SECONDS
        self._ended = [child for child in self._ended if (child.ended_at or 0.0) > since]
        alive = [watched.child for watched in self._watched.values() if not watched.ended]
        return Family(self._own, (*self._ended, *alive))

    def _sweep(self) -> None:
        begun = time.thread_time()  # on a busy machine a sweep takes long, and costs no more
        known = set(self._watched)
        with contextlib.suppress(OSError):  # no file descriptor left, for one
            for process in _children_of(self._main_pid):
                if process.pid not in known:
                    self._watched[process.pid] = self._meet(process)
        # Fast until all ranks are there: one may fail as soon as it has started.
        waiting = self._watched.keys() - known or not any(w.ranks for w in self._watched.values())
        slower = min(self._interval * 1.2, _SLOW_SWEEP_SECONDS)
        self._interval = _SWEEP_SECONDS if waiting else slower
        for watched in list(self._watched.values()):
            self._look_at(watched)
        delay = max(self._interval, 20 * (time.thread_time() - begun))  # a twentieth of a core
        self._timer = asyncio.get_running_loop().call_later(delay, self._sweep)

    def _meet(self, process: Process) -> _Watched:
        now = time.monotonic()
        watched = _Watched(Child(process.pid, process.started / _TICKS, now), process.started)
        # Not every kernel, sandbox and build of Python has pidfds.
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                watched.pidfd = os.pidfd_open(process.pid)
                asyncio.get_running_loop().add_reader(watched.pidfd, self._look_at, watched)
        self._look_soon(watched, now + _YOUNG_SECONDS)
        return watched

    def _look_soon(self, watched: _Watched, until: float) -> None:
        """Learn the ranks of a young child before it can fail: the dead one's cannot be read."""
        loop = asyncio.get_running_loop()
        loop.call_later(_YOUNG_LOOK_SECONDS, self._look_at_young, watched, until)

    def _look_at_young(self, watched: _Watched, until: float) -> None:
        if self._watched.get(watched.pid) is not watched or watched.ended:
            return
        self._look_at(watched)
        if watched.ranks is None and time.monotonic() < until:
            self._look_soon(watched, until)

    def _look_at(self, watched: _Watched) -> None:
        process = _read(watched)
        if process is not None and process.state != "Z":
            # Until it executes, a child still shows its parent's environment: look again.
            state = process.state if process.state in _NOTED else ""
            ranks = _ranks(watched.pid) or watched.ranks
            if (ranks, state) != (watched.ranks, watched.child.state):
                watched.child = replace(watched.child, ranks=ranks, state=state)
            return
        if not watched.ended:
            self._note_ends()
        if process is None:
            self._forget(watched)

    def _note_ends(self) -> None:
        """Note all that have ended by now: at one time, as they did so in an order that is not
        known. On a busy machine there are several, and the kernel tells of them in any order."""
        now, told = time.monotonic(), False
        for watched in [watched for watched in self._watched.values() if not watched.ended]:
            process = _read(watched)
            if process is not None and process.state != "Z":
                continue
            self._close_pidfd(watched)
            code = unsigned(os.waitstatus_to_exitcode(process.status)) if process else None
            watched.child = replace(watched.child, ended_at=now, exit_code=code)
            if watched.ranks is not None or code:
                self._ended.append(watched.child)
                told = True
        if told:
            self._changed()

    def _forget(self, watched: _Watched) -> None:
        self._close_pidfd(watched)
        self._watched.pop(watched.pid, None)

    def _close_pidfd(self, watched: _Watched) -> None:
        if watched.pidfd is not None:
            asyncio.get_running_loop().remove_reader(watched.pidfd)
            os.close(watched.pidfd)
            watched.pidfd = None


def _read(watched: _Watched) -> Process | None:
    """The process as it is; None when it was reaped."""
    process = read_process(watched.pid)
    return process if process and process.started == watched.started else None


def _children_of(pid: int) -> list[Process]:
    """The direct children, from the kernel's own lists where it keeps them: that costs far less."""
    try:
        lists = [(task / "children").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return [process for process in processes() if process.parent == pid]
    found = (read_process(int(word)) for words in lists for word in words.split())
    return [process for process in found if process is not None]


def _ranks(pid: int) -> Ranks | None:
    parts = (item.decode(errors="replace").partition("=") for item in environment_of(pid))
    return ranks_in({name: value for name, _, value in parts if name in RANK_VARIABLES})
