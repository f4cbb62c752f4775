"""The listener of a node among strangers: who is answered, who is closed, and when."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
from contextlib import ExitStack

import pytest

from rendezvous.compat import timeout
from tests.worker.test_probe import HOLD_SECONDS, Stream, identity, visit
from worker.probe.listener import ProbeListener
from worker.probe.packets import BULK_BYTES, HELLO_BYTES, NONCE_BYTES, REPLY_BYTES, Packets

LONG_LIFE = 100.0  # of a connection: no test takes as long


async def test_all_nodes_of_a_launch_prefer_one_port() -> None:
    with ProbeListener(identity(0)) as first:
        preferred = first.port
        with ProbeListener(identity(1)) as second:
            assert second.port != preferred
    with ProbeListener(identity(1)) as alone:
        assert alone.port == preferred


async def connect(port: int) -> Stream:
    return await asyncio.open_connection("127.0.0.1", port)


@pytest.mark.parametrize("junk", [b"GET / HTTP/1.1\r\n\r\n" + b"x" * 100, b"\0" * 1_000_000])
async def test_who_says_something_else_is_not_answered(junk: bytes) -> None:
    with ProbeListener(identity(1)) as listener:
        reader, writer = await connect(listener.port)
        with contextlib.suppress(ConnectionError):
            writer.write(junk)
            assert await reader.read() == b""
        writer.close()
        assert (await visit(listener.port)).outcome == "ok"


async def test_a_node_that_sends_more_than_agreed_is_closed() -> None:
    with ProbeListener(identity(1)) as listener:
        reader, writer = await connect(listener.port)
        writer.write(Packets(identity(0)).hello("tcp", 1, bytes(NONCE_BYTES)))
        with contextlib.suppress(ConnectionError):
            writer.write(bytes(10 * BULK_BYTES))
            received = await reader.read()
            assert len(received) < 2 * BULK_BYTES
        writer.close()


def silent(stack: ExitStack, port: int, count: int) -> list[socket.socket]:
    """Connections that say nothing."""
    opened = [stack.enter_context(socket.socket()) for _ in range(count)]
    for one in opened:
        one.setblocking(False)
        one.connect_ex(("127.0.0.1", port))
    return opened


def was_closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


async def test_hundreds_of_silent_connections_keep_nobody_away_and_the_oldest_are_closed() -> None:
    with ProbeListener(identity(1), life_seconds=LONG_LIFE) as listener, ExitStack() as stack:
        opened: list[socket.socket] = []
        for _ in range(4):
            opened += silent(stack, listener.port, 100)
            assert (await visit(listener.port)).outcome == "ok"
        async with timeout(HOLD_SECONDS):
            while not all(map(was_closed, opened[:144])):
                await asyncio.sleep(0.05)
        assert not any(map(was_closed, opened[-200:]))


async def closed(sock: socket.socket) -> bytes:
    """What comes over a connection until the other side closes it."""
    data, loop = b"", asyncio.get_running_loop()
    async with timeout(HOLD_SECONDS):
        with contextlib.suppress(ConnectionError):
            while more := await loop.sock_recv(sock, 10_000):
                data += more
    return data


def talking(stack: ExitStack, port: int, words: bytes) -> socket.socket:
    """A connection that says these words, and no more."""
    sock = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
    sock.sendall(words)
    sock.setblocking(False)
    return sock


async def test_a_hello_that_was_overheard_opens_nothing_again() -> None:
    """Whoever listens on the way could hold connections without end, all of them proven."""
    hello = Packets(identity(0)).hello("tcp", 1, os.urandom(NONCE_BYTES))
    with ProbeListener(identity(1), life_seconds=LONG_LIFE) as listener, ExitStack() as stack:
        true = talking(stack, listener.port, hello)
        loop = asyncio.get_running_loop()
        async with timeout(HOLD_SECONDS):
            assert len(await loop.sock_recv(true, 10_000)) == REPLY_BYTES
        replayed = [talking(stack, listener.port, hello) for _ in range(300)]
        assert [await closed(one) for one in replayed] == [b""] * 300
        assert not was_closed(true)
        assert (await visit(listener.port)).outcome == "ok"


async def test_a_hello_to_another_node_is_answered_and_holds_nothing() -> None:
    hello = Packets(identity(0)).hello("tcp", 7, os.urandom(NONCE_BYTES))
    with ProbeListener(identity(1)) as listener, ExitStack() as stack:
        reply = Packets(identity(0)).read_reply(
            "tcp", await closed(talking(stack, listener.port, hello))
        )
    assert reply is not None
    assert reply.slot == 1


@pytest.mark.real_time
async def test_connections_end_in_time_also_when_nobody_else_comes() -> None:
    hello = Packets(identity(0)).hello("tcp", 1, os.urandom(NONCE_BYTES))
    with ProbeListener(identity(1), life_seconds=0.3) as listener, ExitStack() as stack:
        proven = talking(stack, listener.port, hello)
        assert len(await closed(proven)) == REPLY_BYTES
        for _ in range(2):  # the timer runs again for those who come later
            (mute,) = silent(stack, listener.port, 1)
            assert await closed(mute) == b""


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
    with (
        ProbeListener(identity(1)) as listener,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock,
    ):
        sock.setblocking(False)
        sock.connect(("127.0.0.1", listener.port))
        packets = Packets(identity(0))
        for data in (b"", b"x", b"x" * 9_000, packets.hello("tcp", 1, bytes(NONCE_BYTES))):
            sock.send(data)
        sock.send(packets.hello("udp", 1, b"n" * NONCE_BYTES))
        loop = asyncio.get_running_loop()
        async with timeout(HOLD_SECONDS):
            first = packets.read_reply("udp", await loop.sock_recv(sock, 10_000))
        assert first is not None
        assert (first.nonce, first.size) == (b"n" * NONCE_BYTES, HELLO_BYTES)
        with pytest.raises(BlockingIOError):
            sock.recv(10_000)


async def test_a_listener_that_was_closed_answers_nobody_and_leaves_its_port_free() -> None:
    with ProbeListener(identity(1)) as first:
        reader, writer = await connect(first.port)
        assert (await visit(first.port)).outcome == "ok"
    assert await reader.read() == b""
    writer.close()
    with ProbeListener(identity(1)) as second:
        assert second.port == first.port
