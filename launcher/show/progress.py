"""How far the program's processes have come, for people: as a table, or in one line."""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rendezvous.wire.metrics import MetricLine, decoded
from rendezvous.wire.run import RunStatus
from rendezvous.wire.words import printable, time_text

if TYPE_CHECKING:
    from rich.console import RenderableType

MOST_RANKS = 32
"""Up to so many processes each has a row; above, least, median and most of each value."""

_MOST_NAMES = 8
_WIDTH_OF_A_FILE = 200
_ONE_LINE_NAMES = 4


def show(drawn: RenderableType) -> None:
    """Print on standard output; where that is no terminal, in lines as long as they have to be."""
    from rich.console import Console

    terminal = sys.stdout.isatty()
    width = None if terminal else _WIDTH_OF_A_FILE
    Console(file=sys.stdout, highlight=False, width=width).print(drawn)


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
        elapsed_seconds: Of the run, for how long ago it was told; None where it is over.
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    rows = sorted(map(_as_told, rows), key=lambda row: row.rank)
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


def _as_told(row: MetricLine) -> MetricLine:
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
    ordered = [sorted(column, key=_nan_last) for column in columns]
    yield ["least", *(_number(column[0]) for column in ordered)]
    yield ["median", *(_number(_median(column)) for column in ordered)]
    yield ["most", *(_number(column[-1]) for column in ordered)]


def _nan_last(value: float) -> tuple[bool, float]:
    return math.isnan(value), value


def _median(values: Iterable[float]) -> float:
    """The middle one; NaN counts as the most."""
    ordered = sorted(values, key=_nan_last)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return low if low == high else (low + high) / 2


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
    rows = [_as_told(row) for row in rows]
    steps = [row.step for row in rows]
    low, high = min(steps), max(steps)
    where = f"step {high}" if low == high else f"steps {low} to {high}"
    words = f"{where}, sent by {len(rows)} rank{'s' * (len(rows) > 1)}"
    median = "median " if len(rows) > 1 else ""
    for name in _names(rows)[0][:_ONE_LINE_NAMES]:
        found = [row.values[name] for row in rows if name in row.values]
        words += f", {median}{name} {_number(_median(found))}"
    return f"progress: {words}"


def _number(value: float) -> str:
    if not math.isfinite(value):
        return f"{value:g}"
    return f"{value:.15g}" if value == int(value) and abs(value) < 1e15 else f"{value:.4g}"
