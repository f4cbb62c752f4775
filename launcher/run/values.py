"""The words in which the machines of a launch speak: keys, facts and reasons. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from launcher.plan.avoiding import NO_PLACES, Places
from rendezvous.enums import StrEnum
from rendezvous.frozen import frozen
from rendezvous.wire.errors import ExitCode, RdzvError, RegistryError, StorageFull, TooManyRequests
from rendezvous.wire.run import EpochEnd, Result

CREATE_SECONDS: Final = 20.0
"""So long a registry may be away when a launch begins."""
SIGNALS: Final = 128
"""What a shell adds to a signal's number, for an exit code."""


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """One worker run of a launch.

    Attributes:
        slot: The slot that it fills.
        generation: Counts the submissions of that slot, from 1.
        former: The worker run's name where another launch had submitted it; else empty.
    """

    slot: int
    generation: int
    former: str = ""


@frozen
class Starter:
    """What the machine knows of a scheduler.

    Attributes:
        name: As the ledger names it: a scheduler's name, or the path of a profile.
        poll_seconds: How often it may be asked about a worker run.
        loopback: Its worker runs live on this machine: asking costs no command.
        finds: Whether it can look for a worker run by name.
        keeps_logs: Whether it keeps what a worker run prints.
        by_hand: Whether a person starts its worker runs.
    """

    name: str
    poll_seconds: float
    loopback: bool = False
    finds: bool = True
    keeps_logs: bool = False
    by_hand: bool = False


@frozen
class Left:
    """A worker run that may still exist, as the ledger of a former launcher has it."""

    key: Key
    starter: Starter
    handle: str = ""
    host: str = ""


@frozen
class LaunchFacts:
    """What the machine knows of one launch.

    Attributes:
        here: What starts slot 0; None where nothing is submitted for it.
        others: What starts the other slots; None in a symmetric start.
        owns_registry: The registry is a child of this launcher; else it is a standing one.
        joins_here: Slot 0's node is started by this launcher, on this machine.
        places: On which hosts the nodes may start.
        grace: Seconds that a program has between TERM and KILL.
        orphan_timeout: Seconds that the launch goes on without its registry.
        sends_secrets: The registry is sent sealed variables, to pass on.
    """

    here: Starter | None
    others: Starter | None
    owns_registry: bool
    joins_here: bool
    places: Places = NO_PLACES
    grace: float = 10.0
    orphan_timeout: float = 120.0
    sends_secrets: bool = False

    def starter_of(self, slot: int) -> Starter | None:
        """What starts the worker run of a slot."""
        return self.here if slot == 0 else self.others


class ErrorKind(StrEnum):
    """What the machine distinguishes among the registry's errors."""

    NOT_NOW = "not_now"
    """No answer, or one that says: later."""
    STORAGE_FULL = "storage_full"
    RUN_OVER = "run_over"
    FENCED = "fenced"
    NOT_FOUND = "not_found"
    RUN_EXISTS = "run_exists"
    OTHER = "other"


_KINDS = {
    "run_over": ErrorKind.RUN_OVER,
    "too_late": ErrorKind.RUN_OVER,
    "fenced": ErrorKind.FENCED,
    "not_found": ErrorKind.NOT_FOUND,
    "run_exists": ErrorKind.RUN_EXISTS,
}


@frozen
class Trouble:
    """An error that an effect met, as a value.

    Attributes:
        code: The error's code.
        exit_code: What the launcher exits with when it ends the launch.
        told: A registry that has proven itself has answered so, and is there.
    """

    kind: ErrorKind
    code: str
    message: str
    hint: str = ""
    exit_code: int = int(ExitCode.FAILED)
    told: bool = False

    @staticmethod
    def of(error: RdzvError) -> Trouble:
        """The value of an error."""
        if isinstance(error, StorageFull):
            kind = ErrorKind.STORAGE_FULL
        elif isinstance(error, (RegistryError, TooManyRequests)):
            kind = ErrorKind.NOT_NOW
        else:
            kind = _KINDS.get(error.code, ErrorKind.OTHER)
        words = error.message or repr(error)
        told = isinstance(error, RegistryError) and error.told
        return Trouble(kind, error.code, words, error.hint, int(error.exit_code), told)


class Why(StrEnum):
    """Why a launch begins anew and does not take up the former one, or ends what is left of it."""

    NOTHING_FORMER = "nothing_former"
    OTHER_HOST = "other_host"
    PORT_HELD = "port_held"
    SILENT = "silent"
    OVER = "over"
    RUNNING = "running"
    OTHER_OPTIONS = "other_options"
    OTHER_SCHEDULER = "other_scheduler"


# --- reasons why a launch ends without the registry's result


@frozen
class NotCreated:
    """The registry did not create the run in time."""

    seconds: float
    trouble: Trouble
    standing: bool


@frozen
class Silent:
    """The registry has not answered for the orphan time-out."""

    trouble: Trouble


@frozen
class ChildLost:
    """The registry's process ended again and again; `code`: a signal's, negative, if one did."""

    starts: int
    seconds: float
    last_words: str
    code: int = 1


@frozen
class StorageLost:
    """The journal could not be written for too long."""

    seconds: float
    message: str
    hint: str = ""


@frozen
class EndedBeforeBegun:
    """A signal came before the run was created."""


@frozen
class EndedAtOnce:
    """Everything was ended at once: by a second signal, or as nobody answered the cancel."""

    unheard_seconds: float | None = None


@frozen
class Refusal:
    """The registry, or this machine, refuses what the launch cannot do without."""

    trouble: Trouble


Failure = NotCreated | Silent | ChildLost | StorageLost | EndedBeforeBegun | EndedAtOnce | Refusal


@frozen
class Preempted:
    """A worker run that its scheduler has preempted, which is why the run has failed.

    Attributes:
        scheduler: As the ledger names it.
        words: What it says.
    """

    slot: int
    scheduler: str
    words: str


@frozen
class Verdict:
    """How the launch ended.

    Attributes:
        result: The registry's; None where there is none.
        failure: The launcher's own reason, where there is no result.
        says: What the scheduler says of the slot that failed; may be empty.
        hint: What to do about a submission that failed; may be empty.
        preempted: The worker run whose preemption is the cause; None where there is none.
        signal: The launcher's first signal; a run that was cancelled exits with 128 more.
        epochs: Those that have ended, where there is no result that has them.
    """

    result: Result | None = None
    failure: Failure | None = None
    says: str = ""
    hint: str = ""
    preempted: Preempted | None = None
    signal: int | None = field(default=None, repr=False)
    epochs: tuple[EpochEnd, ...] = ()


@frozen
class Outcome:
    """What the shell returns.

    Attributes:
        verdict: How the launch ended; None where it never began, or by a fault of rdzv's own.
        signal: The first signal that came; None when none did.
        refused: Why it never began.
        fault: The action that failed as nobody expected.
    """

    verdict: Verdict | None
    signal: int | None = None
    refused: Trouble | None = None
    fault: int | None = None


# --- the ground of a launch


@frozen
class Fresh:
    """A new launch, with a registry of its own or at a standing one.

    Attributes:
        kept: Names of former launches' worker runs that may still exist: they stay in the ledger.
    """

    kept: tuple[str, ...] = ()


@frozen
class Resumed:
    """The former launch is taken up again, with the registry that was asked about it.

    Attributes:
        seen: Number of the run's last event: those up to it need not be shown.
    """

    seen: int


Ground = Fresh | Resumed
