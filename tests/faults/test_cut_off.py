"""The owner of a run is cut off, or hangs, while its programs end: who notices it, and when."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from pathlib import Path

import psutil
import pytest

from rendezvous.registry.membership import JUDGE_SECONDS
from tests.support.drill import Drill
from tests.support.launching import Launched
from tests.support.nightly import at_night
from tests.support.standing import check_journal
from tests.support.standing_world import world

pytestmark = [pytest.mark.faults, pytest.mark.real_time, pytest.mark.timeout(120)]

OWNER = "SELECT owner FROM rdzv.runs WHERE run = 'r'"
BESIDE_SECONDS = 5.0
"""How much later than its nodes a launch may end: on a busy machine; it was 12 s later."""


def agents(launched: Launched) -> list[psutil.Process]:
    """Those of its nodes."""
    found = []
    for one in launched.children():
        with contextlib.suppress(psutil.NoSuchProcess):  # a command of the agent, that has ended
            found += [one] if "worker" in one.cmdline() else []
    return found


async def until_ended(processes: list[psutil.Process]) -> float:
    """Wait for all; when the last one has ended."""
    await asyncio.to_thread(psutil.wait_procs, processes, 60)
    return time.monotonic()


async def test_a_launch_ends_with_its_nodes_when_the_owner_is_cut_off_from_both(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as w:
        with Drill(w, tmp_path / "state") as drill:
            launched = await drill.begin_and_run("r")
            await asyncio.sleep(JUDGE_SECONDS)
            nodes = agents(launched)
            assert len(nodes) == 2
            w.doors[await w.cluster.owner("r")].shut()
            cut = time.monotonic()
            ending = asyncio.create_task(until_ended(nodes))
            await drill.finish(launched)
            took, launch_took = await ending - cut, time.monotonic() - cut
            print(f"the nodes ended {took:.1f} s after the cut, the launch {launch_took:.1f} s")
            assert launch_took < took + BESIDE_SECONDS
        await check_journal(w.primary, w.database, ["r"])


@pytest.mark.parametrize("hangs", [6.0, at_night(40.0)])
async def test_the_runs_of_a_replica_that_hangs_go_on_and_it_writes_nothing_later(
    tmp_path: Path, hangs: float
) -> None:
    async with world(tmp_path) as w:
        with Drill(w, tmp_path / "state") as drill:
            launched = await drill.begin_and_run("r")
            await asyncio.sleep(JUDGE_SECONDS)
            owner = await w.cluster.owner("r")
            had_it = await w.primary.execute(OWNER, w.database)
            w.signal(owner, signal.SIGSTOP)
            began = time.monotonic()
            try:
                while await w.primary.execute(OWNER, w.database) == had_it:
                    await asyncio.sleep(0.1)
                    assert time.monotonic() - began < 20
                print(f"another replica had the run after {time.monotonic() - began:.1f} s")
                await asyncio.sleep(max(0.0, began + hangs - time.monotonic()))
            finally:
                w.signal(owner, signal.SIGCONT)
            await drill.until_all(ready=True, seconds=15)
            assert (await drill.measured("rdzv_fenced_total"))[owner] == 1
            assert await w.cluster.owner("r") != owner
            await drill.finish(launched)
        await check_journal(w.primary, w.database, ["r"])
