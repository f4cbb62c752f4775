"""What `rdzv launch` does before and after the launch itself: which start it is, and the last line.

- launcher/worker: this process boots the registry, submits the other nodes' worker runs, and starts
  slot 0's node here.
- resumed: the same command with the same state directory, after a launcher that was killed before
  the go.
- symmetric: n equal containers run the same command with one group token (RDZV_TOKEN); rank 0
  boots the registry, the others join it.
- standing registry: RDZV_REGISTRY says where it is; no registry is booted.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from launcher.board import Board, make_board
from launcher.commands import check_start, command_lines
from launcher.ending import end_left
from launcher.environment import planned, planned_lines, wishes_of
from launcher.last_line import last_line
from launcher.launch import Launch, run_spec
from launcher.named_hosts import on_named_hosts, working_folder
from launcher.plan import HIDDEN, Here, Plan, check_run_id, make_plan, parse_nnodes, without_effect
from launcher.preview import preview
from launcher.registry import RegistryProcess, check_file_limit, listen, own_addresses, write_config
from launcher.schedulers import (
    Entry,
    Scheduler,
    SchedulerContext,
    scheduler_entry,
    specs_folder,
)
from launcher.settings import LaunchSettings
from launcher.state_dir import LaunchRecord, StateDir
from launcher.symmetric import group_launch_id
from rendezvous.client import RegistryClient
from rendezvous.errors import (
    NotFound,
    RdzvError,
    RegistryError,
    RunCancelled,
    RunExists,
    UsageError,
)
from rendezvous.schema import NodeState, Phase, Result, RunSpec, RunStatus, SlotStatus
from rendezvous.security import (
    Credential,
    RegistryPlace,
    RegistryString,
    RunKeys,
    parse_group_token,
    registry_credential,
)
from worker.contracts import Choice, check_command
from worker.settings import settle_framework, state_home

_NEAR = ("127.0.0.1", "::1")
_END_OLD_SECONDS = 15.0
_SILENT_SECONDS = 5.0
_OLD_REGISTRY_SECONDS = 10.0
_OTHER = "its COMMAND or options were others"


@dataclass(frozen=True, slots=True)
class _Ground:
    """What a launch stands on: its registry, its keys, and where both are."""

    registry: RegistryProcess | None
    place: RegistryPlace
    near: RegistryPlace
    keys: RunKeys
    creator: Credential


async def launch(
    settings: LaunchSettings,
    command: Sequence[str],
    environ: Mapping[str, str],
    *,
    group_token: str | None = None,
    registry: str | None = None,
) -> int:
    """Launch a run and see it to its end; returns the exit code. Raises RdzvError."""
    settings, choice = settle_framework(settings, command)
    check_command(command, settings.framework)
    settings, hosts = on_named_hosts(settings)
    parse_nnodes(settings.nnodes, command)
    run = check_run_id(settings.rdzv_id or f"run-{secrets.token_hex(4)}")
    entry = scheduler_entry(settings.starter)
    state = StateDir(settings.state_dir or state_home(environ), run)
    logs = settings.log_dir or state.logs
    folder = state.path / "submissions"
    context = SchedulerContext(folder, environ, logs, quiet_stdout=settings.json_events)
    scheduler = entry.make(context)
    alone = scheduler.loopback and group_token is None
    draft = _plan(settings, command, environ, run, entry, logs, hosts, loopback=alone)
    local = scheduler if scheduler.name == "local" else _local(context)
    starters = [local if settings.local_node else scheduler, scheduler]
    variables = planned(draft)
    check_start(draft)
    for words in (*_chosen(choice), *without_effect(draft)):
        click.echo(f"rdzv: {words}", err=True)
    if settings.dry_run:
        lines = (*command_lines(draft), *planned_lines(variables))
        for text in (*preview(draft, starters), *lines):
            click.echo(text)
        return 0
    for slot in sorted({0, 1, draft.slots - 1} & set(range(draft.slots))):
        starters[slot > 0].prepare(draft.worker_run(slot, 1), HIDDEN)
    check_file_limit(draft.slots if registry is None else 0)
    board = make_board(json_events=settings.json_events)
    if group_token is None and settings.node_rank is not None and alone and draft.slots > 1:
        board.say(f"there is no RDZV_TOKEN: all {draft.slots} nodes run on this machine")
    state.acquire()
    try:
        ground = await _ground(settings, state, draft, board, group_token, registry, context)
        plan = replace(draft, launch_id=ground.keys.launch_id, master_addr=_first(ground.place))
        work = Launch(
            plan,
            ground.keys,
            ground.place,
            ground.creator,
            scheduler=None if group_token else scheduler,
            local=local if settings.local_node else None,
            state=state,
            board=board,
            registry=ground.registry,
            near=ground.near,
        )
        result = await _see_through(work, state, board)
    finally:
        state.release()
    click.echo(last_line(run, result, state), err=True)
    if work.interrupted is not None and result.status == "cancelled":
        return 128 + work.interrupted
    return result.exit_code


def _chosen(choice: Choice | None) -> list[str]:
    """What a COMMAND without --framework was taken for, where that is not the default."""
    if choice is None or not choice.launcher:
        return []
    return [f"COMMAND begins with '{choice.launcher}': using --framework {choice.framework}"]


async def _see_through(work: Launch, state: StateDir, board: Board) -> Result:
    """Do the launch; its end is written down, also when it is the launcher's own failure."""
    try:
        result = await work.go()
    except RdzvError as exc:
        cancelled = isinstance(exc, RunCancelled)
        result = Result(
            status="cancelled" if cancelled else "failed",
            exit_code=int(exc.exit_code),
            code=exc.code,
            message=exc.message,
            hint=exc.hint,
        )
    try:
        state.write("result.json", result.model_dump_json(indent=1).encode())
    except UsageError as exc:
        board.say(exc.message)
    return result


