"""The one place where runs change: decide, journal, apply, wake.

The sequencer takes the commands that have queued up, decides and applies them, makes their events
durable in one commit, and only then answers and wakes: nobody is told what a crash could take back.
Of a run whose events could not be made durable, nothing that was decided counts: it is built again
from the journal.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from rendezvous.compat import TaskGroup, timeout
from rendezvous.registry.clock import RegistryClock
from rendezvous.registry.counters import COUNTERS
from rendezvous.registry.journal import Journal, Record
from rendezvous.registry.live_run import LiveRun
from rendezvous.registry.log_views import Limits
from rendezvous.registry.meters import Meters
from rendezvous.registry.options import Options
from rendezvous.registry.retention import Retention
from rendezvous.registry.runs import Runs
from rendezvous.registry.sweep import due_now, seconds_until_sweep
from rendezvous.registry.tenants import Tenants
from rendezvous.run import events
from rendezvous.run.events import Event
from rendezvous.wire.errors import (
    InternalError,
    RdzvError,
    RegistryError,
    RunOver,
    Unavailable,
)
from rendezvous.wire.run import Phase

logger = logging.getLogger(__name__)

T = TypeVar("T")

_LOGGED = ("created", "joined")
"""Kinds of events that the log has of every run and node, usual or not."""
_BATCH = 1_000
_MOST_QUEUED = 100_000
_MAY_WAIT_SECONDS = 0.01
_FAILED = "the registry failed; see its log"


@dataclass(frozen=True, slots=True)
class Change:
    """One event for one run, on its way into the journal."""

    live: LiveRun
    event: Event


@dataclass(slots=True)
class _Command:
    """Something to decide on.

    Attributes:
        about: The run whose events it is answered with; None: those of all.
    """

    decide: Callable[[float], list[Change]]
    done: asyncio.Future[None]
    may_wait: bool
    about: str | None
    error: RdzvError | None = None

    def failed(self, errors: Mapping[str, RdzvError]) -> None:
        """These runs' events are not durable; nor is what a refusal may go by."""
        about = self.about
        found = next(iter(errors.values()), None) if about is None else errors.get(about)
        self.error = found or self.error


