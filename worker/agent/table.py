"""Which endpoint tables a node may start on.

The registry chooses the order of the ranks, one of the addresses that each node offered, and the
port; for everything else this node takes nobody's word but the nodes' own. A row was signed by its
node, our own row is one that we signed, the run has as many nodes as it was launched with, and what
will be written into files and environments is fit for it, even when a node of this run made it.
Where nodes may be replaced, each row is also of a generation of its slot: none comes back that was
replaced before.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rendezvous.talk.join_string import JoinString
from rendezvous.talk.macs import row_is_genuine
from rendezvous.wire.table import EndpointTable, TableRow
from rendezvous.wire.types import MOST_PROCESSES, Address, ShortWords
from rendezvous.wire.words import printable
from worker.counts import read_size

_LAST_PORT = 65_535


class _Row(BaseModel):
    """What a row must be; the wire model lets more pass, so that the refusal can name it."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    hostname: ShortWords
    address: Address
    interface: ShortWords
    prefix_length: Annotated[int, Field(ge=0, le=128)]
    nproc_per_node: Annotated[int, Field(ge=1, le=MOST_PROCESSES)]


def problem_of(
    table: EndpointTable,
    join: JoinString,
    *,
    offered: AbstractSet[str],
    nnodes: str | None,
    former: EndpointTable | None,
    of_generations: bool = False,
) -> str:
    """Why this node must not start on the table, in words; empty when it may.

    Args:
        table: As the registry sent it.
        join: What this node joined with.
        offered: The MACs of the rows that this node signed.
        nnodes: Size of the run, N or MIN:MAX; None when this node was not told.
        former: The table that this node acknowledged last.
        of_generations: The run may replace its nodes: its tables name the generation of each row.
    """
    if (table.run, table.launch_id) != (join.run, join.launch_id):
        return (
            f"the table belongs to run '{printable(table.run, 63)}', or to another launch of this "
            "run"
        )
    generations: Sequence[int | None] | None = table.generations
    if generations is None and not of_generations:
        generations = [None] * len(table.rows)
    if generations is None or len(generations) != len(table.rows):
        return "the table does not name the worker run of each row"
    for row, generation in zip(table.rows, generations, strict=True):
        if problem := _problem_of_row(row, join, generation):
            return f"the row of slot {row.slot} {problem}"
    own = table.row_of_slot(join.slot)
    if own is None or own.mac not in offered:
        return "the table does not contain this node as it joined"
    return (
        _problem_of_rows(table, own)
        or _problem_of_size(len(table.rows), nnodes)
        or _problem_of_master(table)
        or _problem_of_epoch(table, former)
        or _problem_of_generations(table, former)
    )


def _problem_of_row(row: TableRow, join: JoinString, generation: int | None) -> str:
    launch = join.launch_id
    if not row_is_genuine(row, join.row_key, run=join.run, launch_id=launch, generation=generation):
        return "was not written by its node"
    try:
        checked = _Row.model_validate(row, from_attributes=True)
    except ValidationError as exc:
        error = exc.errors()[0]
        return f"has no valid {error['loc'][0]}: {error['msg'].removeprefix('Value error, ')}"
    if checked.address != row.address:
        return "has an address that is not in its usual form"
    return ""


def _problem_of_rows(table: EndpointTable, own: TableRow) -> str:
    """Every rank once and in order, no slot and no address twice."""
    rows = table.rows
    if [row.node for row in rows] != list(range(len(rows))):
        return f"the ranks of the table are not 0 to {len(rows) - 1}, each once and in order"
    if len({row.slot for row in rows}) < len(rows):
        return "the table contains a slot twice"
    if len({row.address for row in rows}) < len(rows):
        return "the table contains an address twice"
    for row in rows:
        if row.is_loopback != own.is_loopback:
            return f"the row of slot {row.slot} and this node's are not both loopback addresses"
    return ""


def _problem_of_size(count: int, nnodes: str | None) -> str:
    """A table that leaves nodes out would let the others train without them."""
    if nnodes is None:
        return ""
    low, high = read_size(nnodes)
    if low <= count <= high:
        return ""
    return f"the table has {count} rows, but this node was started with --nnodes {nnodes}"


def _problem_of_master(table: EndpointTable) -> str:
    if table.master_address != table.rows[0].address:
        return "the master is not node 0 of the table"
    if not 1 <= table.master_port <= _LAST_PORT:
        return f"master port {table.master_port} is not a valid port"
    return ""


def _problem_of_epoch(table: EndpointTable, former: EndpointTable | None) -> str:
    """A table never changes within its epoch, and epochs do not come back."""
    if former is None or table.epoch > former.epoch or table == former:
        return ""
    return f"the table of epoch {table.epoch} arrived after a different one of epoch {former.epoch}"


def _problem_of_generations(table: EndpointTable, former: EndpointTable | None) -> str:
    """A worker run that was replaced never comes back."""
    known = _generations(former) if former is not None else {}
    for slot, generation in _generations(table).items():
        if generation < known.get(slot, generation):
            return f"the table contains an older worker run of slot {slot}"
    return ""


def _generations(table: EndpointTable) -> dict[int, int]:
    """By slot; empty where the table names none."""
    if table.generations is None:
        return {}
    rows = zip(table.rows, table.generations, strict=True)
    return {row.slot: generation for row, generation in rows}
