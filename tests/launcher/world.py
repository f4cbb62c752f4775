"""A launch's outer world in memory, on a clock that jumps, with a line for each call to it.

The run's own machine stands at the other end of its connections. What a test is about (a try that
fails, a node that joins) it says itself; schedulers and registry answer well otherwise.
"""

from __future__ import annotations

import asyncio
import functools
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from launcher import port as port_module
from launcher.plan.plan import HIDDEN, Plan, Submission, WorkerRun
from launcher.port import LauncherPort
from launcher.prepare.environment import Child, Socket, WordsKeeper
from launcher.prepare.preparation import Preparation, prepare
from launcher.run.command import launch
from launcher.schedulers.contract import Scheduler, SchedulerContext, Trouble, unheard
from launcher.schedulers.description import Description
from launcher.schedulers.shipped import specs_folder
from launcher.show.board import Board
from launcher.state.state_dir import StateDir
from rendezvous.feature import Feature, Lazy
from rendezvous.run.decision import Outcome
from rendezvous.run.events import Event
from rendezvous.run.rounds import run_report
from rendezvous.run.views import event_line, run_status
from rendezvous.talk.client import RegistryClient
from rendezvous.talk.credentials import Credential
from rendezvous.talk.join_string import JoinString, RegistryPlace
from rendezvous.wire.errors import NotFound, RdzvError, RunExists, UsageError
from rendezvous.wire.run import EventLine, RunReport, RunSpec, RunStatus, SlotNews, SlotState
from rendezvous.wire.table import EndpointTable
from tests.launcher.outer import Machine, settings_of
from tests.support.courses import one_line, said, values_of
from tests.support.driver import Drive
from tests.support.virtual_time import run_virtually

WORDS = "no room"
_LOOKS = 0.1
"""How often a registry that waits with its answer looks again."""


@dataclass
class Made:
    """A run that a scheduler has."""

    key: str
    state: SlotState = SlotState.RUNNING
    detail: str = ""


class Run(Drive):
    """The run at its registry, with a line for each event."""

    def __init__(self, spec: RunSpec, now: float) -> None:
        self.events: list[EventLine] = []
        super().__init__(spec, now)

    def apply(self, event: Event) -> Outcome:
        outcome = super().apply(event)
        self.events.append(event_line(self.run, len(self.journal), event, outcome, self.now))
        return outcome

    def cancel_now(self, why: str) -> None:
        """Somebody cancels it, unless it is over."""
        if (event := self.cancel(why)) is not None:
            self.apply(event)


