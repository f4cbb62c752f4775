"""Runs that a replica has claimed: read, and served once it is durable that it does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from rendezvous.run import events
from rendezvous.server.sequencer import Change, Sequencer
from rendezvous.server.shared_journal import Holding, SharedJournal
from rendezvous.wire.errors import RegistryError, Unavailable, UsageError
from rendezvous.wire.run import Phase

logger = logging.getLogger(__name__)


class Loads:
    """The runs that are being read.

    Args:
        journal: From where.
        sequencer: Of the registry that is to serve them.
        changed: Called when one is served, or cannot be.
        give_up: Called with one that another replica has claimed meanwhile.

    Attributes:
        unreadable: Why runs cannot be served: they stay with this replica.
    """

    def __init__(
        self,
        journal: SharedJournal,
        sequencer: Sequencer,
        changed: Callable[[], None],
        give_up: Callable[[str], None],
    ) -> None:
        self._journal = journal
        self._sequencer = sequencer
        self._changed = changed
        self._give_up = give_up
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
        self._changed()

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
        if fresh.run.phase is Phase.FINISHED:  # nothing is written any more: a claim is, too
            held = Holding(run, self._journal.id, self._journal.epochs.get(run, 0))
            if run not in await self._journal.claim([held]):
                self._give_up(run)
                return

        def taken(now: float) -> list[Change]:
            live = kept.take(fresh, max(records[-1].at, now + self._journal.ahead(run)))
            if live.run.phase is Phase.FINISHED:
                live.publish(live.now())
                return []
            return [Change(live, events.Restarted())]

        await self._sequencer.change(taken, about=run)
