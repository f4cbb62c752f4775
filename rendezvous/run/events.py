"""What can happen to a run: the records of the journal.

An event is a fact that has been accepted, or that time has brought (a lease that ran out, a
time-out). Beside it the journal keeps what was decided on it (`rendezvous.run.decision`): recovery,
replay and simulation apply that, and come to the same state whichever rules they have themselves.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import to_json

from rendezvous.wire.errors import Cause
from rendezvous.wire.features import FeatureName, NotedData
from rendezvous.wire.node import JoinRequest
from rendezvous.wire.refused import RefusedAsk
from rendezvous.wire.reports import (
    AckReport,
    DepartReport,
    ExitReport,
    ProgressReport,
    RefuseReport,
    WorldReport,
)
from rendezvous.wire.run import Limits, Phase, RunSpec, SlotNews, Standing
from rendezvous.wire.types import Wire
from rendezvous.wire.verify import ProbeReport


def _known(value: object) -> object:
    """A spec without what this version does not know: it comes from another one of the same
    protocol, and was accepted there."""
    if not isinstance(value, dict):
        return value
    spec = {name: one for name, one in value.items() if name in RunSpec.model_fields}
    if isinstance(limits := spec.get("limits"), dict):
        spec["limits"] = {k: one for k, one in limits.items() if k in Limits.model_fields}
    return RunSpec.model_validate_json(to_json(spec))


class Created(Wire):
    """The run was made."""

    kind: Literal["created"] = "created"
    run: str
    spec: Annotated[RunSpec, BeforeValidator(_known)]


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


class Departs(NodeEvent):
    """A node will go, as it says itself, or as somebody wants."""

    kind: Literal["departs"] = "departs"
    report: DepartReport


class DepartureDue(Wire):
    """A node goes soon: the programs have to end now to do so together."""

    kind: Literal["departure_due"] = "departure_due"


class WorldsReported(NodeEvent):
    """A node has told in which worlds its ranks are, before their end."""

    kind: Literal["worlds"] = "worlds"
    report: WorldReport


class Noted(Wire):
    """A feature has found something that people are told; the run goes on.

    Attributes:
        words: The line that is written of it.
        slot: Of the node that it is about.
        usual: Nobody has to read it.
        data: Kept for the feature until it notes something else; None: nothing any more.
        finding: Kept with it, for the result of a run that a person ends meanwhile; `{time}` in its
            words is the time since `since`.
    """

    kind: Literal["noted"] = "noted"
    feature: FeatureName
    words: Annotated[str, Field(min_length=1, max_length=1_400)]
    slot: int | None = None
    usual: bool = False
    data: NotedData = None
    finding: Standing | None = None
    since: float = 0.0


class Ending(Wire):
    """Cause of an end for which a feature has stopped the programs.

    Attributes:
        message: Of the result and of the epoch's end.
        slot: Of the node that is to blame, if one is.
        rank: Of the process that is to blame, if one is.
        certain: Nothing else explains it.
    """

    cause: Cause
    message: Annotated[str, Field(max_length=600)]
    hint: Annotated[str, Field(max_length=600)] = ""
    slot: int | None = None
    rank: int | None = None
    certain: bool = False


class StopAsked(Wire):
    """A feature has the programs stopped, which counts as a failure.

    Attributes:
        reason: The line that is written of it.
        then: How the programs have ended, where nothing else fails.
    """

    kind: Literal["stop_asked"] = "stop_asked"
    feature: FeatureName
    reason: Annotated[str, Field(min_length=1, max_length=1_400)]
    then: Ending


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
    | WorldsReported
    | Noted
    | StopAsked
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