class Sequencer:
    """The runs of one registry, and all that changes them; `clock` gives monotonic seconds."""

    def __init__(self, journal: Journal, clock: Callable[[], float], options: Options) -> None:
        self._journal = journal
        self.options = options
        self._queue: deque[_Command] = deque()
        self._queued = asyncio.Event()
        self.clock = RegistryClock(clock, self._stalled)
        self.kept = Runs(journal, self.clock, options)
        self.runs = self.kept.here
        self.retention = Retention(journal, self.kept)
        self.tenants = Tenants(journal, self.runs, clock)
        self._recovered: list[LiveRun] = []
        self.ready = asyncio.Event()
        """What was recovered may be told."""
        self.closing = asyncio.Event()
        self.standstill = ""
        """Why nothing can be decided for the time being."""
        self._standstill_hint = ""
        self.counters = dict.fromkeys(COUNTERS, 0)
        self.meters = Meters(clock)
        self.view_limits = Limits()

    def _stalled(self) -> None:
        for live in self.runs.values():
            live.leases.stalled()

    async def recover(self) -> int:
        """Build every run again from the journal; returns how many there are. Raises UsageError."""
        await self.tenants.read()
        self._recovered = await self.kept.recover()
        return len(self._recovered)

    async def serve(self) -> None:
        """Sequence commands and sweep leases until cancelled."""
        async with TaskGroup() as group:
            group.create_task(self._sequence())
            await self._tell_recovered()
            group.create_task(self._sweep())
            group.create_task(self.retention.serve())

    async def _tell_recovered(self) -> None:
        """That the registry came back is durable before anything is told of what it has read."""
        recovered, self._recovered = self._recovered, []
        going = [live for live in recovered if live.run.phase is not Phase.FINISHED]
        if going:
            with contextlib.suppress(RegistryError):  # logged; serve what there is
                await self.change(lambda _: [Change(live, events.Restarted()) for live in going])
        for live in recovered:
            if live.news is None and self.runs.get(live.run.id) is live:
                live.publish(live.now())
        self.ready.set()

    def stand_still(self, why: str, hint: str = "") -> None:
        """Decide nothing from now on, for no time passes: the journal is away, or keeps nothing."""
        if not self.standstill:
            self.standstill, self._standstill_hint = why, hint
            self.clock.hold()
            for live in self.runs.values():
                live.unwritten.failed(why, live.now())

    def go_on(self) -> None:
        """The journal is there again."""
        if self.standstill:
            self.standstill = ""
            self.clock.go_on()
            for live in self.runs.values():
                live.unwritten.over()

    # --- commands -----------------------------------------------------------------------------

    async def change_run(
        self, live: LiveRun, decide: Callable[[float], Event | None], *, may_wait: bool = False
    ) -> None:
        """Have one run changed by the event that is decided on, if there is one."""

        def changes(_: float) -> list[Change]:
            if self.runs.get(live.run.id) is not live:
                live.check_is_here()
                if self.kept.goes_on(live):
                    raise Unavailable(f"run '{live.run.id}' is on its way")
                raise RunOver(
                    f"launch {live.run.spec.launch_id} of run '{live.run.id}' has ended, and "
                    "the registry has removed it"
                )
            event = decide(live.now())
            return [] if event is None else [Change(live, event)]

        await self.change(changes, about=live.run.id, may_wait=may_wait)

    async def look(self, view: Callable[[float], T], about: str | None = None) -> T:
        """A view of the state, answered once all that it tells of is durable: of a run, or all."""
        seen: list[T] = []

        def look(now: float) -> list[Change]:
            seen.append(view(now))
            return []

        if self.standstill:  # what was decided before may still wait to become durable
            lives = self.runs.values() if about is None else self._here([about])
            if not all(live.is_durable for live in lives):
                raise Unavailable(self.standstill, hint=self._standstill_hint)
            look(self.clock.now())
        else:
            await self.change(look, about=about)
        return seen[0]

    async def change(
        self,
        decide: Callable[[float], list[Change]],
        *,
        about: str | None = None,
        may_wait: bool = False,
    ) -> None:
        """Decide in turn; returns once what was decided is durable, and raises why it is not.

        What is `about` a run does not care for the others. What `may_wait` is written with what
        comes in the next moment, unless it is news to nodes: whoever asks waits for those in any
        case.
        """
        if self.closing.is_set():
            raise Unavailable("the registry is closing")
        if self.standstill:
            raise Unavailable(self.standstill, hint=self._standstill_hint)
        command = _Command(decide, asyncio.get_running_loop().create_future(), may_wait, about)
        if len(self._queue) >= _MOST_QUEUED:
            raise Unavailable("the registry has more requests than it can handle")
        self._queue.append(command)
        self._queued.set()
        await command.done

    async def _sequence(self) -> None:
        while True:
            await self._commit(await self._next(_BATCH))

    async def _next(self, most: int) -> list[_Command]:
        """What has queued up; waits for it."""
        await self._queued.wait()
        batch = [self._queue.popleft() for _ in range(min(most, len(self._queue)))]
        if not self._queue:
            self._queued.clear()
        return batch

    async def _commit(self, batch: list[_Command]) -> None:
        touched: dict[str, int] = {}
        errors: Mapping[str, RdzvError] = {}
        closing: RdzvError | None = Unavailable("the registry is closing")
        try:
            errors = await self._keep(batch, touched)
            if errors:
                await self._take_back(errors)
            closing = None
        finally:
            for command in batch:
                command.failed(errors)
                command.error = command.error or closing
                _answer(command)
        self._log({name: before for name, before in touched.items() if name not in errors})

    async def _keep(
        self, batch: list[_Command], touched: dict[str, int]
    ) -> Mapping[str, RdzvError]:
        """Decide, make durable and tell; returns by run why what was decided does not count."""
        errors: Mapping[str, RdzvError] = {}
        try:
            if self.standstill:
                raise Unavailable(self.standstill, hint=self._standstill_hint)
            records = self._decide_all(batch, touched)
            await self._take_more(batch, touched, records)
            if records:
                errors = await self._write(records, touched)
            for live in self._here(name for name in touched if name not in errors):
                live.unwritten.over()
                self.meters.durable(live)
                live.publish(live.now())
        except Unavailable as exc:
            for command in batch:
                command.error = command.error or exc
        except Exception:
            logger.exception("%d requests were not written to the journal", len(batch))
            errors = dict.fromkeys(touched, InternalError(_FAILED))
            for command in batch:
                command.error = command.error or InternalError(_FAILED)
        return errors

    async def _take_back(self, errors: Mapping[str, RdzvError]) -> None:
        """What was decided of these runs does not count."""
        for name, error in errors.items():
            logger.error("run %s was not written to the journal: %s", name, error)
            if isinstance(error, Unavailable) or not await self._rebuilt(name):
                self.kept.doubt(name, Unavailable(error.message, hint=error.hint))
                continue
            if (live := self.runs.get(name)) is not None:
                live.unwritten.failed(error.one_line, live.now())

    async def _rebuilt(self, name: str) -> bool:
        """Whether the run could be read; a journal that is shared may be away by now."""
        try:
            await self.kept.rebuild(name)
        except Unavailable:
            return False
        return True

    async def _take_more(
        self, batch: list[_Command], touched: dict[str, int], records: list[Record]
    ) -> None:
        """While nobody waits for any of it, take what comes in the next moment into the batch."""
        if not self._may_wait(batch, touched):
            return
        with contextlib.suppress(TimeoutError):
            async with timeout(_MAY_WAIT_SECONDS):
                while room := _BATCH - len(batch):
                    more = await self._next(room)
                    batch += more
                    records += self._decide_all(more, touched)
                    if not self._may_wait(more, touched):
                        return

    def _may_wait(self, batch: list[_Command], touched: Collection[str]) -> bool:
        if not all(command.may_wait for command in batch):
            return False
        return not any(live.has_news for live in self._here(touched))

    def _here(self, names: Iterable[str]) -> Iterator[LiveRun]:
        """Those of the runs that have not gone to another replica in the meantime."""
        return (live for live in map(self.runs.get, names) if live is not None)

    async def _write(
        self, records: list[Record], touched: Collection[str]
    ) -> Mapping[str, RdzvError]:
        """Make the records durable; what is to be told of them is put into words meanwhile.

        It is not cancelled: a journal with a standby takes that for an acknowledgement.
        """
        began = self.meters.clock()
        writing = asyncio.ensure_future(self._journal.append(records))
        try:
            await asyncio.sleep(0)
            for live in self._here(touched):
                live.prepare(live.now())
        finally:
            errors = await asyncio.shield(writing)
        self.meters.committed(began, len(records))
        self.counters["commits"] += 1
        self.counters["events"] += sum(record.run not in errors for record in records)
        return errors

    def _decide_all(self, batch: list[_Command], touched: dict[str, int]) -> list[Record]:
        """Decide and apply every command; a refusal concerns its own command alone."""
        now = self.clock.now()
        records: list[Record] = []
        for command in batch:
            try:
                changes = command.decide(now)
            except RdzvError as exc:
                self.counters["refusals"] += 1
                command.error = exc
                continue
            except Exception:
                logger.exception("a request could not be decided")
                command.error = InternalError(_FAILED)
                continue
            for change in changes:
                live = change.live
                touched.setdefault(live.run.id, live.number)
                records.append(live.decide(change.event, live.now()))
        return records

    def _log(self, touched: dict[str, int]) -> None:
        """Write down what has happened; `touched` holds each run's number before."""
        for live in self._here(touched):
            for line in live.lines_after(touched[live.run.id]):
                level = logging.DEBUG if line.usual and line.kind not in _LOGGED else logging.INFO
                logger.log(level, "run %s epoch %d: %s", live.run.id, line.epoch, line.reason)

    # --- the sweep ----------------------------------------------------------------------------

    async def _sweep(self) -> None:
        while True:
            pause, began = seconds_until_sweep(self.runs.values()), self.meters.clock()
            await asyncio.sleep(pause)
            self.meters.woke(began + pause)
            if not self.runs:
                self.clock.now()  # which takes the process for stalled where nobody looks at it
            elif not self.standstill:
                with contextlib.suppress(RegistryError):  # logged; the next sweep decides again
                    await self.change(self._decide_sweep)

    def _decide_sweep(self, _: float) -> list[Change]:
        return [Change(live, event) for live, event in due_now(self.runs.values())]


def _answer(command: _Command) -> None:
    if command.done.cancelled():
        return
    if command.error is not None:
        command.done.set_exception(command.error)
    else:
        command.done.set_result(None)
