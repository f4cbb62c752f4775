"""The registry: runs, their leases and waiters, around the pure machine.

All changes go through one sequencer. It takes the commands that have queued up, decides and
applies them, makes their events durable in one commit, and only then answers and wakes: nobody is
told what a crash could take back. When the commit fails, the runs it touched are built again from
the journal.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import hmac
import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from rendezvous import events
from rendezvous.admission import decide_join, decide_report, decide_slot, refusal
from rendezvous.errors import (
    Fenced,
    Forbidden,
    InternalError,
    Mismatch,
    NotFound,
    RdzvError,
    RunExists,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from rendezvous.events import Event, dump_event, load_event
from rendezvous.leases import SWEEP_SECONDS, Key, Leases, poll_seconds
from rendezvous.protocol import apply, due
from rendezvous.schema import (
    EventLine,
    JoinReply,
    JoinRequest,
    NodeView,
    Phase,
    Report,
    ReportReply,
    RunSpec,
    RunStatus,
    SlotNews,
)
from rendezvous.security import Credential, node_credential
from rendezvous.server.journal import Journal, Record
from rendezvous.state import Run, create
from rendezvous.views import everyone_left, node_view, reason, run_status

logger = logging.getLogger(__name__)

_BATCH = 1_000
_WAKE = 500
_MAX_RUNS = 1_000
_KEEP_FINISHED_SECONDS = 3_600.0
_EVENT_LINES = 20_000
_GZIP_FROM = 16_384
_IDLE_SECONDS = 0.5
_COUNTERS = ("joins", "watches", "reports", "events", "commits", "refusals")


class Connection(Protocol):
    """What the service needs to know of a client's connection."""

    def on_close(self, callback: Callable[..., object], *arguments: object) -> None:
        """Call back once with the arguments and the reason when the connection has ended."""


@dataclass(frozen=True, slots=True)
class Body:
    """An answer that many get: its bytes, and the same compressed when that is worth it."""

    plain: bytes
    zipped: bytes | None = None

    @staticmethod
    def of(data: bytes) -> Body:
        """Compress once, for everyone."""
        return Body(data, gzip.compress(data, 1, mtime=0) if len(data) >= _GZIP_FROM else None)


@dataclass(slots=True)
class Host:
    """One run in this registry, with all that is not journalled."""

    run: Run
    leases: Leases
    number: int
    lines: deque[EventLine]
    view: NodeView | None = None
    news: Body = field(default_factory=lambda: Body(b""))
    news_seq: int = 0
    idle: bytes = b""
    idle_at: float = -1.0
    status_version: int = 0
    waiters: set[asyncio.Future[None]] = field(default_factory=set)
    watchers: set[asyncio.Future[None]] = field(default_factory=set)
    credentials: dict[Key, bytes] = field(default_factory=dict)