def _local(context: SchedulerContext) -> Scheduler:
    return scheduler_entry("local").make(context)


def _first(place: RegistryPlace) -> str:
    return place.addresses[0] if place.addresses else ""


# --- the plan ---------------------------------------------------------------------------------


def _plan(
    settings: LaunchSettings,
    command: Sequence[str],
    environ: Mapping[str, str],
    run: str,
    entry: Entry,
    logs: Path,
    hosts: Sequence[str],
    *,
    loopback: bool,
) -> Plan:
    """The plan, for a launch id that is not known yet."""
    spec = settings.worker_spec or specs_folder() / entry.spec
    own = specs_folder() / scheduler_entry("local").spec
    here = Here(str(own), read_spec(own), str(logs))
    return make_plan(
        settings,
        command,
        environ,
        run=run,
        launch_id="to-be-made",
        source=str(spec),
        template=read_spec(spec),
        loopback=loopback,
        here=here,
        hosts=hosts,
        cwd=working_folder(),
        name_length=entry.name_length,
    )


def read_spec(path: Path) -> str:
    """A spec's text; raises UsageError."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"the worker spec {path} cannot be read: {exc}") from exc


# --- the ground -------------------------------------------------------------------------------


async def _ground(
    settings: LaunchSettings,
    state: StateDir,
    plan: Plan,
    board: Board,
    group_token: str | None,
    registry: str | None,
    context: SchedulerContext,
) -> _Ground:
    former = state.record()
    if registry is not None:
        await _end_standing(state, former, board)
        await end_left(state.ledger, context, board.say, grace=settings.grace)
        return _on_standing_registry(plan, state, registry)
    if former is not None and state.result() is None:
        managed = group_token is None
        ground = await _resume(settings, state, former, plan, board, managed=managed)
        if ground is not None:
            return ground
    await end_left(state.ledger, context, board.say, grace=settings.grace)
    state.forget_launch()
    if group_token is not None:
        secret = parse_group_token(group_token)
        state.write("secret", secret.hex().encode())
        launch_id = group_launch_id(secret, plan.run)
    else:
        launch_id = secrets.token_hex(5)
    # In a symmetric start the other nodes look for the registry at this port, and no other.
    exact = group_token is not None
    return _boot(plan, state, launch_id, port=settings.port, alone=plan.loopback, exact=exact)


def _boot(
    plan: Plan,
    state: StateDir,
    launch_id: str,
    *,
    port: int,
    alone: bool,
    exact: bool = False,
) -> _Ground:
    """Listen, and write down what the registry process and a later launcher must know."""
    settings = plan.settings
    sock = listen(port, address=_NEAR[0] if alone else "", exact=exact)
    secret = state.secret()
    proof = write_config(state, secret, tls=not alone, hosts=[])
    addresses = settings.registry_address or ([_NEAR[0]] if alone else own_addresses())
    if not addresses:
        raise UsageError(
            "this machine has no address under which workers could reach the registry",
            hint="name one with --registry-address",
        )
    bound = sock.getsockname()[1]
    place = RegistryPlace(tuple(addresses), bound, proof.trust, proof.proof)
    near = replace(place, addresses=_NEAR[:1] if alone else _NEAR)
    wishes = wishes_of(settings, plan.command)
    state.write_record(launch_id, settings.starter, place, owns_registry=True, wishes=wishes)
    keys = RunKeys(secret, state.run, launch_id)
    creator = registry_credential(secret)
    return _Ground(RegistryProcess(state, sock), place, near, keys, creator)


def _on_standing_registry(plan: Plan, state: StateDir, text: str) -> _Ground:
    standing = RegistryString.parse(text)
    state.forget_launch()
    launch_id = secrets.token_hex(5)
    state.write_record(
        launch_id,
        plan.settings.starter,
        standing.place,
        owns_registry=False,
        wishes=wishes_of(plan.settings, plan.command),
    )
    keys = RunKeys(state.secret(), state.run, launch_id)
    return _Ground(None, standing.place, standing.place, keys, standing.credential)


# --- resuming ---------------------------------------------------------------------------------


async def _resume(
    settings: LaunchSettings,
    state: StateDir,
    former: LaunchRecord,
    plan: Plan,
    board: Board,
    *,
    managed: bool,
) -> _Ground | None:
    """Take up a launch whose launcher was killed; None when there is nothing to take up."""
    if not former.owns_registry:
        return None
    if former.host != socket.gethostname():
        board.say(
            f"run '{state.run}' was launched on {former.host}; on this host there is nothing to "
            "resume: a new launch begins"
        )
        return None
    place = former.registry_place()

    def boot() -> _Ground:
        alone = place.trust == "plain"
        return _boot(plan, state, former.launch_id, port=place.port, alone=alone, exact=True)

    ground = await _boot_again(boot, board)
    if ground is None:
        return None
    assert ground.registry is not None
    status = await _ask(ground, state.run)
    if status is None:
        board.say(
            "the former launch cannot be resumed: its registry does not come up or does not know "
            f"it (see {state.logs / 'registry.log'}); a new launch begins"
        )
    elif status.phase is Phase.FINISHED:
        board.say(f"the former launch is over: {status.reason}; a new launch begins")
    elif former.scheduler == settings.starter and await _can_resume(
        ground, status, run_spec(plan, ground.keys, ground.place, managed=managed)
    ):
        board.say(f"resuming launch {former.launch_id}: {status.reason}")
        await ground.registry.close()
        return boot()
    else:
        await _end_former(ground, status, board)
    await ground.registry.close()
    return None


async def _boot_again(boot: Callable[[], _Ground], board: Board) -> _Ground | None:
    """Listen on the former port, once the former registry has let go of it."""
    deadline = time.monotonic() + _OLD_REGISTRY_SECONDS
    while True:
        try:
            return boot()
        except UsageError as exc:
            if time.monotonic() > deadline:
                board.say(f"the former launch cannot be resumed: {exc.message}")
                return None
            await asyncio.sleep(0.2)


async def _can_resume(ground: _Ground, status: RunStatus, spec: RunSpec) -> bool:
    """Whether nothing has started yet, and the run is the one that is asked for now."""
    if status.phase is Phase.RUNNING:
        return False
    async with RegistryClient(ground.near, ground.creator, request_seconds=10.0) as client:
        try:
            await client.create(status.run, spec)
        except RunExists:
            return False
    return True


async def _ask(ground: _Ground, run: str) -> RunStatus | None:
    """The state of the former launch, from a registry that is started on its journal."""
    assert ground.registry is not None
    keeper = asyncio.create_task(ground.registry.run())
    keeper.add_done_callback(_look_at)
    async with RegistryClient(ground.near, ground.keys.admin) as client:
        deadline = time.monotonic() + _OLD_REGISTRY_SECONDS
        while time.monotonic() < deadline and not keeper.done():
            try:
                return await client.status(run)
            except NotFound:
                return None
            except RegistryError:
                await asyncio.sleep(0.05)
    return None


def _look_at(task: asyncio.Task[None]) -> None:
    """Its failure is told by the status that does not come."""
    if not task.cancelled():
        task.exception()


async def _end_former(ground: _Ground, status: RunStatus, board: Board) -> None:
    """The go was given, or another job is asked for now: end what is left."""
    why = "its launcher had ended" if status.phase is Phase.RUNNING else _OTHER
    async with RegistryClient(ground.near, ground.keys.admin) as client:
        await _end_run(client, status, why, board)


async def _end_standing(state: StateDir, former: LaunchRecord | None, board: Board) -> None:
    """A killed launcher's run at a standing registry has nobody any more who submits for it."""
    keys = state.keys()
    if former is None or keys is None or former.owns_registry or state.result() is not None:
        return
    async with RegistryClient(former.registry_place(), keys.admin) as client:
        with contextlib.suppress(RdzvError):
            status = await client.status(state.run)
            if status.phase is not Phase.FINISHED:
                await _end_run(client, status, "its launcher had ended", board)


async def _end_run(client: RegistryClient, status: RunStatus, why: str, board: Board) -> None:
    """Cancel the run of a former launch, and let its nodes hear of it."""
    board.say(
        f"the former launch of run '{status.run}' was {status.phase}, and {why}: what is left of "
        "it is ended, and a new launch begins"
    )
    status = await client.cancel(status.run, why)
    deadline = time.monotonic() + _END_OLD_SECONDS
    while any(map(_is_there, status.slots)) and time.monotonic() < deadline:
        status = await client.status(status.run, after=status.version, wait=1.0)


def _is_there(slot: SlotStatus) -> bool:
    """Whether its node could still hear how the run ended: some have died with the launcher."""
    gone = slot.node_state in (None, NodeState.LEFT, NodeState.LOST)
    return not gone and (slot.silent_seconds or 0.0) < _SILENT_SECONDS
