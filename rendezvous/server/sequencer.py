"""The one place where runs change: decide, journal, apply, wake.

The sequencer takes the commands that have queued up, decides and applies them, makes their events
durable in one commit, and only then answers and wakes: nobody is told what a crash could take back.
When the commit fails, the runs that it touched are built again from the journal.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeVar

from rendezvous.compat import TaskGroup, timeout
from rendezvous.run import events
from rendezvous.run.events import Event, load_event
from rendezvous.run.leases import SWEEP_SECONDS
from rendezvous.run.protocol import due, launcher_gone
from rendezvous.server.clock import RegistryClock
from rendezvous.server.journal import Journal, Record, applying
from rendezvous.server.live_run import LiveRun
from rendezvous.server.log_views import Limits
from rendezvous.server.meters import Meters
from rendezvous.wire.errors import (
    InternalError,
    RdzvError,
    RegistryError,
    RunOver,
    StorageFull,
    Unavailable,
)
from rendezvous.wire.run import DEFAULT_MAX_RUNS, Phase, RunSpec
from rendezvous.wire.words import printable

logger = logging.getLogger(__name__)

T = TypeVar("T")

_BATCH = 1_000
_MOST_QUEUED = 100_000
_MAY_WAIT_SECONDS = 0.01
_KEEP_FINISHED = 1_000
_KEEP_FINISHED_SECONDS = 3_600.0
_LAUNCHER_SECONDS = 120.0
_LEAST_PAUSE_SECONDS = 0.01
_FAILED = "the registry failed; see its log"
_COUNTERS = (
    "joins",
    "watches",
    "looks",
    "views",
    "reports",
    "metrics",
    "last_words",
    "events",
    "commits",
    "refusals",
)


@dataclass(frozen=True, slots=True)
class Options:
    """What the operator decides.

    Attributes:
        trust_close: Whether a closed connection speaks of the node (not behind an ingress).
        max_runs: How many runs may be in progress at once; those that have ended do not count.
        crowded: Says why further nodes cannot call; empty when they can.
        connections: How many are open.
    """

    trust_close: bool = True
    max_runs: int = DEFAULT_MAX_RUNS
    crowded: Callable[[], str] = lambda: ""
    connections: Callable[[], int] = lambda: 0


@dataclass(frozen=True, slots=True)
class Change:
    """One event for one run, on its way into the journal."""

    live: LiveRun
    event: Event


@dataclass(slots=True)
class _Command:
    decide: Callable[[float], list[Change]]
    done: asyncio.Future[None]
    may_wait: bool
    error: RdzvError | None = None


class Sequencer:
    """The runs of one registry, and all that changes them; `clock` gives monotonic seconds."""

    def __init__(self, journal: Journal, clock: Callable[[], float], options: Options) -> None:
        self._journal = journal
        self.options = options
        self._retired: list[LiveRun] = []
        self._queue: deque[_Command] = deque()
        self._queued = asyncio.Event()
        self.clock = RegistryClock(clock, self._stalled)
        self.runs: dict[str, LiveRun] = {}
        self.closing = asyncio.Event()
        self.counters = dict.fromkeys(_COUNTERS, 0)
        self.meters = Meters(clock)
        self.view_limits = Limits()

    def _stalled(self) -> None:
        for live in self.runs.values():
            live.leases.stalled()

    async def serve(self) -> None:
        """Sequence commands and sweep leases until cancelled."""
        recovered = [run for run in self.runs.values() if run.run.phase is not Phase.FINISHED]
        async with TaskGroup() as group:
            group.create_task(self._sequence())
            if recovered:
                restarted = [Change(live, events.Restarted()) for live in recovered]
                with contextlib.suppress(RegistryError):  # logged; serve what there is
                    await self.change(lambda _: restarted)
            group.create_task(self._sweep())

    # --- commands -----------------------------------------------------------------------------

    async def change_run(
        self, live: LiveRun, decide: Callable[[float], Event | None], *, may_wait: bool = False
    ) -> None:
        """Have one run changed by the event that is decided on, if there is one."""

        def changes(now: float) -> list[Change]:
            if self.runs.get(live.run.id) is not live:
                raise RunOver(
                    f"launch {live.run.spec.launch_id} of run '{live.run.id}' has ended, and "
                    "the registry has removed it"
                )
            event = decide(now)
            return [] if event is None else [Change(live, event)]

        await self.change(changes, may_wait=may_wait)

    async def look(self, view: Callable[[float], T]) -> T:
        """A view of the state, answered once all that it tells of is durable."""
        seen: list[T] = []

        def look(now: float) -> list[Change]:
            seen.append(view(now))
            return []

        await self.change(look)
        return seen[0]

    async def change(
        self, decide: Callable[[float], list[Change]], *, may_wait: bool = False
    ) -> None:
        """Decide in turn; returns once what was decided is durable, and raises why it is not.

        What `may_wait` is written with what comes in the next moment, unless it is news to nodes:
        whoever asks waits for those in any case.
        """
        if self.closing.is_set():
            raise Unavailable("the registry is closing")
        command = _Command(decide, asyncio.get_running_loop().create_future(), may_wait)
        if len(self._queue) >= _MOST_QUEUED:
            raise Unavailable("the registry has more requests than it can handle")
        self._queue.append(command)
        self._queued.set()
        await command.done

    async def _sequence(self) -> None:
        while True:
            await self._commit(await self._next(_BATCH))
            await self._drop_retired()

    async def _next(self, most: int) -> list[_Command]:
        """What has queued up; waits for it."""
        await self._queued.wait()
        batch = [self._queue.popleft() for _ in range(min(most, len(self._queue)))]
        if not self._queue:
            self._queued.clear()
        return batch

    async def _commit(self, batch: list[_Command]) -> None:
        touched: dict[str, int] = {}
        error: RdzvError | None = Unavailable("the registry is closing")
        try:
            records = self._decide_all(batch, touched)
            await self._take_more(batch, touched, records)
            if records:
                await self._write(records, touched)
            for name in touched:
                self.runs[name].unwritten.over()
                self.meters.durable(self.runs[name])
                self.runs[name].publish(self.clock.now())
            error = None
        except Exception as exc:
            known = isinstance(exc, RdzvError)
            logger.error(
                "%d requests were not written to the journal: %s",
                len(batch),
                exc,
                exc_info=not known,
            )
            error = exc if isinstance(exc, RdzvError) else InternalError(_FAILED)
            self._rebuild(set(touched))
            self._say_unwritten(set(touched), error)
        finally:
            for command in batch:
                command.error = command.error or error
                _answer(command)
        if error is None:
            self._log(touched)

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
        return not any(self.runs[name].has_news for name in touched)

    async def _write(self, records: list[Record], touched: Collection[str]) -> None:
        """Make the records durable; what is to be told of them is put into words meanwhile."""
        began = self.meters.clock()
        writing = asyncio.ensure_future(self._journal.append(records))
        try:
            await asyncio.sleep(0)
            for name in touched:
                self.runs[name].prepare(self.clock.now())
        finally:
            await writing
        self.meters.committed(began, len(records))
        self.counters["commits"] += 1
        self.counters["events"] += len(records)

    def _say_unwritten(self, names: set[str], error: RdzvError) -> None:
        words = f"{error.message}; {error.hint}".removesuffix("; ")
        for live in filter(None, map(self.runs.get, names)):
            live.unwritten.failed(words, self.clock.now())

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
                touched.setdefault(change.live.run.id, change.live.number)
                records.append(change.live.apply(change.event, now))
        return records

    def _log(self, touched: dict[str, int]) -> None:
        """Write down what has happened; `touched` holds each run's number before."""
        for name, before in touched.items():
            for line in self.runs[name].lines_after(before):
                level = logging.DEBUG if line.usual else logging.INFO
                logger.log(level, "run %s epoch %d: %s", name, line.epoch, line.reason)

    # --- the sweep ----------------------------------------------------------------------------

    async def _sweep(self) -> None:
        while True:
            pause, began = self._pause(), self.meters.clock()
            await asyncio.sleep(pause)
            self.meters.woke(began + pause)
            with contextlib.suppress(RegistryError):  # logged; the next sweep decides again
                await self.change(self._decide_sweep)

    def _pause(self) -> float:
        """Seconds until the next sweep: a node whose connection has closed is judged when it is
        due, since all others wait for that; when many are, together."""
        now = self.clock.now()
        lives = (live for live in self.runs.values() if not live.has_ended)
        due = min((live.leases.until_closed(now) for live in lives), default=SWEEP_SECONDS)
        return min(SWEEP_SECONDS, max(due, _LEAST_PAUSE_SECONDS))

    def _decide_sweep(self, now: float) -> list[Change]:
        changes, ended = [], []
        for live in self.runs.values():
            if live.has_ended:
                ended.append(live)
                continue
            found = [_with_trouble(event, live, now) for event in due(live.run, now, live.leases)]
            if now - live.launcher_at > _LAUNCHER_SECONDS:
                found += launcher_gone(live.run)
            found += live.stalling.events(live.run, now)
            found += live.pacing.events(live.run, now)
            changes += [Change(live, event) for event in found]
        self._retire(ended, now)
        return changes

    def _retire(self, ended: list[LiveRun], now: float) -> None:
        """Let go of the runs that ended long ago, and of the oldest when there are too many."""
        ended.sort(key=_finished_at, reverse=True)
        self._retired = [
            live
            for newer, live in enumerate(ended)
            if newer >= _KEEP_FINISHED or now - _finished_at(live) > _KEEP_FINISHED_SECONDS
        ]

    async def _drop_retired(self) -> None:
        """Forget these runs, unless one of that name was made meanwhile."""
        retired, self._retired = self._retired, []
        for live in retired:
            name = live.run.id
            if self.runs.get(name) is live:
                try:
                    await self._journal.drop(name)
                except StorageFull as exc:
                    logger.error("finished run %s could not be removed: %s", name, exc)
                else:
                    del self.runs[name]

    # --- recovery -----------------------------------------------------------------------------

    def add(self, name: str, spec: RunSpec, now: float) -> LiveRun:
        """A new run; it takes the place of the one of that name, which has ended."""
        live = LiveRun(
            name,
            spec,
            now,
            replaced=self.runs.get(name),
            trust_close=self.options.trust_close,
            crowded=self.options.crowded,
        )
        self.runs[name] = live
        return live

    def recover(self) -> int:
        """Build every run again from the journal; returns how many there are. Raises UsageError."""
        latest = 0.0
        for record in self._journal.read():
            latest = max(latest, record.at)
            self._replay(record)
        self.clock.restart(latest)
        for live in self.runs.values():
            live.grant_leases(self.clock.now())
            live.publish(self.clock.now())
        return len(self.runs)

    def _replay(self, record: Record) -> None:
        with applying(record):
            event = load_event(record.body)
            if isinstance(event, events.Created):
                self.add(record.run, event.spec, record.at)
            self.runs[record.run].apply(event, record.at)

    def _rebuild(self, names: set[str]) -> None:
        """Forget what could not be kept: the journal is the truth."""
        now = self.clock.now()
        for name in names:
            before = self.runs.pop(name).durable()
            for record in self._journal.read(name):
                self._replay(record)
            if (fresh := self.runs.get(name)) is None:
                continue
            if fresh.run.spec.launch_id != before.run.spec.launch_id:  # it was written all the same
                before.wake_all()
                fresh.grant_leases(now)
                fresh.publish(now)
                continue
            before.take_over(fresh, now)
            before.publish(now)
            self.runs[name] = before


def _with_trouble(event: Event, live: LiveRun, now: float) -> Event:
    """A time-out, with what the registry itself had meanwhile."""
    trouble = live.trouble(now)
    if not trouble or not isinstance(event, events.TimedOut):
        return event
    return event.model_copy(update={"trouble": printable(trouble, 600)})


def _finished_at(live: LiveRun) -> float:
    return live.run.finished_at or 0.0


def _answer(command: _Command) -> None:
    if command.done.cancelled():
        return
    if command.error is not None:
        command.done.set_exception(command.error)
    else:
        command.done.set_result(None)
