"""A primary with its standbys, and three replicas behind gates: what the drills of it break."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from pathlib import Path

from tests.support.gates import Gate
from tests.support.postgres import Postgres, one_primary
from tests.support.replicas import Cluster, listening, replicas

REPLICAS = 3


@dataclass
class World:
    """All of it.

    Attributes:
        primary: The engine; another server once that was lost.
        wires: Between each replica and the first primary.
        doors: Between the nodes and each replica.
    """

    folder: Path
    primary: Postgres
    standbys: list[Postgres]
    database: str
    cluster: Cluster
    wires: list[Gate]
    doors: list[Gate]

    def end(self, number: int, how: int = signal.SIGKILL) -> Awaitable[int]:
        """End a replica."""
        return asyncio.to_thread(self.cluster.end, number, how)

    async def start(self, number: int) -> None:
        """Start it again, and wait until it beats."""
        await asyncio.to_thread(self.cluster.start, number)
        await self.cluster.wait_until_ready(number)

    def signal(self, number: int, signal_number: int) -> None:
        """Send a replica a signal."""
        os.kill(self.cluster.all[number].pid, signal_number)


@contextlib.asynccontextmanager
async def world(
    folder: Path, *, standbys: int = 2, tablespace: Path | None = None
) -> AsyncIterator[World]:
    """A primary with its standbys, and replicas behind gates, which may judge each other."""
    async with contextlib.AsyncExitStack() as stack:
        primary = stack.enter_context(one_primary())
        names = ["one", "two"][:standbys]
        followers = [await asyncio.to_thread(primary.standby, name) for name in names]
        if followers:
            await primary.wait_for_one_of(*names, primary.name)
        database = await primary.new_database()
        if tablespace is not None:
            await primary.execute(f"CREATE TABLESPACE small LOCATION '{tablespace}'")
            await primary.execute(f"ALTER DATABASE {database} SET TABLESPACE small")
        sockets = listening(REPLICAS)
        gates = [Gate(primary.port) for _ in sockets]
        wires = [await stack.enter_async_context(gate) for gate in gates]
        gates = [Gate(sock.getsockname()[1]) for sock in sockets]
        doors = [await stack.enter_async_context(gate) for gate in gates]
        others = "".join(f",127.0.0.1:{one.port}" for one in followers)
        dsns = [
            primary.dsn(database, port=wire.port).replace(
                f":{wire.port}", f":{wire.port}{others}", 1
            )
            for wire in wires
        ]
        ports = [one.port for one in doors]
        made = replicas(folder, "", REPLICAS, sockets=sockets, doors=ports, dsns=dsns)
        # Its processes are waited for while the gates pass on what they say.
        cluster = await asyncio.to_thread(made.__enter__)
        stack.push(made)
        for number in range(REPLICAS):
            await cluster.wait_until_ready(number)
        yield World(folder, primary, followers, database, cluster, wires, doors)
