"""Which node ran which ranks, in each epoch. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rendezvous.wire.table import EndpointTable

MOST_PLACEMENTS = 32
"""The newest that differ: programs start again on the same nodes, but where one joined anew."""


@dataclass(frozen=True, slots=True)
class Placed:
    """One node by its number, and the ranks of its processes."""

    slot: int
    incarnation: int
    hostname: str
    node: int
    ranks: range


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the programs ran from this epoch on."""

    epoch: int
    nodes: tuple[Placed, ...]


def with_go(
    former: Sequence[Placement], table: EndpointTable, incarnations: Mapping[int, int]
) -> tuple[Placement, ...]:
    """What is known once the programs go on this table, whose slots have these incarnations."""
    newest = placement_of(table, incarnations)
    if former and former[-1].nodes == newest.nodes:
        return tuple(former)
    return (*former, newest)[-MOST_PLACEMENTS:]


def placement_of(table: EndpointTable, incarnations: Mapping[int, int]) -> Placement:
    """Return where the programs of a table run."""
    nodes = tuple(
        Placed(row.slot, incarnations[row.slot], row.hostname, row.node, ranks)
        for row, ranks in table.processes()
    )
    return Placement(table.epoch, nodes)


def in_epoch(placements: Sequence[Placement], epoch: int | None) -> Placement | None:
    """Where the programs of an epoch ran, None: the newest; the oldest that is known where it was
    before; None: none has started."""
    known = [one for one in placements if epoch is None or one.epoch <= epoch]
    return known[-1] if known else next(iter(placements), None)