@dataclass
class Fleet:
    """A scheduler of which each call is told; it lists, runs and ends what it was given.

    Attributes:
        fails: What the next calls of a kind for a worker run come to, by both: `submit 2.1`.
        stays: The worker runs, by slot and generation, that it does not end.
    """

    world: World
    name: str
    loopback: bool = False
    poll_seconds: float = 3.0
    finds: bool = True
    keeps_logs: bool = True
    by_hand: bool = False
    made: dict[str, Made] = field(default_factory=dict)
    fails: dict[str, list[Any]] = field(default_factory=dict)
    stays: set[str] = field(default_factory=set)
    shown: dict[str, object] = field(default_factory=dict)

    async def _comes(self, what: str, run: WorkerRun, more: object = "") -> Any:
        """Tell of a call, with what it is to come to; raises that, where it is an error."""
        whose = f"{what} {run.slot}.{run.generation}"
        self.world.tell(f"{self.name}: {whose} {run.name} {more}")
        await asyncio.sleep(0.125)
        return self._found(whose)

    def _found(self, whose: str) -> Any:
        found = self.fails[whose].pop(0) if self.fails.get(whose) else None
        if isinstance(found, Exception):
            raise found
        return found

    def prepare(self, run: Submission, join: str) -> str:
        self.world.tell(f"{self.name}: prepare {run.name} {join == HIDDEN}")
        self._found(f"prepare {run.slot}.{run.generation}")
        return ""

    def submit_words(self, run: Submission) -> str:
        return ""

    async def make_ready(self, run: Submission) -> None:
        await self._comes("make ready", run)

    async def close(self) -> None:
        self.world.tell(f"{self.name}: close")

    async def submit(self, run: Submission, join: str, *, trouble: Trouble = unheard) -> str:
        to = JoinString.parse(join)
        where = f"{','.join(to.place.addresses)}:{to.place.port} {to.place.trust}"
        known = f"with {run.source.rpartition('/')[2]} as {to.slot} of {to.run}/{to.launch_id}"
        found = await self._comes("submit", run, f"{known} at {where} {_short(to.token)}")
        while isinstance(found, str):
            await trouble(found)
            found = await self._comes("submit", run, "again")
        handle = str(100 + 10 * run.slot + run.generation)
        self.made[run.name] = Made(handle)
        return handle

    async def find(self, run: WorkerRun) -> str | None:
        await self._comes("find", run)
        found = self.made.get(run.name)
        return found.key if found and found.state is SlotState.RUNNING else None

    async def describe(self, run: WorkerRun, handle: str) -> Description:
        """The same answer is told once."""
        found = self.made.get(run.name, Made("", SlotState.UNKNOWN, "no such run"))
        whose = f"describe {run.slot}.{run.generation}"
        if (handle, found) != self.shown.get(run.name) or self.fails.get(whose):
            self.shown[run.name] = handle, Made(found.key, found.state, found.detail)
            await self._comes("describe", run, f"{handle}: it is {found.state} {found.detail}")
        return Description(found.state, found.detail)

    async def cancel(self, run: WorkerRun, handle: str, *, grace_seconds: float) -> None:
        whose = f"{run.slot}.{run.generation}"
        await self._comes("cancel", run, f"{handle} within {grace_seconds:g} s")
        if whose not in self.stays:
            self.made[run.name].state = SlotState.ENDED

    def end(self, slot: int, state: SlotState = SlotState.ENDED, detail: str = "") -> None:
        """The newest worker run of a slot ends by itself."""
        names = [name for name in self.made if name.split("-")[-2] == str(slot)]
        for name in names[-1:]:
            self.made[name].state, self.made[name].detail = state, detail

    def start_words(self, handle: str) -> str:
        return f"{self.name} start {handle}"

    def cancel_words(self, run: WorkerRun, handle: str | None) -> str:
        return f"{self.name} end {run.name} {handle}"

    async def logs(
        self, run: WorkerRun, handle: str, *, lines: int, follow: bool
    ) -> AsyncIterator[str]:
        found = await self._comes("logs", run, f"{handle} {lines} {follow}")
        for line in found or ():
            yield line


class Client:
    """A connection to the registry: each call is told, and answered by the run's machine."""

    base = "https://registry"

    def __init__(self, world: World, credential: Credential) -> None:
        self.lines = SimpleNamespace(is_elsewhere=lambda base: base != self.base)
        self._world = world
        self._who = f"{credential.kind} {_short(credential)}"
        self._asked: object = None

    async def _reach(self, what: str, more: object = "") -> Run:
        """Raises what the registry answers, where it does not do it."""
        self._world.tell(f"{self._who}: {what} {more}")
        await asyncio.sleep(0.0625)
        return self._world.reached(what.partition(" ")[0])

    async def create(self, run: str, spec: RunSpec) -> RunStatus:
        values = spec.model_dump(exclude_defaults=True)
        values |= {k: _short(v) for k, v in values.items() if k.endswith("sha256")}
        values |= {f"limits.{k}": v for k, v in values.pop("limits", {}).items()}
        self._world.tell(f"{self._who}: create {run} {one_line(said(values))}")
        self._world.reached("create")
        known = self._world.run_of
        if known is None or (known.run.result is not None and known.run.spec != spec):
            self._world.run_of = Run(spec, self._world.now)
            self._world.keys_of.append(spec.launch_id)
        elif known.run.spec != spec:
            raise RunExists("it is another run")
        return self._stands()

    def _stands(self) -> RunStatus:
        run = self._world.run_of
        if run is None:
            raise NotFound("there is no such run")
        self._world.keep_time()
        return run_status(run.run, run.now, run.leases)

    async def status(self, run: str, *, after: int = -1, wait: float = 0.0) -> RunStatus:
        """The same question, again and again, is told once."""
        if (asked := (after, wait)) != self._asked:
            self._asked = asked
            await self._reach("status", f"after {after} for {wait:g} s")
        for _ in range(int(wait / _LOOKS)):
            self._world.reached("status")
            if self._stands().version > after:
                break
            await asyncio.sleep(_LOOKS)
        self._world.reached("status")
        return self._stands()

    async def cancel(self, run: str, reason: str) -> RunStatus:
        (await self._reach(f"cancel {run}", reason)).cancel_now(reason)
        return self._stands()

    async def slot_news(self, run: str, slot: int, news: SlotNews) -> RunStatus:
        values = values_of(news)
        values["token_sha256"] = _short(values["token_sha256"])
        drive = await self._reach(f"tell {run}", f"{slot} {one_line(said(values))}")
        drive.news(slot, **{name: getattr(news, name) for name in type(news).model_fields})
        return self._stands()

    async def table(self, run: str, digest: str) -> EndpointTable:
        drive = await self._reach(f"table {run}", digest == self._stands().digest)
        assert drive.run.table is not None
        return drive.run.table

    async def checks(self, run: str) -> RunReport:
        return run_report((await self._reach(f"checks {run}")).run)

    def note(self, words: str) -> None:
        """Tell what it is used for."""
        self._world.tell(f"{self._who}: {words}")

    async def events(self, run: str, after: int = 0) -> AsyncGenerator[EventLine, None]:
        drive = await self._reach(f"events {run}", f"after {after}")
        while True:
            for line in drive.events[after:]:
                after = line.number
                yield line
            self._world.reached("events")
            if drive.run.result is not None and self._stands().everyone_left:
                return
            await asyncio.sleep(_LOOKS)

    async def close(self) -> None:
        self._world.tell(f"{self._who}: close")


