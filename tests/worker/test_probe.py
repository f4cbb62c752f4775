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

in_real_time = pytest.mark.real_time

LAUNCH = f"launch{os.getpid()}"  # tests that run beside each other prefer other ports
# However busy this machine is: who listens here answers.
PATIENT = Pace(quick_seconds=20.0, round_seconds=60.0, datagram_seconds=20.0)
ONCE = Pace(quick_seconds=0.5, silence_seconds=0.0)
HURRY = Pace(quick_seconds=0.3, again_seconds=0.2, silence_seconds=0.5)
HOLD_SECONDS = 30.0

Talk: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def identity(slot: int, **changes: Any) -> Identity:
    return replace(Identity(b"k" * 32, "llama", LAUNCH, slot), **changes)


def plan(*ports: int, own: Any = (), address: str = "127.0.0.1", mtu: int = 1_500) -> ProbePlan:
    """Slot i is at the i-th of these ports; slot 0 may have values of its own."""
    first, *others = [
        ProbePeer(slot=i, hostname=f"h{i}", address=address, interface="lo", mtu=mtu, probe_port=p)
        for i, p in enumerate(ports)
    ]
    return ProbePlan(network="lo, loopback", peers=[first.model_copy(update=dict(own)), *others])


async def visit(port: int, pace: Pace = PATIENT, **more: Any) -> PairProbe:
    """What slot 0 finds out about slot 1, which is said to be at this port."""
    with ProbeListener(identity(0)) as own:
        (pair,) = await probe_peers(identity(0), plan(own.port, port, **more), [1], pace=pace)
    return pair


def failed(pair: PairProbe) -> tuple[str, str]:
    """Outcome and detail of a pair of which nothing else is known."""
    assert pair == PairProbe(slot=pair.slot, outcome=pair.outcome, detail=pair.detail)
    return pair.outcome, pair.detail


@asynccontextmanager
async def serving(talk: Talk, sock: socket.socket | None = None) -> AsyncIterator[int]:
    """A server of something else, at a socket or anywhere; gives its port."""

    async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(asyncio.IncompleteReadError):
            await talk(reader, writer)

    before = asyncio.all_tasks()
    sock = sock or socket.create_server(("127.0.0.1", 0))
    server = await asyncio.start_server(closing, sock=sock)
    async with server:
        yield server.sockets[0].getsockname()[1]
    left = asyncio.all_tasks() - before
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


def middle(port: int, *, there: int = 1_000_000, back: int = 1_000_000) -> Talk:
    """What stands between two nodes: it passes so many bytes of each way, and swallows the rest."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, room: int) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1_000):
                writer.write(data[:room])
                room -= len(data[:room])

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        returns = asyncio.create_task(carry(inner_reader, writer, back))
        with contextlib.closing(inner_writer):
            await carry(reader, inner_writer, there)
        returns.cancel()

    return talk


# --- who answers ------------------------------------------------------------------------------


@pytest.mark.parametrize(("own", "address"), [("127.0.0.5", "127.0.0.1"), ("::1", "::1")])
async def test_nodes_reach_each_other_and_learn_what_counts(own: str, address: str) -> None:
    """A node is seen under its address of the plan, whichever the kernel would take."""
    with ProbeListener(identity(0)) as first, ProbeListener(identity(1)) as second:
        where = plan(first.port, second.port, own={"address": own}, address=address)
        (there,) = await probe_peers(identity(0), where, [1], pace=PATIENT)
        (back,) = await probe_peers(identity(1), where, [0], pace=PATIENT)
    for pair, slot, source in ((there, 1, own), (back, 0, address)):
        assert (pair.slot, pair.outcome, pair.detail) == (slot, "ok", "")
        assert (pair.source, pair.path_mtu) == (source, 1_500)
        assert pair.rtt_ms is not None
        assert 0 <= pair.rtt_ms < 1_000
        assert pair.skew_seconds is not None
        assert abs(pair.skew_seconds) < 30


async def test_from_an_address_of_the_plan_that_this_node_has_not_there_is_no_way() -> None:
    where = plan(1, 2_000, own={"address": "192.0.2.9"})
    (pair,) = await probe_peers(identity(0), where, [1])
    assert failed(pair) == ("no_route", "Cannot assign requested address")


async def test_results_come_in_the_order_asked_for_and_of_the_plan_s_nodes_alone() -> None:
    with ProbeListener(identity(1)) as one, ProbeListener(identity(2)) as two:
        where = plan(1, one.port, two.port)
        pairs = await probe_peers(identity(0), where, [2, 1, 0, 9], pace=PATIENT)
    assert [(pair.slot, pair.outcome) for pair in pairs] == [(2, "ok"), (1, "ok")]
    assert await probe_peers(identity(0), plan(1), [0]) == []


CLOSES = "it closes the connection without an answer"


@pytest.mark.parametrize(
    ("slot", "run", "outcome", "detail"),
    [
        (0, "llama", "self", "127.0.0.1 is this node itself"),
        (7, "llama", "wrong_node", "slot 7 answers at 127.0.0.1"),
        (1, "mistral", "stranger", CLOSES),
    ],
)
async def test_another_node_is_named(slot: int, run: str, outcome: str, detail: str) -> None:
    with ProbeListener(identity(slot, run=run)) as other:
        (pair,) = await probe_peers(identity(0), plan(1, other.port), [1], pace=PATIENT)
    assert failed(pair) == (outcome, detail)


def stand_in(what: str) -> Talk:
    """What answers at the port of slot 1 in its place."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if what == "a web server":
            await reader.read(1)
            writer.write(b"HTTP/1.1 400 Bad Request\r\n" + b"x" * 1_000)
        elif what not in ("closes", "is silent"):
            await greet(reader, writer)
        if what not in ("closes", "breaks off"):
            await reader.read()

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        packets = Packets(identity(1))
        said = packets.read_hello("tcp", await reader.readexactly(HELLO_BYTES))
        assert said is not None
        clock = time.time()
        await asyncio.sleep(0.1 if what == "takes its time" else 0.0)
        said = said._replace(nonce=bytes(NONCE_BYTES)) if what == "answers another" else said
        writer.write(packets.reply("tcp", said, clock=clock, source="10.0.0.1", size=HELLO_BYTES))
        bulk = await reader.readexactly(BULK_BYTES)
        if what != "breaks off":
            writer.write(RECEIPT + bulk[:-1] + bytes([bulk[-1] ^ (what == "changes a byte")]))

    return talk


