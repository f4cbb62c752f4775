"""A torchrun's run at a standing registry: made by whichever of its nodes comes first."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence

from launcher.prepare.context import LaunchContext
from launcher.prepare.preparation import prepare
from launcher.settings import LaunchSettings
from launcher.torchrun.group import Group
from rendezvous.talk.client import RegistryClient
from rendezvous.talk.join_string import group_token_text
from rendezvous.talk.retry import until_answered
from rendezvous.wire.errors import RdzvError, RunExists
from rendezvous.wire.run import RunSpec

logger = logging.getLogger("worker.torchrun")


def spec_of(
    group: Group, settings: LaunchSettings, command: Sequence[str], environ: Mapping[str, str]
) -> RunSpec:
    """The run, as a symmetric launch of the same secret makes it. Raises UsageError."""
    token = group_token_text(group.keys.secret)
    prepared = prepare(settings, command, environ, group_token=token)
    creator = group.standing.credential if group.standing is not None else group.keys.admin
    return LaunchContext(prepared, group.keys, group.place, group.place, creator).spec()


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
    said: list[str] = []

    def failed(error: RdzvError) -> None:
        if not said:
            logger.info("cannot make the run yet: %s", error.message)
        said.append(error.message)

    async with RegistryClient(group.place, group.standing.credential) as client:
        with contextlib.suppress(RunExists):  # made by another node
            await until_answered(
                lambda: client.create(group.keys.run, spec), seconds=seconds, failed=failed
            )
