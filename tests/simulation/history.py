"""What really happened, and a second state of each run, made from what is durable alone."""

from __future__ import annotations

import functools
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from rendezvous.registry.journal import Record
from rendezvous.run import events
from rendezvous.run.decision import load_entry
from rendezvous.run.events import Event
from rendezvous.run.fold import apply
from rendezvous.run.state import DEAD_SUBMISSIONS, KILL_SECONDS, LeftOut, Run, create
from rendezvous.talk.network import Answer, Request
from rendezvous.wire.errors import InternalError
from rendezvous.wire.run import Phase, Result, RunStatus, SlotState
from rendezvous.wire.table import EndpointTable
from rendezvous.wire.types import Problem
from rendezvous.wire.watch import NodeView
from tests.simulation.epochs import Epochs, note_epochs
from tests.simulation.leaving import Departures, note_departures
from tests.simulation.schedule import names

if TYPE_CHECKING:
    from tests.simulation.agents import Process
    from tests.simulation.schedule import Launch
    from tests.simulation.world import World


Wrong = str | None
Judge = Callable[..., Wrong]
_PARTS = names("""
nodes, healthz, reports, refusal, report, relay, metrics, looks, views, words,
machine, machines, quiet
""")
_NOT_JUDGED = tuple(f"/{part}" for part in _PARTS)


@dataclass(frozen=True)
class Violation:
    """An invariant that did not hold."""

    invariant: str
    words: str
    at: float


News = tuple[Phase, int, str, bool, Result | None]


def news(of: Run | NodeView) -> News:
    """What is told with one sequence number; how each epoch ended, people alone."""
    return of.phase, of.epoch, of.digest, of.stop, plain(of.result)


def plain(result: Result | None) -> Result | None:
    """A result as nodes are told it."""
    return result.model_copy(update={"epochs": []}) if result is not None else None


@dataclass(frozen=True)
class Failure:
    """A node that really failed after it had started its program."""

    at: float
    slot: int
    incarnation: int
    silent: bool
    epoch: int = 0


@dataclass(frozen=True)
class Before:
    """A run as it was before its newest event; of a slot's node: incarnation and generation."""

    phase: Phase
    epoch: int
    stop: bool
    table: EndpointTable | None
    nodes: dict[int, tuple[int, int]]
    wanted: dict[int, int]
    given_up: frozenset[int]
    left_out: dict[int, LeftOut]
    taking_part: frozenset[int]
    waiting_for: frozenset[int]
    asked: bool
    used: int
    filled: frozenset[int]


def before(run: Run) -> Before:
    """What there is to remember of a run while an event changes it."""
    nodes = {s.index: (n.incarnation, n.join.generation) for s in run.slots if (n := s.live_node())}
    return Before(
        run.phase,
        run.epoch,
        run.stop,
        run.table,
        nodes,
        {slot.index: slot.wanted for slot in run.slots},
        frozenset(slot.index for slot in run.slots if slot.given_up),
        dict(run.attempt.left_out),
        frozenset(nodes.keys() - run.attempt.left_out.keys()),
        frozenset(run.waiting_for),
        bool(run.starts.asked),
        run.starts.used,
        frozenset(slot.index for slot in run.slots if slot.node is not None),
    )


@dataclass
class Wait:
    """How long a slot has been awaited, on the registry's clock; the queue does not count.

    A worker run that is tried again, as the last one has not joined, is awaited for no longer. When
    programs have stopped in a run that outlives its nodes, all are awaited from then on.
    """

    generation: int = 0
    queued: bool = False
    waited: float = 0.0
    since: float | None = None
    is_tried_again: bool = False

    def seconds(self, at: float) -> float:
        return self.waited + (0.0 if self.since is None else at - self.since)

    def begin_anew(self, at: float) -> None:
        self.waited, self.since = 0.0, at

    def count(self, at: float, *, counts: bool) -> None:
        if counts and self.since is None:
            self.since = at
        elif not counts and self.since is not None:
            self.waited, self.since = self.waited + at - self.since, None


