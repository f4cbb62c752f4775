"""What `rdzv launch` does: prepare, take the state directory, launch, and say how it ended.

- launcher/worker: this process boots the registry, submits the other nodes' worker runs, and starts
  slot 0's node here.
- resumed: the same command with the same state directory, after a launcher that was killed before
  the go.
- symmetric: n equal containers run the same command with one group token (RDZV_TOKEN); rank 0
  boots the registry, the others join it.
- standing registry: RDZV_REGISTRY says where it is; no registry is booted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from launcher.run.environment import LaunchEnvironment
from launcher.run.preparation import Preparation, prepare
from launcher.settings import LaunchSettings
from launcher.show.first_line import first_line
from launcher.show.last_line import last_line
from rendezvous.wire.errors import error_from_code

_SIGNALS = 128


async def launch(
    settings: LaunchSettings,
    command: Sequence[str],
    environ: Mapping[str, str],
    *,
    group_token: str | None = None,
    registry: str | None = None,
    world: LaunchEnvironment | None = None,
) -> int:
    """Launch a run and see it to its end; returns the exit code. Raises RdzvError."""
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
        for line in prepared.preview():
            click.echo(line)
        return 0
    prepared.check()
    return await _launch(prepared, world)


async def _launch(prepared: Preparation, world: LaunchEnvironment) -> int:
    plan, settings = prepared.plan, prepared.settings
    state = world.state(prepared.root, plan.run)
    state.acquire()
    try:
        if state.record() is None:  # a former launch may have this one refused
            world.echo(first_line(plan, state, symmetric=prepared.symmetric))
        # After the line: the machine's modules, the client's and the board's take as long again.
        from launcher.run.shell import Launch

        board = world.board(json_events=settings.json_events)
        if settings.node_rank is not None and plan.site.loopback and plan.slots > 1:
            board.say(f"there is no RDZV_TOKEN: all {plan.slots} nodes run on this machine")
        work = Launch(prepared, state, board, world)
        outcome = await work.go()
    finally:
        state.release()
    if outcome.refused is not None:
        why = outcome.refused
        raise error_from_code(why.code, why.message, why.hint)
    result = work.result
    if result is None:
        return _SIGNALS + (outcome.signal or 0)
    code = result.exit_code
    if outcome.signal is not None and result.status == "cancelled":
        code = _SIGNALS + outcome.signal
    world.echo(last_line(plan.run, result, state, exit_code=code))
    return code
