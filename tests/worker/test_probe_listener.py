"""The listener of a node among strangers: who is answered, who is closed, and when."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
from contextlib import ExitStack
from typing import Any

import pytest

from rendezvous.compat import timeout
from tests.worker.test_probe import HOLD_SECONDS, identity, visit
from worker.machine.kernel import ephemeral_range
from worker.probe.listener import ProbeListener
from worker.probe.packets import BULK_BYTES, HELLO_BYTES, NONCE_BYTES, REPLY_BYTES, Packets

LONG_LIFE = 100.0  # of a connection: no test takes as long


def hello(receiver: int = 1) -> bytes:
    """What slot 0 says, never the same."""
    return Packets(identity(0)).hello("tcp", receiver, os.urandom(NONCE_BYTES))


def silent(stack: ExitStack, port: int, count: int) -> list[socket.socket]:
    """Connections that say nothing."""
    opened = [stack.enter_context(socket.socket()) for _ in range(count)]
    for one in opened:
        one.setblocking(False)
        one.connect_ex(("127.0.0.1", port))
    return opened


async def talking(stack: ExitStack, port: int, words: bytes) -> socket.socket:
    """A connection that says these words, as far as they are taken, and no more."""
    (sock,) = silent(stack, port, 1)
    with contextlib.suppress(ConnectionError):
        async with timeout(HOLD_SECONDS):
            await asyncio.get_running_loop().sock_sendall(sock, words)
    return sock


async def closed(sock: socket.socket) -> bytes:
    """What comes over a connection until the other side closes it."""
    data, loop = b"", asyncio.get_running_loop()
    async with timeout(HOLD_SECONDS):
        with contextlib.suppress(ConnectionError):
            while more := await loop.sock_recv(sock, 10_000):
                data += more
    return data


def was_closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def listener(slot: int, within: tuple[int, int], **changes: Any) -> ProbeListener:
    return ProbeListener(identity(slot, **changes), within=within)


def two_ports() -> tuple[int, int]:
    """Two free ports side by side, of those that the kernel gives to nobody where it keeps any."""
    lowest, highest = 1_024, ephemeral_range()[0] - 1
    steps = max(0, highest - lowest + 1) // 2 or 30_000  # some kernels give out all ports
    for step in range(steps):
        first = lowest + 2 * ((os.getpid() + step) % steps)  # tests beside each other: other ports
        with contextlib.suppress(OSError):  # another program listens there
            within = (first, first + 1)
            with listener(0, within), listener(1, within):
                return within
    raise AssertionError("no two ports side by side are free")


async def test_all_nodes_of_a_launch_prefer_one_port() -> None:
    within = two_ports()
    preferred = set()
    for launch_id in map(str, range(10)):
        with (
            listener(0, within, launch_id=launch_id) as first,
            listener(1, within, launch_id=launch_id) as second,
        ):
            assert {first.port, second.port} == {*within}
        with listener(1, within, launch_id=launch_id) as alone:
            assert alone.port == first.port
        preferred.add(first.port)
    assert preferred == {*within}


async def test_a_closed_listener_closes_its_connections() -> None:
    with ExitStack() as stack:
        with ProbeListener(identity(0)) as closing:
            (mute,) = silent(stack, closing.port, 1)
            assert (await visit(closing.port)).outcome == "self"
        assert await closed(mute) == b""


async def test_a_port_that_the_peers_know_can_be_had_again_and_no_other_instead() -> None:
    port, _ = two_ports()
    with ExitStack() as stack:
        with listener(1, (port, port)) as first:
            await talking(stack, port, hello())
            with pytest.raises(OSError, match="in use"):
                listener(1, (port, port))
        assert first.port == port
        with listener(1, (port, port)) as again:
            assert again.port == port
            assert (await visit(port)).outcome == "ok"


async def test_it_listens_where_programs_do_and_leaves_their_own_ports_alone() -> None:
    low, high = ephemeral_range()
    with ProbeListener(identity(0)) as first:
        preferred = first.port
    assert low <= preferred <= high
    with ProbeListener(identity(0), avoid={preferred}) as beside:
        assert beside.port not in (preferred, 0)
        assert low <= beside.port <= high


async def test_of_a_range_it_takes_one_that_is_free_and_none_outside() -> None:
    only = two_ports()
    with listener(0, only) as first:
        with listener(1, only) as second:
            assert {first.port, second.port} == {*only}
            with pytest.raises(OSError, match="in use"):
                listener(2, only)
        with pytest.raises(OSError, match="in use"):
            ProbeListener(identity(2), within=only, avoid={second.port})


@pytest.mark.parametrize("junk", [b"GET / HTTP/1.1\r\n\r\n" + b"x" * 100, b"\0" * 1_000_000])
async def test_who_says_something_else_is_not_answered(junk: bytes) -> None:
    with ProbeListener(identity(1)) as listener, ExitStack() as stack:
        assert await closed(await talking(stack, listener.port, junk)) == b""
        assert (await visit(listener.port)).outcome == "ok"


async def test_a_node_that_sends_more_than_agreed_is_closed() -> None:
    with ProbeListener(identity(1)) as listener, ExitStack() as stack:
        greedy = await talking(stack, listener.port, hello() + bytes(10 * BULK_BYTES))
        assert len(await closed(greedy)) < 2 * BULK_BYTES


async def test_hundreds_of_silent_connections_keep_nobody_away_and_the_oldest_are_closed() -> None:
    with ProbeListener(identity(1), life_seconds=LONG_LIFE) as listener, ExitStack() as stack:
        opened: list[socket.socket] = []
        for _ in range(4):
            opened += silent(stack, listener.port, 100)
            assert (await visit(listener.port)).outcome == "ok"
        for one in opened[:144]:
            assert await closed(one) == b""
        assert not any(map(was_closed, opened[-200:]))


async def test_a_hello_that_was_overheard_opens_nothing_again() -> None:
    """Whoever listens on the way could hold connections without end, all of them proven."""
    words = hello()
    with ProbeListener(identity(1), life_seconds=LONG_LIFE) as listener, ExitStack() as stack:
        true = await talking(stack, listener.port, words)
        async with timeout(HOLD_SECONDS):
            assert len(await asyncio.get_running_loop().sock_recv(true, 10_000)) == REPLY_BYTES
        replayed = [await talking(stack, listener.port, words) for _ in range(300)]
        assert [await closed(one) for one in replayed] == [b""] * 300
        assert not was_closed(true)
        assert (await visit(listener.port)).outcome == "ok"


async def test_a_hello_to_another_node_is_answered_and_holds_nothing() -> None:
    with ProbeListener(identity(1), life_seconds=LONG_LIFE) as listener, ExitStack() as stack:
        said = await closed(await talking(stack, listener.port, hello(7)))
    reply = Packets(identity(0)).read_reply("tcp", said)
    assert reply is not None
    assert reply.slot == 1


@pytest.mark.real_time
async def test_connections_end_in_time_also_when_nobody_else_comes() -> None:
    with ProbeListener(identity(1), life_seconds=0.3) as listener, ExitStack() as stack:
        assert len(await closed(await talking(stack, listener.port, hello()))) == REPLY_BYTES
        for _ in range(2):  # the timer runs again for those who come later
            (mute,) = silent(stack, listener.port, 1)
            await asyncio.sleep(0.1)
            (later,) = silent(stack, listener.port, 1)
            assert [await closed(one) for one in (mute, later)] == [b"", b""]


async def test_who_came_later_stays_when_the_first_has_been_here_too_long() -> None:
    with ProbeListener(identity(1), life_seconds=LONG_LIFE) as listener, ExitStack() as stack:
        silent(stack, listener.port, 2)
        async with timeout(HOLD_SECONDS):
            while len(listener._visitors) < 2:
                await asyncio.sleep(0.01)
        first, later = listener._visitors.values()
        assert first.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        first.came -= LONG_LIFE
        listener._sweep()
        assert [*listener._visitors.values()] == [later]


async def test_a_listener_without_a_file_for_a_connection_goes_on_once_it_has_one() -> None:
    _, hard = limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ProbeListener(identity(1)) as listener, ExitStack() as stack:
        silent(stack, listener.port, 3)
        lowest_free = os.dup(0)
        os.close(lowest_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
        try:
            await asyncio.sleep(0.05)  # the listener's turn: it cannot accept them
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert (await visit(listener.port)).outcome == "ok"


async def test_a_datagram_that_proves_nothing_is_not_answered() -> None:
    packets, nonce = Packets(identity(0)), b"n" * NONCE_BYTES
    with ProbeListener(identity(1)) as listener, socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.connect(("127.0.0.1", listener.port))
        for data in (b"", b"x", b"x" * 9_000, hello(), packets.hello("udp", 1, nonce)):
            sock.send(data)
        async with timeout(HOLD_SECONDS):
            said = await asyncio.get_running_loop().sock_recv(sock, 10_000)
        first = packets.read_reply("udp", said)
        assert first is not None
        assert (first.nonce, first.size) == (nonce, HELLO_BYTES)
        with pytest.raises(BlockingIOError):
            sock.recv(10_000)


async def test_of_a_connection_that_is_closed_nothing_is_kept() -> None:
    """The next one may have its number."""
    with ProbeListener(identity(1)) as listener:
        before = {*listener._readers._calls}
        for _ in range(2):
            with ExitStack() as stack:
                said = await closed(await talking(stack, listener.port, hello(7)))
                assert len(said) == REPLY_BYTES
            assert {*listener._readers._calls} == before
            assert listener._visitors == {}
