"""An answer bit by bit, over the simulated network: see `rendezvous.talk.network.Stream`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from rendezvous.talk.failures import Fault, NetworkFailure

if TYPE_CHECKING:
    from tests.simulation.network import Wire
    from tests.support.virtual_time import VirtualLoop


class SimulatedStream:
    """The client's end: what has come and was not read yet; it is broken off when all is quiet."""

    def __init__(self, loop: VirtualLoop, wire: Wire, quiet: float) -> None:
        self._loop = loop
        self._wire = wire
        self._quiet = quiet
        self._parts: deque[bytes] = deque()
        self._waiting: asyncio.Future[None] | None = None
        self._last_at = 0.0
        self._ended = False
        self.status = 0

    # --- the registry's end -------------------------------------------------------------------

    def leaves(self, status: int, data: bytes, is_last: bool) -> None:
        """The head or a bit of the body leaves the registry; they do not overtake each other."""
        self._last_at = max(self._last_at, self._loop.time() + self._wire.path.delay())
        context = self._loop.nobody
        self._loop.call_at(self._last_at, self._come, status, data, is_last, context=context)

    def _come(self, status: int, data: bytes, is_last: bool) -> None:
        if self._wire.forgotten or self._wire.broken:
            return
        self.status = status or self.status
        self._ended |= is_last
        if data:
            self._parts.append(data)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    # --- the client's end ---------------------------------------------------------------------

    async def begin(self) -> None:
        while not self.status:
            await self._wait()

    async def read(self) -> bytes:
        while not self._ended:
            await self._wait()
        return b"".join(self._parts)

    async def lines(self) -> AsyncIterator[str]:
        rest = b""
        while True:
            while self._parts:
                *whole, rest = (rest + self._parts.popleft()).split(b"\n")
                for line in whole:
                    yield line.decode()
            if self._ended:
                return
            await self._wait()

    async def _wait(self) -> None:
        if self._wire.broken:
            raise NetworkFailure(Fault.CLOSED)
        self._waiting = waiting = self._loop.create_future()
        self._wire.waiting.append(waiting)
        timer = self._loop.call_later(self._quiet, too_late, waiting)
        try:
            await waiting
        finally:
            timer.cancel()
            if waiting in self._wire.waiting:
                self._wire.waiting.remove(waiting)


def too_late(waiting: asyncio.Future[Any]) -> None:
    """Nothing has come in time."""
    if not waiting.done():
        waiting.set_exception(NetworkFailure(Fault.SILENT))
