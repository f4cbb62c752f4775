"""The values that a program sends, as curves of a bounded size, however long it runs. Pure."""

from __future__ import annotations

import math
import statistics
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import TypedDict

from features.metrics.wire import MOST_METRIC_ROWS, MetricLine, decoded

MOST_POINTS = 2_000
"""Of one curve: as many as a wide screen has columns."""
MOST_RANKS = 8
"""Each has a curve of its own; of more, the median and the range are shown."""
MOST_NAMES = 64
_OPEN_STEPS = MOST_METRIC_ROWS + 64
"""Ranks do not get on alike, and a node may tell a whole batch before the others tell theirs: so
many of the newest steps wait for those that are late."""


class Curve(TypedDict):
    """One value over the steps.

    Attributes:
        label: `rank 3`, `median of 64 ranks`.
        values: None where there is none, or it is not finite.
        low: With `high`, the range over all ranks; None: of one rank.
    """

    label: str
    steps: list[int]
    values: list[float | None]
    low: list[float | None] | None
    high: list[float | None] | None


class Curves(TypedDict):
    """By name of the value; of more than 8 ranks the median alone, with the range.

    Attributes:
        rows: How many rows there are; the page asks again once there are more.
    """

    rows: int
    curves: dict[str, list[Curve]]


class _Line:
    """Columns over the steps; with too many points every second one goes, here and from now on."""

    def __init__(self, columns: int) -> None:
        self.steps = array("q")
        self.columns = [array("d") for _ in range(columns)]
        self._every = 1

    def add(self, step: int, *values: float) -> None:
        """A point behind the others; of steps that are told again counts what was told last: the
        program has begun again from what it had saved."""
        if self.steps and step <= self.steps[-1]:
            self.cut(step)
        if self.steps and step - self.steps[-1] < self._every:
            return
        self.steps.append(step)
        for column, value in zip(self.columns, values, strict=True):
            column.append(value)
        if len(self.steps) > MOST_POINTS:
            self._thin()

    def cut(self, step: int) -> None:
        """Forget this step and all behind it."""
        left = bisect_left(self.steps, step)
        del self.steps[left:]
        for column in self.columns:
            del column[left:]

    def _thin(self) -> None:
        self.steps = self.steps[::2]
        self.columns = [column[::2] for column in self.columns]
        gaps = len(self.steps) - 1
        self._every = max(1, (self.steps[-1] - self.steps[0]) // max(1, gaps))


class _Value:
    """One value of a program: of each of a few ranks, and of all."""

    def __init__(self) -> None:
        self.ranks: dict[int, _Line] = {}
        self.all = _Line(3)
        self._open: dict[int, array[float]] = {}
        self._closed = -1
        """The newest step of `all`: what is told of it or an older one comes too late."""
        self._begun = 0
        self._told: dict[int, tuple[int, int]] = {}
        """By rank: its newest step, and how often the program had begun again by then."""

    def add(self, rank: int, step: int, value: float) -> None:
        if rank in self.ranks or len(self.ranks) < MOST_RANKS:
            self.ranks.setdefault(rank, _Line(1)).add(step, value)
        before, begun = self._told.get(rank, (step, self._begun))
        if step < before and begun == self._begun:
            self._begin_again(step)  # the first of its ranks
        self._told[rank] = (step, self._begun)
        if step <= self._closed:
            return
        self._open.setdefault(step, array("d")).append(value)
        if len(self._open) > _OPEN_STEPS:
            self._closed = min(self._open)
            self.all.add(self._closed, *_range_of(self._open.pop(self._closed)))

    def _begin_again(self, step: int) -> None:
        """The program has, from what it had saved."""
        self._begun += 1
        self.all.cut(step)
        self._open = {one: values for one, values in self._open.items() if one < step}
        self._closed = min(self._closed, step - 1)

    def of_all(self) -> Iterator[tuple[int, tuple[float, float, float]]]:
        """Median, least and most by step."""
        line = self.all
        for step, *values in zip(line.steps, *line.columns, strict=True):
            yield step, (values[0], values[1], values[2])
        for step, found in sorted(self._open.items()):
            yield step, _range_of(found)


class CurveStore:
    """The curves of one run."""

    def __init__(self) -> None:
        self._values: dict[str, _Value] = {}
        self._ranks = set[int]()
        self._rows = 0

    def take(self, row: MetricLine) -> None:
        """Take in what a process has told."""
        self._rows += 1
        self._ranks.add(row.rank)
        for name, value in decoded(row.values).items():
            if name in self._values or len(self._values) < MOST_NAMES:
                self._values.setdefault(name, _Value()).add(row.rank, row.step, value)

    def curves(self) -> Curves:
        """As the page draws them."""
        many = len(self._ranks) > MOST_RANKS
        shown = {
            name: [self._median(value)] if many else list(_each(value))
            for name, value in self._values.items()
        }
        return {"rows": self._rows, "curves": shown}

    def _median(self, value: _Value) -> Curve:
        points = list(value.of_all())
        return {
            "label": f"median of {len(self._ranks)} ranks",
            "steps": [step for step, _ in points],
            "values": [_number(found[0]) for _, found in points],
            "low": [_number(found[1]) for _, found in points],
            "high": [_number(found[2]) for _, found in points],
        }


def _each(value: _Value) -> Iterator[Curve]:
    for rank, line in sorted(value.ranks.items()):
        yield {
            "label": f"rank {rank}",
            "steps": line.steps.tolist(),
            "values": [_number(one) for one in line.columns[0]],
            "low": None,
            "high": None,
        }


def _range_of(values: Iterable[float]) -> tuple[float, float, float]:
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return math.nan, math.nan, math.nan
    return statistics.median(finite), min(finite), max(finite)


def _number(value: float) -> float | None:
    """JSON has no word for what is not finite: the curve has a gap there."""
    return value if math.isfinite(value) else None