class Process:
    """The registry's process."""

    def __init__(self, world: World, number: int) -> None:
        self._world, self._number = world, number
        self.over: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def wait(self) -> int:
        return await asyncio.shield(self.over)

    async def end(self, kill_after: float) -> None:
        self._world.tell(f"registry {self._number}: end within {kill_after:g} s")
        if not self.over.done():
            self.over.set_result(0)


async def feature_part(port: LauncherPort) -> None:
    """The part of a feature: that it ticks is told at first and at last."""
    client, count = cast(Client, port.client), 0
    async for _ in port.ticks(1.0):
        if not count:
            client.note(f"feature of {port.run} ticks")
        count += 1
        await asyncio.sleep(0.25)
    client.note(f"feature has ended after {count} ticks")


@dataclass
class World(Machine):
    """All of it.

    Attributes:
        lines: What was called, in order.
        fleets: The schedulers, by the names that ledgers have for them.
        run_of: The run at its registry.
        refuses: Why the registry does not do what it is asked next, by the call.
        processes: Of the registry.
        ids: The launch ids that are drawn.
        keys_of: Those of the runs that were created.
        files: What the run's folder held when it was looked at last.
        shows: What the board showed last.
        own: This machine's addresses, where they are not the usual ones.
    """

    root: Path
    lines: list[str] = field(default_factory=list)
    fleets: dict[str, Fleet] = field(default_factory=dict)
    run_of: Run | None = None
    refuses: dict[str, list[RdzvError]] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    ids: list[str] = field(default_factory=lambda: ["k7f2a9c1x3", "b4d8e6g5y1", "c0ffee1234"])
    keys_of: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    shows: str = ""
    own: list[str] | None = None
    signal: Callable[[int], None] | None = None
    task: asyncio.Task[int] | None = None

    def __post_init__(self) -> None:
        for name, more in _FLEETS.items():
            self.fleets[name] = Fleet(self, name, **more)

    def tell(self, words: str) -> None:
        """Something was called."""
        words = words.replace(str(self.root), "ROOT").replace(str(specs_folder()), "SPECS")
        text = " ".join(words.split())
        self.lines.append(f"{self.now:.2f} {text}")

    @property
    def now(self) -> float:
        """The loop's time."""
        try:
            return asyncio.get_running_loop().time()
        except RuntimeError:
            return 0.0

    def keep_time(self) -> None:
        """The registry's clock follows, and what it does by the clock is done."""
        if self.run_of is not None and self.now > self.run_of.now:
            self.run_of.wait(self.now - self.run_of.now)

    def reached(self, what: str) -> Run:
        """The run, for a call that comes through."""
        if self.refuses.get(what):
            error = self.refuses[what].pop(0)
            self.tell(f"! {what}: {type(error).__name__} {error.message}")
            raise error
        self.keep_time()
        return cast(Run, self.run_of)

    # --- the launch's outer world -------------------------------------------------------------

    def jitter(self) -> float:
        return 0.5

    def addresses(self) -> list[str]:
        return super().addresses() if self.own is None else self.own

    def missing(self, plan: Plan, environ: Mapping[str, str]) -> str:
        return ""

    def launch_id(self) -> str:
        return self.ids.pop(0)

    def scheduler(self, starter: str, context: SchedulerContext) -> Scheduler:
        if starter.endswith(".gone"):
            raise UsageError(f"there is no profile {starter}")
        return cast(Scheduler, self.fleets[starter])

    def fork(self, word: str, count: int) -> None:
        self.tell(f"fork {word} {count}")
        self.reached("fork")

    def dismiss(self) -> None:
        self.tell("dismiss")

    def client(
        self, place: RegistryPlace, credential: Credential, request_seconds: float
    ) -> RegistryClient:
        made = Client(self, credential)
        where = f"{','.join(place.addresses)}:{place.port} {place.trust}"
        self.tell(f"{made._who}: dials {where}, {request_seconds:g} s a request")
        return cast(RegistryClient, made)

    def words_keeper(
        self, admin: RegistryClient, state: StateDir, say: Callable[[str], None]
    ) -> WordsKeeper:
        self.tell(f"words keeper of {state.run}: {say == self.say}")

        async def fetch() -> None:
            self.tell(f"last words by {cast(Client, admin)._who}: fetch")
            await asyncio.sleep(0.25)

        return cast(WordsKeeper, SimpleNamespace(fetch=fetch))

    def on_signals(self, tell: Callable[[int], None]) -> None:
        self.tell("on signals")
        self.signal = tell

    def listen(self, port: int, *, address: str, exact: bool) -> Socket:
        self.tell(f"listen {port} of {address!r}, exactly: {exact}")
        bound = port + (0 if exact else 2)
        close = functools.partial(self.tell, f"port {bound} closed")
        return cast(Socket, SimpleNamespace(getsockname=lambda: ("", bound), close=close))

    def configure(self, state: StateDir, secret: bytes, *, tls: bool) -> RegistryPlace:
        self.tell(f"configure {state.run} {secret == state.secret()} tls: {tls}")
        return RegistryPlace((), 0, "certificate" if tls else "plain", b"proof")

    async def start_registry(self, state: StateDir, sock: Socket) -> Child:
        self.processes.append(Process(self, len(self.processes) + 1))
        self.tell(f"registry {len(self.processes)}: start on {sock.getsockname()}")
        await asyncio.sleep(0.5)
        return self.processes[-1]

    def registry_words(self, state: StateDir) -> str:
        self.tell(f"registry words of {state.run}")
        return WORDS

    def echo(self, words: str) -> None:
        self.tell(f"| {words}{' (held)' if self.state().is_held() else ''}")

    # --- the board ----------------------------------------------------------------------------

    def board(self, nodes: int, logs: Path, *, json_events: bool, verbose: bool) -> Board:
        self.tell(f"board {json_events}")
        return cast(Board, self)

    def status(self, status: RunStatus) -> None:
        """What is as before is told once."""
        slots = " ".join(
            f"{one.slot}.{one.generation}:{one.state}"
            + (f"={one.node_state}" * bool(one.node_state))
            for one in status.slots
        )
        if (shows := f"{status.phase} epoch {status.epoch} {slots}") != self.shows:
            self.shows = shows
            self.tell(f"shows {shows}")

    def event(self, line: EventLine, *, said: bool = False) -> None:
        self.tell(f"shows event {line.number} {line.kind}{' (said)' if said else ''}")

    def say(self, text: str) -> None:
        self.tell(f"says {text}")

    def close(self) -> None:
        self.tell("board closed")

    # --- a launch -----------------------------------------------------------------------------

    def state(self, root: Path | None = None, run: str = "r") -> StateDir:
        return StateDir(root or self.root, run)

    def prepared(self, token: str | None = None, **given: Any) -> Preparation:
        """What is launched."""
        settings = settings_of(self.root, **given)
        return prepare(settings, ["true"], {}, group_token=token, make=self.scheduler)

    async def run(self, **settings: Any) -> int:
        """All that `rdzv launch` does, with the credentials that it may have; its exit code."""
        names = settings.keys() & {"group_token", "registry"}
        more = {name: settings.pop(name) for name in names}
        return await launch(settings_of(self.root, **settings), ["true"], {}, world=self, **more)

    def look(self) -> None:
        """Tell what has changed in the run's folder since it was looked at last."""
        files = dict(self._files())
        for name in sorted({*files, *self.files}):
            if files.get(name) != self.files.get(name):
                self.lines.append(f"- {name} {files.get(name, 'gone')}".rstrip())
        self.files = files

    def _files(self) -> Any:
        folder = self.state().path
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            if path.is_dir() or name == "lock":
                continue
            mode = f"{path.stat().st_mode & 0o777:o}"
            yield name, f"{mode} {_content(path)}".replace(str(self.root), "ROOT")

    async def until(self, check: Callable[[], object]) -> None:
        """Wait for it, a tenth of a second at a time."""
        for _ in range(1_000):
            if check():
                return
            if self.task is not None and self.task.done():
                self.tell(f"it is over: {self.task.exception()!r}")
                break
            await asyncio.sleep(0.1)
        pytest.fail("\n".join(self.lines))

    def has(self, words: str) -> bool:
        """Whether a line of the course has these words."""
        return any(words in line for line in self.lines)

    @asynccontextmanager
    async def launched(self, **settings: Any) -> AsyncIterator[asyncio.Task[int]]:
        """A launch that goes on; at the end its exit code and its folder are told."""
        task = self.task = asyncio.create_task(self.run(**settings))
        yield task
        try:
            self.tell(f"exit code {await task}")
        except asyncio.CancelledError:
            self.tell("killed")
        except Exception as exc:  # noqa: BLE001 (it is told)
            self.tell(f"raised {exc!r}")
        others = [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]
        self.tell(f"{len(others)} tasks are left")
        assert not self.state().is_held()
        self.look()

    @property
    def drive(self) -> Run:
        """The run at its registry, at this moment."""
        self.keep_time()
        assert self.run_of is not None
        return self.run_of


