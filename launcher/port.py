"""The parts of features in the launcher, and the port through which they see the launch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

from launcher.state.state_dir import StateDir
from rendezvous.feature import Feature, Lazy, declared
from rendezvous.talk.client import RegistryClient
from rendezvous.tasks import now, wait_for
from rendezvous.wire.errors import message_of

BEGIN_SECONDS: Final = 1.0
"""Until the parts are imported: the start of the programs must not wait for that."""


class LauncherPort:
    """The launch, as the parts of features see it.

    Attributes:
        client: The registry, with the credential that reads.
        run: The run's ID.
        state: The run's folder.
        say: Shows a line to the person.
        parted: Whether the launch has parted from its run.
    """

    def __init__(self, client: RegistryClient, state: StateDir, say: Callable[[str], None]) -> None:
        self.client = client
        self.run = state.run
        self.state = state
        self.say = say
        self.parted = False
        self._wakes = asyncio.Event()

    def now(self) -> float:
        """Seconds, by the launch's clock."""
        return now()

    async def ticks(self, seconds: float) -> AsyncIterator[None]:
        """Yield now, after each pause of so many seconds, and one last time when the launch parts
        from its run: its nodes have left, and the registry is still there."""
        while not self.parted:
            yield
            await self.pause(seconds)
        yield

    async def parting(self) -> None:
        """Wait until the launch parts from its run, as in `ticks`."""
        while not self.parted:
            await self._wakes.wait()

    async def pause(self, seconds: float) -> None:
        """Wait so long, until it is woken, or until the launch parts from its run."""
        await wait_for(self._wakes, seconds)

    def wake(self) -> None:
        """End the pauses: there may be something new."""
        self._wakes.set()
        self._wakes = asyncio.Event()

    def part(self) -> None:
        """Part from the run: each part of a feature ticks once more, and ends."""
        self.parted = True
        self._wakes.set()


async def run_features(port: LauncherPort) -> None:
    """Run the parts of all features to their ends; one that fails costs a line, and no launch."""
    await port.pause(BEGIN_SECONDS)
    parts = [(one, one.launcher) for one in declared() if one.launcher is not None]
    runs = (_run(feature, part, port) for feature, part in parts)
    await asyncio.gather(*runs, return_exceptions=True)  # not even that line can be said


async def _run(feature: Feature, part: Lazy, port: LauncherPort) -> None:
    try:
        await part.load()(port)
    except Exception as exc:  # noqa: BLE001 (a feature ends no launch)
        words = message_of(exc)
        port.say(f"{feature.name} failed here, and the run continues without it: {words}")
