"""Names the straggler of a run, if it has one. Pure.

Being late is not enough. Where a rank lags behind the others by a fixed time and none of them waits
for it, as in a program that looks at a result only a step later, it costs nothing. So what
the others do next is looked at: where they wait, their next call follows the late one, and scatters
less as seen from there than as seen from their own. Where nobody waits it scatters more, by as much
as the lateness itself does.

And a rank may be late because it has waited itself, in another process group or for a message. It
is not named then, nor where a group of its is not known in full.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from rendezvous.frozen import frozen
from rendezvous.pace.calls import Group, Groups, groups_in
from rendezvous.pace.steps import spread, steps_in
from rendezvous.wire.look import RunLook

LAST_SHARE = 0.6
"""Of the calls: who makes the others wait is the last one in so many."""
COST_SHARE = 0.05
"""Of a step: what costs less is not told."""
TIMES_ERROR = 3.0
"""So much larger than what the clocks are wrong by is a lateness."""
LEAST_LATE = 0.0002
"""Seconds: what is less is how the system wakes processes."""
MAY_WAIT, DOES_WAIT = 1.3, 0.8
"""Up to which ratio of spreads the others may wait for a late call, and surely do. Where nobody
waits, a lateness wanders from step to step: it is 2 after 20 steps, and grows."""
MOST_BEFORE = 0.05
EXPLAINS = 0.5
"""Who loses half as much waiting for another one is late because of that one."""


@frozen
class Straggler:
    """Who makes the others wait.

    Attributes:
        slot: Of its node.
        rank: Its global number; None: all ranks of the node alike.
        cost: For how many seconds of each step, at most: they may have had something to do.
        step: How long a step takes, in seconds.
        last: In how many calls it was the last one.
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
    """Who is the last one of a group in most of its calls.

    Attributes:
        group: The group.
        slot: Of its node.
        ranks: Its ranks in the group: one, or all that the node has.
        is_node: Whether it is the whole node.
        late: By how many seconds, in each call; 0: it was not the last.
        others: When all others had made each call.
    """

    group: Group
    slot: int
    ranks: tuple[int, ...]
    is_node: bool
    late: list[float]
    others: list[float]

    @property
    def last(self) -> int:
        """In how many calls it was the last one."""
        return sum(late > 0 for late in self.late)

    @property
    def share(self) -> float:
        """Of the time, that the others would wait if they waited for it in each call."""
        calls = self.group.calls
        return sum(self.late) / max(1e-9, calls[-1].first - calls[0].first)

    @property
    def error(self) -> float:
        """Seconds that its lateness may be wrong by: other nodes have other clocks."""
        errors = {node.slot: node.error for node in self.group.nodes}
        if len(errors) == 1:
            return 0.0
        own = errors.pop(self.slot)
        return own + max(errors.values())


def judge(look: RunLook) -> Straggler | None:
    """The straggler that costs most, by what all nodes tell of their calls; None: there is none, or
    too little is known."""
    groups = groups_in(look)
    candidates = [late for group in groups.whole if (late := _late_in(group)) is not None]
    named = []
    for late in candidates:
        if not _is_excused(late, candidates, groups) and (found := _judged(late)) is not None:
            named.append(found)
    if not named:
        return None
    worst = max(named, key=lambda one: one.cost / one.step)
    ranks = {one.rank for one in named if one.slot == worst.slot}
    if len(ranks) == 1:
        return worst
    return Straggler(worst.slot, None, worst.cost, worst.step, worst.last, worst.of)


def _late_in(group: Group) -> _Late | None:
    calls = group.calls
    if not calls:
        return None
    [(rank, times)] = Counter(call.rank for call in calls).most_common(1)
    if times >= LAST_SHARE * len(calls):
        late = [max(0.0, call.last - call.others) * (call.rank == rank) for call in calls]
        others = [call.others if call.rank == rank else call.last for call in calls]
        return _Late(group, group.slot_of(rank), (rank,), False, late, others)
    [(slot, times)] = Counter(call.slot for call in calls).most_common(1)
    if len(group.nodes) > 1 and times >= LAST_SHARE * len(calls):
        late = [max(0.0, call.last - call.elsewhere) * (call.slot == slot) for call in calls]
        others = [call.elsewhere if call.slot == slot else call.last for call in calls]
        [node] = [node for node in group.nodes if node.slot == slot]
        return _Late(group, slot, tuple(node.arrivals.ranks), True, late, others)
    return None


def _is_excused(late: _Late, candidates: Sequence[_Late], groups: Groups) -> bool:
    """Whether something else may have made it late."""
    own = set(late.ranks)
    if not own.isdisjoint(groups.unknown):
        return True
    receives = {name for name, ranks in groups.receivers.items() if not own.isdisjoint(ranks)}
    if receives - {late.group.name}:
        return True
    return any(
        own.isdisjoint(other.ranks)
        and any(other.group.has(rank) for rank in own)
        and other.share >= EXPLAINS * late.share
        for other in candidates
        if other is not late
    )


def _judged(late: _Late) -> Straggler | None:
    """What it costs, if that is worth telling."""
    calls = late.group.calls
    steps = steps_in("".join(call.kind for call in calls), [call.first for call in calls])
    if steps is None:
        return None
    step = median(calls[b].first - calls[a].first for a, b in pairwise(steps.starts))
    least = max(LEAST_LATE, TIMES_ERROR * late.error)
    waits = [_wait_at(late, steps.at(offset, len(calls))) for offset in range(steps.size)]
    waits = [wait for wait in waits if wait.seconds >= least and wait.ratio <= MAY_WAIT]
    sure = sum(wait.seconds for wait in waits if wait.ratio <= DOES_WAIT)
    cost = max([sure, *(wait.seconds for wait in waits)])
    if step <= 0 or cost < COST_SHARE * step:
        return None
    rank = None if late.is_node else late.ranks[0]
    return Straggler(late.slot, rank, cost, step, late.last, len(calls))


class _Wait(NamedTuple):
    """A call at the same place of each step: by how many seconds it is late, in the middle; and how
    much the others' next call scatters as seen from it, to how much from their own."""

    seconds: float
    ratio: float


def _wait_at(late: _Late, at: Sequence[int]) -> _Wait:
    if not at:
        return _Wait(0.0, math.inf)
    from_own = [late.others[i + 1] - late.others[i] for i in at]
    from_late = [own - late.late[i] for own, i in zip(from_own, at, strict=True)]
    seconds = median(late.late[i] for i in at)
    if sum(pause < 0 for pause in from_late) > MOST_BEFORE * len(at):
        return _Wait(seconds, math.inf)  # they go on before it has come
    return _Wait(seconds, spread(from_late) / max(1e-9, spread(from_own)))
