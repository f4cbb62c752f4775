"""`rdzv metrics`: how the program's processes get on, of what the launcher has kept."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
from pydantic import ValidationError

from launcher.show.curves import draw_curves
from launcher.show.progress import draw_metrics, show
from launcher.state.find_run import find_run
from launcher.state.state_dir import StateDir
from rendezvous.wire.errors import UsageError
from rendezvous.wire.metrics import MetricLine, decoded


def read_metrics(state: StateDir) -> Iterator[MetricLine]:
    """The kept rows of the newest launch, oldest first; none when there are none."""
    try:
        with state.metrics.open("rb") as file:
            for line in file:
                with contextlib.suppress(ValidationError):  # cut off by a kill or a full disk
                    yield MetricLine.model_validate_json(line)
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
