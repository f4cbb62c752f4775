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
class PartFailed:
    """An effect raised what nobody expected: a fault of rdzv's own."""

    id: int
    words: str


@frozen
class Answered:
    """It is done."""

    id: int


@frozen
class StatusCame:
    """How the run stands."""

    id: int
    status: RunStatus


@frozen
class Unanswered:
    """No answer, or one that says: later. `jitter` is in 0 to 1."""

    id: int
    trouble: Trouble
    jitter: float = 0.0


@frozen
class Refused:
    """It will not be done."""

    id: int
    trouble: Trouble


@frozen
class Written:
    """It is on disk."""

    id: int


@frozen
class NotWritten:
    """The disk does not take it. `jitter` is in 0 to 1."""

    id: int
    error: str
    jitter: float = 0.0


@frozen
class ReportCame:
    """What was checked, and it is kept."""

    id: int
    report: RunReport


@frozen
class EventsOver:
    """The events have ended.

    Attributes:
        after: Number of the last one.
        broken: The connection failed.
    """

    id: int
    after: int
    broken: bool
    jitter: float = 0.0


@frozen
class Submitted:
    """The scheduler has the worker run."""

    id: int
    key: Key
    handle: str


@frozen
class SubmitFailed:
    """The scheduler does not have it, or has not said so; `certain`: it cannot have it."""

    id: int
    key: Key
    certain: bool
    words: str


@frozen
class SubmitTroubled:
    """A try to submit has failed; the submission waits for `TryAgain`."""

    id: int
    key: Key
    words: str


@frozen
class Found:
    """The id of the worker run with this name; None: it is not listed."""

    id: int
    handle: str | None


@frozen
class Described:
    """What the scheduler says of a worker run."""

    id: int
    found: Description


@frozen
class LineRead:
    """The last line of a worker run's log; empty where there is none."""

    id: int
    line: str


@frozen
class RunTold:
    """The scheduler was told to end a worker run."""

    id: int


@frozen
class SchedulerSilent:
    """The scheduler did not answer, or could not do it; in its words."""

    id: int
    words: str


@frozen
class ChildEnded:
    """The registry's process has ended."""

    id: int
    code: int
    last_words: str


@frozen
class ChildClosed:
    """The registry's process and socket are gone."""

    id: int


@frozen
class Opened:
    """The former launch's registry can be started, or asked."""

    id: int


@frozen
class Established:
    """The ground is made."""

    id: int


SchedulerAnswer = Found | Described | LineRead | RunTold | SchedulerSilent
RegistryAnswer = Answered | StatusCame | Unanswered | Refused
Answer = (
    SchedulerAnswer
    | RegistryAnswer
    | PartFailed
    | Written
    | NotWritten
    | ReportCame
    | EventsOver
    | Submitted
    | SubmitFailed
    | SubmitTroubled
    | ChildEnded
    | ChildClosed
    | Opened
    | Established
)
Input = Begin | Due | SignalCame | Answer
