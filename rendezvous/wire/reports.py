"""What a node reports from its join to its end. Pure."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rendezvous.wire.evidence import Evidence
from rendezvous.wire.features import Features
from rendezvous.wire.types import Digest, OutputLine, Port, Seconds, Wire, Words
from rendezvous.wire.verify import ProbeReport
from rendezvous.wire.world import RankWorlds


class AckReport(Wire):
    """Arming: ready to start on the table with this digest."""

    kind: Literal["ack"] = "ack"
    epoch: int
    digest: Digest
    warm: bool = Field(
        False, description="This node will fork its ranks from a process that has imported torch."
    )


RefusalCode = Literal["port_taken", "bad_table", "hosts", "contract", "address"]
"""Why a node cannot prepare for a table."""


class RefuseReport(Wire):
    """Arming: this node cannot start on the table."""

    kind: Literal["refuse"] = "refuse"
    epoch: int
    code: RefusalCode
    reason: Words
    free_port: Port | None = Field(None, description="With `port_taken`: one that is free.")


class ProgressReport(Wire):
    """Running: one line about how the program is doing."""

    kind: Literal["progress"] = "progress"
    epoch: int
    words: Words
    warning: bool = Field(False, description="Show it to the user.")
    over: bool = Field(False, description="It ends what it has reported before.")


class ExitReport(Wire):
    """The program of this node ended, or could not be started."""

    kind: Literal["exit"] = "exit"
    epoch: int
    exit_code: Annotated[int, Field(ge=0, le=255)]
    age_seconds: Seconds = Field(0.0, description="Since the first local failure.")
    ran_seconds: Seconds | None = Field(
        None, description="How long the program ran, by its own node's clock."
    )
    rank: int | None = None
    stopped: bool = Field(False, description="It ended because it was asked to stop.")
    by_agent: bool = Field(False, description="Its agent ends it; `message` says why.")
    leaves: bool = Field(False, description="The node takes no part in what follows.")
    progress: Annotated[int, Field(ge=0, lt=1 << 53)] | None = Field(
        None, description="The highest step that its program has reported."
    )
    fenced: bool = Field(
        False, description="Its agent ended it: it could not hear of the registry any more."
    )
    message: Words = ""
    tail: Annotated[list[OutputLine], Field(max_length=40)] = []
    log: Words = ""
    evidence: Evidence | None = Field(None, description="What may show the cause.")
    worlds: RankWorlds = Field([], description="In which worlds its ranks have been.")
    features: Features = Field({}, description="What features of the node say, by their names.")


class DepartReport(Wire):
    """This node will go, and its programs may save their state before: a preemption, a drain."""

    kind: Literal["depart"] = "depart"
    epoch: int
    seconds: Seconds = Field(0.0, description="Until it goes.")
    words: Words = Field("", description="Why, as a sentence continues after the node's name.")
    drained: bool = Field(False, description="A person asked for it with 'rdzv drain'.")


class WorldReport(Wire):
    """The ranks of this node are in a world that cannot be the table's, or are in it now."""

    kind: Literal["world"] = "world"
    epoch: int
    worlds: RankWorlds


class LeaveReport(Wire):
    """This node knows the result and goes away."""

    kind: Literal["leave"] = "leave"


Report = Annotated[
    ProbeReport
    | AckReport
    | RefuseReport
    | ProgressReport
    | ExitReport
    | DepartReport
    | WorldReport
    | LeaveReport,
    Field(discriminator="kind"),
]


class ReportReply(Wire):
    """The newest sequence number; a node that has seen less should watch."""

    seq: int
