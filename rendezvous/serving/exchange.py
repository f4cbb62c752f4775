"""One request that is being answered, as an ASGI application has it: `receive` and `send`.

The connection that it came on is `Carrier`; `rendezvous.serving.http11` is the one there is.
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import Protocol

from starlette.types import ASGIApp, Message, Scope

from rendezvous.serving.answers import send_problem
from rendezvous.serving.request_head import Head
from rendezvous.wire.errors import InternalError

logger = logging.getLogger(__name__)

MOST_UNASKED_BYTES = 64 * 1024
"""So much of a body is taken before the application asks for it."""
_NO_BODY = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)
_CLOSE = (b"connection", b"close")
_CHUNKED = (b"transfer-encoding", b"chunked")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Carrier(Protocol):
    """What a request needs of its connection."""

    @property
    def is_over(self) -> bool:
        """Whether nobody waits for an answer any more."""

    @property
    def missing(self) -> int:
        """How much of the body is yet to come, bytes."""

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        """Of each answer."""

    def resume_reading(self) -> None:
        """The body is wanted."""

    async def write(self, data: bytes) -> None:
        """Send these bytes as the peer takes them, or none when it has gone."""

    def answered(self, exchange: Exchange) -> None:
        """The answer is complete."""

    def close(self) -> None:
        """Close the connection: an answer cannot be completed."""


class Exchange:
    """One request and its answer."""

    __slots__ = (
        *("_chunked", "_head", "_held", "_on", "_waiter", "body", "has_begun", "is_done"),
        *("is_read", "keeps_open", "task"),
    )

    def __init__(self, on: Carrier, head: Head) -> None:
        self._on = on
        self._head = head
        self._held = b""
        self._chunked = False
        self._waiter: asyncio.Future[None] | None = None
        self.body = bytearray()
        """What of it has come."""
        self.is_read = False
        """Whether the application has asked for the body."""
        self.has_begun = self.is_done = False
        """Of the answer."""
        self.keeps_open = head.keeps_open
        """Whether the connection goes on after the answer."""
        self.task: asyncio.Task[None] | None = None

    @property
    def is_usual(self) -> bool:
        """Whether its answer may go over the wire as everyone's does."""
        return self.keeps_open and not self.has_begun and self._head.method != "HEAD"

    async def run(self, app: ASGIApp, scope: Scope, tasks: set[asyncio.Task[None]]) -> None:
        """Have it answered, by a task that is one of these."""
        try:
            await app(scope, self.receive, self.send)
        except Exception:
            logger.exception("a request was not answered")
        except BaseException:
            self._on.close()
            raise
        finally:
            if self.task is not None:
                tasks.discard(self.task)
        if self.is_done or self._on.is_over:
            return
        if self.has_begun:
            self._on.close()
        else:
            await send_problem(self.send, InternalError("The registry failed."), close=True)

    def wake(self) -> None:
        """Something has changed for whoever receives."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def _changed(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    async def receive(self) -> Message:
        """The whole body; after it the end, once there is one."""
        on = self._on
        first, self.is_read = not self.is_read, True
        if first and on.missing:
            on.resume_reading()
            if self._awaits_continue and not self.body and not self.has_begun:
                await on.write(_CONTINUE)
        while not (on.is_over or self.is_done or (first and not on.missing)):
            await self._changed()
        if on.is_over or self.is_done:
            return {"type": "http.disconnect"}
        body, self.body = bytes(self.body), bytearray()
        return {"type": "http.request", "body": body, "more_body": False}

    @property
    def _awaits_continue(self) -> bool:
        return self._head.version == "1.1" and self._head.fields.awaits_continue

    async def send(self, message: Message) -> None:
        """Head, then body; a body that is there at once goes with the head.

        Raises RuntimeError for a second answer: whoever reads would take it for the next one's.
        """
        is_head = message["type"] == "http.response.start"
        if self.is_done or is_head is self.has_begun:
            raise RuntimeError(f"{message['type']} out of turn")
        if is_head:
            self._begin(message)
            return
        data, more = message.get("body", b""), message.get("more_body", False)
        if self._head.method == "HEAD":
            data = b""
        elif self._chunked:
            chunk = b"%x\r\n%s\r\n" % (len(data), data) if data else b""
            data = chunk if more else chunk + b"0\r\n\r\n"
        held, self._held = self._held, b""
        await self._on.write(held + data)
        if not more:
            self._on.answered(self)

    def _begin(self, message: Message) -> None:
        status, headers = message["status"], list(message.get("headers", []))
        names = {name for name, _ in headers}
        has_end = b"content-length" in names or status in _NO_BODY
        self._chunked = not has_end and self._head.version == "1.1"
        if self._chunked:
            headers.append(_CHUNKED)
        if self._awaits_continue and self._on.missing and not self.is_read:
            self.keeps_open = False  # the peer may not send the body now, or may
        if self._head.fields.length > MOST_UNASKED_BYTES and not self.is_read:
            self.keeps_open = False  # nobody wants the rest of it
        if _CLOSE in headers:
            self.keeps_open = False
        elif not self.keeps_open or not (has_end or self._chunked):
            self.keeps_open = False
            headers.append(_CLOSE)
        self.has_begun = True
        self._held = head_of(status, self._on.default_headers + headers)


def head_of(status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
    """The head of an answer."""
    lines = b"".join([b"%s: %s\r\n" % header for header in headers])
    return b"HTTP/1.1 %d %s\r\n%s\r\n" % (status, HTTPStatus(status).phrase.encode(), lines)
