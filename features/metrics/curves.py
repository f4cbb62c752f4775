"""The metrics of a run as a picture: one small diagram for each value, over the steps."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from features.metrics.wire import MetricLine, decoded
from launcher.show.drawing import check_picture, new_figure, plain, save_picture

_MOST_DIAGRAMS = 12
_MOST_CURVES = 8

Curve = dict[int, float]
"""A value by step; of several rows of one step the last counts."""


def draw_curves(rows: Iterable[MetricLine], title: str, path: Path) -> None:
    """Draw every value over the steps, a curve for each process.

    Of more than 8 processes: the median, and the range from the least to the most.

    Raises:
        UsageError: Another kind of file, no matplotlib, or the file cannot be written.
    """
    check_picture(path)
    curves = _curves(rows)
    names = list(curves)[:_MOST_DIAGRAMS]
    columns = max(1, min(2, len(names)))
    lines = max(1, -(-len(names) // columns))
    figure = new_figure(5.5 * columns, 3.2 * lines + 0.4)
    axes = figure.subplots(lines, columns, squeeze=False)
    places = [place for line in axes for place in line]
    for place, name in zip(places, names, strict=False):
        _draw(place, name, curves[name])
    for place in places[len(names) :]:
        place.set_axis_off()
    figure.suptitle(plain(title))
    save_picture(figure, path)


def _curves(rows: Iterable[MetricLine]) -> dict[str, dict[int, Curve]]:
    """By name and rank; what is not finite is a gap."""
    curves: dict[str, dict[int, Curve]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        for name, value in decoded(row.values).items():
            curves[name][row.rank][row.step] = value if math.isfinite(value) else math.nan
    return curves


def _draw(axes: Any, name: str, curves: Mapping[int, Curve]) -> None:
    if len(curves) > _MOST_CURVES:
        _draw_range(axes, curves)
    else:
        for rank, curve in sorted(curves.items()):
            steps = sorted(curve)
            mark = "." if len(steps) < 30 else ""
            axes.plot(steps, [curve[s] for s in steps], marker=mark, lw=1.2, label=f"rank {rank}")
    if len(curves) > 1:
        axes.legend(fontsize=7)
    axes.set_title(plain(name), fontsize=10)
    axes.set_xlabel("step", fontsize=8)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.3)


def _draw_range(axes: Any, curves: Mapping[int, Curve]) -> None:
    by_step: dict[int, list[float]] = defaultdict(list)
    for curve in curves.values():
        for step, value in curve.items():
            by_step[step] += [] if math.isnan(value) else [value]
    steps = sorted(by_step)
    values: Sequence[list[float]] = [by_step[step] or [math.nan] for step in steps]
    axes.fill_between(
        steps, [min(v) for v in values], [max(v) for v in values], alpha=0.25, label="all ranks"
    )
    label = f"median of {len(curves)} ranks"
    axes.plot(steps, [statistics.median(v) for v in values], lw=1.2, label=label)
