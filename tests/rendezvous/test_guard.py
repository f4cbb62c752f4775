"""The guard, on real uvicorn and real loopback sockets, on uvloop as the registry."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from rendezvous.serving.connection import CloseReason
from rendezvous.serving.connection_rules import Timeouts
from rendezvous.serving.guard import MAX_BODY_BYTES
from rendezvous.serving.http11 import GuardedProtocol
from rendezvous.serving.request_head import MAX_HEADER_BYTES, MAX_HEADERS
from rendezvous.serving.room import MAX_REFUSALS
from tests.attack.fuzz.door import Wire
from tests.support.guarded import (
    MEGABYTE,
    PATIENT,
    QUICK,
    App,
    Served,
    body_of,
    guarded_server,
    headers_of,
    post,
    problem_of,
    read_answer,
    request,
    say,
    serve,
    status_of,
)
from tests.support.virtual_time import run_virtually

in_time = pytest.mark.real_time

BAD = (400, "bad_request")
LARGE = (413, "too_large")
FULL = MAX_BODY_BYTES


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    """A server for requests that are one connection each."""
    with serve() as made:
        yield made


# Time-outs


class Peer(Wire):
    """The other end of a connection on a clock that jumps."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock, "127.0.0.1")
        self.closed_at: float | None = None

    def close(self) -> None:
        """See the base class."""
        super().close()
        self.closed_at = self.closed_at or asyncio.get_running_loop().time()


def told_and_closed(
    steps: Sequence[bytes | float], **timeouts: float
) -> tuple[list[bytes], float | None]:
    """Status or body of each answer to a peer that sends and waits so, and when it was closed."""
    server = guarded_server(App(), timeouts=replace(Timeouts(), **timeouts))
    server.config.load()

    async def talk(sock: socket.socket) -> Peer:
        peer, loop = Peer(sock), asyncio.get_running_loop()
        app, state = server.config.loaded_app, server.server_state
        protocol = GuardedProtocol(app, state, loop, rules=server._rules)
        protocol.connection_made(peer)
        for step in (*steps, 100.0):
            if isinstance(step, float):
                await asyncio.sleep(step)
            elif not peer.closed:
                protocol.data_received(step)
        protocol.connection_lost(None)
        return peer

    with socket.socket() as sock:
        peer = run_virtually(talk(sock))
    answers = [b"HTTP/1.1 " + part for part in peer.written.split(b"HTTP/1.1 ")[1:]]
    said = [b"%d" % n if (n := status_of(a)) != 200 else body_of(a) for a in answers]
    return said, peer.closed_at and round(peer.closed_at, 3)


ECHO, WHOLE = request(close=False), request("/whole", close=False)
EARLY = post(5, path="/early", close=False)
DRIPPING = [piece for byte in request() * 2 for piece in (bytes([byte]), 0.5)]


