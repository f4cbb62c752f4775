"""Whether this node reaches its peers, and what stands in the way where it does not.

Each peer of the plan is asked to prove who it is, over TCP, at the address that the plan names: a
connection that succeeds proves nothing by itself (every host may have the same docker0, and
connecting there reaches oneself). Then 16 KiB go there and back, as small messages pass where large
ones vanish. Round-trip time, clocks and the path MTU come from the same visit. All of it leaves by
the address at which the peers are to reach this node, and by no other of this host.

A round ends within `Pace.round_seconds`, whatever the network does.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from rendezvous.compat import TaskGroup, timeout
from rendezvous.tasks import cancel_all
from rendezvous.wire.verify import Outcome, PairProbe, ProbePeer, ProbePlan
from rendezvous.wire.words import printable
from worker.probe.packets import (
    BULK_BYTES,
    NONCE_BYTES,
    RECEIPT,
    REPLY_BYTES,
    Identity,
    Packets,
)
from worker.probe.path_mtu import PathMtu, family_of
from worker.probe.peer_connection import IcmpError, PeerConnection
from worker.probe.waiting import Waits

_DETAIL_CHARACTERS = 120

_NO_WAY = (errno.ENETUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL, errno.EINVAL)
_NOBODY = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.EHOSTDOWN)
_PROHIBITED = ((3, 3), (3, 9), (3, 10), (3, 13), (1, 1), (1, 4), (1, 5), (1, 6))
"""Types and codes by which ICMP, and ICMPv6, speak for a firewall: a host without one refuses TCP
by RST, and not as an unreachable port."""
_BROKEN_OFF = (errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED)
_AGAIN: tuple[Outcome, ...] = ("timeout", "black_hole")
_WIDEN_SECONDS = 0.5
_MOST_AGAIN = 256

Silence: TypeAlias = tuple[Outcome, str]
_NO_CONNECTION: Silence = ("timeout", "no answer")
_SILENT: Silence = ("timeout", "it accepts the connection but does not answer")
_VANISHED_THERE: Silence = ("black_hole", "small messages pass, 16 KiB are lost on the way there")
_VANISHED_BACK: Silence = ("black_hole", "small messages pass, 16 KiB are lost on the way back")
_OWN = "it is an address of this node itself"


@dataclass(frozen=True, slots=True)
class Pace:
    """How many peers are visited at once, and how long silence is borne.

    Where all answer, few at once are as fast as many. Many are needed where peers are silent: so
    from `at_first` on their number doubles each half second.

    Attributes:
        at_first: Peers that are visited at once, in the beginning.
        concurrency: The most of them.
        quick_seconds: How long each step of the first visit to a peer may take.
        again_seconds: How long until another visit begins, beside those that go on: on a network
            that loses packets, one of them gets through.
        silence_seconds: For all these visits together.
        round_seconds: For all peers.
        datagram_seconds: How long until a datagram that is not answered counts as lost.
    """

    at_first: int = 8
    concurrency: int = 64
    quick_seconds: float = 1.0
    again_seconds: float = 0.5
    silence_seconds: float = 8.0
    round_seconds: float = 20.0
    datagram_seconds: float = 0.4


async def probe_peers(
    identity: Identity,
    plan: ProbePlan,
    slots: Iterable[int],
    *,
    pace: Pace = Pace(),
    clock: Callable[[], float] = time.time,  # noqa: TID251 (the skew is what is asked)
) -> list[PairProbe]:
    """Visit these peers at the plan's addresses; one result for each, in their order.

    Args:
        identity: Who visits.
        plan: Where the nodes of the run are, this one included.
        slots: Whom to visit; who is not in the plan is left out.
        pace: How fast.
        clock: Seconds since 1970, to be compared with the peers'.
    """
    known = {peer.slot: peer for peer in plan.peers}
    peers = [known[slot] for slot in slots if slot in known and slot != identity.slot]
    found: dict[int, PairProbe] = {}
    with contextlib.ExitStack() as opened:
        packets = Packets(identity)
        own = known.get(identity.slot)
        mtus = {}
        for family in {family_of(peer.address) for peer in peers}:
            with contextlib.suppress(OSError):  # not of this host: visits will say so
                source = _source_of(own, family)
                path = PathMtu(packets, family, source, pace.datagram_seconds)
                mtus[family] = opened.enter_context(path)
        try:
            waits = opened.enter_context(contextlib.closing(Waits()))
        except OSError as exc:  # there is no file left for it, nor would be for a visit
            words = _words_of(exc)
            return [PairProbe(slot=peer.slot, outcome="error", detail=words) for peer in peers]
        visitor = _Visitor(packets, mtus, own, pace, clock, waits)
        # From the next one on: not everybody visits the first ones first.
        peers_in_turn = sorted(peers, key=lambda peer: (peer.slot < identity.slot, peer.slot))
        with contextlib.suppress(TimeoutError):
            async with timeout(pace.round_seconds):
                await visitor.visit_all(peers_in_turn, found)
    words = f"not finished within the {pace.round_seconds:g} s of a round"
    return [
        found.get(peer.slot) or PairProbe(slot=peer.slot, outcome="timeout", detail=words)
        for peer in peers
    ]


def _source_of(own: ProbePeer | None, family: int) -> str:
    """The address to leave by, for peers of a family; empty for the kernel's choice."""
    return own.address if own is not None and family_of(own.address) == family else ""


