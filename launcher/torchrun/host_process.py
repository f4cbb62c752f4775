"""The registry of a torchrun's run: `rdzv_command.py _torchrun_host`, a launch without a node here.

It ends with its run; or cancels it once no node of it has been there for a while: nobody else knows
that no torchrun comes any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import click

from launcher.cli.process import Group, exit_with, log_to_stderr, need_launcher_packages
from launcher.options import options_from, read
from launcher.prepare.environment import LaunchEnvironment
from launcher.run.command import launch
from launcher.settings import LaunchSettings
from launcher.torchrun.asked import NEAR, command_of, host_settings, read_asked
from launcher.torchrun.group import Group as RunGroup
from launcher.torchrun.group import read_group
from launcher.torchrun.hosting import Order
from launcher.torchrun.slots import EMPTY
from rendezvous.talk.client import RegistryClient
from rendezvous.wire.errors import RegistryError, RequestError
from rendezvous.wire.run import Phase, RunStatus
from worker.program.hidden import hide_memory

LEFT_SECONDS = 30.0
"""How long a run is kept that every node has left."""
_LOOK_SECONDS = 2.0

logger = logging.getLogger(__name__)


def main() -> None:
    """Host the registry that standard input tells of."""
    hide_memory()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    order = Order.model_validate_json(sys.stdin.buffer.read())

    @click.command()
    @options_from(LaunchSettings)
    def host(**values: Any) -> None:
        need_launcher_packages()
        given = read(LaunchSettings, values)
        log_to_stderr(given.log_level)
        asked = read_asked(order.begin)
        group = read_group(asked, order.token, None)
        work = launch(
            host_settings(asked, given),
            command_of(order.begin),
            os.environ,
            group_token=order.token,
            world=LaunchEnvironment(),
        )
        exit_with(_host(work, group, given.join_timeout))

    Group(commands={"host": host}).main(args=["host"], prog_name="rdzv")


async def _host(work: Coroutine[Any, Any, int], group: RunGroup, join_timeout: float) -> int:
    watching = asyncio.create_task(_end_when_left(group, join_timeout))
    try:
        return await work
    finally:
        watching.cancel()


async def _end_when_left(group: RunGroup, join_timeout: float) -> None:
    """Cancel the launch, as a signal does, once nobody has been there for a while."""
    clock = asyncio.get_running_loop().time
    seen_at, has_come = clock(), False
    place, parent = replace(group.place, addresses=NEAR), os.getppid()
    async with RegistryClient(place, group.keys.read) as client:
        while clock() - seen_at < (
            join_timeout if os.getppid() == parent and not has_come else LEFT_SECONDS
        ):
            await asyncio.sleep(_LOOK_SECONDS)
            with contextlib.suppress(RegistryError, RequestError):
                if _somebody_is_there(await client.status(group.keys.run)):
                    seen_at, has_come = clock(), True
    logger.info("no node of run '%s' is left", group.keys.run)
    os.kill(os.getpid(), signal.SIGTERM)


def _somebody_is_there(status: RunStatus) -> bool:
    is_over = status.phase is Phase.FINISHED  # the launch ends by itself
    return is_over or any(slot.node_state not in EMPTY for slot in status.slots)
