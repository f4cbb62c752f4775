"""What really happened, and a second state of each run, made from what is durable alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rendezvous import events
from rendezvous.errors import InternalError
from rendezvous.events import Event, load_event
from rendezvous.network import Answer, Request
from rendezvous.protocol import apply
from rendezvous.schema import (
    EndpointTable,
    JoinReply,
    NodeView,
    Phase,
    Problem,
    Result,
    RunStatus,
    SlotState,
)
from rendezvous.server.journal import Record
from rendezvous.state import Run, create

if TYPE_CHECKING:
    from tests.simulation.agents import Process
    from tests.simulation.schedule import Launch


@dataclass(frozen=True)
class Violation:
    """An invariant that did not hold."""

    invariant: str
    words: str
    at: float


@dataclass(frozen=True)
class News:
    """What is told with one sequence number."""

    phase: Phase
    epoch: int
    digest: str
    stop: bool
    result: Result | None


@dataclass(frozen=True)
class Failure:
    """A node that really failed after it had started its program."""

    at: float
    slot: int
    incarnation: int
    silent: bool


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
    adopted: set[int] = field(default_factory=set)
    queued: dict[int, float] = field(default_factory=dict)
    queued_since: dict[int, float] = field(default_factory=dict)
    created: bool = False
    done: bool = False
    on_failure: list[Callable[[int], None]] = field(default_factory=list)
    known_at: dict[tuple[int, int], float] = field(default_factory=dict)
    stopped_at: float | None = None

    def queue_told(self, event: events.SlotChanged, at: float) -> None:
        """Count how long each slot was queued, as the registry was told: it may be cut off."""
        since = self.queued_since.pop(event.slot, at)
        self.queued[event.slot] = self.queued.get(event.slot, 0.0) + at - since
        if event.news.state is SlotState.QUEUED:
            self.queued_since[event.slot] = at

    def queued_seconds(self, slot: int, at: float) -> float:
        """How long the slot was queued, as far as the registry was told."""
        return self.queued.get(slot, 0.0) + at - self.queued_since.get(slot, at)


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
        self.numbers: list[tuple[str, int]] = []
        self.last_at: dict[str, float] = {}
        self.gaps: list[tuple[float, float]] = []
        self.kinds: Counter[str] = Counter()
        self._views: dict[bytes, NodeView] = {}

    def fail(self, invariant: str, words: str) -> None:
        """Note that an invariant does not hold."""
        if self.violation is None:
            self.violation = Violation(invariant, words, self.now())
            self._halt()

    def judge(self, invariants: list[Callable[..., str | None]], *arguments: Any) -> None:
        """Ask some invariants; each answers with what is wrong, or with nothing."""
        for invariant in invariants:
            wrong = invariant(self, *arguments)
            if wrong:
                self.fail(invariant.__name__, wrong)

    def of(self, run: Run) -> Facts:
        """What happened to the launch that has this run."""
        return self.facts[run.spec.launch_id]

    def view_of(self, data: bytes) -> NodeView:
        """The view in an answer that many get."""
        if data not in self._views:
            self._views[data] = NodeView.model_validate_json(data)
        return self._views[data]

    # --- what the journal gets ----------------------------------------------------------------

    def recorded(self, record: Record) -> None:
        """One more fact is durable."""
        from tests.simulation import invariants

        event = load_event(record.body)
        self.records += 1
        if record.number == 1:  # a run of this name may have been forgotten as a whole
            self.numbers = [known for known in self.numbers if known[0] != record.run]
        self.numbers.append((record.run, record.number))
        self.kinds[event.kind] += 1
        self.judge(invariants.OF_RECORDS, self.runs.get(record.run), event, record)
        self.last_at[record.run] = record.at
        if isinstance(event, events.Created):
            self.runs[record.run] = create(record.run, event.spec, record.at)
            self.of(self.runs[record.run]).created = True
        run = self.runs[record.run]
        apply(run, event, record.at)
        self._note(run, event, record.at)
        self.judge(invariants.OF_STATES, run, event, record.at)

    def _note(self, run: Run, event: Event, at: float) -> None:
        facts = self.of(run)
        if isinstance(event, events.SlotChanged):
            facts.queue_told(event, at)
        if isinstance(event, events.Joined):
            facts.joined[event.request.join_id] = run.slots[event.request.slot].incarnations
        elif isinstance(event, events.Exited | events.Lost):
            facts.known_at[event.slot, event.incarnation] = self.now()
        news = News(run.phase, run.epoch, run.digest, run.stop, run.result)
        if facts.news.setdefault(run.seq, news) != news:
            self.fail("news_have_a_number_of_their_own", f"number {run.seq}: {news}")
        if run.stop and facts.stopped_at is None:
            facts.stopped_at = self.now()

    # --- what the registry says ---------------------------------------------------------------

    def answered(self, request: Request, answer: Answer) -> None:
        """An answer leaves the registry."""
        from tests.simulation import invariants

        said = self._said(request, answer)
        if said is not None:
            self.judge(invariants.OF_ANSWERS, said)

    def _said(self, request: Request, answer: Answer) -> NodeView | JoinReply | RunStatus | None:
        path = request.target.partition("?")[0]
        if answer.status >= 500:
            code = Problem.model_validate_json(answer.body).code
            if code == InternalError.code:
                self.fail("the_registry_never_fails_inside", f"{request}: {answer.body!r}")
        if answer.status != 200 or path == "/healthz":
            return None
        if path.endswith("/watch"):
            return self.view_of(answer.body)
        if path.endswith("/nodes"):
            return JoinReply.model_validate_json(answer.body)
        if path.endswith(("/reports", "/refusal")):
            return None
        return RunStatus.model_validate_json(answer.body)
