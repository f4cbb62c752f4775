"""Who owns which run: one look-up at a time for each, however many ask."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from rendezvous.registry.shared_journal import Holding


class Owners:
    """The look-ups that are under way.

    Args:
        look: The journal's; raises Unavailable.
    """

    def __init__(self, look: Callable[[str], Awaitable[Holding | None]]) -> None:
        self._look = look
        self._tasks: dict[str, asyncio.Future[Holding | None]] = {}

    async def of(self, run: str) -> Holding | None:
        """Who owns this run. Raises Unavailable."""
        if (task := self._tasks.get(run)) is None:
            task = self._tasks[run] = asyncio.ensure_future(self._look(run))
            task.add_done_callback(lambda done: self._looked_up(run, done))
        return await asyncio.shield(task)

    def _looked_up(self, run: str, task: asyncio.Future[Holding | None]) -> None:
        self._tasks.pop(run, None)
        if not task.cancelled():
            task.exception()  # whoever still waits for it is told

    def cancel(self) -> None:
        """Nobody waits for any of them."""
        for task in list(self._tasks.values()):
            task.cancel()
