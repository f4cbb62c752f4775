"""Floods of a real registry while a healthy run forms, and another one trains."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from rendezvous.talk.retry import retry_pause
from rendezvous.wire.errors import RegistryError
from rendezvous.wire.run import Phase
from tests.attack.floods import Tally
from tests.support.registry import Launch, Node, Registry, running
from tests.support.waiting import soon

NODES = 16
FLOOD_SECONDS = 10.0
at_night = pytest.mark.nightly
FLOODS = [
    ("bad logins", False),
    ("answers never read", False),
    ("half headers", True),
    pytest.param("nothing sent", True, marks=at_night),
    pytest.param("connect and go", True, marks=at_night),
]
ENDLESS = ("bad logins", "answers never read", "connect and go")

pytestmark = [pytest.mark.real_time, pytest.mark.fuzz, pytest.mark.timeout(120)]


def megabytes(registry: Registry) -> float:
    """Resident memory of the registry."""
    return float(psutil.Process(registry.pid).memory_info().rss) / 2**20


def established(registry: Registry) -> bool:
    """Whether the registry has a connection."""
    connections = psutil.Process(registry.pid).net_connections("tcp")
    return any(each.status == psutil.CONN_ESTABLISHED for each in connections)


@contextlib.asynccontextmanager
async def nodes_of(registry: Registry, launch: Launch) -> AsyncIterator[list[Node]]:
    """The nodes of a run, which have not joined yet."""
    await registry.create(launch, NODES)
    async with contextlib.AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(Node(registry.place, launch, slot))
            for slot in range(NODES)
        ]


async def form(registry: Registry, number: int) -> float:
    """A run of its own comes to its go and ends; how long it took."""
    async with nodes_of(registry, Launch(f"healthy-{number}")) as nodes:
        started = time.monotonic()
        views = await asyncio.gather(*(node.run() for node in nodes))
        took = time.monotonic() - started
        assert len({view.digest for view in views}) == 1
        ends = await asyncio.gather(*(node.finish() for node in nodes))
        assert {end.result.status for end in ends if end.result} == {"ok"}
    return took


async def look(registry: Registry, seconds: list[float]) -> None:
    """A person looks at the runs until cancelled; how long each answer took."""
    async with registry.client() as client:
        while True:
            started = time.monotonic()
            await client.runs()
            seconds.append(time.monotonic() - started)
            await asyncio.sleep(0.02)


async def flood(registry: Registry, kind: str, tls: bool) -> Tally:
    """A flood, sent by a process of its own."""
    command = [sys.executable, "-m", "tests.attack.floods", kind, str(registry.port)]
    child = await asyncio.create_subprocess_exec(
        *command, "tls" if tls else "plain", str(FLOOD_SECONDS), stdout=subprocess.PIPE
    )
    out, _ = await child.communicate()
    assert child.returncode == 0
    return Tally(**json.loads(out))


async def hold(node: Node) -> None:
    """Watch, as a node does that trains, until cancelled."""
    while True:
        try:
            await node.watch()
        except RegistryError:
            await asyncio.sleep(retry_pause())


@pytest.mark.parametrize(("kind", "tls"), FLOODS)
async def test_a_flood_costs_a_healthy_run_no_node(tmp_path: Path, kind: str, tls: bool) -> None:
    standing = Launch("standing")
    with running(tmp_path, tls=tls) as registry:
        async with nodes_of(registry, standing) as nodes:
            await asyncio.gather(*(node.run() for node in nodes))
            await form(registry, 0)
            before, formed, answers = megabytes(registry), list[float](), list[float]()
            beside = asyncio.gather(*(hold(node) for node in nodes), look(registry, answers))
            flooding = asyncio.create_task(flood(registry, kind, tls))
            while not flooding.done() or not formed:
                formed.append(await form(registry, len(formed) + 1))
            tally = await flooding
            status = await registry.status(standing)
            beside.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await beside
        await soon(lambda: not established(registry))
        growth = megabytes(registry) - before
        print(f"{max(formed):.2f} s, {max(answers):.2f} s; {tally}; {growth:+.0f} MB")
        assert (status.phase, status.result) == (Phase.RUNNING, None)
        assert [slot.incarnation for slot in status.slots] == [1] * NODES
        if kind not in ENDLESS:
            assert tally.ended == tally.connections
            assert tally.slowest_end < 15
        assert max(formed) < 20
        assert sorted(answers)[int(len(answers) * 0.99)] < 5  # a lease is 15: no node is near it
        # With TLS, some 50 kB stay for each connection that there ever was at once.
        assert growth < (120 if tls else 40)
        assert "Traceback" not in registry.log