class _Fault(Exception):
    """Why a visit has failed."""

    def __init__(self, outcome: Outcome, detail: str, icmp: str = "") -> None:
        super().__init__(detail)
        self.outcome = outcome
        self.detail = detail
        self.icmp = icmp


class _Visitor:
    """Visits peers, several at once."""

    def __init__(
        self,
        packets: Packets,
        mtus: dict[int, PathMtu],
        own: ProbePeer | None,
        pace: Pace,
        clock: Callable[[], float],
        waits: Waits,
    ) -> None:
        self._packets = packets
        self._mtus = mtus
        self._own = own
        self._pace = pace
        self._clock = clock
        self._waits = waits
        self._bulk = os.urandom(BULK_BYTES)
        self._echo = RECEIPT + self._bulk
        self._again = 0
        self._loop = asyncio.get_running_loop()

    async def visit_all(self, peers: Iterable[ProbePeer], found: dict[int, PairProbe]) -> None:
        """Visit everybody, and keep what is found."""
        left = iter(peers)
        tasks: set[asyncio.Task[None]] = set()
        more = self._pace.at_first
        async with TaskGroup() as group:
            while more:
                tasks |= {group.create_task(self._visit_these(left, found)) for _ in range(more)}
                _, pending = await asyncio.wait(tasks, timeout=_WIDEN_SECONDS)
                room = self._pace.concurrency - len(tasks)
                more = min(len(tasks), room) if pending else 0

    async def _visit_these(self, peers: Iterator[ProbePeer], found: dict[int, PairProbe]) -> None:
        for peer in peers:
            pair = found[peer.slot] = await self._visit(peer)
            if pair.outcome in _AGAIN:
                pair = found[peer.slot] = await self._visit_again(peer, pair)
            path = self._mtus.get(family_of(peer.address))
            mtu = min(self._own.mtu if self._own else 0, peer.mtu)
            large_vanish = pair.detail == _VANISHED_THERE[1]
            if path is not None and mtu and (pair.outcome == "ok" or large_vanish):
                size = await path.ask(peer.slot, peer.address, peer.probe_port, mtu)
                found[peer.slot] = replace(pair, path_mtu=size)

    async def _visit_again(self, peer: ProbePeer, first: PairProbe) -> PairProbe:
        """Visit a silent peer more often: what is heard first counts, else what was usual."""
        silent = [first]
        heard: asyncio.Future[PairProbe] = self._loop.create_future()
        ends = self._loop.time() + self._pace.silence_seconds

        async def visit() -> None:
            self._again += 1
            try:
                pair = await self._visit(peer, ends)
            finally:
                self._again -= 1
            if pair.outcome in _AGAIN:
                silent.append(pair)
            elif not heard.done():
                heard.set_result(pair)

        visits: list[asyncio.Task[None]] = []
        try:
            while (left := ends - self._loop.time()) > 0 and not heard.done():
                if not visits or self._again < _MOST_AGAIN:
                    visits.append(asyncio.create_task(visit()))
                await asyncio.wait({heard}, timeout=min(left, self._pace.again_seconds))
            if not heard.done() and visits:
                await asyncio.wait(visits)
        finally:
            await cancel_all(visits)
        if heard.done():
            return heard.result()
        usual, _ = Counter(pair.outcome for pair in silent).most_common(1)[0]
        alike = [pair for pair in reversed(silent) if pair.outcome == usual]
        return next((pair for pair in alike if pair.icmp), alike[0])

    async def _visit(self, peer: ProbePeer, ends: float | None = None) -> PairProbe:
        """Visit a peer once, until `ends`; without it, each step has its own limit."""
        wire = None
        try:
            source = _source_of(self._own, family_of(peer.address))
            with PeerConnection(peer.address, source, self._waits) as wire:
                return await self._talk(wire, peer, ends)
        except OSError as exc:
            fault = _fault_of(exc, peer.address, wire.icmp if wire else None)
        except _Fault as exc:
            fault = exc
        return PairProbe(
            slot=peer.slot, outcome=fault.outcome, detail=fault.detail, icmp=fault.icmp
        )

    async def _talk(self, wire: PeerConnection, peer: ProbePeer, ends: float | None) -> PairProbe:
        def step() -> float:
            return ends or self._loop.time() + self._pace.quick_seconds

        silence = _NO_CONNECTION
        try:
            await wire.connect(peer.address, peer.probe_port, step())
            silence = _SILENT
            pair = await self._greet(wire, peer, step())
        except TimeoutError:
            raise _Fault(*silence) from None
        await self._send_bulk(wire, step())
        return pair

    async def _greet(self, wire: PeerConnection, peer: ProbePeer, ends: float) -> PairProbe:
        """Have the peer prove who it is."""
        nonce = os.urandom(NONCE_BYTES)
        sent, began = self._clock(), self._loop.time()
        wire.send(self._packets.hello("tcp", peer.slot, nonce))
        data = await wire.receive(REPLY_BYTES, ends)
        lasted = self._loop.time() - began
        reply = self._packets.read_reply("tcp", data)
        if reply is None or reply.nonce != nonce:
            raise _stranger(peer.address, "the answer does not come from a node of this run")
        if reply.slot == self._packets.slot:
            raise _Fault("self", f"{peer.address} is this node itself")
        if reply.slot != peer.slot:
            raise _Fault("wrong_node", f"slot {reply.slot} answers at {peer.address}")
        rtt = wire.least_rtt()
        return PairProbe(
            slot=peer.slot,
            outcome="ok",
            rtt_ms=round(1000 * (lasted if rtt is None else rtt), 3),
            skew_seconds=_least_skew(reply.clock - sent - lasted / 2, lasted / 2),
            source=reply.source,
        )

    async def _send_bulk(self, wire: PeerConnection, ends: float) -> None:
        """Send 16 KiB and have them back; once a part is back, large packets pass both ways."""
        try:
            wire.send(self._bulk)
            echo = await wire.receive(len(self._echo), ends)
        except ConnectionError:
            raise _Fault("error", "the connection was closed while 16 KiB were sent") from None
        except TimeoutError:
            if wire.waiting > len(RECEIPT):
                return
            there = wire.waiting < len(RECEIPT)
            raise _Fault(*(_VANISHED_THERE if there else _VANISHED_BACK)) from None
        if echo != self._echo:
            raise _Fault("error", "16 KiB came back changed")


