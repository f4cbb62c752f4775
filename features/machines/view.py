"""`rdzv status RUN --machines`: what is known of the machines of a run's nodes."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from features.machines import FILE, TOPIC
from features.machines.facts import TEXT_AT, machine_lines
from features.machines.wire import RunMachines
from launcher.show.status import StateDir, find_run, fold_lines, registry_of, width_of
from rendezvous.wire.errors import RdzvError, UsageError


async def show_machines(root: Path, run: str, *, as_json: bool) -> int:
    """Print what each node's machine is, and how busy it is. Raises RdzvError."""
    found = await machines_of(find_run(root, run))
    if as_json:
        click.echo(found.model_dump_json(indent=1))
        return 0
    for one in found.machines:
        for line in machine_lines(one):
            click.echo(fold_lines(line, width_of(sys.stdout), TEXT_AT))
    if not found.machines:
        click.echo(f"no node of run '{run}' has joined")
    return 0


async def machines_of(state: StateDir) -> RunMachines:
    """Ask the registry, or else read what the launcher has written. Raises RdzvError."""
    try:
        async with registry_of(state) as client:
            found: RunMachines = await client.topic(TOPIC, state.run)
            return found
    except RdzvError as exc:
        if (kept := state.read(FILE, RunMachines)) is not None:
            return kept
        why = exc.message
    raise UsageError(
        f"nothing is known of the machines of run '{state.run}': {why}",
        hint="the launcher saves their last state when the run ends",
    )
