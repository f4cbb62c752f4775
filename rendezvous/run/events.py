"""What can happen to a run: the records of the journal.

An event is a fact that has been accepted. Applying the same events in the same order gives the
same state (`rendezvous.run.protocol.apply`), which is what recovery, replay and simulation live on.
Facts that time brings (a lease that ran out, a time-out) are events as well, so that a replay needs
no clock but the one written beside each record.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from rendezvous.wire.errors import Cause
from rendezvous.wire.look import Age
from rendezvous.wire.node import JoinRequest
from rendezvous.wire.refused import RefusedAsk
from rendezvous.wire.reports import (
    AckReport,
    DepartReport,
    ExitReport,
    ProgressReport,
    QuietReport,
    RefuseReport,
    WorldReport,
)
from rendezvous.wire.run import Phase, RunSpec, SlotNews
from rendezvous.wire.types import Wire
from rendezvous.wire.verify import ProbeReport
from rendezvous.wire.world import WorldFound


class Created(Wire):
    """The run was made."""

    kind: Literal["created"] = "created"
    run: str
    spec: RunSpec


class SlotChanged(Wire):
    """The launcher told something about the worker run of a slot."""

    kind: Literal["slot"] = "slot"
    slot: int
    news: SlotNews


class Joined(Wire):
    """A node was accepted into its slot; the incarnation follows from the state."""

    kind: Literal["joined"] = "joined"
    request: JoinRequest
    source: str = ""
    """The address from which the join came to the registry; empty: an ingress is in between."""
    here: bool = False
    """It came from the registry's own machine, over loopback."""


class Refused(Wire):
    """A node with a good token is not to join: it describes another job, or it refuses itself.

    See `Mismatch` and, of the last three, `Refusal`; without an exit code it is the first.
    """

    kind: Literal["refused"] = "refused"
    slot: int
    generation: int
    code: str
    reason: str
    command_word: int | None = None
    is_alone: bool = True
    hint: str = ""
    hostname: str = ""
    exit_code: int | None = None
    retryable: bool = False


class JoinRefused(Wire):
    """A node asks to join and does not get in; the run goes on.

    Attributes:
        held_by: Incarnation of the node that holds its slot; 0: no node does.
    """

    kind: Literal["join_refused"] = "join_refused"
    ask: RefusedAsk
    held_by: int = 0


class CannotComplete(Wire):
    """All nodes of a symmetric start were seen, and some of them have no slot."""

    kind: Literal["cannot_complete"] = "cannot_complete"
    reason: Annotated[str, Field(min_length=1)]
    hint: str = ""


class NodeEvent(Wire):
    """Base of what concerns one incarnation of a slot."""

    slot: int
    incarnation: int


class Probed(NodeEvent):
    """A node reported on its peers' candidates."""

    kind: Literal["probed"] = "probed"
    report: ProbeReport


class Acked(NodeEvent):
    """A node is ready to start on the table."""

    kind: Literal["acked"] = "acked"
    report: AckReport


class ArmRefused(NodeEvent):
    """A node cannot start on the table."""

    kind: Literal["arm_refused"] = "arm_refused"
    report: RefuseReport


class Progressed(NodeEvent):
    """A node told how its program is doing."""

    kind: Literal["progressed"] = "progressed"
    report: ProgressReport


class Exited(NodeEvent):
    """The program of a node ended, or the node could not go on."""

    kind: Literal["exited"] = "exited"
    report: ExitReport
    found: WorldFound | None = None
    """Finding on the worlds of all ranks, with this report."""


class Departs(NodeEvent):
    """A node will go, as it says itself, or as somebody wants."""

    kind: Literal["departs"] = "departs"
    report: DepartReport


class DepartureDue(Wire):
    """A node goes soon: the programs have to end now to do so together."""

    kind: Literal["departure_due"] = "departure_due"


class Quieted(NodeEvent):
    """Nothing moves on a node, or something does again."""

    kind: Literal["quiet"] = "quiet"
    report: QuietReport


class WorldsReported(NodeEvent):
    """A node has told in which worlds its ranks are, before their end."""

    kind: Literal["worlds"] = "worlds"
    report: WorldReport
    found: WorldFound | None = None
    """Finding on the worlds of all ranks, with this report."""