def _least_skew(middle: float, doubt: float) -> float:
    """The least by which clocks must differ that were read so much apart, in seconds.

    The peer has read its own at any moment of the exchange, and a busy node takes long for one.
    """
    return round(math.copysign(max(0.0, abs(middle) - doubt), middle), 4)


def _fault_of(exc: OSError, address: str, icmp: IcmpError | None) -> _Fault:
    """What an error of the kernel means, with what ICMP said."""
    words, is_here = _words_of(exc), icmp is not None and _is_own(icmp.offender)
    if icmp is not None and not is_here:
        words = f"{icmp.offender} knows no way to it"
    if icmp is not None and (icmp[:2] in _PROHIBITED or icmp.offender == address):
        return _Fault("refused", f"{icmp.offender} prohibits the connection (ICMP)", "prohibited")
    if exc.errno == errno.ECONNREFUSED:
        own = _is_own(address)
        return _Fault("self", _OWN) if own else _Fault("refused", "nothing listens there")
    if exc.errno in _BROKEN_OFF:
        return _stranger(address, "it closes the connection without an answer")
    if exc.errno in _NO_WAY:
        return _Fault("no_route", words)
    if exc.errno in _NOBODY and is_here:  # this kernel itself, which has looked for the neighbour
        return _Fault("timeout", "no neighbour answers on the way there", "neighbour")
    if exc.errno in _NOBODY:
        return _Fault("timeout", words, "unreachable" if icmp else "")
    return _Fault("error", words)


def _words_of(exc: OSError) -> str:
    return printable(exc.strerror or type(exc).__name__, _DETAIL_CHARACTERS)


def _stranger(address: str, words: str) -> _Fault:
    return _Fault("self", _OWN) if _is_own(address) else _Fault("stranger", words)


def _is_own(address: str) -> bool:
    """Whether an address is one of this host; on loopback all are, which says nothing."""
    if address == "::1" or address.startswith("127."):
        return False
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.bind((address, 0))
    except OSError:
        return False
    return True
