"""Three replicas on a primary with two standbys: what happens to runs while parts of that fail.

Many runs stand in every phase before the go and after it; half of them go on while something is
broken, the others when it is mended. Nobody may be given up, nothing that was acknowledged be lost,
and the journal holds it afterwards, by the product's own replay. Replicas say nothing to each
other: what is between them is the engine, and a partition among them has no other effect.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.support.disks import fill, small_disk
from tests.support.missing import give_up
from tests.support.nightly import ROUNDS
from tests.support.standing import Runs
from tests.support.standing_world import REPLICAS, World, world

pytestmark = [
    pytest.mark.faults,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("replicas"),  # each is as much as two cores can carry
]

RUNS = 12 if ROUNDS == 1 else 200
JUDGES_SECONDS = 3.5
"""After its start a replica judges nobody for so long."""


# What is done to it; replica 0 has a third of the runs.


async def kill(w: World) -> None:
    await w.end(0)
    await asyncio.sleep(3)
    await w.start(0)


async def stop(w: World) -> None:
    w.signal(0, signal.SIGSTOP)
    await asyncio.sleep(10)
    w.signal(0, signal.SIGCONT)
    await asyncio.sleep(2)


async def cut_from_engine(w: World) -> None:
    w.wires[0].shut()
    await asyncio.sleep(8)
    w.wires[0].open()
    await asyncio.sleep(2)


async def cut_from_nodes(w: World) -> None:
    w.doors[0].shut()
    await asyncio.sleep(25)  # longer than the lease of a node
    w.doors[0].open()


async def refuse_nodes(w: World) -> None:
    """As what stands before a replica does when it ends: it closes all connections."""
    w.doors[0].refuse()
    await asyncio.sleep(25)


async def lose_primary(w: World) -> None:
    """And mend it as docs/standing.md says."""
    former = w.primary
    await asyncio.to_thread(former.kill)
    await asyncio.sleep(2)
    received = [await one.execute("SELECT pg_last_wal_receive_lsn() - '0/0'") for one in w.standbys]
    w.primary = w.standbys[received.index(max(received))]
    await asyncio.to_thread(w.primary.promote)  # the other one follows it
    await asyncio.sleep(3)
    await asyncio.to_thread(former.seed, former.name, w.primary)
    await asyncio.sleep(1)


async def lose_standby(w: World) -> None:
    await asyncio.to_thread(w.standbys[0].kill)
    await asyncio.sleep(5)


async def fill_disk(w: World) -> None:
    filler = await asyncio.to_thread(fill, w.folder / "small")
    await asyncio.sleep(6)
    filler.unlink()
    await asyncio.sleep(2)


async def forbid_writes(w: World) -> None:
    for word in ("on", "off"):
        await w.primary.execute(f"ALTER SYSTEM SET default_transaction_read_only = {word}")
        await w.primary.execute("SELECT pg_reload_conf()")
        await asyncio.sleep(5)


async def slow_commits(w: World) -> None:
    for _ in range(3):
        for one in w.standbys:
            one.pause()
        await asyncio.sleep(2)
        for one in w.standbys:
            one.resume()
        await asyncio.sleep(1)


async def lose_answers(w: World) -> None:
    for _ in range(3):
        for wire in w.wires:
            await wire.lose_an_answer()
        await asyncio.sleep(1)


async def upgrade(w: World) -> None:
    for number in range(REPLICAS):
        assert await w.end(number, signal.SIGTERM) in (0, -signal.SIGTERM)
        await w.start(number)


async def leave_engine(w: World) -> None:
    """The whole engine, for longer than any lease."""
    w.primary.pause()
    await asyncio.sleep(20 if ROUNDS == 1 else 60)
    w.primary.resume()


FAULTS: dict[str, Callable[[World], Awaitable[None]]] = {
    "owner killed": kill,
    "owner stopped": stop,
    "cut from the engine": cut_from_engine,
    "cut from the nodes": cut_from_nodes,
    "refused to the nodes": refuse_nodes,
    "primary lost": lose_primary,
    "standby lost": lose_standby,
    "read-only": forbid_writes,
    "commits of 2 s": slow_commits,
    "answers lost": lose_answers,
    "upgrade": upgrade,
    "engine away": leave_engine,
}


async def disturb(w: World, fault: Callable[[World], Awaitable[None]]) -> None:
    """Half of the runs go on during the fault, the others after it."""
    async with Runs(RUNS) as runs:
        began = asyncio.get_running_loop().time()
        await runs.start(w.cluster)
        await asyncio.sleep(JUDGES_SECONDS - (asyncio.get_running_loop().time() - began))
        breaking = asyncio.ensure_future(fault(w))
        await asyncio.sleep(0.2)
        # Every phase is in both halves: there are four, and each has an even number of runs.
        runs.go_on(slice(0, RUNS // 2))
        await breaking
        runs.go_on()
        await runs.end()
        print(f"{fault.__name__}: longest time between two answers to a node: {runs.longest:.2f} s")
        await runs.check(w.primary, w.database)


@pytest.mark.nightly  # test_serve kills the owner of a run at each push
@pytest.mark.parametrize("name", FAULTS)
async def test_no_run_is_disturbed_and_nothing_acknowledged_is_lost(
    tmp_path: Path, name: str
) -> None:
    async with world(tmp_path) as made:
        await disturb(made, FAULTS[name])


@pytest.mark.nightly
async def test_a_full_disk_of_the_engine_delays_runs_and_no_more() -> None:
    if os.geteuid() != 0:
        give_up("a small disk needs root")
    with tempfile.TemporaryDirectory(prefix="rdzv-disk-") as name:
        folder = Path(name)  # not one of pytest's: the engine's user does not get there
        folder.chmod(0o755)
        with small_disk(folder / "small") as disk:
            inner = disk / "space"
            inner.mkdir()
            shutil.chown(inner, "postgres")
            async with world(folder, standbys=0, tablespace=inner) as made:
                await disturb(made, fill_disk)
