"""Which rank waits for which, by what the flight recorders have of their process groups. Pure.

A rank that has called number n of a group, which has not ended, waits for the members of the group
that have not called n. Numbers are those of the *oldest* unfinished call: a device works through
later ones in order.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from features.hang.rules.seen import Seen
from features.hang.rules.stacks import Kind
from features.hang.wire import Call, ProcessGroup
from rendezvous.wire.words import spans_of

_UNNAMED = ("", "undefined")
_P2P = re.compile(r"(?:.*:)?i?(send|recv)\b(?: (\d+)(?:->|<-)(\d+))?")
GroupKey = tuple[str, str]
"""Name and members, as they are written."""


class Part(NamedTuple):
    """A rank's part in a group. `waits`: the number of its oldest unfinished call, if any."""

    rank: int
    group: ProcessGroup
    waits: int | None


class Point(NamedTuple):
    """A call that ranks wait in.

    Attributes:
        waiting: The ranks that wait in it.
        lacking: The members that have not called it.
        unseen: How many members may not have called it, for what is known.
        open: Whether there may be other members, of which nothing is known.
    """

    key: GroupKey
    number: int
    waiting: tuple[int, ...]
    lacking: tuple[int, ...]
    unseen: int
    open: bool
    peer: bool = False


class Group:
    """One process group, over all ranks."""

    def __init__(self, key: GroupKey) -> None:
        self.key = key
        self.parts: dict[int, Part] = {}
        self.spans = spans_of(key[1])
        self.is_default = False
        """Whether all ranks of the program are in it."""

    @property
    def words(self) -> str:
        """As the program calls it, or by its name."""
        words = next(iter(self.parts.values())).group.words
        return f"process group {self.key[0]}" if words in _UNNAMED else words

    def has(self, rank: int) -> bool:
        """Whether a rank is a member, as far as that is known."""
        if self.spans:
            return any(rank in span for span in self.spans)
        return self.is_default or rank in self.parts


