"""`rdzv restart`: the programs of a run that was launched here are started again."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from launcher.state.find_run import find_run, registry_of
from launcher.state.state_dir import StateDir
from launcher.terminal import fold_lines, width_of
from rendezvous.wire.errors import Mismatch, RdzvError, RunOver, Unavailable
from rendezvous.wire.run import Phase, RunStatus


async def restart_run(root: Path, run: str, reason: str) -> int:
    """Have the programs of all nodes stopped and started again; says what happens.

    Raises RdzvError where nothing can be started again: none runs yet, or the run has ended.
    """
    state = find_run(root, run)
    result = state.result()
    if result is not None and not state.is_held():
        raise RdzvError(f"run '{run}' has ended, so its programs cannot start again")
    words = what_happens(await _restart(state, reason))
    click.echo(fold_lines(words, width_of(sys.stdout)))
    return 0


def what_happens(status: RunStatus) -> str:
    """What comes of a restart that was asked for, by how the run stands then.

    Raises RdzvError where no program has started yet.
    """
    run = f"run '{status.run}'"
    if status.phase in (Phase.RUNNING, Phase.FINISHED):
        return f"{run}: {status.reason}"
    if not status.ended:
        raise RdzvError(
            f"no program of {run} has started yet, so nothing restarts: {status.reason}"
        )
    return f"{run}: its programs are starting again: {status.reason}"


async def _restart(state: StateDir, reason: str) -> RunStatus:
    async with registry_of(state) as client:
        try:
            return await client.restart(state.run, reason)
        except (RunOver, Mismatch) as exc:
            raise RdzvError(exc.message, hint=exc.hint) from exc
        except Unavailable as exc:
            raise Unavailable(
                f"run '{state.run}' cannot be restarted because its registry does not answer: "
                f"{exc.message}",
                hint="it has probably ended; check with 'rdzv status'",
            ) from exc
