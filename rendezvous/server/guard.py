"""The door of the registry: what plain uvicorn and ASGI leave open is closed here.

    socket -> GuardedServer -> GuardedProtocol -> Guard -> the app

- `GuardedServer` bounds the TLS handshake and tells the app at once when it shuts down.
- `GuardedProtocol` gives an unfinished header or body a deadline, bounds header and connections,
  and tells when a connection ended, and how.
- `Guard` bounds the body, checks the host name, keeps browsers out, and answers every error in one
  shape (`rendezvous.schema.Problem`).

Every body has a Content-Length: a chunked one is refused by its header. So the size of a body is
known, and refused, before any of it is read.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import STARTUP_FAILURE
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from rendezvous.enums import StrEnum
from rendezvous.errors import (
    BadRequest,
    Forbidden,
    InternalError,
    Mismatch,
    RdzvError,
    TooLarge,
    Unavailable,
)
from rendezvous.schema import Problem
from rendezvous.server.room import Room, Seat
from rendezvous.words import printable

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 64 * 1024
MAX_HEADER_BYTES = 16 * 1024
MAX_HEADERS = 100
# A connection in one of the last seats goes soon when it asks for nothing.
_LAST_SEAT_SECONDS = 2

# OpenSSL keeps, for each connection, a buffer of the largest piece that it was given: a table of
# 2,000 nodes in one piece cost 120 kB a connection for good.
_TLS_PIECE_BYTES = 8 * 1024

_SECURITY_HEADERS = [("cache-control", "no-store"), ("x-content-type-options", "nosniff")]
_SECURITY_LINES = b"".join(
    b"%s: %s\r\n" % (name.encode(), value.encode()) for name, value in _SECURITY_HEADERS
)
_CLOSED_BY_US = frozenset({h11.MUST_CLOSE, h11.CLOSED, h11.ERROR})
_CAN_ANSWER = frozenset({h11.IDLE, h11.SEND_RESPONSE})


class _TooSlow(BadRequest):
    status = 408
    retryable = True


class PeerGone(Exception):
    """The peer closed its connection in the middle of a request; nobody waits for an answer."""


class CloseReason(StrEnum):
    """How a connection ended. Only FIN and RST say something about the peer's process."""

    FIN = "fin"
    RST = "rst"
    LOST = "lost"
    """The network took it: no acknowledgement in time, or no route."""
    LOCAL = "local"
    """This side closed it."""


Answer = Callable[[bytes], Awaitable[bool]]


class Connection:
    """One peer's connection, at `scope["state"]["connection"]` of each of its requests."""

    __slots__ = ("_callbacks", "answer", "asked", "is_known", "paid_off_at", "peer", "reason")

    def __init__(self, peer: str, answer: Answer | None = None) -> None:
        self.peer = peer
        self.answer = answer
        """Writes a whole answer to the present request; False when ASGI must send it. Or None."""
        self.reason: CloseReason | None = None
        self.is_known = False
        """Whether a credential was proven on it."""
        self.asked = 0
        self.paid_off_at = 0.0
        """How many requests it brought before that, and their `limiter.Pace`."""
        self._callbacks: dict[tuple[Callable[..., object], tuple[object, ...]], None] = {}

    @property
    def closed(self) -> bool:
        """Whether it has ended; `reason` then says how."""
        return self.reason is not None

    def on_close(self, callback: Callable[..., object], *arguments: object) -> None:
        """Have `callback(*arguments, reason)` called in the event loop once the connection ended,
        in the order in which they were asked for.

        The same callback with the same arguments (hashable) counts once, so that each request of
        a connection may ask again. On a closed connection it is called all the same.
        """
        if self.reason is None:
            self._callbacks[callback, arguments] = None
        else:
            self._call(callback, arguments, self.reason)

    def end(self, reason: CloseReason) -> None:
        """The connection ended (called by the protocol)."""
        self.reason = reason
        self.answer = None  # else both would wait for the garbage collector, with what they read
        for callback, arguments in self._callbacks:
            self._call(callback, arguments, reason)
        self._callbacks.clear()

    @staticmethod
    def _call(
        callback: Callable[..., object], arguments: tuple[object, ...], reason: CloseReason
    ) -> None:
        # Through the loop, so that one that fails does not keep the others from being called.
        asyncio.get_running_loop().call_soon(functools.partial(callback, *arguments, reason))


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds that a peer has for each step."""

    handshake: float = 5.0
    """TLS, from the connection being accepted."""
    header: float = 5.0
    """A complete header: from the connection being opened, then from the header's first byte."""
    body: float = 10.0
    """A complete body, from its header."""
    unacknowledged: float = 10.0
    """Bytes that we sent and the peer's kernel does not take."""


