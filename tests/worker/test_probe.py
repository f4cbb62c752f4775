"""Nodes that prove to each other who they are, and all that can stand in the way."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from rendezvous.compat import timeout
from rendezvous.wire.verify import PairProbe, ProbePeer, ProbePlan
from worker.probe.listener import ProbeListener
from worker.probe.mesh import Pace, probe_peers
from worker.probe.packets import (
    BULK_BYTES,
    HELLO_BYTES,
    NONCE_BYTES,
    RECEIPT,
    REPLY_BYTES,
    Identity,
    Packets,
)
from worker.probe.path_mtu import PathMtu

in_real_time = pytest.mark.real_time

LAUNCH = f"launch{os.getpid()}"  # tests that run beside each other prefer other ports
PATIENT = Pace(quick_seconds=20.0, round_seconds=60.0)
ONCE = Pace(quick_seconds=1.0, silence_seconds=0.0)
HURRY = Pace(quick_seconds=0.3, again_seconds=0.2, silence_seconds=0.5)
HOLD_SECONDS = 30.0
LONG_LIFE = 100.0  # of a connection: no test takes as long

Stream: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Talk: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def identity(slot: int, **changes: Any) -> Identity:
    return replace(Identity(b"k" * 32, "llama", LAUNCH, slot), **changes)


def plan(*ports: int, address: str = "127.0.0.1", mtu: int = 1_500) -> ProbePlan:
    """Slot i is at the i-th of these ports."""
    peers = [
        ProbePeer(slot=i, hostname=f"h{i}", address=address, interface="lo", mtu=mtu, probe_port=p)
        for i, p in enumerate(ports)
    ]
    return ProbePlan(network="lo, loopback", peers=peers)


async def visit(port: int, pace: Pace = PATIENT, **more: Any) -> PairProbe:
    """What slot 0 finds out about slot 1, which is said to be at this port."""
    with ProbeListener(identity(0)) as own:
        (pair,) = await probe_peers(identity(0), plan(own.port, port, **more), [1], pace=pace)
    return pair


def failed(pair: PairProbe) -> tuple[str, str]:
    """Outcome and detail of a pair of which nothing else is known."""
    known = PairProbe(slot=pair.slot, outcome=pair.outcome, detail=pair.detail)
    assert pair == known
    return pair.outcome, pair.detail


@asynccontextmanager
async def serving(talk: Talk) -> AsyncIterator[int]:
    """A server of something else; gives its port."""

    async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            await talk(reader, writer)

    before = asyncio.all_tasks()
    server = await asyncio.start_server(closing, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
    left = asyncio.all_tasks() - before
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


class Middle:
    """What stands between two nodes: it passes so many bytes of each way, and swallows the rest."""

    def __init__(self, port: int, *, there: int = 1_000_000, back: int = 1_000_000) -> None:
        self._port = port
        self._there = there
        self._back = back

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._port)
        back = asyncio.create_task(self._pass(inner_reader, writer, self._back))
        with contextlib.closing(inner_writer):
            await self._pass(reader, inner_writer, self._there)
        back.cancel()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, room: int
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1_000):
                writer.write(data[:room])
                room -= len(data[:room])


# --- who answers ------------------------------------------------------------------------------


@in_real_time
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
async def test_nodes_reach_each_other_and_learn_what_is_worth_knowing(address: str) -> None:
    with ProbeListener(identity(0)) as first, ProbeListener(identity(1)) as second:
        where = plan(first.port, second.port, address=address)
        (there,) = await probe_peers(identity(0), where, [1])
        (back,) = await probe_peers(identity(1), where, [0])
    for pair, slot in ((there, 1), (back, 0)):
        assert (pair.slot, pair.outcome, pair.detail) == (slot, "ok", "")
        assert (pair.source, pair.path_mtu) == (address, 1_500)
        assert pair.rtt_ms is not None
        assert 0 <= pair.rtt_ms < 1_000
        assert pair.skew_seconds is not None
        assert abs(pair.skew_seconds) < 30


@in_real_time
async def test_a_node_is_seen_under_its_address_of_the_plan() -> None:
    """Whichever of its addresses the kernel would take."""
    with ProbeListener(identity(1)) as peer:
        (pair,) = await probe_peers(identity(0), own_at("127.0.0.5", peer.port), [1])
    assert (pair.outcome, pair.source, pair.path_mtu) == ("ok", "127.0.0.5", 1_500)
    peer_of_datagrams = Narrow(1_500)
    async with asking(peer_of_datagrams, "127.0.0.5") as (path, port):
        await path.ask(1, "127.0.0.1", port, 1_500)
    assert {address for _, address in peer_of_datagrams.heard} == {"127.0.0.5"}


async def test_from_an_address_of_the_plan_that_this_node_has_not_there_is_no_way() -> None:
    with ProbeListener(identity(1)) as peer:
        (pair,) = await probe_peers(identity(0), own_at("192.0.2.9", peer.port), [1])
    assert failed(pair) == ("no_route", "Cannot assign requested address")


def own_at(address: str, port: int) -> ProbePlan:
    """Slot 0 is said to be at this address, and slot 1 at this port of 127.0.0.1."""
    own, peer = plan(1, port).peers
    return ProbePlan(network="lo", peers=[own.model_copy(update={"address": address}), peer])


async def test_results_come_in_the_order_asked_for_and_of_the_plan_s_nodes_alone() -> None:
    with ProbeListener(identity(1)) as one, ProbeListener(identity(2)) as two:
        where = plan(1, one.port, two.port)
        pairs = await probe_peers(identity(0), where, [2, 1, 0, 9])
    assert [(pair.slot, pair.outcome) for pair in pairs] == [(2, "ok"), (1, "ok")]
    assert await probe_peers(identity(0), plan(1), [0]) == []


async def test_an_address_that_leads_back_is_told_as_oneself() -> None:
    with ProbeListener(identity(0)) as own:
        (pair,) = await probe_peers(identity(0), plan(own.port, own.port), [1])
    assert failed(pair) == ("self", "127.0.0.1 leads back to this node")


async def test_another_node_that_answers_is_named() -> None:
    with ProbeListener(identity(7)) as other:
        assert failed(await visit(other.port)) == ("wrong_node", "slot 7 answers at 127.0.0.1")


@pytest.mark.parametrize(
    "changes", [{"run": "mistral"}, {"launch_id": "launch02"}, {"key": b"x" * 32}]
)
async def test_a_node_of_another_run_is_a_stranger(changes: dict[str, Any]) -> None:
    with ProbeListener(identity(1, **changes)) as other:
        pair = await visit(other.port)
    assert failed(pair) == ("stranger", "it closes the connection without an answer")


async def greeted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, **odd: Any) -> None:
    """Answer a hello as slot 1 does, but for what is odd of the hello, and of the moment."""
    packets, late = Packets(identity(1)), odd.pop("late", 0.0)
    said = packets.read_hello("tcp", await reader.readexactly(HELLO_BYTES))
    assert said is not None
    clock = time.time() + late / 2
    await asyncio.sleep(late)
    said = replace(said, **odd)
    writer.write(packets.reply("tcp", said, clock=clock, source="10.0.0.1", size=HELLO_BYTES))


async def web_server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n" + b"x" * 1_000)
    await reader.read()


async def replies_to_another(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await greeted(reader, writer, nonce=bytes(NONCE_BYTES))
    await reader.read()


async def changes_a_byte(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await greeted(reader, writer)
    bulk = await reader.readexactly(BULK_BYTES)
    writer.write(RECEIPT + bulk[:-1] + bytes([bulk[-1] ^ 1]))
    await reader.read()


async def breaks_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await greeted(reader, writer)
    await reader.readexactly(BULK_BYTES)


async def closes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    pass


async def says_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def takes_its_time(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await greeted(reader, writer, late=0.3)
    writer.write(RECEIPT + await reader.readexactly(BULK_BYTES))
    await reader.read()


@pytest.mark.parametrize(
    ("talk", "outcome", "detail", "visits"),
    [
        (web_server, "stranger", "it answers like no node of this run", 1),
        (replies_to_another, "stranger", "it answers like no node of this run", 1),
        (closes, "stranger", "it closes the connection without an answer", 1),
        (changes_a_byte, "error", "16 KiB came back changed", 1),
        (breaks_off, "error", "the connection was broken off while 16 KiB passed", 1),
        pytest.param(
            *(says_nothing, "timeout", "it takes the connection and is silent", 2),
            marks=in_real_time,
        ),
    ],
)
async def test_who_answers_like_no_node_is_told_apart_and_only_the_silent_asked_again(
    talk: Talk, outcome: str, detail: str, visits: int
) -> None:
    came = 0

    async def counting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal came
        came += 1
        await talk(reader, writer)

    async with serving(counting) as port:
        pair = await visit(port, HURRY if visits > 1 else PATIENT)
    assert failed(pair) == (outcome, detail)
    assert min(came, 2) == visits


async def test_a_peer_that_takes_long_to_answer_is_not_taken_for_one_with_another_clock() -> None:
    async with serving(takes_its_time) as port:
        pair = await visit(port, mtu=0)
    assert (pair.outcome, pair.skew_seconds) == ("ok", 0.0)


# --- who does not -----------------------------------------------------------------------------


async def test_a_port_at_which_nobody_listens_refuses() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        pair = await visit(bound.getsockname()[1])
    assert failed(pair) == ("refused", "nothing listens there")


@contextmanager
def full_port() -> Iterator[int]:
    """A port whose queue is full: the kernel leaves further connections without an answer."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, ExitStack() as waiting:
        for _ in range(3):
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(server.getsockname())
        yield server.getsockname()[1]


