"""The registry as the process that a launcher starts, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from rendezvous.compat import timeout
from rendezvous.registry.sqlite_journal import read_journal
from rendezvous.talk.credentials import SERVER_NAME
from rendezvous.wire.errors import Unavailable
from rendezvous.wire.reports import ExitReport, LeaveReport
from tests.support.launching import lives
from tests.support.registry import START_SECONDS, Launch, Node, Registry, running
from tests.support.waiting import soon

in_time = pytest.mark.real_time


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    """A registry of the test's own, which it may kill."""
    with running(tmp_path) as made:
        yield made


@contextlib.asynccontextmanager
async def gathered(registry: Registry, launch: Launch, nodes: int, **changes: Any) -> Any:
    """The nodes of a new run, all joined."""
    await registry.create(launch, nodes, **changes)
    async with contextlib.AsyncExitStack() as stack:
        made = [
            await stack.enter_async_context(Node(registry.place, launch, slot))
            for slot in range(nodes)
        ]
        await asyncio.gather(*(node.join() for node in made))
        yield made


async def test_the_log_names_run_and_node_and_no_secret(registry: Registry) -> None:
    """And a Ctrl-C leaves no traceback in it, and no core.

    Its memory is in small pages: else 256 KB of each TLS connection would be resident where the
    kernel makes huge ones.
    """
    assert psutil.Process(registry.pid).rlimit(psutil.RLIMIT_CORE) == (0, 0)
    assert "\nTHP_enabled:\t0\n" in Path(f"/proc/{registry.pid}/status").read_text()
    launch = Launch("logged")
    async with gathered(registry, launch, 2) as nodes:
        await asyncio.gather(*(node.run() for node in nodes))
        secrets = [launch.token(0).text(), nodes[0].client.credential, registry.operator.text()]
        with contextlib.suppress(Exception):
            await nodes[0].client.request("POST", f"/v1/runs/{launch.token(1).text()}/nodes")
    assert await asyncio.to_thread(registry.end, signal.SIGINT) == 128 + signal.SIGINT
    assert re.search(
        r"run logged epoch [01]: host0 joined \([12] of 2\), from 127\.0", registry.log
    )
    # What every node does is not logged of each: of the acknowledgements, the last one.
    assert re.search(
        r"run logged epoch 1: both nodes reach each other over .*; starting torchrun", registry.log
    )
    assert "is ready" not in registry.log
    for secret in secrets:
        assert secret.rpartition(".")[2] not in registry.log
    assert "Traceback" not in registry.log


# The end of the process, and its return


async def test_sigterm_ends_every_waiting_request_and_the_process(registry: Registry) -> None:
    launch = Launch("parked")
    async with gathered(registry, launch, 2, lease_seconds=3600) as nodes, registry.client() as one:
        await nodes[0].watch()
        poll = asyncio.create_task(nodes[0].watch())
        while b"rdzv_watches_total 2\n" not in await one.request("GET", "/metrics"):
            await asyncio.sleep(0.02)
        assert await asyncio.to_thread(registry.end) == -signal.SIGTERM
        with pytest.raises(Unavailable, match="closing"):
            await poll
    assert [record.number for record in read_journal(registry.journal)] == [1, 2, 3]
    assert [*registry.journal.parent.glob("journal.sqlite*")] == [registry.journal]
    assert registry.journal.stat().st_size < 100_000
    assert "timeout graceful shutdown" not in registry.log
    assert "Traceback" not in registry.log


@in_time
async def test_a_registry_that_was_killed_carries_on_and_no_table_changes(
    registry: Registry,
) -> None:
    launch = Launch("killed")
    async with gathered(registry, launch, 3) as nodes:
        before = await asyncio.gather(*(node.run() for node in nodes))
        credentials = [node.client.credential for node in nodes]
        watching = [
            asyncio.create_task(node.follow(lambda view: view.result is not None)) for node in nodes
        ]
        await asyncio.to_thread(registry.end, signal.SIGKILL)
        registry.start()
        lines = await registry.events(launch, "restarted")
        assert lines[-1].reason.startswith("the registry restarted from its journal")
        for node in nodes:
            await node.report(ExitReport(epoch=1, exit_code=0))
        after = await asyncio.gather(*watching)
        assert [view.result.status for view in after] == ["ok"] * 3
        assert [node.client.credential for node in nodes] == credentials
        told = {view.digest for node in nodes for view in node.views if view.digest}
        assert told == {before[0].digest}
        for node in nodes:
            await node.report(LeaveReport())
    kinds = [line.kind for line in await registry.events(launch, "left")]
    assert kinds.count("joined") == 3
    assert "lost" not in kinds


