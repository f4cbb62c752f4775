"""What a node hears from its watch, and how it is written. Pure."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import Field, TypeAdapter

from rendezvous.wire.log_view import ViewOrder
from rendezvous.wire.question import Question
from rendezvous.wire.run import Phase, RestartFacts, Result
from rendezvous.wire.table import EndpointTable, canonical_json, digest_of
from rendezvous.wire.types import Wire, Words
from rendezvous.wire.verify import ProbePlan

LONGEST_POLL_SECONDS = 600.0
"""A node never says that it waits longer."""


FENCE_MARGIN_SECONDS = 2.0
"""What a node needs, beside its program's grace, to see that it is cut off and to end all of it."""
FENCE_POLLS = 3
"""A node that is heard of is never so late with the answer to a watch."""


def poll_seconds(nodes: int, lease_seconds: float) -> float:
    """How long a watch may wait: 2 s up to 1,000 nodes, then growing so that all polls together
    stay under a fifth of a core; shorter for a short lease, of which 7 polls must fit in."""
    return max(min(2.0, lease_seconds / 7), nodes * 0.002)


class DepartureNotice(Wire):
    """A node of the run will go: what programs are shown of it."""

    slot: int
    node: int | None = None
    seconds: float = Field(description="Until all programs are stopped.")
    words: Words = ""


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
    renewed_port: int | None = Field(
        None,
        description="In place of `table` for who has the one before: `epoch` and this master port "
        "are all that has changed.",
    )
    released: list[int] = Field(
        [],
        description="Slots that are not in the table; their nodes end with exit code 0.",
    )
    why_released: dict[int, Words] = Field(
        {}, description="Why slots are left out (the first 256 that have a cause)."
    )
    retired: list[int] = Field(
        [], description="Slots whose nodes take no part any more: they end now, with exit code 0."
    )
    stop: bool = Field(False, description="End the program: the run has a first failure.")
    result: Result | None = None
    poll_seconds: Annotated[float, Field(gt=0, le=3_600)]
    restarts: RestartFacts | None = Field(
        None, description="Of a run whose programs may start again, or did."
    )
    notice: DepartureNotice | None = Field(
        None, description="A node will go; programs may save their state."
    )
    question: Question | None = Field(None, description="The node answers it, once.")
    views: list[ViewOrder] | None = Field(
        None, description="Who looks at output now: nodes that have it send it, the newest last."
    )


_TABLE = b',"table":'
_TABLES = TypeAdapter(EndpointTable)


class OtherDigest(ValueError):
    """The table is not the one that its view names."""

    def __init__(self, received: str, named: str) -> None:
        super().__init__(f"the table received has digest {received[:12]}, not {named}")


def write_view(view: NodeView, table: bytes) -> bytes:
    """The view with this table, in its canonical form, at its end; empty: with none."""
    rest = view.model_dump_json(exclude={"table"}, exclude_none=True).encode()
    return rest[:-1] + _TABLE + table + b"}" if table else rest


def read_view(data: bytes, former: EndpointTable | None = None) -> NodeView:
    """The inverse, with the table checked against its digest; that may renew the `former` one.

    A table that stands at the end is read from the very bytes whose digest it has. In another form
    of JSON it has the digest of its canonical form, keys that are not known here included. Raises
    ValidationError; OtherDigest.
    """
    rest, mark, end = data.rpartition(_TABLE)
    if mark and (digest := digest_of(end[:-1])) and b'"digest":"%s"' % digest.encode() in rest:
        view = NodeView.model_validate_json(rest + b"}")
        if view.digest == digest:
            return view.model_copy(update={"table": _TABLES.validate_json(end[:-1])})
    view = NodeView.model_validate_json(data)
    if view.renewed_port is not None:
        return _renewed(view, former, view.renewed_port)
    if view.table is not None:
        received = digest_of(canonical_json(json.loads(data)["table"]))
        if received != view.digest:
            raise OtherDigest(received, view.digest)
    return view


def _renewed(view: NodeView, former: EndpointTable | None, port: int) -> NodeView:
    table = former.renewed(view.epoch, port) if former is not None else None
    received = table.digest() if table is not None else "none"
    if received != view.digest:
        raise OtherDigest(received, view.digest)
    return view.model_copy(update={"table": table, "renewed_port": None})
