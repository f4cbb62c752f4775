"""Whether the others wait for a late call, by what they do next. Pure.

Where they wait, their next call follows the late one: by what that is later than usual, theirs is
too. And at each step the lateness is a new one. Where nobody waits, what they do next has nothing
to do with it, and each lateness is the one before and a bit more or less: it wanders.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import NamedTuple

from rendezvous.pace.steps import spread

_SIGMAS = 3.0
"""So many standard errors make something certain: by chance it is so once in 700 times."""
_MOST_BEFORE = 0.05
"""Of the steps: where the others go on before a late call in more of them, they do not wait."""
_HALF = 0.5
"""Of a lateness: where more of it comes back in the others' next call, they rather wait for it."""
_STAYS = 0.5
"""Of a lateness: what is left of it at the next call where they do not wait for it."""
_NEAR = 5
"""Steps before and after one: what is slower than these is a drift."""
_DRIFTS = 1.25
"""Of what changes from step to step, to what differs in all, both squared: 2 where each value is a
new one, 6 by the number of steps where it is the old one and a bit more or less."""


class Wait(NamedTuple):
    """For a call at the same place of each step.

    Attributes:
        seconds: By how much it is late, in the middle of all steps.
        least: By how much at least, in the middle of all steps that could follow.
        may: Whether the others may wait for it.
        ends: Whether all are together then: its lateness at the next call is another one.
        last: In how many steps it was the last one.
        of: Of how many.
    """

    seconds: float
    least: float
    may: bool
    ends: bool
    last: int
    of: int


def wait_for(
    late: Sequence[float], then: Sequence[float], pauses: Sequence[float], error: float
) -> Wait:
    """What is known of it.

    Args:
        late: By how much it is late in each step, in seconds; 0: it was not the last.
        then: By how much at the call that follows.
        pauses: From when all others had made each of them to when they had made their next call.
        error: By how much clocks may be wrong.
    """
    count = len(late)
    before = sum(pause - by < -error for by, pause in zip(late, pauses, strict=True))
    share, scatter = _share(late, pauses)
    if _drifts(pauses):
        share, scatter = _share(_sudden(late), _sudden(pauses))
    # At most e times likelier is that they do not wait, by how far the share is from 0 and from 1.
    may = before <= _MOST_BEFORE * count and share >= _HALF - scatter * scatter
    may = may and (share - _SIGMAS * scatter > _HALF or _is_new(late))
    ends = may and _share(late, then)[0] < _STAYS
    # By chance, so many of them are below the middle once in 200 times.
    at = max(0, math.floor(count / 2 - 1.3 * math.sqrt(count)))
    return Wait(median(late), sorted(late)[at], may, ends, sum(by > 0 for by in late), count)


def _sudden(values: Sequence[float]) -> list[float]:
    """What is left of them without what changes slowly, and for all ranks alike."""
    last, found = len(values) - 1, []
    for i, value in enumerate(values):
        near = min(_NEAR, i, last - i)  # as many before it as after it
        found.append(value - fmean(values[i - near : i + near + 1]))
    return found


def _drifts(values: Sequence[float]) -> bool:
    """Whether each is the one before, and a bit more or less."""
    mean = fmean(values)
    return _squares(_changes(values)) < _DRIFTS * _squares(value - mean for value in values)


def _is_new(late: Sequence[float]) -> bool:
    """Whether each lateness is a new one."""
    changes = _changes(late)
    if not _drifts(late) or not any(changes):
        return True
    # A new one that also changes slowly: each change is taken back by the next one, by half.
    back = sum(one * after for one, after in pairwise(changes)) / _squares(changes)
    return back <= -0.25 - 0.5 / math.sqrt(len(late))


def _changes(values: Sequence[float]) -> list[float]:
    return [after - one for one, after in pairwise(values)]


def _squares(values: Iterable[float]) -> float:
    return sum(value * value for value in values)


def _share(late: Sequence[float], others: Sequence[float]) -> tuple[float, float]:
    """By what part of a lateness the others are longer, and the standard error of that: as the
    medians of the half with the longer and of that with the shorter ones differ."""
    pairs = sorted(zip(late, others, strict=True))
    half = len(pairs) // 2
    short, long = pairs[:half], pairs[-half:]
    by = median(one for one, _ in long) - median(one for one, _ in short)
    if by <= 0:
        return 1.0, math.inf
    share = (median(one for _, one in long) - median(one for _, one in short)) / by
    scatter = spread(other - share * one for one, other in pairs)
    # A median of n/2 values is wrong by 1.25 sigma / sqrt(n/2); sigma is the spread / 1.35.
    return share, 1.25 / 1.35 * 2 * scatter / math.sqrt(len(pairs)) / by
