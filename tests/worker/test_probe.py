"""Nodes that prove to each other who they are, and all that can stand in the way."""

from __future__ import annotations

import asyncio
import contextlib
import os
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

in_real_time = pytest.mark.real_time

LAUNCH = f"launch{os.getpid()}"  # tests that run beside each other prefer other ports
PATIENT = Pace(quick_seconds=20.0, round_seconds=60.0)
ONCE = Pace(quick_seconds=0.5, silence_seconds=0.0)
HURRY = Pace(quick_seconds=0.3, again_seconds=0.2, silence_seconds=0.5)
HOLD_SECONDS = 30.0

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
    pace = Pace(concurrency=1, quick_seconds=60.0, round_seconds=0.5)
    with full_port() as port, ProbeListener(identity(1)) as good:
        where = plan(1, good.port, port, port)
        async with timeout(HOLD_SECONDS):
            found, *pairs = await probe_peers(identity(0), where, [1, 2, 3], pace=pace)
    assert found.outcome == "ok"
    words = "not settled within the 0.5 s of a round"
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
