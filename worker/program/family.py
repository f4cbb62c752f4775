"""What the processes that a program has started say of its end. Pure.

A *guess* may name a cause after the end; it never ends a living program. Three things may end one:
its own exit, a stop that was asked for, and what `certain_failure` finds. All else that is seen in
a family is a reason to warn, and nothing more: launchers start helpers that fail (nvidia-smi where
there is no driver), helpers inherit the rank variables of their parent, and torchrun starts a rank
again when it was told to.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from rendezvous.frozen import frozen

RANK_VARIABLES = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
"""What `ranks_in` reads."""

LATE_END_SECONDS = 10.0
"""Ranks end together; what differs by less is not worth a word."""

_TOGETHER_SECONDS = 0.5
_TOLD_TO_END = 128 + 15  # by SIGTERM


@frozen
class Ranks:
    """The ranks in a process's environment; `siblings` counts its node's ranks, 0 if unknown."""

    rank: int
    local_rank: int
    siblings: int = 0

    @property
    def pair(self) -> tuple[int, int]:
        """RANK and LOCAL_RANK."""
        return self.rank, self.local_rank


@frozen
class Child:
    """A direct child of the program.

    Attributes:
        pid: Its number.
        started: When the kernel started it, in seconds on a clock of its own.
        seen_at: When it was first seen; a time of `time.monotonic`, as `ended_at` is.
        ranks: Those in its environment; None where there are none, or it ended unread.
        ended_at: When its end was seen; None while it lives.
        exit_code: 0 to 255, 128 + n for signal n; None while it lives, or when it was reaped before
            it could be read.
        state: T when it was stopped, D when it waited for a disk, as last seen; else empty.
    """

    pid: int
    started: float
    seen_at: float
    ranks: Ranks | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    state: str = ""


@frozen
class Family:
    """A program's direct children: those that live, and those that ended of late.

    `own` are the ranks that the program was itself given, which its children may inherit.
    """

    own: Ranks | None = None
    children: tuple[Child, ...] = ()


@frozen
class Failure:
    """A child of the program that ended with something else than 0.

    `ended_at` is a time of `time.monotonic`. The ranks are None where it is not a rank.
    """

    ended_at: float
    pid: int
    exit_code: int
    rank: int | None = None
    local_rank: int | None = None


@frozen
class ToldEnd:
    """What a launcher has told of the child that failed first; see `Child`."""

    pid: int
    exit_code: int
    ranks: Ranks | None = None


def ranks_in(environ: Mapping[str, str]) -> Ranks | None:
    """The ranks in an environment; a platform that sets RANK per node leaves LOCAL_RANK out."""
    rank, local_rank, siblings = (environ.get(name) for name in RANK_VARIABLES)
    try:
        return Ranks(int(rank or ""), int(local_rank or ""), int(siblings or 0))
    except ValueError:
        return None


def certain_failure(family: Family, *, ends_all: bool) -> Failure | None:
    """The failed rank whose launcher is already ending the others, so that the program's end is
    certain; None when there is none.

    A rank has ranks of its own (not those of its parent) that no other child has. That it failed is
    not enough: another rank, which was there when it failed, has to have ended after it.

    Args:
        family: A snapshot; the program lives.
        ends_all: Whether the contract says that its launcher ends all ranks when one fails.
    """
    if not ends_all:
        return None
    numbered = _numbered(family)
    ranks = Counter(ranks.rank for _, ranks in numbered)
    local_ranks = Counter(ranks.local_rank for _, ranks in numbered)
    unique = [c for c, each in numbered if ranks[each.rank] == local_ranks[each.local_rank] == 1]
    first = _first_failed(unique)
    if first is None or not any(c.seen_at < first.ended_at < (c.ended_at or 0.0) for c in unique):
        return None
    return first


def failed_rank(family: Family) -> Failure | None:
    """The rank that failed first; None also when the end of another was missed before it.

    Worth a warning while the program lives, and the cause when it has ended.
    """
    return _first_failed(ranks_of(family))


def late_to_end(family: Family, now: float) -> tuple[int, ...]:
    """The ranks that go on although others have ended well, none of them in the last 10 s."""
    ended_at = ended_well_at(family)
    if ended_at is None or now < ended_at + LATE_END_SECONDS:
        return ()
    alive = (c.ranks.rank for c in ranks_of(family) if c.ranks and c.ended_at is None)
    return tuple(sorted(alive))


def ended_well_at(family: Family) -> float | None:
    """When the last of the ranks that have ended well did so, while others go on; else None."""
    ranks = ranks_of(family)
    ends = [c.ended_at for c in ranks if c.ended_at is not None and c.exit_code == 0]
    return max(ends) if ends and any(c.ended_at is None for c in ranks) else None


def likely_cause(family: Family) -> Failure | None:
    """What most likely ended a program that has ended by itself: a guess.

    The rank that failed first, or the child that may be the one rank which nobody has read; else,
    without a rank, the child that failed first. A rank that was ended by SIGTERM has been told to
    end, often because of what had failed before it, by the launcher or after the launcher's end.
    None when the end of a rank was missed before it.
    """
    ranks = ranks_of(family)
    found = _earliest(_first_failed(ranks), _unread_rank(family, ranks))
    if found is None or found.exit_code == _TOLD_TO_END:
        helper = _first_failed(replace(child, ranks=None) for child in family.children)
        found = _earliest(found, helper)
    return found if found and not _is_missed(ranks, found.ended_at) else None


def with_end(family: Family, told: ToldEnd) -> Family:
    """The same, where a launcher has told of a child that ended before its ranks could be read, or
    that it reaped before its exit code could be."""
    return replace(family, children=tuple(_with_end(child, told) for child in family.children))


def _with_end(child: Child, told: ToldEnd) -> Child:
    if child.pid != told.pid or child.ended_at is None:
        return child
    code = told.exit_code if child.exit_code is None else child.exit_code
    return replace(child, exit_code=code, ranks=child.ranks or told.ranks)


def _earliest(*failures: Failure | None) -> Failure | None:
    """Of those at the same time one that was not told to end, as others are once one has failed;
    else the first of them."""
    found = [failure for failure in failures if failure is not None]
    return min(found, key=lambda one: (one.ended_at, one.exit_code == _TOLD_TO_END), default=None)


def _numbered(family: Family) -> list[tuple[Child, Ranks]]:
    """The children whose ranks are not their parent's own."""
    own = family.own.pair if family.own else None
    return [(c, c.ranks) for c in family.children if c.ranks and c.ranks.pair != own]