@in_real_time
async def test_a_connection_that_nobody_answers_times_out() -> None:
    with full_port() as port:
        pair = await visit(port, HURRY)
    assert failed(pair) == ("timeout", "no answer to a connection")


@in_real_time
async def test_a_peer_that_answers_the_second_time_is_good() -> None:
    came = 0
    with ProbeListener(identity(1)) as listener:

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal came
            came += 1
            await (says_nothing if came == 1 else Middle(listener.port).talk)(reader, writer)

        async with serving(talk) as port:
            pair = await visit(port, Pace(quick_seconds=0.3), mtu=0)
    assert (pair.outcome, pair.detail) == ("ok", "")


@in_real_time
async def test_a_round_ends_in_time_and_keeps_what_was_found() -> None:
    pace = Pace(concurrency=1, quick_seconds=60.0, round_seconds=1.0)
    with full_port() as port, ProbeListener(identity(1)) as good:
        where = plan(1, good.port, port, port)
        async with timeout(HOLD_SECONDS):
            found, *pairs = await probe_peers(identity(0), where, [1, 2, 3], pace=pace)
    assert found.outcome == "ok"
    words = "not settled within the 1 s of a round"
    assert [failed(pair) for pair in pairs] == [("timeout", words)] * 2


@in_real_time
async def test_no_more_peers_are_visited_at_once_than_asked_for() -> None:
    open_now, most = 0, 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        await reader.read()
        open_now -= 1

    pace = replace(HURRY, at_first=2, concurrency=3, silence_seconds=0.0)
    async with serving(talk) as port:
        await probe_peers(identity(0), plan(*[port] * 10), range(10), pace=pace)
    # The server may hear late that one was given up.
    assert 1 <= most <= 2 * pace.concurrency


