"""The guard, on real uvicorn and real loopback sockets, with both event loops.

Run as a program (`python test_guard.py FD`) this file is the server that a test can signal.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import gc
import json
import os
import queue
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from starlette.types import Receive, Scope, Send

from rendezvous.server.answers import problem_response, whole_answer
from rendezvous.server.connection import CloseReason, Connection
from rendezvous.server.guard import MAX_BODY_BYTES, Guard, read_body
from rendezvous.server.http11 import (
    MAX_HEADER_BYTES,
    MAX_HEADERS,
    ConnectionRules,
    GuardedProtocol,
    GuardedServer,
    Timeouts,
)
from rendezvous.server.limiter import MAX_SOURCES, FailedLogins, Strangers
from rendezvous.server.room import MAX_REFUSALS, Room
from rendezvous.wire.errors import Mismatch, SlotTaken, TooManyRequests

pytestmark = pytest.mark.real_time

NAME = "rdzv.internal"
PATIENT = Timeouts(handshake=60, header=60, body=60, unacknowledged=60)
QUICK = Timeouts(handshake=0.3, header=0.3, body=0.3, unacknowledged=0.5)
SOON = replace(PATIENT, header=1.5)
"""For a first header, whose time runs before its bytes are there."""

MEGABYTE = 2**20


class App:
    """A small application: it echoes, parks, fails and listens for the end of connections."""

    def __init__(self) -> None:
        self.closing = asyncio.Event()
        self.parked = threading.Event()
        self.read: list[int] = []
        self.whole: list[bool] = []
        self.ended: queue.SimpleQueue[CloseReason] = queue.SimpleQueue()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["path"] == "/park":
            scope["state"]["connection"].on_close(self.ended.put)
            self.parked.set()
            await self.closing.wait()
            await self._answer(send, b"closing")
        elif scope["path"] == "/watch":
            scope["state"]["connection"].on_close(self.ended.put)
            await self._answer(send, b"watching")
        elif scope["path"] == "/taken":
            raise SlotTaken("slot 2 is held by 10.0.0.7", hint="wait")
        elif scope["path"] == "/fault":
            raise KeyError("secret")
        elif scope["path"] == "/early":
            await self._answer(send, b"early")
        elif scope["path"] == "/large":
            await self._answer(send, bytes(32 * MEGABYTE))
        elif scope["path"] == "/peer":
            await self._answer(send, scope["state"]["connection"].peer.encode())
        elif scope["path"] in ("/whole", "/wide"):
            connection = scope["state"]["connection"]
            connection.on_close(self.ended.put)
            body = b"whole" if scope["path"] == "/whole" else bytes(8 * MEGABYTE)
            self.whole.append(await connection.answer(whole_answer(body)))
            if not self.whole[-1]:
                await self._answer(send, b"by ASGI")
        elif scope["path"] == "/late":
            await asyncio.sleep(0.6)
            await self._answer(send, b"late")
        else:
            self.read.append(len(await read_body(receive)))
            await self._answer(send, b"%d bytes" % self.read[-1])

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer(self, send: Send, body: bytes) -> None:
        length = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": length})
        await send({"type": "http.response.body", "body": body})


def guarded_server(
    app: App, *, max_connections: int = 1000, timeouts: Timeouts = PATIENT, **options: Any
) -> GuardedServer:
    """A server for the app as the registry would make it."""
    guard = Guard(
        app,
        allowed_hosts={NAME},
        body_limit=lambda scope: 2 * MAX_BODY_BYTES if scope["method"] == "PUT" else MAX_BODY_BYTES,
    )
    rules = ConnectionRules(Room(max_connections), timeouts=timeouts)
    return GuardedServer(guard, rules, closing=app.closing, **options)


class Served:
    """An app that is being served on a loopback port."""

    def __init__(self, app: App, port: int, server: GuardedServer | None = None) -> None:
        self.app = app
        self.port = port
        self._server = server

    def hurry(self) -> None:
        """From now on the connections that are open have little time for each step."""
        assert self._server is not None
        for connection in list(self._server.server_state.connections):
            assert isinstance(connection, GuardedProtocol)
            connection._rules = replace(connection._rules, timeouts=QUICK)
            connection.timeout_keep_alive = 1

    def connect(self) -> socket.socket:
        """A connected client socket."""
        client = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return client

    def ask(self, *pieces: bytes) -> bytes:
        """Send all pieces on a new connection; what came back until the server closed it."""
        with self.connect() as client:
            with contextlib.suppress(ConnectionError):
                for piece in pieces:
                    client.sendall(piece)
            return read_to_end(client)

    def ended(self) -> CloseReason:
        """How the connection that the app listens to has ended; waits for it."""
        return self.app.ended.get(timeout=10)


Tls = tuple[ssl.SSLContext, ssl.SSLContext]
Serve = Callable[..., contextlib.AbstractContextManager[Served]]


on_both_loops = pytest.mark.parametrize("serve", ["asyncio", "uvloop"], indirect=True)


@pytest.fixture
def serve(request: pytest.FixtureRequest) -> Serve:
    """Serves an app in a thread, on uvloop unless a test says otherwise."""
    loop = getattr(request, "param", "uvloop")

    @contextlib.contextmanager
    def serving(*, keep_alive: int = 75, **options: Any) -> Iterator[Served]:
        if loop == "asyncio" and "ssl_context" in options and sys.version_info < (3, 11):
            pytest.skip("asyncio has another TLS before Python 3.11; the registry is on uvloop")
        app = App()
        server = guarded_server(app, **options)
        server.config.loop = loop
        server.config.timeout_keep_alive = keep_alive
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
            thread.start()
            try:
                yield Served(app, port, server)
            finally:
                server.should_exit = True
                thread.join(20)
        assert not thread.is_alive()

    return serving


def request(path: str = "/echo", *headers: str, method: str = "GET", close: bool = True) -> bytes:
    """The header of a request."""
    lines = [f"{method} {path} HTTP/1.1", *headers]
    if not any(line.lower().startswith("host:") for line in headers):
        lines.append(f"Host: {NAME}")
    if close:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode()


def read_to_end(client: socket.socket) -> bytes:
    """All bytes until the other side closes or resets."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while piece := client.recv(65536):
            received += piece
    return received


