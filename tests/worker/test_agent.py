"""The agent against a real registry, where its own timing decides."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from rendezvous.errors import ExitCode
from rendezvous.schema import Job, PairProbe, Phase, ProbePlan, ProbeReport
from rendezvous.security import JoinString
from tests.rendezvous.registry import Launch, Node, Registry, running
from worker.probe.listener import ProbeListener
from worker.probe.mesh import probe_peers
from worker.probe.packets import Identity

JOB = Job(framework="command")

_NODE = """
import asyncio, os, sys
from pathlib import Path
import worker.agent
from rendezvous.security import JoinString
from worker.settings import WorkerSettings

worker.agent.HOSTS_FILE = Path(sys.argv[1])
join = JoinString.parse(os.environ["JOIN"])
settings = WorkerSettings(
    loopback=True, hosts="auto", framework="command", log_dir=Path(sys.argv[2])
)
work = worker.agent.run_agent(settings, join, ["sleep", "60"], dict(os.environ))
sys.exit(asyncio.run(work))
"""


def start_node(registry: Registry, launch: Launch, folder: Path) -> subprocess.Popen[bytes]:
    keys = launch.keys
    join = JoinString(
        registry.place,
        launch.run,
        keys.launch_id,
        0,
        1,
        keys.join_token(0, 1),
        keys.row_key,
        keys.probe_key,
    )
    return subprocess.Popen(
        [sys.executable, "-c", _NODE, str(folder / "hosts"), str(folder)],
        env={**os.environ, "JOIN": join.text()},
        stdin=subprocess.DEVNULL,
    )


async def test_a_node_that_takes_longer_than_its_lease_to_prepare_keeps_its_slot(
    tmp_path: Path,
) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n")
    launch = Launch("slow")
    with running(tmp_path) as registry, hosts.open("r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        await registry.create(launch, 1, lease_seconds=2, job=JOB)
        node = start_node(registry, launch, tmp_path)
        try:
            await registry.wait_for_phase(launch, Phase.ARMING)
            await asyncio.sleep(3)
            status = await registry.status(launch)
            assert (status.phase, status.slots[0].incarnation) == (Phase.ARMING, 1)
            fcntl.flock(held, fcntl.LOCK_UN)
            await registry.wait_for_phase(launch, Phase.RUNNING)
        finally:
            node.terminate()
            node.wait(10)


def identity(launch: Launch, slot: int) -> Identity:
    return Identity(launch.keys.probe_key, launch.run, launch.keys.launch_id, slot)


@contextlib.contextmanager
def agent(registry: Registry, launch: Launch, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The real agent of slot 0."""
    (folder / "hosts").write_text("127.0.0.1 localhost\n")
    process = start_node(registry, launch, folder)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(10)


async def probes_of(registry: Registry, launch: Launch, slot: int) -> list[PairProbe]:
    """What a node has reported of its peers, in the newest round."""
    async with registry.client() as client:
        report = await client.checks(launch.run)
    return report.rounds[-1].reports[slot]


async def outcome_of(launch: Launch, plan: ProbePlan) -> str:
    """Whether slot 0 answers slot 1."""
    (pair,) = await probe_peers(identity(launch, 1), plan, [0])
    return pair.outcome


async def test_an_agent_proves_its_peers_and_answers_theirs_until_the_go(tmp_path: Path) -> None:
    launch = Launch("mesh")
    with running(tmp_path) as registry, ProbeListener(identity(launch, 1)) as listener:
        await registry.create(launch, 2, job=JOB)
        with agent(registry, launch, tmp_path):
            async with Node(registry.place, launch, 1, probe_port=listener.port, job=JOB) as node:
                view = await node.follow(lambda view: view.plan is not None)
                assert view.plan is not None
                there = await probe_peers(identity(launch, 1), view.plan, [0])
                assert [(pair.slot, pair.outcome) for pair in there] == [(0, "ok")]
                await node.report(ProbeReport(epoch=view.epoch, pairs=there))
                await node.run()
                back = await probes_of(registry, launch, 0)
                assert [(pair.slot, pair.outcome) for pair in back] == [(1, "ok")]
                async with asyncio.timeout(30):
                    while await outcome_of(launch, view.plan) != "refused":
                        await asyncio.sleep(0.05)


async def test_an_agent_tells_which_peer_does_not_answer(tmp_path: Path) -> None:
    launch = Launch("mesh")
    with running(tmp_path) as registry, ProbeListener(identity(launch, 7)) as other:
        await registry.create(launch, 2, job=JOB)
        with agent(registry, launch, tmp_path) as process:
            async with Node(registry.place, launch, 1, probe_port=other.port, job=JOB) as node:
                view = await node.follow(lambda view: view.result is not None)
                said = await probes_of(registry, launch, 0)
            assert process.wait(30) == ExitCode.VERIFICATION_FAILED
    assert [(pair.slot, pair.outcome, pair.detail) for pair in said] == [
        (1, "wrong_node", "slot 7 answers at 127.0.1.2")
    ]
    assert view.result is not None
    assert view.result.code == "verification_failed"
