"""One worker run as the launch sees it, and how what its scheduler says of it is judged. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from launcher.run.actions import News
from launcher.run.values import LOCAL, Starter
from launcher.schedulers.description import OVER, Description
from rendezvous.enums import StrEnum
from rendezvous.wire.run import NodeState, Phase, SlotState, SlotStatus

SLOW_DETAIL_SECONDS: Final = 1.0
SAY_AGAIN_SECONDS: Final = 30.0
LATE_SECONDS: Final = 20.0
DESCRIBED_A_SECOND: Final = 10.0
"""How many worker runs a scheduler's commands are asked about."""

_THERE = (NodeState.JOINED, NodeState.VERIFIED, NodeState.ARMED, NodeState.RUNNING)


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


BEFORE_SUBMISSION: Final = (Step.TELLING, Step.OLDER, Step.GATED, Step.WRITING)


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
    end_after: bool = False
    releases: int = 0
    release_at: float = 0.0

    @property
    def is_local(self) -> bool:
        """Whether it is a child of the launcher, which no ledger needs to know."""
        return self.starter.name == LOCAL


def pause_of(starter: Starter, asked: int) -> float:
    """Until it is asked again: a scheduler that serves others too is not asked too often."""
    if starter.loopback:
        return starter.poll_seconds
    return max(starter.poll_seconds, asked / DESCRIBED_A_SECOND)


def is_late(slot: SlotStatus | None, found: Description) -> bool:
    """Whether it has been running for a while, and its node has not come."""
    if slot is None or slot.node_state is not None or found.state is not SlotState.RUNNING:
        return False
    return slot.state is SlotState.RUNNING and slot.state_seconds >= LATE_SECONDS


def is_news(run: Run, found: Description, now: float, *, late: bool) -> bool:
    """Whether the registry is to hear of it: it believes in a queue only as long as it does."""
    said, ago = run.said, now - run.said_at
    if said is None or found.state is not said.state:
        return True
    if found != said and ago > SLOW_DETAIL_SECONDS:
        return True
    return (found.state is SlotState.QUEUED or late) and ago > SAY_AGAIN_SECONDS


def wants_last_line(run: Run, found: Description, phase: Phase | None, *, late: bool) -> bool:
    """Of one that ends before the go, or runs and does not call: what it said last is why, more
    often than not."""
    ended = found.state in OVER and phase not in (Phase.RUNNING, Phase.FINISHED)
    return run.starter.keeps_logs and (ended or late)


def is_believed_over(
    run: Run, generation: int, found: Description, slot: SlotStatus | None
) -> bool:
    """Whether it is over: not while its own node is there, whatever its scheduler says.

    A child of this process is certain; a command's one answer may be wrong, and what is believed
    gone is never ended any more.
    """
    if found.state not in OVER:
        return False
    if slot is None or run.starter.loopback or slot.generation != generation:
        return True
    return slot.node_state not in _THERE
