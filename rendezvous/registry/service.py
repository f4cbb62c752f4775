"""The registry's calls: what nodes, launchers and people ask of it."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Mapping

from rendezvous.compat import TaskGroup
from rendezvous.registry.access import Access
from rendezvous.registry.clock import RegistryClock
from rendezvous.registry.journal import Journal
from rendezvous.registry.live_run import LiveRun
from rendezvous.registry.options import Options
from rendezvous.registry.place import Alone, Place
from rendezvous.registry.relay import Relay, check_member, only_living
from rendezvous.registry.sequencer import Change, Sequencer
from rendezvous.run import events, refusals
from rendezvous.run.admission import (
    decide_cancel,
    decide_drain,
    decide_report,
    decide_restart,
    decide_slot,
)
from rendezvous.run.events import Event
from rendezvous.run.joins import decide_join, decide_mismatch, decide_refusal
from rendezvous.run.leases import DOUBT_SWEEPS, SWEEP_SECONDS, Key
from rendezvous.serving.answers import Body
from rendezvous.serving.connection import CloseReason, Connection
from rendezvous.talk.credentials import Credential
from rendezvous.wire.asked import DrainRequest
from rendezvous.wire.errors import (
    Fenced,
    Mismatch,
    NotFound,
    RdzvError,
    RequestError,
    RunExists,
    RunOver,
    SlotTaken,
    TooManyRuns,
    Unauthorized,
    Unavailable,
)
from rendezvous.wire.node import JoinReply, JoinRequest, Refusal
from rendezvous.wire.relay import RelayMail, RelayPost, RelayReply
from rendezvous.wire.reports import ExitReport, Report, ReportReply
from rendezvous.wire.run import (
    EventLine,
    Phase,
    RunList,
    RunSpec,
    RunStatus,
    SlotNews,
)
from rendezvous.wire.tenant import Tenant
from rendezvous.wire.types import is_loopback
from rendezvous.wire.words import printable

_QUIET_SECONDS = 10.0
_CLOSES_SECONDS = 0.05
"""For the ends of connections that came before a cancel to be read before it counts."""


class Service:
    """All runs of one registry.

    Args:
        journal: Where events are kept.
        key: The registry's own 256-bit key, from which node credentials are derived.
        admin_sha256: SHA-256 of the operator's credential.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        journal: Journal,
        key: bytes,
        admin_sha256: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        options: Options | None = None,
    ) -> None:
        self._options = options or Options()
        self.sequencer = Sequencer(journal, clock, self._options)
        self._clock = self.sequencer.clock
        self.now = self._clock.now
        self._runs = self.sequencer.runs
        self.tenants = self.sequencer.tenants
        self.access = Access(key, admin_sha256, self._runs, self.tenants)
        self.place: Place = Alone()
        self.closing, self.counters = self.sequencer.closing, self.sequencer.counters

    async def serve(self) -> None:
        """Sequence commands and sweep leases until cancelled."""
        async with TaskGroup() as group:
            group.create_task(self.sequencer.serve())
            group.create_task(self.place.serve())
            group.create_task(self._end_polls())

    async def _end_polls(self) -> None:
        """Answer the parked polls once the registry begins to shut down."""
        await self.closing.wait()
        for live in self._runs.values():
            live.wake_all()

    # --- calls of people and launchers --------------------------------------------------------

    async def create(self, name: str, spec: RunSpec, tenant: Tenant | None = None) -> RunStatus:
        """Make a run, which counts for this tenant, or for nobody where the operator makes it.

        Raises RunExists, TooManyRuns, TooManyRequests. The same spec again is answered as before.
        """
        async with self.place.making(name):
            return await self._create(name, spec, tenant)

    async def _create(self, name: str, spec: RunSpec, tenant: Tenant | None) -> RunStatus:
        retention, made = self.sequencer.retention, False

        def decide(now: float) -> list[Change]:
            nonlocal made
            if retention.is_going(name):
                return []
            if name in self.sequencer.kept.doubtful:
                raise Unavailable(f"run '{name}' is being read from the journal")
            old, made = self._runs.get(name), True
            if old is not None and _is_same(old.run.spec, spec):
                return []
            _refuse_name(name, old)
            _refuse_more_runs(self._runs, old, self._options.max_runs)
            if tenant is not None:
                self.tenants.admit(tenant, spec.slots)
            live = self.sequencer.kept.add(name, spec, now if old is None else old.now())
            return [Change(live, events.Created(run=name, spec=spec))]

        while not made:
            await retention.gone(name)
            await self.sequencer.change(decide, about=name)
        if (live := self._runs.get(name)) is None:
            raise Unavailable(f"run '{name}' is on its way to another replica")
        return await self.status(live)

    async def slot_news(self, live: LiveRun, slot: int, news: SlotNews) -> RunStatus:
        """Take in what the launcher knows of a worker run."""
        if not 0 <= slot < len(live.run.slots):
            raise NotFound(f"run '{live.run.id}' has no slot {slot}")
        live.launcher_at = live.now()
        await self.sequencer.change_run(live, lambda _: decide_slot(live.run, slot, news))
        return await self.status(live, slots=False)

    async def cancel(self, live: LiveRun, why: str) -> RunStatus:
        """End the run; where a node has just failed, it ends with that cause.

        A node whose connection has closed is waited for: whoever saw it die may be who cancels.
        """
        await asyncio.sleep(_CLOSES_SECONDS)
        for _ in range(DOUBT_SWEEPS):
            if not live.leases.is_in_doubt(live.now()):
                break
            await asyncio.sleep(SWEEP_SECONDS)
        await self.sequencer.change_run(
            live, lambda now: decide_cancel(live.run, why, now, live.leases)
        )
        return await self.status(live)

    async def restart(self, live: LiveRun, why: str) -> RunStatus:
        """Stop the programs and start them again; where none runs yet, nothing changes.

        Raises RunOver where the run has ended, Mismatch where a node cannot do it.
        """
        await self.sequencer.change_run(live, lambda _: decide_restart(live.run, why))
        return await self.status(live)

    async def drain(self, live: LiveRun, slot: int, asked: DrainRequest) -> RunStatus:
        """Have a node leave; where no program runs, nothing changes.

        Raises RunOver where the run has ended, NotFound where the slot has no node.
        """
        why = printable(asked.reason, 300)
        await self.sequencer.change_run(
            live, lambda now: decide_drain(live.run, slot, asked.seconds, why, now)
        )
        return await self.status(live)

    async def status(self, live: LiveRun, *, slots: bool = True) -> RunStatus:
        """The state of a run."""
        return await self.sequencer.look(lambda _: self._status(live, slots), about=live.run.id)

    def _status(self, live: LiveRun, slots: bool) -> RunStatus:
        self.sequencer.kept.check(live)
        return live.status(live.now(), slots=slots)

    async def statuses(self, tenant: Tenant | None = None) -> RunList:
        """All runs, or those of this tenant, without their slots."""
        return await self.sequencer.look(
            lambda _: RunList(
                runs=[
                    live.status(live.now(), slots=False)
                    for name, live in self._runs.items()
                    if tenant is None or tenant.owns(name)
                ],
                others=self.place.others(),
            )
        )

    async def wait_status(self, live: LiveRun, after: int, seconds: float) -> RunStatus:
        """The status once its version is above `after`, or when the time is over."""
        if live.version <= after and not self.closing.is_set():
            await live.people.wait(seconds)
        return await self.status(live)

    async def event_lines(self, live: LiveRun, after: int) -> list[EventLine] | None:
        """Events numbered above `after`; waits for one. None: no more will come; empty: not yet."""
        if not (lines := live.lines_after(after)) and not self._is_over(live):
            await live.people.wait(_QUIET_SECONDS)
            lines = live.lines_after(after)
        return None if not lines and self._is_over(live) else lines

    def _is_over(self, live: LiveRun) -> bool:
        return (
            (live.has_ended and live.is_durable)
            or self.closing.is_set()
            or self._runs.get(live.run.id) is not live
        )

    # --- calls of nodes -----------------------------------------------------------------------

    async def join(
        self, name: str, credential: Credential | None, request: JoinRequest, peer: str = ""
    ) -> tuple[LiveRun, JoinReply]:
        """Take a node into its slot, which has sent this from the address of a `peer`.

        What is refused is kept.
        """
        origin = source, _ = _origin(self._options, request, peer)
        await self.place.find(name, credential)  # it may have gone while the body was read
        try:
            live = self.access.joiner(name, credential, request.slot, request.generation)
        except Unauthorized:
            await self.note_stranger(name, request.slot, peer)
            raise
        self.counters["joins"] += 1
        refused: list[RequestError] = []

        def decide(now: float) -> Event | None:
            try:
                event = decide_join(live.run, request, now, live.leases, *origin)
                slot = live.run.slots[request.slot]
                if event is None and slot.live_node():  # no answer has reached it, but it lives
                    live.leases.heard((slot.index, slot.joins[request.join_id]), now)
                return event
            except (Fenced, Mismatch, RunOver, SlotTaken) as exc:
                refused.append(exc)
                return _refused(live, request, exc, source, now)

        await self.sequencer.change_run(live, decide)
        if refused:
            raise refused[0]
        return live, _join_reply(self.access, live, request)

    async def note_stranger(self, name: str, slot: int, peer: str) -> None:
        """Keep that somebody has asked with a token that is not of the run; it decides nothing.

        Of a run that is not here only the one that is can know: a registry of many keeps nothing.
        """
        found = [self._runs[name]] if name in self._runs else list(self._runs.values())
        if len(found) != 1:
            return
        live = found[0]
        ask = refusals.ask_of_stranger(name, slot, _source(self._options, peer))
        with contextlib.suppress(RdzvError):
            await self.sequencer.change_run(
                live, lambda now: refusals.decide_stranger(live.run, ask, now)
            )

    async def refuse(
        self, live: LiveRun, slot: int, generation: int, refusal: Refusal, peer: str = ""
    ) -> ReportReply:
        """Take in that a node does not join, and why."""
        source = _source(self._options, peer)
        await self.sequencer.change_run(
            live, lambda now: decide_refusal(live.run, slot, generation, refusal, now, source)
        )
        if refusal.of_slot:
            live.tell_end(slot)
        return ReportReply(seq=live.news_seq)

    async def report(
        self, live: LiveRun, slot: int, incarnation: int, report: Report, *, watches: bool = False
    ) -> None:
        """Take in what a node says; one that watches as well waits for news in any case."""
        self.counters["reports"] += 1
        arrived = live.now()

        def decide(now: float) -> Event | None:
            said = _aged(report, now - arrived, self._clock)
            return decide_report(live.run, slot, incarnation, said, now)

        await self.sequencer.change_run(live, decide, may_wait=watches)

    def heard(
        self, live: LiveRun, slot: int, incarnation: int, connection: Connection | None
    ) -> None:
        """Renew the lease of a node whose request just came in on this connection."""
        key = (slot, incarnation)
        if connection is None:
            live.leases.heard(key, live.now())
            return
        number = id(connection)
        if live.leases.heard(key, live.now(), number):
            connection.on_close(self._connection_closed, live.run.id, key, number)

    def _connection_closed(self, name: str, key: Key, number: int, how: CloseReason) -> None:
        live = self._runs.get(name)
        if live is not None:
            now = live.now()
            # After a stall it may be old, and what the node has asked since not read yet.
            is_new = self._clock.awake_seconds() >= live.leases.suspect_after
            by_peer = how is CloseReason.FIN and is_new
            live.leases.closed(key, now, number, by_peer=by_peer)

    async def watch(
        self,
        live: LiveRun,
        after: int,
        has: str | None = None,
        question: int = 0,
        views: int = 0,
        wait: float | None = None,
    ) -> Body:
        """What is new to who knows so much, has this table, and knows of this question and view; a
        node is not made to wait longer than the seconds that it expects."""
        self.counters["watches"] += 1
        if live.knows(after, question, views, live.now()) and not self.closing.is_set():
            await live.nodes.wait(min(live.leases.poll, math.inf if wait is None else wait))
        live.check_is_here()
        if self.closing.is_set() or live.news is None:
            raise Unavailable("the registry is closing" if live.news else "it has just come back")
        return live.news_after(after, has, live.now())

    async def relay_give(self, live: LiveRun, slot: int, post: RelayPost) -> RelayReply:
        """Pass on what a node says to others about remote commands."""
        relay = self._relay(live, slot)
        relay.give(slot, only_living(live.run, post.parcels))
        return RelayReply(session=relay.session)

    async def relay_take(self, live: LiveRun, slot: int, after: int, session: str) -> RelayMail:
        """What others say to a node about remote commands, after what it has; waits for it."""
        mail = await self._relay(live, slot).take(slot, after, session)
        if self.closing.is_set():
            raise Unavailable("the registry is closing")
        return mail

    def _relay(self, live: LiveRun, slot: int) -> Relay:
        check_member(live.run, slot)
        live.relay = live.relay or Relay()
        return live.relay


