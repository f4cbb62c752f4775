"""A launch's outer world in memory, on a virtual clock: registry, scheduler, signals."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from launcher.run.command import launch
from launcher.run.environment import Child, LaunchEnvironment, Socket
from launcher.run.preparation import Preparation, prepare
from launcher.run.shell import Launch
from launcher.run.values import Outcome
from launcher.schedulers.contract import Scheduler, SchedulerContext
from launcher.settings import LaunchSettings
from launcher.show.board import Board
from launcher.state.state_dir import StateDir
from rendezvous.shell import Recorder
from rendezvous.talk.client import RegistryClient
from rendezvous.talk.credentials import Credential
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.wire.errors import RdzvError, RunExists
from rendezvous.wire.metrics import RunMetrics
from rendezvous.wire.run import (
    EventLine,
    Phase,
    Result,
    RunReport,
    RunSpec,
    RunStatus,
    SlotNews,
    SlotState,
    SlotStatus,
)
from rendezvous.wire.table import EndpointTable
from tests.launcher.fleet import Fleet
from tests.support.virtual_time import VirtualLoop

OK = Result(status="ok", exit_code=0, code="ok", message="all nodes ended with exit code 0")


def on_virtual_time(work: Coroutine[Any, Any, None], seconds: float = 1_000.0) -> None:
    """Do this on a clock that jumps."""
    loop = VirtualLoop(pytest.fail)
    task = loop.create_task(work)
    try:
        loop.drive(seconds)
        assert task.done(), "it does not come to its end"
        task.result()
    finally:
        loop.dispose()


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test on a clock that jumps."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        on_virtual_time(test(*args, **kwargs))

    return run


@dataclass
class Registry:
    """A registry that keeps one run, and does with its slots what a test asks for.

    Attributes:
        spec: What the run was created with.
        told: What it heard of worker runs.
        down: Why it does not answer.
        asked: The calls, in order.
    """

    slots: int = 2
    spec: RunSpec | None = None
    told: list[tuple[int, SlotNews]] = field(default_factory=list)
    phase: Phase = Phase.GATHERING
    result: Result | None = None
    digest: str = ""
    version: int = 0
    down: RdzvError | None = None
    asked: list[str] = field(default_factory=list)
    lines: list[EventLine] = field(default_factory=list)

    def change(self, **values: Any) -> None:
        """Something happens."""
        for name, value in values.items():
            setattr(self, name, value)
        self.version += 1

    def end(self, result: Result = OK) -> None:
        """The run is over, and its nodes have left."""
        self.change(phase=Phase.FINISHED, result=result)

    def newest(self, slot: int) -> SlotNews | None:
        """What was heard last of a slot."""
        return next((news for number, news in reversed(self.told) if number == slot), None)

    def status(self) -> RunStatus:
        """How the run stands."""
        return RunStatus(
            run="r",
            launch_id=self.spec.launch_id if self.spec else "",
            version=self.version,
            phase=self.phase,
            epoch=1 if self.digest else 0,
            reason="waiting",
            min_nodes=self.slots,
            max_nodes=self.slots,
            elapsed_seconds=0.0,
            digest=self.digest,
            slots=[self._slot(number) for number in range(self.slots)],
            result=self.result,
            everyone_left=self.result is not None,
        )

    def _slot(self, number: int) -> SlotStatus:
        news = self.newest(number)
        return SlotStatus(
            slot=number,
            generation=news.generation if news else 0,
            wanted_generation=1,
            state=news.state if news else SlotState.NONE,
            rank=number if self.phase is Phase.RUNNING else None,
        )


class Client:
    """The way to it."""

    def __init__(self, registry: Registry, place: RegistryPlace) -> None:
        self._registry = registry
        self.place = place

    async def _reach(self, what: str) -> Registry:
        await asyncio.sleep(0.001)
        self._registry.asked.append(what)
        if self._registry.down is not None:
            raise self._registry.down
        return self._registry

    async def create(self, run: str, spec: RunSpec) -> RunStatus:
        registry = await self._reach("create")
        known = registry.spec and registry.spec.model_copy(update={"registry": spec.registry})
        if known != spec and registry.result is not None:  # it is over: the next one may begin
            registry.change(phase=Phase.GATHERING, result=None, told=[], digest="")
        elif known not in (None, spec):
            raise RunExists("it is another run")
        registry.spec = spec
        return registry.status()

    async def status(self, run: str, *, after: int = -1, wait: float = 0.0) -> RunStatus:
        registry = await self._reach("status")
        for _ in range(int(wait * 10)):
            if registry.version > after:
                break
            await asyncio.sleep(0.1)
        return registry.status()

    async def cancel(self, run: str, reason: str) -> RunStatus:
        registry = await self._reach(f"cancel: {reason}")
        registry.end(OK.model_copy(update={"status": "cancelled", "code": "cancelled"}))
        return registry.status()

    async def slot_news(self, run: str, slot: int, news: SlotNews) -> RunStatus:
        registry = await self._reach(f"tell {slot}")
        registry.told.append((slot, news))
        registry.version += 1
        return registry.status()

    async def table(self, run: str, digest: str) -> EndpointTable:
        await self._reach("table")
        return EndpointTable(
            run="r", launch_id="k7f2a9c1", epoch=1, master_address="h", master_port=1, rows=[]
        )

    async def checks(self, run: str) -> RunReport:
        await self._reach("checks")
        return RunReport(run="r")

    async def metrics(self, run: str, after: int | None = None) -> RunMetrics:
        await self._reach("metrics")
        return RunMetrics(session="s", newest=0, elapsed_seconds=0.0)

    async def events(self, run: str, after: int = 0) -> AsyncGenerator[EventLine, None]:
        registry = await self._reach(f"events after {after}")
        while True:
            for line in registry.lines:
                if line.number > after:
                    after = line.number
                    yield line
            if registry.result is not None:
                return
            await asyncio.sleep(0.1)

    async def close(self) -> None:
        self._registry.asked.append("close")


class Process:
    """The registry's process."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.over: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def wait(self) -> int:
        return await asyncio.shield(self.over)

    async def end(self, kill_after: float) -> None:
        self._world.log.append("registry ended")
        if not self.over.done():
            self.over.set_result(0)


