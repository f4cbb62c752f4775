"""Replicas as processes on a real PostgreSQL: what a node of theirs meets when one goes."""

from __future__ import annotations

import asyncio
import functools
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from rendezvous.registry.membership import JUDGE_SECONDS
from rendezvous.talk.retry import until_answered
from rendezvous.wire.reports import ExitReport, LeaveReport
from rendezvous.wire.run import Phase
from tests.support.nightly import at_night
from tests.support.registry import Launch, Node
from tests.support.replicas import Cluster, replicas
from tests.support.standing import started

pytestmark = [pytest.mark.faults, pytest.mark.real_time]


@pytest.fixture
def cluster(tmp_path: Path, dsn: str) -> Iterator[Cluster]:
    """Three of them, of the test's own."""
    with replicas(tmp_path, dsn) as made:
        yield made


async def finish(cluster: Cluster, launch: Launch, nodes: list[Node]) -> list[str]:
    """All programs end; returns the kinds of the run's events."""
    for report in (ExitReport(epoch=1, exit_code=0), LeaveReport()):
        for node in nodes:
            await until_answered(functools.partial(node.report, report), seconds=5)
    kinds = []
    async with cluster.client(launch.keys.read) as client:
        status = await until_answered(lambda: client.status(launch.run), seconds=5)
        assert status.phase is Phase.FINISHED
        async for line in client.events(launch.run):
            kinds.append(line.kind)
    return kinds


@pytest.mark.parametrize("how", [at_night(signal.SIGKILL), signal.SIGTERM])
async def test_a_run_goes_on_when_its_owner_ends(cluster: Cluster, how: signal.Signals) -> None:
    launch = Launch("demo")
    for number in range(3):
        await cluster.wait_until_ready(number)
    await asyncio.sleep(JUDGE_SECONDS)  # nobody judges the others before
    async with started(cluster, launch, 3) as nodes:
        owner = await cluster.owner("demo")
        watching = [
            asyncio.create_task(node.follow(lambda view: view.result is not None)) for node in nodes
        ]
        await asyncio.to_thread(cluster.end, owner, how)
        async with cluster.client() as client:
            await until_answered(lambda: client.status("demo"), seconds=5)
        assert await cluster.owner("demo") != owner
        kinds = await finish(cluster, launch, nodes)
        assert [view.result.status for view in await asyncio.gather(*watching) if view.result] == [
            "ok"
        ] * 3
    assert "lost" not in kinds
    assert kinds.count("restarted") == 1
