"""A program as an agent finds it (`RunningProgram`): how it behaves is the schedule's."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from worker.program.ending import Ending, LeftBehind
from worker.program.family import Child, Family, Ranks, failed_rank, likely_cause

if TYPE_CHECKING:
    from tests.simulation.agents import Process

_KILLED, _TOLD = 137, 143


@dataclass(frozen=True)
class Course:
    """How a program would go if nobody ended it.

    Attributes:
        code: With which it ends; not 0: its first rank fails then.
        ranks: How many processes it has; 0: it is its only one.
        siblings: Seconds from a rank's failure to the launcher's own end.
        late: Seconds that its last rank ends after the others.
        leftover: Seconds that what it has started lives on.
        drain: Seconds until its output is read.
        reaction: Seconds from TERM to its end; longer than the grace: it is killed.
        finishes: After TERM it finishes what it does, and ends well.
    """

    seconds: float
    code: int = 0
    ranks: int = 1
    siblings: float = 0.0
    late: float = 0.0
    leftover: float = 0.0
    drain: float = 0.0
    reaction: float = 0.05
    finishes: bool = False


class SimulatedProgram:
    """One program of one node."""

    def __init__(self, process: Process, course: Course, grace: float) -> None:
        self.changed: Callable[[], None] = lambda: None
        self.main_ended: tuple[int, float] | None = None
        self.main_pid: int | None = None
        self.signals: list[int] = []
        self.was_killed = self._was_told = False
        self.told_at: float | None = None
        self.killed_at: float | None = None
        self._process = process
        self._loop = process.world.loop
        self._course = course
        self._grace = grace
        self._leftover = course.leftover
        self._gone: asyncio.Future[Ending] = self._loop.create_future()
        now, ranks = self._loop.time(), course.ranks
        first = process.node * ranks
        self.family = Family(
            None, tuple(Child(100 + n, now, now, Ranks(first + n, n, ranks)) for n in range(ranks))
        )
        self._later(course.seconds, self.end_by_itself, course.code)

    def _later(self, seconds: float, call: Callable[..., object], *arguments: object) -> None:
        context = self._process.machine.context
        self._loop.call_later(seconds, call, *arguments, context=context)

    # --- what happens to it -------------------------------------------------------------------

    def end_by_itself(self, code: int) -> None:
        if self._is_ending():
            return
        if code:
            self._process.note_failure()
        ranks = self._course.ranks
        if not ranks:
            self._main_ends(code)
        elif code:
            self._process.rank_code = code
            self._rank_ends(0, code)
            self._later(0.1, self._siblings_end)
            self._later(self._course.siblings + 0.2, self._main_ends, 1)
        else:
            for number in range(ranks):
                is_last = number == ranks - 1 and ranks > 1
                self._later(self._course.late * is_last, self._rank_ends, number, 0)
            self._later(self._course.late * (ranks > 1) + 0.05, self._main_ends, 0)

    def _is_ending(self) -> bool:
        ended = any(child.ended_at is not None for child in self.family.children)
        return ended or self.main_ended is not None or self._was_told

    def _siblings_end(self) -> None:
        for number in range(1, self._course.ranks):
            if number == 1 or not self._course.siblings:
                self._rank_ends(number, _TOLD)

    def _rank_ends(self, number: int, code: int) -> None:
        child = self.family.children[number]
        if child.ended_at is None and self.main_ended is None and not self._was_told:
            children = [*self.family.children]
            children[number] = replace(child, ended_at=self._loop.time(), exit_code=code)
            self.family = replace(self.family, children=tuple(children))
            self.changed()

    def _main_ends(self, code: int) -> None:
        if self.main_ended is not None:
            return
        self.main_ended = (code, self._loop.time())
        self._process.note_program_end(code, was_told=self._was_told)
        self.changed()
        self._later(self._leftover, self._all_ended)

    def _all_ended(self) -> None:
        failed = self.main_ended is not None and self.main_ended[0] != 0
        self._later(self._course.drain if failed else 0.0, self._settle)

    def _settle(self) -> None:
        if self._gone.done() or self.main_ended is None:
            return
        code, ended_at = self.main_ended
        cause = failed_rank(self.family) if self._was_told else likely_cause(self.family)
        leaves = self._leftover and not code and not self._was_told
        left = LeftBehind(1, ((77, 3, "python helper.py"),)) if leaves else None
        self._gone.set_result(Ending(code, ended_at, cause, left, was_told=self._was_told))

    @property
    def is_gone(self) -> bool:
        return self._gone.done()

    # --- what its agent does ------------------------------------------------------------------

    def signal(self, number: int) -> None:
        self.signals.append(number)

    async def wait(self) -> Ending:
        return await asyncio.shield(self._gone)

    async def stop(self, *, ends_itself: bool = False) -> Ending:
        if not self._was_told:
            self._was_told, self.told_at = True, self._loop.time()
            if self.main_ended is None:
                dies = self._course.reaction > self._grace
                seconds = min(self._course.reaction, self._grace)
                told = 0 if self._course.finishes else _TOLD
                self._later(seconds, self._main_ends, _KILLED if dies else told)
        return await self.wait()

    def may_run(self, until: float) -> None:
        """These machines stand still, and die, as a whole."""

    def kill_now(self) -> None:
        self._was_told = self.was_killed = True
        self.killed_at = self._loop.time() if self.killed_at is None else self.killed_at
        self._leftover = 0.0
        self._later(0.01, self._main_ends, _KILLED)
        self._later(0.02, self._all_ended)


class NotStarted:
    """What its keeper does not start, as it comes too late: it is gone at once."""

    family = Family()
    main_ended: tuple[int, float] | None = None
    main_pid: int | None = None

    def __init__(self, now: float) -> None:
        self.changed: Callable[[], None] = lambda: None
        self._ending = Ending(_KILLED, now)

    def signal(self, number: int) -> None:
        """Nothing runs."""

    async def wait(self) -> Ending:
        return self._ending

    async def stop(self, *, ends_itself: bool = False) -> Ending:
        return self._ending

    def kill_now(self) -> None:
        """Nothing runs."""

    def may_run(self, until: float) -> None:
        """It is too late for that."""


def draw_course(draw: random.Random, seconds: float, code: int, ranks: int) -> Course:
    return Course(
        seconds=seconds,
        code=code,
        ranks=ranks,
        siblings=draw.choice([0.0, 0.0, 0.5, 6.0]) if ranks > 1 else 0.0,
        late=draw.choice([0.0, 0.0, 0.0, 0.3, 14.0]) if ranks > 1 and seconds < 4.0 else 0.0,
        leftover=draw.choice([0.0, 0.0, 0.0, 0.4, 2.5]),
        reaction=draw.choice([0.05, 0.05, 0.5, 2.0, 9.0]),
    )
