"""Looks at what the ranks of a node have started, and at the launcher that starts the ranks.

A rank that waits for its own children is where they are: they are listed with their stacks, and
what they use counts as its work. The launcher matters where the process of a rank is not known.
"""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from features.hang.ranks import proc as processes
from features.hang.ranks.fitting import Beside
from features.hang.ranks.proc import Process
from features.hang.ranks.signalling import Suspect, stacks_by_turns
from features.hang.ranks.stacks import Stacks
from features.hang.wire import MAX_CHILDREN, ProcessLook, Stack
from rendezvous.wire.words import printable
from worker.look.site.sitecustomize import LAUNCHER, RANK_VARIABLES, SIGNAL, STACKS, read_streams

TURNS_SECONDS = 0.8
"""For the stacks of processes that share a file: no other is asked after it."""

MOST_LETTERS = 100
_HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""In the command of what Python starts for itself: nobody waits for it."""


class Family(NamedTuple):
    """A process, and those that it has started which live."""

    own: Process
    children: Mapping[int, Process]

    @property
    def cpu(self) -> float:
        """Seconds of CPU of its children, those that have ended included."""
        live = self.children.values()
        return self.own.reaped + sum(each.cpu + each.reaped for each in live)

    @property
    def bytes(self) -> int:
        """Bytes that its children have read and written."""
        return sum(each.bytes for each in self.children.values())

    @property
    def work(self) -> tuple[float, int]:
        """The seconds of CPU and the bytes of all of them."""
        return self.own.cpu + self.cpu, self.own.bytes + self.bytes


def rank_variables(folder: Path) -> list[str]:
    """Variables that number a rank here: a job's own, as Slurm's, are in each of its processes."""
    try:
        return read_streams(str(folder))[1]
    except (OSError, ValueError):
        return [*RANK_VARIABLES]


def family_of(proc: Path, pid: int | None, but: Collection[int] = ()) -> Family:
    """A process and what it has started, without those left out and what these have started."""
    own = processes.read_process(proc, pid) if pid else Process()
    return Family(own, processes.descendants(proc, pid, but) if pid and own.lives else {})


def use_of(proc: Path, pid: int, was: Process, now: Process) -> dict[str, Any]:
    """Resources that a process has used, in all and during the look, as its message has them."""
    return {
        "pid": pid,
        "state": now.state,
        "waits_in": printable(processes.waits_in(proc, pid), MOST_LETTERS) if now.state else "",
        "lives": processes.seconds_since(proc, now.started) if now.state else 0.0,
        "cpu_total": max(0.0, now.cpu),
        "bytes_total": max(0, now.bytes),
        "cpu": max(0.0, now.cpu - was.cpu),
        "bytes": max(0, now.bytes - was.bytes),
    }


class Families:
    """Families of one node, from the beginning of a look to its end.

    Args:
        folder: What RDZV_LOOK_FOLDER names for these ranks.
        ranks: The process of each local rank; 0 where nobody knows it.
        launcher: The process of the program, which may be a rank itself; None: not known.
        proc: Where /proc is.
    """

    def __init__(
        self, folder: Path, ranks: Mapping[int, int], launcher: int | None, proc: Path
    ) -> None:
        self._folder, self._ranks, self._proc = folder, ranks, proc
        is_needed = launcher not in ranks.values() and not all(ranks.values())
        self._launcher = launcher if is_needed else None
        self._read()
        self._before = dict(self._everyone())
        self._stacks: Mapping[int, Stacks] = {}
        self._suspects = [*self._suspected()]

    def _read(self) -> None:
        self.of = {rank: family_of(self._proc, pid) for rank, pid in self._ranks.items()}
        self._above = family_of(self._proc, self._launcher, self._ranks.values())

    def _everyone(self) -> Iterator[tuple[int, Process]]:
        for family in (*self.of.values(), self._above):
            yield from family.children.items()
        yield self._launcher or 0, self._above.own

    def _suspected(self) -> Iterator[Suspect]:
        """Processes that may write their stacks."""
        number = signal.SIGRTMIN + SIGNAL
        for name, pids in {
            **{str(r): self._listed(r) for r in self.of},
            LAUNCHER: self._up,
        }.items():
            file = self._folder / f"{name}{STACKS}"
            for pid in pids:
                if self._before.get(pid, Process()).can_run:
                    yield Suspect(pid, number, file, proc=self._proc)

    def _listed(self, rank: int) -> list[int]:
        """The children that somebody may wait for, the nearest first."""
        names = {pid: processes.command(self._proc, pid) for pid in self.of[rank].children}
        own = [pid for pid, name in names.items() if not any(one in name for one in _HELPERS)]
        return own[:MAX_CHILDREN]

    @property
    def _up(self) -> list[int]:
        """The launcher and what else it has started, where that matters."""
        return [self._launcher, *self._above.children][:MAX_CHILDREN] if self._launcher else []

    def finish(self) -> None:
        """See where all of them are, and what they have used since the beginning."""
        self._stacks = stacks_by_turns(self._suspects, self._proc, TURNS_SECONDS)
        self._read()

    def children(self, rank: int) -> list[Beside]:
        """Processes that a rank has started, the nearest first."""
        family = self.of[rank].children
        return [self._beside(pid, family[pid]) for pid in self._listed(rank)]

    def launcher(self) -> Beside | None:
        """The launcher or a helper of it that has told its stack, with what all of them have used;
        None where it does not matter."""
        if not self._launcher or not self._above.own.lives:
            return None
        now = {self._launcher: self._above.own, **self._above.children}
        pid = next((pid for pid in now if self._main(pid)), self._launcher)
        beside = self._beside(pid, now[pid])
        cpu, count = self._above.work
        totals = {"cpu_total": cpu, "bytes_total": count}
        return Beside(beside.look.model_copy(update=totals), beside.main)

    def unstarted(self) -> list[int]:
        """The local ranks without a process: nothing that the launcher has started may be one."""
        if not self._launcher or not self._above.own.lives:
            return []
        names = rank_variables(self._folder)
        if any(processes.has_variable(self._proc, pid, names) for pid in self._above.children):
            return []
        return [rank for rank, pid in self._ranks.items() if not pid]

    def _main(self, pid: int) -> Stack | None:
        found = self._stacks.get(pid)
        return found.main if found is not None else None

    def _beside(self, pid: int, now: Process) -> Beside:
        name = printable(processes.command(self._proc, pid), MOST_LETTERS)
        use = use_of(self._proc, pid, self._before.get(pid, now), now)
        return Beside(ProcessLook(name=name, **use), self._main(pid))
