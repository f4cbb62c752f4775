"""How many steps a second each process takes, of what it has told. Pure."""

from __future__ import annotations

from rendezvous.wire.metrics import MetricLine

_SPAN_SECONDS = 60.0
"""Over so much time, and up to twice of it."""

_Told = tuple[float, int]


class Paces:
    """Those of one run's processes."""

    def __init__(self) -> None:
        self._marks: dict[int, tuple[_Told, _Told, int]] = {}
        """By rank, two rows and its newest step: the pace is counted from the first row; the second
        will be the next one to count from."""

    def take(self, row: MetricLine) -> None:
        """Take in what a process has told."""
        told = (row.at_seconds, row.step)
        first, second, newest = self._marks.get(row.rank, (told, told, row.step))
        if row.step < newest:  # it has begun again
            first = second = told
        elif told[0] - second[0] >= _SPAN_SECONDS:
            first, second = second, told
        self._marks[row.rank] = (first, second, row.step)

    def pace(self, row: MetricLine) -> float | None:
        """Steps a second up to this row; None: not known yet."""
        marks = self._marks.get(row.rank)
        at, step = marks[0] if marks is not None else (row.at_seconds, row.step)
        passed, steps = row.at_seconds - at, row.step - step
        return float(f"{steps / passed:.3g}") if passed > 0 and steps > 0 else None