def _refused(
    live: LiveRun, request: JoinRequest, error: RequestError, source: str, now: float
) -> Event | None:
    """What follows from a join that is refused."""
    if isinstance(error, Mismatch):
        if (ends := decide_mismatch(live.run, request, error)) is not None:
            live.tell_end(request.slot)  # by this very refusal
            return ends
    elif isinstance(error, RunOver) or (isinstance(error, SlotTaken) and not request.any_slot):
        live.refused(request.slot, asks_again=isinstance(error, SlotTaken))
    return live.refused_joins.note(live.run, request, error, source, now, live.leases)


def _join_reply(access: Access, live: LiveRun, request: JoinRequest) -> JoinReply:
    run, incarnation = live.run, live.run.slots[request.slot].joins[request.join_id]
    return JoinReply(
        credential=access.node_credential(live, request.slot, incarnation).text(),
        incarnation=incarnation,
        epoch=run.epoch,
        seq=0,
        poll_seconds=live.leases.poll,
        nnodes=run.spec.max_nodes,
        join_timeout_seconds=run.spec.limits.join_timeout_seconds,
        arm_timeout_seconds=run.spec.limits.arm_timeout_seconds,
        fence_timeout_seconds=run.spec.fence_seconds,
        secrets=run.spec.secrets,
    )


