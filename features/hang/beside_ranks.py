"""The processes beside the ranks of a look: what ranks have started, and what starts ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from features.hang.wire import LookReport, NodeLook, ProcessLook, RunLook, Stack
from rendezvous.wire.words import numbers_text, printable

_MOST_NAME = 80


class BesideRanks(NamedTuple):
    """Processes at one place.

    Attributes:
        head: Which ones.
        ranks: Those that have started them, or that they start.
        stack: None: it is not known.
    """

    head: str
    ranks: tuple[int, ...]
    stack: Stack | None


class _One(NamedTuple):
    look: ProcessLook
    rank: int
    node: NodeLook
    stack: Stack | None


def beside_ranks(found: RunLook) -> list[BesideRanks]:
    """The launchers that matter, and then what the ranks have started, the fewest first."""
    groups: dict[tuple[object, ...], list[_One]] = {}
    for one in _children(found):
        key = (*one.stack.frames,) if one.stack is not None else (one.look.name, one.look.waits_in)
        groups.setdefault(key, []).append(one)
    ordered = sorted(groups.values(), key=lambda group: (len(group), group[0].rank))
    return [*_launchers(found), *map(_place, ordered)]


def _place(group: list[_One]) -> BesideRanks:
    ranks = tuple(sorted({one.rank for one in group}))
    first = group[0]
    if len(group) == 1:
        by = f"rank {first.rank} ({_node(first.node)})"
        head = f"{_name(first.look)}, started by {by}, {_state(first.look)}"
    else:
        by = numbers_text(ranks)
        head = f"{len(group)} processes, started by {by}"
    return BesideRanks(head, ranks, first.stack)


def _launchers(found: RunLook) -> Iterator[BesideRanks]:
    for node in found.nodes:
        if (report := node.report) is not None and (look := report.launcher) is not None:
            head = f"the launcher of {_node(node)}: {_name(look)}, {_state(look)}"
            yield BesideRanks(head, tuple(report.unstarted), _stack(report, look))


def _children(found: RunLook) -> Iterator[_One]:
    for node in found.nodes:
        if (report := node.report) is not None:
            for rank in report.ranks:
                for look in rank.children:
                    yield _One(look, rank.rank, node, _stack(report, look))


def _stack(report: LookReport, look: ProcessLook) -> Stack | None:
    return report.stacks[look.stack or 0] if look.stack in range(len(report.stacks)) else None


def _name(look: ProcessLook) -> str:
    return f"process {look.pid} ({printable(look.name, _MOST_NAME)})"


def _node(node: NodeLook) -> str:
    return f"node {node.node}, {node.hostname}"


def _state(look: ProcessLook) -> str:
    waits = f", waits in {look.waits_in}" if look.waits_in else ""
    return f"state {look.state}{waits}" if look.state else "no such process"
