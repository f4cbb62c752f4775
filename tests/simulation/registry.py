"""The processes of registries: a standing one, or one that is the child of a launcher."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.types import ASGIApp

from launcher.state.state_dir import StateDir
from rendezvous.registry.app import make_app
from rendezvous.registry.bereft import launcher_ended
from rendezvous.registry.service import Service
from rendezvous.serving.connection import Connection
from rendezvous.talk.credentials import SERVER_NAME, hkdf, registry_credential
from rendezvous.wire.errors import RdzvError, UsageError
from tests.simulation.disk import SimulatedJournal
from tests.simulation.network import PORT, PROOF
from tests.support.virtual_time import Machine

if TYPE_CHECKING:
    from tests.simulation.launchers import Launcher
    from tests.simulation.world import World

_START_SECONDS = 0.3
_CLOSE_SECONDS = 0.1
_TELL_SECONDS = 2.0
_FOR_EVER = 1e9
_PORTS = 100
_LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class Identity:
    """How a registry proves itself, its key for nodes, and who may create runs."""

    key: bytes
    operator_sha256: str
    proof: bytes

    @staticmethod
    def of(secret: bytes) -> Identity:
        key = hkdf(secret, "registry key for node credentials")
        return Identity(key, registry_credential(secret).sha256(), hashlib.sha256(secret).digest())


_SECRET = hashlib.sha256(b"simulation").digest()
OPERATOR = registry_credential(_SECRET)
_STANDING = Identity(hkdf(_SECRET, "nodes"), OPERATOR.sha256(), PROOF)


@dataclass(frozen=True)
class Registry:
    """One process of the registry."""

    machine: Machine
    service: Service
    app: ASGIApp
    proof: bytes
    port: int = PORT
    connections: list[Connection] = field(default_factory=list)


class Registries:
    """The host of the registry: its processes one after the other, and who holds its port."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._boots = self.crashes = 0
        self._child: SimulatedChild | None = None
        self._holders: dict[object, int] = {}
        self._down_until = self.ill_until = self.longest_away = 0.0

    def start(self, identity: Identity = _STANDING, port: int = PORT) -> Registry:
        world = self._world
        self._boots += 1
        machine = Machine(world.loop, f"registry#{self._boots}")
        journal = SimulatedJournal(world.disk, machine)
        service = Service(journal, identity.key, identity.operator_sha256, clock=world.loop.time)
        app = make_app(service, allowed_hosts=[SERVER_NAME])
        registry = Registry(machine, service, app, identity.proof, port)
        world.network.registry = registry
        if world.history.gaps and world.history.gaps[-1][1] == _FOR_EVER:
            world.history.gaps[-1] = (world.history.gaps[-1][0], world.loop.time())
        machine.run(self._serve(service))
        return registry

    async def _serve(self, service: Service) -> None:
        try:
            await service.sequencer.recover()
            await service.serve()
        except Exception as exc:  # noqa: BLE001 (whatever it is, it is a finding)
            words = f"its sequencer ended: {exc!r}"
            self._world.history.fail("the_registry_never_fails_inside", words)

    def end(self, registry: Registry) -> None:
        world = self._world
        registry.machine.kill()
        if world.network.registry is registry:
            world.history.gaps.append((world.loop.time(), _FOR_EVER))
            world.network.registry_died()

    def crash(self, down: float) -> None:
        world, registry = self._world, self._world.network.registry
        if registry is None:
            return
        world.registry_was_down = True
        self.crashes += 1
        self.is_away(down)
        world.registry_is_gone |= not down
        self._down_until = world.loop.time() + (down or _FOR_EVER)
        self.end(registry)
        if self._child is not None:
            self._child.died(-9)
        elif down:
            world.later(down, self.start)

    def is_away(self, seconds: float) -> None:
        self.longest_away = max(self.longest_away, seconds)

    # --- as the child of a launcher -----------------------------------------------------------

    def listen(self, launcher: Launcher, wanted: int, *, exact: bool) -> SimulatedSocket:
        """Take this port, or the next one that is free. Raises UsageError."""
        ports = (wanted,) if exact else range(wanted, wanted + _PORTS)
        free = [port for port in ports if port not in self._holders.values()]
        if not free:
            raise UsageError(f"the registry cannot listen on port {wanted}: it is in use")
        self._holders[launcher] = free[0]
        return SimulatedSocket(free[0], lambda: self.let_port_go(launcher))

    def hold_port(self, seconds: float) -> None:
        if PORT in self._holders.values():
            loop = self._world.loop
            loop.call_later(_LOOK_SECONDS, self.hold_port, seconds, context=loop.nobody)
            return
        self._holders["another program"] = PORT
        self._world.later(seconds, self.let_port_go, "another program")

    def let_port_go(self, holder: object) -> None:
        self._holders.pop(holder, None)

    def start_child(self, launcher: Launcher, state: StateDir) -> SimulatedChild:
        child = SimulatedChild(self._world, launcher, state)
        self._child = child
        child.port = self._holders[child] = self._holders[launcher]
        self._world.spawn(self._boot(child))
        return child

    async def _boot(self, child: SimulatedChild) -> None:
        world = self._world
        await asyncio.sleep(_START_SECONDS)
        if world.loop.time() < self.ill_until:
            self.crashes += 1
            child.died(1)
            return
        if world.loop.time() < self._down_until:
            if world.registry_is_gone:
                child.died(1)
                return
            await asyncio.sleep(self._down_until - world.loop.time())
        if child.over.done():
            return
        if not child.state.journal.exists():
            world.disk.renew()
            world.history.journal_is_new()
            child.state.journal.touch()
        child.registry = self.start(Identity.of(child.state.secret()), child.port)
        if child.is_bereft:
            child.be_bereft()

    def let_go(self, child: SimulatedChild) -> None:
        self.let_port_go(child)
        if child.registry is not None:
            self.end(child.registry)
        if self._child is child:
            self._child = None

    def parent_died(self, launcher: Launcher) -> None:
        self.let_port_go(launcher)
        if self._child is not None and self._child.launcher is launcher:
            self._child.be_bereft()


