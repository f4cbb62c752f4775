"""Metrics for people: `rdzv metrics`, its picture, the table of `rdzv status RUN`, a line of the
board."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from features.metrics import FILE, TOPIC
from features.metrics.wire import MetricLine, decoded, rows_in, spread
from launcher.show.drawing import check_picture, new_figure, plain, save_picture
from launcher.show.status import RegistryClient, Shown, StateDir, find_run, show
from rendezvous.wire.errors import RdzvError, UsageError
from rendezvous.wire.run import RunStatus
from rendezvous.wire.words import printable, time_text

if TYPE_CHECKING:
    from rich.console import RenderableType

MOST_RANKS = 32
"""Up to so many processes each has a row; above, least, median and most of each value."""

_MOST_NAMES = 8
_OF_MANY = ("least", "median", "most")
_ONE_LINE_NAMES = 4
_MOST_DIAGRAMS = 12
_MOST_CURVES = 8

Curve = dict[int, float]
"""A value by step; of several rows of one step the last counts."""


class Status:
    """What `rdzv status RUN` shows of the metrics: see `launcher.show.status`."""

    async def live(self, client: RegistryClient, status: RunStatus) -> Shown:
        """The newest row of each process; nothing where the registry does not answer."""
        try:
            found = await client.topic(TOPIC, status.run)
        except RdzvError:
            return Shown({"metrics": []})
        values = {"metrics": [row.model_dump() for row in found.rows]}
        if not found.rows:
            return Shown(values)
        elapsed = found.elapsed_seconds
        draw = partial(draw_metrics, found.rows, status=status, elapsed_seconds=elapsed)
        return Shown(values, draw)

    def ended(self, state: StateDir) -> list[str]:
        """The command that shows them, where there are any."""
        return [f"metrics  rdzv metrics {state.run}"] if any(read_metrics(state)) else []


def read_metrics(state: StateDir) -> Iterator[MetricLine]:
    """Rows in the folder of the newest launch, oldest first; none when there are none."""
    try:
        with (state.path / FILE).open("rb") as file:
            yield from rows_in(file)
    except OSError:
        return


async def show_metrics(root: Path, run: str, *, as_json: bool, plot: Path | None) -> int:
    """Print, or draw, how the processes of a run have got on. Raises UsageError."""
    state = find_run(root, run)
    if as_json:
        for row in read_metrics(state):
            click.echo(row.model_dump_json())
        return 0
    rows = list(read_metrics(state))
    if not rows:
        raise UsageError(
            f"run '{run}' has not sent any metrics yet",
            hint="'rdzv docs metrics' shows how a program sends them",
        )
    if plot is not None:
        draw_curves(rows, f"run {run}", plot)
        click.echo(f"drawn: {plot}")
        return 0
    newest = _newest(rows)
    steps = [row.step for row in rows]
    ranks = f"{len(newest)} rank{'s' * (len(newest) > 1)}"
    seen = f"{len(rows)} row{'s' * (len(rows) > 1)} of {ranks}, steps {min(steps)} to {max(steps)}"
    head = f"run {run}   {seen}"
    from rich.console import Group
    from rich.text import Text

    show(Group(Text(head, style="bold"), draw_metrics(list(newest.values()))))
    return 0


def _newest(rows: Iterable[MetricLine]) -> dict[int, MetricLine]:
    """The newest row of each rank, with the newest of each value: not every row has all."""
    newest: dict[int, MetricLine] = {}
    for row in rows:
        before = newest[row.rank].values if row.rank in newest else {}
        newest[row.rank] = row.model_copy(update={"values": before | decoded(row.values)})
    return newest


def draw_metrics(
    rows: Sequence[MetricLine],
    *,
    status: RunStatus | None = None,
    elapsed_seconds: float | None = None,
) -> RenderableType:
    """Step and values of each process, or of many: least, median and most, and who is behind.

    Args:
        rows: The newest row of each process; at least one.
        status: Knows the nodes' names.
        elapsed_seconds: Of the run, for the age of each row; None once it is over.
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    rows = sorted(map(_with_values, rows), key=lambda row: row.rank)
    names, more = _names(rows)
    many = len(rows) > MOST_RANKS
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(f"{len(rows)} ranks" if many else "rank")
    for name in ("step", *names):
        table.add_column(name, no_wrap=True, justify="right")
    if elapsed_seconds is not None and not many:
        table.add_column("updated")
    for cells in _of_many(rows, names) if many else _of_each(rows, names, elapsed_seconds):
        table.add_row(*cells)
    lines = [Text(words, style="dim") for words in (_slowest(rows, _nodes(status)), more) if words]
    return Group(table, *lines)


