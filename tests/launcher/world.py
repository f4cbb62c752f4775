"""A launch's outer world in memory, on a virtual clock: registry, scheduler, signals."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from launcher.plan.plan import Plan, Submission, WorkerRun
from launcher.prepare.environment import Child, LaunchEnvironment, Socket
from launcher.prepare.preparation import Preparation, prepare
from launcher.run.command import launch
from launcher.schedulers.contract import Scheduler, SchedulerContext, Trouble, unheard
from launcher.schedulers.description import Description
from launcher.settings import LaunchSettings
from launcher.show.board import Board
from launcher.state.state_dir import StateDir
from rendezvous.channel import Published
from rendezvous.talk.client import RegistryClient
from rendezvous.talk.credentials import Credential
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.wire.errors import RdzvError, RunExists, SchedulerError
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
from tests.launcher.drive import slot, status
from tests.support.virtual_time import VirtualLoop

OK = Result(status="ok", exit_code=0, code="ok", message="all nodes ended with exit code 0")


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test on a clock that jumps."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        loop = VirtualLoop(pytest.fail)
        task = loop.create_task(test(*args, **kwargs))
        try:
            loop.drive(1_000.0)
            assert task.done(), "it does not come to its end"
            task.result()
        finally:
            loop.dispose()

    return run


@dataclass
class Made:
    """A run that the fleet has."""

    key: str
    state: SlotState = SlotState.RUNNING
    detail: str = ""


@dataclass
class Fleet:
    """A scheduler that behaves: what was submitted is listed, runs, and can be ended.

    Attributes:
        told: The graces with which it was told to end one.
        ready: Of what it has made ready, and in vain if it is not submitted.
        stays: It does not end anything, and says so.
        trouble: What its first try to submit comes to.
    """

    name: str = "fleet"
    loopback: bool = False
    poll_seconds: float = 0.01
    finds: bool = True
    keeps_logs: bool = True
    by_hand: bool = False
    made: dict[str, Made] = field(default_factory=dict)
    told: list[float] = field(default_factory=list)
    ready: list[int] = field(default_factory=list)
    stays: bool = False
    trouble: str = ""
    lines: list[str] = field(default_factory=list)

    def prepare(self, run: Submission, join: str) -> str:
        return f"{run.name} {join}"

    def submit_words(self, run: Submission) -> str:
        """See the contract."""
        return ""

    async def make_ready(self, run: Submission) -> None:
        """See the contract."""
        self.ready.append(run.slot)

    async def close(self) -> None:
        """See the contract."""

    async def submit(self, run: Submission, join: str, *, trouble: Trouble = unheard) -> str:
        if self.trouble:
            await trouble(self.trouble)
        made = self.made[run.name] = Made(str(100 + len(self.made)))
        return made.key

    async def find(self, run: WorkerRun) -> str | None:
        found = self.made.get(run.name)
        return found.key if found and found.state is SlotState.RUNNING else None

    async def describe(self, run: WorkerRun, handle: str) -> Description:
        found = self.made.get(run.name, Made("", SlotState.UNKNOWN, "no such run"))
        return Description(found.state, found.detail)

    async def cancel(self, run: WorkerRun, handle: str, *, grace_seconds: float) -> None:
        self.told.append(grace_seconds)
        if self.stays:
            raise SchedulerError("you may not end this run")
        self.made[run.name].state = SlotState.ENDED

    def start_words(self, handle: str) -> str:
        return f"fleet start {handle}"

    def cancel_words(self, run: WorkerRun, handle: str | None) -> str:
        return f"fleet end {handle}" if handle else ""

    async def logs(
        self, run: WorkerRun, handle: str, *, lines: int, follow: bool
    ) -> AsyncIterator[str]:
        for line in self.lines[-lines:]:
            yield line


@dataclass
class Registry:
    """A registry that keeps one run, and does with its slots what a test asks for.

    Attributes:
        told: What it heard of worker runs.
        down: Why it does not answer.
    """

    base: ClassVar = "https://registry"
    lines: ClassVar = SimpleNamespace(is_elsewhere=lambda base: False)
    spec: RunSpec | None = None
    told: list[tuple[int, SlotNews]] = field(default_factory=list)
    phase: Phase = Phase.GATHERING
    result: Result | None = None
    digest: str = ""
    version: int = 0
    down: RdzvError | None = None
    asked: list[str] = field(default_factory=list)
    happened: list[EventLine] = field(default_factory=list)

    def change(self, **values: Any) -> None:
        for name, value in values.items():
            setattr(self, name, value)
        self.version += 1

    def end(self, result: Result = OK) -> None:
        """The run is over, and its nodes have left."""
        self.change(phase=Phase.FINISHED, result=result)

    def stands(self) -> RunStatus:
        more: dict[str, Any] = {"phase": self.phase, "result": self.result, "digest": self.digest}
        return status(
            *(self._slot(number) for number in (0, 1)),
            launch_id=self.spec.launch_id if self.spec else "",
            version=self.version,
            epoch=1 if self.digest else 0,
            everyone_left=self.result is not None,
            **more,
        )

    def _slot(self, number: int) -> SlotStatus:
        """As it was heard last."""
        rank = number if self.phase is Phase.RUNNING else None
        news = next((news for told, news in reversed(self.told) if told == number), None)
        if news is None:
            return slot(number, 0)
        return slot(number, news.generation, state=news.state, node=rank)

    # --- the way to it ------------------------------------------------------------------------

    async def _reach(self, what: str) -> None:
        await asyncio.sleep(0.001)
        self.asked.append(what)
        if self.down is not None:
            raise self.down

    async def create(self, run: str, spec: RunSpec) -> RunStatus:
        await self._reach("create")
        known = self.spec and self.spec.model_copy(update={"registry": spec.registry})
        if known != spec and self.result is not None:  # it is over: the next one may begin
            self.change(phase=Phase.GATHERING, result=None, told=[], digest="")
        elif known not in (None, spec):
            raise RunExists("it is another run")
        self.spec = spec
        return self.stands()

    async def status(self, run: str, *, after: int = -1, wait: float = 0.0) -> RunStatus:
        await self._reach("status")
        for _ in range(int(wait * 10)):
            if self.version > after:
                break
            await asyncio.sleep(0.1)
        return self.stands()

    async def cancel(self, run: str, reason: str) -> RunStatus:
        await self._reach(f"cancel: {reason}")
        self.end(OK.model_copy(update={"status": "cancelled", "code": "cancelled"}))
        return self.stands()

    async def slot_news(self, run: str, slot: int, news: SlotNews) -> RunStatus:
        await self._reach(f"tell {slot}")
        self.told.append((slot, news))
        self.version += 1
        return self.stands()

    async def table(self, run: str, digest: str) -> EndpointTable:
        values = {"run": "r", "launch_id": "k7f2a9c1", "master_address": "h", "master_port": 1}
        return EndpointTable.model_validate(values | {"epoch": 1, "rows": []})

    async def checks(self, run: str) -> RunReport:
        return RunReport(run="r")

    async def ask(self, model: Callable[[], Any], method: str, path: str) -> Any:
        await self._reach(f"{method} {path}")
        return model()

    async def topic(self, topic: Published, run: str, **query: int) -> Any:
        await self._reach(topic.name)
        return nothing(topic)

    async def events(self, run: str, after: int = 0) -> AsyncGenerator[EventLine, None]:
        await self._reach(f"events after {after}")
        while True:
            for line in self.happened:
                if line.number > after:
                    after = line.number
                    yield line
            if self.result is not None:
                return
            await asyncio.sleep(0.1)

    async def close(self) -> None: ...


def nothing(topic: Published) -> Any:
    """What readers get of a topic on which nothing was published."""
    assert topic.response is not None
    return topic.response.load().model_validate(
        {"session": "s", "newest": 0, "elapsed_seconds": 0.0}
    )


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


@dataclass
class World(LaunchEnvironment):
    """All of it.

    Attributes:
        log: What was done to the registry's process, socket and the board, in order.
        dies: The registry's process ends at once.
        dialled: Where its clients reach the registry.
        echoed: What was written beside the board, and whether a launcher held the folder then.
    """

    root: Path
    registry: Registry = field(default_factory=Registry)
    fleet: Fleet = field(default_factory=Fleet)
    log: list[str] = field(default_factory=list)
    listened: list[tuple[int, str, bool]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    echoed: list[tuple[str, bool]] = field(default_factory=list)
    dialled: set[tuple[str, ...]] = field(default_factory=set)
    events: list[int] = field(default_factory=list)
    dies: bool = False
    signal: Callable[[int], None] | None = None

    def jitter(self) -> float:
        return 0.5

    def addresses(self) -> list[str]:
        return ["10.0.0.1"]

    def hostname(self) -> str:
        return "h1"

    def scheduler(self, starter: str, context: SchedulerContext) -> Scheduler:
        return self.fleet

    def fork(self, word: str, count: int) -> None:
        """It has no processes."""

    def dismiss(self) -> None:
        """It has no processes."""

    def missing(self, plan: Plan, environ: Mapping[str, str]) -> str:
        return ""

    def client(
        self, place: RegistryPlace, credential: Credential, request_seconds: float
    ) -> RegistryClient:
        self.dialled.add(place.addresses)
        return cast(RegistryClient, self.registry)

    def on_signals(self, tell: Callable[[int], None]) -> None:
        self.signal = tell

    def listen(self, port: int, *, address: str, exact: bool) -> Socket:
        self.log.append(f"port {port} opened")
        self.listened.append((port, address, exact))
        close = functools.partial(self.log.append, f"port {port} closed")
        return cast(Socket, SimpleNamespace(getsockname=lambda: ("", port), close=close))

    def configure(self, state: StateDir, secret: bytes, *, tls: bool) -> RegistryPlace:
        return RegistryPlace((), 0, "certificate" if tls else "plain", b"proof")

    async def start_registry(self, state: StateDir, sock: Socket) -> Child:
        self.log.append("registry started")
        process = Process(self)
        if self.dies:
            process.over.set_result(1)
        return process

    def registry_words(self, state: StateDir) -> str:
        return "no room"

    def echo(self, words: str) -> None:
        self.echoed.append((words, self.state().is_held()))

    # --- the board ----------------------------------------------------------------------------

    def board(self, nodes: int, logs: Path, *, json_events: bool, verbose: bool) -> Board:
        return cast(Board, self)

    def status(self, status: RunStatus) -> None: ...

    def event(self, line: EventLine, *, said: bool = False) -> None:
        self.events.append(line.number)

    def say(self, text: str) -> None:
        self.said.append(text)

    def close(self) -> None:
        self.log.append("board closed")

    # --- the launch ---------------------------------------------------------------------------

    def prepared(self, **settings: Any) -> Preparation:
        """What is launched: two slots on the fleet."""
        return prepare(self._settings(settings), ["true"], {}, make=self.scheduler)

    def _settings(self, settings: dict[str, Any]) -> LaunchSettings:
        values = {"nnodes": "2", "scheduler": "manual", "local_node": False, "hosts": "off"}
        values |= {"rdzv_id": "r", "state_dir": self.root, "framework": "command"}
        return LaunchSettings(**(values | settings))

    def state(self, root: Path | None = None, run: str = "r") -> StateDir:
        return StateDir(root or self.root, run)

    @asynccontextmanager
    async def going(self, told: int = 6, **settings: Any) -> AsyncIterator[asyncio.Task[int]]:
        """A launch of which so much was told; its run ends well unless it has ended."""
        task = asyncio.create_task(self.run(**settings))
        await self.until(lambda: len(self.registry.told) >= told)
        yield task
        if self.registry.result is None:
            self.registry.end()
        await task

    async def run(self, **settings: Any) -> int:
        """All that `rdzv launch` does; returns the exit code."""
        return await launch(self._settings(settings), ["true"], {}, world=self)

    def event_happens(self, number: int) -> None:
        self.registry.happened.append(EventLine(number, 0.0, "joined", "one", Phase.GATHERING, 0))

    async def until(self, check: Callable[[], object]) -> None:
        """Wait for it, a tenth of a second at a time."""
        while not check():
            await asyncio.sleep(0.1)
