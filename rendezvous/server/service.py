"""The registry: all runs, around the pure machine.

All changes go through one sequencer. It takes the commands that have queued up, decides and
applies them, makes their events durable in one commit, and only then answers and wakes: nobody is
told what a crash could take back. When the commit fails, the runs it touched are built again from
the journal.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from rendezvous.compat import TaskGroup, timeout
from rendezvous.credentials import Credential
from rendezvous.errors import (
    InternalError,
    Mismatch,
    NotFound,
    RdzvError,
    RegistryError,
    RunExists,
    RunOver,
    StorageFull,
    TooManyRuns,
    Unavailable,
)
from rendezvous.run import events
from rendezvous.run.admission import (
    decide_cancel,
    decide_join,
    decide_refusal,
    decide_report,
    decide_slot,
    refusal,
    refuse_other_version,
)
from rendezvous.run.events import Event, load_event
from rendezvous.run.leases import DOUBT_SWEEPS, SWEEP_SECONDS, Key
from rendezvous.run.protocol import due, launcher_gone
from rendezvous.run.rounds import run_report
from rendezvous.run.views import everyone_left
from rendezvous.schema import (
    DEFAULT_MAX_RUNS,
    EventLine,
    ExitReport,
    JoinReply,
    JoinRequest,
    MetricBatch,
    MetricReply,
    Phase,
    Refusal,
    RelayMail,
    RelayPost,
    RelayReply,
    Report,
    ReportReply,
    RunReport,
    RunSpec,
    RunStatus,
    SlotNews,
)
from rendezvous.server.access import Access
from rendezvous.server.host import Body, Host
from rendezvous.server.journal import Journal, Record, applying
from rendezvous.server.relay import only_living, relay_of
from rendezvous.version import rdzv_version
from rendezvous.words import printable

logger = logging.getLogger(__name__)

T = TypeVar("T")

_BATCH = 1_000
_KEEP_FINISHED = 1_000
_KEEP_FINISHED_SECONDS = 3_600.0
_LAUNCHER_SECONDS = 120.0
_QUIET_SECONDS = 10.0
_STALL_SECONDS = 1.0
_MOMENT = 0.001
_CLOSES_SECONDS = 0.05
"""For the ends of connections that came before a cancel to be read before it counts."""
_FAILED = "the registry failed; its log says where"
_COUNTERS = ("joins", "watches", "reports", "metrics", "events", "commits", "refusals")


class Connection(Protocol):
    """What the service needs to know of a client's connection."""

    def on_close(self, callback: Callable[..., object], *arguments: object) -> None:
        """Call back once with the arguments and the reason when the connection has ended."""


@dataclass(frozen=True, slots=True)
class _Change:
    """One event for one run, on its way into the journal."""

    host: Host
    event: Event


@dataclass(slots=True)
class _Command:
    decide: Callable[[float], list[_Change]]
    done: asyncio.Future[None]
    error: RdzvError | None = None