# --- large messages ---------------------------------------------------------------------------


@in_real_time
@pytest.mark.parametrize(
    ("rooms", "way"),
    [({"there": HELLO_BYTES}, "there"), ({"back": REPLY_BYTES + len(RECEIPT)}, "back")],
)
async def test_a_way_that_only_small_messages_pass_is_a_black_hole(
    rooms: dict[str, int], way: str
) -> None:
    with ProbeListener(identity(1)) as listener:
        async with serving(Middle(listener.port, **rooms).talk) as port:
            pair = await visit(port, ONCE, mtu=0)
    assert failed(pair) == ("black_hole", f"small messages pass, 16 KiB vanish on the way {way}")


@in_real_time
async def test_a_way_that_is_only_slow_is_none() -> None:
    """A network that loses packets takes its time for 16 KiB: large ones pass all the same."""
    with ProbeListener(identity(1)) as listener:
        back = REPLY_BYTES + len(RECEIPT) + 3_000
        async with serving(Middle(listener.port, back=back).talk) as port:
            pair = await visit(port, ONCE, mtu=0)
    assert (pair.outcome, pair.detail) == ("ok", "")


# --- clocks and packet sizes ------------------------------------------------------------------


@pytest.mark.parametrize("ahead", [100_000.0, -100_000.0])
async def test_a_peer_s_clock_is_compared(ahead: float) -> None:
    with ProbeListener(identity(1), clock=lambda: time.time() + ahead) as peer:
        pair = await visit(peer.port)
    assert pair.skew_seconds == pytest.approx(ahead, abs=30)


