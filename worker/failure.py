"""Which of the program's child processes failed first, and when.

torchrun waits up to 30 s for the siblings of a worker that failed before it exits itself: too late
to tell the first cause of a run's end from the failures that followed it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path

from worker import keeper

RECENT_SECONDS = 60.0
"""A child that failed longer ago did not end the program: torchrun had restarted it by then."""

_SWEEP_SECONDS = 0.05
_SLOW_SWEEP_SECONDS = 1.0
_YOUNG_SECONDS = 3.0
_YOUNG_LOOK_SECONDS = 0.01
_TOGETHER_SECONDS = 0.5
_TICKS = os.sysconf("SC_CLK_TCK")
_RANKS = (b"RANK", b"LOCAL_RANK", b"LOCAL_WORLD_SIZE")


@dataclass(frozen=True)
class Failure:
    """A child of the program that ended with something else than 0.

    `ended_at` is a time of `time.monotonic`. The ranks are those of its environment; None when it
    is not a worker of torchrun's kind (LOCAL_RANK and RANK both set).
    """

    ended_at: float
    pid: int
    exit_code: int
    worker_rank: int | None = None
    local_rank: int | None = None

    @property
    def age_seconds(self) -> float:
        """Time since then."""
        return time.monotonic() - self.ended_at


@dataclass(frozen=True)
class _Ranks:
    """Of a worker, by its environment; `siblings` is its node's number of workers, 0 if unknown."""

    rank: int
    local_rank: int
    siblings: int


@dataclass
class _Child:
    """A direct child of the program, `started` in ticks; without a `pidfd` its end is seen only by
    looking."""

    pid: int
    started: int
    pidfd: int | None
    ended: bool = False
    ranks: _Ranks | None = None