class Service:
    """All runs of one registry.

    Args:
        journal: Where events are kept.
        key: The registry's own 256-bit key, from which node credentials are derived.
        admin_sha256: SHA-256 of the operator's credential.
        clock: Monotonic seconds.
        trust_close: Whether a closed connection speaks of the node (not behind an ingress).
        max_runs: How many runs may be in progress at once; those that have ended do not count.
        crowded: Says why further nodes cannot call; empty when they can.
    """

    def __init__(
        self,
        journal: Journal,
        key: bytes,
        admin_sha256: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        trust_close: bool = True,
        max_runs: int = DEFAULT_MAX_RUNS,
        crowded: Callable[[], str] = lambda: "",
    ) -> None:
        self._journal = journal
        self._crowded = crowded
        self._max_runs = max_runs
        self._clock = clock
        self._zero = self._looked = clock()
        self._before = 0.0
        self._woke = self._stalled = float("-inf")
        self._trust_close = trust_close
        self._hosts: dict[str, Host] = {}
        self._retired: list[Host] = []
        self._queue: asyncio.Queue[_Command] = asyncio.Queue(maxsize=100_000)
        self.access = Access(key, admin_sha256, self._hosts)
        self.closing = asyncio.Event()
        self.counters = dict.fromkeys(_COUNTERS, 0)

    def now(self) -> float:
        """Seconds of the registry's own clock; it stands still while the registry is down.

        Or stalled: stopped, suspended, starved. The sweep looks at the clock all the time; when
        nobody has for so long, what nodes have said meanwhile still waits to be read, and neither
        a lease nor a time-out may run out of it.
        """
        clock = self._clock()
        late = clock - self._looked - SWEEP_SECONDS
        if late > _STALL_SECONDS:
            self._zero += late
            self._woke = self._stalled = clock
            for host in self._hosts.values():
                host.leases.stalled()
        self._looked = clock
        return self._before + (clock - self._zero)

    def _on_own_clock(self, age: float) -> float:
        """An age that a node has measured, when this clock may have stood still meanwhile.

        What happened before it went on happened right then, in its own order.
        """
        awake = self._clock() - self._woke
        return age if age <= awake else max(0.0, awake - _MOMENT / (1 + age - awake))

    # --- start and end ------------------------------------------------------------------------

    def recover(self) -> int:
        """Build every run again from the journal; returns how many runs there are.

        Raises:
            UsageError: A record cannot be applied.
        """
        latest = 0.0
        for record in self._journal.read():
            latest = max(latest, record.at)
            self._replay(record)
        self._zero = self._looked = self._woke = self._clock()
        self._before = latest
        for host in self._hosts.values():
            host.grant_leases(self.now())
            host.publish(self.now())
        return len(self._hosts)

    async def serve(self) -> None:
        """Sequence commands and sweep leases until cancelled."""
        recovered = [h for h in self._hosts.values() if h.run.phase is not Phase.FINISHED]
        async with TaskGroup() as group:
            group.create_task(self._sequence())
            if recovered:
                restarted = [_Change(host, events.Restarted()) for host in recovered]
                with contextlib.suppress(RegistryError):  # logged; serve what there is
                    await self._change(lambda _: restarted)
            group.create_task(self._sweep())
            group.create_task(self._end_polls())

    async def _end_polls(self) -> None:
        """Answer the parked polls once the registry begins to shut down."""
        await self.closing.wait()
        for host in self._hosts.values():
            host.nodes.wake_all()
            host.people.wake_all()
            if host.relay is not None:
                host.relay.close()

    # --- calls of people and launchers --------------------------------------------------------

    async def create(self, name: str, spec: RunSpec) -> RunStatus:
        """Make a run. The same spec again is answered as before.

        Raises:
            RunExists: Another launch holds this id and is not finished.
            TooManyRuns: As many runs are in progress as the registry takes.
        """

        def decide(now: float) -> list[_Change]:
            old = self._hosts.get(name)
            if old is not None and _is_same(old.run.spec, spec):
                return []
            self._refuse_creation(name, old, now)
            self._add_host(name, spec, now)
            if old is not None:
                old.nodes.wake_all()
                old.people.wake_all()
            return [_Change(self._hosts[name], events.Created(run=name, spec=spec))]

        await self._change(decide)
        return await self.status(self._hosts[name])

    def _refuse_creation(self, name: str, old: Host | None, now: float) -> None:
        if old is not None and old.run.phase is not Phase.FINISHED:
            raise RunExists(
                f"run '{name}' is held by launch {old.run.spec.launch_id}, "
                f"{now - old.run.created_at:.0f} s old and {old.run.phase}",
                hint=f"cancel it with 'rdzv cancel {name}', or choose another --rdzv-id",
            )
        others = (host for host in self._hosts.values() if host is not old)
        if len(self._hosts) >= self._max_runs <= sum(not _has_ended(host) for host in others):
            raise TooManyRuns(
                f"this registry takes no further run: {self._max_runs} are in progress, "
                "as many as it takes at once",
                hint="wait until one of them has ended, or have the registry's operator start it "
                "with a higher 'rdzv serve --max-runs'",
            )

    async def slot_news(self, host: Host, slot: int, news: SlotNews) -> RunStatus:
        """Take in what the launcher knows of a worker run."""
        if not 0 <= slot < len(host.run.slots):
            raise NotFound(f"run '{host.run.id}' has no slot {slot}")
        host.launcher_at = self.now()
        await self._change_run(host, lambda _: decide_slot(host.run, slot, news))
        return await self.status(host, slots=False)

    async def cancel(self, host: Host, why: str) -> RunStatus:
        """End the run; where a node has just failed, it ends with that cause.

        A node whose connection has closed is waited for: whoever saw it die may be who cancels.
        """
        await asyncio.sleep(_CLOSES_SECONDS)
        for _ in range(DOUBT_SWEEPS):
            if not host.leases.is_in_doubt(self.now()):
                break
            await asyncio.sleep(SWEEP_SECONDS)
        await self._change_run(host, lambda now: decide_cancel(host.run, why, now, host.leases))
        return await self.status(host)

    async def _cancel_at_once(self, host: Host, why: str) -> None:
        def decide(_: float) -> Event | None:
            over = host.run.phase is Phase.FINISHED
            return None if over else events.Cancelled(reason=why)

        await self._change_run(host, decide)

    async def launcher_ended(self, limit_seconds: float) -> None:
        """End the runs that were let go: rank 0's agent died with the launcher.

        A run that still gathers stays as it is: the same launch, started again, takes it up.
        Returns once every node of the ended runs has left, or after `limit_seconds`.
        """
        let_go = (Phase.RUNNING, Phase.FINISHED)
        ended = [host for host in self._hosts.values() if host.run.phase in let_go]
        for host in ended:
            await self._cancel_at_once(host, "its launcher was killed")
        with contextlib.suppress(TimeoutError):
            async with timeout(limit_seconds):
                for host in ended:
                    while not everyone_left(host.run):
                        await host.people.wait(limit_seconds)

    async def status(self, host: Host, *, slots: bool = True) -> RunStatus:
        """The state of a run."""
        return await self._look(lambda now: host.status(now, slots=slots))

    async def checks(self, host: Host) -> RunReport:
        """What was checked before the go."""
        return await self._look(lambda _: run_report(host.run))

    async def statuses(self) -> list[RunStatus]:
        """All runs, without their slots."""
        return await self._look(
            lambda now: [host.status(now, slots=False) for host in self._hosts.values()]
        )

    def metrics(self, host: Host, after: int | None) -> bytes:
        """JSON of a RunMetrics: the rows above `after`, or else the newest of each process."""
        elapsed = self.now() - host.run.created_at
        if after is None:
            return host.metrics.newest(elapsed)
        return host.metrics.after(after, elapsed)

    async def wait_status(self, host: Host, after: int, seconds: float) -> RunStatus:
        """The status once its version is above `after`, or when the time is over."""
        if host.version <= after and not self.closing.is_set():
            await host.people.wait(seconds)
        return await self.status(host)

    async def event_lines(self, host: Host, after: int) -> list[EventLine] | None:
        """Events numbered above `after`; waits for the next one.

        Returns:
            None when no more will come; an empty list when none came for a while.
        """
        if not (lines := host.lines_after(after)) and not self._is_over(host):
            await host.people.wait(_QUIET_SECONDS)
            lines = host.lines_after(after)
        return None if not lines and self._is_over(host) else lines

    def _is_over(self, host: Host) -> bool:
        return (
            (_has_ended(host) and host.is_durable)
            or self.closing.is_set()
            or self._hosts.get(host.run.id) is not host
        )

    def metrics_text(self) -> str:
        """Prometheus text: what was counted, and the runs by phase."""
        lines = []
        for name, value in self.counters.items():
            lines += [f"# TYPE rdzv_{name}_total counter", f"rdzv_{name}_total {value}"]
        lines.append("# TYPE rdzv_runs gauge")
        for phase in Phase:
            count = sum(host.run.phase is phase for host in self._hosts.values())
            lines.append(f'rdzv_runs{{phase="{phase}"}} {count}')
        return "\n".join(lines) + "\n"

    # --- calls of nodes -----------------------------------------------------------------------

    async def join(
        self, name: str, credential: Credential | None, request: JoinRequest
    ) -> tuple[Host, JoinReply]:
        """Take a node into its slot."""
        host = self.access.joiner(name, credential, request.slot, request.generation)
        self.counters["joins"] += 1
        refused: list[Mismatch] = []

        def decide(now: float) -> Event | None:
            try:
                refuse_other_version(request, rdzv_version())
                return decide_join(host.run, request, now, host.leases)
            except Mismatch as exc:
                refused.append(exc)
                known = host.run.slots[request.slot].problem == exc.message
                return None if known else refusal(request.slot, request.generation, exc)
            except RunOver:
                host.tell_end(request.slot)
                raise

        await self._change_run(host, decide)
        if refused:
            raise refused[0]
        return host, self._join_reply(host, request)

    def _join_reply(self, host: Host, request: JoinRequest) -> JoinReply:
        run = host.run
        incarnation = run.slots[request.slot].joins[request.join_id]
        return JoinReply(
            credential=self.access.node_credential(run, request.slot, incarnation).text(),
            incarnation=incarnation,
            epoch=run.epoch,
            seq=0,
            poll_seconds=host.leases.poll,
            nnodes=run.spec.max_nodes,
            join_timeout_seconds=run.spec.limits.join_timeout_seconds,
            arm_timeout_seconds=run.spec.limits.arm_timeout_seconds,
        )

    async def refuse(self, host: Host, slot: int, generation: int, refusal: Refusal) -> ReportReply:
        """Take in that a node does not join, and why."""
        await self._change_run(host, lambda _: decide_refusal(host.run, slot, generation, refusal))
        host.tell_end(slot)
        return ReportReply(seq=host.news_seq)

    async def report(self, host: Host, slot: int, incarnation: int, report: Report) -> ReportReply:
        """Take in what a node says."""
        self.counters["reports"] += 1
        if isinstance(report, ExitReport):
            age = self._on_own_clock(report.age_seconds)
            report = report.model_copy(update={"age_seconds": age})
        await self._change_run(host, lambda _: decide_report(host.run, slot, incarnation, report))
        return ReportReply(seq=host.news_seq)

    def take_metrics(
        self, host: Host, slot: int, incarnation: int, batch: MetricBatch
    ) -> MetricReply:
        """Take in what the processes of a node say of their progress."""
        self.counters["metrics"] += len(batch.rows)
        at = self.now() - host.run.created_at
        expected = host.metrics.take(slot, incarnation, batch, epoch=host.run.epoch, at_seconds=at)
        return MetricReply(expected=expected)

    def heard(self, host: Host, slot: int, incarnation: int, connection: Connection | None) -> None:
        """Renew the lease of a node whose request just came in on this connection."""
        key = (slot, incarnation)
        if connection is None:
            host.leases.heard(key, self.now())
            return
        number = id(connection)
        host.leases.heard(key, self.now(), number)
        connection.on_close(self._connection_closed, host.run.id, key, number)

    def _connection_closed(self, name: str, key: Key, number: int, how: str) -> None:
        host = self._hosts.get(name)
        if host is not None:
            now = self.now()
            # After a stall it may be old, and what the node has asked since not read yet.
            is_new = self._clock() - self._stalled >= host.leases.suspect_after
            by_peer = how in ("fin", "rst") and is_new
            host.leases.closed(key, now, number, by_peer=by_peer)

    async def watch(self, host: Host, after: int) -> Body:
        """News newer than `after`, else the present reason after the poll length."""
        self.counters["watches"] += 1
        if host.news_seq <= after and not self.closing.is_set():
            await host.nodes.wait(host.leases.poll)
        if self.closing.is_set():
            raise Unavailable("the registry is closing")
        return host.news if host.news_seq > after else host.idle(self.now())

    def relay_give(self, host: Host, slot: int, post: RelayPost) -> RelayReply:
        """Pass on what a node says to others about remote commands."""
        relay = relay_of(host, slot)
        relay.give(slot, only_living(host.run, post.parcels))
        return RelayReply(session=relay.session)

    async def relay_take(self, host: Host, slot: int, after: int, session: str) -> RelayMail:
        """What others say to a node about remote commands, after what it has; waits for it."""
        mail = await relay_of(host, slot).take(slot, after, session)
        if self.closing.is_set():
            raise Unavailable("the registry is closing")
        return mail

    # --- the sequencer ------------------------------------------------------------------------

    async def _change_run(self, host: Host, decide: Callable[[float], Event | None]) -> None:
        """Have one run changed by the event that is decided on, if there is one."""

        def changes(now: float) -> list[_Change]:
            if self._hosts.get(host.run.id) is not host:
                raise RunOver(
                    f"launch {host.run.spec.launch_id} of run '{host.run.id}' is over, "
                    "and the registry has forgotten it"
                )
            event = decide(now)
            return [] if event is None else [_Change(host, event)]

        await self._change(changes)

    async def _look(self, view: Callable[[float], T]) -> T:
        """A view of the state, answered once all that it tells of is durable."""
        seen: list[T] = []

        def look(now: float) -> list[_Change]:
            seen.append(view(now))
            return []

        await self._change(look)
        return seen[0]

    async def _change(self, decide: Callable[[float], list[_Change]]) -> None:
        if self.closing.is_set():
            raise Unavailable("the registry is closing")
        command = _Command(decide, asyncio.get_running_loop().create_future())
        try:
            self._queue.put_nowait(command)
        except asyncio.QueueFull as exc:
            raise Unavailable("the registry has more requests than it can take") from exc
        await command.done

    async def _sequence(self) -> None:
        while True:
            batch = [await self._queue.get()]
            while len(batch) < _BATCH and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            await self._commit(batch)
            await self._drop_retired()

    async def _commit(self, batch: list[_Command]) -> None:
        touched: dict[str, int] = {}
        error: RdzvError | None = Unavailable("the registry is closing")
        try:
            records = self._decide_all(batch, touched)
            if records:
                await self._journal.append(records)
                self.counters["commits"] += 1
                self.counters["events"] += len(records)
            self._tell(touched)
            error = None
        except Exception as exc:
            known = isinstance(exc, RdzvError)
            logger.error("%d requests were not kept: %s", len(batch), exc, exc_info=not known)
            error = exc if isinstance(exc, RdzvError) else InternalError(_FAILED)
            self._rebuild(set(touched))
            self._say_unwritten(set(touched), error)
        finally:
            for command in batch:
                command.error = command.error or error
                _answer(command)

    def _say_unwritten(self, names: set[str], error: RdzvError) -> None:
        words = f"{error.message}; {error.hint}".removesuffix("; ")
        for host in filter(None, map(self._hosts.get, names)):
            host.unwritten.failed(words, self.now())

    def _decide_all(self, batch: list[_Command], touched: dict[str, int]) -> list[Record]:
        """Decide and apply every command; a refusal concerns its own command alone."""
        now = self.now()
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
                touched.setdefault(change.host.run.id, change.host.number)
                records.append(change.host.apply(change.event, now))
        return records

    def _tell(self, touched: dict[str, int]) -> None:
        """Make public what is durable now; `touched` holds each run's number before."""
        for name, before in touched.items():
            host = self._hosts[name]
            host.unwritten.over()
            host.publish(self.now())
            for line in host.lines_after(before):
                level = logging.DEBUG if line.usual else logging.INFO
                logger.log(level, "run %s epoch %d: %s", name, line.epoch, line.reason)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            with contextlib.suppress(RegistryError):  # logged; the next sweep decides again
                await self._change(self._decide_sweep)

    def _decide_sweep(self, now: float) -> list[_Change]:
        changes, ended = [], []
        for host in self._hosts.values():
            if _has_ended(host):
                ended.append(host)
                continue
            found = [_with_trouble(event, host, now) for event in due(host.run, now, host.leases)]
            if now - host.launcher_at > _LAUNCHER_SECONDS:
                found += launcher_gone(host.run)
            changes += [_Change(host, event) for event in found]
        self._retire(ended, now)
        return changes

    def _retire(self, ended: list[Host], now: float) -> None:
        """Let go of the runs that ended long ago, and of the oldest when there are too many."""
        ended.sort(key=_finished_at, reverse=True)
        self._retired = [
            host
            for newer, host in enumerate(ended)
            if newer >= _KEEP_FINISHED or now - _finished_at(host) > _KEEP_FINISHED_SECONDS
        ]

    async def _drop_retired(self) -> None:
        """Forget these runs, unless one of that name was made meanwhile."""
        retired, self._retired = self._retired, []
        for host in retired:
            name = host.run.id
            if self._hosts.get(name) is host:
                try:
                    await self._journal.drop(name)
                except StorageFull as exc:
                    logger.error("run %s, long finished, could not be removed: %s", name, exc)
                else:
                    del self._hosts[name]

    # --- recovery -----------------------------------------------------------------------------

    def _add_host(self, name: str, spec: RunSpec, now: float) -> None:
        old = self._hosts.get(name)
        number = old.number if old is not None else 0
        host = Host(
            name, spec, now, number=number, trust_close=self._trust_close, crowded=self._crowded
        )
        if old is not None:
            host.replaces(old)
        self._hosts[name] = host

    def _replay(self, record: Record) -> None:
        with applying(record):
            event = load_event(record.body)
            if isinstance(event, events.Created):
                self._add_host(record.run, event.spec, record.at)
            self._hosts[record.run].apply(event, record.at)

    def _rebuild(self, names: set[str]) -> None:
        """Forget what could not be kept: the journal is the truth."""
        old = {name: self._hosts.pop(name) for name in names}
        for record in self._journal.read():
            if record.run in names:
                self._replay(record)
        now = self.now()
        for name, host in old.items():
            if name in self._hosts:
                host.take_over(self._hosts[name], now)
                host.publish(now)
                self._hosts[name] = host


def _with_trouble(event: Event, host: Host, now: float) -> Event:
    """A time-out, with what the registry itself had meanwhile."""
    trouble = host.trouble(now)
    if not trouble or not isinstance(event, events.TimedOut):
        return event
    return event.model_copy(update={"trouble": printable(trouble, 600)})


def _has_ended(host: Host) -> bool:
    """Whether the run is over and every node knows it: it is kept for who asks how it ended."""
    return host.run.phase is Phase.FINISHED and everyone_left(host.run)


def _finished_at(host: Host) -> float:
    return host.run.finished_at or 0.0


def _is_same(old: RunSpec, new: RunSpec) -> bool:
    """Whether it is the same run: its registry may have got another address since."""
    return old.model_copy(update={"registry": new.registry}) == new


def _answer(command: _Command) -> None:
    if command.done.cancelled():
        return
    if command.error is not None:
        command.done.set_exception(command.error)
    else:
        command.done.set_result(None)
