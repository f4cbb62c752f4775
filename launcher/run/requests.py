"""What a person asks of a run that goes on: that its programs start again, that a node leaves."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import click

from launcher.state.find_run import ask_registry, find_run
from launcher.state.state_dir import StateDir
from launcher.terminal import fold_lines, width_of
from rendezvous.talk.client import RegistryClient
from rendezvous.wire.errors import Mismatch, NotFound, RdzvError, RunOver
from rendezvous.wire.run import Phase, RunStatus
from rendezvous.wire.words import no_node_words


async def restart_run(root: Path, run: str, reason: str) -> int:
    """Have the programs of all nodes stopped and started again; says what happens.

    Raises RdzvError where nothing can be started again: none runs yet, or the run has ended.
    """

    first: RunStatus | None = None

    async def ask(client: RegistryClient) -> RunStatus:
        """A restart whose answer was lost is not asked for twice, once it has been done."""
        nonlocal first
        now = await client.status(run)
        first = first or now
        if (first.epoch, first.phase) != (now.epoch, now.phase):
            return now
        return await client.restart(run, reason)

    state = _going_on(root, run, "its programs cannot start again")
    return _say(after_restart(await _asked(state, "cannot be restarted", ask)))


async def drain_node(root: Path, run: str, node: int, seconds: float, reason: str) -> int:
    """Have a node leave, after so long; says what happens.

    Raises RdzvError where no program runs that could be told.
    """

    told = False

    async def ask(client: RegistryClient) -> RunStatus:
        nonlocal told
        status = await client.status(run)
        slot = slot_of(status, node)
        if status.on_node_loss == "fail" and status.phase is Phase.RUNNING and not told:
            told = True
            _say(
                f"no node may take the place of node {node} (--on-node-loss fail), so run "
                f"'{status.run}' will end"
            )
        return await client.drain(run, slot, seconds, reason)

    state = _going_on(root, run, "its nodes have left")
    return _say(after_drain(await _asked(state, "cannot drain a node", ask)))


def _going_on(root: Path, run: str, so: str) -> StateDir:
    state = find_run(root, run)
    if state.result() is not None and not state.is_held():
        raise RdzvError(f"run '{run}' has ended, so {so}")
    return state


def _say(words: str) -> int:
    click.echo(fold_lines(words, width_of(sys.stdout)))
    return 0


def slot_of(status: RunStatus, node: int) -> int:
    """The slot of this node; raises RdzvError where there is none."""
    found = next((slot.slot for slot in status.slots if slot.node == node), None)
    if found is None:
        count = sum(slot.node is not None for slot in status.slots)
        raise RdzvError(no_node_words(status.run, node, count))
    return found


def after_restart(status: RunStatus) -> str:
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


def after_drain(status: RunStatus) -> str:
    """What comes of a node that is to leave; raises RdzvError where no program runs."""
    if status.phase in (Phase.RUNNING, Phase.FINISHED):
        return f"run '{status.run}': {status.reason}"
    hint = "end its worker run instead: a node that is lost before the start is replaced"
    if status.ended:  # between two epochs no other node takes its place
        hint = "try again once the programs run"
    words = f"run '{status.run}' is {status.phase}, and only a node whose program runs can be"
    raise RdzvError(f"{words} drained", hint=hint)


async def _asked(
    state: StateDir, cannot: str, ask: Callable[[RegistryClient], Awaitable[RunStatus]]
) -> RunStatus:
    try:
        return await ask_registry(state, cannot, ask)
    except (RunOver, Mismatch, NotFound) as exc:
        raise RdzvError(exc.message, hint=exc.hint) from exc
