"""The steps of a program, found in the order and the times of its calls. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

LEAST_STEPS = 20
_ALIKE = 0.9
"""Of the calls: others come now and then, as for an evaluation."""
_MOST_MULTIPLES = 32
_AS_REGULAR = 1.25


class Steps(NamedTuple):
    """Where steps begin, as indices of calls; each has `size` calls."""

    size: int
    starts: list[int]

    def at(self, offset: int, count: int) -> list[int]:
        """The calls at this place of each step that are followed by one of `count`."""
        return [start + offset for start in self.starts if start + offset + 1 < count]


def steps_in(kinds: str, times: Sequence[float]) -> Steps | None:
    """The steps of a program.

    Where all calls of a step are alike, it is their rhythm that shows how many belong together.

    Args:
        kinds: A letter for each call.
        times: When it was made.

    Returns:
        None: there are not enough steps, or none is like another.
    """
    size = _size_of(kinds)
    if size is None:
        return None
    found = []
    for multiple in range(1, _MOST_MULTIPLES + 1):
        steps = Steps(size * multiple, _starts(kinds, size * multiple))
        if len(steps.starts) < LEAST_STEPS:
            break
        found.append((_irregular(steps, times), steps))
    if not found:
        return None
    most = _AS_REGULAR * min(irregular for irregular, _ in found)
    return next(steps for irregular, steps in found if irregular <= most)


def _size_of(kinds: str) -> int | None:
    """After how many calls they come again."""
    count = len(kinds)
    for size in range(1, count // LEAST_STEPS + 1):
        same = sum(one == other for one, other in zip(kinds, kinds[size:], strict=False))
        if same >= _ALIKE * (count - size):
            return size
    return None


def _starts(kinds: str, size: int) -> list[int]:
    """Where the commonest sequence of this size begins, one after the other."""
    windows = Counter(kinds[at : at + size] for at in range(len(kinds) - size + 1))
    if not windows:
        return []
    [(wanted, _)] = windows.most_common(1)
    starts, at = [], kinds.find(wanted)
    while at >= 0:
        starts.append(at)
        at = kinds.find(wanted, at + size)
    return starts


def _irregular(steps: Steps, times: Sequence[float]) -> float:
    """By how many seconds the pauses at the same place of steps differ, in the mean."""
    total, count = 0.0, 0
    for offset in range(steps.size):
        pauses = [times[i + 1] - times[i] for i in steps.at(offset, len(times))]
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
