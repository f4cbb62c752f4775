"""`rdzv status` and `cancel`: runs that were launched here, found by their state folder."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import click

from launcher.board import draw
from launcher.last_line import last_line
from launcher.progress import draw_metrics, show
from launcher.schedulers import SchedulerContext
from launcher.settings import LaunchSettings
from launcher.state_dir import StateDir, known_runs
from rendezvous.client import RegistryClient
from rendezvous.errors import NotFound, RdzvError, Unavailable, UsageError
from rendezvous.schema import RunMetrics, RunStatus


def find_run(root: Path, run: str) -> StateDir:
    """The state of a run that was launched here; raises UsageError."""
    state = StateDir(root, run)
    if state.keys() is None:
        known = ", ".join(other.run for other in known_runs(root)[:5]) or "none"
        raise UsageError(
            f"no run '{run}' was launched here (looked in {root})", hint=f"known are: {known}"
        )
    return state


@contextlib.asynccontextmanager
async def registry_of(state: StateDir) -> AsyncIterator[RegistryClient]:
    """The registry of a run that was launched here; its launch is on record.

    Where that launch was killed, its registry is gone, and whoever has the port now is a stranger.
    """
    record, keys = state.record(), state.keys()
    assert record is not None
    assert keys is not None
    async with RegistryClient(record.registry_place(), keys.admin, request_seconds=3.0) as client:
        try:
            yield client
        except (Unavailable, NotFound) as exc:
            if not _was_killed_with_its_registry(state):
                raise
            end = f"; what it has left is ended by: rdzv cancel {state.run}"
            raise Unavailable(
                f"the launcher of run '{state.run}' was killed, and its registry answers no more",
                hint=f"what happened is in its journal: rdzv replay {state.journal}"
                + (end if state.ledger.left() else ""),
            ) from exc


def _was_killed_with_its_registry(state: StateDir) -> bool:
    record = state.record()
    owned = record is not None and record.owns_registry
    return owned and not state.is_held() and state.result() is None


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


async def cancel_run(root: Path, run: str, reason: str, environ: Mapping[str, str]) -> int:
    """End a run: its launcher sees it, stops everything and ends.

    Where the launcher lives no longer, what it has left at its scheduler is ended from here.
    """
    state = find_run(root, run)
    if state.is_held():
        click.echo(await _cancel(state, reason))
        return 0
    result = state.result()
    left = bool(state.ledger.left())
    if result is not None:
        click.echo(f"run '{run}' has ended: {result.message}")
    elif not left and _was_killed_with_its_registry(state):
        click.echo(f"the launcher of run '{run}' was killed; nothing that it started is left")
    elif not left:
        click.echo(await _cancel(state, reason))
    else:
        click.echo(f"the launcher of run '{run}' was killed")
        with contextlib.suppress(RdzvError):  # a standing registry may know the run
            click.echo(await _cancel(state, reason))
    return int(left and not await _end_left(state, environ))


async def _cancel(state: StateDir, reason: str) -> str:
    async with registry_of(state) as client:
        try:
            return (await client.cancel(state.run, reason)).reason
        except Unavailable as exc:
            raise Unavailable(
                f"run '{state.run}' cannot be cancelled, its registry does not answer: "
                f"{exc.message}",
                hint="it has probably ended; see rdzv status",
            ) from exc


async def _end_left(state: StateDir, environ: Mapping[str, str]) -> bool:
    """Whether nothing is left. Raises RunExists when the run is being launched again."""
    from launcher.run.shell import end_left

    state.acquire()
    try:
        context = SchedulerContext(state.path / "submissions", environ)
        grace = LaunchSettings.model_fields["grace"].default
        return await end_left(state.ledger, context, click.echo, grace=grace)
    finally:
        state.release()
