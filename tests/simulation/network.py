"""The network between processes and the registry: it loses, doubles, delays, reorders and cuts."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from rendezvous.client import REQUEST_SECONDS
from rendezvous.errors import RdzvError, Unavailable, error_from_code
from rendezvous.server.service import Service

if TYPE_CHECKING:
    from tests.simulation.history import History
    from tests.simulation.loop import VirtualLoop
    from tests.simulation.world import Registry

Scope = dict[str, Any]
Handler = Callable[[Service, Scope], Awaitable[Any]]

_TRIES_AT_ONCE = 3
_SYN_SECONDS = 1.0
"""After so long a kernel asks once more for a connection."""


class Path:
    """The way between one host and the registry, with what goes wrong on it."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)
        self.lose_up = 0
        self.lose_down = 0
        self.double = 0
        self.late = 0
        self.late_seconds = 0.0
        self.cut_up_until = 0.0
        self.cut_down_until = 0.0
        self.loss = 0.0
        self.loss_until = 0.0
        self.light = 0
        self.is_late = False
        self.echoed_at = float("-inf")
        self.open: list[Line] = []
        self.sent: deque[Handler] = deque(maxlen=40)

    @property
    def is_troubled(self) -> bool:
        """Whether more went wrong than a single lost message or broken connection."""
        return self.light > 1

    def delay(self) -> float:
        """Seconds that the next message takes."""
        seconds = 0.0003 + 0.002 * self.random.random()
        if self.late:
            self.late -= 1
            seconds += self.late_seconds * self.random.random()
        return seconds

    def is_cut(self, now: float) -> bool:
        """Whether no connection can be opened."""
        return now < self.cut_up_until or now < self.cut_down_until

    def loses(self, way: str, now: float) -> bool:
        """Whether the next message of this way, `up` to the registry or `down`, is lost."""
        if now < (self.cut_up_until if way == "up" else self.cut_down_until):
            return True
        name = f"lose_{way}"
        if (left := getattr(self, name)) > 0:
            setattr(self, name, left - 1)
            return True
        return now < self.loss_until and self.random.random() < self.loss


class FarEnd:
    """A connection as the registry sees it; see `rendezvous.server.service.Connection`."""

    def __init__(self) -> None:
        self.closed = False
        self._callbacks: dict[tuple[Callable[..., object], tuple[object, ...]], None] = {}

    def on_close(self, callback: Callable[..., object], *arguments: object) -> None:
        """See the protocol; the same callback with the same arguments counts once."""
        if self.closed:
            callback(*arguments, "fin")
        else:
            self._callbacks[callback, arguments] = None

    def end(self, how: str) -> None:
        """It ended."""
        self.closed = True
        for callback, arguments in self._callbacks:
            callback(*arguments, how)


