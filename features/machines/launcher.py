"""Keeps the nodes' machines as they were last: nobody can ask them once the run has ended."""

from __future__ import annotations

import contextlib

from features.machines import FILE, TOPIC
from launcher.port import LauncherPort
from rendezvous.wire.errors import RdzvError


async def run(port: LauncherPort) -> None:
    """Write them down at the end; a registry that knows none ends nothing."""
    await port.parting()
    with contextlib.suppress(RdzvError):
        found = await port.client.topic(TOPIC, port.run)
        port.state.write(FILE, found.model_dump_json(exclude_defaults=True).encode())
