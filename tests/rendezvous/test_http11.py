"""A connection's protocol by itself: what is written, when reading stops, and what is left behind.

On a transport that keeps all of it, and a clock that jumps; `test_guard` and `test_closing` have
real sockets.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from rendezvous.registry.caller import credential_of
from rendezvous.serving.answers import whole_answer
from rendezvous.serving.connection import CloseReason
from rendezvous.serving.connection_rules import ConnectionRules, Timeouts
from rendezvous.serving.http11 import GuardedProtocol
from rendezvous.serving.room import Room
from rendezvous.talk.credentials import node_credential
from tests.attack.fuzz.door import Wire
from tests.support.guarded import body_of, post, request, status_of
from tests.support.virtual_time import run_virtually

MANY = 100_000
"""Bytes: more than are kept of what nobody has asked for."""
START: dict[str, Any] = {"type": "http.response.start", "status": 200, "headers": []}
LENGTH_2 = START | {"headers": [(b"content-length", b"2")]}
END: dict[str, Any] = {"type": "http.response.body", "body": b"ok"}


class Peer(Wire):
    """The other end: it notes whether anybody reads from it, and when it was closed."""

    def __init__(self, sock: socket.socket, **extra: Any) -> None:
        super().__init__(sock, "127.0.0.1")
        self._more = extra
        self.reads = True
        self.closed_at: float | None = None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._more.get(name) or super().get_extra_info(name, default)

    def pause_reading(self) -> None:
        assert self.reads
        self.reads = False

    def resume_reading(self) -> None:
        assert not self.reads
        self.reads = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None

    def close(self) -> None:
        super().close()
        if self.closed_at is None:
            self.closed_at = asyncio.get_running_loop().time()


class Talk:
    """One connection to an application."""

    def __init__(self, app: Any, sock: socket.socket, *, most: int = 10, **more: Any) -> None:
        self.peer = Peer(sock, **more.pop("extra", {}))
        self.state = ServerState()
        self.rules = ConnectionRules(Room(most), timeouts=replace(Timeouts(), **more))
        loop = asyncio.get_running_loop()
        self.protocol = GuardedProtocol(app, self.state, loop, rules=self.rules)
        self.protocol.connection_made(self.peer)

    async def say(self, *pieces: bytes) -> bytes:
        """Send these, one after the other; what was answered by then."""
        for piece in pieces:
            self.protocol.data_received(piece)
            await asyncio.sleep(0.01)
        written, self.peer.written = self.peer.written, b""
        return written


def talked(app: Any, talk: Callable[[Talk], Awaitable[None]], **options: Any) -> None:
    """Talk to an application on a virtual clock; at the end nothing is left of the connection."""

    async def go(sock: socket.socket) -> None:
        made = Talk(app, sock, **options)
        await talk(made)
        made.protocol.connection_lost(None)
        await asyncio.sleep(0.01)
        assert (made.state.tasks, made.state.connections) == (set(), set())

    with socket.socket() as sock:
        run_virtually(go(sock))


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with how long the body was, once it is asked to (`/late`: after 1 s)."""
    if scope["path"] == "/late":
        await asyncio.sleep(1.0)
    message = await receive()
    if message["type"] == "http.disconnect":
        return
    body = b"%d" % len(message["body"])
    length = (b"content-length", b"%d" % len(body))
    await send(START | {"headers": [length]})
    await send(END | {"body": body})