@in_real_time
@pytest.mark.parametrize(
    ("own", "peer", "found"),
    [
        *((1_500, 1_500, 1_500), (9_000, 1_500, 1_500), (1_500, 9_000, 1_500)),
        *((9_000, 9_000, 9_000), (65_520, 65_520, 65_520)),
        (65_536, 65_536, None),  # loopback: no packet is as large
        (0, 1_500, None),  # not known
    ],
)
async def test_the_largest_packet_that_both_interfaces_take_is_tried(
    own: int, peer: int, found: int | None
) -> None:
    with ProbeListener(identity(1)) as listener:
        where = plan(1, listener.port)
        mtus = zip(where.peers, (own, peer), strict=True)
        peers = [one.model_copy(update={"mtu": mtu}) for one, mtu in mtus]
        where = where.model_copy(update={"peers": peers})
        (pair,) = await probe_peers(identity(0), where, [1])
    assert (pair.outcome, pair.path_mtu) == ("ok", found)


@in_real_time
async def test_a_peer_whose_datagrams_vanish_is_good_and_its_packet_size_unknown() -> None:
    with ProbeListener(identity(1)) as listener:
        async with serving(Middle(listener.port).talk) as port:
            pair = await visit(port)
    assert (pair.outcome, pair.path_mtu) == ("ok", None)


class Narrow(asyncio.DatagramProtocol):
    """A peer behind a way that datagrams over a size do not pass, nor some of the others."""

    def __init__(self, largest: int, lost: int = 0) -> None:
        self._packets = Packets(identity(1))
        self._largest = largest
        self._lost = lost
        self.heard: set[tuple[bytes, str]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.heard.add((data[:HELLO_BYTES], addr[0]))
        said = self._packets.read_hello("udp", data)
        assert said is not None
        if len(data) + 28 > self._largest:
            return
        if self._lost:
            self._lost -= 1
            return
        size = len(data)
        reply = self._packets.reply("udp", said, clock=0.0, source=addr[0], size=size)
        self._transport.sendto(reply, addr)


@asynccontextmanager
async def asking(peer: Narrow, source: str = "") -> AsyncIterator[tuple[PathMtu, int]]:
    """What asks for packet sizes, and the port of a peer."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: peer, ("127.0.0.1", 0))
    port = transport.get_extra_info("sockname")[1]
    with contextlib.closing(transport), PathMtu(Packets(identity(0)), 4, source) as path:
        yield path, port


@in_real_time
async def test_where_no_peer_answers_datagrams_only_the_first_few_are_asked() -> None:
    """As with a firewall that lets TCP alone pass: to wait for each would cost a start seconds."""
    mute = Narrow(0)
    async with asking(mute) as (path, port):
        first = [path.ask(slot, "127.0.0.1", port, 1_500) for slot in range(1, 5)]
        assert await asyncio.gather(*first) == [None] * 4
        assert [await path.ask(s, "127.0.0.1", port, 1_500) for s in range(5, 30)] == [None] * 25
    assert len(mute.heard) == 4


@in_real_time
async def test_mute_peers_among_others_keep_nobody_from_being_measured() -> None:
    async with asking(Narrow(1_500)) as (path, port):
        with socket.socket(type=socket.SOCK_DGRAM) as mute:
            mute.bind(("127.0.0.1", 0))
            assert await path.ask(1, "127.0.0.1", port, 1_500) == 1_500
            deaf = mute.getsockname()[1]
            mutes = [path.ask(slot, "127.0.0.1", deaf, 1_500) for slot in range(2, 10)]
            assert await asyncio.gather(*mutes) == [None] * 8
            assert await path.ask(10, "127.0.0.1", port, 1_500) == 1_500


@in_real_time
@pytest.mark.parametrize(
    ("narrow", "mtu", "found"),
    [
        (Narrow(9_000), 9_000, 9_000),
        (Narrow(1_500), 9_000, 1_500),
        (Narrow(1_499), 1_500, 1_492),
        (Narrow(1_500, lost=1), 1_500, 1_500),
        (Narrow(400), 1_500, None),
    ],
)
async def test_where_a_large_packet_is_lost_the_usual_smaller_ones_are_tried(
    narrow: Narrow, mtu: int, found: int | None
) -> None:
    async with asking(narrow) as (path, port):
        assert await path.ask(1, "127.0.0.1", port, mtu) == found


# --- the listener among strangers -------------------------------------------------------------


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


@in_real_time
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
