"""The calls of one process group over all nodes, as one timeline. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from operator import add
from typing import NamedTuple

from rendezvous.wire.look import RunLook
from rendezvous.wire.pace import Arrivals
from rendezvous.wire.words import spans_of


class Call(NamedTuple):
    """One call; times in seconds since the first one.

    Attributes:
        number: Among all calls of the group, other ones included.
        kind: Equal for the same operation on the same sizes.
        first: When the first rank made it.
        rank: The rank that made it last, at `last`; all others had made it at `others`.
        slot: Of the node of that rank; all other nodes had made it at `elsewhere`.
    """

    number: int
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


class Group:
    """A process group all of whose ranks have told when they called.

    Attributes:
        name: The same on all ranks.
        nodes: Those with ranks in it.
        ranks: Its members.
    """

    def __init__(self, name: str, nodes: Sequence[Node]) -> None:
        self.name = name
        self.nodes = nodes
        self.ranks = frozenset(rank for node in nodes for rank in node.arrivals.ranks)

    @cached_property
    def calls(self) -> list[Call]:
        """Those that all of its ranks have made, the oldest first."""
        return _calls(self.nodes)

    @property
    def late(self) -> float:
        """For which share of the time a rank or a node is later than all others, at most; of one
        node without its calls, as there may be a thousand of such groups."""
        if len(self.nodes) == 1:
            told = self.nodes[0].arrivals
            return (sum(told.late) - sum(told.second)) / max(1, sum(told.gaps))
        calls = self.calls
        return sum(call.last - min(call.others, call.elsewhere) for call in calls) / self.span

    @cached_property
    def span(self) -> float:
        """Seconds from its first call to its last one."""
        return max(1e-9, self.calls[-1].first - self.calls[0].first) if self.calls else math.inf

    @cached_property
    def breaks(self) -> int:
        """How often its ranks have called something else in it between two of the calls."""
        return sum(after.number - one.number > 1 for one, after in pairwise(self.calls))

    @cached_property
    def _waited(self) -> dict[int | None, float]:
        """Seconds from the first rank's call to the last one's, by who was last; None: of all."""
        found: dict[int | None, float] = {None: 0.0}
        for call in self.calls:
            found[call.rank] = found.get(call.rank, 0.0) + call.last - call.first
            found[None] += call.last - call.first
        return found

    def waited(self, ranks: Iterable[int]) -> float:
        """For which share of the time these may have waited in it for others, at most."""
        own = sum(self._waited.get(rank, 0.0) for rank in ranks)
        return (self._waited[None] - own) / self.span

    def count(self, slot: int) -> int:
        """How many of its ranks are on this node."""
        return sum(len(node.arrivals.ranks) for node in self.nodes if node.slot == slot)

    def error(self, slot: int) -> float:
        """Seconds by which the lateness of this node's ranks may be wrong: by two clocks."""
        errors = {node.slot: node.error for node in self.nodes}
        own = errors.pop(slot)
        return own + max(errors.values()) if errors else 0.0


class Groups(NamedTuple):
    """What is known of all groups.

    Attributes:
        whole: Those all of whose ranks have told when they called.
        unknown: The ranks of the others: what they have waited for is not known.
        receivers: Those that may have waited for a single rank, by the group; empty: by a message.
        of_slot: The ranks of each node.
    """

    whole: list[Group]
    unknown: set[int]
    receivers: dict[str, set[int]]
    of_slot: dict[int, set[int]]


