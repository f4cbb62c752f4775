"""One node's part of a run, from joining to leaving.

`node` decides, and is pure: see there how a node lives. `shell` carries out what it decides:
`session` talks with the registry, `visiting` proves the peers, `arming` gets ready for a table,
`running` has the program, `port` what features are offered. `environment` is all that they see of
the outer world.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Sequence
from dataclasses import replace

from rendezvous.compat import timeout
from rendezvous.talk.join_string import JoinString
from rendezvous.tasks import cancel_all
from rendezvous.wire.errors import Fenced, RunOver
from worker.agent.arming import NodeSpec
from worker.agent.environment import AgentEnvironment
from worker.agent.inputs import Exhausted, SignalCame
from worker.agent.port import NodePort, RunningRanks, load_parts
from worker.agent.shell import NodeShell
from worker.contracts import FRAMEWORKS, needs_of
from worker.machine.shortage import cpu_time_met, cpu_time_used_up
from worker.preflight.own_environment import Completed, complete_path
from worker.program.cpu_time import cpu_time_watched
from worker.program.process import become_subreaper, ending_signals, reap_orphans
from worker.program.state_home import state_home, why_elsewhere
from worker.rsh.shims import shim_places
from worker.settings import WorkerSettings

__all__ = [
    "run_agent",
    "take_part",
    "with_log_folder",
    "AgentEnvironment",
    "NodePort",
    "RunningRanks",
    "load_parts",
]

logger = logging.getLogger(__name__)

_PASSED_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)
_PATH_SECONDS = 2.0
"""For PATH and HOME, whose folders may be on a disk that hangs."""


async def run_agent(
    settings: WorkerSettings,
    join: JoinString,
    command: Sequence[str],
    *,
    environment: AgentEnvironment | None = None,
) -> int:
    """Run one node; returns the exit code that its process should have.

    Args:
        settings: What the person said.
        join: The worker run's join string.
        command: The COMMAND.
        environment: The outer world; this process's own when not given.

    Raises:
        RdzvError: What this node cannot do.
    """
    if environment is None:
        environment = await _own_environment(settings, join, command)
        settings = await with_log_folder(settings, join, environment)
    become_subreaper()
    reaper = asyncio.create_task(reap_orphans())
    folders = list(shim_places(environment.environ))
    sweeper = asyncio.ensure_future(environment.in_thread(environment.remove_left, folders))
    try:
        return await take_part(settings, join, command, environment)
    except (Fenced, RunOver) as exc:
        logger.log(logging.ERROR if exc.exit_code else logging.INFO, "%s", exc.message)
        return int(exc.exit_code)
    finally:
        await cancel_all([reaper, sweeper])


async def _own_environment(
    settings: WorkerSettings, join: JoinString, command: Sequence[str]
) -> AgentEnvironment:
    """Environment of this process, with what starts COMMAND on PATH, where rdzv's own has it."""
    plain = AgentEnvironment()
    needs = needs_of(settings.framework, command, leads=join.slot == 0)
    completed = Completed(plain.environ)
    with contextlib.suppress(TimeoutError):
        async with timeout(_PATH_SECONDS):
            completed = await plain.in_thread(complete_path, needs, plain.environ)
    if not completed.added:
        return plain
    logger.info("%s", completed.sentence)
    return replace(plain, environ=completed.environ)


async def with_log_folder(
    settings: WorkerSettings, join: JoinString, environment: AgentEnvironment
) -> WorkerSettings:
    """Settings with a folder for logs among temporary files, where the usual one cannot be used."""
    environ, why = environment.environ, ""
    if settings.log_dir is None:
        with contextlib.suppress(TimeoutError):
            async with timeout(_PATH_SECONDS):
                why = await environment.in_thread(why_elsewhere, environ)
    if not why:
        return settings
    logger.warning("%s", why)
    return settings.model_copy(update={"log_dir": state_home(environ) / join.run / "logs"})


async def take_part(
    settings: WorkerSettings,
    join: JoinString,
    command: Sequence[str],
    environment: AgentEnvironment,
    *,
    any_slot: bool = False,
) -> int:
    """See one node through its part of the run, whatever process it is in. Raises RdzvError.

    Args:
        settings: What the person said.
        join: The worker run's join string.
        command: The COMMAND.
        environment: The outer world.
        any_slot: Whether SlotTaken ends it, as there are others.
    """
    remote = settings.allow_exec or FRAMEWORKS[settings.framework].is_led(command)
    spec = NodeSpec(settings, join, list(command), remote, any_slot)
    client = environment.dial(join.place, join.token)
    shell = NodeShell(spec, environment, client)

    def told(number: int) -> None:
        parent = settings.parent
        lives = parent is None or environment.parent_lives(parent)
        shell.feed(SignalCame(number, lives))

    loop = asyncio.get_running_loop()
    for number in (*ending_signals(), signal.SIGQUIT, *_PASSED_SIGNALS):
        loop.add_signal_handler(number, told, number)

    def used_up(seconds: int) -> None:
        shell.feed(Exhausted(cpu_time_used_up(seconds, int(time.process_time()))))

    def met(soft: int, hard: int | None) -> None:
        logger.warning("%s", cpu_time_met(soft, hard))

    try:
        with cpu_time_watched(met, used_up):
            return await shell.run()
    finally:
        with contextlib.suppress(Exception):  # how this node ends is known
            await client.close()