class _StrictConnection(h11.Connection):
    """h11 without chunked bodies and without endless headers.

    A chunked body is not needed by any client of ours, makes Content-Length ambiguous, and 256 KiB
    of one-byte chunks hold up the event loop for 150 ms.
    """

    def next_event(self) -> Any:
        event = super().next_event()
        if type(event) is h11.Request:
            if len(event.headers) > MAX_HEADERS:
                raise h11.RemoteProtocolError("too many headers", error_status_hint=431)
            if any(name == b"transfer-encoding" for name, _ in event.headers):
                raise h11.RemoteProtocolError("a body without its length")
        return event


class GuardedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 with deadlines, caps, and news of the connection's end."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        timeouts: Timeouts,
        room: Room,
        may_pass: Callable[[Scope], bool] = lambda scope: False,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.conn = _StrictConnection(h11.SERVER, MAX_HEADER_BYTES)
        self._timeouts = timeouts
        self._room = room
        self._may_pass = may_pass
        self._unfinished = ""
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See the base class."""
        super().connection_made(transport)
        sock = transport.get_extra_info("socket")
        # Not inherited from the listener by those that waited in its queue for our start.
        sock.setsockopt(
            socket.IPPROTO_TCP,
            socket.TCP_USER_TIMEOUT,
            round(self._timeouts.unacknowledged * 1000),
        )
        peer = self.client[0].removeprefix("::ffff:") if self.client else ""
        self._connection = Connection(peer, self._answer)
        # uvicorn copies this dict into the scope of each request.
        self.app_state = {**self.app_state, "connection": self._connection}
        self._expect("header")
        seat = self._room.seat(len(self.connections), sock.fileno())
        if seat is Seat.NONE:
            self.conn.send_failed()
            transport.abort()
        elif seat is Seat.LAST:
            self.timeout_keep_alive = _LAST_SEAT_SECONDS
            self._served, self.app = self.app, self._serve_last

    def connection_lost(self, exc: Exception | None) -> None:
        """See the base class."""
        reason = self._close_reason(exc)
        super().connection_lost(exc)
        self._expect("")
        self._unset_keepalive_if_required()
        self._connection.end(reason)

    def data_received(self, data: bytes) -> None:
        """See the base class."""
        # h11 applies its limit to incomplete headers only; one read may bring 256 KiB at once.
        if (
            len(data) > MAX_HEADER_BYTES
            and self.conn.their_state is h11.IDLE
            and b"\r\n\r\n" not in data[:MAX_HEADER_BYTES]
        ):
            self.send_400_response("header too large")
        else:
            super().data_received(data)

    def handle_events(self) -> None:
        """See the base class. Called after each change of the connection's state."""
        super().handle_events()
        state = self.conn.their_state
        if state is h11.SEND_BODY:
            self._expect("body")
        elif state is not h11.IDLE:
            self._expect("")
        elif self.conn.trailing_data[0]:
            self._expect("header")
        else:
            self._expect("")
            # uvicorn forgets it for a connection whose body came after the answer.
            if self.timeout_keep_alive_task is None:
                self.timeout_keep_alive_task = self.loop.call_later(
                    self.timeout_keep_alive, self.timeout_keep_alive_handler
                )

    async def _answer(self, answer: bytes) -> bool:
        """Write a whole answer, its head included, to the request that is being served.

        It is what the ASGI messages of an answer come to when nothing is unusual, without h11
        checking the same few headers for every node. h11 reads the next request anew: for a
        connection that goes on, that is what it does after an answer of its own.
        """
        cycle = self.cycle
        usual = cycle.keep_alive and not cycle.disconnected
        if not usual or self.conn.their_state is not h11.DONE:
            return False
        cycle.response_started = True
        piece = len(answer) if self.scheme == "http" else _TLS_PIECE_BYTES
        for at in range(0, len(answer), piece):
            if self.flow.write_paused:
                await self.flow.drain()
            if cycle.disconnected:
                return True
            self.transport.write(answer[at : at + piece])
        cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:  # the server began to shut down meanwhile
            self.transport.close()
        self._read_next()
        return True

    def _read_next(self) -> None:
        early, _ = self.conn.trailing_data
        self.conn = _StrictConnection(h11.SERVER, MAX_HEADER_BYTES)
        if early:
            self.conn.receive_data(early)
        self.cycle.on_response()
        self.handle_events()

    def shutdown(self) -> None:
        """See the base class, which would wait for bodies that never come."""
        if self._unfinished == "body":
            self._refuse(Unavailable("The registry is closing."))
        elif not self.transport.is_closing():
            super().shutdown()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not a request (called by the base class)."""
        self._refuse(
            BadRequest(
                "This is not a request that the registry reads: HTTP/1.1 with a Content-Length, "
                f"at most {MAX_HEADERS} headers and {MAX_HEADER_BYTES} bytes of them.",
                hint="Check what stands between this client and the registry.",
            )
        )

    def _close_reason(self, exc: Exception | None) -> CloseReason:
        if self.conn.our_state in _CLOSED_BY_US:
            return CloseReason.LOCAL
        # A peer killed without a TLS goodbye: uvloop calls no eof_received, so none is asked for.
        if exc is None:
            return CloseReason.FIN
        if isinstance(exc, ConnectionResetError | BrokenPipeError):
            return CloseReason.RST
        return CloseReason.LOST

    def _expect(self, part: str) -> None:
        """Set the deadline of the unfinished part; "" when nothing is owed by the peer."""
        if part == self._unfinished:
            return
        self._unfinished = part
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if part:
            seconds = self._timeouts.header if part == "header" else self._timeouts.body
            self._deadline = self.loop.call_later(seconds, self._too_slow, part, seconds)

    def _too_slow(self, part: str, seconds: float) -> None:
        if part == "header" and not self.conn.trailing_data[0]:
            self.conn.send_failed()  # an answer to no request would be taken for the next one's
        self._refuse(_TooSlow(f"The {part} of the request was not complete within {seconds:g} s."))

    def _refuse(self, error: RdzvError) -> None:
        """Answer if no answer has begun, and close."""
        if self.conn.our_state in _CAN_ANSWER:
            status, headers, body = problem_response(error, close=True)
            head = b"HTTP/1.1 %d %s\r\n" % (status, HTTPStatus(status).phrase.encode())
            for header in self.server_state.default_headers + headers:
                head += b"%s: %s\r\n" % header
            self.transport.write(head + b"\r\n" + body)
        self.conn.send_failed()  # nothing more can be sent
        if self.cycle is not None:
            self.cycle.disconnected = True  # a late answer of the app goes nowhere
        self.transport.close()

    async def _serve_last(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve those who ask what is wrong, and tell it to the others; then close.

        A client looks whether a registry is here before it shows who it is.
        """
        if scope["path"] == "/healthz":
            await self._served(scope, receive, send)
        elif self._may_pass(scope):
            await self._served(scope, receive, _closing(send))
        else:
            await send_problem(send, self._room.refusal(), close=True)