# Leases by what the kernel says


@in_time
async def test_a_node_whose_connections_are_closed_is_lost_a_second_later(tmp_path: Path) -> None:
    launch = Launch("closed")
    with running(tmp_path, tls=True) as registry:
        async with gathered(registry, launch, 3, lease_seconds=30) as nodes:
            await asyncio.gather(*(node.run() for node in nodes))
            alive = asyncio.create_task(nodes[0].follow(lambda view: view.stop))
            stays = asyncio.create_task(_reconnect_and_watch(nodes[1]))
            clock = (await registry.status(launch)).elapsed_seconds
            await nodes[2].client.close()
            lost = (await registry.events(launch, "lost"))[-1]
            assert lost.slot == 2
            assert "its connection was closed and it did not reconnect" in lost.reason
            assert 0.9 <= lost.at_seconds - clock < 10
            assert (await alive).reason.startswith("node 2 (host2)")
            await stays
        kinds = [(line.kind, line.slot) for line in await registry.events(launch, "lost")]
        assert kinds.count(("lost", 2)) == 1
        assert ("lost", 1) not in kinds


async def _reconnect_and_watch(node: Node) -> None:
    """Give up all connections now and then, and come back at once."""
    while not node.view.stop:
        credential = node.client.credential
        await node.client.close()
        node.client.credential = credential
        with contextlib.suppress(TimeoutError):
            async with timeout(0.4):
                await node.follow(lambda view: view.stop)


@in_time
async def test_behind_an_ingress_a_closed_connection_says_nothing(tmp_path: Path) -> None:
    launch = Launch("ingress")
    with running(tmp_path, trust_close=False) as registry:
        async with gathered(registry, launch, 2, lease_seconds=2) as nodes:
            await asyncio.gather(*(node.run() for node in nodes))
            await nodes[1].client.close()
            silent = asyncio.create_task(nodes[0].follow(lambda view: view.stop))
            lost = (await registry.events(launch, "lost"))[-1]
            assert lost.slot == 1
            assert re.search(r"it was silent for \d+ s", lost.reason)
            await silent


# What the process needs of its machine


def test_a_registry_that_cannot_start_says_why(registry: Registry) -> None:
    registry.end()
    path = registry.folder / "config.json"
    config = json.loads(path.read_text())

    def ended(*options: str) -> tuple[int, str]:
        registry.start(*options)
        assert registry.process is not None
        return registry.process.wait(START_SECONDS), registry.log

    code, log = ended("--parent", "1")
    assert (code, "the launcher ended before its registry was up" in log) == (1, True)
    registry.journal.write_bytes(b"my notes\n" * 500)
    code, log = ended()
    assert (code, "Traceback" in log) == (64, False)
    assert f"the journal {registry.journal} cannot be " in log.splitlines()[-1]
    path.write_text(json.dumps(config | {"key": [config["key"]], "colour": "red"}))
    code, log = ended()
    assert (code != 0, "colour" in log, config["key"] in log) == (True, True, False)


async def test_the_registry_goes_with_its_launcher(registry: Registry) -> None:
    registry.end()
    program = (
        "import os, subprocess, sys, time\n"
        "from rendezvous.door import own_command\n"
        "config, fd = sys.argv[1:]\n"
        "command = own_command('_registry', config, '--fd', fd)\n"
        "child = subprocess.Popen([*command, '--parent', str(os.getpid())], pass_fds=[int(fd)])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    fd = registry.sock.fileno()
    with subprocess.Popen(
        [sys.executable, "-c", program, str(registry.folder / "config.json"), str(fd)],
        pass_fds=[fd],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as launcher:
        assert launcher.stdout is not None
        child = int(launcher.stdout.readline())
        async with registry.client() as client:
            assert await client.runs() == []
        launcher.kill()
        await soon(lambda: not lives(child))


async def test_a_registry_has_the_journal_and_the_names_that_it_was_told(tmp_path: Path) -> None:
    with running(tmp_path, journal=False, hosts=["registry.example.org"]) as registry:
        statuses = []
        own = f"{SERVER_NAME}:{registry.port}"
        for host in ("registry.example.org", own, "127.0.0.1", "evil.example.com"):
            url = f"http://127.0.0.1:{registry.port}/v1/runs"
            statuses.append(httpx.get(url, headers={"host": host}, trust_env=False).status_code)
        assert statuses == [401, 401, 400, 400]
        await registry.create(Launch("brief"))
        registry.end(signal.SIGKILL)
        registry.start()
        async with registry.client() as client:
            assert await client.runs() == []
        assert not registry.journal.exists()
