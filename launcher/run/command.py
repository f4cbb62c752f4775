"""What `rdzv launch` does: prepare, take the state directory, launch, and say how it ended.

- launcher/worker: this process boots the registry, submits the other nodes' worker runs, and starts
  slot 0's node here.
- resumed: the same command with the same state directory, after a launcher that was killed before
  the go.
- symmetric: n equal containers run the same command with one group token (RDZV_TOKEN); node 0
  boots the registry, the others join it.
- standing registry: RDZV_REGISTRY says where it is; no registry is booted.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import click

from launcher.options import given_as
from launcher.plan.named_hosts import working_folder
from launcher.plan.plan import Plan
from launcher.prepare.environment import LaunchEnvironment
from launcher.prepare.preparation import Preparation, prepare
from launcher.run.page_child import page_beside
from launcher.settings import LaunchSettings
from launcher.show.board import Board, JsonBoard
from launcher.show.former import launched_before
from launcher.show.last_line import last_line
from launcher.state.prune import prune_after_launch
from launcher.state.state_dir import StateDir
from launcher.terminal import width_of
from rendezvous.wire.errors import SIGNALS, ArmingFailed
from rendezvous.wire.words import all_of
from worker.contracts import needs_of
from worker.counts import check_processes
from worker.machine.cpus import count_cpus
from worker.preflight.needs import refuse_program
from worker.preflight.own_environment import complete_path

_PARENT_SECONDS = 0.5
_HINT = "Nothing was started. The first node runs here, in {}."
_HINT_OTHERS = " If only the other machines have it, add --no-local-node."


def launch(
    settings: LaunchSettings,
    command: Sequence[str],
    environ: Mapping[str, str],
    *,
    group_token: str | None = None,
    registry: str | None = None,
    world: LaunchEnvironment | None = None,
) -> Coroutine[Any, Any, int]:
    """Prepare a launch, and say what is launched.

    What comes back sees it to its end, and gives the exit code. Until it is awaited there need be
    no event loop, and there should not: what can be forked is.

    Raises:
        RdzvError: It is refused.
    """
    world = world or LaunchEnvironment()
    prepared = prepare(
        settings,
        command,
        environ,
        group_token=group_token,
        registry=registry,
        make=world.scheduler,
    )
    for words in prepared.notes:
        world.echo(f"rdzv: {words}")
    if settings.dry_run:
        for line in [*prepared.preview()]:
            click.echo(line)
        return _nothing()
    prepared.check()
    if prepared.starts_here or prepared.symmetric:
        _check_count(settings, prepared)
    if prepared.starts_here:
        _check_program(prepared, environ, world)
    return _begin(prepared, world)


def _check_count(given: LaunchSettings, prepared: Preparation) -> None:
    """Refuse what the node of this machine would refuse, and say where the number is from.

    Raises:
        UsageError: It cannot be a number of processes of this machine.
    """
    if not prepared.settings.local_node:
        return
    count = prepared.settings.processes.of(0)
    name = "nproc_per_node"
    if of_list := name not in given.model_fields_set:
        name = "hostlist" if given.hostlist else "hostfile"
    if isinstance(count, int):
        source = given_as(LaunchSettings, name)
        check_processes(count, count_cpus(), source, of_list=of_list)


def _check_program(
    prepared: Preparation, environ: Mapping[str, str], world: LaunchEnvironment
) -> None:
    """Look for what starts COMMAND, as the node of this machine will.

    Raises:
        ArmingFailed: It is not here.
        WrongCommand: COMMAND is a program, and torchrun starts scripts.
    """
    plan = prepared.plan
    needs = needs_of(plan.settings.framework, plan.command, leads=True)
    completed = complete_path(needs, environ)
    refuse_program(plan.command, plan.settings.framework, completed.environ)
    if missing := world.missing(plan, completed.environ):
        alone = prepared.here is prepared.others
        hint = _HINT.format(working_folder())
        raise ArmingFailed(missing, hint=hint if alone else hint + _HINT_OTHERS)
    if completed.added:
        world.echo(f"rdzv: {completed.sentence}")


async def _nothing() -> int:
    return 0


def _begin(prepared: Preparation, world: LaunchEnvironment) -> Coroutine[Any, Any, int]:
    plan, settings = prepared.plan, prepared.settings
    state = world.state(prepared.root, plan.run)
    board = world.board(
        plan.slots, state.logs, json_events=settings.json_events, verbose=settings.verbose
    )
    of_several = settings.node_rank is not None and not prepared.symmetric
    if of_several and plan.site.loopback and plan.slots > 1:
        board.say(f"RDZV_TOKEN is not set: {all_of(plan.slots)} run on this machine")
    state.acquire()
    try:
        if isinstance(board, JsonBoard):
            board.begin(plan.run, state.path)
        if _nothing_refuses(prepared, state, world):
            world.echo(_first_line(plan, state))
            if before := launched_before(state):
                world.echo(before)
        world.fork("_registry", int(prepared.standing is None))
        if nodes := prepared.nodes_here:
            from worker.agent import load_parts  # once, for all of the forks

            load_parts()
            world.fork("worker", nodes)
    except BaseException:
        state.release()
        raise
    return _launch(prepared, state, board, world)


async def _launch(
    prepared: Preparation, state: StateDir, board: Board, world: LaunchEnvironment
) -> int:
    # Not before the first line: the machine's modules and the client's take as long again.
    from launcher.launch.launch import Launch

    plan, parent = prepared.plan, prepared.settings.parent
    watch = asyncio.create_task(_end_with(parent)) if parent is not None else None
    try:
        async with page_beside(prepared.settings, state, world.echo):
            outcome = await Launch(prepared, state, board, world).go()
    finally:
        state.release()
        if watch is not None:
            watch.cancel()
    result = outcome.result
    if result is None:
        return SIGNALS + (outcome.signal or 0)
    world.echo(last_line(plan.run, result, state, width=width_of(sys.stderr)))
    prune_after_launch(prepared.root)
    return result.exit_code


async def _end_with(parent: int) -> None:
    """End the launch in order when the process that started it has ended.

    The kernel's own signal for this is one for each of that process's threads, as they end one
    after another: and a second signal ends a launch without its grace.
    """
    while os.getppid() == parent:  # noqa: ASYNC110 (another process sets no event)
        await asyncio.sleep(_PARENT_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


def _nothing_refuses(prepared: Preparation, state: StateDir, world: LaunchEnvironment) -> bool:
    """Whether what stands in the way of a launch later than this would be unusual: a former launch
    that has not ended, a port that has to be free, no address. A refusal is its error, and no other
    line."""
    if prepared.symmetric or (state.record() is not None and state.result() is None):
        return False
    known = prepared.plan.site.loopback or prepared.settings.registry_address
    return bool(known or prepared.standing or world.addresses())


def _first_line(plan: Plan, state: StateDir) -> str:
    """Return the first line on standard error, shown once nothing asked for is refused."""
    nodes = f"{plan.nnodes} node{'s' * (plan.slots > 1)}"
    who = f"with --scheduler {plan.settings.starter}"
    return f"rdzv: launching run '{plan.run}' on {nodes} {who}; its files are in {state.path}"