def groups_in(look: RunLook) -> Groups:
    """The groups, as the nodes have told of them."""
    found: dict[tuple[str, str], list[Node]] = {}
    receivers: dict[str, set[int]] = {}
    of_slot: dict[int, set[int]] = {}
    for node in look.nodes:
        report = node.report
        if report is None or report.pace is None or report.epoch != look.epoch:
            continue
        for arrivals in report.pace.arrivals:
            key = arrivals.group, arrivals.members
            part = Node(node.slot, report.pace.clock_error, arrivals)
            found.setdefault(key, []).append(part)
            of_slot.setdefault(node.slot, set()).update(arrivals.ranks)
        for one in report.pace.receives:
            receivers.setdefault(one.group, set()).add(one.rank)
    whole, unknown = [], set[int]()
    for (name, members), nodes in found.items():
        ranks = [rank for node in nodes for rank in node.arrivals.ranks]
        if not _are_all(ranks, members):
            unknown.update(ranks)
        elif len(ranks) > 1:
            whole.append(Group(name, nodes))
    return Groups(whole, unknown, receivers, of_slot)


def _are_all(ranks: list[int], members: str) -> bool:
    spans = spans_of(members)
    if sum(map(len, spans)) != len(ranks):
        return False
    return sorted(ranks) == [rank for span in spans for rank in span]


class _Rows(NamedTuple):
    """The common calls on one node, in microseconds: when its first rank made each of them, the
    last but one, and the last."""

    slot: int
    firsts: list[int]
    seconds: Sequence[float]
    lasts: list[int]
    ranks: list[int]


def _calls(nodes: Sequence[Node]) -> list[Call]:
    """The calls that all nodes have told; by columns, as there may be a thousand nodes."""
    numbers = [_numbers(node.arrivals) for node in nodes]
    common = sorted(set(numbers[0]).intersection(*numbers[1:]))
    if not common:
        return []
    rows = [_rows(node, own, common) for node, own in zip(nodes, numbers, strict=True)]
    kept = set(common)
    kinds = [
        kind
        for kind, number in zip(nodes[0].arrivals.kinds, numbers[0], strict=True)
        if number in kept
    ]
    firsts = list(map(min, zip(*(one.firsts for one in rows), strict=True)))
    last_ones = zip(*(one.lasts for one in rows), strict=True)
    parts = zip(common, kinds, firsts, last_ones, strict=True)
    return [_call(*part, firsts[0], rows, index) for index, part in enumerate(parts)]


def _numbers(arrivals: Arrivals) -> list[int]:
    return list(accumulate(arrivals.steps, initial=arrivals.number))


def _rows(node: Node, numbers: list[int], common: list[int]) -> _Rows:
    """What a node tells of the common calls."""
    arrivals = node.arrivals
    firsts = list(accumulate(arrivals.gaps, initial=arrivals.began))
    if arrivals.late:
        seconds: list[float] = list(map(add, firsts, arrivals.second))
        lasts = list(map(add, firsts, arrivals.late))
        ranks = list(map(arrivals.ranks.__getitem__, arrivals.last))
    else:
        seconds, lasts = [-math.inf] * len(firsts), firsts
        ranks = arrivals.ranks * len(firsts)
    if numbers != common:
        at = {number: index for index, number in enumerate(numbers)}
        chosen = [at[number] for number in common]
        firsts, lasts = [firsts[i] for i in chosen], [lasts[i] for i in chosen]
        seconds, ranks = [seconds[i] for i in chosen], [ranks[i] for i in chosen]
    return _Rows(node.slot, firsts, seconds, lasts, ranks)


def _call(
    number: int,
    kind: str,
    first: int,
    lasts: tuple[int, ...],
    origin: int,
    rows: list[_Rows],
    index: int,
) -> Call:
    last = max(lasts)
    at = lasts.index(last)
    late = rows[at]
    elsewhere = max(max(lasts[:at], default=-math.inf), max(lasts[at + 1 :], default=-math.inf))
    return Call(
        number=number,
        kind=kind,
        first=(first - origin) / 1e6,
        last=(last - origin) / 1e6,
        rank=late.ranks[index],
        others=(max(late.seconds[index], elsewhere) - origin) / 1e6,
        slot=late.slot,
        elsewhere=(elsewhere - origin) / 1e6,
    )
