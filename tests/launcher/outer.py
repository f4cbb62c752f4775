"""The outer world of a launch that is driven step by step: whatever is asked of it waits."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from launcher.plan.avoiding import NO_PLACES, Places
from launcher.plan.plan import WorkerRun
from launcher.prepare.environment import LaunchEnvironment
from launcher.prepare.preparation import Preparation, prepare
from launcher.settings import LaunchSettings
from launcher.state.launch_record import LaunchRecord
from launcher.state.ledger import Ledger, LedgerEntry
from launcher.state.state_dir import StateDir
from rendezvous.talk.credentials import registry_credential
from rendezvous.talk.join_string import RegistryPlace, RegistryString
from rendezvous.wire.errors import Cause, Unavailable, UsageError
from rendezvous.wire.run import EventLine, Phase, Result, RunReport, SlotNews
from rendezvous.wire.table import EndpointTable
from tests.support.virtual_time import VirtualLoop


class Starter(NamedTuple):
    """A scheduler: see the contract."""

    name: str
    poll_seconds: float
    loopback: bool = False
    finds: bool = True
    keeps_logs: bool = False
    by_hand: bool = False


class Key(NamedTuple):
    """One worker run."""

    slot: int
    generation: int


SLURM = Starter("slurm", 1.0)
LOCAL = Starter("local", 0.1, loopback=True)
UNUSABLE = Starter("unusable", 1.0)
BLIND = Starter("vessl", 1.0, finds=False)
MANUAL = Starter("manual", 1.0, by_hand=True)
ONE = Key(1, 1)
SECRET = bytes(range(32))
PORT = 29_600
STANDING = RegistryPlace(("10.0.0.9",), PORT, "plain", b"")
OWN = RegistryPlace(("10.0.0.1",), PORT, "plain", b"")


@dataclass(frozen=True)
class Facts:
    """What is launched.

    Attributes:
        here: Starts slot 0: on this machine where it is LOCAL; None: nobody does.
        others: Starts the other slots; None: they come by themselves.
        owns: The registry is a child of the launcher; else it is a standing one.
        secrets: The sealed variables of all nodes.
        port: Given by the person.
        restarts: How often the launcher's own job was requeued.
    """

    here: Starter | None = LOCAL
    others: Starter | None = SLURM
    owns: bool = True
    places: Places = NO_PLACES
    secrets: tuple[str, ...] = ()
    port: int | None = None
    restarts: int = 0


@dataclass(frozen=True)
class Left:
    """A worker run that may still exist, by a former launcher's ledger; where `of` names a launch,
    another one than the former had submitted it."""

    key: Key
    starter: Starter = SLURM
    handle: str = ""
    host: str = ""
    of: str = ""

    def entry(self) -> LedgerEntry:
        """As the ledger has it."""
        name = f"rdzv-{self.of or 'former'}-{self.key.slot}-{self.key.generation}"
        run = WorkerRun(*self.key, name, {"HOST": self.host} if self.host else {}, "spec")
        return LedgerEntry(run, self.starter.name, self.handle, former=bool(self.of))


@dataclass(frozen=True)
class Former:
    """The launch that is on record; its fingerprint is that of the one that begins where it is f.

    Attributes:
        ended: Its result is on record.
        has_keys: Its secret is there.
        same_registry: It is at the standing registry that is wanted.
    """

    launch_id: str = "k7f2a9c1xy"
    host: str = "h1"
    starter: str = "slurm"
    owns_registry: bool = True
    fingerprint: str = "f"
    ended: bool = False
    has_keys: bool = True
    same_registry: bool = False


class Told(NamedTuple):
    """Something that the launch has done.

    Attributes:
        kind: The first of its words; what is broken off is of the kind of that.
        of: The worker run, the news, or the words that it is about.
    """

    at: float
    kind: str
    key: Key | None
    words: str
    of: Any


@dataclass(eq=False)
class Call:
    """Something that the launch has asked, and that is not answered."""

    kind: str
    key: Key | None
    of: Any
    answer: asyncio.Future[Any]


class Troubled(NamedTuple):
    """A try to submit has failed, and there may be another one."""

    words: str


Kinds = str | tuple[str, ...]


def settings_of(root: Path, **given: Any) -> LaunchSettings:
    """What a person asks for, where nothing else is given: two slots, none of them here."""
    values: dict[str, Any] = {"nnodes": "2", "scheduler": "manual", "local_node": False}
    values |= {"hosts": "off", "rdzv_id": "r", "state_dir": root, "framework": "command"}
    return LaunchSettings(**(values | given))


class Machine(LaunchEnvironment):
    """The machine of every launch."""

    def hostname(self) -> str:
        return "h1"

    def addresses(self) -> list[str]:
        return ["10.0.0.1"]

    def secret(self) -> bytes:
        return SECRET


class Outer(Machine):
    """The outer world, and what a launch has done there.

    Attributes:
        told: All of that.
        calls: What waits for an answer, the newest last.
        breaks: The error that a kind of thing comes to that is answered at once, until it is taken
            away.
        drawn: The number of which pauses are made, 0 to 1.
        unclosed: What the launch has to close before its end.
    """

    def __init__(self, what: Facts, former: Former | None, left: tuple[Left, ...]) -> None:
        super().__init__()
        self.told: list[Told] = []
        self.calls: list[Call] = []
        self.breaks: dict[str, Exception] = {}
        self.drawn = 0.0
        self.unclosed: list[object] = []
        self.loop = VirtualLoop(pytest.fail)
        starters = [what.here, what.others, *(one.starter for one in left)]
        self._schedulers = {one.name: _scheduler(self, one) for one in starters[::-1] if one}
        self.prepared = self._prepare(what)
        self.folder = _State(self, former, _Ledger(self, left))
        self._on_signal: list[Callable[[int], None]] = []

    @property
    def now(self) -> float:
        """The loop's time."""
        return self.loop.time()

    def tell(self, kind: str, key: Key | None = None, *more: object, of: Any = None) -> None:
        """Something is done; raises what it comes to, where that is set."""
        whose = "" if key is None or key == ONE else f"{key.slot}.{key.generation}"
        words = " ".join(filter(None, [kind, whose, *(str(one) for one in more)]))
        self.told.append(Told(self.now, kind, key, words.replace(";", "|"), of))
        if (error := self.breaks.get(kind)) is not None:
            raise error

    async def ask(
        self, kind: str, key: Key | None = None, *more: object, of: Any = None, words: str = ""
    ) -> Any:
        """Something is asked; waits for its answer."""
        self.tell(words or kind, key, *more, of=of)
        call = Call(kind, key, of, asyncio.get_running_loop().create_future())
        self.calls.append(call)
        try:
            return await call.answer
        except asyncio.CancelledError:
            self.break_off(kind, key)
            raise
        finally:
            self.calls.remove(call)

    def open(self, kind: Kinds, key: Key | None = None) -> Call:
        """The newest call of this kind that waits."""
        found = self.all_open(kind, key)
        assert found, f"nobody waits for '{kind}', but for {[one.kind for one in self.calls]}"
        return found[-1]

    def all_open(self, kind: Kinds, key: Key | None = None) -> list[Call]:
        """The calls of these kinds that wait."""
        kinds = (kind,) if isinstance(kind, str) else kind
        return [one for one in self.calls if one.kind in kinds and key in (None, one.key)]

    def opens(self, what: object) -> Callable[[], Any]:
        """Something is to be closed before the end; returns what closes it."""
        self.unclosed.append(what)

        async def close() -> None:
            self.closed(what)

        return close

    def closed(self, what: object) -> None:
        """It was closed, maybe again."""
        self.unclosed[:] = [one for one in self.unclosed if one is not what]

    def break_off(self, kind: str, key: Key | None = None) -> None:
        """Tell that something is asked no longer; that of a process ends with it."""
        if kind != "start child":
            self.tell(f"break off {kind}", key)
            self.told[-1] = self.told[-1]._replace(kind=kind)

    # --- the outer world ----------------------------------------------------------------------

    def _prepare(self, what: Facts) -> Preparation:
        """What is launched: as a person would, with the schedulers of this drive."""
        first = what.here or LOCAL
        others = what.others or first
        base = _prepared()
        site = replace(
            base.plan.site,
            hosts=what.places.hosts,
            more_hosts=what.places.more,
            takes_host=bool(what.places.hosts),
            avoids=what.places.avoids,
            tells_host=what.places.tells,
        )
        changes: dict[str, Any] = {"scheduler": others.name, "avoid": [*what.places.avoid]}
        changes |= {"local_node": first.loopback, "port": what.port or PORT}
        settings = base.settings.model_copy(update=changes)
        if what.port is None:
            settings.model_fields_set.discard("port")
        given = replace(base.plan.given, secrets=dict.fromkeys(what.secrets, "?"))
        environ = {"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": str(what.restarts)}
        standing = RegistryString(STANDING, registry_credential(SECRET))
        return replace(
            base,
            plan=replace(base.plan, site=site, settings=settings, given=given),
            context=replace(base.context, environ=environ if what.restarts else {}),
            here=self._schedulers[first.name],
            others=self._schedulers[others.name],
            group_secret=None if what.others else SECRET,
            standing=None if what.owns else standing,
        )

    def scheduler(self, starter: str, context: object) -> Any:
        if starter == UNUSABLE.name:
            raise UsageError("no such profile")
        return self._schedulers[starter]

    def jitter(self) -> float:
        return self.drawn

    def launch_id(self) -> str:
        return "n3wl4unch1"

    def client(self, *_: object) -> Any:
        """See the base class; who dials a registry closes both schedulers as well."""
        for one in (self.prepared.here, self.prepared.others):
            one.close = self.opens(one)  # type: ignore[method-assign]
        return _client(self)

    def words_keeper(self, *_: object) -> Any:
        return SimpleNamespace(fetch=lambda: self.ask("fetch words"))

    def on_signals(self, tell: Callable[[int], None]) -> None:
        self._on_signal.append(tell)

    def listen(self, port: int, *, address: str, exact: bool) -> Any:
        """See the base class; at the port of a former launch it is `open former`."""
        former = exact and self.folder.record() is not None
        self.tell("open former" if former else "listen")
        made = SimpleNamespace(getsockname=lambda: ("", port))
        self.unclosed.append(made)
        made.close = lambda: self.closed(made)
        return made

    def configure(self, *_: object, **__: object) -> RegistryPlace:
        return RegistryPlace((), 0, "plain", b"")

    async def start_registry(self, *_: object) -> Any:
        """See the base class; its answer is its exit code."""
        over = self.loop.create_task(self.ask("start child"))

        async def end(kill_after: float) -> None:
            try:
                await self.ask("close child")
            finally:
                for call in self.all_open("start child"):
                    call.answer.set_result(0)

        return SimpleNamespace(wait=lambda: asyncio.shield(over), end=end)

    def registry_words(self, *_: object) -> str:
        return "no room"

    def board(self, *_: object, **__: object) -> Any:
        return SimpleNamespace(
            status=lambda status: self.tell("show"),
            event=lambda line, said: self.tell("show event", None, line.number, of=said),
            say=lambda text: self.tell("say", None, text, of=text),
            close=lambda: self.tell("close board"),
        )


