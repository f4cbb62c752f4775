"""Requests that wait for the same thing, and how they are woken."""

from __future__ import annotations

import asyncio

_WAKE_FIRST, _WAKE = 64, 1_000
_TOGETHER_SECONDS = 0.02


class Waiters:
    """Requests that wait for the same thing.

    Those whose time is over at about the same moment share a timer: one for each of thousands of
    polls would cost more than the polls.
    """

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()
        self._late: dict[int, set[asyncio.Future[None]]] = {}

    async def wait(self, seconds: float) -> None:
        """Until woken, or the time is over, by up to 20 ms more."""
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._waiting.add(waiter)
        moment = int((loop.time() + seconds) / _TOGETHER_SECONDS) + 1
        together = self._late.get(moment)
        if together is None:
            together = self._late[moment] = set()
            loop.call_at(moment * _TOGETHER_SECONDS, self._time_over, moment)
        together.add(waiter)
        try:
            await waiter
        finally:
            self._waiting.discard(waiter)
            together.discard(waiter)

    def _time_over(self, moment: int) -> None:
        for waiter in tuple(self._late.pop(moment)):
            _wake(waiter)

    def wake_all(self) -> None:
        """Wake everyone, many in one turn of the loop: requests are served in between.

        The caller's answer goes first, and few are woken with it: the node whose join made the
        news has yet to ask for it, and would else stand behind what all the others say next.
        """
        pending = list(self._waiting)
        self._waiting.clear()
        if pending:
            asyncio.get_running_loop().call_soon(_wake_some, pending, _WAKE_FIRST)


def _wake_some(pending: list[asyncio.Future[None]], count: int) -> None:
    for waiter in pending[:count]:
        _wake(waiter)
    if len(pending) > count:
        asyncio.get_running_loop().call_soon(_wake_some, pending[count:], _WAKE)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