def ranks_of(family: Family) -> list[Child]:
    """The children with ranks of their own; of those that share them the youngest, which torchrun
    has started in place of the others."""
    in_order = sorted(_numbered(family), key=lambda numbered: numbered[0].started)
    return list({ranks.pair: child for child, ranks in in_order}.values())


def _first_failed(children: Iterable[Child]) -> Failure | None:
    """The first of these that failed, unless another one's end was missed before."""
    children = list(children)
    first = _earliest(*(_failure(c, c.ranks) for c in children if c.exit_code))
    return first if first and not _is_missed(children, first.ended_at) else None


def _failure(child: Child, ranks: Ranks | None) -> Failure:
    rank, local_rank = ranks.pair if ranks else (None, None)
    return Failure(child.ended_at or 0.0, child.pid, child.exit_code or 0, rank, local_rank)


def _is_missed(ranks: Iterable[Child], until: float) -> bool:
    """Whether one of these ended until then with a code that nobody has read."""
    return any(c.exit_code is None and (c.ended_at or math.inf) <= until for c in ranks)


def _unread_rank(family: Family, ranks: list[Child]) -> Failure | None:
    """The one child without ranks that started together with those that have them, if it failed
    and they lack one rank: it ended before its environment could be read."""
    known = [child.ranks for child in ranks if child.ranks]
    missing = set(range(len(known) + 1)) - {each.local_rank for each in known}
    together = [
        child
        for child in family.children
        if child.ranks is None
        and any(abs(child.started - each.started) <= _TOGETHER_SECONDS for each in ranks)
    ]
    if {each.siblings for each in known} != {len(known) + 1} or len(missing) != 1:
        return None
    if len(together) != 1 or not together[0].exit_code:
        return None
    (local_rank,) = missing
    first = known[0].rank - known[0].local_rank
    return _failure(together[0], Ranks(first + local_rank, local_rank))


def pids_by_local_rank(family: Family, main: int | None, count: int) -> dict[int, int | None]:
    """The process of each local rank, as far as they are known; a program without children of its
    own that has one rank is that."""
    known = {child.ranks.local_rank: child.pid for child in ranks_of(family) if child.ranks}
    if not known and count == 1:
        known = {0: main} if main is not None else {}
    return {local: known.get(local) for local in range(count)}
