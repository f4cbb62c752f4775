"""What the launch says to a person, as values; `launcher.run.words` renders them. Pure."""

from __future__ import annotations

from launcher.run.values import Failure, Key, Why
from rendezvous.enums import StrEnum
from rendezvous.frozen import frozen
from rendezvous.wire.run import EpochEnd, Phase, RunReport, SlotState


@frozen
class Sentence:
    """Something that the launch says."""


class StandKind(StrEnum):
    """What is known of a worker run that may still exist."""

    STATE = "state"
    NOT_LISTED = "not_listed"
    CANNOT_LOOK = "cannot_look"
    SILENT = "silent"


@frozen
class Stand:
    """How a worker run stands.

    Attributes:
        state: Its scheduler's, where that is what is known.
        detail: The scheduler's words.
    """

    how: StandKind
    state: SlotState = SlotState.UNKNOWN
    detail: str = ""


@frozen
class EndsRun(Sentence):
    """A first signal ends the run; its programs have this grace, None where none runs yet."""

    signal: int
    grace: float | None


@frozen
class EndsAtOnce(Sentence):
    """A signal ends everything at once; `again` where one came before it."""

    signal: int
    again: bool


@frozen
class RegistryTrouble(Sentence):
    """What keeps the registry from its work, in its own words."""

    message: str
    hint: str = ""


@frozen
class RegistryNotNow(Sentence):
    """The registry answers, and cannot serve the run now: in its own words."""

    message: str


@frozen
class StandingWaits(Sentence):
    """A standing registry has not created the run yet."""

    message: str


@frozen
class LedgerUnwritable(Sentence):
    """Nothing is submitted that no later launcher would know of."""

    error: str


@frozen
class DidNotLeave(Sentence):
    """Nodes had their time to learn the result, and are still there."""

    slots: tuple[int, ...]
    seconds: float


@frozen
class WaitsForOthers(Sentence):
    """Nodes that nobody can cancel may still come: they are to learn how the run ended."""

    slots: tuple[int, ...]
    seconds: float


@frozen
class WaitsForRuns(Sentence):
    """Worker runs take their time to end."""

    slots: tuple[int, ...]


@frozen
class StartsByHand(Sentence):
    """A worker run waits for a person to start it."""

    key: Key
    handle: str


@frozen
class AvoidsHosts(Sentence):
    """A worker run may not start where others of its slot have failed."""

    key: Key
    hosts: tuple[str, ...]


@frozen
class CannotAvoid(Sentence):
    """A worker run may start where another one of its slot has failed.

    Attributes:
        hosts: Those where they have failed: the spec has no place for them; empty: its scheduler
            does not say where that was.
    """

    key: Key
    hosts: tuple[str, ...]


@frozen
class NoOtherHost(Sentence):
    """A slot's next worker run may start again where others have failed.

    Attributes:
        words: Why its scheduler has refused it; empty: it has waited in the queue for too long.
    """

    slot: int
    hosts: tuple[str, ...]
    words: str = ""


@frozen
class StartsElsewhere(Sentence):
    """A worker run starts on another one of the named hosts."""

    key: Key
    host: str
    former: str


@frozen
class StartsAgainOn(Sentence):
    """No other one of the named hosts is free."""

    slot: int
    host: str


OfHosts = AvoidsHosts | CannotAvoid | NoOtherHost | StartsElsewhere | StartsAgainOn


@frozen
class MayBeLeft(Sentence):
    """A worker run may still exist."""

    key: Key
    handle: str
    stand: Stand


@frozen
class WaitsForOlder(Sentence):
    """A worker run may still exist, and the next one of its slot is submitted only after it."""

    key: Key
    handle: str
    stand: Stand


@frozen
class Warnings(Sentence):
    """What the checks found odd about a run that starts."""

    report: RunReport


@frozen
class Findings(Sentence):
    """What the checks found about a run that did not start."""

    report: RunReport


@frozen
class EpochEnded(Sentence):
    """The programs have ended, and start again."""

    end: EpochEnd


@frozen
class LostAfterResult(Sentence):
    """The registry was lost when the result was known."""

    failure: Failure


@frozen
class ResultUnwritten(Sentence):
    """The result could not be written down."""

    error: str


# --- before the launch


@frozen
class BeginsAnew(Sentence):
    """Why the former launch is not taken up again.

    Attributes:
        detail: The former launch's host, what holds its port, or how its run had ended.
    """

    why: Why
    detail: str = ""


@frozen
class Requeued(Sentence):
    """The launcher's own job was requeued, and what that means for the former launch."""

    restarts: int
    said: Sentence


@frozen
class FormerStays(Sentence):
    """The registry that has the former launch, and is to have this one, does not answer."""

    launch_id: str


@frozen
class Resumes(Sentence):
    """The former launch is taken up again."""

    launch_id: str
    reason: str


@frozen
class PortKept(Sentence):
    """`--port` has no effect on a launch that is taken up again."""

    given: int
    kept: int


@frozen
class EndsFormer(Sentence):
    """The run of the former launch is ended."""

    phase: Phase
    why: Why


@frozen
class KeepsLeft(Sentence):
    """Worker runs of the former launch may be left, and a signal ends this one before it begins."""

    count: int


@frozen
class EndsLeft(Sentence):
    """Worker runs of the former launch may be left."""

    count: int


@frozen
class UnknownLeft(Sentence):
    """A worker run may be left at a scheduler that cannot be used any more."""

    name: str
    error: str