def _source(options: Options, peer: str) -> str:
    """The address that a request came from; empty: an ingress's, or not known."""
    return peer.partition("%")[0] if options.trust_close else ""


def _origin(options: Options, request: JoinRequest, peer: str) -> tuple[str, bool]:
    """The address that a node joined from, and whether that is this very machine's loopback."""
    source = _source(options, peer)
    return source, is_loopback(source) and request.facts.boot_id == options.boot_id != ""


def _refuse_name(name: str, old: LiveRun | None) -> None:
    if old is not None and old.run.phase is not Phase.FINISHED:
        raise RunExists(
            f"run ID '{name}' is in use by launch {old.run.spec.launch_id} (started "
            f"{old.now() - old.run.created_at:.0f} s ago, {old.run.phase})",
            hint=f"cancel it with 'rdzv cancel {name}', or choose another --rdzv-id",
        )


def _refuse_more_runs(runs: Mapping[str, LiveRun], old: LiveRun | None, most: int) -> None:
    others = (live for live in runs.values() if live is not old)
    if len(runs) >= most <= sum(not live.has_ended for live in others):
        raise TooManyRuns(
            f"this registry cannot take another run: {most} are in progress, which is its limit",
            hint="wait until one of them ends, or ask the registry's operator to start it "
            "with a higher 'rdzv serve --max-runs'",
        )


def _is_same(old: RunSpec, new: RunSpec) -> bool:
    """Whether it is the same run: its registry may have got another address since."""
    return old.model_copy(update={"registry": new.registry}) == new


def _aged(report: Report, waited: float, clock: RegistryClock) -> Report:
    """A report that has waited for a slow disk: it tells of what is older by that."""
    if not isinstance(report, ExitReport):
        return report
    age = clock.own_age(report.age_seconds + max(0.0, waited))
    return report.model_copy(update={"age_seconds": age})
