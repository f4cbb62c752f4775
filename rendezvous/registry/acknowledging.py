"""What a replica does while the journal is away, or acknowledges no commit: it decides nothing."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from rendezvous.registry.sequencer import Sequencer
from rendezvous.registry.shared_journal import SharedJournal
from rendezvous.wire.errors import RegistryError

logger = logging.getLogger(__name__)


class Acknowledging:
    """The watch over the commits of one replica.

    Args:
        journal: Which makes them.
        sequencer: Of the registry: it stands still while none is acknowledged.
        hurry: Set to have the next beat sooner.
    """

    def __init__(self, journal: SharedJournal, sequencer: Sequencer, hurry: asyncio.Event) -> None:
        self._journal = journal
        self._sequencer = sequencer
        self._hurry = hurry
        self._probe: asyncio.Task[None] | None = None
        journal.commits.on_failure = self._count

    def _count(self) -> None:
        self._sequencer.counters["journal_errors"] += 1

    def cut_off(self, why: str) -> None:
        """A beat was not answered: decide nothing until one is."""
        self._count()
        if not self._sequencer.standstill:
            logger.warning("%s", why)
        self._sequencer.stand_still(why)

    def see(self) -> None:
        """A beat was answered: decide again, unless no commit is acknowledged."""
        commits, sequencer = self._journal.commits, self._sequencer
        if (error := commits.error()) is not None:
            if not sequencer.standstill:
                logger.warning("%s; %s", error.message, error.hint)
            sequencer.stand_still(error.message, error.hint)
        else:
            if sequencer.standstill:
                logger.info("the registry's database acknowledges commits again")
            sequencer.go_on()
        if commits.is_probe_due() and (self._probe is None or self._probe.done()):
            self._probe = asyncio.create_task(self._look())

    async def _look(self) -> None:
        with contextlib.suppress(RegistryError):  # it is counted, and another one follows
            await self._journal.probe()
        if self._sequencer.standstill:
            self._hurry.set()

    def cancel(self) -> None:
        """The replica ends."""
        if self._probe is not None:
            self._probe.cancel()