async def _at_once(*_: object) -> None:
    """What is answered well at once."""


def _scheduler(outer: Outer, starter: Starter) -> Any:
    """A scheduler of which each question waits."""

    async def submit(run: WorkerRun, join: str, *, trouble: Any) -> Any:
        key = _key(run)
        answer = await outer.ask("submit", key, of=run)
        while isinstance(answer, Troubled):
            try:
                await trouble(answer.words)
            except BaseException:
                outer.break_off("submit", key)
                raise
            answer = await outer.ask("submit", key, of=run, words="try again")
        return answer

    async def logs(run: WorkerRun, handle: str, **_: object) -> AsyncIterator[str]:
        yield await outer.ask("read last line", _key(run), handle)

    def cancel(run: WorkerRun, handle: str, *, grace_seconds: float) -> Any:
        return outer.ask("cancel worker run", _key(run), handle, grace_seconds)

    return SimpleNamespace(
        **starter._asdict(),
        make_ready=_at_once,
        submit=submit,
        find=lambda run: outer.ask("find", _key(run)),
        describe=lambda run, handle: outer.ask("describe", _key(run), handle),
        cancel=cancel,
        logs=logs,
        close=_at_once,
        start_words=lambda handle: f"start {handle}",
        cancel_words=lambda run, handle: f"end {handle}" if handle else "",
    )