class StallFound(Wire):
    """What looks have found while nothing moved on any node.

    Attributes:
        seconds: Since something moved.
        rule: By which it was found, see `rendezvous.hang`.
        at_work: The rank for which the others wait does something itself.
        slot: Of that rank's node.
    """

    kind: Literal["stall"] = "stall"
    seconds: Age
    rule: str
    sentence: Annotated[str, Field(max_length=600)]
    next_step: Annotated[str, Field(max_length=600)] = ""
    at_work: bool = False
    certain: bool = False
    slot: int | None = None
    rank: int | None = None


class StragglerFound(Wire):
    """A rank makes the others wait, or all ranks of a node do.

    Attributes:
        slot: Of its node.
        rank: None: all ranks of the node.
        cost_seconds: For how long in each step, at most.
        step_seconds: How long a step takes.
        last: In how many collectives it was the last one.
        of: Of how many.
    """

    kind: Literal["straggler"] = "straggler"
    slot: int
    rank: int | None = None
    cost_seconds: Age
    step_seconds: Annotated[Age, Field(gt=0)]
    last: int
    of: int


class StragglerGone(Wire):
    """The one that was found makes nobody wait any more."""

    kind: Literal["straggler_gone"] = "straggler_gone"


class StallOver(Wire):
    """A stall has lasted for as long as it may: the programs are ended."""

    kind: Literal["stall_over"] = "stall_over"


class Left(NodeEvent):
    """A node knows the result and has gone."""

    kind: Literal["left"] = "left"


class Lost(NodeEvent):
    """A node is given up: silent, its connection closed, or its worker run ended."""

    kind: Literal["lost"] = "lost"
    silent_seconds: float
    reason: str
    closed: bool = False
    """Its connection was closed: its process is dead, and its programs with it."""


class TimedOut(Wire):
    """A phase took longer than it may."""

    kind: Literal["timed_out"] = "timed_out"
    phase: Phase
    trouble: Annotated[str, Field(max_length=600)] = ""
    """What the registry itself had meanwhile: whoever is missing may have called."""


class LastCallOver(Wire):
    """With min:max, nobody new came within the last-call time."""

    kind: Literal["last_call_over"] = "last_call_over"


class VerdictFell(Wire):
    """Enough time has passed since the first failure report to name the first cause.

    Attributes:
        unheard: Slots of which nothing was heard since, where somebody would not wait for them.
    """

    kind: Literal["verdict"] = "verdict"
    unheard: tuple[int, ...] = ()


class RestartAsked(Wire):
    """Somebody wants the programs to start again."""

    kind: Literal["restart_asked"] = "restart_asked"
    reason: str


class BackOffOver(Wire):
    """The programs have ended, and have waited long enough to start again."""

    kind: Literal["backoff_over"] = "backoff_over"


class SubmitAgain(Wire):
    """The pause is over after a worker run that ended before its node had joined."""

    kind: Literal["submit_again"] = "submit_again"
    slot: int


class FenceOver(Wire):
    """Nodes that fell silent have ended their programs by now."""

    kind: Literal["fence_over"] = "fence_over"


class Cancelled(Wire):
    """Somebody ended the run."""

    kind: Literal["cancelled"] = "cancelled"
    reason: str
    code: str = Cause.CANCELLED


class Restarted(Wire):
    """The registry came back on its journal; every lease got a full term."""

    kind: Literal["restarted"] = "restarted"


Event = Annotated[
    Created
    | SlotChanged
    | Joined
    | Refused
    | JoinRefused
    | CannotComplete
    | Probed
    | Acked
    | ArmRefused
    | Progressed
    | Exited
    | Departs
    | DepartureDue
    | Quieted
    | WorldsReported
    | StallFound
    | StallOver
    | StragglerFound
    | StragglerGone
    | Left
    | Lost
    | TimedOut
    | LastCallOver
    | VerdictFell
    | RestartAsked
    | BackOffOver
    | FenceOver
    | SubmitAgain
    | Cancelled
    | Restarted,
    Field(discriminator="kind"),
]

_EVENT: TypeAdapter[Event] = TypeAdapter(Event)


def dump_event(event: Event) -> bytes:
    """The event as JSON bytes."""
    return event.model_dump_json(exclude_defaults=False).encode()


def load_event(data: bytes) -> Event:
    """The inverse of `dump_event`; raises pydantic.ValidationError."""
    return _EVENT.validate_json(data)
