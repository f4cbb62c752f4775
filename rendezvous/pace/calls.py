"""The calls of one process group, over all of its ranks. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, Protocol


class Call(NamedTuple):
    """One call; times in seconds since the first one of its group.

    Attributes:
        number: Counts all that the group's ranks have called in it.
        kind: Equal for the same operation on the same sizes.
        first: When the first rank made it.
        last: When the last one did, which is `rank`; all others had made it at `others`.
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


class Told(Protocol):
    """What nodes have told of a group."""

    @property
    def calls(self) -> list[Call]:
        """Those that all of its ranks have told of, the oldest first."""

    @property
    def late(self) -> float | None:
        """For which share of the time a rank is later than all others, at most; None: that is not
        known without the calls."""


class Group:
    """A process group all of whose ranks have told when they called.

    Args:
        name: The same on all ranks.
        slots: Of the nodes, by rank.
        errors: Of the nodes' clocks, in seconds, by slot.
        told: Read when it is asked for: there may be a thousand groups in which nobody is late.
    """

    def __init__(
        self, name: str, slots: Mapping[int, int], errors: Mapping[int, float], told: Told
    ) -> None:
        self.name = name
        self.ranks = slots.keys()
        self._slots = slots
        self._errors = errors
        self._told = told

    @cached_property
    def calls(self) -> list[Call]:
        """Those that all of its ranks have made, the oldest first."""
        return self._told.calls

    @property
    def late(self) -> float:
        """For which share of the time a rank or a node is later than all others, at most."""
        if (known := self._told.late) is not None:
            return known
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

    @property
    def nodes(self) -> int:
        """How many have ranks in it."""
        return len(self._errors)

    def count(self, slot: int) -> int:
        """How many of its ranks are on this node."""
        return sum(its == slot for its in self._slots.values())

    def nodes_of(self, ranks: Iterable[int]) -> int:
        """On how many nodes these of its ranks are."""
        return len({self._slots[rank] for rank in ranks})

    def error(self, slot: int) -> float:
        """Seconds by which the lateness of this node's ranks may be wrong: by two clocks."""
        others = [error for other, error in self._errors.items() if other != slot]
        return self._errors[slot] + max(others) if others else 0.0


class Groups(NamedTuple):
    """What is known of all groups.

    Attributes:
        whole: Those with more than one rank, all of which have told when they called.
        unknown: The ranks of the others: what they have waited for is not known.
        receivers: Those that may have waited for a single rank, by the group; empty: by a message.
        of_slot: The ranks of each node.
    """

    whole: list[Group]
    unknown: set[int]
    receivers: dict[str, set[int]]
    of_slot: dict[int, set[int]]
