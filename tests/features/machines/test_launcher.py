"""The machines that a launcher keeps when its run has ended."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from features.machines import FILE, TOPIC, launcher
from features.machines.wire import NodeMachine, RunMachines
from launcher.port import LauncherPort
from rendezvous.channel import Published
from rendezvous.talk.client import RegistryClient
from rendezvous.wire.errors import Unavailable
from tests.launcher.command import launched

KNOWN = RunMachines(machines=[NodeMachine(slot=3, hostname="gpu-18")])


class Registry:
    """Publishes this, or raises it."""

    def __init__(self, answer: RunMachines | Unavailable) -> None:
        self.answer, self.asked = answer, 0

    async def topic(self, topic: Published, run: str) -> RunMachines:
        assert (topic, run) == (TOPIC, "llama")
        self.asked += 1
        if isinstance(self.answer, Unavailable):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("answer", [KNOWN, Unavailable("gone")])
async def test_they_are_written_down_as_the_launch_parts(
    answer: RunMachines | Unavailable, tmp_path: Path
) -> None:
    registry, state, shown = Registry(answer), launched(tmp_path), list[str]()
    port = LauncherPort(cast(RegistryClient, registry), state, shown.append)
    task = asyncio.create_task(launcher.run(port))
    await asyncio.sleep(0)
    port.wake()
    await asyncio.sleep(0)
    assert registry.asked == 0
    port.part()
    await task
    kept = state.read(FILE, RunMachines)
    assert kept == (answer if isinstance(answer, RunMachines) else None)
    assert (registry.asked, shown) == (1, [])
    assert kept is None or (state.path / FILE).stat().st_mode & 0o777 == 0o600
