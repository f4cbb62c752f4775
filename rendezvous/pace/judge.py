"""Names the straggler of a run, if it has one. Pure.

Being late is not enough. Where a rank lags behind the others by a fixed time and none of them waits
for it, as in a program that looks at a result only a step later, it costs nothing: see `waits`.

And a rank may be late because it has waited itself, in another process group or for a message. It
is not named then, nor where a group of its is not known in full. Where it has waited for others of
its node only, the node is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from rendezvous.frozen import frozen
from rendezvous.pace.calls import Call, Group, Groups
from rendezvous.pace.steps import steps_in
from rendezvous.pace.waits import Wait, wait_for

COST_SHARE = 0.05
"""Of a step: what costs less is not told."""
TIMES_ERROR = 3.0
"""So much larger than what the clocks are wrong by is a lateness."""
LEAST_LATE = 0.0002
"""Seconds: what is less is how the system wakes processes."""
NOW_AND_THEN = 0.1
"""Of the steps: what is called in fewer, as at the start, does not make it late in the others."""
EXPLAINS = 0.5
"""Who loses half as much waiting for another one is late because of that one."""


@frozen
class Straggler:
    """Who makes the others wait.

    Attributes:
        slot: Of its node.
        rank: Its global number; None: its node, of which it is several ranks or not known which.
        cost: For how many seconds of each step, at most: they may have had something to do.
        step: How long a step takes, in seconds.
        last: In how many calls it was the last one, of those that cost this.
        of: Of how many.
    """

    slot: int
    rank: int | None
    cost: float
    step: float
    last: int
    of: int

    @property
    def who(self) -> tuple[int, int | None]:
        """What tells it from another one."""
        return self.slot, self.rank


class _Late(NamedTuple):
    """Who makes a group wait, and at which places of its steps; `rank`: None: a whole node."""

    group: Group
    slot: int
    rank: int | None
    waits: list[Wait]
    step: float

    @property
    def share(self) -> float:
        """Of the time, that it is late."""
        return sum(wait.seconds for wait in self.waits) / self.step


def judge(groups: Groups) -> Straggler | None:
    """The straggler that costs most, by what all nodes tell of their calls; None: there is none, or
    too little is known."""
    lates = (late for group in groups.whole for late in _lates_in(group))
    found = [one for late in lates if (one := _named(late, groups)) is not None]
    if not found:
        return None
    worst = max(found, key=_share)
    # Of its node, the rank that costs about as much by itself.
    alike = [one for one in found if one.slot == worst.slot and one.rank is not None]
    alike = [one for one in alike if _share(one) >= EXPLAINS * _share(worst)]
    if len({one.rank for one in alike}) == 1:
        return max(alike, key=_share)
    return Straggler(worst.slot, None, worst.cost, worst.step, worst.last, worst.of)


def _share(one: Straggler) -> float:
    return one.cost / one.step


# ---- who is late in a group ---------------------------------------------------------------------


def _lates_in(group: Group) -> Iterator[_Late]:
    if group.late < COST_SHARE / 2:
        return
    calls = group.calls
    steps = steps_in("".join(call.kind for call in calls), [call.first for call in calls])
    if steps is None:
        return
    starts = [calls[steps.kept[start]].first for start in steps.starts]
    step = median(after - one for one, after in pairwise(starts))
    if step <= 0:
        return
    waits: dict[tuple[int, int | None], list[Wait]] = {}
    for place in range(steps.size):
        at = [(calls[one], calls[after]) for one, after in steps.at(place)]
        who, wait = _wait_at(group, at)
        if wait is not None:
            waits.setdefault(who, []).append(wait)
    for (slot, rank), own in waits.items():
        yield _Late(group, slot, rank, own, step)


def _wait_at(
    group: Group, calls: Sequence[tuple[Call, Call]]
) -> tuple[tuple[int, int | None], Wait | None]:
    """For whom the others may wait at this place: the rank that is the last one most often, or the
    node if only together its ranks are as late."""
    [(who, _)] = Counter((call.slot, call.rank) for call, _ in calls).most_common(1)
    late = _lateness(calls, *who)
    [(slot, _)] = Counter(call.slot for call, _ in calls).most_common(1)
    if group.nodes > 1 and group.count(slot) > 1:
        of_node = _lateness(calls, slot, None)
        if slot != who[0] or median(late) < EXPLAINS * median(of_node):
            return (slot, None), _wait(group, calls, (slot, None), of_node)
    return who, _wait(group, calls, who, late)


def _lateness(calls: Sequence[tuple[Call, Call]], slot: int, rank: int | None) -> list[float]:
    return [call.last - _others(call, slot, rank) for call, _ in calls]


def _wait(
    group: Group,
    calls: Sequence[tuple[Call, Call]],
    who: tuple[int, int | None],
    late: Sequence[float],
) -> Wait | None:
    """Whether they may wait; None where it is not late enough, or they do not."""
    error = group.error(who[0])
    least = max(LEAST_LATE, TIMES_ERROR * error)
    if median(late) < least:
        return None
    others = [(_others(call, *who), _others(after, *who)) for call, after in calls]
    then = [after.last - at for (_, after), (_, at) in zip(calls, others, strict=True)]
    wait = wait_for(late, then, [after - at for at, after in others], error)
    return wait if wait.may and wait.least >= least / 2 else None


def _others(call: Call, slot: int, rank: int | None) -> float:
    """When all others had made it."""
    if rank is None:
        return call.elsewhere if call.slot == slot else call.last
    return call.others if call.rank == rank else call.last


# ---- who is to blame ----------------------------------------------------------------------------


def _named(late: _Late, groups: Groups) -> Straggler | None:
    """What it costs, if that is worth telling and nobody else has made it late."""
    sure = [wait for wait in late.waits if wait.ends]
    most = max(late.waits, key=lambda wait: wait.seconds)
    counted = sure if sum(wait.seconds for wait in sure) >= most.seconds else [most]
    cost = sum(wait.seconds for wait in counted)
    if cost < COST_SHARE * late.step:
        return None
    last, of = sum(wait.last for wait in counted), sum(wait.of for wait in counted)
    if late.rank is not None and not _is_excused(late, {late.rank}, groups):
        return Straggler(late.slot, late.rank, cost, late.step, last, of)
    node = groups.of_slot[late.slot]
    if len(node) > 1 and not _is_excused(late, node, groups):
        return Straggler(late.slot, None, cost, late.step, last, of)
    return None


def _is_excused(late: _Late, own: set[int], groups: Groups) -> bool:
    """Whether something else may have made these late."""
    if not own.isdisjoint(groups.unknown):
        return True
    receives = {name for name, ranks in groups.receivers.items() if not own.isdisjoint(ranks)}
    if receives - {late.group.name}:
        return True
    often = late.group.breaks > NOW_AND_THEN * late.waits[0].of
    if receives and often and not _is_one_of_many(late.group, own):
        return True
    return any(
        group.waited(own) >= EXPLAINS * late.share
        for group in groups.whole
        if group is not late.group and not own.isdisjoint(group.ranks)
    )


def _is_one_of_many(group: Group, own: set[int]) -> bool:
    """Whether others get values in this group as these do: its first rank gives or collects them,
    and is earlier or later for that."""
    others = group.ranks - own
    are_alike = len(own) == 1 or group.nodes_of(others) > 1
    return min(group.ranks) not in own and len(others) > 1 and are_alike
