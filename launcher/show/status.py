"""`rdzv status RUN`: how a run that was launched here stands, or how it ended."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from launcher.show.former import former_lines, former_values
from launcher.show.last_line import last_line
from launcher.show.metrics import read_metrics
from launcher.show.progress import draw_metrics, show
from launcher.show.run_list import FACTS_AT, facts, row_of
from launcher.show.slot_table import draw
from launcher.state.find_run import find_run, registry_of
from launcher.state.state_dir import StateDir
from launcher.terminal import fold_lines, width_of
from rendezvous.wire.errors import RdzvError, Unavailable
from rendezvous.wire.metrics import RunMetrics
from rendezvous.wire.run import RunStatus
from rendezvous.wire.words import printable

_WORDS_AT = len("rdzv: ")
_REFUSED_AT = len("refused: ")


async def show_status(root: Path, run: str, *, as_json: bool) -> int:
    """Print all that is known of one run."""
    state = find_run(root, run)
    result, is_over = state.result(), not state.is_held()
    if result is not None and is_over:
        row = await row_of(state, state.record())
        if as_json:
            shown = asdict(row) | result.model_dump(mode="json") | former_values(state)
            click.echo(json.dumps(shown, indent=1))
            return 0
        width = width_of(sys.stdout)
        lines = [*facts(row), f"files    {state.path}"]
        if any(True for _ in read_metrics(state)):
            lines.append(f"metrics  rdzv metrics {run}")
        click.echo(fold_lines("\n".join(lines), width, FACTS_AT))
        words = last_line(run, result, state, whole=True, apart=width is not None)
        click.echo(fold_lines(words, width, _WORDS_AT))
        _echo_former(state)
        return 0
    status = await _ask(state)
    print_status(status, await _ask_metrics(state), former_values(state), as_json=as_json)
    if not as_json:
        _echo_former(state)
    return 0


def print_status(
    status: RunStatus, metrics: RunMetrics | None, more: Mapping[str, Any], *, as_json: bool
) -> None:
    """Print how a run that lives stands; as JSON with `more` of it."""
    from rich.console import Console, Group

    rows = metrics.rows if metrics is not None else []
    if as_json:
        values = [row.model_dump() for row in rows]
        told = status.model_dump(mode="json") | {"metrics": values} | dict(more)
        click.echo(json.dumps(told, indent=1))
        return
    Console(file=sys.stdout, highlight=False).print(draw(status))
    for ask in status.refused:
        words = f"refused: {ask.words}, last {ask.last_seconds:.0f} s ago"
        click.echo(fold_lines(printable(words, 700), width_of(sys.stdout), _REFUSED_AT))
    if metrics is not None and rows:
        elapsed = metrics.elapsed_seconds
        show(Group("", draw_metrics(rows, status=status, elapsed_seconds=elapsed)))


def _echo_former(state: StateDir) -> None:
    """How the launches before this one ended, below it."""
    for line in former_lines(state):
        click.echo(fold_lines(line, width_of(sys.stdout), FACTS_AT))


async def _ask_metrics(state: StateDir) -> RunMetrics | None:
    """How the processes get on; None where the registry does not tell."""
    async with registry_of(state) as client:
        with contextlib.suppress(RdzvError):
            return await client.metrics(state.run)
    return None


async def _ask(state: StateDir) -> RunStatus:
    async with registry_of(state) as client:
        try:
            return await client.status(state.run)
        except Unavailable as exc:
            held = "its launcher runs" if state.is_held() else "its launcher has ended"
            raise Unavailable(
                f"the registry of run '{state.run}' does not answer, and {held}: {exc.message}",
                hint=f"to see what happened: rdzv replay {state.journal}",
            ) from exc
