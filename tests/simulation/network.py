"""The network between processes and the registry: it loses, doubles, delays, reorders and cuts.

The client that ships runs on it, and its requests reach the registry's own application.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from rendezvous.serving.connection import CloseReason, Connection
from rendezvous.serving.room import Seat
from rendezvous.talk.failures import Fault, NetworkFailure
from rendezvous.talk.join_string import RegistryPlace, with_port
from rendezvous.talk.network import Answer, Line, Request
from tests.simulation.asgi import serve
from tests.simulation.stream import SimulatedStream, too_late

if TYPE_CHECKING:
    from tests.simulation.history import History
    from tests.simulation.registry import Registry
    from tests.support.virtual_time import VirtualLoop

ADDRESSES = ("10.0.0.1", "10.0.1.1")
"""Of the registry's host, on two networks of the site."""
PORT = 29_600
LOOPBACK = ("127.0.0.1", "::1")
BESIDE = -3
"""The place of a launcher's own way to its registry among the paths of a launch."""
OTHER_HOST = 1_000
"""Between the places of two worker runs of a slot, where they have hosts of their own."""
PROOF = b"the registry's certificate"
"""Of the standing one."""
_SYN_SECONDS = 1.0
"""After so long a kernel asks once more for a connection."""
_KEEP_ALIVE_SECONDS = 60.0
"""So long a client keeps a connection that it does not need; the registry's server 75 s."""
_WRITING_SECONDS = 0.5
"""So long a record may be on its way to a slow disk."""


def place_of(addresses: int) -> RegistryPlace:
    """Where nodes look for the registry, at the first so many of its addresses."""
    return RegistryPlace(ADDRESSES[:addresses], PORT, "certificate", PROOF)


class Path:
    """The way between one host and the registry, with what goes wrong on it."""

    def __init__(self, seed: str, peer: str) -> None:
        self.random = random.Random(seed)
        self._aside = random.Random(f"{seed} aside")
        self.peer = peer
        self.lose_up = self.lose_down = self.double = self.late = self.light = 0
        self.late_seconds = self.cut_up_until = self.cut_down_until = self.loss = 0.0
        self.loss_until = 0.0
        self.is_late = False
        self.is_local = False
        """It leads to the same host, and does not fail."""
        self.echoed_at = float("-inf")
        self.address_cut_until: dict[str, float] = {}
        self.open: list[Wire] = []
        self.sent: deque[Request] = deque(maxlen=40)

    @property
    def is_troubled(self) -> bool:
        """Whether more went wrong than a single lost message or broken connection."""
        return self.light > 1

    def delay(self, *, aside: bool = False) -> float:
        seconds = 0.0003 + 0.002 * (self._aside if aside else self.random).random()
        if self.late and not aside:
            self.late -= 1
            seconds += self.late_seconds * self.random.random()
        return seconds

    def is_cut(self, now: float) -> bool:
        return now < self.cut_up_until or now < self.cut_down_until

    def has_lost(self, address: str, now: float) -> bool:
        """Whether nothing passes to and from this address of the registry."""
        cut = self.address_cut_until
        return bool(cut) and now < cut.get(address, 0.0)

    def hides_an_end(self, now: float) -> bool:
        """Whether the registry may not see that a process's connections are closed."""
        return any(now < until for until in self.address_cut_until.values())

    def loses(self, way: str, now: float, *, aside: bool = False) -> bool:
        """Whether the next message of this way, `up` to the registry or `down`, is lost."""
        if now < getattr(self, f"cut_{way}_until"):
            return True
        if aside:
            return now < self.loss_until and self._aside.random() < self.loss
        left = f"lose_{way}"
        if getattr(self, left) > 0:
            setattr(self, left, getattr(self, left) - 1)
            return True
        return now < self.loss_until and self.random.random() < self.loss


@dataclass
class Traffic:
    """When the registry read the newest request of one client, and that a connection was closed."""

    arrived_at: float = float("-inf")
    closed_at: float = float("-inf")
    before_at: float = float("-inf")
    """When it read the one before the newest."""

    def arrived(self, at: float) -> None:
        self.before_at, self.arrived_at = self.arrived_at, at

    def known_at(self, now: float) -> float:
        """When the newest request was read of which a record knows that is written by now: what
        comes while it is written, by a disk that may be slow, is too late for it."""
        return self.arrived_at if self.arrived_at <= now - _WRITING_SECONDS else self.before_at