@pytest.mark.parametrize(
    ("what", "outcome", "detail", "visits"),
    [
        ("a web server", "stranger", "the answer does not come from a node of this run", 1),
        ("answers another", "stranger", "the answer does not come from a node of this run", 1),
        ("closes", "stranger", CLOSES, 1),
        ("changes a byte", "error", "16 KiB came back changed", 1),
        ("breaks off", "error", "the connection was closed while 16 KiB were sent", 1),
        pytest.param(
            *("is silent", "timeout", "it accepts the connection but does not answer", 2),
            marks=in_real_time,
        ),
    ],
)
async def test_who_answers_like_no_node_is_told_apart_and_only_the_silent_asked_again(
    what: str, outcome: str, detail: str, visits: int
) -> None:
    came = 0

    async def counting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal came
        came += 1
        await stand_in(what)(reader, writer)

    async with serving(counting) as port:
        pair = await visit(port, HURRY if visits > 1 else PATIENT)
    assert failed(pair) == (outcome, detail)
    assert min(came, 2) == visits


async def test_a_peer_that_takes_long_to_answer_is_not_taken_for_one_with_another_clock() -> None:
    async with serving(stand_in("takes its time")) as port:
        pair = await visit(port, mtu=0)
    assert (pair.outcome, pair.skew_seconds) == ("ok", 0.0)


async def test_a_peer_s_clock_is_compared() -> None:
    with ProbeListener(identity(1), clock=lambda: time.time() - 100_000.0) as peer:
        pair = await visit(peer.port)
    assert pair.skew_seconds == pytest.approx(-100_000.0, abs=30)


# --- who does not -----------------------------------------------------------------------------


async def test_a_port_at_which_nobody_listens_refuses() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        pair = await visit(bound.getsockname()[1])
    assert failed(pair) == ("refused", "nothing listens there")


@pytest.mark.parametrize("left", [0, 1, 2])
async def test_a_node_without_files_for_its_visits_says_so(left: int) -> None:
    _, hard = limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ProbeListener(identity(1)) as listener:
        lowest_free = os.dup(0)
        os.close(lowest_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free + left, hard))
        try:
            (pair,) = await probe_peers(identity(0), plan(1, listener.port), [1])
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert failed(pair) == ("error", "Too many open files")


@contextmanager
def full() -> Iterator[socket.socket]:
    """A server whose queue is full: the kernel leaves further connections without an answer."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, ExitStack() as waiting:
        for _ in range(3):
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(server.getsockname())
        yield server


@in_real_time
async def test_a_connection_that_nobody_answers_times_out() -> None:
    with full() as server:
        pair = await visit(server.getsockname()[1], HURRY)
    assert failed(pair) == ("timeout", "no answer")


@in_real_time
async def test_a_round_ends_in_time_and_keeps_what_was_found() -> None:
    pace = Pace(concurrency=1, quick_seconds=60.0, round_seconds=0.5)
    with full() as server, ProbeListener(identity(1)) as good:
        port = server.getsockname()[1]
        async with timeout(HOLD_SECONDS):
            where = plan(1, good.port, port, port)
            found, *pairs = await probe_peers(identity(0), where, [1, 2, 3], pace=pace)
    assert found.outcome == "ok"
    words = "not finished within the 0.5 s of a round"
    assert [failed(pair) for pair in pairs] == [("timeout", words)] * 2


# --- large messages ---------------------------------------------------------------------------

VANISH = "small messages pass, 16 KiB are lost on the way"


@in_real_time
@pytest.mark.parametrize(
    ("rooms", "outcome", "detail"),
    [
        ({"there": HELLO_BYTES}, "black_hole", f"{VANISH} there"),
        ({"back": REPLY_BYTES + 8}, "black_hole", f"{VANISH} back"),
        ({"back": REPLY_BYTES + 3_008}, "ok", ""),  # packets are lost, and large ones pass
    ],
)
async def test_a_way_that_only_small_messages_pass_is_a_black_hole_and_a_slow_one_is_none(
    rooms: dict[str, int], outcome: str, detail: str
) -> None:
    with ProbeListener(identity(1)) as listener:
        async with serving(middle(listener.port, **rooms)) as port:
            pair = await visit(port, ONCE, mtu=0)
    assert (pair.outcome, pair.detail) == (outcome, detail)


@pytest.mark.parametrize(
    ("own", "peer", "found"),
    [
        *((9_000, 1_500, 1_500), (1_500, 9_000, 1_500), (65_520, 65_520, 65_520)),
        (65_536, 65_536, None),  # loopback: no packet is as large
        (0, 1_500, None),  # not known
    ],
)
async def test_the_largest_packet_that_both_interfaces_take_is_tried(
    own: int, peer: int, found: int | None
) -> None:
    with ProbeListener(identity(1)) as listener:
        where = plan(1, listener.port, own={"mtu": own}, mtu=peer)
        (pair,) = await probe_peers(identity(0), where, [1], pace=PATIENT)
    assert (pair.outcome, pair.path_mtu) == ("ok", found)