def read_answer(client: socket.socket) -> bytes:
    """One answer with a Content-Length on a connection that stays open."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += receive_some(client)
    head, _, body = received.partition(b"\r\n\r\n")
    length = int(headers_of(head + b"\r\n\r\n")["content-length"])
    while len(body) < length:
        body += receive_some(client)
    return head + b"\r\n\r\n" + body


def receive_some(client: socket.socket) -> bytes:
    """At least one byte."""
    piece = client.recv(65536)
    assert piece, "the server closed the connection"
    return piece


def status_of(answer: bytes) -> int:
    """The status code."""
    return int(answer.split(b" ", 2)[1])


def headers_of(answer: bytes) -> dict[str, str]:
    """The headers, names in lower case."""
    lines = answer.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    return {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }


def body_of(answer: bytes) -> bytes:
    """The body of an answer with a Content-Length."""
    return answer.partition(b"\r\n\r\n")[2]


def problem_of(answer: bytes) -> tuple[int, str]:
    """Status and code of a refusal, which is a Problem."""
    problem = json.loads(body_of(answer))
    assert sorted(problem) == ["code", "hint", "message", "retryable"]
    return status_of(answer), problem["code"]


# Time-outs


@on_both_loops
def test_a_connection_that_sends_nothing_is_closed_without_an_answer(serve: Serve) -> None:
    with serve(timeouts=QUICK) as served:
        assert served.ask() == b""


@on_both_loops
def test_a_half_header_is_answered_408_and_closed(serve: Serve) -> None:
    with serve(timeouts=SOON) as served:
        assert problem_of(served.ask(request()[:-2])) == (408, "bad_request")


def test_a_dripping_header_does_not_extend_its_time(serve: Serve) -> None:
    with serve(timeouts=SOON) as served, served.connect() as client:
        started = time.monotonic()
        with contextlib.suppress(ConnectionError):
            for byte in request() * 10:
                client.sendall(bytes([byte]))
                time.sleep(0.05)
                if time.monotonic() - started > 10:
                    break
        assert problem_of(read_to_end(client)) == (408, "bad_request")


@on_both_loops
def test_a_half_body_is_answered_408_and_closed(serve: Serve) -> None:
    with serve(timeouts=replace(QUICK, header=60)) as served:
        for method in ("POST", "HEAD"):
            answer = served.ask(request("/echo", "Content-Length: 10", method=method), b"12345")
            assert problem_of(answer) == (408, "bad_request")


def test_an_idle_connection_is_kept_and_its_next_header_has_a_deadline(
    serve: Serve,
) -> None:
    with serve(timeouts=SOON) as served, served.connect() as client:
        client.sendall(request(close=False))
        assert body_of(read_answer(client)) == b"0 bytes"
        assert served.ask() == b""  # one opened later is closed meanwhile
        client.sendall(request(close=False))
        assert body_of(read_answer(client)) == b"0 bytes"
        client.sendall(b"GET /e")
        assert problem_of(read_to_end(client)) == (408, "bad_request")


def test_an_idle_connection_is_closed_after_the_keep_alive_time(serve: Serve) -> None:
    with serve(keep_alive=1) as served, served.connect() as client:
        client.sendall(request(close=False))
        read_answer(client)
        assert read_to_end(client) == b""


def test_a_body_that_comes_after_the_answer_does_not_keep_the_connection_for_ever(
    serve: Serve,
) -> None:
    with serve() as served, served.connect() as client:
        client.sendall(request("/early", "Content-Length: 5", method="POST", close=False))
        assert body_of(read_answer(client)) == b"early"
        client.sendall(b"12345")
        client.sendall(request(close=False))
        assert body_of(read_answer(client)) == b"0 bytes"
        client.sendall(request("/early", "Content-Length: 5", method="POST", close=False))
        assert body_of(read_answer(client)) == b"early"
        served.hurry()
        client.sendall(b"12345")
        assert read_to_end(client) == b""


@on_both_loops
def test_a_body_that_never_comes_after_the_answer_closes_the_connection(
    serve: Serve,
) -> None:
    quick = replace(QUICK, header=60)
    with serve(timeouts=quick) as served, served.connect() as client:
        client.sendall(request("/early", "Content-Length: 5", method="POST", close=False))
        assert body_of(read_answer(client)) == b"early"
        assert read_to_end(client) == b""


@on_both_loops
def test_tls_without_a_client_hello_is_closed(serve: Serve, tls: Tls) -> None:
    with serve(ssl_context=tls[0], timeouts=QUICK) as served:
        assert served.ask() == b""


@on_both_loops
def test_plain_http_to_a_tls_port_is_closed_without_a_line_in_the_log(
    serve: Serve,
    tls: Tls,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with serve(ssl_context=tls[0]) as served:
        assert b"HTTP" not in served.ask(request())
    assert caplog.text == ""


# Sizes


def test_a_body_up_to_the_limit_is_read(serve: Serve) -> None:
    header = request("/echo", f"Content-Length: {MAX_BODY_BYTES}", method="POST")
    with serve() as served:
        assert body_of(served.ask(header, bytes(MAX_BODY_BYTES))) == b"65536 bytes"


def test_a_body_over_the_limit_is_refused_by_its_header(serve: Serve) -> None:
    with serve() as served:
        for length in (MAX_BODY_BYTES + 1, 300 * MEGABYTE):
            answer = served.ask(request("/echo", f"Content-Length: {length}", method="POST"))
            assert problem_of(answer) == (413, "too_large")


def test_a_request_may_have_a_larger_limit(serve: Serve) -> None:
    length = 2 * MAX_BODY_BYTES
    with serve() as served:
        header = request("/echo", f"Content-Length: {length}", method="PUT")
        assert body_of(served.ask(header, bytes(length))) == b"131072 bytes"
        header = request("/echo", f"Content-Length: {length + 1}", method="PUT")
        assert problem_of(served.ask(header)) == (413, "too_large")


@pytest.mark.parametrize(
    "headers",
    [["Transfer-Encoding: chunked"], ["Content-Length: 3", "Transfer-Encoding: chunked"]],
    ids=["chunked", "chunked and Content-Length"],
)
def test_a_chunked_body_is_refused(serve: Serve, headers: list[str]) -> None:
    with serve() as served:
        for method in ("POST", "HEAD"):
            answer = served.ask(request("/echo", *headers, method=method), b"3\r\nabc\r\n0\r\n\r\n")
            assert problem_of(answer) == (400, "bad_request")


def test_two_lengths_are_refused(serve: Serve) -> None:
    header = request("/echo", "Content-Length: 3", "Content-Length: 4", method="POST")
    with serve() as served:
        assert problem_of(served.ask(header)) == (400, "bad_request")


@pytest.mark.parametrize("count", [MAX_HEADERS - 1, 10_000])
def test_too_many_headers_are_refused(serve: Serve, count: int) -> None:
    with serve() as served:
        answer = served.ask(request("/echo", *["a: b"] * count))
        assert problem_of(answer) == (400, "bad_request")


def test_as_many_headers_as_allowed_are_read(serve: Serve) -> None:
    with serve() as served:
        assert status_of(served.ask(request("/echo", *["a: b"] * (MAX_HEADERS - 2)))) == 200


def test_a_header_over_the_limit_is_refused_also_when_it_comes_in_one_piece(
    serve: Serve,
) -> None:
    with serve() as served:
        for size in (2 * MAX_HEADER_BYTES, 200_000):
            answer = served.ask(request("/echo", f"a: {'x' * size}"))
            assert problem_of(answer) == (400, "bad_request")


def test_a_request_with_its_body_in_one_piece_is_not_taken_for_a_large_header(
    serve: Serve,
) -> None:
    header = request("/echo", f"Content-Length: {MAX_BODY_BYTES}", method="POST")
    with serve() as served:
        assert body_of(served.ask(header + bytes(MAX_BODY_BYTES))) == b"65536 bytes"


@pytest.mark.parametrize("garbage", [b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"\r\n\r\n"])
def test_what_is_not_http_is_refused_without_a_line_in_the_log(
    serve: Serve, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with serve(timeouts=SOON) as served:
        assert status_of(served.ask(garbage)) in (400, 408)
    assert caplog.text == ""


@on_both_loops
def test_connections_above_the_cap_get_503_and_the_others_go_on(serve: Serve) -> None:
    with serve(max_connections=2) as served, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(served.connect()) for _ in range(2)]
        for client in clients:
            client.sendall(request(close=False))
            read_answer(client)
        answer = served.ask(request())
        assert (problem_of(answer), headers_of(answer)["retry-after"]) == (
            (503, "unavailable"),
            "1",
        )
        for client in clients:
            client.sendall(request(close=False))
            assert body_of(read_answer(client)) == b"0 bytes"


def test_connections_far_above_the_cap_are_dropped_at_once(serve: Serve) -> None:
    with serve(max_connections=1) as served, contextlib.ExitStack() as stack:
        for _ in range(1 + MAX_REFUSALS):
            stack.enter_context(served.connect())
        assert served.ask() == b""


# Who may ask


def test_only_known_names_and_no_web_pages_are_answered(serve: Serve) -> None:
    expected = {
        ("/echo", "Host: rdzv.internal"): 200,
        ("/echo", "Host: rdzv.internal:29600"): 200,
        ("/echo", "Host: RDZV.Internal"): 200,
        ("/echo", "Host: evil.example"): 400,
        ("/echo", "Host: rdzv.internal.evil.example"): 400,
        ("/echo", "Host: 127.0.0.1"): 400,
        ("/echo", "Host: [::1]:29600"): 400,
        ("/echo", "Host:"): 400,
        ("/healthz", "Host: 10.0.0.1:29600"): 200,
        ("/healthz/../echo", "Host: 10.0.0.1:29600"): 400,
        ("/echo", "Origin: https://evil.example"): 403,
        ("/echo", "Origin: null"): 403,
        ("/echo", "Origin: http://rdzv.internal"): 403,
        ("/echo", "Sec-Fetch-Site: cross-site"): 403,
        ("/echo", "Sec-Fetch-Site: same-site"): 403,
        ("/echo", "Sec-Fetch-Site: same-origin"): 403,
        ("/echo", "Sec-Fetch-Site: none"): 200,
    }
    with serve() as served:
        for method in ("GET", "DELETE"):
            statuses = {
                (path, header): status_of(served.ask(request(path, header, method=method)))
                for path, header in expected
            }
            assert statuses == expected


def test_a_request_with_two_credentials_is_refused(serve: Serve) -> None:
    with serve() as served:
        one = "Authorization: Bearer a"
        assert status_of(served.ask(request("/echo", one))) == 200
        for other in (one, "authorization: Bearer b", "AUTHORIZATION: Basic b"):
            answer = served.ask(request("/echo", one, other))
            assert problem_of(answer) == (400, "bad_request")


def test_http_1_0_without_a_host_is_refused(serve: Serve) -> None:
    with serve() as served:
        assert problem_of(served.ask(b"GET /echo HTTP/1.0\r\n\r\n")) == (400, "bad_request")


# Answers


def test_answers_forbid_caching_and_do_not_name_the_server(serve: Serve) -> None:
    with serve() as served:
        headers = headers_of(served.ask(request()))
    del headers["date"]
    assert headers == {
        "cache-control": "no-store",
        "x-content-type-options": "nosniff",
        "content-length": "7",
        "connection": "close",
    }


def test_an_error_that_the_app_raises_is_its_problem(serve: Serve) -> None:
    with serve() as served:
        answer = served.ask(request("/taken"))
    assert status_of(answer) == 409
    assert json.loads(body_of(answer)) == {
        "code": "slot_taken",
        "message": "slot 2 is held by 10.0.0.7",
        "hint": "wait",
        "retryable": True,
    }


def test_a_fault_of_the_app_is_logged_and_not_shown(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    with serve() as served:
        answer = served.ask(request("/fault"))
    assert problem_of(answer) == (500, "internal")
    assert b"secret" not in answer
    assert caplog.messages == ["GET /fault failed"]


def test_a_half_body_whose_peer_leaves_never_reaches_the_app(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    with serve() as served:
        with served.connect() as client:
            client.sendall(request("/watch", close=False))
            read_answer(client)
            client.sendall(request("/echo", "Content-Length: 9", method="POST") + b"1")
        assert served.ended() == CloseReason.FIN
    assert (served.app.read, caplog.text) == ([], "")


def test_an_answer_that_the_app_gives_after_a_408_goes_nowhere(
    serve: Serve, tls: Tls, caplog: pytest.LogCaptureFixture
) -> None:
    # A TLS client that does not say goodbye: the connection outlives the 408 by a second.
    with (
        serve(ssl_context=tls[0], timeouts=replace(PATIENT, body=0.3)) as served,
        tls[1].wrap_socket(served.connect(), server_hostname=NAME) as client,
    ):
        client.sendall(request("/watch", close=False))
        read_answer(client)
        client.sendall(request("/late", "Content-Length: 9", method="POST"))
        assert served.ended() == CloseReason.LOCAL
        assert problem_of(read_to_end(client)) == (408, "bad_request")
    assert caplog.text == ""


def test_only_a_word_of_command_that_differs_is_more_than_every_refusal_says() -> None:
    shape = ["code", "hint", "message", "retryable"]
    assert sorted(json.loads(problem_response(Mismatch("another --nnodes"))[2])) == shape
    told = json.loads(problem_response(Mismatch("other words", command_word=3))[2])
    assert (sorted({*told} - {"command_word"}), told["command_word"]) == (shape, 3)


def test_too_many_requests_say_when_to_come_back() -> None:
    status, headers, _ = problem_response(TooManyRequests("slowly"), retry_after_seconds=2.1)
    assert (status, dict(headers)[b"retry-after"]) == (429, b"3")


# The end of a connection


@on_both_loops
def test_a_parked_connection_closed_by_its_peer_is_told_as_fin(serve: Serve) -> None:
    with serve() as served:
        with served.connect() as client:
            client.sendall(request("/park"))
            assert served.app.parked.wait(10)
        assert served.ended() == CloseReason.FIN


@on_both_loops
def test_an_idle_connection_reset_by_its_peer_is_told_as_rst(serve: Serve) -> None:
    with serve() as served:
        with served.connect() as client:
            client.sendall(request("/watch", close=False))
            read_answer(client)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert served.ended() == CloseReason.RST


@on_both_loops
def test_a_connection_that_the_server_closes_is_told_as_local(serve: Serve) -> None:
    with serve() as served:
        served.ask(request("/watch"))
        assert served.ended() == CloseReason.LOCAL
        with served.connect() as client:
            client.sendall(request("/watch", close=False))
            read_answer(client)
            served.hurry()
            client.sendall(b"GET /e")
            read_to_end(client)
            assert served.ended() == CloseReason.LOCAL


@on_both_loops
def test_a_peer_that_never_reads_is_lost(serve: Serve) -> None:
    deaf = replace(PATIENT, unacknowledged=0.5)
    with serve(timeouts=deaf) as served, served.connect() as client:
        client.sendall(request("/watch", close=False))
        read_answer(client)
        client.sendall(request("/large", close=False))
        assert served.ended() == CloseReason.LOST


@on_both_loops
@pytest.mark.parametrize("polite", [True, False], ids=["with close_notify", "without"])
def test_a_tls_connection_closed_by_its_peer_is_told_as_fin(
    serve: Serve, tls: Tls, polite: bool
) -> None:
    with serve(ssl_context=tls[0]) as served:
        client = tls[1].wrap_socket(served.connect(), server_hostname=NAME)
        client.sendall(request("/watch", close=False))
        assert body_of(read_answer(client)) == b"watching"
        if polite:
            client.unwrap().close()
        else:
            os.close(client.detach())
        assert served.ended() == CloseReason.FIN


@on_both_loops
def test_a_tls_connection_reset_by_its_peer_is_told_as_rst(serve: Serve, tls: Tls) -> None:
    with serve(ssl_context=tls[0]) as served:
        client = tls[1].wrap_socket(served.connect(), server_hostname=NAME)
        client.sendall(request("/watch", close=False))
        assert body_of(read_answer(client)) == b"watching"
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        os.close(client.detach())
        assert served.ended() == CloseReason.RST


async def test_a_callback_given_with_each_request_is_called_once() -> None:
    calls: list[tuple[object, ...]] = []

    def record(*arguments: object) -> None:
        calls.append(arguments)

    connection = Connection("10.0.0.1")
    for _ in range(3):
        connection.on_close(record, "node", 2)
    connection.end(CloseReason.FIN)
    await asyncio.sleep(0)
    assert (calls, connection.closed) == ([("node", 2, CloseReason.FIN)], True)


async def test_a_callback_given_after_the_end_is_called_all_the_same() -> None:
    calls: list[CloseReason] = []
    connection = Connection("10.0.0.1")
    connection.end(CloseReason.RST)
    connection.on_close(calls.append)
    await asyncio.sleep(0)
    assert calls == [CloseReason.RST]


def test_the_peer_of_a_connection_is_its_address(serve: Serve) -> None:
    with serve() as served:
        assert body_of(served.ask(request("/peer"))) == b"127.0.0.1"


# A server process


@contextlib.contextmanager
def server_process(listener: socket.socket) -> Iterator[subprocess.Popen[bytes]]:
    """This file as a process that serves on the listener, which stays open here."""
    with subprocess.Popen(
        [sys.executable, __file__, str(listener.fileno())],
        pass_fds=[listener.fileno()],
        stderr=subprocess.PIPE,
    ) as program:
        try:
            yield program
        finally:
            program.kill()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A listening socket, made here as the launcher makes it."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock


def port_of(listener: socket.socket) -> int:
    """Its port."""
    return int(listener.getsockname()[1])


def test_sigterm_ends_parked_polls_and_the_process_and_the_port_stays(
    listener: socket.socket,
) -> None:
    served = Served(App(), port_of(listener))
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(server_process(listener))
        parked = stack.enter_context(served.connect())
        parked.sendall(request("/park", close=False))
        idle = stack.enter_context(served.connect())
        idle.sendall(request(close=False))
        read_answer(idle)
        unfinished = stack.enter_context(served.connect())
        unfinished.sendall(request("/echo", "Content-Length: 9", method="POST") + b"1")
        served.ask(request())  # by now those before it have been read
        first.send_signal(signal.SIGTERM)
        assert body_of(read_to_end(parked)) == b"closing"
        assert problem_of(read_to_end(unfinished)) == (503, "unavailable")
        assert first.wait(10) == -signal.SIGTERM
        assert first.stderr is not None
        assert first.stderr.read() == b""  # where it would say that it has waited in vain
        idle.close()
        stack.enter_context(server_process(listener))
        assert body_of(served.ask(request())) == b"0 bytes"


def test_floods_are_cut_off_and_leave_no_memory_behind(listener: socket.socket) -> None:
    served = Served(App(), port_of(listener))
    floods = [
        request("/echo", f"Content-Length: {100 * MEGABYTE}", method="POST"),
        request("/echo", "Transfer-Encoding: chunked", method="POST"),
        request("/echo")[:-2] + b"a: ",
        request("/early", f"Content-Length: {100 * MEGABYTE}", method="POST"),
    ]
    with server_process(listener) as program:
        served.ask(request())
        memory = psutil.Process(program.pid).memory_info
        before = memory().rss
        for flood in floods:
            assert _bytes_taken(served, flood) < 20 * MEGABYTE
            assert memory().rss - before < 20 * MEGABYTE


def _bytes_taken(served: Served, header: bytes) -> int:
    """How much of 100 MB after the header the server lets in before it closes."""
    piece = b"%x\r\n" % 65536 + b"x" * 65536 + b"\r\n"
    sent = 0
    with served.connect() as client, contextlib.suppress(ConnectionError):
        client.sendall(header)
        while sent < 100 * MEGABYTE:
            client.sendall(piece)
            sent += len(piece)
    return sent


def test_a_connection_that_has_ended_is_let_go_without_the_garbage_collector(
    serve: Serve,
) -> None:
    """Else each one keeps what it had read: a flood of bodies cost 90 kB a connection."""
    requests = [
        request("/echo", "Transfer-Encoding: chunked", method="POST"),
        request("/echo", f"Content-Length: {100 * MEGABYTE}", method="POST"),
        request(),
    ]
    gc.collect()
    gc.disable()
    try:
        with serve() as served:
            for asked in requests * 5:
                served.ask(asked)
            deadline = time.monotonic() + 5
            while _protocols() and time.monotonic() < deadline:
                time.sleep(0.02)
            assert _protocols() == 0
    finally:
        gc.enable()


def _protocols() -> int:
    return sum(isinstance(thing, GuardedProtocol) for thing in gc.get_objects())


def test_slow_connections_do_not_stop_a_healthy_request(listener: socket.socket) -> None:
    served = Served(App(), port_of(listener))
    with server_process(listener), contextlib.ExitStack() as stack:
        served.ask(request())
        slow = [stack.enter_context(served.connect()) for _ in range(500)]
        for client in slow:
            client.sendall(b"GET /echo HTTP/1.1\r\nHost: rdzv")
        healthy = stack.enter_context(served.connect())
        for _ in range(100):
            started = time.monotonic()
            healthy.sendall(request(close=False))
            assert body_of(read_answer(healthy)) == b"0 bytes"
            assert time.monotonic() - started < Timeouts().header / 2
        assert [status_of(read_to_end(client)) for client in slow] == [408] * 500


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    """A server's and a client's context around one self-signed certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.datetime(2000, 1, 1))
        .not_valid_after(datetime.datetime(2099, 1, 1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    path: Path = tmp_path_factory.mktemp("tls") / "server.pem"
    path.write_bytes(
        certificate
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.minimum_version = ssl.TLSVersion.TLSv1_3
    server.load_cert_chain(path)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cadata=certificate.decode())
    return server, client


# Failed logins


# Whole answers, written without ASGI's messages


@on_both_loops
def test_whole_answers_and_others_take_turns_on_one_connection(serve: Serve) -> None:
    with serve() as served, served.connect() as client:
        bodies = []
        for path in ("/whole", "/whole", "/echo", "/whole"):
            client.sendall(request(path, close=False))
            bodies.append(body_of(read_answer(client)))
        assert bodies == [b"whole", b"whole", b"0 bytes", b"whole"]


def test_requests_sent_ahead_are_answered_in_their_order(serve: Serve) -> None:
    ahead = request("/whole", close=False) + request("/echo", close=False) + request("/whole")
    with serve() as served:
        answers = served.ask(ahead)
    assert [body_of(b"HTTP" + part)[:7] for part in answers.split(b"HTTP")[1:]] == [
        b"whole",
        b"0 bytes",
        b"by ASGI",
    ]


def test_a_whole_answer_has_the_headers_of_every_answer(serve: Serve) -> None:
    with serve() as served, served.connect() as client:
        client.sendall(request("/whole", close=False))
        headers = headers_of(read_answer(client))
    assert headers == {
        "content-type": "application/json",
        "content-length": "5",
        "cache-control": "no-store",
        "x-content-type-options": "nosniff",
    }


def test_a_request_that_ends_its_connection_is_answered_by_asgi(serve: Serve) -> None:
    with serve() as served:
        assert body_of(served.ask(request("/whole"))) == b"by ASGI"
        assert served.app.whole == [False]


def test_after_a_whole_answer_the_next_header_has_its_deadline(serve: Serve) -> None:
    with serve() as served, served.connect() as client:
        client.sendall(request("/whole", close=False))
        read_answer(client)
        served.hurry()
        client.sendall(b"GET /e")
        assert problem_of(read_to_end(client)) == (408, "bad_request")


def test_after_a_whole_answer_an_idle_connection_is_closed_in_its_time(serve: Serve) -> None:
    with serve(keep_alive=1) as served, served.connect() as client:
        client.sendall(request("/whole", close=False))
        read_answer(client)
        assert read_to_end(client) == b""


@on_both_loops
def test_a_whole_answer_over_tls_comes_in_pieces_as_the_peer_reads(serve: Serve, tls: Tls) -> None:
    with serve(ssl_context=tls[0]) as served, served.connect() as plain:
        client = tls[1].wrap_socket(plain, server_hostname=NAME)
        client.sendall(request("/wide", close=False))
        time.sleep(0.2)
        assert served.app.whole == []  # not all of it is in memory, encrypted, meanwhile
        assert body_of(read_answer(client)) == bytes(8 * MEGABYTE)
        client.sendall(request("/whole", close=False))
        assert body_of(read_answer(client)) == b"whole"
        client.close()


def test_a_peer_that_leaves_during_a_whole_answer_is_told_as_gone(
    serve: Serve, tls: Tls, caplog: pytest.LogCaptureFixture
) -> None:
    with serve(ssl_context=tls[0]) as served, served.connect() as plain:
        client = tls[1].wrap_socket(plain, server_hostname=NAME)
        client.sendall(request("/wide", close=False))
        client.recv(1000)
        client.close()
        assert served.ended() in (CloseReason.RST, CloseReason.FIN)
    assert caplog.text == ""


def test_twenty_failures_at_once_are_allowed_then_one_a_second() -> None:
    logins = FailedLogins()
    assert [logins.failed("10.0.0.1", 5.0) for _ in range(21)] == [0.0] * 20 + [1.0]
    assert [logins.failed("10.0.0.1", 5.5), logins.failed("10.0.0.1", 6.0)] == [0.5, 0.0]
    assert logins.failed("10.0.0.1", 6.0) == 1.0


def test_a_stranger_asks_twice_at_once_then_once_a_second() -> None:
    strangers, state, waits = Strangers(), 0.0, []
    for now in (5.0, 5.0, 5.0, 6.5, 6.5):
        state, wait = strangers.take("10.0.0.1", state, now)
        waits.append(wait)
    assert waits == [0.0, 0.0, 1.0, 0.5, 1.0]
    state, wait = strangers.take("10.0.0.1", state, 20.0)
    assert wait == 0.0


def test_the_connections_of_a_source_share_what_it_may_ask_and_none_waits_long() -> None:
    strangers = Strangers()
    waits = [strangers.take("10.0.0.1", 0.0, 5.0)[1] for _ in range(12_000)]
    assert waits[:10_000] == [0.0] * 10_000
    assert 0 < waits[10_100] < 0.3
    assert waits[-1] == 1.0
    assert strangers.take("10.0.0.2", 0.0, 5.0)[1] == 0.0


def test_who_proves_a_credential_does_not_use_up_what_its_source_may_ask() -> None:
    strangers = Strangers()
    for _ in range(10_000):
        assert strangers.take("10.0.0.1", 0.0, 5.0)[1] == 0.0
    assert strangers.take("10.0.0.1", 0.0, 5.0)[1] > 0
    strangers.give_back("10.0.0.1", 5_000)
    assert strangers.take("10.0.0.1", 0.0, 5.0)[1] == 0.0


def test_only_so_many_sources_of_strangers_are_remembered() -> None:
    strangers = Strangers()
    for number in range(MAX_SOURCES + 10):
        strangers.take(f"10.{number}", 0.0, 1.0)
    assert len(strangers._sources) == MAX_SOURCES


def test_a_source_that_paused_has_its_allowance_back() -> None:
    logins = FailedLogins()
    for _ in range(25):
        logins.failed("10.0.0.1", 0.0)
    assert [logins.failed("10.0.0.1", 20.0) for _ in range(21)] == [0.0] * 20 + [1.0]


def test_sources_do_not_share_their_allowance_unless_they_are_one_ipv6_network() -> None:
    logins = FailedLogins()
    for number in range(21):
        logins.failed("10.0.0.1", 0.0)
        logins.failed(f"2001:db8::{number:x}", 0.0)
    assert logins.failed("10.0.0.2", 0.0) == 0.0
    assert logins.failed("2001:db8::ffff", 0.0) == 1.0
    assert logins.failed("2001:db8:0:1::1", 0.0) == 0.0


def test_the_source_that_failed_longest_ago_is_forgotten_first() -> None:
    logins = FailedLogins()
    for source in ("old", "kept"):
        for _ in range(20):
            logins.failed(source, 0.0)
    logins.failed("kept", 1.0)
    for number in range(MAX_SOURCES - 1):
        logins.failed(f"10.{number}", 1.0)
    assert (logins.failed("kept", 1.0), logins.failed("old", 1.0)) == (1.0, 0.0)


if __name__ == "__main__":
    main_app = App()
    guarded_server(main_app, timeouts=Timeouts()).run(
        sockets=[socket.socket(fileno=int(sys.argv[1]))]
    )