class Wire:
    """One connection: the registry's end of it, and what waits for an answer at the client's."""

    def __init__(self, path: Path, address: str, registry: Registry, traffic: Traffic) -> None:
        self.path = path
        self.address = address
        self.traffic = traffic
        self.registry = registry
        self.far_end = Connection(path.peer)
        registry.connections.append(self.far_end)  # the registry knows them by their identity
        self.broken = self.forgotten = self.is_a_nodes = self.is_refused = False
        self.idle_since = 0.0
        self.waiting: list[asyncio.Future[Answer]] = []
        path.open.append(self)

    def fail(self) -> None:
        self.broken = True
        if self in self.path.open:
            self.path.open.remove(self)
        for future in self.waiting:
            if not future.done():
                future.set_exception(NetworkFailure(Fault.CLOSED))
        self.waiting.clear()


class Network:
    """All paths, and whether a registry listens."""

    def __init__(self, loop: VirtualLoop, history: History, seed: int) -> None:
        self._loop = loop
        self._history = history
        self._seed = seed
        self._paths: dict[tuple[int, int], Path] = {}
        self.registry: Registry | None = None
        self.isolated_until = 0.0
        self._unread: list[tuple[Any, ...]] = []
        self.counts: Counter[str] = Counter()

    def path(self, launch: int, slot: int) -> Path:
        """The path of a slot's host; slot -1 is the launcher's, -2 a person's, and -3 leads from
        a launcher to a registry beside it."""
        key = (launch, slot)
        if key not in self._paths:
            host, place = divmod(slot, OTHER_HOST) if slot > 0 else (0, slot)
            made = Path(f"{self._seed} {launch} {slot}", f"10.{9 + host}.{launch}.{place + 9}")
            made.is_local = slot == BESIDE
            self._paths[key] = made
        return self._paths[key]

    def door(self, path: Path) -> Door:
        return Door(self._loop, self, path)

    def is_cut(self, path: Path, address: str) -> bool:
        """Whether a new connection to that address would find nothing at all."""
        now = self._loop.time()
        if path.is_local:
            return False
        return now < self.isolated_until or path.is_cut(now) or path.has_lost(address, now)

    def has_no_room(self, path: Path) -> bool:
        """Whether a connection that is opened now gets no more than an answer that says so."""
        return self._history.world.queues.seat(path) is not Seat.FREE

    def _is_lost(self, wire: Wire, way: str, *, aside: bool = False) -> bool:
        now, path = self._loop.time(), wire.path
        if path.is_local:
            return False
        lost = now < self.isolated_until or path.has_lost(wire.address, now)
        if lost := lost or path.loses(way, now, aside=aside):
            self.counts[f"message lost {way}"] += 1
        return lost

    def send(self, wire: Wire, request: Request, waiting: asyncio.Future[Answer]) -> None:
        path, aside = wire.path, _is_aside(request)
        wire.waiting.append(waiting)
        if not aside:
            path.sent.append(request)
        if wire.forgotten or self._is_lost(wire, "up", aside=aside):
            return
        self._later(path.delay(aside=aside), self._arrive, wire, request, waiting)
        if path.double and not aside:
            path.double -= 1
            self.counts["message doubled"] += 1
            self._later(path.delay() + 0.01, self._arrive_again, path, request)

    def stream(self, wire: Wire, request: Request, stream: SimulatedStream) -> None:
        if not (wire.forgotten or self._is_lost(wire, "up")):
            self._later(wire.path.delay(), self._arrive_for_stream, wire, request, stream)

    def _arrive_for_stream(self, wire: Wire, request: Request, stream: SimulatedStream) -> None:
        registry = self.registry
        gone = wire.far_end.closed or registry is not wire.registry or wire.is_refused
        if registry is None or gone:
            wire.fail()
        elif registry.machine.paused:
            self._unread.append((self._arrive_for_stream, wire, request, stream))
        else:
            pass_on = functools.partial(self._pass_on, wire, stream)
            work = serve(registry.app, request, wire.path.peer, wire.far_end, pass_on)
            registry.machine.run(work)

    def _pass_on(
        self, wire: Wire, stream: SimulatedStream, status: int, data: bytes, is_last: bool
    ) -> None:
        if self._is_lost(wire, "down"):
            wire.forgotten = True
        else:
            stream.leaves(status, data, is_last)

    def echo(self, path: Path, back: int) -> None:
        """Send once more what was sent some messages ago, on no connection that is known."""
        if self.registry is not None and path.sent:
            self.counts["message replayed"] += 1
            self._arrive_again(path, path.sent[-1 - min(back, len(path.sent) - 1)])

    def _arrive_again(self, path: Path, request: Request) -> None:
        if self.registry is not None:
            path.echoed_at = self._loop.time()
            self.registry.machine.run(self._serve_echo(self.registry, request, path))

    def _later(self, seconds: float, call: Callable[..., object], *arguments: object) -> None:
        """The network itself is no machine: it goes on whoever is paused."""
        self._loop.call_later(seconds, call, *arguments, context=self._loop.nobody)

    def _arrive(self, wire: Wire, request: Request, waiting: asyncio.Future[Answer]) -> None:
        if not wire.forgotten:
            self._read(wire, request, waiting)

    def _read(self, wire: Wire, request: Request, waiting: asyncio.Future[Answer]) -> None:
        """What has come to the registry's host is read, whatever the network does since."""
        registry = self.registry
        if wire.far_end.closed or registry is None or registry is not wire.registry:
            if not self._is_lost(wire, "down"):
                wire.fail()
        elif registry.machine.paused:  # what has come is read bit by bit once it goes on
            self._unread.append((self._read, wire, request, waiting))
        else:
            registry.machine.run(self._answer(registry, wire, request, waiting))

    def go_on(self, registry: Registry) -> None:
        """A stopped registry goes on: its timers at once, and it begins to read."""
        registry.machine.go_on()
        unread, self._unread = self._unread, []
        for place, (call, *arguments) in enumerate(unread):
            self._later(0.3 + 0.02 * place, call, *arguments)

    async def _answer(
        self, registry: Registry, wire: Wire, request: Request, waiting: asyncio.Future[Answer]
    ) -> None:
        if "authorization" in request.headers and not wire.is_refused:
            wire.traffic.arrived(self._loop.time())
            wire.is_a_nodes |= "/nodes/" in request.target
        if wire.is_refused:
            answer = self._history.world.queues.refusal()
        else:
            answer = await serve(registry.app, request, wire.path.peer, wire.far_end)
        wire.is_a_nodes |= request.target.endswith("/nodes") and answer.status == HTTPStatus.OK
        if not wire.broken:  # else its client is gone, and is told nothing by it
            self._history.answered(request, answer)
        if not answer.status:  # the connection has ended, and nobody waits for it
            return
        if answer.headers.get("connection") == "close" and not wire.far_end.closed:
            wire.far_end.end(CloseReason.LOCAL)
        aside = _is_aside(request)
        if not self._is_lost(wire, "down", aside=aside):
            self._later(wire.path.delay(aside=aside), _deliver, wire, waiting, answer)

    async def _serve_echo(self, registry: Registry, request: Request, path: Path) -> None:
        """In the registry's process: what is asked on no connection is answered as well."""
        self._history.answered(request, await serve(registry.app, request, path.peer, None))

    def hang_up(self, wire: Wire) -> None:
        """The client's end is closed; the registry learns it, if the network lets it."""
        wire.fail()
        if not self._is_lost(wire, "up"):
            self._later(wire.path.delay(), self._end_far, wire, CloseReason.FIN)

    def _end_far(self, wire: Wire, how: CloseReason) -> None:
        if not wire.forgotten:
            self._read_end(wire, how)

    def _read_end(self, wire: Wire, how: CloseReason) -> None:
        if wire.registry.machine.paused:
            self._unread.append((self._read_end, wire, how))
        elif not wire.far_end.closed and wire.registry.machine.alive:
            context = wire.registry.machine.context
            if wire.is_a_nodes:  # else a node was still about to join on it
                wire.traffic.closed_at = self._loop.time()
            self._loop.call_soon(wire.far_end.end, how, context=context)

    def end_all(self, path: Path) -> None:
        """A proxy on the way ends all connections of a host, which lives: both ends see it."""
        for wire in list(path.open):
            self._end_far(wire, CloseReason.FIN)
            wire.fail()

    def drop_silently(self, path: Path) -> None:
        """A middlebox forgets all connections of a host: nobody sees it."""
        for wire in path.open:
            wire.forgotten = True
        path.open.clear()

    def registry_died(self) -> None:
        """The registry's process is gone: its host closes all connections."""
        self.registry = None
        for path in self._paths.values():
            for wire in list(path.open):
                if not self._is_lost(wire, "down"):
                    self._later(path.delay(), wire.fail)