@pytest.mark.parametrize(
    ("steps", "timeouts", "answers", "closed_at"),
    [
        ([], {}, [], 5.0),
        ([request()[:-2]], {}, [b"408"], 5.0),
        (DRIPPING, {}, [b"408"], 5.0),
        ([post(10), 3.0, b"12345"], {}, [b"408"], 10.0),
        ([post(10, method="HEAD"), b"12345"], {}, [b"408"], 10.0),
        ([ECHO], {}, [b"0 bytes"], 75.0),
        ([post(20_000, close=False), bytes(20_000)], {}, [b"20000 bytes"], 75.0),
        ([WHOLE], {}, [b"whole"], 75.0),
        ([ECHO, 50.0, ECHO, 50.0, WHOLE], {}, [b"0 bytes", b"0 bytes", b"whole"], 175.0),
        ([ECHO, 20.0, b"GET /e"], {}, [b"0 bytes", b"408"], 25.0),
        ([WHOLE, 20.0, b"GET /e"], {}, [b"whole", b"408"], 25.0),
        ([EARLY, 1.0, b"12345"], {}, [b"early"], 76.0),
        ([EARLY, 1.0, b"12345", ECHO], {}, [b"early", b"0 bytes"], 76.0),
        ([EARLY], {}, [b"early"], 10.0),
        ([post(9, path="/late", close=False)], {"body": 0.3}, [b"408"], 0.3),  # it answers at 0.6
    ],
)
def test_what_does_not_come_in_time_ends_the_connection(
    steps: list[bytes | float],
    timeouts: dict[str, float],
    answers: list[bytes],
    closed_at: float,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert told_and_closed(steps, **timeouts) == (answers, closed_at)
    assert caplog.text == ""


@in_time
def test_the_time_of_a_header_runs_on_a_real_connection_too() -> None:
    with serve(timeouts=replace(PATIENT, header=1.5)) as served:
        assert problem_of(served.ask(request()[:-2])) == (408, "bad_request")


@in_time
def test_tls_without_a_client_hello_is_closed() -> None:
    with serve(tls=True, timeouts=QUICK) as served:
        assert served.ask() == b""


def test_plain_http_to_a_tls_port_is_closed_without_a_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with serve(tls=True) as served:
        assert b"HTTP" not in served.ask(request())
    assert caplog.text == ""


# Sizes and forms


ONE = "Authorization: Bearer a"
CHUNKED = "Transfer-Encoding: chunked"
CHUNKS = b"3\r\nabc\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([post(FULL), bytes(FULL)], b"65536 bytes"),
        ([post(FULL, bytes(FULL))], b"65536 bytes"),  # in one piece: no large header
        ([post(FULL + 1)], LARGE),
        ([post(300 * MEGABYTE)], LARGE),
        ([post(2 * FULL, method="PUT"), bytes(2 * FULL)], b"131072 bytes"),
        ([post(2 * FULL + 1, method="PUT")], LARGE),
        ([post(2 * FULL + 1, path="/unread")], LARGE),
        ([request("/echo", CHUNKED, method="POST"), CHUNKS], BAD),
        ([request("/echo", CHUNKED, method="HEAD"), CHUNKS], BAD),
        ([request("/echo", "Content-Length: 3", CHUNKED, method="POST"), CHUNKS], BAD),
        ([request("/echo", "Content-Length: 3", CHUNKED, method="HEAD"), CHUNKS], BAD),
        ([request("/echo", "Content-Length: 3", "Content-Length: 4", method="POST")], BAD),
        ([request("/echo", *["a: b"] * (MAX_HEADERS - 2))], b"0 bytes"),
        ([request("/echo", *["a: b"] * (MAX_HEADERS - 1))], BAD),
        ([request("/echo", *["a: b"] * 10_000)], BAD),
        ([request("/echo", f"a: {'x' * 2 * MAX_HEADER_BYTES}")], BAD),
        ([request("/echo", f"a: {'x' * 200_000}")], BAD),
        ([request("/echo", ONE)], b"0 bytes"),
        ([request("/echo", ONE, ONE)], BAD),
        ([request("/echo", ONE, "authorization: Bearer b")], BAD),
        ([request("/echo", ONE, "AUTHORIZATION: Basic b")], BAD),
        ([b"GET /echo HTTP/1.0\r\n\r\n"], BAD),
        ([b"\x16\x03\x01\x02\x00\r\n\r\n"], BAD),
        ([b"GET\r\n\r\n"], BAD),
        ([b"GET /echo\r\nHost: rdzv.internal\r\n\r\n"], BAD),
        ([b"GET /echo HTTP/1.1\r\n\r\n"], BAD),
        ([request("/peer", "X-Forwarded-For: 10.6.6.6")], b"127.0.0.1 127.0.0.1"),
    ],
)
def test_a_request_is_taken_or_refused_by_its_form_without_a_line_in_the_log(
    shared: Served,
    pieces: list[bytes],
    expected: bytes | tuple[int, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    answer = shared.ask(*pieces)
    if isinstance(expected, bytes):
        assert (status_of(answer), body_of(answer)) == (200, expected)
    else:
        assert problem_of(answer) == expected
    assert caplog.text == ""


def test_connections_above_the_cap_get_503_and_the_others_go_on() -> None:
    with serve(max_connections=2) as served, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(served.connect()) for _ in range(2)]
        for client in clients:
            say(client, request(close=False))
        answer = served.ask(request())
        assert problem_of(answer) == (503, "unavailable")
        assert headers_of(answer)["retry-after"] == "1"
        for client in clients:
            assert say(client, request(close=False)) == b"0 bytes"


def test_connections_far_above_the_cap_are_dropped_at_once() -> None:
    with serve(max_connections=1) as served, contextlib.ExitStack() as stack:
        for _ in range(1 + MAX_REFUSALS):
            stack.enter_context(served.connect())
        assert served.ask() == b""


EVIL, OURS = "Host: evil.example", "Host: rdzv.internal"
NONE, CROSS = "Sec-Fetch-Site: none", "Sec-Fetch-Site: cross-site"
ORIGIN = "Origin: https://evil.example"
CURL = "User-Agent: curl/8.5.0"
"""Firefox and Safari let a page choose its User-Agent, so a guard that looks at it is none."""
NO_HOSTS = (
    *("", "evil.example", "rdzv.internal.evil.example", "127.0.0.1", "[::1]:29600"),
    *("rdzv.internal.", "rdzv.internal:x", "rdzv.internal:1:29600"),
    *("rdzv.internal@evil.example", "rdzv.internal, evil.example"),
)
ORIGINS = ("https://evil.example", "null", "http://rdzv.internal", "")
SITES = ("cross-site", "same-site", "same-origin")
BY_STATUS: dict[int, list[tuple[str, ...]]] = {
    200: [("Host: rdzv.internal:29600",), ("Host: RDZV.Internal",), (OURS, NONE)],
    400: [
        *((f"Host: {name}",) for name in NO_HOSTS),
        *((OURS, EVIL), (EVIL, OURS), (f"{EVIL}\r\n rdzv.internal",)),
        *((EVIL, CURL), (EVIL, "X-Forwarded-Host: rdzv.internal")),
    ],
    403: [
        *((f"Origin: {origin}",) for origin in ORIGINS),
        *((f"Sec-Fetch-Site: {site}",) for site in SITES),
        *((NONE, CROSS), (CROSS, NONE)),
        (f"{EVIL}:29600", "Origin: http://evil.example:29600", CURL),
        (ORIGIN, "Access-Control-Request-Method: DELETE"),
        (ORIGIN, "Upgrade: websocket", "Connection: Upgrade"),
    ],
}


@pytest.mark.parametrize("method", ["GET", "DELETE", "OPTIONS"])
def test_only_known_names_and_no_web_pages_are_answered(shared: Served, method: str) -> None:
    """Two attacks on Ray's job server among them: CVE-2025-62593, where the page's own name leads
    to the server, and CVE-2026-27482, where the guard knew POST and PUT, and not DELETE."""
    for status, wanted in BY_STATUS.items():
        answers = {h: shared.ask(request("/echo", *h, method=method)) for h in wanted}
        assert {h: status_of(a) for h, a in answers.items()} == dict.fromkeys(wanted, status)
    elsewhere = {"/healthz": 200, "/healthz/../echo": 400, "http://rdzv.internal/echo": 400}
    assert elsewhere == {
        path: status_of(shared.ask(request(path, "Host: 10.0.0.1:29600", method=method)))
        for path in elsewhere
    }


# Answers


@pytest.mark.parametrize(
    ("path", "close", "more"),
    [
        ("/echo", True, {"content-length": "7", "connection": "close"}),
        ("/whole", False, {"content-length": "5", "content-type": "application/json"}),
    ],
)
def test_answers_forbid_caching_and_do_not_name_the_server(
    shared: Served, path: str, close: bool, more: dict[str, str]
) -> None:
    with shared.connect() as client:
        client.sendall(request(path, close=close))
        headers = headers_of(read_answer(client))
    headers.pop("date", None)
    assert headers == {
        "cache-control": "no-store",
        "x-content-type-options": "nosniff",
        **more,
    }


def test_what_the_app_raises_is_its_problem_and_a_fault_is_logged_and_not_shown(
    shared: Served, caplog: pytest.LogCaptureFixture
) -> None:
    answer = shared.ask(request("/taken"))
    told = {"message": "slot 2 is held by 10.0.0.7", "hint": "wait", "retryable": True}
    assert (status_of(answer), json.loads(body_of(answer))) == (409, {"code": "slot_taken", **told})
    answer = shared.ask(request("/fault"))
    assert problem_of(answer) == (500, "internal")
    assert b"secret" not in answer
    assert caplog.messages == ["GET /fault failed"]


def test_a_half_body_whose_peer_leaves_never_reaches_the_app(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with serve() as served:
        with served.connect() as client:
            say(client, request("/watch", close=False))
            client.sendall(post(9, b"1"))
        assert served.ended() == CloseReason.FIN
    assert (served.app.read, caplog.text) == ([], "")


def test_whole_answers_and_others_take_turns_on_one_connection(shared: Served) -> None:
    paths = ("/whole", "/whole", "/echo", "/whole")
    with shared.connect() as client:
        bodies = [say(client, request(path, close=False)) for path in paths]
    assert bodies == [b"whole", b"whole", b"0 bytes", b"whole"]


def test_requests_sent_ahead_are_answered_in_their_order_and_the_last_by_asgi() -> None:
    ahead = request("/whole", close=False) + request("/echo", close=False) + request("/whole")
    with serve() as served:
        answers = served.ask(ahead)
    assert [body_of(b"HTTP" + part)[:7] for part in answers.split(b"HTTP")[1:]] == [
        b"whole",
        b"0 bytes",
        b"by ASGI",
    ]
    assert served.app.whole == [True, False]


@in_time
def test_a_whole_answer_over_tls_comes_in_pieces_as_the_peer_reads() -> None:
    with serve(tls=True) as served, served.connect(tls=True) as client:
        client.sendall(request("/wide", close=False))
        time.sleep(0.2)
        assert served.app.whole == []  # not all of it is in memory, encrypted, meanwhile
        assert body_of(read_answer(client)) == bytes(8 * MEGABYTE)
        assert say(client, request("/whole", close=False)) == b"whole"


def test_a_peer_that_leaves_during_a_whole_answer_is_told_as_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with serve(tls=True) as served:
        client = served.connect(tls=True)
        client.sendall(request("/wide", close=False))
        client.recv(1000)
        client.close()
        assert served.ended() in (CloseReason.RST, CloseReason.FIN)
    assert caplog.text == ""