@dataclass(slots=True)
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
    """

    def __init__(
        self,
        journal: Journal,
        key: bytes,
        admin_sha256: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        trust_close: bool = True,
    ) -> None:
        self._journal = journal
        self._key = key
        self._admin_sha256 = admin_sha256
        self._clock = clock
        self._zero = clock()
        self._trust_close = trust_close
        self._hosts: dict[str, Host] = {}
        self._queue: asyncio.Queue[_Command] = asyncio.Queue(maxsize=100_000)
        self.closing = asyncio.Event()
        self.counters: dict[str, int] = dict.fromkeys(
            ("joins", "watches", "reports", "events", "commits", "refusals"), 0
        )

    def now(self) -> float:
        """Seconds of the registry's own clock; it stands still while the registry is down."""
        return self._clock() - self._zero

    # --- start and end ------------------------------------------------------------------------

    def recover(self) -> int:
        """Build every run again from the journal; returns how many runs there are."""
        latest = 0.0
        for record in self._journal.read():
            latest = max(latest, record.at)
            self._replay(record)
        self._zero = self._clock() - latest
        for host in self._hosts.values():
            host.leases.grant_all(self._live_keys(host.run), self.now())
            self._publish(host)
        return len(self._hosts)

    async def serve(self) -> None:
        """Sequence commands and sweep leases until cancelled."""
        recovered = list(self._hosts.values())
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sequence())
            if recovered:
                await self._change(
                    lambda now: [
                        _Change(host, events.Restarted())
                        for host in recovered
                        if host.run.phase is not Phase.FINISHED
                    ]
                )
            group.create_task(self._sweep())
            group.create_task(self._end_polls())

    async def _end_polls(self) -> None:
        """Answer the parked polls once the registry begins to shut down."""
        await self.closing.wait()
        for host in self._hosts.values():
            _wake_all(host.waiters)
            _wake_all(host.watchers)

    # --- who may do what ----------------------------------------------------------------------

    def host(self, run: str) -> Host:
        """The run; raises NotFound."""
        host = self._hosts.get(run)
        if host is None:
            raise NotFound(f"there is no run '{run}' here, or it is not yours")
        return host

    def authorize_registry(self, credential: Credential | None) -> None:
        """Raises Unauthorized or Forbidden unless this is the operator."""
        credential = _present(credential)
        if credential.kind != "registry" or not credential.matches(self._admin_sha256):
            raise Forbidden("this needs the credential of the registry's operator")

    def authorize(self, run: str, credential: Credential | None, *, write: bool) -> Host:
        """The run, for a reader (or its admin); a stranger learns nothing about it."""
        credential = _present(credential)
        if credential.kind == "registry":
            self.authorize_registry(credential)
            return self.host(run)
        host = self.host(run)
        spec = host.run.spec
        if credential.kind == "admin" and credential.matches(spec.admin_sha256):
            return host
        if credential.kind == "read" and credential.matches(spec.read_sha256):
            if write:
                raise Forbidden("the read credential cannot change a run")
            return host
        if credential.kind == "node" and self._is_node(host, credential):
            if write:
                raise Forbidden("a node cannot change a run")
            return host
        raise NotFound(f"there is no run '{run}' here, or it is not yours")

    def authorize_node(self, run: str, slot: int, credential: Credential | None) -> Host:
        """The run, for the present incarnation of this slot; older ones are Fenced."""
        credential = _present(credential)
        host = self.host(run) if run in self._hosts else None
        if host is None or credential.kind != "node" or not self._is_node(host, credential):
            raise Unauthorized(f"this credential is no node's of run '{run}'")
        if credential.slot != slot:
            raise Forbidden(f"a node of slot {credential.slot} cannot speak for slot {slot}")
        node = host.run.slots[slot].node
        if node is None or node.incarnation != credential.number:
            raise Fenced(
                f"slot {slot}: incarnation {credential.number} has been replaced",
                hint="a newer worker run has this slot, or the slot was given up",
            )
        return host

    def _is_node(self, host: Host, credential: Credential) -> bool:
        key = (credential.slot, credential.number)
        if not 0 <= credential.slot < len(host.run.slots):
            return False
        expected = host.credentials.get(key)
        if expected is None:
            if credential.number > host.run.slots[credential.slot].incarnations:
                return False
            expected = self._node_credential(host.run, *key).secret
            host.credentials[key] = expected
        return hmac.compare_digest(expected, credential.secret)

    def _node_credential(self, run: Run, slot: int, incarnation: int) -> Credential:
        return node_credential(self._key, run.id, run.spec.launch_id, slot, incarnation)

    # --- calls --------------------------------------------------------------------------------

    async def create(self, run: str, spec: RunSpec) -> RunStatus:
        """Make a run. The same spec again is answered as before.

        Raises:
            RunExists: Another launch holds this id and is not finished.
            TooManyRequests: The registry holds as many runs as it takes.
        """

        def decide(now: float) -> list[_Change]:
            old = self._hosts.get(run)
            if old is not None:
                if old.run.spec == spec:
                    return []
                if old.run.phase is not Phase.FINISHED:
                    raise RunExists(
                        f"run '{run}' is held by launch {old.run.spec.launch_id}, "
                        f"{now - old.run.created_at:.0f} s old and {old.run.phase}",
                        hint=f"cancel it with 'rdzv cancel {run}', or choose another --rdzv-id",
                    )
            if old is None and len(self._hosts) >= _MAX_RUNS:
                raise TooManyRequests(f"this registry holds {_MAX_RUNS} runs and takes no more")
            host = self._new_host(create(run, spec, now), now)
            host.number = old.number if old is not None else 0
            self._hosts[run] = host
            if old is not None:
                _wake_all(old.waiters)
            return [_Change(host, events.Created(run=run, spec=spec))]

        await self._change(decide)
        return self.status(self.host(run))

    async def join(
        self, run: str, credential: Credential | None, request: JoinRequest
    ) -> JoinReply:
        """Take a node into its slot."""
        credential = _present(credential)
        host = self._hosts.get(run)
        if host is None or not _token_fits(host.run, credential, request):
            raise Unauthorized(
                f"this join token is not one of run '{run}', "
                f"slot {request.slot}, generation {request.generation}",
                hint="the worker was started with the RDZV_JOIN of another launch or slot",
            )
        self.counters["joins"] += 1
        refused: list[RdzvError] = []

        def decide(now: float) -> list[_Change]:
            try:
                event = decide_join(host.run, request, now, host.leases)
            except Mismatch as exc:
                refused.append(exc)
                event = refusal(request.slot, request.generation, exc)
                if host.run.slots[request.slot].problem == exc.message:
                    return []
            return [_Change(host, event)] if event is not None else []

        await self._change(decide)
        if refused:
            raise refused[0]
        return self._join_reply(host, request)

    def _join_reply(self, host: Host, request: JoinRequest) -> JoinReply:
        run = host.run
        incarnation = run.slots[request.slot].joins[request.join_id]
        return JoinReply(
            credential=self._node_credential(run, request.slot, incarnation).text(),
            incarnation=incarnation,
            epoch=run.epoch,
            seq=0,
            poll_seconds=host.leases.poll,
            nnodes=run.spec.max_nodes,
            join_timeout_seconds=run.spec.limits.join_timeout_seconds,
            arm_timeout_seconds=run.spec.limits.arm_timeout_seconds,
        )

    async def report(self, host: Host, slot: int, incarnation: int, report: Report) -> ReportReply:
        """Take in what a node says."""
        self.counters["reports"] += 1

        def decide(now: float) -> list[_Change]:
            event = decide_report(host.run, slot, incarnation, report)
            return [_Change(host, event)] if event is not None else []

        await self._change(decide)
        return ReportReply(seq=host.run.seq)

    async def slot_news(self, host: Host, slot: int, news: SlotNews) -> RunStatus:
        """Take in what the launcher knows of a worker run."""
        if not 0 <= slot < len(host.run.slots):
            raise NotFound(f"run '{host.run.id}' has no slot {slot}")

        def decide(now: float) -> list[_Change]:
            event = decide_slot(host.run, slot, news)
            return [_Change(host, event)] if event is not None else []

        await self._change(decide)
        return self.status(host, slots=False)

    async def cancel(self, host: Host, why: str) -> RunStatus:
        """End the run."""

        def decide(now: float) -> list[_Change]:
            over = host.run.phase is Phase.FINISHED
            return [] if over else [_Change(host, events.Cancelled(reason=why))]

        await self._change(decide)
        return self.status(host)

    def heard(self, host: Host, slot: int, incarnation: int, connection: Connection | None) -> None:
        """Renew the lease of a node whose request just came in on this connection."""
        key = (slot, incarnation)
        if connection is None:
            host.leases.heard(key, self.now())
            return
        number = id(connection)
        host.leases.heard(key, self.now(), number)
        connection.on_close(self._connection_closed, host.run.id, key, number)

    def _connection_closed(self, run: str, key: Key, number: int, how: str) -> None:
        host = self._hosts.get(run)
        if host is not None:
            by_peer = how in ("fin", "rst")
            host.leases.closed(key, self.now(), number, by_peer=by_peer)

    async def watch(self, host: Host, after: int) -> Body:
        """News newer than `after`, else the present reason after the poll length."""
        self.counters["watches"] += 1
        if host.news_seq <= after:
            await self._wait(host.waiters, host.leases.poll)
        if self.closing.is_set():
            raise Unavailable("the registry is closing")
        if host.news_seq > after:
            return host.news
        return Body(self._idle_view(host))

    async def wait_status(self, host: Host, after: int, seconds: float) -> RunStatus:
        """The status once its version is above `after`, or when the time is over."""
        if host.status_version <= after and not self.closing.is_set():
            await self._wait(host.watchers, seconds)
        return self.status(host)

    async def _wait(self, waiters: set[asyncio.Future[None]], seconds: float) -> None:
        waiter = asyncio.get_running_loop().create_future()
        waiters.add(waiter)
        timer = asyncio.get_running_loop().call_later(seconds, _wake, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            waiters.discard(waiter)

    def status(self, host: Host, *, slots: bool = True) -> RunStatus:
        """What `GET /v1/runs/{run}` answers."""
        return run_status(host.run, self.now(), host.leases, slots=slots)

    def statuses(self) -> list[RunStatus]:
        """All runs, without their slots."""
        return [self.status(host, slots=False) for host in self._hosts.values()]

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

    async def event_lines(self, host: Host, after: int) -> Iterator[EventLine]:
        """Events numbered above `after`; waits for the next one when there is none."""
        while not self.closing.is_set():
            if host.lines and host.lines[-1].number > after:
                return reversed(list(_newest(host.lines, after)))
            if host.run.phase is Phase.FINISHED and everyone_left(host.run):
                return iter(())
            await self._wait(host.watchers, 10.0)
        return iter(())

    # --- the sequencer ------------------------------------------------------------------------

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

    async def _commit(self, batch: list[_Command]) -> None:
        touched: dict[str, int] = {}
        try:
            records = self._decide_all(batch, touched)
            if records:
                await self._journal.append(records)
                self.counters["commits"] += 1
        except Exception as exc:
            logger.exception("a batch of %d requests was not kept", len(batch))
            self._rebuild(set(touched))
            error = exc if isinstance(exc, RdzvError) else InternalError("the registry failed")
            for command in batch:
                command.error = command.error or error
        else:
            for name, first in touched.items():
                self._publish(self._hosts[name])
                self._log(self._hosts[name], first)
        for command in batch:
            _answer(command)

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
            for change in changes:
                touched.setdefault(change.host.run.id, change.host.number)
                records.append(self._apply(change, now))
        return records

    @staticmethod
    def _log(host: Host, after: int) -> None:
        for line in reversed(list(_newest(host.lines, after))):
            logger.info("run %s epoch %d: %s", host.run.id, line.epoch, line.reason)

    def _apply(self, change: _Change, now: float) -> Record:
        host = change.host
        outcome = apply(host.run, change.event, now)
        host.number += 1
        self._after_apply(host, change.event, now)
        line = EventLine(
            number=host.number,
            at_seconds=round(now - host.run.created_at, 3),
            kind=change.event.kind,
            reason=outcome.reason,
            phase=host.run.phase,
            epoch=host.run.epoch,
            slot=outcome.slot,
        )
        host.lines.append(line)
        self.counters["events"] += 1
        return Record(host.run.id, host.number, now, dump_event(change.event))

    def _after_apply(self, host: Host, event: Event, now: float) -> None:
        """Leases follow the state: a joined node gets one, a lost or departed one loses it."""
        if isinstance(event, events.Joined):
            slot = host.run.slots[event.request.slot]
            host.leases.forget((slot.index, slot.incarnations - 1))
            host.leases.heard((slot.index, slot.incarnations), now)
        elif isinstance(event, events.Lost | events.Left):
            host.leases.forget((event.slot, event.incarnation))
        elif isinstance(event, events.Exited) and host.run.slots[event.slot].node is None:
            host.leases.forget((event.slot, event.incarnation))

    def _publish(self, host: Host) -> None:
        """Make the durable state visible, and wake whom it concerns."""
        host.status_version = host.run.version
        _wake_all(host.watchers)
        if host.run.seq != host.news_seq:
            host.view = view = node_view(host.run, self.now(), host.leases.poll)
            host.news = Body.of(view.model_dump_json(exclude_none=True).encode())
            host.news_seq = host.run.seq
            host.idle_at = -1.0
            _wake_all(host.waiters)

    def _idle_view(self, host: Host) -> bytes:
        """What a poll without news answers: the reason of the moment, made twice a second."""
        now = self.now()
        if now - host.idle_at >= _IDLE_SECONDS or host.idle_at < 0:
            assert host.view is not None
            changed = {"table": None, "reason": reason(host.run, now)}
            view = host.view.model_copy(update=changed)
            host.idle = view.model_dump_json(exclude_none=True).encode()
            host.idle_at = now
        return host.idle

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            if not self.closing.is_set():
                await self._change(self._decide_sweep)

    def _decide_sweep(self, now: float) -> list[_Change]:
        changes = []
        for host in list(self._hosts.values()):
            if host.run.phase is Phase.FINISHED and everyone_left(host.run):
                self._retire(host, now)
                continue
            changes += [_Change(host, event) for event in due(host.run, now, host.leases)]
        return changes

    def _retire(self, host: Host, now: float) -> None:
        finished = host.run.finished_at
        if finished is not None and now - finished > _KEEP_FINISHED_SECONDS:
            del self._hosts[host.run.id]
            task = asyncio.get_running_loop().create_task(self._journal.drop(host.run.id))
            task.add_done_callback(_log_failure)

    # --- recovery -----------------------------------------------------------------------------

    def _new_host(self, run: Run, now: float) -> Host:
        limits = run.spec.limits
        poll = poll_seconds(run.spec.max_nodes, limits.lease_seconds)
        leases = Leases(limits.lease_seconds, poll, now, trust_close=self._trust_close)
        return Host(run, leases, 0, deque(maxlen=_EVENT_LINES))

    def _replay(self, record: Record) -> None:
        event = load_event(record.body)
        if isinstance(event, events.Created):
            old = self._hosts.get(record.run)
            host = self._new_host(create(record.run, event.spec, record.at), record.at)
            host.number = old.number if old is not None else 0
            self._hosts[record.run] = host
        self._apply(_Change(self._hosts[record.run], event), record.at)

    def _rebuild(self, names: set[str]) -> None:
        """Forget what could not be kept: the journal is the truth."""
        old = {name: self._hosts.pop(name) for name in names if name in self._hosts}
        for record in self._journal.read():
            if record.run in names:
                self._replay(record)
        for name, host in old.items():
            fresh = self._hosts.get(name)
            if fresh is None:
                _wake_all(host.waiters)
                continue
            host.run, host.number, host.lines = fresh.run, fresh.number, fresh.lines
            self._hosts[name] = host

    @staticmethod
    def _live_keys(run: Run) -> list[Key]:
        return [
            (slot.index, slot.node.incarnation)
            for slot in run.slots
            if slot.node is not None and (slot.live_node() or slot.node.exit)
        ]


def _newest(lines: deque[EventLine], after: int) -> Iterator[EventLine]:
    """The lines numbered above `after`, newest first, without a walk over the older ones."""
    return itertools.takewhile(lambda line: line.number > after, reversed(lines))


def _present(credential: Credential | None) -> Credential:
    if credential is None:
        raise Unauthorized("this needs a credential", hint="send it as 'Authorization: Bearer ...'")
    return credential


def _token_fits(run: Run, credential: Credential, request: JoinRequest) -> bool:
    if credential.kind != "join" or not 0 <= request.slot < len(run.slots):
        return False
    if (credential.slot, credential.number) != (request.slot, request.generation):
        return False
    expected = run.slots[request.slot].tokens.get(request.generation)
    return credential.matches(expected or hashlib.sha256(b"").hexdigest())


def _answer(command: _Command) -> None:
    if command.done.cancelled():
        return
    if command.error is not None:
        command.done.set_exception(command.error)
    else:
        command.done.set_result(None)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _wake_all(waiters: set[asyncio.Future[None]]) -> None:
    pending = list(waiters)
    waiters.clear()
    _wake_some(pending)


def _wake_some(pending: list[asyncio.Future[None]]) -> None:
    """Wake a few hundred in one turn of the loop, so that requests are served in between."""
    for waiter in pending[:_WAKE]:
        _wake(waiter)
    if len(pending) > _WAKE:
        asyncio.get_running_loop().call_soon(_wake_some, pending[_WAKE:])


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        logger.error("journal: a finished run could not be removed", exc_info=task.exception())
