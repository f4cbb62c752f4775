"""Every error of rdzv, each with its code, HTTP status, exit code and whether to try again.

    RdzvError
    ├── UsageError              the person gave something that cannot work            exit 64
    │   ├── TemplateError       a spec template that does not render
    │   └── AddressError        no address as asked for
    ├── RequestError            the registry refuses a request (4xx)
    │   ├── BadRequest          400   not what the schema says
    │   ├── Unauthorized        401   no credential, or a wrong one
    │   ├── Forbidden           403   the credential does not cover this
    │   ├── NotFound            404   no such run (unknown and foreign alike)
    │   ├── MethodNotAllowed    405   the route does not take this method
    │   ├── Mismatch            409   this node describes another job than the run
    │   │   └── OtherProtocol   409   the peer speaks another protocol
    │   ├── RunExists           409   the RDZV_ID is taken by a live launch          exit 1
    │   ├── TenantClash         409   a tenant's prefix or credential is another's   exit 1
    │   ├── SlotTaken           409   a live node holds the slot; retry once it is suspect
    │   ├── Fenced              409   a newer incarnation or generation has the slot    exit 75
    │   ├── RunOver             410   the run is finished
    │   │   └── TooLate         410   the run goes well without this node            exit 0
    │   ├── TooLarge            413   more bytes than the registry reads
    │   ├── TooManyRequests     429   wait, then retry
    │   └── TooManyRuns         429   the registry takes no further run now           exit 1
    ├── RegistryError           the registry cannot do it now (5xx)
    │   ├── InternalError       500
    │   ├── Unavailable         503   closing, or overloaded; retry
    │   ├── Moved               421   another replica of the registry owns the run
    │   └── StorageFull         507   the journal cannot be written
    └── RunError                the run, or this node's part of it, came to an end
        ├── JoinTimeout         a slot was not filled in time                         exit 80
        ├── VerificationFailed  no address works for all                              exit 81
        ├── ArmingFailed        a node could not prepare                              exit 82
        ├── SchedulerError      a worker run could not be submitted or ended early    exit 83
        ├── RunCancelled        somebody cancelled it                                 exit 84
        ├── RegistryLost        no registry within the orphan time-out                exit 85
        ├── NodeLost            a node went silent after the go                       exit 86
        └── PreflightFailed     a check of the nodes failed before the go             exit 87

No error, but the cause of a result: `preempted`, exit 88; `wrong_world`, exit 90.

What a class does not say it has of its parent: `UsageError` is the person's, `RequestError` a
refusal of the registry, `RegistryError` what it cannot do now, `RunError` the end of a run.

A message has up to three parts: what happened, with the values; what it means here; what to try.
The last one is the hint.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any, ClassVar, Final

from rendezvous.enums import StrEnum

SIGNALS: Final = 128
"""What a shell adds to a signal's number, for an exit code."""


class ExitCode(IntEnum):
    """What `rdzv` exits with when the code is not the training program's own; what it means.

    A program's own code is passed on, a signal n as 128 + n. No code below 64 but 1 is rdzv's: 2 is
    what Python and shells exit with. The result says whose the code is.
    """

    help: str
    requeue: bool
    """Whether a job that ends with it is worth requeueing as it is: what failed was a machine, or
    the scheduler took one back, and the next allocation need not have that one. What fails at every
    start, and what a person or a newer worker run has ended, is not."""

    def __new__(cls, value: int, text: str, requeue: bool = False) -> ExitCode:
        """A member is its number."""
        code = int.__new__(cls, value)
        code._value_, code.help, code.requeue = value, text, requeue
        return code

    OK = 0, "every node's program ended with exit code 0"
    FAILED = 1, "rdzv could not do what you asked; the message says why"
    USAGE = 64, "a wrong option, spec or template; an unknown run; a missing package"
    INTERNAL = 70, "an internal error in rdzv"
    FENCED = 75, "a newer worker run has taken this node's slot"
    REFUSED = 77, "the registry refused this node: wrong token, or a different job from the run's"
    JOIN_TIMEOUT = 80, "a node was missing when the join time-out ended", True
    VERIFICATION_FAILED = 81, "the nodes cannot reach each other"
    ARMING_FAILED = (
        82,
        (
            "a node could not prepare (program not found, port, hosts file, table), or a limit of "
            "the machine was met"
        ),
    )
    SCHEDULER_FAILED = 83, "a worker run could not be submitted, or ended before it joined"
    CANCELLED = 84, "the run was cancelled"
    REGISTRY_LOST = (
        85,
        (
            "no registry answered within '--orphan-timeout', or the launch's own registry ended 5 "
            "times within 30 s"
        ),
        True,
    )
    NODE_LOST = (
        86,
        "a node was lost: it went silent while the program ran, or left after a notice or a drain",
        True,
    )
    PREFLIGHT_FAILED = (
        87,
        "a check failed: on a node, between the nodes, or of the network that NCCL uses",
    )
    PREEMPTED = 88, "the scheduler preempted a worker run: it took the machine back", True
    STALLED = 89, "nothing moved any more on any node for as long as the launch allows", True
    WRONG_WORLD = 90, "with '--strict': the ranks did not all join one job"