def _client(outer: Outer) -> Any:
    """A connection to the registry; the table comes with what was checked, in one answer."""
    kept: list[RunReport] = []

    def slot_news(run: str, slot: int, news: SlotNews) -> Any:
        cause: dict[str, str] = {Cause.PREEMPTED: "preempted", Cause.SCHEDULER_FAILED: "final"}
        causes = cause[news.cause] if news.cause else ""
        more = [news.state, news.handle, news.detail, causes, news.hint]
        kind = "explain" if news.explains else "tell slot"
        return outer.ask(kind, Key(slot, news.generation), *more, of=news)

    async def table(run: str, digest: str) -> EndpointTable:
        kept.append(await outer.ask("keep"))
        values = {"run": "r", "launch_id": "k7f2a9c1", "master_address": "h", "master_port": 1}
        return EndpointTable.model_validate(values | {"epoch": 1, "rows": []})

    async def checks(run: str) -> Any:
        return kept.pop() if kept else await outer.ask("keep report")

    async def events(run: str, after: int) -> AsyncIterator[EventLine]:
        found: tuple[Any, ...] = await outer.ask("follow events", None, after)
        usual: tuple[Any, ...] = ("joined", Phase.GATHERING)
        number, broken, kind, phase = (*found, *usual[len(found) - 2 :])
        if number > after:
            yield EventLine(number, 0.0, kind, "one", phase, 0)
        if broken:
            raise Unavailable("they broke off")

    made = SimpleNamespace(
        base="https://registry",
        lines=SimpleNamespace(is_elsewhere=lambda base: False),
        create=lambda run, spec: outer.ask("create run", of=spec),
        status=lambda run, after=-1, wait=0.0: outer.ask("ask status", None, after, float(wait)),
        cancel=lambda run, reason: outer.ask("cancel run", None, reason, of=reason),
        slot_news=slot_news,
        table=table,
        checks=checks,
        ask=lambda *_: outer.ask("send secrets"),
        events=events,
    )
    made.close = outer.opens(made)
    return made


