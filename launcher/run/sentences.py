"""What the launch says to a person, as values; `launcher.run.words` renders them. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from launcher.run.values import Failure, Key, Starter, Why
from rendezvous.enums import StrEnum
from rendezvous.schema import Phase, RunReport, SlotState


class StandKind(StrEnum):
    """What is known of a worker run that may still exist."""

    STATE = "state"
    NOT_LISTED = "not_listed"
    CANNOT_LOOK = "cannot_look"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class Stand:
    """How a worker run stands.

    Attributes:
        state: Its scheduler's, where that is what is known.
        detail: The scheduler's words.
    """

    how: StandKind
    state: SlotState = SlotState.UNKNOWN
    detail: str = ""


@dataclass(frozen=True, slots=True)
class EndsRun:
    """A first signal ends the run."""

    signal: int


@dataclass(frozen=True, slots=True)
class EndsAtOnce:
    """A signal ends everything at once; `again` where one came before it."""

    signal: int
    again: bool


@dataclass(frozen=True, slots=True)
class RegistryTrouble:
    """What keeps the registry from its work, in its own words."""

    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class StandingWaits:
    """A standing registry has not created the run yet."""

    message: str


@dataclass(frozen=True, slots=True)
class LedgerUnwritable:
    """Nothing is submitted that no later launcher would know of."""

    error: str


@dataclass(frozen=True, slots=True)
class DidNotLeave:
    """Nodes had their time to learn the result, and are still there."""

    slots: tuple[int, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class WaitsForOthers:
    """Nodes that nobody can cancel may still come: they are to learn how the run ended."""

    slots: tuple[int, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class WaitsForRuns:
    """Worker runs take their time to end."""

    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MayBeLeft:
    """A worker run may still exist."""

    key: Key
    starter: Starter
    handle: str
    stand: Stand


@dataclass(frozen=True, slots=True)
class Warnings:
    """What the checks found odd about a run that starts."""

    report: RunReport


@dataclass(frozen=True, slots=True)
class Findings:
    """What the checks found about a run that did not start."""

    report: RunReport


@dataclass(frozen=True, slots=True)
class LostAfterResult:
    """The registry was lost when the result was known."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class ResultUnwritten:
    """The result could not be written down."""

    error: str


# --- before the launch


@dataclass(frozen=True, slots=True)
class BeginsAnew:
    """Why the former launch is not taken up again.

    Attributes:
        detail: The former launch's host, what holds its port, or how its run had ended.
    """

    why: Why
    detail: str = ""


@dataclass(frozen=True, slots=True)
class FormerStays:
    """The registry that has the former launch, and is to have this one, does not answer."""

    launch_id: str


@dataclass(frozen=True, slots=True)
class Resumes:
    """The former launch is taken up again."""

    launch_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class PortKept:
    """`--port` has no effect on a launch that is taken up again."""

    given: int
    kept: int


@dataclass(frozen=True, slots=True)
class EndsFormer:
    """The run of the former launch is ended."""

    phase: Phase
    why: Why


@dataclass(frozen=True, slots=True)
class EndsLeft:
    """Worker runs of the former launch may be left."""

    count: int


@dataclass(frozen=True, slots=True)
class UnknownLeft:
    """A worker run may be left at a scheduler that cannot be used any more."""

    name: str
    error: str


Sentence = (
    EndsRun
    | EndsAtOnce
    | RegistryTrouble
    | StandingWaits
    | LedgerUnwritable
    | DidNotLeave
    | WaitsForOthers
    | WaitsForRuns
    | MayBeLeft
    | Warnings
    | Findings
    | LostAfterResult
    | ResultUnwritten
    | BeginsAnew
    | FormerStays
    | Resumes
    | PortKept
    | EndsFormer
    | EndsLeft
    | UnknownLeft
)
