"""The calls of all process groups over all nodes, merged as the nodes tell of them. Pure.

Of each call only the last ranks are kept: who makes the others wait is among them.
"""

from __future__ import annotations

import math
from itertools import accumulate, repeat

from rendezvous.pace.calls import Call, Group, Groups
from rendezvous.wire.pace import Arrivals, Pace
from rendezvous.wire.words import spans_of

MOST_CALLS = 1 << 17
"""Of all groups with several nodes; the ranks of a group that does not fit are unknown."""


class _Merged:
    """A call, as far as nodes have told of it; times in microseconds."""

    __slots__ = ("elsewhere", "first", "last", "nodes", "others", "rank", "slot")

    def __init__(self) -> None:
        self.nodes = 0
        self.rank = self.slot = -1
        self.first = math.inf
        self.last = self.others = self.elsewhere = -math.inf

    def add(self, first: int, second: float, last: int, rank: int, slot: int) -> None:
        """One more node has told when its ranks made it."""
        self.nodes += 1
        if first < self.first:
            self.first = first
        if last > self.last:
            self.elsewhere = self.last
            self.others = max(second, self.last)
            self.last, self.rank, self.slot = last, rank, slot
        elif last > self.elsewhere:
            self.elsewhere = last
            self.others = max(self.others, last)

    def call(self, number: int, kind: str, origin: float) -> Call:
        """The same, in seconds since that time."""
        first, last, others, elsewhere = (
            (time - origin) / 1e6 for time in (self.first, self.last, self.others, self.elsewhere)
        )
        return Call(number, kind, first, last, self.rank, others, self.slot, elsewhere)


class _Told:
    """What was told of a group.

    Args:
        slot: Of the first node that has told of it.
        arrivals: What that one has told. What kinds its calls are is taken from it alone.
    """

    def __init__(self, slot: int, arrivals: Arrivals) -> None:
        self.slots = dict.fromkeys(arrivals.ranks, slot)
        self.errors: dict[int, float] = {}
        self.is_whole = True
        self._slot = slot
        self._first = arrivals
        self._merged: dict[int, _Merged] = {}

    @property
    def size(self) -> int:
        """How many calls are merged."""
        return len(self._merged)

    def add(self, slot: int, arrivals: Arrivals, room: int) -> None:
        """One more node tells; there is room for so many calls in all."""
        if not self._merged and self.is_whole:
            self._merge(self._slot, self._first)
        self.slots.update(dict.fromkeys(arrivals.ranks, slot))
        if len(self._merged) + len(arrivals.kinds) > room:
            self.is_whole = False
            self._merged.clear()
        elif self.is_whole:
            self._merge(slot, arrivals)

    def _merge(self, slot: int, arrivals: Arrivals) -> None:
        told = zip(
            _numbers(arrivals),
            accumulate(arrivals.gaps, initial=arrivals.began),
            arrivals.second or repeat(-math.inf),
            arrivals.late or repeat(0),
            arrivals.last or repeat(0),
            strict=False,
        )
        ranks, calls = arrivals.ranks, self._merged
        for number, first, second, late, last in told:
            merged = calls.get(number)
            if merged is None:
                merged = calls[number] = _Merged()
            merged.add(first, first + second, first + late, ranks[last], slot)

    @property
    def late(self) -> float | None:
        """Of one node the calls tell it as they are."""
        if len(self.errors) > 1:
            return None
        first = self._first
        return (sum(first.late) - sum(first.second)) / max(1, sum(first.gaps))

    @property
    def calls(self) -> list[Call]:
        """Those that all nodes have told of."""
        if not self._merged:
            self._merge(self._slot, self._first)
        kinds = dict(zip(_numbers(self._first), self._first.kinds, strict=True))
        nodes = len(self.errors)
        found = [(n, one) for n, one in sorted(self._merged.items()) if one.nodes == nodes]
        origin = found[0][1].first if found else 0.0
        return [one.call(number, kinds[number], origin) for number, one in found]

    def has_all(self, members: str) -> bool:
        """Whether these ranks have told, and no others."""
        spans = spans_of(members)
        if not self.is_whole or sum(map(len, spans)) != len(self.slots):
            return False
        return all(rank in self.slots for span in spans for rank in span)


def _numbers(arrivals: Arrivals) -> list[int]:
    return list(accumulate(arrivals.steps, initial=arrivals.number))


class Timeline:
    """What nodes have told until now; each node tells once."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str], _Told] = {}
        self._calls = 0
        self._receivers: dict[str, set[int]] = {}
        self._of_slot: dict[int, set[int]] = {}

    def add(self, slot: int, pace: Pace) -> None:
        """Take in what the node of this slot tells."""
        for arrivals in pace.arrivals:
            key = arrivals.group, arrivals.members
            told = self._groups.get(key)
            if told is None:
                told = self._groups[key] = _Told(slot, arrivals)
            else:
                before = told.size
                told.add(slot, arrivals, MOST_CALLS - self._calls + before)
                self._calls += told.size - before
            told.errors[slot] = pace.clock_error
            self._of_slot.setdefault(slot, set()).update(arrivals.ranks)
        for one in pace.receives:
            self._receivers.setdefault(one.group, set()).add(one.rank)

    def groups(self) -> Groups:
        """What this makes of the groups."""
        whole, unknown = list[Group](), set[int]()
        for (name, members), told in self._groups.items():
            if not told.has_all(members):
                unknown.update(told.slots)
            elif len(told.slots) > 1:
                whole.append(Group(name, told.slots, told.errors, told))
        return Groups(whole, unknown, self._receivers, self._of_slot)
