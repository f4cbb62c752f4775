"""Worker runs of a launch, as far as they are known."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from launcher.cleanup.endings import Tracked
from launcher.launch.run_view import RunView
from launcher.plan.plan import ANYWHERE, Where
from launcher.schedulers.description import Description
from rendezvous.enums import StrEnum
from rendezvous.wire.run import NodeState, SlotState


class Step(StrEnum):
    """Step of a worker run."""

    LOOKING = "looking"
    """A former launcher had meant to submit it: is it there?"""
    WAITING = "waiting"
    """The registry is told of it, older ones are ended, or enough others are being submitted."""
    WRITTEN = "written"
    """The ledger may have it."""
    SUBMITTING = "submitting"
    DESCRIBED = "described"
    INACTIVE = "inactive"
    """Nobody asks about it: it is over, replaced, or was not submitted for all that is known."""


@dataclass(eq=False)
class SlotRun(Tracked):
    """Worker run of this launch.

    Attributes:
        task: What submits and describes it.
        reporting: What reports its end to the registry.
        retrying: A try to submit it has failed, and the registry is being told.
        reported: The description that was reported last.
        reported_at: When that was, by the loop's clock.
        where: Where it was to start.
        named: The person names its host.
        lost_track: A former launcher had submitted it, and how it ended is not known.
        queued_at: Since when its scheduler has said that it waits; None: it does not.
        recheck: Set when it is to look again whether an older worker run is in its way; None
            while it does not wait.
        end_after: It is to be ended once its submission is answered.
        failed_ends: How often it could not be ended after the go.
        end_again_at: Before that it is not tried again.
    """

    step: Step = Step.WAITING
    task: asyncio.Task[None] | None = None
    reporting: asyncio.Task[None] | None = None
    retrying: bool = False
    reported: Description | None = None
    reported_at: float = 0.0
    where: Where = ANYWHERE
    named: bool = False
    lost_track: bool = False
    queued_at: float | None = None
    recheck: asyncio.Event | None = None
    end_after: bool = False
    failed_ends: int = 0
    end_again_at: float = 0.0

    @property
    def before_submission(self) -> bool:
        """Whether its scheduler has not been asked to submit it."""
        return self.step in (Step.WAITING, Step.WRITTEN)

    def update(self, found: Description) -> Description:
        """Take in what its scheduler says, with what it has said before of its machine: Kubernetes
        says that it takes a pod's node before the pod ends, and nothing of it afterwards. What goes
        on running without that word was spared."""
        self.host = self.host if self.named else found.host or self.host
        if found.preempted or found.state is SlotState.RUNNING:
            self.preempted = found if found.preempted else None
        return found if self.preempted is None else replace(found, preempted=True)


@dataclass
class SlotRuns:
    """Collection of all worker runs that may exist, or are about to be submitted.

    Attributes:
        all: In the order in which they became known.
        of_slot: Those of each slot, the newest last.
        requested: The newest generation that was asked for, by slot.
        view: The run by its newest status.
        stopped: Nothing is submitted any more.
    """

    all: list[SlotRun] = field(default_factory=list)
    of_slot: dict[int, list[SlotRun]] = field(default_factory=dict)
    requested: dict[int, int] = field(default_factory=dict)
    view: RunView = field(default_factory=RunView)
    stopped: bool = False

    def add(self, run: SlotRun) -> None:
        """Know of one more."""
        self.all.append(run)
        of_slot = self.of_slot.setdefault(run.slot, [])
        of_slot.append(run)
        of_slot.sort(key=lambda one: one.generation)

    def remove(self, run: SlotRun) -> None:
        """Forget one that was not submitted."""
        self.all.remove(run)
        self.of_slot[run.slot].remove(run)

    def older(self, run: SlotRun) -> list[SlotRun]:
        """List those that it replaces, the newest last."""
        return [one for one in self.of_slot[run.slot] if one.generation < run.generation]

    def is_newest(self, run: SlotRun) -> bool:
        """Whether no newer generation was asked for."""
        return self.requested.get(run.slot, 0) <= run.generation

    def explain(self, failed: int | None) -> Iterator[tuple[SlotRun, Description]]:
        """Yield what schedulers have said that may be why the run has failed: of the newest worker
        run of the slot that failed first, and of those whose node was lost without a word."""
        slots = self.view.slots
        lost = [slot for slot, seen in slots.items() if seen.node_state is NodeState.LOST]
        for slot in dict.fromkeys([failed, *lost]):
            if slot is None or not self.of_slot.get(slot):
                continue
            run = self.of_slot[slot][-1]
            says = None if run.scheduler.loopback or slot != failed else run.over
            if run.preempted is not None:
                yield run, replace(run.preempted, preempted=True)
            elif says is not None and says.state is SlotState.FAILED and says.detail:
                yield run, says
