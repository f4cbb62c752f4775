"""A torchrun's run at a standing registry: made by whichever of its nodes comes first."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from launcher.run.footing import Footing
from launcher.run.preparation import prepare
from launcher.settings import LaunchSettings
from launcher.torchrun.group import Group
from rendezvous.talk.client import RegistryClient
from rendezvous.talk.join_string import group_token_text
from rendezvous.wire.errors import RegistryError, RunExists, TooManyRequests
from rendezvous.wire.run import RunSpec

logger = logging.getLogger("worker.torchrun")

_PAUSE_SECONDS = 1.0


def spec_of(
    group: Group, settings: LaunchSettings, command: Sequence[str], environ: Mapping[str, str]
) -> RunSpec:
    """The run, as a symmetric launch of the same secret makes it. Raises UsageError."""
    token = group_token_text(group.keys.secret)
    prepared = prepare(settings, command, environ, group_token=token)
    creator = group.standing.credential if group.standing is not None else group.keys.admin
    return Footing(prepared, group.keys, group.place, group.place, creator).spec()


async def make_run(group: Group, spec: RunSpec, seconds: float) -> None:
    """Make the run, unless it is there.

    Args:
        group: It has a standing registry.
        spec: The run.
        seconds: How long the registry is waited for.

    Raises:
        RdzvError: The registry refuses, or does not answer.
    """
    assert group.standing is not None
    clock = asyncio.get_running_loop().time
    until, said = clock() + seconds, False
    async with RegistryClient(group.place, group.standing.credential) as client:
        while True:
            try:
                await client.create(group.keys.run, spec)
            except (
                RunExists
            ):  # of another node's making; what is another job is refused when it joins
                pass
            except (RegistryError, TooManyRequests) as exc:
                if clock() > until:
                    raise
                if not said:
                    said = True
                    logger.info("cannot make the run yet: %s", exc.message)
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            return
