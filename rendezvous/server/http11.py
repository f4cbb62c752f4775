"""Hardens uvicorn: time-outs, size limits, room for connections, and news of how each ended.

    socket -> GuardedServer -> GuardedProtocol -> guard.Guard -> the app

- `GuardedServer` bounds the TLS handshake and tells the app at once when it shuts down.
- `GuardedProtocol` gives an unfinished header or body a deadline, bounds header and connections,
  and tells when a connection ended, and how.

Every body has a Content-Length: a chunked one is refused by its header. So the size of a body is
known, and refused, before any of it is read.

What is used of uvicorn's inside is listed in `tests/rendezvous/test_uvicorn.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from types import FrameType
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from rendezvous.compat import timeout
from rendezvous.server.answers import SECURITY_HEADERS, problem_response, send_problem
from rendezvous.server.connection import CloseReason, Connection
from rendezvous.server.room import Room, Seat
from rendezvous.wire.errors import BadRequest, RdzvError, Unavailable

MAX_HEADER_BYTES = 16 * 1024
MAX_HEADERS = 100
# A connection in one of the last seats goes soon when it asks for nothing.
_LAST_SEAT_SECONDS = 2

# OpenSSL keeps, for each connection, a buffer of the largest piece that it was given: a table of
# 2,000 nodes in one piece cost 120 kB a connection for good.
_TLS_PIECE_BYTES = 8 * 1024

# How often the date of the answers is made anew.
_TICK_SECONDS = 1.0
# What is being answered at the end has so long, and is looked at so often.
_CLOSE_SECONDS = 3.0
_CLOSE_LOOK_SECONDS = 0.005

_STARTUP_FAILURE = 3  # as uvicorn's own, which each version keeps elsewhere
_CLOSED_BY_US = frozenset({h11.MUST_CLOSE, h11.CLOSED, h11.ERROR})
_CAN_ANSWER = frozenset({h11.IDLE, h11.SEND_RESPONSE})


class _TooSlow(BadRequest, status=408, retryable=True):
    """What was begun did not come in time."""


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


@dataclass(frozen=True, slots=True)
class ConnectionRules:
    """What every connection is held to."""

    room: Room
    """How many there may be; more are answered with 503."""
    may_pass: Callable[[Scope], bool] = lambda scope: False
    """Whether a request is served all the same."""
    timeouts: Timeouts = Timeouts()


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
                raise h11.RemoteProtocolError("a body without a length")
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
        rules: ConnectionRules,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.conn = _StrictConnection(h11.SERVER, MAX_HEADER_BYTES)
        self._rules = rules
        self._unfinished = ""
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        sock = transport.get_extra_info("socket")
        # Not inherited from the listener by those that waited in its queue for our start.
        sock.setsockopt(
            socket.IPPROTO_TCP,
            socket.TCP_USER_TIMEOUT,
            round(self._rules.timeouts.unacknowledged * 1000),
        )
        peer = self.client[0].removeprefix("::ffff:") if self.client else ""
        self._connection = Connection(peer, self._answer)
        # uvicorn copies this dict into the scope of each request.
        self.app_state = {**self.app_state, "connection": self._connection}
        self._expect("header")
        seat = self._rules.room.seat(len(self.connections), sock.fileno())
        if seat is Seat.NONE:
            self.conn.send_failed()
            transport.abort()
        elif seat is Seat.LAST:
            self.timeout_keep_alive = _LAST_SEAT_SECONDS
            self._served, self.app = self.app, self._serve_last

    def connection_lost(self, exc: Exception | None) -> None:
        reason = self._close_reason(exc)
        super().connection_lost(exc)
        self._expect("")
        self._unset_keepalive_if_required()
        self._connection.end(reason)

    def data_received(self, data: bytes) -> None:
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
                "The registry cannot read this request. It reads HTTP/1.1 with a "
                f"Content-Length and at most {MAX_HEADERS} headers and {MAX_HEADER_BYTES} "
                "bytes of them.",
                hint="Check the proxies between this client and the registry.",
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
            timeouts = self._rules.timeouts
            seconds = timeouts.header if part == "header" else timeouts.body
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
        elif self._rules.may_pass(scope):
            await self._served(scope, receive, _closing(send))
        else:
            await send_problem(send, self._rules.room.refusal(), close=True)


class GuardedServer(uvicorn.Server):
    """A uvicorn server on listening sockets that the caller made: `run(sockets=[...])`.

    SIGTERM and SIGINT end it: `closing` is set, the app ends its long polls, and after the app's
    own shutdown uvicorn raises the signal again, so that the process ends by it.

    With an `ssl_context` the server speaks TLS and nothing else.
    """

    def __init__(
        self,
        app: ASGIApp,
        rules: ConnectionRules,
        *,
        closing: asyncio.Event,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
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
            headers=SECURITY_HEADERS,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            timeout_keep_alive=75,
        )
        super().__init__(config)
        self._rules = rules
        self._closing = closing
        self._ssl_context = ssl_context
        self._told = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See the base class, which cannot bound the TLS handshake."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(_STARTUP_FAILURE)
        tls: dict[str, Any] = {}
        if self._ssl_context is not None:
            tls = {
                "ssl": self._ssl_context,
                "ssl_handshake_timeout": self._rules.timeouts.handshake,
                "ssl_shutdown_timeout": 1.0,
            }
        self._loop = loop = asyncio.get_running_loop()
        protocol = functools.partial(
            GuardedProtocol,
            self.config,
            self.server_state,
            self.lifespan.state,
            loop,
            rules=self._rules,
        )
        self.servers = [
            await loop.create_server(protocol, sock=sock, backlog=4096, **tls)
            for sock in sockets or []
        ]
        self.started = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal came: see the base class, which notices it at its next look."""
        super().handle_exit(sig, frame)
        if self.started:
            self._loop.call_soon_threadsafe(self._told.set)

    async def main_loop(self) -> None:
        """See the base class, which looks ten times a second whether it is to end."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with timeout(_TICK_SECONDS):
                    await self._told.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See the base class, which waits for a tenth of a second at each step: the end of each
        launch waits for this."""
        self._closing.set()
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with timeout(_CLOSE_SECONDS):
                while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110 (uvicorn tells nobody)
                    await asyncio.sleep(_CLOSE_LOOK_SECONDS)
        for task in self.server_state.tasks:
            task.cancel()
        await self.lifespan.shutdown()


def _closing(send: Send) -> Send:
    """Answer, and have the connection end with that."""

    async def send_and_close(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [*message.get("headers", []), (b"connection", b"close")]
            message = {**message, "headers": headers}
        await send(message)

    return send_and_close