class Port:
    """Its socket."""

    def __init__(self, world: World, port: int) -> None:
        self._world = world
        self._port = port

    def getsockname(self) -> tuple[str, int]:
        return "", self._port

    def close(self) -> None:
        self._world.log.append(f"port {self._port} closed")


@dataclass
class World(LaunchEnvironment):
    """All of it.

    Attributes:
        log: What was done to the registry's process, socket and the board, in order.
        said: What the board was told to say.
        echoed: What was written beside the board, and whether a launcher held the folder then.
    """

    root: Path
    registry: Registry = field(default_factory=Registry)
    fleet: Fleet = field(default_factory=Fleet)
    log: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    echoed: list[tuple[str, bool]] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    signal: Callable[[int], None] | None = None

    def jitter(self) -> float:
        return 0.5

    def addresses(self) -> list[str]:
        return ["10.0.0.1"]

    def hostname(self) -> str:
        return "h1"

    def scheduler(self, starter: str, context: SchedulerContext) -> Scheduler:
        return self.fleet

    def client(
        self, place: RegistryPlace, credential: Credential, request_seconds: float
    ) -> RegistryClient:
        return cast(RegistryClient, Client(self.registry, place))

    def recorder(self, state: StateDir) -> Recorder | None:
        return None  # it writes in a thread, which no virtual clock waits for

    def on_signals(self, tell: Callable[[int], None]) -> None:
        self.signal = tell

    def listen(self, port: int, *, address: str, exact: bool) -> Socket:
        self.log.append(f"port {port} opened")
        return Port(self, port)

    def configure(self, state: StateDir, secret: bytes, *, tls: bool) -> RegistryPlace:
        return RegistryPlace((), 0, "certificate" if tls else "plain", b"proof")

    async def start_registry(self, state: StateDir, sock: Socket) -> Child:
        self.log.append("registry started")
        self.processes.append(Process(self))
        return self.processes[-1]

    def registry_words(self, state: StateDir) -> str:
        return "no room"

    def echo(self, words: str) -> None:
        self.echoed.append((words, self.state().is_held()))

    # --- the board ----------------------------------------------------------------------------

    def board(self, *, json_events: bool) -> Board:
        return cast(Board, self)

    def status(self, status: RunStatus) -> None:
        """See the protocol."""

    def event(self, line: EventLine) -> None:
        self.events.append(line.number)

    def say(self, text: str) -> None:
        self.said.append(text)

    def close(self) -> None:
        self.log.append("board closed")

    # --- the launch ---------------------------------------------------------------------------

    def prepared(self, *options: str, **settings: Any) -> Preparation:
        """What is launched: two slots on the fleet."""
        return prepare(self._settings(settings), ["true"], {}, make=self.scheduler)

    def _settings(self, settings: dict[str, Any]) -> LaunchSettings:
        return LaunchSettings(
            **(
                {"nnodes": "2", "scheduler": "manual", "local_node": False, "hosts": "off"}
                | {"rdzv_id": "r", "state_dir": self.root, "framework": "command"}
                | settings
            )
        )

    def state(self, root: Path | None = None, run: str = "r") -> StateDir:
        """The run's folder."""
        return StateDir(root or self.root, run)

    def launch(self, **settings: Any) -> tuple[Launch, StateDir]:
        """A launcher whose lock is held."""
        state = self.state()
        state.acquire()
        return Launch(self.prepared(**settings), state, cast(Board, self), self), state

    async def go(self, **settings: Any) -> Outcome:
        """See a launch to its end."""
        launch, state = self.launch(**settings)
        try:
            return await launch.go()
        finally:
            state.release()

    @asynccontextmanager
    async def going(self, told: int = 6, **settings: Any) -> AsyncIterator[asyncio.Task[Outcome]]:
        """A launch of which so much was told; its run ends well unless it has ended."""
        task = asyncio.create_task(self.go(**settings))
        await self.until(lambda: len(self.registry.told) >= told)
        yield task
        if self.registry.result is None:
            self.registry.end()
        await task

    async def run(self, **settings: Any) -> int:
        """All that `rdzv launch` does; returns the exit code."""
        return await launch(self._settings(settings), ["true"], {}, world=self)

    async def until(self, check: Callable[[], object]) -> None:
        """Wait for it, a tenth of a second at a time."""
        while not check():
            await asyncio.sleep(0.1)