@dataclass
class Facts:
    """What really happened to one launch."""

    launch: Launch
    launch_id: str
    index: int
    tables: dict[int, str] = field(default_factory=dict)
    sealed: dict[str, EndpointTable] = field(default_factory=dict)
    news: dict[int, News] = field(default_factory=dict)
    acks: set[tuple[int, int, str]] = field(default_factory=set)
    proven: set[tuple[int, int, int, str]] = field(default_factory=set)
    starts: list[tuple[int, int, str]] = field(default_factory=list)
    joined: dict[str, int] = field(default_factory=dict)
    owners: dict[tuple[int, int], Process] = field(default_factory=dict)
    told: list[Result] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    submissions: Counter[int] = field(default_factory=Counter)
    created: bool = False
    done: bool = False
    on_failure: list[Callable[[int], None]] = field(default_factory=list)
    known_at: dict[tuple[int, int], float] = field(default_factory=dict)
    stopped_at: float | None = None
    stop_wait: float = 0.0
    before: Before = field(init=False)
    there: Before | None = None
    waits: list[Wait] = field(default_factory=list)
    waits_before: list[Wait] = field(default_factory=list)
    exit_codes: dict[tuple[int, int], int] = field(default_factory=dict)
    enough_since: float | None = None
    last_enough_since: float | None = None
    phase_before_at: float = 0.0
    phase: tuple[Phase, int, str] = (Phase.GATHERING, 0, "")
    phase_at: float = 0.0
    stop_at: float | None = None
    finished: float | None = None
    lost_at: list[float] = field(default_factory=list)
    off_at: dict[tuple[int, int], float] = field(default_factory=dict)
    exited_at: dict[tuple[int, int], float] = field(default_factory=dict)
    said_over: dict[tuple[int, int], float] = field(default_factory=dict)
    reported: set[tuple[Any, ...]] = field(default_factory=set)
    failed_generations: dict[int, set[int]] = field(default_factory=dict)
    ports_taken: int = 0
    began_at: dict[int, float] = field(default_factory=dict)
    idle_at: dict[int, float] = field(default_factory=dict)
    news_at: dict[int, float] = field(default_factory=dict)
    views_after: dict[int, int] = field(default_factory=dict)
    forgotten: bool = False
    epochs: Epochs = field(default_factory=Epochs)
    departures: Departures = field(default_factory=Departures)


@functools.cache
def judges(about: tuple[str, ...], kind: Any) -> list[Judge]:
    """Who judges what has these names; of events, those who take one of this kind."""
    from tests.simulation.invariants import ALL

    asked = [judge for judge in ALL if tuple(signature(judge).parameters)[1:] == about]
    if kind is None:
        return asked
    taken = {judge: get_type_hints(judge)[about[1]] for judge in asked}
    return [judge for judge in asked if issubclass(kind, get_args(taken[judge]) or taken[judge])]


