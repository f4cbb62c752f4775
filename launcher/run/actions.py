"""What a launch does: each action a value that `launcher.run.effects` carries out. Pure."""

from __future__ import annotations

from launcher.plan.plan import ANYWHERE, Where
from launcher.run.sentences import Sentence
from launcher.run.values import Failure, Ground, Key, Outcome, Verdict, Why
from rendezvous.frozen import frozen
from rendezvous.wire.run import RunStatus, SlotState


@frozen
class Answerable:
    """An action that is answered by one input with its id; it is one try, never more."""

    id: int


@frozen
class OfWorkerRun(Answerable):
    """An answerable action about one worker run."""

    key: Key


# --- the registry


@frozen
class StartChild(Answerable):
    """Start the registry's process. `ChildEnded` when it has ended."""


@frozen
class CloseChild(Answerable):
    """End the registry's process and close its socket. `Done`."""


@frozen
class CreateRun(Answerable):
    """Create the run, or find that it is known. `Done`."""


@frozen
class AskStatus(Answerable):
    """Ask how the run stands, once its version is above `after`. `StatusCame`."""

    after: int
    wait: float


@frozen
class News:
    """What the registry is told of a worker run.

    Attributes:
        detail: The scheduler's words.
        last_line: What the worker run printed last, where that may be why.
        preempted: The scheduler takes its machine back, or has done so.
        final: Another worker run of this spec would end likewise.
    """

    state: SlotState
    handle: str = ""
    detail: str = ""
    last_line: str = ""
    preempted: bool = False
    final: bool = False


@frozen
class TellSlot(OfWorkerRun):
    """Tell the registry of a worker run. `Done`."""

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
class CancelRun(Answerable):
    """Cancel the run at the registry. `StatusCame`."""

    reason: CancelReason


@frozen
class SendSecrets(Answerable):
    """Send the sealed variables to the registry, which has not kept them. `Done`."""


@frozen
class FollowEvents(Answerable):
    """Show the run's events numbered above `after` as they come. `EventsOver`."""

    after: int


@frozen
class RunFeatures(Answerable):
    """Run the features' parts to their ends. `Done`, whatever comes of them."""


@frozen
class FinishFeatures:
    """Have the features' parts do what they do last, and end."""


@frozen
class FetchWords(Answerable):
    """Keep what the ranks of failed programs have printed last. `Done`, whatever comes of it."""


# --- files


@frozen
class WriteIntent(OfWorkerRun):
    """Write down a worker run that is about to be submitted. `Done`."""

    where: Where = ANYWHERE


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
class Keep(Answerable):
    """Write down the nodes' ranks, the table and the report. `ReportCame`."""

    status: RunStatus


@frozen
class KeepReport(Answerable):
    """Write down what was checked. `ReportCame`."""


@frozen
class WriteResult(Answerable):
    """Write down how the launch ended. `Done`."""

    verdict: Verdict


# --- schedulers


@frozen
class Submit(OfWorkerRun):
    """Submit a worker run. `Submitted` or `SubmitFailed`; `SubmitTroubled` before a further try."""

    where: Where = ANYWHERE


@frozen
class TryAgain:
    """Let a submission go on that waits behind `SubmitTroubled`."""

    id: int


@frozen
class Find(OfWorkerRun):
    """Look for a worker run by its name. `Found`."""


@frozen
class Describe(OfWorkerRun):
    """Ask the scheduler how a worker run stands. `Described`."""

    handle: str


@frozen
class ReadLastLine(OfWorkerRun):
    """Read the last line of a worker run's log. `LineRead`."""

    handle: str


@frozen
class CancelWorkerRun(OfWorkerRun):
    """Tell a worker run to end. `RunTold`."""

    handle: str
    grace: float


# --- before and after


@frozen
class OpenFormer(Answerable):
    """Reach the former launch's registry; `listens`: on its port, to start it there. `Done`."""

    listens: bool


@frozen
class Establish(Answerable):
    """Make the ground of this launch: files, keys, the socket. `Done`."""

    ground: Ground


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


Action = Answerable | FinishFeatures | Note | TryAgain | BreakOff | Show | Say | CloseBoard | End