class GuardedServer(uvicorn.Server):
    """A uvicorn server on listening sockets that the caller made: `run(sockets=[...])`.

    SIGTERM and SIGINT end it: `closing` is set, the app ends its long polls, and after the app's
    own shutdown uvicorn raises the signal again, so that the process ends by it.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        closing: asyncio.Event,
        ssl_context: ssl.SSLContext | None,
        room: Room,
        may_pass: Callable[[Scope], bool],
        timeouts: Timeouts,
    ) -> None:
        super().__init__(config)
        self._closing = closing
        self._ssl_context = ssl_context
        self._room = room
        self._may_pass = may_pass
        self._timeouts = timeouts

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See the base class, which cannot bound the TLS handshake."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(STARTUP_FAILURE)
        tls: dict[str, Any] = {}
        if self._ssl_context is not None:
            tls = {
                "ssl": self._ssl_context,
                "ssl_handshake_timeout": self._timeouts.handshake,
                "ssl_shutdown_timeout": 1.0,
            }
        loop = asyncio.get_running_loop()
        protocol = functools.partial(
            GuardedProtocol,
            self.config,
            self.server_state,
            self.lifespan.state,
            loop,
            timeouts=self._timeouts,
            room=self._room,
            may_pass=self._may_pass,
        )
        self.servers = [
            await loop.create_server(protocol, sock=sock, backlog=4096, **tls)
            for sock in sockets or []
        ]
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See the base class."""
        self._closing.set()
        await super().shutdown(sockets)


def make_server(
    app: ASGIApp,
    *,
    closing: asyncio.Event,
    room: Room,
    may_pass: Callable[[Scope], bool] = lambda scope: False,
    ssl_context: ssl.SSLContext | None = None,
    timeouts: Timeouts | None = None,
) -> GuardedServer:
    """Make the server for `app`; start it with `run(sockets=[...])` or `await serve(...)`.

    Args:
        app: The application behind its `Guard`.
        closing: Set as soon as shutdown begins; the app then ends its long polls.
        room: How many connections there may be; more are answered with 503.
        may_pass: Whether a request is served all the same.
        ssl_context: With it the server speaks TLS and nothing else.
        timeouts: What a peer has for each step.
    """
    config = uvicorn.Config(
        app,
        http=GuardedProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="error",  # its warnings are a line for each malformed request of anybody
        access_log=False,
        proxy_headers=False,
        server_header=False,
        headers=_SECURITY_HEADERS,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=3,
    )
    return GuardedServer(
        config,
        closing=closing,
        ssl_context=ssl_context,
        room=room,
        may_pass=may_pass,
        timeouts=timeouts or Timeouts(),
    )


