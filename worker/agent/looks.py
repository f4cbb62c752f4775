"""Looks at a program's machine: its counters before, and all of it when something has failed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rendezvous.cause.clues import Line
from rendezvous.wire.evidence import Fact
from worker.agent.environment import AgentEnvironment
from worker.agent.evidence import has_failed, named_in, pids_of
from worker.evidence.look import Asked, Counters
from worker.program.ending import Ending
from worker.program.family import Family
from worker.program.rank_words import RankWords

_MOST_LINES = 200
"""Of each rank: the last traceback is among them."""
_TELL_SECONDS = 0.5
"""How long the end of a program waits for a look that was begun at its failure."""


class Looks:
    """One program's.

    Args:
        environment: The outer world.
        first_rank: The global rank of its first process.
    """

    def __init__(self, environment: AgentEnvironment, first_rank: int) -> None:
        self._environment = environment
        self._first_rank = first_rank
        self._before: asyncio.Task[Counters] | None = None
        self._after: asyncio.Task[None] | None = None
        self.facts: tuple[Fact, ...] = ()

    def begin(self, pid: int | None) -> None:
        """Note the counters."""
        self._before = asyncio.create_task(self._aside(self._environment.look_before, pid))

    async def _aside(self, look: Callable[..., Counters], *args: object) -> Counters:
        try:
            found: Counters = await self._environment.in_thread(look, *args)
        except Exception:  # noqa: BLE001 (evidence is never worth a failure of its own)
            return Counters()
        return found

    def failed(
        self, family: Family, main: tuple[int, float] | None, said: RankWords | None
    ) -> None:
        """Look as soon as something has failed, and once: the kernel's counts do not last."""
        is_main = main is not None and main[0] != 0
        if self._after is None and self._before is not None and (is_main or has_failed(family)):
            self._after = asyncio.create_task(self._look(family, said))

    async def _look(self, family: Family, said: RankWords | None) -> None:
        assert self._before is not None
        paths, ports = named_in(self.lines(said))
        folders = self._environment.folders(self._environment.environ)
        asked = Asked(pids_of(family), folders, paths, ports)
        before = await self._before
        try:
            found = await self._environment.in_thread(self._environment.look_after, before, asked)
        except Exception:  # noqa: BLE001 (evidence is never worth a failure of its own)
            return
        self.facts = tuple(found)

    async def finish(self, family: Family, ending: Ending, said: RankWords | None) -> None:
        """The program is over: wait a moment for the look."""
        if not ending.was_told:
            self.failed(family, (ending.exit_code, ending.ended_at), said)
        if self._after is not None:
            await asyncio.wait([self._after], timeout=_TELL_SECONDS)
        for task in (self._before, self._after):
            if task is not None:
                task.cancel()

    def lines(self, said: RankWords | None) -> tuple[Line, ...]:
        """The last lines of each rank."""
        if said is None:
            return ()
        found = []
        for local in said.ranks():
            rank = None if local is None else self._first_rank + local
            found += [
                Line(text, rank, at, stream=stream)
                for at, text, stream in said.lines(local, _MOST_LINES)
            ]
        return tuple(found)