class History:
    """The judge's notes. The first violation ends the simulation."""

    def __init__(self, now: Callable[[], float], halt: Callable[[], None]) -> None:
        self.now = now
        self._halt = halt
        self.violation: Violation | None = None
        self.runs: dict[str, Run] = {}
        self.facts: dict[str, Facts] = {}
        self.processes: list[Process] = []
        self.records = 0
        self.last_at: dict[str, float] = {}
        self.at = 0.0
        self.gaps: list[tuple[float, float]] = []
        self._views: dict[bytes, NodeView] = {}
        self.world: World

    def fail(self, invariant: str, words: str) -> None:
        if self.violation is None:
            self.violation = Violation(invariant, words, self.now())
            self._halt()

    def judge(self, **about: Any) -> None:
        """Ask the judges of what has these names; each answers with what is wrong, or nothing."""
        event = about.get("event") or about.get("coming")
        kind: Any = type(event) if event is not None else None
        for judge in judges(tuple(about), kind):
            try:
                wrong = judge(self, **about)
            except Exception:  # noqa: BLE001 (it would look like a failure of the registry)
                self.fail(f"the_judge_does_not_fail: {judge.__name__}", traceback.format_exc())
                return
            if wrong:
                self.fail(judge.__name__, wrong)

    def of(self, run: Run) -> Facts:
        return self.facts[run.spec.launch_id]

    def run_of(self, facts: Facts) -> Run | None:
        """The run of a launch, unless it is forgotten, or another launch has its name."""
        run = self.runs.get(facts.launch.run)
        return run if run is not None and run.spec.launch_id == facts.launch_id else None

    def view_of(self, data: bytes) -> NodeView:
        if data not in self._views:
            self._views[data] = NodeView.model_validate_json(data)
        return self._views[data]

    # --- what the journal gets ----------------------------------------------------------------

    def recorded(self, record: Record) -> None:
        event, decision = load_entry(record.body)
        self.records += 1
        former = self.runs.get(record.run)
        self.at = record.at
        if former is not None:
            self.judge(run=former, coming=event)
        self.last_at[record.run] = record.at
        if isinstance(event, events.Created):
            self.runs[record.run] = create(record.run, event.spec, record.at)
            self.of(self.runs[record.run]).created = True
            self.of(self.runs[record.run]).there = None
        run = self.runs[record.run]
        facts = self.of(run)
        facts.before = facts.there or before(run)
        facts.epochs.resubmitted = run.starts.resubmitted
        apply(run, event, decision)
        if facts.news.setdefault(run.seq, news(run)) != news(run):
            self.fail("news_have_a_number_of_their_own", f"number {run.seq}: {news(run)}")
        note(self, facts, run, event, record.at)
        self.judge(run=run, event=event)

    def ended(self, facts: Facts) -> float:
        """When its run was over, or its registry is no more."""
        return facts.finished if facts.finished is not None else self.registry_until()

    def registry_until(self) -> float:
        away_since, back = self.gaps[-1] if self.gaps else (self.now(), 0.0)
        return away_since if back > self.now() else self.now()

    def journal_is_new(self) -> None:
        """A launch begins anew with a registry of its own: what was before is no more."""
        for run in self.runs.values():
            self.of(run).forgotten = True
        self.runs.clear()
        self.last_at.clear()

    def dropped(self, run: str) -> None:
        if run in self.runs:
            facts = self.of(self.runs[run])
            facts.forgotten = True
            self.judge(run=self.runs[run], facts=facts)

    # --- what the registry says ---------------------------------------------------------------

    def answered(self, request: Request, answer: Answer) -> None:
        said = self._said(request, answer)
        if said is not None:
            self.judge(said=said)

    def _said(self, request: Request, answer: Answer) -> NodeView | RunStatus | None:
        path = request.target.partition("?")[0]
        if answer.status >= 500:
            code = Problem.model_validate_json(answer.body).code
            if code == InternalError.code:
                self.fail("the_registry_never_fails_inside", f"{request}: {answer.body!r}")
        if answer.status != 200:
            return None
        if path.endswith("/watch"):
            return self.view_of(answer.body)
        if path.endswith(_NOT_JUDGED) or "/tables/" in path:
            return None
        return RunStatus.model_validate_json(answer.body)


# --- what follows from an event, by the rules alone -----------------------------------------------


def note(history: History, facts: Facts, run: Run, event: Event, at: float) -> None:
    """Take down when something began and what was told, for the promises about time."""
    now = history.now()
    told = (run.phase, run.epoch, run.digest)
    if isinstance(event, events.Created):
        facts.waits = [Wait(since=at) for _ in run.slots]
        facts.phase_at = at
    facts.waits_before = [replace(wait) for wait in facts.waits]
    facts.last_enough_since, facts.phase_before_at = facts.enough_since, facts.phase_at
    if isinstance(event, events.Joined):
        facts.joined[event.request.join_id] = run.slots[event.request.slot].incarnations
    if isinstance(event, events.ArmRefused) and event.report.code == "port_taken":
        facts.ports_taken += 1
    if told != facts.phase:
        facts.phase, facts.phase_at = told, at
    facts.news_at.setdefault(run.seq, now)
    if run.stop and facts.stop_at is None:
        facts.stop_at, facts.stopped_at = at, now
        facts.stop_wait = _stop_wait(run)
    if run.result is not None and facts.finished is None:
        facts.finished = now
    _note_nodes(facts, run, event, now)
    _note_failures(facts, event)
    _note_waits(facts, run, event, at)
    note_epochs(facts, run, event, at, now)
    note_departures(facts, run, event, at, now)


def _stop_wait(run: Run) -> float:
    """How long programs may take that are stopped because a node will go: nothing has failed."""
    return 0.0 if run.departure is None else run.spec.limits.grace_seconds + KILL_SECONDS