class Cause(StrEnum):
    """Why a run did not end well: the code of its result, and what `rdzv` exits with for it.

    A result is read by older and newer peers, so its code is any text on the wire. A launcher that
    is refused gives the code of the error.
    """

    exit_code: ExitCode

    def __new__(cls, code: str, exit_code: ExitCode) -> Cause:
        made = str.__new__(cls, code)
        made._value_, made.exit_code = code, exit_code
        return made

    JOIN_TIMEOUT = "join_timeout", ExitCode.JOIN_TIMEOUT
    MISMATCH = "mismatch", ExitCode.REFUSED
    REFUSED = "refused", ExitCode.REFUSED
    PREFLIGHT_FAILED = "preflight_failed", ExitCode.PREFLIGHT_FAILED
    VERIFICATION_FAILED = "verification_failed", ExitCode.VERIFICATION_FAILED
    ARMING_FAILED = "arming_failed", ExitCode.ARMING_FAILED
    SCHEDULER_FAILED = "scheduler_failed", ExitCode.SCHEDULER_FAILED
    AGENT_FAILED = "agent_failed", ExitCode.FAILED
    PROGRAM_FAILED = "program_failed", ExitCode.FAILED
    NODE_LOST = "node_lost", ExitCode.NODE_LOST
    PREEMPTED = "preempted", ExitCode.PREEMPTED
    STALLED = "stalled", ExitCode.STALLED
    WRONG_WORLD = "wrong_world", ExitCode.WRONG_WORLD
    CANCELLED = "cancelled", ExitCode.CANCELLED
    REGISTRY_LOST = "registry_lost", ExitCode.REGISTRY_LOST
    STORAGE_FULL = "storage_full", ExitCode.REGISTRY_LOST


PREEMPTED_HINT = (
    "the scheduler needed the machine: run the same command again, or let the job requeue itself "
    "('rdzv docs exit-codes')"
)


class RdzvError(Exception):
    """Base of all errors that rdzv raises on purpose.

    Args:
        message: What happened, with the values, and what it means here.
        hint: What to try next; may be empty.
    """

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False
    exit_code: ClassVar[ExitCode] = ExitCode.FAILED

    def __init_subclass__(cls, **differences: Any) -> None:
        """A class is declared by what sets it apart; who is the cause of an end exits like it."""
        code = differences.get("code")
        if isinstance(code, Cause):
            differences["exit_code"] = code.exit_code
        for name, value in differences.items():
            setattr(cls, name, value)

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message

    @property
    def one_line(self) -> str:
        """The message and what to try, in one line."""
        return f"{self.message}; {self.hint}" if self.hint else self.message


class UsageError(RdzvError, code="usage", status=400, exit_code=ExitCode.USAGE):
    """The person gave an option, file or value that cannot work."""


class TemplateError(UsageError, code="template"):
    """A spec template cannot be rendered."""


class AddressError(UsageError, code="address"):
    """The address, interface or network asked for does not exist here."""


class RequestError(RdzvError, code="request", status=400, exit_code=ExitCode.REFUSED):
    """The registry refuses a request."""


class BadRequest(RequestError, code="bad_request"):
    """The request does not fit the schema."""


class Unauthorized(RequestError, code="unauthorized", status=401):
    """No credential, or one that the registry does not know."""


class Forbidden(RequestError, code="forbidden", status=403):
    """The credential is known and does not cover this request."""


class NotFound(RequestError, code="not_found", status=404):
    """No such run, table or route; a run of somebody else looks the same."""


class MethodNotAllowed(RequestError, code="method_not_allowed", status=405):
    """The route exists and does not take this method."""