def _is_aside(request: Request) -> bool:
    """Whether nobody waits for it: it takes none of the faults and the draws of other messages, so
    that a seed is the same schedule with it and without."""
    return request.target.endswith(("/machine", "/machines"))


def _deliver(wire: Wire, waiting: asyncio.Future[Answer], answer: Answer) -> None:
    if waiting in wire.waiting:
        wire.waiting.remove(waiting)
    if not (waiting.done() or wire.broken or wire.forgotten):
        waiting.set_result(answer)


class Door:
    """The network as one process sees it: see `rendezvous.talk.network.Network`."""

    def __init__(self, loop: VirtualLoop, network: Network, path: Path) -> None:
        self._loop = loop
        self._network = network
        self._path = path
        self._wires: list[Wire] = []
        self.traffic = Traffic()

    async def addresses_of(self, name: str, seconds: float) -> list[str]:
        if name not in ADDRESSES + LOOPBACK:
            raise NetworkFailure(Fault.NO_NAME, "there are no names")
        return [name]

    async def open(self, place: RegistryPlace, address: str, seconds: float) -> Line:
        return SimulatedLine(self, place, address, seconds)

    async def connect(self, place: RegistryPlace, where: str, seconds: float) -> Wire:
        address, port = place.host_and_port(where)
        give_up_at = self._loop.time() + seconds
        while self._network.is_cut(self._path, address):
            await asyncio.sleep(min(_SYN_SECONDS, seconds))
            if self._loop.time() >= give_up_at:
                raise NetworkFailure(Fault.FILTERED, opened=False)
        known = LOOPBACK if self._path.is_local else ADDRESSES  # beside the registry, or not
        registry = self._network.registry
        if registry is None or address not in known or port != registry.port:
            await asyncio.sleep(0.001)
            raise NetworkFailure(Fault.REFUSED, opened=False)
        if place.proof != registry.proof:
            raise NetworkFailure(Fault.NOT_PROVEN, opened=False)
        wire = Wire(self._path, address, registry, self.traffic)
        wire.is_refused = self._network.has_no_room(self._path)
        self._wires = [wire, *(wire for wire in self._wires if not wire.broken)]
        return wire

    async def ask(self, wire: Wire, request: Request, seconds: float) -> Answer:
        """Send a request on a connection; it is closed unless the answer comes in time."""
        waiting = self._loop.create_future()
        timer = self._loop.call_later(seconds, too_late, waiting)
        self._network.send(wire, request, waiting)
        try:
            answer: Answer = await waiting
        except BaseException:
            self.hang_up(wire)
            raise
        finally:
            timer.cancel()
        if answer.headers.get("connection") == "close":
            wire.fail()
        wire.idle_since = self._loop.time()
        return answer

    def stream(self, wire: Wire, request: Request, quiet: float) -> SimulatedStream:
        stream = SimulatedStream(self._loop, wire, quiet)
        self._network.stream(wire, request, stream)
        return stream

    def hang_up(self, wire: Wire) -> None:
        if not wire.broken:
            self._network.hang_up(wire)

    def process_ended(self) -> None:
        for wire in self._wires:
            self.hang_up(wire)
        self._wires.clear()


