"""Runs of a standing registry that were launched on another machine: shown, read and cancelled.

All is asked of the registry, with the credential of its operator or of the team whose run it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from launcher.run.elsewhere import Elsewhere
from launcher.show.logs import show_logs
from launcher.show.run_list import Row, table_lines
from launcher.show.status import live_parts, print_status
from launcher.state.find_run import cancel_reason
from launcher.terminal import fold_lines, width_of
from rendezvous.talk.client import RegistryClient
from rendezvous.talk.join_string import RegistryString, ViewString
from rendezvous.wire.errors import NotFound, UsageError
from rendezvous.wire.run import Phase, RunStatus


@contextlib.asynccontextmanager
async def client_of(registry: RegistryString, run: str = "") -> AsyncIterator[RegistryClient]:
    """The registry, at the replica that has a run first; of an unknown one more is said."""
    place = registry.place.ordered_for(run)
    async with RegistryClient(place, registry.credential) as client:
        try:
            yield client
        except NotFound as exc:
            lists = f"'rdzv status --url {client.base}' lists the runs there"
            raise NotFound(
                f"{exc.message}, and it was not launched on this machine", hint=lists
            ) from exc


async def list_runs(registry: RegistryString, *, as_json: bool) -> int:
    """Print the runs of the registry: all, or those of the team."""
    async with client_of(registry) as client:
        found = await client.runs()
    if as_json:
        click.echo(json.dumps([one.model_dump(mode="json") for one in found], indent=1))
        return 0
    if not found:
        click.echo("no runs")
        return 0
    for line in table_lines([_row(one) for one in found], width_of(sys.stdout)):
        click.echo(line)
    return 0


def _row(status: RunStatus) -> Row:
    result, most = status.result, status.max_nodes
    return Row(
        status.run,
        result.status if result else str(status.phase),
        result.exit_code if result else None,
        "",
        str(most) if status.min_nodes == most else f"{status.min_nodes}:{most}",
        0.0,
        status.elapsed_seconds,
        [],
        result.message if result else status.reason,
    )


async def show_run(registry: RegistryString, run: str, *, as_json: bool) -> int:
    """Print all that the registry knows of one run."""
    async with client_of(registry, run) as client:
        status = await client.status(run)
        parts = await live_parts(client, status)
    print_status(status, parts, {}, as_json=as_json)
    return 0


async def cancel(registry: RegistryString, run: str, reason: str) -> int:
    """End a run: its launcher sees it, stops everything and ends."""
    async with client_of(registry, run) as client:
        said = (await client.cancel(run, cancel_reason(reason))).reason
    click.echo(fold_lines(said, width_of(sys.stdout)))
    return 0


async def read_logs(
    registry: RegistryString, run: str, environ: Mapping[str, str], /, **asked: Any
) -> int:
    """Print what the programs of a run print, as their nodes send it; see `show_logs`."""
    place = registry.place.ordered_for(run)

    async with client_of(registry, run) as client:
        status = await client.status(run)
    if status.phase is Phase.FINISHED and status.result is not None:
        how = status.result.message
        raise UsageError(
            f"run '{run}' has ended, and no node sends its output any more: {how}",
            hint=f"where it was launched: rdzv logs {run}",
        )
    shown = registry.credential
    view = ViewString(place, run, status.launch_id, shown, shown)
    with tempfile.TemporaryDirectory(prefix="rdzv-logs-") as folder:
        there = Elsewhere(Path(folder), view, place)
        there.state.write("status.json", status.model_dump_json().encode())
        following = asyncio.create_task(there.follow(stays=True))
        try:
            return await show_logs(
                there.state, environ, connect=partial(client_of, registry, run), **asked
            )
        finally:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following