class ChildWatch:
    """Notes which children of the main process fail. What it misses is missing; it never raises.

    `worker_failed` is set when the first worker, known by its ranks, has failed.
    """

    def __init__(self) -> None:
        self.worker_failed = asyncio.Event()
        self._main_pid = 0
        self._children: dict[int, _Child] = {}
        self._failures: list[Failure] = []
        self._nameless: dict[int, int] = {}
        self._missed_at = float("-inf")
        self._interval = _SWEEP_SECONDS
        self._timer: asyncio.TimerHandle | None = None

    def open(self, main_pid: int) -> None:
        """Begin to watch."""
        self._main_pid = main_pid
        self._sweep()

    def close(self) -> None:
        """What ends from now on does not count."""
        if self._timer is not None:
            self._timer.cancel()
        for child in list(self._children.values()):
            self._look_at(child)
            self._forget(child)

    def first_failure(self, until: float) -> Failure | None:
        """The first failure of the `RECENT_SECONDS` before `until`; a worker's, if one failed.

        None when the end of a worker was missed before it: torchrun ends the siblings of a failed
        worker, and they are not to be blamed.
        """
        self._failures = [f for f in self._failures if f.ended_at > until - RECENT_SECONDS]
        workers = [f for f in self._failures if f.worker_rank is not None]
        first = next(iter(workers or self._failures), None)
        missed = self._missed_at > until - RECENT_SECONDS
        return None if first and missed and self._missed_at <= first.ended_at else first

    def _sweep(self) -> None:
        begun = time.thread_time()  # on a busy machine a sweep takes long, and costs no more
        known = set(self._children)
        with contextlib.suppress(OSError):  # no file descriptor left, for one
            for process in _children_of(self._main_pid):
                if process.pid not in known:
                    self._children[process.pid] = self._meet(process)
        # Fast until all workers are there: one may fail as soon as it has started.
        waiting = self._children.keys() - known or not any(c.ranks for c in self._children.values())
        slower = min(self._interval * 1.2, _SLOW_SWEEP_SECONDS)
        self._interval = _SWEEP_SECONDS if waiting else slower
        for child in list(self._children.values()):
            self._look_at(child)
        delay = max(self._interval, 20 * (time.thread_time() - begun))  # a twentieth of a core
        self._timer = asyncio.get_running_loop().call_later(delay, self._sweep)

    def _meet(self, process: keeper.Process) -> _Child:
        child = _Child(process.pid, process.started, pidfd=None)
        # Not every kernel, sandbox and build of Python has pidfds.
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                child.pidfd = os.pidfd_open(process.pid)
                asyncio.get_running_loop().add_reader(child.pidfd, self._look_at, child)
        self._look_soon(child, time.monotonic() + _YOUNG_SECONDS)
        return child

    def _look_soon(self, child: _Child, until: float) -> None:
        """Learn the ranks of a young child before it can fail: the dead one's cannot be read."""
        loop = asyncio.get_running_loop()
        loop.call_later(_YOUNG_LOOK_SECONDS, self._look_at_young, child, until)

    def _look_at_young(self, child: _Child, until: float) -> None:
        if self._children.get(child.pid) is not child or child.ended:
            return
        self._look_at(child)
        if child.ranks is None and time.monotonic() < until:
            self._look_soon(child, until)

    def _look_at(self, child: _Child) -> None:
        process = keeper.read_process(child.pid)
        if process is None or process.started != child.started:
            if child.ranks and not child.ended:
                self._missed_at = time.monotonic()
            self._forget(child)
        elif process.state != "Z":
            # Until it executes, a child still shows its parent's environment: look again.
            if (ranks := _ranks(child.pid)) is not None and ranks != child.ranks:
                child.ranks = ranks
                self._name_by_siblings()
        elif not child.ended:
            child.ended = True
            self._close_pidfd(child)
            self._note(child, keeper.unsigned(os.waitstatus_to_exitcode(process.status)))

    def _note(self, child: _Child, exit_code: int) -> None:
        if exit_code == 0:
            return
        failure = Failure(time.monotonic(), child.pid, exit_code)
        if child.ranks is None:
            self._failures.append(failure)
            self._nameless[child.pid] = child.started
            self._name_by_siblings()
        else:
            self._failures.append(_named(failure, child.ranks.rank, child.ranks.local_rank))
            self.worker_failed.set()

    def _name_by_siblings(self) -> None:
        """A worker that failed before its ranks could be read is the one whom its siblings lack.

        They start together; what else the program starts, it starts at other times.
        """
        workers = [child for child in self._children.values() if child.ranks is not None]
        known = [child.ranks for child in workers if child.ranks is not None]
        missing = set(range(len(known) + 1)) - {ranks.local_rank for ranks in known}
        together = _TOGETHER_SECONDS * _TICKS
        found = [
            pid
            for pid, started in self._nameless.items()
            if any(abs(started - worker.started) <= together for worker in workers)
        ]
        sizes = {ranks.siblings for ranks in known}
        if sizes != {len(known) + 1} or len(missing) != 1 or len(found) != 1:
            return
        (pid,), (local_rank,) = found, missing
        rank = known[0].rank - known[0].local_rank + local_rank
        self._failures = [
            _named(each, rank, local_rank) if each.pid == pid else each for each in self._failures
        ]
        del self._nameless[pid]
        self.worker_failed.set()

    def _forget(self, child: _Child) -> None:
        self._close_pidfd(child)
        self._children.pop(child.pid, None)

    def _close_pidfd(self, child: _Child) -> None:
        if child.pidfd is not None:
            asyncio.get_running_loop().remove_reader(child.pidfd)
            os.close(child.pidfd)
            child.pidfd = None


def _children_of(pid: int) -> list[keeper.Process]:
    """The direct children, from the kernel's own lists where it keeps them: that costs far less."""
    try:
        lists = [(task / "children").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return [process for process in keeper.processes() if process.parent == pid]
    found = (keeper.read_process(int(word)) for words in lists for word in words.split())
    return [process for process in found if process is not None]


def _named(failure: Failure, rank: int, local_rank: int) -> Failure:
    return replace(failure, worker_rank=rank, local_rank=local_rank)


def _ranks(pid: int) -> _Ranks | None:
    """Those of a process; a platform that sets RANK per node leaves LOCAL_RANK out."""
    try:
        items = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        found = dict(item.split(b"=", 1) for item in items if item.partition(b"=")[0] in _RANKS)
        siblings = int(found.get(b"LOCAL_WORLD_SIZE", b"0"))
        return _Ranks(int(found[b"RANK"]), int(found[b"LOCAL_RANK"]), siblings)
    except (OSError, KeyError, ValueError):
        return None


def code_words(code: int) -> str:
    """An exit code, with the signal that it stands for."""
    name = signal_name(code - 128)
    return f"exit code {code} ({name})" if name else f"exit code {code}"


def signal_name(number: int) -> str:
    """Such as SIGTERM; empty when there is no such signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""
