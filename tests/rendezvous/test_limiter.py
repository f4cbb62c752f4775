"""Who is slowed down, who has no room, who is woken when; and what is told of it."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from rendezvous.compat import TaskGroup
from rendezvous.registry.waiters import Waiters
from rendezvous.serving.answers import Body, problem_response
from rendezvous.serving.connection import CloseReason, Connection
from rendezvous.serving.limiter import MAX_SOURCES, FailedLogins, Strangers
from rendezvous.serving.room import MAX_REFUSALS, RESERVE, Room, Seat
from rendezvous.serving.trouble import Trouble
from rendezvous.wire.errors import Mismatch, Moved
from tests.support.served import FakeClock
from tests.support.virtual_time import run_virtually

HERE, THERE = "10.0.0.1", "10.0.0.2"


def waits(logins: FailedLogins, source: str, *times: float) -> list[float]:
    """How long a source has to wait that fails at these times."""
    return [logins.failed(source, now) for now in times]


def test_twenty_failures_at_once_are_allowed_then_one_a_second_until_a_pause() -> None:
    logins = FailedLogins()
    assert waits(logins, HERE, *[5.0] * 21) == [0.0] * 20 + [1.0]
    assert waits(logins, HERE, 5.5, 6.0, 6.0) == [0.5, 0.0, 1.0]
    assert waits(logins, HERE, *[27.0] * 21) == [0.0] * 20 + [1.0]


def test_sources_do_not_share_their_allowance_unless_they_are_one_ipv6_network() -> None:
    logins = FailedLogins()
    for number in range(21):
        logins.failed(HERE, 0.0)
        logins.failed(f"2001:db8::{number:x}", 0.0)
    others = (THERE, "2001:db8::ffff", "2001:db8:0:1::1")
    assert [logins.failed(other, 0.0) for other in others] == [0.0, 1.0, 0.0]


def test_the_source_that_failed_longest_ago_is_forgotten_first() -> None:
    logins = FailedLogins()
    for source in ("old", "kept"):
        waits(logins, source, *[0.0] * 20)
    logins.failed("kept", 1.0)
    for number in range(MAX_SOURCES - 1):
        logins.failed(f"10.{number}", 1.0)
    assert (logins.failed("kept", 1.0), logins.failed("old", 1.0)) == (1.0, 0.0)


def test_a_stranger_asks_twice_at_once_then_once_a_second() -> None:
    strangers, state, told = Strangers(), 0.0, []
    for now in (5.0, 5.0, 5.0, 6.5, 6.5, 20.0):
        state, wait = strangers.take(HERE, state, now)
        told.append(wait)
    assert told == [0.0, 0.0, 1.0, 0.5, 1.0, 0.0]


def test_the_connections_of_a_source_share_what_it_may_ask_and_none_waits_long() -> None:
    strangers = Strangers()
    told = [strangers.take(HERE, 0.0, 5.0)[1] for _ in range(12_000)]
    assert told[:10_000] == [0.0] * 10_000
    assert 0 < told[10_100] < 0.3
    assert told[-1] == 1.0
    assert strangers.take(THERE, 0.0, 5.0)[1] == 0.0


def test_who_proves_a_credential_does_not_use_up_what_its_source_may_ask() -> None:
    strangers = Strangers()
    told = [strangers.take(HERE, 0.0, 5.0)[1] for _ in range(10_001)]
    assert (max(told[:-1]), told[-1] > 0) == (0.0, True)
    strangers.give_back(HERE, 5_000)
    assert strangers.take(HERE, 0.0, 5.0)[1] == 0.0


def test_only_so_many_sources_of_strangers_are_remembered() -> None:
    strangers = Strangers()
    for number in range(MAX_SOURCES + 10):
        strangers.take(f"10.{number}", 0.0, 1.0)
    assert len(strangers._sources) == MAX_SOURCES


async def test_a_callback_is_called_once_also_when_it_is_given_each_time_or_after_the_end() -> None:
    calls: list[tuple[object, ...]] = []

    def record(*arguments: object) -> None:
        calls.append(arguments)

    connection = Connection(HERE)
    for _ in range(3):
        connection.on_close(record, "node", 2)
    connection.end(CloseReason.FIN)
    await asyncio.sleep(0)
    assert (calls, connection.closed) == ([("node", 2, CloseReason.FIN)], True)
    connection.on_close(record)
    await asyncio.sleep(0)
    assert calls[1:] == [(CloseReason.FIN,)]


def test_only_a_word_that_differs_or_an_address_is_more_than_every_refusal_says() -> None:
    shape = ["code", "hint", "message", "retryable"]
    plain, other = Mismatch("another --nnodes"), Mismatch("other words", command_word=3)
    assert sorted(json.loads(problem_response(plain, close=False)[2])) == shape
    told = json.loads(problem_response(other, close=False)[2])
    assert (sorted({*told} - {"command_word"}), told["command_word"]) == (shape, 3)
    status, _, body = problem_response(Moved("it is there", address="[::1]:29600"), close=False)
    told = {"code": "moved", "message": "it is there", "hint": "", "retryable": True}
    assert (status, json.loads(body)) == (421, told | {"address": "[::1]:29600"})
    assert json.loads(problem_response(Moved("it is there"), close=False)[2]) == told


def test_waiters_that_were_woken_are_let_go() -> None:
    waiters = Waiters()

    async def woken() -> None:
        waits = [asyncio.create_task(waiters.wait(60.0)) for _ in range(3)]
        await asyncio.sleep(0)
        assert sum(map(len, waiters._late.values())) == 3
        waiters.wake_all()
        await asyncio.gather(*waits)
        assert sum(map(len, waiters._late.values())) == 0

    run_virtually(woken())


def test_waiters_wait_no_shorter_and_hardly_longer_and_share_their_timers() -> None:
    seconds = [0.5, 1.0, 1.001, 1.019, 1.02, 2.0]
    ended: dict[float, float] = {}
    waiters = Waiters()

    async def wait(own: float) -> None:
        await waiters.wait(own)
        ended[own] = asyncio.get_running_loop().time()

    async def all_of_them() -> None:
        began = asyncio.get_running_loop().time()
        await asyncio.gather(*map(wait, seconds))
        ended.update({own: at - began for own, at in ended.items()})

    run_virtually(all_of_them())
    assert all(own <= ended[own] <= own + 0.0201 for own in seconds)
    assert len(set(ended.values())) < len(seconds)
    assert not waiters._late
    assert not waiters._waiting


async def _wait(waiters: Waiters, name: str, woken: list[str]) -> None:
    await waiters.wait(60.0)
    woken.append(name)


def test_who_makes_the_news_and_who_comes_meanwhile_goes_on_before_the_last_who_wait() -> None:
    waiters, woken = Waiters(), list[str]()

    async def news() -> float:
        began = asyncio.get_running_loop().time()
        async with TaskGroup() as group:
            for number in range(1_100):
                group.create_task(_wait(waiters, f"waiter {number}", woken))
            await asyncio.sleep(0)
            waiters.wake_all()
            await asyncio.sleep(0)
            woken.append("caller")
            await asyncio.sleep(0)
            woken.append("request")
        return asyncio.get_running_loop().time() - began

    assert run_virtually(news()) == 0.0  # nobody is left until the time is over
    assert woken[0] == "caller"
    assert woken.index("request") < 200
    assert len(woken) == len(set(woken)) == 1_102


def test_a_whole_answer_says_whether_it_is_compressed() -> None:
    body = Body.of(b'{"a": "' + bytes(20_000).replace(b"\0", b"a") + b'"}')
    assert body.zipped is not None
    plain, zipped = body.answer(zipped=False), body.answer(zipped=True)
    assert plain.endswith(b"\r\n\r\n" + body.plain)
    assert zipped.endswith(b"\r\n\r\n" + body.zipped)
    assert (b"content-encoding" in plain, b"content-encoding: gzip" in zipped) == (False, True)
    assert b"content-length: %d\r\n" % len(body.zipped) in zipped
    assert body.answer(zipped=True) is zipped  # made once for everyone


# --- room for connections, and what fails again and again -----------------------------------------


def room(*, limit: int = 1_024, connections: int = 10_000) -> Room:
    return Room(connections, limit=lambda: limit, clock=FakeClock())


@pytest.mark.parametrize(
    ("left", "seat"),
    [(RESERVE + 1, Seat.FREE), (RESERVE, Seat.LAST), (9, Seat.LAST), (8, Seat.NONE)],
)
def test_the_last_descriptors_are_kept_for_those_who_are_told(left: int, seat: Seat) -> None:
    assert room(limit=1_024).seat(1, 1_024 - left) is seat


@pytest.mark.parametrize(
    ("above", "seat"),
    [(0, Seat.FREE), (1, Seat.LAST), (MAX_REFUSALS, Seat.LAST), (1 + MAX_REFUSALS, Seat.NONE)],
)
def test_connections_above_the_cap_are_told_and_those_far_above_are_dropped(
    above: int, seat: Seat
) -> None:
    assert room(limit=100_000, connections=10).seat(10 + above, 20) is seat


def test_what_is_short_is_told_as_long_as_somebody_is_refused() -> None:
    clock = FakeClock()
    limits = [64]
    tight = Room(10, limit=lambda: limits[0], clock=clock)
    assert tight.words() == ""
    tight.seat(1, 40)
    assert "it may open 64 files" in tight.words()
    assert "ulimit -n" in tight.refusal().message
    clock.seconds += 60
    assert tight.words() == ""
    limits[0] = 4_096  # the limit is read anew
    assert tight.seat(1, 40) is Seat.FREE
    tight.seat(11, 60)
    assert "10 connections, which is its limit" in tight.words()


def test_it_is_logged_once_for_all_who_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    tight = room(limit=64)
    for number in range(20):
        tight.seat(number, 60)
    assert len(caplog.records) == 1


def test_what_fails_again_and_again_has_failed_since_the_first_time_until_it_is_done() -> None:
    trouble = Trouble()
    assert (trouble.words(100.0), trouble.seconds(100.0)) == ("", 0.0)
    for now in (100.0, 105.0, 114.0):
        trouble.failed("full", now)
    assert (trouble.words(120.0), trouble.seconds(120.0)) == ("full", 20.0)
    trouble.over()
    assert (trouble.words(121.0), trouble.seconds(121.0)) == ("", 0.0)
    trouble.failed("full again", 123.0)
    assert (trouble.words(125.0), trouble.seconds(125.0)) == ("full again", 2.0)


def test_what_nobody_tries_any_more_is_no_trouble() -> None:
    trouble = Trouble()
    trouble.failed("full", 100.0)
    assert trouble.words(110.0) == "full"
    assert (trouble.words(110.1), trouble.seconds(110.1)) == ("", 0.0)
    trouble.failed("full", 111.0)
    assert trouble.seconds(112.0) == 1.0