class SimulatedLine:
    """The way to one address of the registry: see `rendezvous.talk.network.Line`."""

    def __init__(self, door: Door, place: RegistryPlace, address: str, seconds: float) -> None:
        self._door = door
        self._place = place
        self._address = address
        self._seconds = seconds
        self._idle: list[Wire] = []
        self._used: list[Wire] = []
        self.base = f"https://{with_port(*place.host_and_port(address))}"

    async def request(self, request: Request, seconds: float) -> Answer:
        wire = self._kept() or await self._door.connect(self._place, self._address, self._seconds)
        self._used.append(wire)
        try:
            answer = await self._door.ask(wire, request, seconds)
        finally:
            self._used.remove(wire)
        self._idle.append(wire)
        return answer

    def _kept(self) -> Wire | None:
        for wire in self._idle:
            if asyncio.get_running_loop().time() > wire.idle_since + _KEEP_ALIVE_SECONDS:
                self._door.hang_up(wire)
        self._idle = [wire for wire in self._idle if not wire.broken]
        return self._idle.pop(0) if self._idle else None

    @contextlib.asynccontextmanager
    async def stream(self, request: Request, quiet: float) -> AsyncIterator[SimulatedStream]:
        wire = await self._door.connect(self._place, self._address, self._seconds)
        self._used.append(wire)
        try:
            stream = self._door.stream(wire, request, quiet)
            await stream.begin()
            yield stream
        finally:
            self._used.remove(wire)
            self._door.hang_up(wire)

    def anew(self) -> SimulatedLine:
        return SimulatedLine(self._door, self._place, self._address, self._seconds)

    async def aclose(self) -> None:
        for wire in self._idle + self._used:
            self._door.hang_up(wire)