class _Ledger(Ledger):
    """What is written down is told; it begins with what a former launcher has left."""

    def __init__(self, outer: Outer, left: Iterable[Left]) -> None:
        super().__init__(Path("/state/r/worker-runs.jsonl"))
        self._outer, self._left = outer, [one.entry() for one in left]

    def left(self) -> list[LedgerEntry]:
        return self._left

    def begin(self, entry: LedgerEntry) -> None:
        if entry.handle:
            self._outer.tell("note", _key(entry.run), entry.handle, "whole")
        else:
            self._outer.tell("write intent", _key(entry.run), of=entry.run)

    def note(self, entry: LedgerEntry) -> None:
        self._outer.tell("note", _key(entry.run), entry.handle, "gone" * entry.gone)


class _State(StateDir):
    """The run's folder, in memory."""

    def __init__(self, outer: Outer, former: Former | None, ledger: Ledger) -> None:
        super().__init__(Path("/state"), "r")
        self._outer, self._former, self._ledger = outer, former, ledger

    @property
    def ledger(self) -> Ledger:
        return self._ledger

    def record(self) -> LaunchRecord | None:
        if (one := self._former) is None:
            return None
        own = self._outer.prepared.fingerprint()
        return LaunchRecord(
            run="r",
            launch_id=one.launch_id,
            scheduler=one.starter,
            place=(STANDING if one.same_registry else OWN).to_json(),
            owns_registry=one.owns_registry,
            host=one.host,
            fingerprint=own if one.fingerprint == "f" else one.fingerprint,
        )

    def result(self) -> Any:
        return self._former if self._former and self._former.ended else None

    def has_secret(self) -> bool:
        return self._former is not None and self._former.has_keys

    def secret(self, make: object = None) -> bytes:
        return SECRET

    def forget_launch(self, kept: Iterable[str] = (), *, log_dir: Path | None = None) -> None:
        self._outer.tell("make room", None, *kept)

    def write(self, name: str, data: bytes) -> Path:
        return self.path / name

    def write_record(self, record: LaunchRecord) -> None:
        self._outer.tell("write record", of=record)

    def write_result(self, result: Result) -> None:
        self._outer.tell("write result", None, result.code, result.message, of=result)


def _key(run: WorkerRun) -> Key:
    return Key(run.slot, run.generation)


@functools.cache
def _prepared() -> Preparation:
    """What every launch here has of a real one."""
    more: dict[str, Any] = {"nnodes": "48", "local_node": True, "grace": 10.0}
    settings = settings_of(Path("/state"), orphan_timeout=120.0, **more)
    scheduler: Any = SimpleNamespace(name="local", loopback=False)
    return prepare(settings, ["true"], {}, make=lambda *_: scheduler)
