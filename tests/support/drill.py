"""Launches on real replicas while something of those, or of their database, is broken."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from rendezvous.compat import timeout
from rendezvous.talk.join_string import RegistryString
from rendezvous.wire.errors import RdzvError, Unavailable
from rendezvous.wire.run import Phase
from tests.support.exposition import parsed, value
from tests.support.launching import Launched, launching, shell
from tests.support.standing_world import REPLICAS, World

LIMIT_SECONDS = 30.0


class Drill:
    """A world, and the launches of one machine on it.

    Attributes:
        folder: Of their state; their programs run until it has a file `go`.
    """

    def __init__(self, w: World, folder: Path) -> None:
        self.w, self.folder = w, folder
        self._launches = contextlib.ExitStack()

    def __enter__(self) -> Drill:
        return self

    def __exit__(self, *_: object) -> None:
        self._launches.close()

    async def readiness(self, number: int) -> str:
        """Why a replica is not ready; empty: it is."""
        try:
            async with self.w.cluster.client_of(number) as client:
                await client.request("GET", "/readyz")
        except Unavailable as exc:
            return exc.message
        return ""

    async def until_all(self, *, ready: bool, seconds: float) -> list[str]:
        """Wait until all replicas are ready, or none is; what they say."""
        async with timeout(seconds):
            while True:
                said = [await self.readiness(number) for number in range(REPLICAS)]
                if all(not one for one in said) if ready else all(said):
                    return said
                await asyncio.sleep(0.1)

    async def measured(self, name: str) -> list[float]:
        """A series of each replica."""
        found = []
        for number in range(REPLICAS):
            async with self.w.cluster.client_of(number) as client:
                text = (await client.request("GET", "/metrics")).decode()
            found.append(value(parsed(text), name))
        return found

    def begin(self, run: str) -> Launched:
        """Launch two nodes."""
        place = RegistryString(self.w.cluster.place, self.w.cluster.operator)
        command = shell(f"while [ ! -e {self.folder}/go ]; do sleep 0.1; done")
        options = ("--nnodes", "2", "--framework", "command")
        env = {"RDZV_REGISTRY": place.text()}
        made = launching(self.folder, *options, run=run, command=command, env=env)
        return self._launches.enter_context(made)

    async def begin_and_run(self, run: str) -> Launched:
        """The same, until its programs run."""
        made = self.begin(run)
        async with timeout(LIMIT_SECONDS), self.w.cluster.client() as client:
            while True:
                with contextlib.suppress(RdzvError):
                    if (await client.status(run)).phase is Phase.RUNNING:
                        return made
                await asyncio.sleep(0.1)

    async def finish(self, launched: Launched) -> None:
        """End a run well."""
        (self.folder / "go").touch()
        outcome = await asyncio.to_thread(launched.finish)
        assert outcome.code == 0, outcome.err
