"""What stands between a connection and the registry's application, as `server.http11` does it."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable

from starlette.types import ASGIApp, Message

from rendezvous.serving.connection import CloseReason, Connection
from rendezvous.talk.network import HEADERS, Answer, Request
from tests.support.served import scope_of
from tests.support.virtual_time import forever

_HEADERS = [(name.encode(), value.encode()) for name, value in HEADERS.items()]


async def serve(
    app: ASGIApp,
    request: Request,
    peer: str,
    connection: Connection | None,
    pass_on: Callable[[int, bytes, bool], None] | None = None,
) -> Answer:
    """Answer one request, which came on this connection, or on one that is gone.

    `pass_on` takes an answer bit by bit: the status once, the body, and whether it is the last.
    """
    exchange = _Exchange(request, connection, pass_on)
    if connection is not None and not connection.closed:
        connection.answer = exchange.answer
    headers = [(name.encode(), value.encode()) for name, value in request.headers.items()]
    if request.body is not None:
        headers.append((b"content-length", b"%d" % len(request.body)))
    scope = scope_of(request.method, request.target, [*_HEADERS, *headers], peer)
    scope["state"] = {} if connection is None else {"connection": connection}
    await app(scope, exchange.receive, exchange.send)
    return exchange.answered()


class _Exchange:
    """One request on its way through the application."""

    def __init__(
        self,
        request: Request,
        connection: Connection | None,
        pass_on: Callable[[int, bytes, bool], None] | None,
    ) -> None:
        self._pass_on = pass_on
        self._request = request
        self._connection = connection
        self._read = False
        self._status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._body = b""

    async def receive(self) -> Message:
        if not self._read:
            self._read = True
            return {"type": "http.request", "body": self._request.body or b"", "more_body": False}
        if self._connection is None:
            await forever()
        else:
            closed = asyncio.get_running_loop().create_future()
            self._connection.on_close(_set, closed)
            await closed
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status, self._headers = message["status"], list(message.get("headers", []))
            if self._pass_on is not None:
                self._pass_on(self._status, b"", False)
        elif self._pass_on is not None:
            self._pass_on(0, message.get("body", b""), not message.get("more_body", False))
        else:
            self._body += message.get("body", b"")

    async def answer(self, whole: bytes) -> bool:
        head, _, self._body = whole.partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        self._status = int(first.split(b" ")[1])
        for line in lines:
            name, _, value = line.partition(b": ")
            self._headers.append((name, value))
        return True

    def answered(self) -> Answer:
        headers = {name.decode().lower(): value.decode() for name, value in self._headers}
        zipped = headers.get("content-encoding") == "gzip"
        return Answer(self._status, headers, gzip.decompress(self._body) if zipped else self._body)


def _set(closed: asyncio.Future[None], _: CloseReason) -> None:
    if not closed.done():
        closed.set_result(None)
