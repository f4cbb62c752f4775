"""What a launch does: each action a frozen value, which `launcher.run.effects` carries out. Pure.

An action with an `id` is answered by one input with that id; it is one try, never more.
"""

from __future__ import annotations

from launcher.run.sentences import Sentence
from launcher.run.values import Failure, Fresh, Key, Outcome, Resumed, Standing, Verdict, Why
from rendezvous.frozen import frozen
from rendezvous.wire.run import RunStatus, SlotState

# --- the registry


@frozen
class StartChild:
    """Start the registry's process. `ChildEnded` when it has ended."""

    id: int


@frozen
class CloseChild:
    """End the registry's process and close its socket. `ChildClosed`."""

    id: int
    kill_after: float


@frozen
class CreateRun:
    """Create the run, or find that it is known. `Answered`."""

    id: int


@frozen
class AskStatus:
    """Ask how the run stands, once its version is above `after`. `StatusCame`."""

    id: int
    after: int
    wait: float


@frozen
class News:
    """What the registry is told of a worker run.

    Attributes:
        detail: The scheduler's words.
        last_line: What the worker run printed last, where that may be why.
    """

    state: SlotState
    handle: str = ""
    detail: str = ""
    last_line: str = ""


@frozen
class TellSlot:
    """Tell the registry of a worker run. `Answered`."""

    id: int
    key: Key
    news: News


@frozen
class BySignal:
    """A signal at the launcher cancels the run."""

    number: int


@frozen
class ByFailure:
    """The launcher cannot go on: its own reason, or the words of a fault."""

    failure: Failure | str


CancelReason = BySignal | ByFailure | Why


@frozen
class CancelRun:
    """Cancel the run at the registry. `StatusCame`."""

    id: int
    reason: CancelReason


@frozen
class FollowEvents:
    """Show the run's events numbered above `after` as they come. `EventsOver`."""

    id: int
    after: int


@frozen
class FetchMetrics:
    """Keep what the programs have sent. `Answered`, whatever comes of it."""

    id: int


# --- files


@frozen
class WriteIntent:
    """Write down a worker run that is about to be submitted. `Written`."""

    id: int
    key: Key


@frozen
class Note:
    """Write down what became known of a worker run; that may fail.

    Attributes:
        whole: The whole entry, for a ledger that may not have it.
    """

    key: Key
    handle: str
    gone: bool
    whole: bool = False


@frozen
class Keep:
    """Write down the nodes' ranks, the table and the report. `ReportCame`."""

    id: int
    status: RunStatus


@frozen
class KeepReport:
    """Write down what was checked. `ReportCame`."""

    id: int


@frozen
class WriteResult:
    """Write down how the launch ended. `Written`."""

    id: int
    verdict: Verdict


# --- schedulers


@frozen
class Submit:
    """Submit a worker run. `Submitted` or `SubmitFailed`; `SubmitTroubled` before a further try."""

    id: int
    key: Key


@frozen
class TryAgain:
    """Let a submission go on that waits behind `SubmitTroubled`."""

    id: int


@frozen
class Find:
    """Look for a worker run by its name. `Found`."""

    id: int
    key: Key


@frozen
class Describe:
    """Ask the scheduler how a worker run stands. `Described`."""

    id: int
    key: Key
    handle: str


@frozen
class ReadLastLine:
    """Read the last line of a worker run's log. `LineRead`."""

    id: int
    key: Key
    handle: str


@frozen
class CancelWorkerRun:
    """Tell a worker run to end. `RunTold`."""

    id: int
    key: Key
    handle: str
    grace: float


# --- before and after


@frozen
class OpenFormer:
    """Reach the former launch's registry; `listens`: on its port, to start it there. `Opened`."""

    id: int
    listens: bool


@frozen
class Establish:
    """Make the ground of this launch: files, keys, the socket. `Established`."""

    id: int
    ground: Fresh | Resumed | Standing


@frozen
class BreakOff:
    """End an action that is under way; it is not answered any more."""

    id: int


@frozen
class Show:
    """Show how the run stands."""

    status: RunStatus


@frozen
class Say:
    """Say something to the person."""

    sentence: Sentence


@frozen
class CloseBoard:
    """Nothing more is shown of the run."""


@frozen
class End:
    """It is over."""

    outcome: Outcome


Answerable = (
    StartChild
    | CloseChild
    | CreateRun
    | AskStatus
    | TellSlot
    | CancelRun
    | FollowEvents
    | FetchMetrics
    | WriteIntent
    | Keep
    | KeepReport
    | WriteResult
    | Submit
    | Find
    | Describe
    | ReadLastLine
    | CancelWorkerRun
    | OpenFormer
    | Establish
)
Action = Answerable | Note | TryAgain | BreakOff | Show | Say | CloseBoard | End
