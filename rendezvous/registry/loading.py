"""Runs that a replica has claimed: read, and served once it is durable that it does."""

from __future__ import annotations

import asyncio
import logging

from rendezvous.registry.membership import Membership
from rendezvous.registry.sequencer import Change, Sequencer
from rendezvous.registry.shared_journal import SharedJournal
from rendezvous.registry.waiters import Waiters
from rendezvous.run import events
from rendezvous.wire.errors import RegistryError, Unavailable, UsageError
from rendezvous.wire.run import Phase

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.25
"""Whoever waits for a change looks that often, whether or not it was told of one."""


class Loads:
    """The runs that are being read.

    Args:
        journal: From where.
        sequencer: Of the registry that is to serve them.
        members: As the beats show them.
        changed: Who waits for a beat, or for a run that is served, or cannot be.
        hurry: Set to have the next beat sooner.

    Attributes:
        unreadable: Why runs cannot be served: they stay with this replica.
    """

    def __init__(
        self,
        journal: SharedJournal,
        sequencer: Sequencer,
        members: Membership,
        changed: Waiters,
        hurry: asyncio.Event,
    ) -> None:
        self._journal = journal
        self._sequencer = sequencer
        self._members = members
        self._changed = changed
        self._hurry = hurry
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.unreadable: dict[str, UsageError] = {}

    def __contains__(self, run: object) -> bool:
        return run in self._tasks

    def begin(self, run: str) -> None:
        """Read a run that was claimed; one that is being read is not read twice."""
        if run not in self._tasks:
            task = self._tasks[run] = asyncio.create_task(self._read(run))
            task.add_done_callback(lambda _: self._tasks.pop(run, None))

    def cancel(self) -> None:
        """The replica ends."""
        for task in self._tasks.values():
            task.cancel()

    async def _read(self, run: str) -> None:
        try:
            await self._take(run)
        except Unavailable as exc:  # the next beat has it read again
            logger.warning("run %s could not be taken over yet: %s", run, exc.message)
        except RegistryError as exc:
            logger.error("run %s cannot be served: %s", run, exc)
        except UsageError as exc:
            logger.error("run %s cannot be read: %s", run, exc)
            self.unreadable[run] = exc
        self._changed.wake_all()

    async def _take(self, run: str) -> None:
        """Serve the run, once it is durable that this replica does.

        Raises Unavailable, or UsageError where its records cannot be read.
        """
        kept = self._sequencer.kept
        records = await self._journal.read(run)
        fresh = await kept.replayed(records)
        if fresh is None:
            kept.let_go(run, Unavailable(f"run '{run}' was not made"))
            await self._journal.hand_over(run, None)
            return
        if fresh.run.phase is Phase.FINISHED and not await self._is_proven(run):
            return  # nothing of it is written any more, which would be refused

        def taken(now: float) -> list[Change]:
            live = kept.take(fresh, max(records[-1].at, now + self._journal.ahead(run)))
            if live.run.phase is Phase.FINISHED:
                live.publish(live.now())
                return []
            return [Change(live, events.Restarted())]

        await self._sequencer.change(taken, about=run)

    async def _is_proven(self, run: str) -> bool:
        """Whether a run that was claimed is this replica's still, by a beat that is sent from now
        on: until the answer to a claim is heard, the process may have stood still for long."""
        now, epoch = self._sequencer.meters.clock(), self._journal.epochs.get(run)
        self._hurry.set()
        while self._members.beaten_at <= now:
            await self._changed.wait(LOOK_SECONDS)
        return epoch is not None and self._journal.epochs.get(run) == epoch
