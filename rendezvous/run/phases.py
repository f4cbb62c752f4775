"""What a run waits for and allows in each phase: the table into which a new phase goes. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Literal

from rendezvous.wire.errors import Cause
from rendezvous.wire.reports import (
    AckReport,
    DepartReport,
    ProgressReport,
    RefuseReport,
    WorldReport,
)
from rendezvous.wire.run import Phase
from rendezvous.wire.verify import ProbeReport


class Awaits(Enum):
    """What a run waits for in a phase."""

    NODES = auto()
    """That its slots are filled; each has a time-out of its own."""
    REPORTS = auto()
    """That every node does what it is asked, within one time-out."""
    PROGRAMS = auto()
    TIME = auto()
    """That the programs may start again."""
    NOTHING = auto()


class Admits(Enum):
    """Who may join in a phase."""

    EVERY_SLOT = auto()
    REPLACEMENTS = auto()
    """A newer worker run, in the place of a live node."""
    NOBODY = auto()


@dataclass(frozen=True, slots=True)
class PhaseRules:
    """The row of a phase.

    Attributes:
        awaits: What the run waits for.
        admits: Who may join.
        is_forming: No program has started on the table: a node that fails is replaced or spared,
            if it may be.
        reports: What a node may report on the present epoch.
        task: What every node is asked to do, as a sentence continues after "waiting for them to".
        task_alone: The same, where the run has one slot.
        task_again: The same, where programs of an earlier epoch may have to end first.
        shows: What the nodes need for it.
        limit: Which of the run's limits is the time-out.
        cause: Why a run fails whose nodes do not do it in time.
    """

    awaits: Awaits
    admits: Admits = Admits.NOBODY
    is_forming: bool = False
    reports: tuple[
        type[AckReport | DepartReport | ProbeReport | ProgressReport | RefuseReport | WorldReport],
        ...,
    ] = ()
    task: str = ""
    task_alone: str = ""
    task_again: str = ""
    shows: Literal["plan", "table"] | None = None
    limit: Literal["verify_timeout_seconds", "arm_timeout_seconds"] | None = None
    cause: Cause = Cause.JOIN_TIMEOUT


RULES: Final = {
    Phase.GATHERING: PhaseRules(Awaits.NODES, Admits.EVERY_SLOT, is_forming=True),
    Phase.VERIFYING: PhaseRules(
        Awaits.REPORTS,
        Admits.REPLACEMENTS,
        is_forming=True,
        reports=(ProbeReport,),
        task="report on the other nodes",
        task_alone="report",
        shows="plan",
        limit="verify_timeout_seconds",
        cause=Cause.VERIFICATION_FAILED,
    ),
    Phase.ARMING: PhaseRules(
        Awaits.REPORTS,
        Admits.REPLACEMENTS,
        is_forming=True,
        reports=(AckReport, RefuseReport),
        task="get ready",
        task_again="end the program of epoch {epoch} and get ready again",
        shows="table",
        limit="arm_timeout_seconds",
        cause=Cause.ARMING_FAILED,
    ),
    Phase.RUNNING: PhaseRules(Awaits.PROGRAMS, reports=(ProgressReport, DepartReport, WorldReport)),
    Phase.RESTARTING: PhaseRules(Awaits.TIME, Admits.REPLACEMENTS, is_forming=True),
    Phase.FINISHED: PhaseRules(Awaits.NOTHING),
}
