"""A request whose answer comes bit by bit, on a connection of its own.

Not by httpx, in which a line of a few hundred bytes passes ten layers: they take more time than all
that a reader does with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator

import h11

from rendezvous.talk.failures import Fault, NetworkFailure
from rendezvous.talk.network import HEADERS, Request

_MOST_BYTES = 64 << 10


class HttpStream:
    """See `network.Stream`; raises NetworkFailure and OSError.

    Args:
        reader: What comes on the connection.
        http: What was said on it: a request was sent.
        quiet: Seconds for which nothing may come.
    """

    def __init__(self, reader: asyncio.StreamReader, http: h11.Connection, quiet: float) -> None:
        self._reader = reader
        self._http = http
        self._quiet = quiet
        self._loop = asyncio.get_running_loop()
        self._waits_since = math.inf
        self._timer = self._loop.call_later(quiet, self._look)
        self.status = 0

    async def begin(self) -> None:
        """Wait for the head of the answer."""
        while not isinstance(event := await self._event(), h11.Response):
            pass
        self.status = event.status_code

    async def read(self) -> bytes:
        return b"".join([data async for data in self._pieces()])

    async def lines(self) -> AsyncIterator[str]:
        rest = b""
        async for data in self._pieces():
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                yield line.decode("utf-8", "replace")
        if rest:
            yield rest.decode("utf-8", "replace")

    async def _pieces(self) -> AsyncIterator[bytes]:
        while not isinstance(event := await self._event(), h11.EndOfMessage):
            if isinstance(event, h11.Data):
                yield bytes(event.data)

    async def _event(self) -> h11.Event:
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._http.receive_data(await self._more())
        except h11.RemoteProtocolError as exc:
            fault = Fault.CLOSED if self._reader.at_eof() else Fault.NOT_HTTP
            raise NetworkFailure(fault) from exc
        if isinstance(event, h11.ConnectionClosed):
            raise NetworkFailure(Fault.CLOSED)
        assert isinstance(event, h11.Event)
        return event

    async def _more(self) -> bytes:
        self._waits_since = self._loop.time()
        try:
            return await self._reader.read(_MOST_BYTES)
        finally:
            self._waits_since = math.inf

    def _look(self) -> None:
        """One timer for all that is read: a time-out of each read costs more than the read."""
        left = self._waits_since + self._quiet - self._loop.time()
        if left <= 0:
            self._reader.set_exception(NetworkFailure(Fault.SILENT))
        else:
            self._timer = self._loop.call_later(min(left, self._quiet), self._look)

    def close(self) -> None:
        """Nothing is read any more."""
        self._timer.cancel()


@contextlib.asynccontextmanager
async def streaming(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: Request, quiet: float
) -> AsyncIterator[HttpStream]:
    """Send a request without a body on a connection, which is closed afterwards.

    The answer may be quiet for so many seconds.
    """
    http = h11.Connection(h11.CLIENT)
    headers = HEADERS | {"accept-encoding": "identity"} | dict(request.headers)
    asked = h11.Request(method=request.method, target=request.target, headers=list(headers.items()))
    stream = HttpStream(reader, http, quiet)
    try:
        writer.write(http.send(asked) + http.send(h11.EndOfMessage()))
        await stream.begin()
        yield stream
    finally:
        stream.close()
        writer.transport.abort()
