"""What a round of probes does, and makes of it, is as in `probe_courses.txt`.

On a virtual clock, without a network: a wire that does what the peers' parts say, a socket that
loses what is too large, and visitors of a listener. Of each what was done (@ and when) and what
came of it. No number is another one. See `make reference`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from rendezvous.wire.verify import PairProbe, ProbePeer, ProbePlan
from tests.support.courses import lines_in, text_of
from tests.support.virtual_time import run_virtually
from tests.worker.told import Told
from worker.probe import listener, mesh, path_mtu, peer_connection
from worker.probe.listener import ProbeListener
from worker.probe.mesh import Pace, probe_peers
from worker.probe.names import with_names
from worker.probe.packets import (
    BULK_BYTES,
    HELLO_BYTES,
    RECEIPT,
    REPLY_BYTES,
    Identity,
    Packets,
)
from worker.probe.path_mtu import PathMtu
from worker.probe.peer_connection import IcmpError, PeerConnection
from worker.probe.plan import unfit_peers
from worker.probe.ports import ports_to_try
from worker.probe.waiting import Alarm, Waits

KNOWN = Path(__file__).with_name("probe_courses.txt")
KEY = b"k" * 32
OWN = 5


def identity(slot: int = OWN, run: str = "llama") -> Identity:
    """A node of the run."""
    return Identity(KEY, run, "k7f2a9c1xy", slot)


def peer(slot: int, address: str = "", mtu: int = 9_000) -> ProbePeer:
    """A node of the plan."""
    return ProbePeer(
        slot=slot,
        hostname=f"gpu-{slot}",
        address=address or f"10.4.0.{10 + slot}",
        interface=f"eth{slot}",
        probe_port=7_000 + slot,
        mtu=mtu,
    )


class Round(Told):
    """What happens when."""

    def at(self, what: str) -> None:
        """It happens now."""
        self.lines.append(f"@ {asyncio.get_running_loop().time():.3f} {what}")


def drive(work: Awaitable[object]) -> None:
    """Do it on a virtual clock."""

    async def whole() -> None:
        await work

    run_virtually(whole())


# --- visits ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """What one visit to a peer is like; seconds, or what is raised."""

    connect: float | OSError | None = 0.25
    reply: float | OSError | None = 0.125
    slot: int | None = None
    run: str = "llama"
    ahead: float = 0.0
    bulk: bytes | OSError = RECEIPT + b"B" * BULK_BYTES
    """What comes back; the rest of it never does."""
    icmp: IcmpError | None = None
    rtt: float | None = None


class Wire:
    """In place of a connection."""

    told: Round
    parts: dict[str, list[Part]]

    def __init__(self, address: str, source: str, waits: object) -> None:
        self.told.at(f"to {address} from {source or 'anywhere'}")
        parts = self.parts[address]
        self.part = parts.pop(0) if len(parts) > 1 else parts[0]
        self.address, self.icmp, self.said, self.waiting = address, self.part.icmp, b"", 0

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.told.at(f"away from {self.address}")

    async def connect(self, address: str, port: int, ends: float) -> None:
        """See `PeerConnection`."""
        self.told.at(f"connects to {address} port {port} until {ends:.3f}")
        await _after(self.part.connect, ends)

    def send(self, data: bytes) -> None:
        """See `PeerConnection`."""
        self.said = data

    async def receive(self, size: int, ends: float) -> bytes:
        """See `PeerConnection`."""
        self.told.at(f"receives {size} of {self.address} until {ends:.3f}")
        if size != REPLY_BYTES:
            bulk = self.part.bulk
            if isinstance(bulk, OSError):
                raise bulk
            self.waiting = len(bulk)
            await _after(0.0 if len(bulk) >= size else None, ends)
            return bulk
        await _after(self.part.reply, ends)
        number = int(self.address.rpartition(".")[2].rpartition(":")[2]) - 10
        own = number if self.part.slot is None else self.part.slot
        packets = Packets(identity(own, self.part.run))
        hello = Packets(identity(own)).read_hello("tcp", self.said)
        assert hello is not None
        clock = asyncio.get_running_loop().time() + 1_000 + self.part.ahead
        return packets.reply("tcp", hello, clock=clock, source="10.4.0.99", size=size)

    def least_rtt(self) -> float | None:
        """See `PeerConnection`."""
        return self.part.rtt


async def _after(seconds: float | OSError | None, ends: float) -> None:
    if isinstance(seconds, OSError):
        await asyncio.sleep(0.0625)
        raise seconds
    loop = asyncio.get_running_loop()
    left = ends - loop.time()
    await asyncio.sleep(left if seconds is None else min(seconds, left))
    if seconds is None or seconds > left:
        raise TimeoutError


def os_error(number: int) -> OSError:
    """As the kernel says it."""
    return OSError(number, f"errno {number}")


PARTS: dict[int, list[Part]] = {
    1: [Part(rtt=0.0015)],
    2: [Part(connect=None)],
    3: [Part(reply=None), Part(rtt=0.003)],
    4: [Part(slot=11)],
    6: [Part(slot=OWN)],
    7: [Part(run="other")],
    8: [Part(ahead=7.5)],
    9: [Part(ahead=-0.03)],
    10: [Part(bulk=b"")],
    11: [Part(bulk=RECEIPT)],
    12: [Part(bulk=RECEIPT + b"B" * 900)],
    13: [Part(bulk=RECEIPT + b"x" * BULK_BYTES)],
    14: [Part(bulk=ConnectionResetError(errno.ECONNRESET, "reset"))],
    15: [Part(connect=os_error(errno.ECONNREFUSED))],
    16: [Part(connect=os_error(errno.EHOSTUNREACH), icmp=IcmpError(3, 13, "10.4.0.1"))],
    17: [Part(connect=os_error(errno.EHOSTUNREACH), icmp=IcmpError(3, 1, "10.4.0.1"))],
    18: [Part(connect=os_error(errno.EHOSTUNREACH), icmp=IcmpError(3, 1, "10.4.0.15"))],
    19: [Part(reply=os_error(errno.ECONNRESET))],
    20: [Part(connect=os_error(errno.ENETUNREACH))],
    21: [Part(connect=os_error(errno.EMFILE)), Part()],
    22: [Part(connect=os_error(errno.EHOSTUNREACH)), Part(connect=None)],
    23: [Part(connect=os_error(errno.ECONNREFUSED), icmp=IcmpError(3, 3, "10.4.0.33"))],
    24: [Part(connect=os_error(errno.ECONNREFUSED))],
}


class Path_:
    """In place of `PathMtu`."""

    told: Round

    def __init__(self, packets: Packets, family: int, source: str, seconds: float) -> None:
        self.told.at(f"packets of {packets.slot} by IPv{family} from {source!r}, {seconds} s")
        if source.endswith(".77"):
            raise os_error(errno.EADDRNOTAVAIL)

    def __enter__(self) -> Path_:
        return self

    def __exit__(self, *_: object) -> None:
        self.told.at("no packets any more")

    async def ask(self, slot: int, address: str, port: int, mtu: int) -> int:
        """See `PathMtu`."""
        self.told.at(f"packets to {slot} at {address} port {port} of {mtu}")
        await asyncio.sleep(0.5)
        return mtu - slot


class NoWaits:
    """In place of `Waits`."""

    error: OSError | None = None

    def __init__(self) -> None:
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        """Nothing."""


def visits(
    told: Round,
    slots: Iterable[int],
    peers: Iterable[ProbePeer],
    pace: Pace,
    *,
    parts: dict[int, list[Part]] = PARTS,
    error: OSError | None = None,
) -> Round:
    """A whole round."""
    plan = ProbePlan(network="10.4.0.0/24", peers=list(peers))
    by_address = {one.address: [*parts.get(one.slot, [Part()])] for one in plan.peers}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Wire, "told", told, raising=False)
        patch.setattr(Wire, "parts", by_address, raising=False)
        patch.setattr(Path_, "told", told, raising=False)
        patch.setattr(NoWaits, "error", error)
        for name, made in (("PeerConnection", Wire), ("PathMtu", Path_), ("Waits", NoWaits)):
            patch.setattr(mesh, name, made)
        patch.setattr(os, "urandom", lambda size: b"B" * size)
        patch.setattr(mesh, "_is_own", lambda address: address in ("10.4.0.15", "10.4.0.34"))

        async def work() -> None:
            loop = asyncio.get_running_loop()
            found = await probe_peers(
                identity(), plan, slots, pace=pace, clock=lambda: 1_000 + loop.time()
            )
            told.at("over")
            told.of("found", *found)
            assert asyncio.all_tasks() == {asyncio.current_task()}

        drive(work())
    return told


ALL = [peer(slot, mtu=1_500 + slot) for slot in (OWN, *PARTS)]
QUICK = Pace(at_first=2, concurrency=5, silence_seconds=1.25, datagram_seconds=0.375)


def what_a_round_finds() -> Round:
    """A node of each kind, two at once, and those that were asked for and are not in the plan."""
    return visits(Round(), (3, 99, *PARTS, OWN), ALL, QUICK)


def rounds_that_do_not_come_to_their_end() -> Round:
    """Too slow; without files; without the own address; of another family."""
    told = Round()
    silent = {slot: [Part(connect=None)] for slot in (6, 7, 8)}
    pace = replace(QUICK, at_first=1, round_seconds=3.5, quick_seconds=0.75)
    visits(told.of("slow"), (8, 7, 6, 1), ALL, pace, parts=silent)  # type: ignore[arg-type]
    told.of("no file")
    visits(told, (1, 7), ALL, QUICK, error=os_error(errno.EMFILE))
    there = [peer(OWN, "10.4.0.77"), peer(1), peer(8)]
    told.of("an address that is not of this host")
    visits(told, (8, 1), there, QUICK)
    told.of("not in the plan, and IPv6")
    return visits(told, (1, 8), [peer(1, "fd00::11"), peer(8)], QUICK)


# --- packets --------------------------------------------------------------------------------------


class Network:
    """In place of the sockets of `PathMtu`: loses what is too large, and what is to be lost."""

    def __init__(self, told: Round) -> None:
        self.told = told
        self.path: PathMtu | None = None
        self.largest: dict[str, int] = {}
        self.lost: dict[str, int] = {}
        """So many of the first ones are lost by chance."""
        self.refused = 70_000
        self.sizes: list[int] = []
        self.came: list[bytes] = []

    def __call__(self, family: int, source: str = "") -> Any:
        self.told.lines.append(f"socket of IPv{family} from {source!r}")
        return self

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        self.told.at("socket closed")

    def connect(self, place: tuple[str, int]) -> None:
        """Of one that asks the kernel."""
        self.told.at(f"what is known of {place}?")

    def getsockopt(self, level: int, option: int) -> int:
        """What is known."""
        self.told.at(f"option {level} {option}")
        return 1_337

    def sendto(self, data: bytes, place: tuple[str, int]) -> None:
        """Send, and have it answered."""
        address, port = place
        self.told.at(f"{len(data)} bytes to {address} port {port}")
        if len(data) > self.refused:
            raise OSError(errno.EMSGSIZE, "Message too long")
        if self.lost.get(address, 0):
            self.lost[address] -= 1
        elif len(data) <= self.largest.get(address, 0):
            other = Packets(identity(int(address.rpartition(".")[2].rpartition(":")[2]) - 10))
            hello = other.read_hello("udp", data)
            assert hello is not None
            made = other.reply("udp", hello, clock=3.0, source="10.4.0.15", size=len(data))
            asyncio.get_running_loop().call_later(0.03125, self._deliver, made)

    def recv(self, size: int) -> bytes:
        """What has come."""
        assert size == REPLY_BYTES + 1
        if not self.came:
            raise BlockingIOError
        return self.came.pop(0)

    def _deliver(self, data: bytes) -> None:
        self.came += [b"junk", data]
        assert self.path is not None
        self.path._receive()


def how_large_packets_are_found() -> Round:
    """Ways of several sizes, packets lost by chance, kernels that refuse, and mute peers."""
    told = Round()

    async def asks(net: Network, *asked: tuple[int, str, int], at_once: bool = False) -> None:
        assert net.path is not None
        calls = [net.path.ask(slot, address, 7_000 + slot, mtu) for slot, address, mtu in asked]
        found = [await call for call in calls] if not at_once else await asyncio.gather(*calls)
        told.at("over")
        told.of("found", found)
        assert not net.path._waiting

    def network(patch: pytest.MonkeyPatch, family: int = 4, source: str = "10.4.0.15") -> Network:
        net = Network(told)
        patch.setattr(path_mtu, "_socket", net)
        net.path = PathMtu(Packets(identity()), family, source, 0.25)
        return net

    async def work(patch: pytest.MonkeyPatch) -> None:
        net = network(patch)
        net.largest = {"10.4.0.11": 1_472, "10.4.0.12": 1_372, "10.4.0.13": 1_309, "10.4.0.14": 9}
        net.lost = {"10.4.0.13": 1}
        told.of("one after the other")
        await asks(net, (1, "10.4.0.11", 1_500), (2, "10.4.0.12", 1_500), (1, "10.4.0.11", 9_000))
        await asks(net, (3, "10.4.0.13", 1_337), (4, "10.4.0.14", 1_500))
        await asks(net, (1, "10.4.0.11", 65_536), (1, "10.4.0.11", 27 + HELLO_BYTES))
        await asks(net, (1, "10.4.0.11", 28 + HELLO_BYTES))
        net.refused = 1_000
        told.of("refused by the kernel")
        await asks(net, (1, "10.4.0.11", 1_500))
        net.largest = {}
        told.of("mute ones, after others were heard")
        await asks(net, *((n, f"10.4.0.{10 + n}", 600) for n in (1, 2, 3, 4, 6)), at_once=True)
        told.of("mute from the first on")
        net = network(patch, 6, "fd00::15")
        net.refused = 0
        await asks(net, *((n, f"fd00::{10 + n}", 600 + n) for n in (1, 2, 3)))
        net.largest = {"fd00::16": 400}
        await asks(
            net, (4, "fd00::14", 604), (6, "fd00::16", 606), (7, "fd00::17", 607), at_once=True
        )
        await asks(net, (6, "fd00::16", 606))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "urandom", _counted())
        drive(work(patch))
    return told


def _counted() -> Callable[[int], bytes]:
    made = 0

    def urandom(size: int) -> bytes:
        nonlocal made
        made += 1
        return made.to_bytes(size, "big")

    return urandom


# --- who listens ----------------------------------------------------------------------------------


class Socket:
    """A visitor's, or the listener's own, of whom `comes` says what is read next."""

    numbers = 50

    def __init__(self, told: Round, name: str, *comes: Any) -> None:
        Socket.numbers += 1
        self.told, self.name, self.comes, self.number = told, name, [*comes], Socket.numbers
        self.room = 1 << 20
        self.taken = 0

    def fileno(self) -> int:
        """Its number."""
        return self.number

    def getsockname(self) -> tuple[str, int]:
        """Its own address."""
        return "::", 7_005

    def setblocking(self, blocks: bool) -> None:
        """Told."""
        self.told.at(f"{self.name} blocks {blocks}")

    def close(self) -> None:
        """Told."""
        self.told.at(f"{self.name} is closed")

    def listen(self, backlog: int) -> None:
        """Told."""
        self.told.lines.append(f"{self.name} listens, {backlog}")

    def __enter__(self) -> Socket:
        return self

    def __exit__(self, *_: object) -> None:
        self.told.lines.append(f"{self.name} is left")

    def _next(self) -> Any:
        if not self.comes:
            raise BlockingIOError
        if isinstance(self.comes[0], Exception):
            raise self.comes.pop(0)
        return self.comes.pop(0)

    def recv(self, size: int) -> bytes:
        """What has come, no more than that."""
        data: bytes = self._next()
        if len(data) > size:
            self.comes.insert(0, data[size:])
        return data[:size]

    def accept(self) -> tuple[Socket, tuple[str, int]]:
        """The next visitor."""
        sock: Socket = self._next()
        return sock, (f"10.4.0.{sock.number}", 9)

    def recvfrom_into(
        self, buffer: bytearray, size: int, flags: int
    ) -> tuple[int, tuple[str, int]]:
        """The next datagram."""
        data, peer = self._next()
        kept = data[: len(buffer)]
        buffer[: len(kept)] = kept
        return len(data), peer

    def send(self, data: bytes) -> int:
        """Told."""
        self.told.at(f"{self.name} is sent {_named(data)}")
        sent = min(len(data), self.room - self.taken)
        self.taken += sent
        return sent

    def sendto(self, data: bytes, peer: tuple[str, int]) -> None:
        """Told."""
        self.told.at(f"{peer} is sent {_named(data, 'udp')}")
        if peer[1] == 666:
            raise os_error(errno.EPERM)


def _named(data: bytes, kind: Any = "tcp") -> str:
    reply = Packets(identity()).read_reply(kind, data)
    if reply is None:
        return repr(data) if len(data) < 20 else f"{len(data)} bytes {data[:3]!r}"
    return f"{reply.slot} {reply.clock} {reply.source} {reply.size} {reply.nonce[-1]}"


class Readers:
    """In place of the epoll."""

    told: Round
    calls: dict[int, Callable[[], None]]

    def __init__(self) -> None:
        Readers.calls = {}

    def add(self, file: int, call: Callable[[], None]) -> None:
        """Told."""
        assert file not in self.calls
        self.calls[file] = call

    def remove(self, file: int) -> None:
        """Told."""
        self.calls.pop(file, None)

    def close(self) -> None:
        """Told."""
        self.told.at(f"{len(self.calls)} are read no more")
        self.calls.clear()


def hello(slot: int, nonce: int, kind: Any = "tcp", run: str = "llama") -> bytes:
    """What slot 8 says."""
    return Packets(identity(8, run)).hello(kind, slot, nonce.to_bytes(16, "big"))


def who_is_answered() -> Round:
    """Visitors and datagrams of all kinds, at several times; the oldest of too many goes."""
    told = Round()
    bulk = b"b" * BULK_BYTES
    Socket.numbers = 50

    async def work(patch: pytest.MonkeyPatch) -> None:
        stream, datagrams = Socket(told, "stream"), Socket(told, "datagrams")
        patch.setattr(listener, "_bind", lambda ports, avoid, *, loopback: (stream, datagrams))
        patch.setattr(listener, "Readers", Readers)
        patch.setattr(Readers, "told", told, raising=False)
        patch.setattr(listener, "_MOST_UNPROVEN", 3)
        patch.setattr(listener, "_MOST_NONCES", 3)
        loop = asyncio.get_running_loop()

        def reads(*which: Socket) -> None:
            for one in which:
                call = Readers.calls.get(one.number)
                told.at(f"{one.name} {'is not read' if call is None else 'is read'}")
                if call is not None:
                    call()

        with ProbeListener(identity(), clock=lambda: 900 + loop.time()) as found:
            told.of("port", found.port)
            good = Socket(
                told, "good", hello(OWN, 1)[:10], hello(OWN, 1)[10:] + bulk[:100], bulk[100:]
            )
            replayed = Socket(told, "replayed", hello(OWN, 1))
            stream.comes = [good, replayed, os_error(errno.EMFILE), Socket(told, "late", b"")]
            reads(stream)
            reads(good, replayed, good, good, good, stream)
            await asyncio.sleep(0.25)
            late = stream.comes[0]
            reads(stream, late)
            other = Socket(told, "other", hello(7, 2) + b"x")
            false = Socket(told, "false", hello(OWN, 3, run="other"))
            more = Socket(told, "more", hello(OWN, 4) + bulk, b"y", b"z")
            broken = Socket(told, "broken", os_error(errno.ECONNRESET))
            stream.comes = [other, false, more, broken]
            reads(stream, other, false, more, more, broken)
            full = Socket(told, "full", hello(OWN, 5), bulk)
            full.room = REPLY_BYTES + len(RECEIPT) + 50
            stream.comes = [full]
            reads(stream, full, full)
            await asyncio.sleep(3)
            told.of("nonces", len(found._nonces))
            again = Socket(told, "again", hello(OWN, 1))
            stream.comes = [again]
            reads(stream, again)
            silent = [Socket(told, f"silent {n}") for n in range(5)]
            stream.comes = [*silent]
            reads(stream, silent[4])
            await asyncio.sleep(4)
            last = Socket(told, "last")
            stream.comes = [last]
            reads(stream)
            told.of("visitors", *_who(found))
            datagrams.comes = [
                (hello(OWN, 9, "udp").ljust(1_472, b"\0"), ("10.4.0.8", 5)),
                (b"junk", ("10.4.0.9", 5)),
                (hello(7, 9, "udp"), ("fd00::8", 6)),
                (hello(OWN, 9), ("10.4.0.8", 7)),
                (hello(OWN, 10, "udp"), ("10.4.0.8", 666)),
                (hello(OWN, 11, "udp"), ("10.4.0.8", 8)),
            ]
            reads(datagrams)
            told.of("left", len(datagrams.comes))
            await asyncio.sleep(20)
            told.of("visitors", *_who(found))
            one = Socket(told, "one")
            stream.comes = [one, os_error(errno.EMFILE)]
            reads(stream)
        await asyncio.sleep(20)
        told.of("at the end", len(Readers.calls))

    with pytest.MonkeyPatch.context() as patch:
        drive(work(patch))
    return told


def _who(found: ProbeListener) -> list[str]:
    visitors: Any = found._visitors.values()
    return [visitor.sock.name for visitor in visitors]


def where_it_listens() -> Told:
    """The first port that can be had for both, and that nothing else of the run will need."""
    told = Round()
    plans: list[tuple[str, list[Any]]] = [
        ("the first", [7_001, 7_001]),
        ("the third", [os_error(errno.EADDRINUSE), 7_002, os_error(errno.EACCES), 7_003, 7_003]),
        ("not what is avoided", [7_009, 7_009, 7_004, 7_004]),
        (
            "none",
            [os_error(errno.EADDRINUSE), 7_002, os_error(errno.EACCES), os_error(errno.EMFILE)],
        ),
        ("avoided alone", [7_009, 7_009] * 3),
    ]
    with pytest.MonkeyPatch.context() as patch:
        for what, given in plans:
            told.of(what)

            def bound(kind: Any, port: int, *, loopback: bool, given: list[Any] = given) -> Socket:
                told.lines.append(f"{kind.name} {port} {loopback}")
                next_one = given.pop(0)
                if isinstance(next_one, OSError):
                    raise next_one
                sock = Socket(told, f"{kind.name} {next_one}")
                patch.setattr(sock, "getsockname", lambda: ("::", next_one))
                return sock

            patch.setattr(listener, "_bound", bound)
            try:
                found: Any = listener._bind(
                    (7_001, 7_002, 0), (7_009,), loopback=what == "the first"
                )
                told.of("found", *(one.name for one in found))
            except OSError as exc:
                told.refused(exc)
    for what, how in {
        "any": ((20_000, 20_009), None, (20_003,)),
        "none free": ((20_000, 20_001), None, (20_000, 20_001)),
        "within": ((20_000, 20_009), (7_000, 7_004), (7_002,)),
        "of one": ((20_000, 20_009), (7_000, 7_000), ()),
    }.items():
        told.of(what, [*ports_to_try("k7f2a9c1xy", *how)])
    plan = ProbePlan(
        network="x",
        peers=[
            *(peer(1), peer(2, "127.0.0.7"), peer(3).model_copy(update={"probe_port": 1_023})),
            *(
                peer(4, "10.4.0.40"),
                peer(6, "10.4.0.40"),
                peer(7).model_copy(update={"probe_port": 1_024}),
            ),
        ],
    )
    for loopback in (False, True):
        told.of(f"unfit {loopback}", *unfit_peers(plan, (7, 6, 9, 4, 3, 2, 1), loopback=loopback))
    pairs = [PairProbe(slot=slot, outcome="ok") for slot in (1, 2, 7)]
    known = {"gpu-1": {"10.9.0.1", "x", "10.4.0.2"}, "gpu-2": {"127.0.0.7"}, "gpu-7": {"::1"}}
    told.of("names", *with_names(pairs, plan, 7, known))
    many = {"gpu-1": {f"10.9.0.{n}" for n in range(1, 8)}}
    return told.of("many names", *with_names(pairs, plan, 99, many))


# --- a connection ---------------------------------------------------------------------------------


class Kernel:
    """In place of the socket of a connection, with what each call comes to."""

    def __init__(self, told: Round, **calls: list[Any]) -> None:
        self.told, self.calls = told, calls
        self.family = socket.AF_INET

    def fileno(self) -> int:
        """Its number."""
        return 77

    def _one(self, name: str, *given: object) -> Any:
        shown = [int(one) if isinstance(one, int) else one for one in given]
        self.told.at(f"{name} {shown}")
        left = self.calls.get(name, [])
        found = (left.pop(0) if len(left) > 1 else left[0]) if left else 0
        if isinstance(found, Exception):
            raise found
        return found

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *given: self._one(name, *given)


def how_a_connection_goes() -> Round:
    """Connections that come about at once, later and never; pieces, ends and errors."""
    told = Round()
    icmp = (
        peer_connection._EXTENDED_ERROR.pack(111, 2, 3, 10, 0, 0, 0)
        + b"\2\0\0\0\12\4\0\1"
        + b"\0" * 8
    )
    own = (
        peer_connection._EXTENDED_ERROR.pack(111, 1, 3, 10, 0, 0, 0)
        + b"\2\0\0\0\12\4\0\1"
        + b"\0" * 8
    )
    level = peer_connection._RECVERR[socket.AF_INET]
    info = bytes(148) + (1_500).to_bytes(4, sys.byteorder) + bytes(8)

    async def one(
        what: str,
        steps: Callable[[PeerConnection, Kernel], Awaitable[None]],
        source: str = "",
        **calls: list[Any],
    ) -> None:
        told.of(what)
        kernel = Kernel(told, **calls)
        loop: Any = asyncio.get_running_loop()

        def add_writer(file: int, call: Callable[[], None]) -> None:
            told.at(f"writer {file}")
            loop.call_later(0.25, call)

        loop.add_writer = add_writer
        loop.remove_writer = lambda file: told.at(f"no writer {file}")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(socket, "socket", lambda *_: kernel)
            waits: Any = Waits.__new__(Waits)
            waits.readers, waits.alarm = Readers(), Alarm()
            with PeerConnection("10.4.0.11", source, waits) as wire:
                try:
                    await steps(wire, kernel)
                except OSError as exc:
                    told.at(f"{type(exc).__name__} {exc.errno} icmp {wire.icmp}")
            told.at(f"reads {[*Readers.calls]}")
            waits.alarm.close()
            await asyncio.sleep(1)  # what the steps have begun is over then

    async def connect(wire: PeerConnection, kernel: Kernel) -> None:
        await wire.connect("10.4.0.11", 7_001, asyncio.get_running_loop().time() + 1.5)
        told.at(f"connected, reads {[*Readers.calls]}")

    async def pieces(wire: PeerConnection, kernel: Kernel) -> None:
        await connect(wire, kernel)
        loop = asyncio.get_running_loop()
        for n in range(5):
            loop.call_later(0.1 * n, lambda: [call() for call in [*Readers.calls.values()]])
        for size in (2, 4, 3, 9):
            told.at(f"{await wire.receive(size, loop.time() + 0.7)!r} and {wire.waiting}")

    async def sends(wire: PeerConnection, kernel: Kernel) -> None:
        wire.send(b"abcd")
        for _ in range(3):
            told.at(f"rtt {wire.least_rtt()}")
        wire.send(b"abcd")

    async def silent(wire: PeerConnection, kernel: Kernel) -> None:
        await connect(wire, kernel)
        await wire.receive(3, asyncio.get_running_loop().time() + 0.5)

    async def work() -> None:
        going, not_yet = errno.EINPROGRESS, errno.EALREADY
        await one("at once", connect, connect_ex=[0])
        await one("nearly at once", connect, "10.4.0.15", connect_ex=[going, 0])
        await one("later", connect, connect_ex=[going, not_yet], getsockopt=[0])
        await one(
            "refused",
            connect,
            connect_ex=[going, not_yet],
            getsockopt=[errno.ECONNREFUSED],
            recvmsg=[(b"", [(1, 2, b""), (*level, icmp)], 0, None)],
        )
        await one(
            "refused by nobody",
            connect,
            connect_ex=[errno.ECONNREFUSED],
            recvmsg=[(b"", [(*level, own)], 0, None)],
        )
        await one(
            "no way", connect, connect_ex=[errno.ENETUNREACH], recvmsg=[os_error(errno.EAGAIN)]
        )
        await one("old kernel", connect, "10.4.0.15", setsockopt=[os_error(92), 0, 0, os_error(92)])
        await one("pieces", pieces, recv=[b"abc", b"d", BlockingIOError(), b"efghij", b""])
        await one("broken", pieces, recv=[b"abc", os_error(errno.EPIPE)])
        await one("silent", silent)
        await one("sends", sends, send=[4, 3], getsockopt=[info, b"", info[:148] + b"\xff" * 4])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Readers, "told", told, raising=False)
        drive(work())
    return told


COURSES: dict[str, Callable[[], Told]] = {
    one.__name__: one
    for one in (
        *(what_a_round_finds, rounds_that_do_not_come_to_their_end, how_large_packets_are_found),
        *(who_is_answered, where_it_listens, how_a_connection_goes),
    )
}


@pytest.mark.parametrize("name", COURSES)
def test_what_a_round_comes_to(name: str) -> None:
    assert COURSES[name]().lines == lines_in(KNOWN, name)


if __name__ == "__main__":  # make reference
    sys.exit(KNOWN.write_text(text_of(COURSES)) == 0)
