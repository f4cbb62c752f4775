"""What a probe waits for: who is called when a socket can be read, and when a wait ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from tests.support.virtual_time import run_virtually
from worker.probe.waiting import Alarm, Readers


def ends_at(*waits: tuple[float, float, float | None]) -> list[tuple[bool, float]]:
    """What each wait says, and when: begun at one moment, ending at another, settled at a third."""

    async def wait(alarm: Alarm, begins: float, ends: float, settled: float | None) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(begins)
        awaited = alarm.wait(ends)
        if settled is not None:
            loop.call_at(settled, awaited.set_result, True)
        found.append((await awaited, loop.time()))

    async def work() -> None:
        with closing(Alarm()) as alarm:
            await asyncio.gather(*(wait(alarm, *one) for one in waits))

    found: list[tuple[bool, float]] = []
    run_virtually(work())
    return found


@pytest.mark.parametrize(
    ("waits", "found"),
    [
        ([(0, 5, None)], [(False, 5)]),
        ([(0, 5, 2)], [(True, 2)]),
        ([(0, 5, 2), (3, 9, None)], [(True, 2), (False, 9)]),  # the timer of the first one rings
        ([(0, 9, None), (1, 3, None)], [(False, 3), (False, 9)]),  # an earlier end comes later
        ([(0, 5, None), (0, 5, None), (0, 6, 4)], [(True, 4), (False, 5), (False, 5)]),
        ([(0, 2, None), (7, 9, None), (7, 7, None)], [(False, 2), (False, 7), (False, 9)]),
    ],
)
def test_a_wait_ends_when_it_is_settled_or_at_its_own_end(
    waits: list[tuple[float, float, float | None]], found: list[tuple[bool, float]]
) -> None:
    assert ends_at(*waits) == found


def test_waits_that_are_soon_over_share_a_timer() -> None:
    async def work() -> int:
        loop, timers = asyncio.get_running_loop(), 0
        with closing(Alarm()) as alarm:
            for _ in range(100):
                before = alarm._timer
                awaited = alarm.wait(loop.time() + 1)
                timers += alarm._timer is not before
                loop.call_soon(awaited.set_result, True)
                assert await awaited
        return timers

    assert run_virtually(work()) == 1


@pytest.fixture
def pairs() -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    with ExitStack() as stack:
        made = [socket.socketpair() for _ in range(2)]
        for pair in made:
            for sock in pair:
                sock.setblocking(False)
                stack.enter_context(sock)
        yield made


async def test_a_socket_is_read_until_it_is_removed(
    pairs: list[tuple[socket.socket, socket.socket]],
) -> None:
    (ours, theirs), _ = pairs
    said: asyncio.Queue[bytes] = asyncio.Queue()
    with closing(Readers()) as readers:
        for words in (b"a", b"b"):
            readers.add(ours.fileno(), lambda: said.put_nowait(ours.recv(10)))
            theirs.send(words)
            assert await said.get() == words
            readers.remove(ours.fileno())
        readers.remove(ours.fileno())
        theirs.send(b"c")
        await asyncio.sleep(0.01)
    assert said.empty()


async def test_of_two_that_can_be_read_at_once_the_first_may_remove_the_other(
    pairs: list[tuple[socket.socket, socket.socket]],
) -> None:
    called = []
    with closing(Readers()) as readers:

        def call(own: int, other: int) -> None:
            called.append(own)
            readers.remove(own)
            readers.remove(other)

        one, two = (ours.fileno() for ours, _ in pairs)
        readers.add(one, lambda: call(one, two))
        readers.add(two, lambda: call(two, one))
        for _, theirs in pairs:
            theirs.send(b"x")
        await asyncio.sleep(0.01)
    assert len(called) == 1


async def test_one_that_fails_keeps_no_other_from_being_read(
    pairs: list[tuple[socket.socket, socket.socket]],
) -> None:
    read, wrong = asyncio.Event(), list[str]()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: wrong.append(str(context["exception"])))
    with closing(Readers()) as readers:

        def fail() -> None:
            raise RuntimeError("no way")

        for (ours, theirs), call in zip(pairs, (fail, read.set), strict=True):
            readers.add(ours.fileno(), call)
            theirs.send(b"x")
        await asyncio.wait_for(read.wait(), 10)
    assert set(wrong) == {"no way"}


async def test_what_is_closed_calls_nobody_and_keeps_no_file(
    pairs: list[tuple[socket.socket, socket.socket]],
) -> None:
    (ours, theirs), _ = pairs
    called: list[int] = []
    readers = Readers()
    readers.add(ours.fileno(), lambda: called.append(1))
    theirs.send(b"x")
    readers.close()
    await asyncio.sleep(0.01)
    assert (called, readers._epoll.closed, readers._calls) == ([], True, {})