class Line:
    """One connection: what the registry sees of it, and what hangs on it at the client's end."""

    def __init__(self, path: Path, registry: Registry) -> None:
        self.path = path
        self.registry = registry
        self.far_end = FarEnd()
        self.broken = False
        self.forgotten = False
        self.waiting: list[asyncio.Future[Any]] = []
        path.open.append(self)

    def fail(self, words: str) -> None:
        """The client sees that it is gone."""
        self.broken = True
        if self in self.path.open:
            self.path.open.remove(self)
        for future in self.waiting:
            if not future.done():
                future.set_exception(Unavailable(words))
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
        """The path of a slot's host; slot -1 is the launcher's."""
        key = (launch, slot)
        if key not in self._paths:
            self._paths[key] = Path(f"{self._seed} {launch} {slot}")
        return self._paths[key]

    @property
    def paths(self) -> list[Path]:
        """Of all hosts."""
        return list(self._paths.values())

    def is_cut(self, path: Path) -> bool:
        """Whether a new connection would find nothing at all."""
        now = self._loop.time()
        return now < self.isolated_until or path.is_cut(now)

    def _is_lost(self, path: Path, way: str) -> bool:
        now = self._loop.time()
        lost = now < self.isolated_until or path.loses(way, now)
        self.counts[f"message lost {way}"] += lost
        return lost

    def send(self, line: Line, handler: Handler, answer: asyncio.Future[Any]) -> None:
        """Send a request; the answer is set when it has come."""
        path = line.path
        line.waiting.append(answer)
        path.sent.append(handler)
        if line.forgotten or self._is_lost(path, "up"):
            return
        self._later(path.delay(), self._arrive, line, handler, answer)
        if path.double:
            path.double -= 1
            self.counts["message doubled"] += 1
            self._later(path.delay() + 0.01, self._arrive, line, handler, answer)

    def echo(self, path: Path, back: int) -> None:
        """Send once more what was sent some messages ago, on no connection that is known."""
        if self.registry is not None and path.sent:
            self.counts["message replayed"] += 1
            path.echoed_at = self._loop.time()
            handler = path.sent[-1 - min(back, len(path.sent) - 1)]
            answer = self._loop.create_future()
            self.registry.machine.run(self._serve(self.registry, None, handler, answer, path))

    def _later(self, seconds: float, call: Callable[..., object], *arguments: object) -> None:
        """The network itself is no machine: it goes on whoever is paused."""
        self._loop.call_later(seconds, call, *arguments, context=self._loop.nobody)

    def _arrive(self, line: Line, handler: Handler, answer: asyncio.Future[Any]) -> None:
        if not line.forgotten:
            self._read(line, handler, answer)

    def _read(self, line: Line, handler: Handler, answer: asyncio.Future[Any]) -> None:
        """What has come to the registry's host is read, whatever the network does since."""
        registry = self.registry
        if line.far_end.closed or registry is None or registry is not line.registry:
            if not self._is_lost(line.path, "down"):
                line.fail("it closed the connection without an answer")
            return
        if registry.machine.paused:  # what has come is read bit by bit once it goes on
            self._unread.append((self._read, line, handler, answer))
            return
        registry.machine.run(self._serve(registry, line, handler, answer, line.path))

    def go_on(self, registry: Registry) -> None:
        """A stopped registry goes on: its timers at once, and it begins to read."""
        registry.machine.go_on()
        unread, self._unread = self._unread, []
        for place, (call, *arguments) in enumerate(unread):
            self._later(0.3 + 0.02 * place, call, *arguments)

    async def _serve(
        self,
        registry: Registry,
        line: Line | None,
        handler: Handler,
        answer: asyncio.Future[Any],
        path: Path,
    ) -> None:
        """In the registry's process: what the door does with a request."""
        said: Any
        try:
            scope = {"state": {"connection": line.far_end}} if line is not None else {}
            said = await handler(registry.service, scope)
        except RdzvError as exc:
            said = exc
        except Exception as exc:  # noqa: BLE001 (whatever it is, it is a finding)
            self._history.fail("the_registry_never_fails_inside", repr(exc))
            return
        self._history.answered(said)
        if not self._is_lost(path, "down"):
            self._later(path.delay(), _deliver, line, answer, said)

    def hang_up(self, line: Line, how: str = "fin") -> None:
        """The client's end is closed; the registry learns it, if the network lets it."""
        line.fail("this side closed it")
        if not self._is_lost(line.path, "up"):
            self._later(line.path.delay(), self._end_far, line, how)

    def _end_far(self, line: Line, how: str) -> None:
        if not line.forgotten:
            self._read_end(line, how)

    def _read_end(self, line: Line, how: str) -> None:
        if line.registry.machine.paused:
            self._unread.append((self._read_end, line, how))
        elif not line.far_end.closed and line.registry.machine.alive:
            context = line.registry.machine.context
            self._loop.call_soon(line.far_end.end, how, context=context)

    def reset(self, path: Path) -> None:
        """A middlebox resets all connections of a host: both ends see it."""
        for line in list(path.open):
            self._end_far(line, "rst")
            line.fail("connection reset by peer")

    def drop_silently(self, path: Path) -> None:
        """A middlebox forgets all connections of a host: nobody sees it."""
        for line in path.open:
            line.forgotten = True
        path.open.clear()

    def registry_died(self) -> None:
        """The registry's process is gone: its host closes all connections."""
        self.registry = None
        for path in self.paths:
            for line in list(path.open):
                if not self._is_lost(path, "down"):
                    self._later(path.delay(), line.fail, "it closed the connection")