def says(*messages: dict[str, Any]) -> Any:
    """An application that sends these."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for message in messages:
            await send(message)

    return app


def test_a_large_body_is_read_on_once_it_is_asked_for() -> None:
    async def talk(one: Talk) -> None:
        assert await one.say(post(2 * MANY, bytes(MANY), "/late", close=False)) == b""
        assert not one.peer.reads
        await asyncio.sleep(1.0)
        assert one.peer.reads
        assert body_of(await one.say(bytes(MANY))) == b"200000"
        assert body_of(await one.say(post(MANY, close=False), bytes(MANY))) == b"100000"
        assert one.peer.reads

    talked(echo, talk)


def test_the_time_in_which_nobody_asks_for_a_body_is_not_its_senders() -> None:
    async def talk(one: Talk) -> None:
        assert await one.say(post(2 * MANY, bytes(MANY), "/late", close=False)) == b""
        await asyncio.sleep(1.2)
        assert (one.peer.reads, await one.say()) == (True, b"")
        await asyncio.sleep(0.5)
        assert status_of(await one.say()) == 408

    talked(echo, talk, body=0.5)


def test_what_is_sent_ahead_waits_with_the_peer() -> None:
    async def talk(one: Talk) -> None:
        await one.say(request("/late", close=False))
        assert one.peer.reads
        await one.say(request("/", close=False) * 3 + request("/late", close=False))
        assert not one.peer.reads
        await asyncio.sleep(1.0)
        assert (await one.say()).count(b"HTTP/1.1 200") == 4
        assert one.peer.reads  # nothing is ahead any more, though the last is not answered
        await asyncio.sleep(1.0)
        assert (await one.say()).count(b"HTTP/1.1 200") == 1

    talked(echo, talk)


def test_who_asks_faster_than_is_answered_is_read_as_fast_as_is_answered() -> None:
    """What is ahead is never more than the peer sent at once."""
    asked = 0

    async def talk(one: Talk) -> None:
        nonlocal asked
        many = request("/", close=False) * 100
        for _ in range(20):
            if one.peer.reads:
                asked += 100
                one.protocol.data_received(many)
            one.protocol.pause_writing()
            await asyncio.sleep(0.01)
            assert not one.peer.reads
            one.protocol.resume_writing()
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        assert one.peer.reads
        assert (await one.say()).count(b"HTTP/1.1 200") == asked

    talked(echo, talk)


def test_an_answer_before_the_body_is_none_for_everyone_and_the_body_is_passed_over() -> None:
    found = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        found.append(await scope["state"]["connection"].answer(whole_answer(b"whole")))
        if not found[-1]:
            await says(LENGTH_2, END)(scope, receive, send)

    async def talk(one: Talk) -> None:
        assert body_of(await one.say(post(5, b"ab", close=False))) == b"ok"
        assert body_of(await one.say(b"cde" + request(close=False))) == b"whole"
        assert body_of(await one.say(request(method="HEAD", close=False))) == b""
        assert found == [False, True, False]

    talked(app, talk)


def test_who_waits_for_a_body_that_does_not_come_waits_no_longer() -> None:
    async def talk(one: Talk) -> None:
        assert await one.say(post(5, b"ab", close=False)) == b""
        await asyncio.sleep(3.0)
        assert status_of(await one.say()) == 408
        assert one.peer.closed_at is not None
        assert one.state.tasks == set()

    talked(echo, talk, body=2.0)


def test_who_waits_for_a_slow_reader_waits_no_longer_once_it_has_gone() -> None:
    async def talk(one: Talk) -> None:
        one.protocol.pause_writing()
        assert await one.say(request(close=False)) == b""
        assert len(one.state.tasks) == 1

    talked(echo, talk)


def test_what_is_being_answered_at_the_end_is_answered_and_closed() -> None:
    async def talk(one: Talk) -> None:
        await one.say(request("/late", close=False))
        one.protocol.shutdown()
        assert not one.peer.closed
        await asyncio.sleep(1.0)
        answer = await one.say()
        assert (body_of(answer), one.peer.closed) == (b"0", True)
        assert b"connection: close\r\n" in answer

    talked(echo, talk)


def test_a_connection_that_was_served_for_long_is_closed_once_it_is_idle() -> None:
    async def talk(one: Talk) -> None:
        await one.say(request("/late", close=False))
        await asyncio.sleep(10.0)
        assert one.peer.closed_at == pytest.approx(1.0 + 3.0, abs=0.1)

    talked(echo, talk, header=0.5, idle=3.0)


def test_in_one_of_the_last_seats_nobody_stays() -> None:
    async def talk(one: Talk) -> None:
        assert body_of(await one.say(request("/healthz", close=False))) == b"0"
        await asyncio.sleep(10.0)
        assert one.peer.closed_at == pytest.approx(2.0, abs=0.1)

    talked(echo, talk, most=0)


def test_a_peer_that_was_told_no_word_and_has_its_answer_is_let_go() -> None:
    head = request("/", "Content-Length: 5", "Expect: 100-continue", method="POST", close=False)

    async def talk(one: Talk) -> None:
        answer = await one.say(head)
        assert (body_of(answer), one.peer.closed) == (b"ok", True)

    talked(says(LENGTH_2, END), talk)


@pytest.mark.parametrize(("length", "closed"), [(64 * 1024, False), (64 * 1024 + 1, True)])
def test_a_peer_whose_long_body_is_not_wanted_has_its_answer_and_is_let_go(
    length: int, closed: bool
) -> None:
    async def talk(one: Talk) -> None:
        head = request("/", f"Content-Length: {length}", method="POST", close=False)
        answer = await one.say(head + b"begun")
        assert (body_of(answer), one.peer.closed) == (b"ok", closed)

    talked(says(LENGTH_2, END), talk)


def test_nobody_says_a_word_to_an_older_peer() -> None:
    async def talk(one: Talk) -> None:
        head = b"POST / HTTP/1.0\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n"
        assert await one.say(head) == b""
        assert body_of(await one.say(b"a")) == b"1"

    talked(echo, talk)


@pytest.mark.parametrize(
    ("sent", "told"), [((b"",), True), ((b"ab",), False), ((b"abcde",), False)]
)
def test_a_peer_that_waits_for_a_word_gets_it_before_its_body(
    sent: tuple[bytes], told: bool
) -> None:
    head = request("/", "Content-Length: 5", "Expect: 100-continue", method="POST", close=False)

    async def talk(one: Talk) -> None:
        first = await one.say(head + sent[0])
        assert first.startswith(b"HTTP/1.1 100 Continue\r\n\r\n") is told
        rest = b"abcde"[len(sent[0]) :]
        assert (first + await one.say(rest)).endswith(b"\r\n\r\n5")

    talked(echo, talk)


STREAM = says(START, END | {"more_body": True}, END | {"body": b"", "more_body": True}, END)


@pytest.mark.parametrize(
    ("app", "asked", "body", "closed"),
    [
        (STREAM, request(close=False), b"2\r\nok\r\n2\r\nok\r\n0\r\n\r\n", False),
        (STREAM, request(), b"2\r\nok\r\n2\r\nok\r\n0\r\n\r\n", True),
        (STREAM, request(method="HEAD", close=False), b"", False),
        (STREAM, b"GET / HTTP/1.0\r\n\r\n", b"okok", True),
        (says(LENGTH_2, END), b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", b"ok", True),
        (says(START | {"status": 204}, END | {"body": b""}), request(close=False), b"", False),
        (says(LENGTH_2 | {"headers": [*LENGTH_2["headers"], (b"connection", b"close")]}, END),
         request(close=False), b"ok", True),
        # An application that fails in the middle of an answer, or before it.
        (says(LENGTH_2, {"type": "http.response.body", "body": b"o", "more_body": True}),
         request(close=False), b"o", True),
    ],
)  # fmt: skip
def test_how_an_answer_is_framed(app: Any, asked: bytes, body: bytes, closed: bool) -> None:
    async def talk(one: Talk) -> None:
        answer = await one.say(asked)
        assert (body_of(answer), one.peer.closed) == (body, closed)
        says_close = b"\r\nconnection: close\r\n" in answer
        assert says_close is closed or body == b"o"

    talked(app, talk)


def test_nothing_follows_an_answer_that_could_be_taken_for_the_next_one() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(START)
        await send(END | {"more_body": True})
        with pytest.raises(RuntimeError, match="out of turn"):
            await send(START | {"status": 500})
        raise KeyError("in the middle")

    async def talk(one: Talk) -> None:
        answer = await one.say(request(close=False) * 2)
        assert (body_of(answer), one.peer.closed) == (b"2\r\nok\r\n", True)

    talked(app, talk)


def test_a_request_that_was_broken_off_ends_its_connection() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise asyncio.CancelledError

    async def talk(one: Talk) -> None:
        assert await one.say(request(close=False)) == b""
        assert one.peer.closed

    talked(app, talk)


def test_a_reader_that_is_slow_keeps_further_answers_from_being_made() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert await scope["state"]["connection"].answer(whole_answer(b"whole"))

    async def talk(one: Talk) -> None:
        one.protocol.pause_writing()
        assert await one.say(request(close=False) * 3) == b""
        one.protocol.resume_writing()
        await asyncio.sleep(0.1)
        assert (await one.say()).count(b"whole") == 3

    talked(app, talk)


def test_over_tls_the_last_peer_may_go_while_it_is_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(1.0)
        await says(LENGTH_2, END)(scope, receive, send)

    async def talk(one: Talk) -> None:
        await one.say(request(close=False))
        one.protocol.connection_lost(None)
        await asyncio.sleep(2.0)

    talked(app, talk, extra={"sslcontext": object()})
    assert caplog.text == ""


def test_each_request_has_the_credential_that_it_shows() -> None:
    shown = [node_credential(bytes(32), "demo", "launch01", slot, 1).text() for slot in (0, 1)]
    found = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        credential = credential_of(scope)
        found.append(None if credential is None else credential.text())
        await says(LENGTH_2, END)(scope, receive, send)

    async def talk(one: Talk) -> None:
        for text in (shown[0], shown[0], shown[1], "nothing", shown[0]):
            await one.say(request("/", f"Authorization: Bearer {text}", close=False))
        await one.say(request("/", f"Authorization: Basic {shown[0]}", close=False))
        await one.say(request("/", close=False))

    talked(app, talk)
    assert found == [shown[0], shown[0], shown[1], None, shown[0], None, None]


def test_an_application_that_says_nothing_is_a_fault_of_the_registry() -> None:
    async def talk(one: Talk) -> None:
        assert status_of(await one.say(request(close=False))) == 500
        assert one.peer.closed

    talked(says(), talk)


def test_over_tls_a_piece_is_as_large_as_all_connections_allow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pieces: list[int] = []
    monkeypatch.setattr(Peer, "write", lambda peer, data: pieces.append(len(data)))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert await scope["state"]["connection"].answer(bytes(MANY))

    async def talk(one: Talk) -> None:
        for others, piece in ((0, 256), (511, 24), (3_000, 8)):
            pieces.clear()
            crowd = {object() for _ in range(others)}
            one.state.connections |= crowd  # type: ignore[arg-type]
            await one.say(request(close=False))
            assert sum(pieces) == MANY
            assert pieces[0] == min(MANY, piece * 768 + 64)
            assert set(pieces[1:-1]) <= {piece * 1024}
            one.state.connections -= crowd

    talked(app, talk, extra={"sslcontext": object()})


def test_how_it_ended_is_told_once() -> None:
    ended: list[CloseReason] = []

    async def talk(one: Talk) -> None:
        one.protocol.connection.on_close(ended.append)
        await one.say(request())
        one.protocol.data_received(request())  # it is closed: nobody reads it

    talked(echo, talk)
    assert ended == [CloseReason.LOCAL]
