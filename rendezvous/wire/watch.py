"""What a node hears from its watch. Pure."""

from __future__ import annotations

from pydantic import Field

from rendezvous.wire.run import Phase, Result
from rendezvous.wire.table import EndpointTable
from rendezvous.wire.types import Wire, Words
from rendezvous.wire.verify import ProbePlan


class NodeView(Wire):
    """What every node is told: the same bytes for all. A watch answers with the newest one."""

    seq: int
    phase: Phase
    epoch: int
    reason: str
    topic: int | None = Field(None, description="Changes with `reason`, but for the times in it.")
    digest: str = ""
    plan: ProbePlan | None = Field(None, description="While verifying: what the node must probe.")
    table: EndpointTable | None = None
    released: list[int] = Field(
        [],
        description="Slots whose nodes are not in the table: at the go they end with exit code 0.",
    )
    why_released: dict[int, Words] = Field(
        {}, description="Why slots are left out (the first 256 that have a cause)."
    )
    stop: bool = Field(False, description="End the program: the run has a first failure.")
    result: Result | None = None
    poll_seconds: float = 2.0
