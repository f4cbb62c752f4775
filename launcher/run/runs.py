"""The worker runs of a launch, shared by what submits, describes and ends them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from launcher.plan.plan import ANYWHERE, LOCAL, Where
from launcher.run.actions import News, Note, TellSlot
from launcher.run.desk import Desk
from launcher.run.ending import Endings
from launcher.run.values import Key, LaunchFacts, Preempted, Starter, Trouble
from launcher.schedulers.description import Description
from rendezvous.enums import StrEnum
from rendezvous.wire.errors import Cause
from rendezvous.wire.run import NodeState, Phase, Result, RunStatus, SlotState, SlotStatus


class Step(StrEnum):
    """How far a worker run has come."""

    LOOKING = "looking"
    """A former launcher had meant to submit it: is it there?"""
    TELLING = "telling"
    """The registry is told that it is about to be submitted."""
    OLDER = "older"
    """The older worker run of its slot has to be gone first."""
    GATED = "gated"
    """Enough others are being submitted."""
    WRITING = "writing"
    SUBMITTING = "submitting"
    DESCRIBED = "described"
    REST = "rest"
    """Nobody asks about it: it is over, replaced, or was not submitted for all that is known."""


_MAY_BE_PREEMPTED: Final = (
    Cause.NODE_LOST,
    Cause.PROGRAM_FAILED,
    Cause.AGENT_FAILED,
    Cause.SCHEDULER_FAILED,
    Cause.JOIN_TIMEOUT,
)
"""Causes of which a preemption may be the cause. What checks have found it is not."""
BEFORE_SUBMISSION: Final = (Step.TELLING, Step.OLDER, Step.GATED, Step.WRITING)
_STARTED: Final = (Phase.RUNNING, Phase.FINISHED)
_GATHERS_AGAIN: Final = (Phase.GATHERING, Phase.VERIFYING)
_RELEASED: Final = (NodeState.RELEASED, NodeState.LEFT)
_NOT_ON_ITS_WAY: Final = (SlotState.NONE, SlotState.FAILED, SlotState.ENDED)


def has_started(status: RunStatus) -> bool:
    """Whether programs have started, also where they are about to start again; or the run is
    over."""
    return status.phase in _STARTED or bool(status.ended)


@dataclass(slots=True)
class Run:
    """What is known of a worker run.

    Attributes:
        id: Of what its scheduler or the disk is asked just now.
        telling: Of the news that the registry is told just now.
        news: What it is told, until it has heard.
        found: What waits for the last line of its log, before it is told.
        said: What the registry was told last of what its scheduler says.
        over: How it ended, where this launch did not tell it to.
        preempted: What its scheduler said when it took the machine back; None while it has not.
        hint: What to do about a submission that failed.
        where: Where it was to start.
        host: Where it is, as far as that is known: as its scheduler, or the person, names it.
        named: The person does.
        lost_track: A former launcher had submitted it, and how it ended is not known.
        queued_at: Since when its scheduler has said that it waits; None: it does not.
        end_after: It is to be ended once its submission is answered.
        releases: How often it could not be ended after the go.
        release_at: Before that it is not tried again.
    """

    starter: Starter
    step: Step
    handle: str = ""
    gone: bool = False
    id: int | None = None
    telling: int | None = None
    news: News | None = None
    found: Description | None = None
    said: Description | None = None
    said_at: float = 0.0
    over: Description | None = None
    preempted: Description | None = None
    hint: str = ""
    where: Where = ANYWHERE
    host: str = ""
    named: bool = False
    lost_track: bool = False
    queued_at: float | None = None
    end_after: bool = False
    releases: int = 0
    release_at: float = 0.0

    @property
    def is_local(self) -> bool:
        """Whether it is a child of the launcher, which no ledger needs to know."""
        return self.starter.name == LOCAL

    def learn(self, found: Description) -> Description:
        """What its scheduler says, with what it has said before of its machine: Kubernetes says
        that it takes a pod's node before the pod ends, and nothing of it afterwards. What goes on
        running without that word was spared."""
        self.host = self.host if self.named else found.host or self.host
        if found.preempted or found.state is SlotState.RUNNING:
            self.preempted = found if found.preempted else None
        return found if self.preempted is None else replace(found, preempted=True)


@dataclass(slots=True)
class Runs:
    """All of them.

    Attributes:
        ends: Of those that are being ended.
        runs: What may exist, and what is about to be submitted.
        of_slot: The keys of each slot.
        asked: The newest generation that was asked for, by slot.
        seen: How each slot stands at the registry.
        phase: The run's; None before its first status.
        started: Programs have started, also where they are about to start again.
        outlives: The run may go on after the loss of a node.
        refused: The registry refuses to hear of a worker run: the launch cannot go on.
    """

    facts: LaunchFacts
    desk: Desk
    ends: Endings
    runs: dict[Key, Run] = field(default_factory=dict)
    of_slot: dict[int, list[Key]] = field(default_factory=dict)
    asked: dict[int, int] = field(default_factory=dict)
    seen: dict[int, SlotStatus] = field(default_factory=dict)
    phase: Phase | None = None
    started: bool = False
    outlives: bool = False
    refused: Trouble | None = None

    def goes_without(self, slot: SlotStatus) -> bool:
        """Whether the run has started without this slot.

        Where the nodes gather again between two epochs, no node has a number: those of the run are
        there then, or on their way.
        """
        if slot.node is not None or slot.awaited or not self.started:
            return False
        if self.phase is Phase.RUNNING or slot.node_state in _RELEASED:
            return True
        awaited = self.phase in _GATHERS_AGAIN and slot.state not in _NOT_ON_ITS_WAY
        return slot.node_state is None and not awaited

    def is_given_up(self, slot: SlotStatus) -> bool:
        """Whether a run that outlives its nodes has lost this slot's, and nobody comes for it."""
        is_lost = slot.node is None and slot.node_state in (None, NodeState.LOST)
        return self.outlives and self.started and is_lost and not slot.awaited

    def add(self, key: Key, run: Run) -> Run:
        """Know of it."""
        self.runs[key] = run
        self.of_slot.setdefault(key.slot, []).append(key)
        return run

    def forget(self, key: Key) -> None:
        """It was not submitted, and will not be."""
        self.quiet(key, self.runs.pop(key))
        self.of_slot[key.slot].remove(key)

    def quiet(self, key: Key, run: Run) -> None:
        """Nothing is asked or told of it any more."""
        for number in (run.id, run.telling):
            self.desk.break_off(number)
        for name in ("look", "tell"):
            self.desk.forget((name, key))
        run.id = run.telling = run.news = run.found = None
        run.step = Step.REST

    def is_newest(self, key: Key) -> bool:
        """Whether no newer generation was asked for."""
        return self.asked.get(key.slot, 0) <= key.generation

    def words_of_end(self, slot: int) -> str:
        """What the scheduler said when the slot's newest worker run failed; empty when it said
        nothing, or it was this launch that had told it to end."""
        run = self._newest(slot)
        if run is None or run.starter.loopback or run.over is None:
            return ""
        return run.over.detail if run.over.state is SlotState.FAILED else ""

    def preemption(self, result: Result) -> Preempted | None:
        """The worker run that its scheduler has preempted, where that is why the run has failed:
        of the slot that the result names, or of one whose node was lost without a word."""
        if result.status != "failed" or result.code not in _MAY_BE_PREEMPTED:
            return None
        for slot in sorted(self.of_slot, key=lambda slot: (slot != result.slot, slot)):
            run, seen = self._newest(slot), self.seen.get(slot)
            is_lost = seen is not None and seen.node_state is NodeState.LOST
            if run is not None and run.preempted is not None and (slot == result.slot or is_lost):
                return Preempted(slot, run.starter.name, run.preempted.detail)
        return None

    def hint_of_end(self, slot: int, code: str) -> str:
        """What to do where the slot's newest submission is why the run has ended."""
        run = self._newest(slot)
        return run.hint if run is not None and code == Cause.SCHEDULER_FAILED else ""

    def _newest(self, slot: int) -> Run | None:
        newest = max(self.of_slot.get(slot, ()), default=None)
        return None if newest is None else self.runs[newest]

    def tell(self, key: Key, run: Run, news: News) -> None:
        """Tell the registry, until it has heard."""
        run.news = news
        run.telling = self.desk.send("slots", TellSlot, key, news)

    def note(self, key: Key, run: Run, *, whole: bool = False) -> None:
        """Write down what became known; without it, its name still finds it."""
        if not run.is_local:
            self.desk.do(Note(key, run.handle, run.gone, whole))

    def end(self, key: Key, now: float, *, by_itself: float = 0.0) -> None:
        """End it, unless that is under way; one that is being submitted once that is answered."""
        run = self.runs[key]
        if run.gone or key in self.ends.ends:
            return
        if run.step is Step.SUBMITTING:
            run.end_after = True
            return
        self.quiet(key, run)
        self.ends.begin(key, run.starter, run.handle, now, by_itself=by_itself)