def _deliver(line: Line | None, answer: asyncio.Future[Any], said: Any) -> None:
    if line is not None and answer in line.waiting:
        line.waiting.remove(answer)
    if answer.done() or line is None or line.broken or line.forgotten:
        return
    if isinstance(said, RdzvError):
        answer.set_exception(error_from_code(said.code, said.message, said.hint))
    else:
        answer.set_result(said)


class Client:
    """How a process talks to the registry: as `rendezvous.client` does, on simulated lines."""

    def __init__(self, loop: VirtualLoop, network: Network, path: Path) -> None:
        self._loop = loop
        self._network = network
        self._path = path
        self._idle: list[Line] = []
        self._lines: list[Line] = []

    async def _line(self) -> Line:
        while self._idle:
            line = self._idle.pop()
            if not line.broken:
                return line
        give_up_at = self._loop.time() + REQUEST_SECONDS
        while self._network.is_cut(self._path):
            await asyncio.sleep(_SYN_SECONDS)
            if self._loop.time() >= give_up_at:
                raise Unavailable("no answer (filtered, or the host is down)")
        if self._network.registry is None:
            await asyncio.sleep(0.001)
            raise Unavailable("connection refused (no registry is listening)")
        line = Line(self._path, self._network.registry)
        self._lines = [line, *(line for line in self._lines if not line.broken)]
        return line

    async def request(self, handler: Handler, seconds: float = REQUEST_SECONDS) -> Any:
        """Ask once; raises what the registry refused with, or Unavailable."""
        line = await self._line()
        answer = self._loop.create_future()
        timer = self._loop.call_later(seconds, _too_late, answer)
        self._network.send(line, handler, answer)
        try:
            said = await answer
        except Unavailable:
            self._network.hang_up(line)
            raise
        except RdzvError:
            self._idle.append(line)
            raise
        except asyncio.CancelledError:
            self._network.hang_up(line)
            raise
        finally:
            timer.cancel()
        self._idle.append(line)
        return said

    async def persistently(
        self, make: Callable[[], Handler], late: float, run: Callable[..., Any]
    ) -> Any:
        """Ask with more and more connections side by side when answers are late."""
        patience = late
        give_up_at = self._loop.time() + 4 * late
        tries = [run(self.request(make(), 4 * late))]
        try:
            while True:
                await self._first(tries, patience)
                done = [task for task in tries if task.done()]
                tries = [task for task in tries if not task.done()]
                for task in sorted(done, key=_is_unavailable):
                    if not tries or not _is_unavailable(task):
                        return task.result()
                if done:
                    await asyncio.sleep(self.pause())
                if self._loop.time() < give_up_at and len(tries) < _TRIES_AT_ONCE:
                    tries.append(run(self.request(make(), 4 * late)))
                    patience = REQUEST_SECONDS / 2
        finally:
            for task in tries:
                task.cancel()

    async def _first(self, tasks: list[asyncio.Task[Any]], seconds: float) -> None:
        """Until one of them has ended, or the time is over."""
        wake = self._loop.create_future()

        def ring(*_: object) -> None:
            if not wake.done():
                wake.set_result(None)

        timer = self._loop.call_later(seconds, ring)
        for task in tasks:
            task.add_done_callback(ring)
        try:
            await wake
        finally:
            timer.cancel()
            for task in tasks:
                task.remove_done_callback(ring)

    def pause(self) -> float:
        """Seconds before the next try."""
        return self._path.random.uniform(0.2, 0.5)

    def close(self) -> None:
        """The process ends or closes everything."""
        for line in self._lines:
            if not line.broken:
                self._network.hang_up(line)
        self._lines.clear()
        self._idle.clear()


def _is_unavailable(task: asyncio.Task[Any]) -> bool:
    return task.cancelled() or isinstance(task.exception(), Unavailable)


def _too_late(answer: asyncio.Future[Any]) -> None:
    if not answer.done():
        answer.set_exception(Unavailable("it accepted the connection and did not answer"))
