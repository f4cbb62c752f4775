"""The calls of one process group over all nodes, as one timeline. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from rendezvous.wire.look import RunLook
from rendezvous.wire.pace import Arrivals
from rendezvous.wire.words import spans_of


class Call(NamedTuple):
    """One call; times in seconds.

    Attributes:
        kind: Equal for the same operation on the same sizes.
        first: When the first rank made it.
        rank: The rank that made it last, at `last`; all others had made it at `others`.
        slot: Of the node of that rank; all other nodes had made it at `elsewhere`.
    """

    kind: str
    first: float
    last: float
    rank: int
    others: float
    slot: int
    elsewhere: float


class Node(NamedTuple):
    """What one node tells of a group; `error`: of its clock, in seconds."""

    slot: int
    error: float
    arrivals: Arrivals


class Group(NamedTuple):
    """A process group all of whose ranks have told when they called.

    Attributes:
        name: The same on all ranks.
        nodes: Those with ranks in it.
        calls: That all of its ranks have made, the oldest first.
    """

    name: str
    nodes: Sequence[Node]
    calls: Sequence[Call]

    def has(self, rank: int) -> bool:
        """Whether it is a member."""
        return any(rank in node.arrivals.ranks for node in self.nodes)

    def slot_of(self, rank: int) -> int:
        """Of the node of a member."""
        return next(node.slot for node in self.nodes if rank in node.arrivals.ranks)


class Groups(NamedTuple):
    """What is known of all groups.

    Attributes:
        whole: Those all of whose ranks have told when they called.
        unknown: The ranks of the others: what they have waited for is not known.
        receivers: Those that may have waited for a single rank, by the group; empty: by a message.
    """

    whole: list[Group]
    unknown: set[int]
    receivers: dict[str, set[int]]


def groups_in(look: RunLook) -> Groups:
    """The groups, as the nodes have told of them."""
    found: dict[tuple[str, str], list[Node]] = {}
    receivers: dict[str, set[int]] = {}
    for node in look.nodes:
        report = node.report
        if report is None or report.pace is None or report.epoch != look.epoch:
            continue
        for arrivals in report.pace.arrivals:
            key = arrivals.group, arrivals.members
            part = Node(node.slot, report.pace.clock_error, arrivals)
            found.setdefault(key, []).append(part)
        for one in report.pace.receives:
            receivers.setdefault(one.group, set()).add(one.rank)
    whole, unknown = [], set[int]()
    for (name, members), nodes in found.items():
        ranks = [rank for node in nodes for rank in node.arrivals.ranks]
        if not _are_all(ranks, members):
            unknown.update(ranks)
        elif len(ranks) > 1:
            whole.append(Group(name, nodes, _calls(nodes)))
    return Groups(whole, unknown, receivers)


def _are_all(ranks: list[int], members: str) -> bool:
    spans = spans_of(members)
    if sum(map(len, spans)) != len(ranks):
        return False
    return sorted(ranks) == [rank for span in spans for rank in span]


def _calls(nodes: Sequence[Node]) -> list[Call]:
    """The calls that all nodes have told."""
    numbers = [_numbers(node.arrivals) for node in nodes]
    common = sorted(set(numbers[0]).intersection(*numbers[1:]))
    rows = [_rows(node, own, common) for node, own in zip(nodes, numbers, strict=True)]
    return [_call(parts) for parts in zip(*rows, strict=True)]


def _numbers(arrivals: Arrivals) -> list[int]:
    return list(accumulate(arrivals.steps, initial=arrivals.number))


class _Part(NamedTuple):
    """One call on one node: when its first rank made it, the last but one, and the last."""

    kind: str
    first: float
    second: float
    last: float
    rank: int
    slot: int


def _rows(node: Node, numbers: list[int], common: list[int]) -> list[_Part]:
    """What a node tells of the common calls."""
    arrivals = node.arrivals
    at = {number: index for index, number in enumerate(numbers)}
    firsts = list(accumulate(arrivals.gaps, initial=arrivals.began))
    rows = []
    for number in common:
        index = at[number]
        kind, first = arrivals.kinds[index], firsts[index]
        if not arrivals.late:
            [rank] = arrivals.ranks
            rows.append(_Part(kind, first / 1e6, -math.inf, first / 1e6, rank, node.slot))
            continue
        second, last = first + arrivals.second[index], first + arrivals.late[index]
        rank = arrivals.ranks[arrivals.last[index]]
        rows.append(_Part(kind, first / 1e6, second / 1e6, last / 1e6, rank, node.slot))
    return rows


def _call(parts: Sequence[_Part]) -> Call:
    late = max(parts, key=lambda part: part.last)
    elsewhere = max((part.last for part in parts if part is not late), default=-math.inf)
    return Call(
        kind=late.kind,
        first=min(part.first for part in parts),
        last=late.last,
        rank=late.rank,
        others=max(late.second, elsewhere),
        slot=late.slot,
        elsewhere=elsewhere,
    )
