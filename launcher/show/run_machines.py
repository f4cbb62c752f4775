"""`rdzv status RUN --machines`: what is known of the machines of a run's nodes."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from launcher.show.machines import WORDS_AT, machine_lines
from launcher.state.find_run import find_run, registry_of
from launcher.state.state_dir import MACHINES, StateDir
from launcher.terminal import fold_lines, width_of
from rendezvous.wire.errors import RdzvError, UsageError
from rendezvous.wire.machine import RunMachines


async def show_machines(root: Path, run: str, *, as_json: bool) -> int:
    """Print what each node's machine is, and how it stands. Raises RdzvError."""
    found = await machines_of(find_run(root, run))
    if as_json:
        click.echo(found.model_dump_json(indent=1))
        return 0
    for one in found.machines:
        for line in machine_lines(one):
            click.echo(fold_lines(line, width_of(sys.stdout), WORDS_AT))
    if not found.machines:
        click.echo(f"no node of run '{run}' has joined")
    return 0


async def machines_of(state: StateDir) -> RunMachines:
    """Of the registry, or what the launcher has kept of it. Raises RdzvError."""
    from rendezvous.talk.machines import run_machines  # a launch comes by here, and needs none

    try:
        async with registry_of(state) as client:
            return await run_machines(client, state.run)
    except RdzvError as exc:
        if (kept := state.read(MACHINES, RunMachines)) is not None:
            return kept
        why = exc.message
    raise UsageError(
        f"nothing is known of the machines of run '{state.run}': {why}",
        hint="the launcher keeps how they stood last when the run ends",
    )
