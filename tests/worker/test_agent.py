"""The agent as a process, against a real registry: what its machine and its shell cannot show."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

import pytest

from rendezvous.compat import timeout
from rendezvous.talk.join_string import JoinString
from rendezvous.wire.node import Job
from rendezvous.wire.run import Phase
from rendezvous.wire.verify import PairProbe, ProbePlan, ProbeReport
from tests.support.registry import Launch, Node, Registry, running
from worker.probe.listener import ProbeListener
from worker.probe.mesh import probe_peers
from worker.probe.packets import Identity

pytestmark = pytest.mark.real_time

JOB = Job(framework="command")

_NODE = """
import asyncio, logging, os, sys
from pathlib import Path
import rdzv_command
rdzv_command.install_features()
from rendezvous.talk.join_string import JoinString
from worker.agent import AgentEnvironment, run_agent
from worker.settings import WorkerSettings

logging.basicConfig(level="INFO")
folder = Path(sys.argv[1])
settings = WorkerSettings(loopback=True, framework="command", log_dir=folder / "logs", hosts="auto")
environment = AgentEnvironment(hosts_file=folder / "hosts", hosts_seconds=1.0)
join = JoinString.parse(os.environ.pop("JOIN"))
sys.exit(asyncio.run(run_agent(settings, join, ["sleep", "60"], environment=environment)))
"""


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with running(tmp_path_factory.mktemp("registry")) as registry:
        yield registry


@contextmanager
def agent(registry: Registry, launch: Launch, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The real agent of slot 0."""
    (folder / "hosts").write_text("127.0.0.1 localhost\n")
    keys = launch.keys
    named = (keys.launch_id, 0, 1, keys.join_token(0, 1), keys.row_key, keys.probe_key)
    join = JoinString(registry.place, launch.run, *named)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("NCCL_")}
    with (folder / "agent.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", _NODE, str(folder)],
            env={**environ, "JOIN": join.text()},
            stdin=subprocess.DEVNULL,
            stderr=log,
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


async def joined(registry: Registry, launch: Launch) -> None:
    """Wait until slot 0 has a node."""
    async with timeout(30):
        while (await registry.status(launch)).slots[0].node_state is None:
            await asyncio.sleep(0.02)


def identity(launch: Launch, slot: int) -> Identity:
    return Identity(launch.keys.probe_key, launch.run, launch.keys.launch_id, slot)


async def open_when_read(fifo: Path) -> FileIO:
    """The end of a FIFO to write to, once somebody reads from it, who then waits."""
    async with timeout(30):
        while True:
            try:
                return FileIO(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK), "w")
            except OSError:
                await asyncio.sleep(0.02)


async def test_an_agent_ends_though_a_thread_of_it_hangs_in_the_hosts_file(
    registry: Registry, tmp_path: Path
) -> None:
    launch, hosts = Launch("stuck"), tmp_path / "hosts"
    await registry.create(launch, 2, job=JOB)
    with ProbeListener(identity(launch, 1)) as listener, agent(registry, launch, tmp_path) as found:
        await joined(registry, launch)
        hosts.unlink()
        os.mkfifo(hosts)
        async with Node(registry.place, launch, 1, probe_port=listener.port, job=JOB) as node:
            await node.follow(lambda view: view.phase is Phase.ARMING)
            with await open_when_read(hosts):
                found.terminate()
                assert await asyncio.to_thread(found.wait, 45) == 128 + signal.SIGTERM
    assert "could not be restored within 1 s" in (tmp_path / "agent.log").read_text()


async def outcome_of(launch: Launch, plan: ProbePlan) -> str:
    """Whether slot 0 answers slot 1."""
    (pair,) = await probe_peers(identity(launch, 1), plan, [0])
    return pair.outcome


async def test_an_agent_proves_its_peers_and_answers_theirs_until_the_go(
    registry: Registry, tmp_path: Path
) -> None:
    launch = Launch("mesh")
    await registry.create(launch, 2, job=JOB)
    with ProbeListener(identity(launch, 1)) as listener, agent(registry, launch, tmp_path):
        await joined(registry, launch)
        async with Node(registry.place, launch, 1, probe_port=listener.port, job=JOB) as node:
            view = await node.follow(lambda view: view.plan is not None)
            assert view.plan is not None
            assert await outcome_of(launch, view.plan) == "ok"
            good = PairProbe(slot=0, outcome="ok")
            await node.report(ProbeReport(epoch=view.epoch, pairs=[good]))
            await node.run()
            async with registry.client() as client:
                (back,) = (await client.checks(launch.run)).rounds[-1].reports[0]
            assert (back.slot, back.outcome) == (1, "ok")
            async with timeout(30):
                while await outcome_of(launch, view.plan) != "refused":
                    await asyncio.sleep(0.05)
            assert (await registry.status(launch)).phase is Phase.RUNNING
