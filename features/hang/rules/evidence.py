"""Two looks side by side: who waits, who is waited for, and whether anything moves. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal, NamedTuple

from features.hang.rules.calls import Calls, Point, call_of, is_message
from features.hang.rules.seen import Ranks, Seen
from features.hang.rules.stacks import Kind
from features.hang.wire import ProcessGroup

Brief = Literal["", "timed", "untimed"]
YOUNG_SECONDS = 5.0
"""What is younger than this moves, for what one look can show."""
_USUAL_TIMES = 6


class Quiet(NamedTuple):
    """For how long nothing has moved.

    Attributes:
        seconds: Since the newest call of the ranks that matter; None: not known.
        limit: How long it may be in a run that is well.
        usual: The longest pause before.
        moved: Collectives that were called, or that ended, during the look.
        since_before: Whether there were some since the look before.
    """

    seconds: float | None
    limit: float
    usual: float
    moved: int
    since_before: bool

    @property
    def is_moving(self) -> bool:
        """Whether these ranks may be well."""
        moved = self.moved > 0 or self.since_before
        return moved or self.seconds is None or self.seconds < self.limit


class Evidence:
    """What both looks show.

    Attributes:
        roots: Ranks for which others wait, and which wait for none.
        veiled: Ranks for which others wait, and which wait for what no recorder has.
        waiting: Ranks that wait, by their recorder or their stack.
        gone: Ranks whose process has ended.
        starting: Ranks that have no process group yet.
        brief: Sizes are not to be said, nor times if it is `untimed`.
    """

    def __init__(self, ranks: Ranks, before: Ranks | None, brief: Brief = "") -> None:
        self.brief = brief
        self.ranks = ranks.by_number
        self.seen = ranks
        self.before = before.by_number if before is not None else {}
        self.silent = ranks.silent()
        self.of = len(self.ranks.keys() | set(self.silent))
        self.calls = Calls(self.ranks, self.silent)
        lacking = {rank for point in self.calls.points for rank in point.lacking}
        lacking -= self.calls.waiting
        waits = {rank for rank in lacking if self.ranks[rank].place.kind.waits}
        self.veiled = sorted(waits)
        self.roots = sorted(lacking - waits)
        by_stack = {rank for rank, seen in self.ranks.items() if seen.place.kind.waits}
        self.waiting = self.calls.waiting | by_stack
        self.gone = [seen for seen in self.ranks.values() if seen.is_gone]
        self.starting = [rank for rank, seen in self.ranks.items() if seen.is_starting]

    @property
    def is_complete(self) -> bool:
        """Whether every rank and every node has answered."""
        return not self.silent and not self.seen.silent_nodes

    def is_everyone(self, ranks: Collection[int]) -> bool:
        """Whether these are all ranks of the run, which nobody knows without all nodes' answers."""
        return not self.seen.silent_nodes and len(ranks) == self.of

    def points_on(self, roots: Collection[int]) -> list[Point]:
        """The calls that these ranks have not made, for which others wait."""
        wanted = set(roots)
        found: list[Point] = []
        earlier: Point | None = None
        for point in self.calls.points:
            follows = earlier is not None and not point.peer and point.key == earlier.key
            if follows or not wanted.isdisjoint(point.lacking):
                found.append(point)
                earlier = None if point.peer else point
        return found

    def quiet(self, points: Iterable[Point], roots: Collection[int] = ()) -> Quiet:
        """For how long the ranks that wait in these calls, and those that they wait for, are."""
        matter: set[int] = set(roots)
        own = [self._newest_age(self.ranks[rank]) for rank in roots]
        ages: list[float | None] = []
        usual = 0.0
        for point in points:
            matter.update(point.waiting)
            for rank in point.waiting:
                group = self.calls.groups[point.key].parts[rank].group
                usual = max(usual, group.usual)
                ages.append(_age_of(group, point))
        limit = max(YOUNG_SECONDS, _USUAL_TIMES * usual)
        moved = sum(self.ranks[rank].look.called for rank in matter)
        changed = any(self.has_moved(rank) for rank in matter)
        known = [age for age in ages if age is not None]
        seconds = min([*known, *(age or 0.0 for age in own)]) if known and None not in own else None
        between = self.between(matter)
        if between is not None and not changed:
            seconds = max(between, seconds or 0.0)
        return Quiet(seconds, limit, usual, moved, changed)

    def quiet_of_all(self) -> Quiet | None:
        """The same of all ranks that have called anything; None: no recorder has anything."""
        called = [rank for rank, seen in self.ranks.items() if seen.look.groups]
        groups = [group for rank in called for group in self.ranks[rank].look.groups]
        ages = [call.age for group in groups for call in group.calls]
        if not ages:
            return None
        usual = max(group.usual for group in groups)
        moved = sum(self.ranks[rank].look.called for rank in called)
        changed = any(self.has_moved(rank) for rank in called)
        return Quiet(min(ages), max(YOUNG_SECONDS, _USUAL_TIMES * usual), usual, moved, changed)

    def roots_but(self, ranks: Collection[int]) -> list[int]:
        """The ranks that others wait for, without these."""
        return [rank for rank in self.roots if rank not in ranks]

    def between(self, ranks: Iterable[int]) -> float | None:
        """The seconds between both looks, where each of these ranks was seen in both."""
        found = []
        for rank in ranks:
            was = self.before.get(rank)
            now = self.ranks[rank]
            if was is None or was.look.pid != now.look.pid or not was.answers:
                return None
            found.append(now.look.lives - was.look.lives)
        return max(0.0, min(found)) if found else None

    def has_moved(self, rank: int) -> bool:
        """Whether it has called something since the look before, or something has ended."""
        was = self.before.get(rank)
        if was is None or not was.is_read:
            return False
        counts = {group.name: (group.called, group.ended) for group in was.look.groups}
        now = self.ranks[rank].look.groups
        return any(counts.get(group.name) != (group.called, group.ended) for group in now)

    def has_turned(self, rank: int) -> bool:
        """Whether its main thread is elsewhere than in the look before."""
        was, now = self.before.get(rank), self.ranks[rank]
        if was is None or was.stack is None or now.stack is None:
            return False
        return was.stack.frames != now.stack.frames

    def waited(self, points: Iterable[Point]) -> float | None:
        """For how long the first of those that wait in these calls has waited."""
        if self.brief == "untimed":
            return None
        parts = (
            (point, self.calls.groups[point.key].parts[r])
            for point in points
            for r in point.waiting
        )
        ages = [age for point, part in parts if (age := _age_of(part.group, point)) is not None]
        return max(ages, default=None)

    def _newest_age(self, seen: Seen) -> float | None:
        """Of its newest call; where it has made none, of its process."""
        ages = [call.age for group in seen.look.groups for call in group.calls]
        if not ages and any(group.called > 0 for group in seen.look.groups):
            return None
        return min(ages, default=seen.look.lives)

    def idle(self) -> list[int]:
        """The ranks that wait for none, and for which none is known to wait."""
        busy = self.waiting | set(self.roots)
        return [rank for rank, one in self.ranks.items() if one.answers and rank not in busy]

    def is_inside(self, rank: int) -> bool:
        """Whether its main thread is seen to wait."""
        return self.ranks[rank].place.kind.waits

    def has_no_stack(self, rank: int) -> bool:
        """Whether nothing shows where its main thread is."""
        return self.ranks[rank].place.kind is Kind.UNKNOWN


def _age_of(group: ProcessGroup, point: Point) -> float | None:
    """Of the call that is waited in; at least that of the oldest that the recorder still has."""
    if point.peer:
        return min((c.age for c in group.calls if is_message(c.operation)), default=None)
    call = call_of(group, point.number)
    if call is not None:
        return call.age
    known = [call for call in group.calls if not is_message(call.operation)]
    if known and known[0].number > point.number:
        return known[0].age
    return None