@dataclass(frozen=True)
class SimulatedSocket:
    """A listening socket: see `launcher.prepare.environment.Socket`."""

    port: int
    close: Callable[[], None]

    def getsockname(self) -> tuple[str, int]:
        return "", self.port


class SimulatedChild:
    """A process of the registry: see `launcher.prepare.environment.Child`."""

    def __init__(self, world: World, launcher: Launcher, state: StateDir) -> None:
        self._world = world
        self.launcher = launcher
        self.state = state
        self.registry: Registry | None = None
        self.over: asyncio.Future[int] = world.loop.create_future()
        self.is_bereft = False
        self.port = PORT

    async def wait(self) -> int:
        return await asyncio.shield(self.over)

    async def end(self, kill_after: float) -> None:
        self._world.may_break(self.launcher.index, "close")
        if self.over.done():
            return
        await self._close(kill_after)
        self.died(0)

    async def _close(self, kill_after: float) -> None:
        """Polls are answered, then it ends; one that is stopped does nothing until it is killed."""
        if self.registry is None:
            return
        if self.registry.machine.paused:
            await asyncio.sleep(kill_after)
            return
        self._world.loop.call_soon(
            self.registry.service.closing.set, context=self.registry.machine.context
        )
        await asyncio.sleep(_CLOSE_SECONDS)

    def died(self, code: int) -> None:
        if not self.over.done():
            self.over.set_result(code)
            self._world.registries.let_go(self)

    def be_bereft(self) -> None:
        self.is_bereft = True
        if self.registry is not None and not self.over.done():
            self.registry.machine.run(self._part(self.registry))

    async def _part(self, registry: Registry) -> None:
        with contextlib.suppress(RdzvError):
            await launcher_ended(registry.service.sequencer, _TELL_SECONDS)
        registry.service.closing.set()
        await asyncio.sleep(_CLOSE_SECONDS)
        self.died(0)