class Mismatch(RequestError, code=Cause.MISMATCH, status=409):
    """The node describes another job than the one this run was created for.

    Attributes:
        command_word: The first word of COMMAND, from 1, in which it differs; None: another thing.
        is_alone: Whether it is this node that differs; with one other alone nobody can say.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        command_word: int | None = None,
        is_alone: bool = True,
    ) -> None:
        super().__init__(message, hint=hint)
        self.command_word = command_word
        self.is_alone = is_alone


class OtherProtocol(Mismatch, code="other_protocol"):
    """The peer speaks another protocol than this rdzv: see `rendezvous.wire.protocol`."""


class RunExists(RequestError, code="run_exists", status=409, exit_code=ExitCode.FAILED):
    """The RDZV_ID belongs to another launch that is still alive."""


class TenantClash(RequestError, code="tenant_clash", status=409, exit_code=ExitCode.FAILED):
    """A tenant would have a part of another one's name space, or its credential."""


class SlotTaken(RequestError, code="slot_taken", status=409, retryable=True):
    """A live node of the same generation holds the slot."""


class Fenced(RequestError, code="fenced", status=409, exit_code=ExitCode.FENCED):
    """A newer incarnation or generation has this slot; this node must stop."""


class RunOver(RequestError, code="run_over", status=410):
    """The run is finished; nobody can join it."""


class TooLate(RunOver, code="too_late", exit_code=ExitCode.OK):
    """The run goes, or went, well on a table without this node: it is not needed."""


class TooLarge(RequestError, code="too_large", status=413):
    """More bytes than the registry is ready to read."""


class TooManyRequests(RequestError, code="too_many_requests", status=429, retryable=True):
    """Wait as long as Retry-After says."""


class TooManyRuns(RequestError, code="too_many_runs", status=429, exit_code=ExitCode.FAILED):
    """As many runs, or nodes in them, are in progress as the registry takes, of all or a tenant."""


NOT_NOW_SECONDS = 3600.0
"""How long after its last real answer a registry that says 'not now' counts as there: its database
may be away for minutes, and no program has to end for that. Then the orphan time-out begins."""


class RegistryError(RdzvError, code="registry", exit_code=ExitCode.REGISTRY_LOST):
    """The registry cannot serve the request now.

    Attributes:
        told: A registry that has proven itself has answered so: it is there, and cannot serve just
            now. Else nobody has.
    """

    told: bool = False


class InternalError(RegistryError, code="internal"):
    """A fault in the registry."""


class Unavailable(RegistryError, code="unavailable", status=503, retryable=True):
    """The registry is closing or overloaded, or could not be reached."""


class Moved(RegistryError, code="moved", status=421, retryable=True):
    """Another replica of the registry owns the run.

    A client that is told so asks there; nobody else meets it.

    Attributes:
        address: Where that replica is: HOST:PORT, IPv6 in brackets; empty: not known.
    """

    def __init__(self, message: str, *, hint: str = "", address: str = "") -> None:
        super().__init__(message, hint=hint)
        self.address = address


class StorageFull(RegistryError, code=Cause.STORAGE_FULL, status=507, retryable=True):
    """The journal could not be written; nothing was changed."""


class RunError(RdzvError, code="run"):
    """The run, or this node's part of it, came to an end."""


class JoinTimeout(RunError, code=Cause.JOIN_TIMEOUT):
    """A slot was not filled, or the registry not found, in time."""


class VerificationFailed(RunError, code=Cause.VERIFICATION_FAILED):
    """No network class connects every pair of nodes."""


class ArmingFailed(RunError, code=Cause.ARMING_FAILED):
    """A node could not prepare for the table it was given."""


class SchedulerError(RunError, code=Cause.SCHEDULER_FAILED):
    """A worker run could not be submitted, or ended before it joined."""


class RunCancelled(RunError, code=Cause.CANCELLED):
    """Somebody cancelled the run."""


class RegistryLost(RunError, code=Cause.REGISTRY_LOST):
    """No registry answered within the orphan time-out."""


class NodeLost(RunError, code=Cause.NODE_LOST):
    """A node went silent after the go."""


class PreflightFailed(RunError, code=Cause.PREFLIGHT_FAILED):
    """A check failed: of a node, between the nodes, or of what NCCL uses."""


def with_children(root: type[RdzvError]) -> Iterator[type[RdzvError]]:
    """The class, and then all below it."""
    yield root
    for child in root.__subclasses__():
        yield from with_children(child)


def message_of(error: BaseException) -> str:
    """Return what an error says; one that nobody raised on purpose is shown as it is."""
    return error.message if isinstance(error, RdzvError) else repr(error)


def error_from_code(code: str, message: str, hint: str = "") -> RdzvError:
    """Make the error that a code on the wire names; an unknown code becomes `RequestError`."""
    # The first of a code: a subclass without one of its own is its parent here.
    found = next((cls for cls in with_children(RdzvError) if cls.code == code), RequestError)
    return found(message, hint=hint)
