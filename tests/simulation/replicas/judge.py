"""What must hold of replicas: judged by what became durable, and by what was told to whom.

I1  Of each run the numbers are dense, and the epochs never decrease in their order.
I2  No event of an epoch is written once a higher one was claimed; no epoch is claimed twice.
I3  What was acknowledged is in the journal, and nothing that was sent again counts twice.
I4  What is told is implied by the journal at that moment; nothing new is told by an owner of
    which nothing is durable yet.
I5  Of an epoch of a run there is one table.
I6  No node is lost that kept asking.
I7  Incarnations never decrease.
I8  What an owner has of a run is what its records come to.
I10 The clock of a run never goes back, nor faster than time does.
L1  Once all is well every run goes on to its end, and one replica answers for it.
L2  No node is refused that belongs to its run.
one owner  Who was replaced does not answer any more once it can know.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from rendezvous.registry.journal import Record
from rendezvous.registry.membership import LEASE_SECONDS
from rendezvous.registry.shared_journal import Holding
from rendezvous.run import events
from rendezvous.run.decision import load_entry
from rendezvous.run.fold import apply
from rendezvous.run.state import GONE, OVER, Run, create
from rendezvous.wire.node import JoinReply
from rendezvous.wire.reports import AckReport, ExitReport, LeaveReport, Report
from rendezvous.wire.run import Phase, RunStatus
from rendezvous.wire.verify import ProbeReport
from rendezvous.wire.watch import NodeView
from tests.simulation.history import Violation

_FASTER = 1.03
_NOTICED_SECONDS = 4.0
"""Until every replica knows that the engine is away, at most."""
_SLACK_SECONDS = 2.5
"""How long a poll of who was replaced may go on: it was parked before."""

Facts = tuple[object, ...]
NodeKey = tuple[str, str, int]
"""Run, launch, slot."""


_ROUND_SECONDS = 6.0
"""To ask all replicas, of which two may not answer: with a shorter lease that may be too late."""


@dataclass
class Asking:
    """When a node has asked.

    Attributes:
        times: Of its requests, the newest last.
        ended: It asks no more, or has died.
    """

    lease: float
    times: list[float] = field(default_factory=list)
    ended: bool = False

    def kept_asking(self, since: float, until: float) -> bool:
        if self.ended or not self.times or self.times[0] > since:
            return False
        times = [since, *(time for time in self.times[-40:] if since <= time <= until), until]
        return all(b - a <= self.lease / 2 for a, b in itertools.pairwise(times))


@dataclass
class Shadow:
    """A run as its records imply it.

    Attributes:
        views: What nodes may be told, by its number.
        statuses: What people may be told, by version.
        acts: What nodes have done, which they do once.
    """

    run: Run
    number: int
    epoch: int
    at: float
    began_at: float
    began: float
    views: dict[int, Facts] = field(default_factory=dict)
    statuses: dict[int, Facts] = field(default_factory=dict)
    told: set[tuple[str, int]] = field(default_factory=set)
    acts: set[Facts] = field(default_factory=set)
    former: dict[str, Shadow] = field(default_factory=dict)
    """By launch, those whose place this one took."""

    @property
    def launch(self) -> str:
        return self.run.spec.launch_id


def _view(of: Run | NodeView) -> Facts:
    status = of.result.status if of.result is not None else ""
    return of.phase, of.epoch, of.digest, of.stop, status


def _status(of: Run | RunStatus) -> Facts:
    status = of.result.status if of.result is not None else ""
    return of.phase, of.epoch, of.digest, status


class Judge:
    """Looks at everything as it happens; the first thing that is wrong counts."""

    def __init__(self, now: Callable[[], float], halt: Callable[[], None]) -> None:
        self._now = now
        self._halt = halt
        self.violation: Violation | None = None
        self.shadows: dict[str, Shadow] = {}
        self.askings: dict[NodeKey, Asking] = {}
        self.records = 0
        self.isolated_until = -1.0
        """Some replica was out of the nodes' reach until then."""
        self.given: dict[tuple[str, str], float] = {}
        """When a replica gave a run away, until it has that again."""
        self.away: list[tuple[float, float]] = []
        """Since when the engine was away, and until when."""
        self.full_until = -1.0
        """The engine was full until then."""
        self.slow_seconds = 0.0
        """Of the slowest commit: something is made before that is durable."""
        self._claims: dict[str, list[tuple[float, int, str]]] = {}
        self._forgotten: dict[tuple[str, str], Shadow] = {}
        self._floor: dict[str, int] = {}
        self._incarnations: dict[NodeKey, int] = {}
        self._digests: dict[tuple[str, str, int], str] = {}

    def fail(self, invariant: str, words: str) -> None:
        if self.violation is None:
            self.violation = Violation(invariant, words, self._now())
            self._halt()

    # --- the engine ---------------------------------------------------------------------------

    def claimed(self, who: str, claimed: Mapping[str, int], before: Mapping[str, Holding]) -> None:
        for run, epoch in claimed.items():
            owner = before[run].owner if run in before else None
            if owner not in (None, who) and self.is_well(owner, run):
                self.fail("no move", f"{who} takes run {run} from {owner}, which is well")
            known = self._claims.setdefault(run, [])
            if known and known[-1][1] >= epoch:
                self.fail("I2", f"{who} claimed run {run} with epoch {epoch} after {known[-1]}")
            known.append((self._now(), epoch, who))
            self.given.pop((run, who), None)  # that was before

    def dropped(self, run: str) -> None:
        shadow = self.shadows.pop(run, None)
        if shadow is not None and shadow.run.phase is not Phase.FINISHED:
            self.fail("I3", f"run {run} was forgotten before its end")
        if shadow is not None:
            for each in [*shadow.former.values(), shadow]:
                self._forgotten[run, each.launch] = each

    def was_forgotten(self, run: str, launch: str) -> bool:
        """Whether this launch had ended, and was removed: runs are kept for seconds here, for an
        hour else."""
        return (run, launch) in self._forgotten

    def committed(self, record: Record, epoch: int, newest: int) -> None:
        """This is durable now, written by the owner of that epoch; the newest one is `newest`."""
        self.records += 1
        run, (event, decision) = record.run, load_entry(record.body)
        shadow = self.shadows.get(run)
        known = shadow.number if shadow is not None else 0
        if record.number != known + 1:
            self.fail("I1", f"run {run}: number {record.number} after {known}")
        if epoch < self._floor.get(run, 0):
            self.fail("I1", f"run {run}: epoch {epoch} after {self._floor[run]}")
        if epoch != newest:
            self.fail("I2", f"run {run}: written with epoch {epoch}, while {newest} is claimed")
        self._floor[run] = epoch
        if isinstance(event, events.Created):
            shadow = self._created(record, event, shadow)
        if shadow is None:
            self.fail("I1", f"run {run} does not begin with its making")
            return
        self._clock(shadow, record)
        self._act(shadow, event)
        apply(shadow.run, event, decision)
        shadow.number, shadow.epoch, shadow.at = record.number, epoch, record.at
        shadow.views[shadow.run.seq] = _view(shadow.run)
        shadow.statuses[shadow.run.version] = _status(shadow.run)
        self._lost(shadow, event)

    def _created(self, record: Record, event: events.Created, old: Shadow | None) -> Shadow:
        fresh = create(record.run, event.spec, record.at)
        if old is not None:
            if old.run.phase is not Phase.FINISHED or event.spec.launch_id in old.former:
                self.fail("I3", f"run {record.run}: {event.spec.launch_id} took the place of one")
            shadow = replace(old, run=fresh, views={}, statuses={}, acts=set())
            shadow.former[old.launch] = old
        else:
            shadow = Shadow(fresh, 0, 0, record.at, record.at, self._now())
        self.shadows[record.run] = shadow
        return shadow

    def _clock(self, shadow: Shadow, record: Record) -> None:
        passed = self._now() - shadow.began - self._away_since(shadow.began)
        if record.at < shadow.at - 1e-6:
            self.fail("I10", f"run {record.run}: at {record.at:.3f} after {shadow.at:.3f}")
        late = 2 * self.slow_seconds  # its making waited for another commit, and for its own
        if record.at - shadow.began_at > passed * _FASTER + late + 0.1:
            words = f"{record.at - shadow.began_at:.3f} s in {passed:.3f} s"
            self.fail("I10", f"run {record.run}: {words}, at number {record.number}")

    def _away_since(self, began: float) -> float:
        """How long the engine was away since then: once a replica sees that, no time passes."""
        spans = ((max(began, since), min(until, self._now())) for since, until in self.away)
        return sum(max(0.0, until - since - _NOTICED_SECONDS) for since, until in spans)

    def _act(self, shadow: Shadow, event: events.Event) -> None:
        act: Facts | None = None
        if isinstance(event, events.Joined):
            act = ("joined", event.request.join_id)
        elif isinstance(event, events.Acked | events.Probed | events.Exited):
            act = (event.kind, event.slot, event.incarnation, event.report.epoch)
        elif isinstance(event, events.Left | events.Lost):
            act = (event.kind, event.slot, event.incarnation)
        elif isinstance(event, events.Cancelled):
            act = (event.kind,)
        if act is None:
            return
        if act in shadow.acts:
            self.fail("I3", f"run {shadow.run.id}: {act} counts twice")
        shadow.acts.add(act)

    def _lost(self, shadow: Shadow, event: events.Event) -> None:
        if isinstance(event, events.TimedOut):
            self._timed_out(shadow)
        if not isinstance(event, events.Lost):
            return
        asking = self.askings.get((shadow.run.id, shadow.launch, event.slot))
        now, lease = self._now(), shadow.run.spec.limits.lease_seconds
        if asking is None or self.isolated_until >= now - lease or lease < _ROUND_SECONDS:
            return
        if asking.kept_asking(now - lease, now):
            self.fail("I6", f"run {shadow.run.id}: slot {event.slot} is lost: {event.reason}")

    def _timed_out(self, shadow: Shadow) -> None:
        slots = range(len(shadow.run.slots))
        asking = [self.askings.get((shadow.run.id, shadow.launch, slot)) for slot in slots]
        if all(one is not None and not one.ended for one in asking) and self.isolated_until < 0:
            self.fail("I6", f"run {shadow.run.id}: its time is over, though all nodes are there")

    # --- what is told -------------------------------------------------------------------------

    def told_view(self, who: str, run: str, launch: str, view: NodeView) -> None:
        self._answered(who, run)
        told = _view(view)
        shadow = self._of(run, launch, lambda one: one.views.get(view.seq) == told)
        if shadow is None:
            self.fail("I4", f"{who} told of run {run} {launch}, which the journal does not have")
            return
        self._is_implied("a view", shadow.views.get(view.seq), told, f"{who}: run {run}")
        self._digest(run, launch, view.epoch, view.digest)
        self._is_first_told(who, run, shadow, (f"{launch} view", view.seq))

    def told_status(self, who: str, run: str, launch: str, status: RunStatus) -> None:
        self._answered(who, run)
        told = _status(status)
        shadow = self._of(
            run, status.launch_id, lambda one: one.statuses.get(status.version) == told
        )
        if shadow is None:
            self.fail("I4", f"{who} told of run {run} {launch}, which the journal does not have")
            return
        self._is_implied(
            "a status",
            shadow.statuses.get(status.version),
            told,
            f"{who}: run {run} {status.launch_id} version {status.version}",
        )
        self._is_first_told(who, run, shadow, (f"{status.launch_id} status", status.version))

    def _of(
        self, run: str, launch: str, implies: Callable[[Shadow], bool] = lambda _: True
    ) -> Shadow | None:
        """This launch; of one that was made once more after it was forgotten, by a request that
        was stopped on its way, the life that implies what was said."""
        known, shadow = self._forgotten.get((run, launch)), self.shadows.get(run)
        if shadow is not None and shadow.launch != launch:
            shadow = shadow.former.get(launch)
        if shadow is None or (known is not None and not implies(shadow) and implies(known)):
            return known
        return shadow

    def _is_implied(self, what: str, known: Facts | None, told: Facts, where: str) -> None:
        if known != told:
            self.fail("I4", f"{where}: {what} of {told}, where the journal has {known}")

    def _is_first_told(self, who: str, run: str, shadow: Shadow, what: tuple[str, int]) -> None:
        """What nobody has told yet is told by an owner of whom something is durable."""
        if what in shadow.told:
            return
        shadow.told.add(what)
        claims = self._claims[run]
        if self._now() - self.full_until < LEASE_SECONDS or shadow.run.result is not None:
            return  # that it was claimed is durable, and nothing else can be
        mine = list(itertools.takewhile(lambda claim: claim[2] == who, reversed(claims)))
        if mine and shadow.epoch < mine[-1][1]:
            self.fail("I4", f"{who} tells of run {run} before its epoch {mine[-1][1]} is durable")

    def _digest(self, run: str, launch: str, epoch: int, digest: str) -> None:
        if digest and self._digests.setdefault((run, launch, epoch), digest) != digest:
            self.fail("I5", f"run {run} {launch}: two tables of epoch {epoch}")

    def _answered(self, who: str, run: str) -> None:
        claims = self._claims.get(run, [])
        mine = [place for place, claim in enumerate(claims) if claim[2] == who]
        if not mine:
            self.fail("one owner", f"{who} answers for run {run}, which it never had")
        elif mine[-1] + 1 < len(claims):
            since = max(claims[mine[-1] + 1][0], self.awake_since(who))
            if self._now() - since > LEASE_SECONDS + _SLACK_SECONDS:
                self.fail("one owner", f"{who} still answers for run {run}: {claims[-2:]}")

    def sent_away(self, who: str, run: str) -> None:
        """Who waited for news hears that the run has been given away."""
        late = self._now() - self.given.get((run, who), self._now())
        if 0.3 < late < LEASE_SECONDS and self._now() - self.awake_since(who) > LEASE_SECONDS:
            self.fail("L3", f"{who} sends who waits for run {run} away after {late:.2f} s")

    is_well: Callable[[str | None, str], bool] = staticmethod(lambda who, run: False)
    """Whether a replica that knows that it has this run has been at work for a while, and reached
    the engine whenever that was there."""
    awake_since: Callable[[str], float] = staticmethod(lambda who: 0.0)
    """When a replica went on that had been stopped."""

    # --- what is acknowledged -----------------------------------------------------------------

    def joined(
        self, who: str, run: str, launch: str, join_id: str, slot: int, reply: JoinReply
    ) -> None:
        self._answered(who, run)
        shadow = self._of(run, launch, lambda one: join_id in one.run.slots[slot].joins)
        key = run, launch, slot
        if shadow is None or join_id not in shadow.run.slots[slot].joins:
            self.fail("I3", f"{who}: run {run}: the join of slot {slot} is not in the journal")
        if reply.incarnation < self._incarnations.get(key, 0):
            self.fail("I7", f"run {run}: slot {slot} has incarnation {reply.incarnation}")
        self._incarnations[key] = reply.incarnation

    def acked(self, who: str, run: str, launch: str, key: tuple[int, int], report: Report) -> None:
        """A node was told that its report has been taken in."""
        self._answered(who, run)
        shadow = self._of(run, launch, lambda one: _is_taken_in(one.run, key, report))
        if shadow is None or not _is_taken_in(shadow.run, key, report):
            slot = None if shadow is None else shadow.run.slots[key[0]].node
            self.fail("I3", f"{who}: run {run}: {report!r} of {key} is not in the journal: {slot}")

    def made(self, who: str, run: str, launch: str) -> None:
        if self._of(run, launch) is None:
            self.fail("I3", f"{who}: run {run} {launch} is not in the journal")

    def cancelled(self, who: str, run: str, launch: str) -> None:
        shadow = self._of(run, launch)
        if shadow is None or not (shadow.run.phase is Phase.FINISHED or shadow.run.stop):
            self.fail("I3", f"{who}: the end of run {run} is not in the journal")

    def refused(self, run: str, launch: str, key: tuple[int, int] | None, exc: Exception) -> None:
        """Somebody was told for good that they cannot have it: a node, or (None) the launcher."""
        shadow = self.shadows.get(run)
        if shadow is None or shadow.launch != launch or shadow.run.phase is Phase.FINISHED:
            return
        if key is not None:
            node = shadow.run.slots[key[0]].node
            if key[1] and (node is None or node.incarnation != key[1] or node.state in GONE):
                return
        self.fail("L2", f"run {run} {launch} {key} was refused: {type(exc).__name__}: {exc}")

    def is_known(self, run: str, launch: str) -> bool:
        shadow = self.shadows.get(run)
        return shadow is not None and shadow.launch == launch


def _is_taken_in(run: Run, key: tuple[int, int], report: Report) -> bool:
    """Whether nothing is left to write of a report."""
    slot = run.slots[key[0]]
    node = slot.node
    if node is None or node.incarnation != key[1] or run.phase is Phase.FINISHED:
        return not isinstance(report, LeaveReport) or node is None or node.state in GONE
    if isinstance(report, LeaveReport):
        return node.state in GONE
    if isinstance(report, ExitReport):
        return node.state in OVER or report.epoch <= node.reported
    if isinstance(report, AckReport | ProbeReport) and report.epoch == run.epoch:
        return not isinstance(report, run.rules.reports) or key[0] not in run.waiting_for
    return True
