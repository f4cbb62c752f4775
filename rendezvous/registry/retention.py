"""Which runs a registry forgets: those that ended long ago, and the oldest when there are many."""

from __future__ import annotations

import asyncio
import logging

from rendezvous.registry.journal import Journal
from rendezvous.registry.live_run import LiveRun
from rendezvous.registry.runs import Runs
from rendezvous.wire.errors import RegistryError, Unavailable

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 0.25
_KEEP_FINISHED = 1_000
_KEEP_FINISHED_SECONDS = 3_600.0
_TOGETHER = 32
"""Runs whose records are removed with one call."""


class Retention:
    """Lets go of the runs that a registry need not keep; what is decided goes on meanwhile."""

    def __init__(self, journal: Journal, kept: Runs) -> None:
        self._journal = journal
        self._kept = kept
        self._runs = kept.here
        self._going: dict[str, asyncio.Future[None]] = {}

    async def serve(self) -> None:
        """Look now and then, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            retired = retired_of(list(self._runs.values()))
            for at in range(0, len(retired), _TOGETHER):
                await self._drop(retired[at : at + _TOGETHER])

    def is_going(self, name: str) -> bool:
        """Whether the records of a former run of that name are being removed: a new one is numbered
        from 1 again, and its records would go with them."""
        return name in self._going

    async def gone(self, name: str) -> None:
        """Wait until they are, or could not be."""
        if (going := self._going.get(name)) is not None:
            await asyncio.shield(going)

    async def _drop(self, lives: list[LiveRun]) -> None:
        names = [live.run.id for live in lives if self._runs.get(live.run.id) is live]
        kept = {name: self._runs.pop(name) for name in names}
        going = asyncio.get_running_loop().create_future()
        self._going = dict.fromkeys(names, going)
        try:
            await self._journal.drop(names)
        except RegistryError as exc:
            logger.error("finished runs %s could not be removed: %s", ", ".join(names), exc)
            self._runs.update(kept)
            if isinstance(exc, Unavailable):  # who knows whether they are, and whose these are now
                for name in names:
                    self._kept.doubt(name, exc)
        finally:
            self._going = {}
            going.set_result(None)


def retired_of(lives: list[LiveRun]) -> list[LiveRun]:
    """Of these runs, those that need not be kept any longer; the oldest last.

    Of one whose end is not in the journal yet something is still being written.
    """
    ended = [live for live in lives if live.has_ended and live.is_durable]
    ended.sort(key=_ended_seconds)
    return [
        live
        for newer, live in enumerate(ended)
        if newer >= _KEEP_FINISHED or _ended_seconds(live) > _KEEP_FINISHED_SECONDS
    ]


def _ended_seconds(live: LiveRun) -> float:
    return live.now() - (live.run.finished_at or 0.0)
