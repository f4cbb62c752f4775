"""Worker runs that a former launch has left: found by its ledger, and ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from launcher.cleanup.endings import Endings, Tracked, by_slot
from launcher.prepare.environment import LaunchEnvironment
from launcher.schedulers.contract import Scheduler, SchedulerContext
from launcher.state.ledger import Ledger
from rendezvous.wire.errors import UsageError


@dataclass
class Orphans:
    """Worker runs of a ledger that may still exist.

    Attributes:
        runs: The worker runs.
        unknown: Names of those whose scheduler cannot be used, and why not.
    """

    runs: list[Tracked] = field(default_factory=list)
    unknown: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def read(
        ledger: Ledger,
        context: SchedulerContext,
        make: Callable[[str, SchedulerContext], Scheduler],
    ) -> Orphans:
        """Read a ledger, and find the schedulers of its entries."""
        orphans, schedulers = Orphans(), dict[str, Scheduler]()
        for entry in ledger.left():
            starter = entry.starter
            try:
                if starter not in schedulers:
                    schedulers[starter] = make(starter, context)
            except UsageError as exc:
                orphans.unknown[entry.name] = exc.message
                continue
            known = Tracked(entry.run, schedulers[starter], starter, entry.handle)
            known.former = entry.former
            orphans.runs.append(known)
        return orphans

    @property
    def words(self) -> str:
        """Count for a person of those that may still exist; empty: none."""
        if not (count := sum(not run.gone for run in self.runs)):
            return ""
        return f"{count} worker run{'s' * (count > 1)} of the previous launch may still exist"

    async def end(self, endings: Endings, ledger: Ledger, say: Callable[[str], None]) -> list[str]:
        """End all of it, and say what could not be ended; returns the names of that."""
        for name, error in self.unknown.items():
            say(f"worker run {name} may still exist: {error}")
        if self.words:
            say(f"{self.words}: ending them")
        for run in self.runs:
            endings.begin(run)

        async def end(run: Tracked) -> None:
            await endings.until_ended(run)
            if run.gone:
                run.note(ledger)

        await asyncio.gather(*map(end, self.runs))
        unended = [run for run in self.runs if not run.gone]
        for run in by_slot(unended):
            say(run.orphan_words)
        return [*self.unknown, *(run.work.name for run in unended)]


async def end_left(
    ledger: Ledger,
    context: SchedulerContext,
    say: Callable[[str], None],
    *,
    grace: float,
    world: LaunchEnvironment | None = None,
) -> bool:
    """End what a former launch has left at its schedulers; returns whether all of it is gone.

    Args:
        ledger: Of the former launch, whose launcher is no longer alive.
        context: For the schedulers.
        say: Shows what is done, and what could not be ended.
        grace: Seconds for the programs to end.
        world: The outer world; this machine when not given.
    """
    world = world or LaunchEnvironment()
    orphans = Orphans.read(ledger, context, world.scheduler)
    return not await orphans.end(Endings(grace), ledger, say)
