"""What a launch takes in: answers to its actions, signals, and that time has come. Pure."""

from __future__ import annotations

from typing import Final

from launcher.run.values import Key, Trouble
from launcher.schedulers.description import Description
from rendezvous.frozen import frozen
from rendezvous.wire.run import RunReport, RunStatus

NO_ACTION: Final = 0
"""The id of what has none."""


@frozen
class Begin:
    """The launch begins: the first input."""


@frozen
class Due:
    """The time has come for which the machine has asked."""


@frozen
class SignalCame:
    """A signal that ends the run."""

    number: int


@frozen
class Answer:
    """What comes of the action with this id."""

    id: int


@frozen
class PartFailed(Answer):
    """An effect raised what nobody expected: a fault of rdzv's own."""

    words: str


@frozen
class Done(Answer):
    """It is done."""


@frozen
class StatusCame(Answer):
    """How the run stands."""

    status: RunStatus


@frozen
class Unanswered(Answer):
    """No answer, or one that says: later. `jitter` is in 0 to 1."""

    trouble: Trouble
    jitter: float = 0.0


@frozen
class Refused(Answer):
    """It will not be done."""

    trouble: Trouble


@frozen
class NotWritten(Answer):
    """The disk does not take it. `jitter` is in 0 to 1."""

    error: str
    jitter: float = 0.0


@frozen
class ReportCame(Answer):
    """What was checked, and it is kept."""

    report: RunReport


@frozen
class EventsOver(Answer):
    """The events have ended.

    Attributes:
        after: Number of the last one.
        broken: The connection failed.
    """

    after: int
    broken: bool
    jitter: float = 0.0


@frozen
class Submitted(Answer):
    """The scheduler has the worker run."""

    key: Key
    handle: str


@frozen
class SubmitFailed(Answer):
    """The scheduler does not have it, or has not said so; `certain`: it cannot have it; `final`: it
    would refuse another submission of that slot as well; `no_host`: it has no such host."""

    key: Key
    certain: bool
    words: str
    hint: str = ""
    final: bool = False
    no_host: bool = False


@frozen
class SubmitTroubled(Answer):
    """A try to submit has failed; the submission waits for `TryAgain`."""

    key: Key
    words: str


@frozen
class Found(Answer):
    """The id of the worker run with this name; None: it is not listed."""

    handle: str | None


@frozen
class Described(Answer):
    """What the scheduler says of a worker run."""

    found: Description


@frozen
class LineRead(Answer):
    """The last line of a worker run's log; empty where there is none."""

    line: str


@frozen
class RunTold(Answer):
    """The scheduler was told to end a worker run."""


@frozen
class SchedulerSilent(Answer):
    """The scheduler did not answer, or could not do it; in its words."""

    words: str


@frozen
class ChildEnded(Answer):
    """The registry's process has ended."""

    code: int
    last_words: str


SchedulerAnswer = Found | Described | LineRead | RunTold | SchedulerSilent
Input = Begin | Due | SignalCame | Answer