class Calls:
    """Who waits for whom, over all ranks."""

    def __init__(self, ranks: Mapping[int, Seen], silent: Iterable[int] = ()) -> None:
        self._ranks = ranks
        self._numbers = list(ranks)
        self._silent_others = sum(rank not in ranks for rank in silent)
        self.groups: dict[GroupKey, Group] = {}
        self.waits: dict[int, list[Part]] = {}
        for seen in ranks.values():
            guess = _guessed(seen)
            for group in seen.look.groups:
                key = group.name, group.members
                part = Part(seen.rank, group, waits_in(group, group is guess))
                self.groups.setdefault(key, Group(key)).parts[seen.rank] = part
                if part.waits is not None:
                    self.waits.setdefault(seen.rank, []).append(part)
        for default in sorted(filter(_looks_default, self.groups.values()), key=_size)[-1:]:
            default.is_default = True
        self.points = [point for group in self.groups.values() for point in self._points(group)]
        self.points += self._messages()
        self._lacks: list[bool] = []
        for index, point in enumerate(self.points):
            follows = index > 0 and not point.peer and self.points[index - 1].key == point.key
            self._lacks.append(bool(point.lacking) or (follows and self._lacks[-1]))
        self.waiting = {rank for point in self.points for rank in point.waiting}

    def _points(self, group: Group) -> Iterator[Point]:
        by_number: dict[int, list[int]] = {}
        for part in group.parts.values():
            if part.waits is not None:
                by_number.setdefault(part.waits, []).append(part.rank)
        if not by_number:
            return
        called = {rank: part.group.called for rank, part in group.parts.items()}
        unseen = self._silent_others if group.is_default else 0
        for rank in self._members(group):
            if rank not in called:
                seen = self._ranks[rank]
                if seen.is_read and seen.whole:
                    called[rank] = 0
                else:
                    unseen += 1
        if group.spans:
            unseen = sum(map(len, group.spans)) - sum(map(group.has, called))
        open_ = not group.spans and not group.is_default
        behind = sorted(called, key=lambda rank: (called[rank], rank))
        taken = 0
        for number in sorted(by_number):
            # A later number lacks these as well: `Waits` goes from one point to the one before.
            start = taken
            while taken < len(behind) and called[behind[taken]] < number:
                taken += 1
            lacking = tuple(sorted(behind[start:taken]))
            yield Point(group.key, number, tuple(by_number[number]), lacking, unseen, open_)

    def _members(self, group: Group) -> Iterable[int]:
        """Those that were seen, of a group whose members are known."""
        if group.is_default and not group.spans:
            return self._numbers
        found: list[int] = []
        for span in group.spans:
            start = bisect_left(self._numbers, span.start)
            found += self._numbers[start : bisect_left(self._numbers, span.stop)]
        return found

    def _messages(self) -> Iterator[Point]:
        """Sends and receives that have not ended, and whose peer is not in the same."""
        pending: dict[tuple[int, GroupKey, int | None], int] = {}
        for seen in self._ranks.values():
            for group in seen.look.groups:
                key = group.name, group.members
                for call in group.calls:
                    if call.done is False and (found := _P2P.fullmatch(call.operation)):
                        peer = _global(self.groups[key], found[3])
                        pending.setdefault((seen.rank, key, peer), call.number)
        for (rank, key, peer), number in pending.items():
            if peer is None or peer not in self._ranks:
                yield Point(key, number, (rank,), (), 0, True, True)
            elif (peer, key, rank) in pending:
                yield Point(key, number, (rank,), (), 0, False, True)
            else:
                yield Point(key, number, (rank,), (peer,), 0, False, True)

    def lacking(self, number: int) -> list[int]:
        """All that the point with this index lacks."""
        point = self.points[number]
        found = list(point.lacking)
        while number and not point.peer and self.points[number - 1].key == point.key:
            number -= 1
            found += self.points[number].lacking
        return sorted(found)

    def inside(self) -> list[Point]:
        """The calls in which ranks wait though no member that was read lacks them."""
        return [point for point, lacks in zip(self.points, self._lacks, strict=True) if not lacks]

    def trapped(self) -> set[int]:
        """The waiting ranks from which every way leads to a rank that waits: they are in a
        circle, or wait for one."""
        free: set[int] = set()
        waiters: dict[int, list[int]] = {}
        todo: list[int] = []
        for index, point in enumerate(self.points):
            after = index > 0 and not point.peer and self.points[index - 1].key == point.key
            ends = not point.lacking and not after
            if ends or point.unseen or point.open or set(point.lacking) - self.waiting:
                todo.append(index)
            for rank in point.lacking:
                waiters.setdefault(rank, []).append(index)
        seen = set(todo)
        while todo:
            index = todo.pop()
            point = self.points[index]
            reached = [one for rank in point.waiting for one in waiters.get(rank, ())]
            free.update(point.waiting)
            later = index + 1
            if later < len(self.points) and not point.peer:
                next_one = self.points[later]
                reached += [later] * (next_one.key == point.key and not next_one.peer)
            todo += set(reached) - seen
            seen.update(reached)
        return self.waiting - free


def _looks_default(group: Group) -> bool:
    words = next(iter(group.parts.values())).group.words
    return words == "default_pg" or (group.key[0] == "0" and words in _UNNAMED)


def _size(group: Group) -> int:
    return len(group.parts)


def is_message(operation: str) -> bool:
    """Whether it is a send or a receive, which has numbers of another series."""
    return _P2P.fullmatch(operation) is not None


def call_of(group: ProcessGroup, number: int) -> Call | None:
    """The collective with this number, where the recorder still has it."""
    for call in group.calls:
        if call.number == number and not is_message(call.operation):
            return call
    return None


def waits_in(group: ProcessGroup, guess: bool = False) -> int | None:
    """The number of the oldest collective that has not ended; `guess`: where nothing says so, the
    newest is held to be it."""
    if group.ended >= 0:
        return group.ended + 1 if group.ended < group.called else None
    calls = [call for call in group.calls if not is_message(call.operation)]
    unfinished = [call.number for call in calls if call.done is False]
    if unfinished:
        return min(unfinished)
    newest = call_of(group, group.called)
    known = newest is not None and newest.done is not None
    return group.called if guess and not known and group.called > 0 else None


def _guessed(seen: Seen) -> ProcessGroup | None:
    """Of a rank whose stack shows a collective, the group that it called last."""
    if seen.place.kind not in (Kind.COLLECTIVE, Kind.DEVICE):
        return None
    ages = [(min((c.age for c in g.calls), default=1e9), g.name, g) for g in seen.look.groups]
    return min(ages, default=(0, "", None), key=lambda one: one[:2])[2]


def _global(group: Group, rank: str | None) -> int | None:
    """The global rank of one that is numbered within its group."""
    if rank is None:
        return None
    number = int(rank)
    if group.is_default:
        return number
    for span in group.spans:
        if number < len(span):
            return span[number]
        number -= len(span)
    return None
