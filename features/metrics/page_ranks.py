"""Newest step and values of each rank, and its steps a second. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict

from features.metrics.wire import MetricLine, decoded

_SPAN_SECONDS = 60.0
"""Over so much time, and up to twice of it."""


class Rank(TypedDict):
    """The newest row of a rank.

    Attributes:
        pace: Steps a second, over the last minute; None: not known.
        values: By name; one that is not finite is the text NaN, Infinity or -Infinity.
    """

    rank: int
    slot: int
    step: int
    at: float
    pace: float | None
    values: dict[str, float | str]


class RankStore:
    """The ranks of one run."""

    def __init__(self) -> None:
        self._ranks: dict[int, tuple[int, Rank]] = {}
        self._marks: dict[int, tuple[MetricLine, MetricLine, int]] = {}
        """By rank, two rows and its newest step: the pace is counted from the first row; the second
        will be the next one to count from."""

    def take(self, n: int, rows: Iterable[MetricLine]) -> None:
        """Receive rows, as the change of this number."""
        newest = dict[int, MetricLine]()
        for row in rows:
            newest[row.rank] = row
            self._mark(row)
        for rank, row in newest.items():
            self._ranks[rank] = (n, self._shown(row))

    def since(self, after: int) -> list[Rank] | None:
        """Ranks that have changed after this number; None: none has."""
        return [row for _, (n, row) in sorted(self._ranks.items()) if n > after] or None

    def _mark(self, row: MetricLine) -> None:
        first, second, newest = self._marks.get(row.rank, (row, row, row.step))
        if row.step < newest:  # it has begun again
            first = second = row
        elif row.at_seconds - second.at_seconds >= _SPAN_SECONDS:
            first, second = second, row
        self._marks[row.rank] = (first, second, row.step)

    def _shown(self, row: MetricLine) -> Rank:
        first, _, _ = self._marks[row.rank]
        passed, steps = row.at_seconds - first.at_seconds, row.step - first.step
        return {
            "rank": row.rank,
            "slot": row.slot,
            "step": row.step,
            "at": row.at_seconds,
            "pace": float(f"{steps / passed:.3g}") if passed > 0 and steps > 0 else None,
            "values": {name: _value(one) for name, one in decoded(row.values).items()},
        }


def _value(value: float) -> float | str:
    """JSON has no number for one that is not finite."""
    if value - value == 0:
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
