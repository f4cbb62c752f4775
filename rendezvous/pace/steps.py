"""The steps of a program, found in the order and the times of its calls. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

LEAST_STEPS = 20
_ALIKE = 0.9
"""Of the calls: others come now and then, as for an evaluation."""
_MOST_RARE = 0.2
"""Of the calls: those of kinds that do not belong to each step."""
_MOST_MULTIPLES = 32
_AS_REGULAR = 1.25


class Steps(NamedTuple):
    """Where steps begin.

    Attributes:
        size: The calls of each.
        starts: As indices of `kept`.
        kept: The calls without those that come now and then.
    """

    size: int
    starts: list[int]
    kept: list[int]

    def at(self, place: int) -> list[tuple[int, int]]:
        """The calls at this place of each step, each with the one that follows it."""
        places = (start + place for start in self.starts)
        return [(self.kept[i], self.kept[i + 1]) for i in places if i + 1 < len(self.kept)]


def steps_in(kinds: str, times: Sequence[float]) -> Steps | None:
    """The steps of a program.

    Where all calls of a step are alike, it is their rhythm that shows how many belong together.

    Args:
        kinds: A letter for each call.
        times: When it was made.

    Returns:
        None: there are not enough steps, or none is like another.
    """
    size, kept = _size_of(kinds)
    if not size:
        return None
    own = "".join(kinds[i] for i in kept)
    found = []
    for multiple in range(1, _MOST_MULTIPLES + 1):
        steps = Steps(size * multiple, _starts(own, size * multiple), kept)
        if len(steps.starts) < LEAST_STEPS:
            break
        found.append((_irregular(steps, times), steps))
    if not found:
        return None
    most = _AS_REGULAR * min(irregular for irregular, _ in found)
    return next(steps for irregular, steps in found if irregular <= most)


def _size_of(kinds: str) -> tuple[int, list[int]]:
    """After how many calls they come again, and which calls those are; 0: they do not.

    The rarest kinds are left out, one after the other, until what is left comes again.
    """
    left_out: set[str] = set()
    rarest = sorted(Counter(kinds).items(), key=lambda one: one[1])
    rare = 0
    for kind, times in rarest:
        kept = [i for i, one in enumerate(kinds) if one not in left_out]
        if size := _period("".join(kinds[i] for i in kept)):
            return size, kept
        left_out.add(kind)
        rare += times
        if rare > _MOST_RARE * len(kinds):
            break
    return 0, []


def _period(kinds: str) -> int:
    count = len(kinds)
    for size in range(1, count // LEAST_STEPS + 1):
        same = sum(one == other for one, other in zip(kinds, kinds[size:], strict=False))
        if same >= _ALIKE * (count - size):
            return size
    return 0


def _starts(kinds: str, size: int) -> list[int]:
    """Where the commonest sequence of this size begins, one after the other."""
    windows = Counter(kinds[at : at + size] for at in range(len(kinds) - size + 1))
    [(wanted, _)] = windows.most_common(1)
    starts, at = [], kinds.find(wanted)
    while at >= 0:
        starts.append(at)
        at = kinds.find(wanted, at + size)
    return starts


def _irregular(steps: Steps, times: Sequence[float]) -> float:
    """By how many seconds the pauses at the same place of steps differ, in the mean."""
    total, count = 0.0, 0
    for place in range(steps.size):
        pauses = [times[after] - times[i] for i, after in steps.at(place)]
        middle = median(pauses) if pauses else 0.0
        total += sum(abs(pause - middle) for pause in pauses)
        count += len(pauses)
    return total / max(1, count)


def spread(values: Iterable[float]) -> float:
    """Between the quartiles: a pause now and then does not count."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    quarter = len(ordered) // 4
    return ordered[-1 - quarter] - ordered[quarter]