class Guard:
    """ASGI middleware in front of everything: size, host name, no browsers, errors in one shape.

    Args:
        app: May raise any `RdzvError`; it is answered as its Problem.
        allowed_hosts: The names under which clients may call, without port.
        body_limit: The most bytes of body for a request that has more than `MAX_BODY_BYTES`;
            called before any of it is read, so that it can look at the credential first.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        allowed_hosts: Collection[str],
        body_limit: Callable[[Scope], int] = lambda scope: MAX_BODY_BYTES,
    ) -> None:
        self._app = app
        self._allowed_hosts = frozenset(name.lower().encode() for name in allowed_hosts)
        self._body_limit = body_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await send_problem(send, refusal, close=True)
            return
        try:
            await self._app(scope, receive, send)
        except PeerGone:
            return
        except RdzvError as error:
            await send_problem(send, error)
        except Exception:
            logger.exception("%s %s failed", scope["method"], printable(scope["path"], 200))
            await send_problem(send, InternalError("The registry failed; its log says where."))

    def _refusal(self, scope: Scope) -> RdzvError | None:
        headers = dict(scope["headers"])
        names = [name for name, _ in scope["headers"]]
        if names.count(b"authorization") > 1:
            return BadRequest("A request with more than one Authorization header.")
        length = int(headers.get(b"content-length", 0))
        if length > MAX_BODY_BYTES and length > (limit := self._body_limit(scope)):
            return TooLarge(f"A body of {length} bytes; {limit} are accepted here.")
        sites = [value for name, value in scope["headers"] if name == b"sec-fetch-site"]
        if b"origin" in headers or sites not in ([], [b"none"]):
            return Forbidden("The registry does not answer requests made by web pages.")
        host = headers.get(b"host", b"")
        if _host_name(host) in self._allowed_hosts or scope["path"] == "/healthz":
            return None
        return BadRequest(
            f"The registry is not called {printable(host.decode('latin-1'), 100)!r}.",
            hint="Send the Host that the registry was started with.",
        )


def _host_name(host: bytes) -> bytes:
    """The Host header without its port, lower-case: `[::1]:80` is `[::1]`."""
    name, colon, port = host.rpartition(b":")
    return (name if colon and port.isdigit() else host).lower()


async def read_body(receive: Receive) -> bytes:
    """Read a request's whole body; the guard has bounded it. Check the credential first.

    Raises:
        PeerGone: The connection ended before.
    """
    chunks = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise PeerGone
        chunks.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(chunks)


def problem_response(
    error: RdzvError, *, retry_after_seconds: float = 1.0, close: bool = False
) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """An error as status, headers and JSON body; 429 and 503 say when to come back.

    Args:
        error: What to tell.
        retry_after_seconds: For 429 and 503; rounded up to whole seconds.
        close: Whether the connection ends with this answer.
    """
    problem = Problem(
        code=error.code,
        message=error.message,
        hint=error.hint,
        retryable=error.retryable,
        command_word=error.command_word if isinstance(error, Mismatch) else None,
    )
    body = problem.model_dump_json(exclude_none=True).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
    ]
    if error.status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(retry_after_seconds))))
    if close:
        headers.append((b"connection", b"close"))
    return error.status, headers, body


def whole_answer(body: bytes, *headers: tuple[bytes, bytes]) -> bytes:
    """A 200 with this JSON body, as it goes over the wire; for `Connection.answer`."""
    more = b"".join(b"%s: %s\r\n" % header for header in headers) if headers else b""
    head = b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body)
    return b"HTTP/1.1 200 OK\r\n%s%s%s\r\n%s" % (head, more, _SECURITY_LINES, body)


def _closing(send: Send) -> Send:
    """Answer, and have the connection end with that."""

    async def send_and_close(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [*message.get("headers", []), (b"connection", b"close")]
            message = {**message, "headers": headers}
        await send(message)

    return send_and_close


async def send_problem(send: Send, error: RdzvError, *, close: bool = False) -> None:
    """Answer a request with an error."""
    status, headers, body = problem_response(error, close=close)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
