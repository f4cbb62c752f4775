"""The guard, on real uvicorn and real loopback sockets, on uvloop as the registry."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from rendezvous.server.connection import CloseReason
from rendezvous.server.guard import MAX_BODY_BYTES
from rendezvous.server.http11 import MAX_HEADER_BYTES, MAX_HEADERS, Timeouts
from rendezvous.server.room import MAX_REFUSALS
from tests.support.guarded import (
    MEGABYTE,
    PATIENT,
    QUICK,
    Served,
    body_of,
    headers_of,
    post,
    problem_of,
    read_answer,
    read_to_end,
    request,
    say,
    serve,
    status_of,
)

in_time = pytest.mark.real_time

SOON = replace(PATIENT, header=1.5)
"""For a first header, whose time runs before its bytes are there."""
BAD = (400, "bad_request")
LATE = (408, "bad_request")
LARGE = (413, "too_large")
FULL = MAX_BODY_BYTES


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    """A server for requests that are one connection each."""
    with serve() as made:
        yield made


# Time-outs


@in_time
@pytest.mark.parametrize(
    ("timeouts", "pieces", "expected"),
    [
        (QUICK, (), None),
        (SOON, (request()[:-2],), LATE),
        (replace(QUICK, header=60), (post(10), b"12345"), LATE),
        (replace(QUICK, header=60), (post(10, method="HEAD"), b"12345"), LATE),
    ],
    ids=["nothing", "half a header", "half a body", "half a body of HEAD"],
)
def test_what_does_not_come_is_answered_408_or_not_at_all(
    timeouts: Timeouts, pieces: tuple[bytes, ...], expected: tuple[int, str] | None
) -> None:
    with serve(timeouts=timeouts) as served:
        answer = served.ask(*pieces)
    assert (problem_of(answer) if answer else None) == expected


@in_time
def test_a_dripping_header_does_not_extend_its_time() -> None:
    with serve(timeouts=SOON) as served, served.connect() as client:
        started = time.monotonic()
        with contextlib.suppress(ConnectionError):
            for byte in request() * 10:
                client.sendall(bytes([byte]))
                time.sleep(0.05)
                if time.monotonic() - started > 10:
                    break
        assert problem_of(read_to_end(client)) == LATE


@in_time
def test_an_idle_connection_is_kept_and_its_next_header_has_a_deadline() -> None:
    with serve(timeouts=SOON) as served, served.connect() as client:
        assert say(client, request(close=False)) == b"0 bytes"
        assert served.ask() == b""  # one opened later is closed meanwhile
        for path, body in (("/echo", b"0 bytes"), ("/whole", b"whole")):
            assert say(client, request(path, close=False)) == body
        client.sendall(b"GET /e")
        assert problem_of(read_to_end(client)) == LATE


@in_time
@pytest.mark.parametrize("path", ["/echo", "/whole"])
def test_an_idle_connection_is_closed_after_the_keep_alive_time(path: str) -> None:
    with serve(keep_alive=1) as served, served.connect() as client:
        say(client, request(path, close=False))
        assert read_to_end(client) == b""


@in_time
@pytest.mark.parametrize("late", [b"12345", b""], ids=["it comes", "it never comes"])
def test_a_body_after_the_answer_does_not_keep_the_connection_for_ever(late: bytes) -> None:
    early = post(5, path="/early", close=False)
    patience = replace(PATIENT, body=60 if late else 0.3)
    with serve(timeouts=patience) as served, served.connect() as client:
        if late:
            assert say(client, early) == b"early"
            client.sendall(late)
            assert say(client, request(close=False)) == b"0 bytes"
        assert say(client, early) == b"early"
        if late:
            served.hurry()
            client.sendall(late)
        assert read_to_end(client) == b""


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
        ([request("/peer")], b"127.0.0.1"),
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


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_only_known_names_and_no_web_pages_are_answered(shared: Served, method: str) -> None:
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
    assert expected == {
        (path, header): status_of(shared.ask(request(path, header, method=method)))
        for path, header in expected
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


@in_time
def test_an_answer_that_the_app_gives_after_a_408_goes_nowhere(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # A TLS client that does not say goodbye: the connection outlives the 408 by a second.
    patience = replace(PATIENT, body=0.3)
    with serve(tls=True, timeouts=patience) as served, served.connect(tls=True) as client:
        say(client, request("/watch", close=False))
        client.sendall(post(9, path="/late", close=False))
        assert served.ended() == CloseReason.LOCAL
        assert problem_of(read_to_end(client)) == LATE
    assert caplog.text == ""


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
