"""`rdzv cancel`: a run that was launched here is ended, and what a killed launcher has left."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from launcher.cleanup.orphans import end_left
from launcher.schedulers.contract import SchedulerContext
from launcher.settings import LaunchSettings
from launcher.state.find_run import ask_registry, cancel_reason, find_run, was_killed
from launcher.state.state_dir import StateDir
from launcher.terminal import fold_lines, width_of
from rendezvous.talk.client import RegistryClient
from rendezvous.wire.errors import RdzvError


async def cancel_run(root: Path, run: str, reason: str, environ: Mapping[str, str]) -> int:
    """End a run: its launcher sees it, stops everything and ends.

    Where the launcher lives no longer, what it has left at its scheduler is ended from here.
    """
    state, reason = find_run(root, run), cancel_reason(reason)
    if state.is_held():
        _say(await _cancel(state, reason))
        return 0
    result = state.result()
    left = bool(state.ledger.left())
    if result is not None:
        how = result.message.replace(f"run '{run}' was", "it was", 1)
        _say(f"run '{run}' has already ended: {how}")
    elif not left and was_killed(state):
        _say(f"the launcher of run '{run}' was killed; nothing that it started is still running")
    elif not left:
        _say(await _cancel(state, reason))
    else:
        _say(f"the launcher of run '{run}' was killed")
        with contextlib.suppress(RdzvError):  # a standing registry may know the run
            _say(await _cancel(state, reason))
    return int(left and not await _end_left(state, environ))


def _say(words: str) -> None:
    click.echo(fold_lines(words, width_of(sys.stdout)))


async def _cancel(state: StateDir, reason: str) -> str:
    async def ask(client: RegistryClient) -> str:
        return (await client.cancel(state.run, reason)).reason

    return await ask_registry(state, "cannot be cancelled", ask)


async def _end_left(state: StateDir, environ: Mapping[str, str]) -> bool:
    """Whether nothing is left. Raises RunExists when the run is being launched again."""
    state.acquire()
    try:
        context = SchedulerContext(state.path / "submissions", environ)
        grace = LaunchSettings.model_fields["grace"].default
        return await end_left(state.ledger, context, _say, grace=grace)
    finally:
        state.release()