def _with_values(row: MetricLine) -> MetricLine:
    """The row with the values that the process had, NaN included."""
    return row.model_copy(update={"values": decoded(row.values)})


def _names(rows: Iterable[MetricLine]) -> tuple[list[str], str]:
    """The names that are shown, in the order in which they were sent, and how many are not."""
    names = list(dict.fromkeys(name for row in rows for name in row.values))
    left = len(names) - _MOST_NAMES
    more = f"and {left} more values: rdzv metrics RUN --json" if left > 0 else ""
    return names[:_MOST_NAMES], more


def _of_each(
    rows: Iterable[MetricLine], names: Sequence[str], elapsed_seconds: float | None
) -> Iterator[list[str]]:
    for row in rows:
        values = ["" if name not in row.values else _number(row.values[name]) for name in names]
        cells = [str(row.rank), str(row.step), *values]
        if elapsed_seconds is not None:
            ago = time_text(elapsed_seconds - row.at_seconds)
            cells.append(f"{ago} ago" if ago else "now")
        yield cells


def _of_many(rows: Sequence[MetricLine], names: Sequence[str]) -> Iterator[list[str]]:
    columns = [[float(row.step) for row in rows]]
    columns += [[row.values[name] for row in rows if name in row.values] for name in names]
    for name, column in zip(_OF_MANY, zip(*map(spread, columns), strict=True), strict=True):
        yield [name, *map(_number, column)]


def _nodes(status: RunStatus | None) -> dict[int, str]:
    """The nodes by slot, as they are called elsewhere."""
    slots = status.slots if status is not None else []
    named = [slot for slot in slots if slot.node is not None]
    return {slot.slot: printable(f"node {slot.node}, {slot.hostname}", 300) for slot in named}


def _slowest(rows: Sequence[MetricLine], nodes: Mapping[int, str]) -> str:
    """Which process is behind the others, if one is."""
    slowest = min(rows, key=lambda row: (row.step, -row.at_seconds))
    median = statistics.median(row.step for row in rows)
    if slowest.step >= median:
        return ""
    node = nodes.get(slowest.slot, f"slot {slowest.slot}")
    return (
        f"slowest: rank {slowest.rank} ({node}) at step {slowest.step}, "
        f"the median is at {_number(median)}"
    )


def in_one_line(rows: Iterable[MetricLine]) -> str:
    """How far the program has come, for a line of the board."""
    rows = [_with_values(row) for row in rows]
    steps = [row.step for row in rows]
    low, high = min(steps), max(steps)
    where = f"step {high}" if low == high else f"steps {low} to {high}"
    line = f"{where}, sent by {len(rows)} rank{'s' * (len(rows) > 1)}"
    median = "median " if len(rows) > 1 else ""
    for name in _names(rows)[0][:_ONE_LINE_NAMES]:
        found = [row.values[name] for row in rows if name in row.values]
        line += f", {median}{name} {_number(spread(found)[1])}"
    return f"progress: {line}"


def _number(value: float) -> str:
    if not math.isfinite(value):
        return f"{value:g}"
    return f"{value:.15g}" if value == int(value) and abs(value) < 1e15 else f"{value:.4g}"


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
