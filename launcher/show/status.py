"""`rdzv status`: how a run that was launched here stands, or how it ended."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

import click

from launcher.show.board import draw
from launcher.show.last_line import last_line
from launcher.show.progress import draw_metrics, show
from launcher.state.find_run import find_run, registry_of
from launcher.state.state_dir import StateDir, known_runs
from rendezvous.wire.errors import RdzvError, Unavailable
from rendezvous.wire.metrics import RunMetrics
from rendezvous.wire.run import RunStatus


async def show_status(root: Path, run: str | None, *, as_json: bool) -> int:
    """Print the state of one run, or a line for each run launched here."""
    if run is None:
        known = known_runs(root)
        if not known:
            click.echo(f"no runs in {root}")
        for state in known:
            click.echo(f"{state.run:24} {await _one_line(state)}")
        return 0
    state = find_run(root, run)
    result = state.result()
    if result is not None and not state.is_held():
        click.echo(result.model_dump_json(indent=1) if as_json else last_line(run, result, state))
        return 0
    from rich.console import Console, Group

    status = await _ask(state)
    metrics = await _ask_metrics(state)
    rows = metrics.rows if metrics is not None else []
    if as_json:
        shown = [row.model_dump() for row in rows]
        click.echo(json.dumps({**status.model_dump(mode="json"), "metrics": shown}, indent=1))
        return 0
    Console(file=sys.stdout, highlight=False).print(draw(status))
    if metrics is not None and rows:
        elapsed = metrics.elapsed_seconds
        show(Group("", draw_metrics(rows, status=status, elapsed_seconds=elapsed)))
    return 0


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
                hint=f"what happened is in its journal: rdzv replay {state.journal}",
            ) from exc


async def _one_line(state: StateDir) -> str:
    if not state.is_held():
        result = state.result()
        if result is None:
            return "its launcher was killed"
        return f"{result.status}: {result.message}"
    try:
        status = await _ask(state)
    except RdzvError as exc:
        return exc.message
    return f"{status.phase}: {status.reason}"