def _note_nodes(facts: Facts, run: Run, event: Event, now: float) -> None:
    if facts.epochs.is_late(event):
        return
    if isinstance(event, events.Exited | events.Lost):
        facts.known_at[event.slot, event.incarnation] = now
    if isinstance(event, events.Lost):
        facts.lost_at.append(now)
    if isinstance(event, events.Lost | events.Left):
        facts.off_at.setdefault((event.slot, event.incarnation), now)
    if isinstance(event, events.Exited):
        facts.exit_codes.setdefault((event.slot, event.incarnation), event.report.exit_code)
        facts.exited_at[event.slot, event.incarnation] = now
    if isinstance(event, events.Exited) and facts.before.phase is not Phase.RUNNING:
        facts.off_at.setdefault((event.slot, event.incarnation), now)
    for slot, (incarnation, _) in facts.before.nodes.items():
        node = run.slots[slot].node
        if node is None or node.incarnation != incarnation:
            facts.off_at.setdefault((slot, incarnation), now)
    for slot, incarnation in facts.owners:  # of those released: another has the slot
        if (node := run.slots[slot].node) is not None and node.incarnation > incarnation:
            facts.off_at.setdefault((slot, incarnation), now)
    if isinstance(event, events.SlotChanged) and event.news.state in DEAD_SUBMISSIONS:
        facts.said_over.setdefault((event.slot, event.news.generation), now)


def _note_failures(facts: Facts, event: Event) -> None:
    """Which worker runs of a slot failed before the go; none that the run had given up, or that
    another one was replacing already.

    Where that one had failed first, unneeded while the older one was there, it counts with it.
    """
    if facts.before.phase in (Phase.RUNNING, Phase.FINISHED) or facts.epochs.over:
        return
    slot, generation = -1, 0
    if isinstance(event, events.Lost | events.Exited | events.Left):
        slot, generation = event.slot, facts.before.nodes.get(event.slot, (0, 0))[1]
    elif isinstance(event, events.SlotChanged) and event.news.state in DEAD_SUBMISSIONS:
        slot, held = event.slot, facts.before.nodes.get(event.slot)
        if held is None or held[1] == event.news.generation:
            generation = event.news.generation
    elif isinstance(event, events.Refused) and event.exit_code is not None:
        slot, generation = event.slot, event.generation
    wanted = facts.before.wanted.get(slot, 0)
    if generation and (slot, wanted) in facts.said_over:
        generation = max(generation, wanted)
    if generation and generation >= wanted:
        facts.failed_generations.setdefault(slot, set()).add(generation)


_NOBODY_WAITS = (Phase.RUNNING, Phase.RESTARTING)


def _note_waits(facts: Facts, run: Run, event: Event, at: float) -> None:
    if isinstance(event, events.SubmitAgain):
        facts.waits[event.slot].is_tried_again = True
    elif isinstance(event, events.SlotChanged):
        _note_generation(facts, event.slot, event.news.generation, at)
        facts.waits[event.slot].queued = event.news.state is SlotState.QUEUED
    elif isinstance(event, events.Joined):
        _note_generation(facts, event.request.slot, event.request.generation, at)
    elif isinstance(event, events.Refused):
        _note_generation(facts, event.slot, event.generation, at)
    there = facts.there = before(run)
    stopped = facts.before.phase in _NOBODY_WAITS and run.phase not in _NOBODY_WAITS
    stopped &= run.spec.outlives_nodes
    for index, wait in enumerate(facts.waits):
        emptied = index in facts.before.nodes and index not in there.nodes
        emptied |= index in facts.before.filled - there.filled
        again = there.wanted[index] > facts.before.wanted[index] and not wait.is_tried_again
        given_up = index in there.given_up - facts.before.given_up
        if (emptied or again or given_up or stopped) and run.phase is not Phase.FINISHED:
            wait.begin_anew(at)
        wait.count(at, counts=index not in there.nodes and not wait.queued)
    enough = len(there.nodes) >= run.spec.min_nodes and (0 in there.nodes or not run.needs(0))
    if run.phase is not Phase.GATHERING or not enough:
        facts.enough_since = None
    elif facts.enough_since is None or isinstance(event, events.LastCallOver):
        facts.enough_since = at


def _note_generation(facts: Facts, slot: int, generation: int, at: float) -> None:
    wait = facts.waits[slot]
    if generation > wait.generation and wait.is_tried_again:
        wait.generation, wait.queued, wait.is_tried_again = generation, False, False
    elif generation > wait.generation:
        facts.waits[slot] = Wait(generation, since=at)
