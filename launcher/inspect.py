"""`rdzv status`, `cancel` and `logs`: runs that were launched here, found by their state folder."""

from __future__ import annotations

import sys
from collections import deque
from pathlib import Path

import click
from rich.console import Console

from launcher.board import draw
from launcher.last_line import last_line
from launcher.state_dir import StateDir, known_runs
from rendezvous.client import RegistryClient
from rendezvous.errors import RdzvError, Unavailable, UsageError
from rendezvous.schema import RunStatus


def _find(root: Path, run: str) -> StateDir:
    state = StateDir(root, run)
    if state.keys() is None:
        known = ", ".join(other.run for other in known_runs(root)[:5]) or "none"
        raise UsageError(
            f"no run '{run}' was launched here (looked in {root})", hint=f"known are: {known}"
        )
    return state


def _client(state: StateDir) -> RegistryClient:
    record, keys = state.record(), state.keys()
    assert record is not None
    assert keys is not None
    return RegistryClient(record.registry_place(), keys.admin, request_seconds=3.0)


async def show_status(root: Path, run: str | None, *, as_json: bool) -> int:
    """Print the state of one run, or a line for each run launched here."""
    if run is None:
        known = known_runs(root)
        if not known:
            click.echo(f"no runs in {root}")
        for state in known:
            click.echo(f"{state.run:24} {await _one_line(state)}")
        return 0
    state = _find(root, run)
    result = state.result()
    if result is not None and not state.is_held():
        click.echo(result.model_dump_json(indent=1) if as_json else last_line(run, result, state))
        return 0
    status = await _ask(state)
    if as_json:
        click.echo(status.model_dump_json(indent=1))
    else:
        Console(file=sys.stdout, highlight=False).print(draw(status))
    return 0


async def _ask(state: StateDir) -> RunStatus:
    async with _client(state) as client:
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


async def cancel_run(root: Path, run: str, reason: str) -> int:
    """End a run; its launcher sees it, stops everything and ends."""
    state = _find(root, run)
    result = state.result()
    if result is not None and not state.is_held():
        click.echo(f"run '{run}' has ended: {result.message}")
        return 0
    async with _client(state) as client:
        try:
            status = await client.cancel(run, reason)
        except Unavailable as exc:
            raise Unavailable(
                f"run '{run}' cannot be cancelled, its registry does not answer: {exc.message}",
                hint="it has probably ended; see rdzv status",
            ) from exc
    click.echo(f"{status.reason}")
    return 0


def show_logs(root: Path, run: str, *, node: int | None, lines: int) -> None:
    """Print the last lines of each log file of a run on this machine."""
    state = _find(root, run)
    pattern = "*.log" if node is None else f"node-{node}.log"
    paths = sorted(state.logs.glob(pattern))
    if not paths:
        here = ", ".join(sorted(path.name for path in state.logs.glob("*.log"))) or "none"
        raise UsageError(
            f"there is no {pattern} in {state.logs}",
            hint=f"there are: {here}; a node on another machine keeps its log there",
        )
    for path in paths:
        click.echo(f"==> {path}")
        with path.open(errors="replace") as file:
            for line in deque(file, lines):
                click.echo(line, nl=False)