BEGAN = 1_790_000_000.0


def _short(of: Any) -> str:
    """The beginning of a digest, enough to tell one from another."""
    if isinstance(of, list):
        return ",".join(map(_short, of))
    if isinstance(of, Credential):
        of = of.sha256()
    return str(of or "")[:6]


_TIMES = ("pid", "started_at", "ended_at", "fingerprint", "elapsed_seconds", "reason", "topic")
_HERE = ("folder",)
_LONG = ("variables", "rows", "slots", "machines")


def _content(path: Path) -> str:
    """What a file holds, without what differs from one machine to another."""
    text = path.read_text()
    if path.suffix not in (".json", ".jsonl"):
        return _short(text).split("\n")[0]
    records = [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else []
    return " / ".join(map(_record, records or [json.loads(text)])) if text else ""


def _record(record: dict[str, Any]) -> str:
    for name in (*_TIMES, *_HERE):
        record.pop(name, None)
        record.get("record", {}).pop(name, None)
    for name in _LONG:
        if name in record:
            record[name] = len(record[name])
    if "source" in record:
        record["source"] = Path(record["source"]).name
    return one_line(said(record))


def virtual(work: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """What is done on a clock that jumps; what is written of its time depends on no machine."""

    def wall_clock() -> float:
        return BEGAN + asyncio.get_running_loop().time()

    @functools.wraps(work)
    def run(*args: Any, **more: Any) -> None:
        feature = Feature("f", launcher=Lazy(f"{__name__}:feature_part"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "time", wall_clock)
            patch.setattr(port_module, "declared", lambda: (feature,))
            run_virtually(work(*args, **more))

    return run


_FLEETS: dict[str, Any] = {
    "local": {"loopback": True, "poll_seconds": 0.5, "keeps_logs": False},
    "manual": {},
    "slurm": {"poll_seconds": 4.0},
}
