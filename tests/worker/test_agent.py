"""The agent against a real registry, where its own timing decides."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from io import FileIO
from pathlib import Path

import pytest

from rendezvous.compat import timeout
from rendezvous.talk.join_string import JoinString
from rendezvous.wire.errors import ExitCode
from rendezvous.wire.node import Job
from rendezvous.wire.run import Phase
from rendezvous.wire.verify import PairProbe, ProbePlan, ProbeReport
from tests.support.registry import Launch, Node, Registry, running
from worker.probe.listener import ProbeListener
from worker.probe.mesh import probe_peers
from worker.probe.packets import Identity

pytestmark = pytest.mark.real_time

JOB = Job(framework="command")
PLAIN = "127.0.0.1 localhost\n"

_NODE = """
import asyncio, functools, os, sys
import logging
from pathlib import Path
from rendezvous.talk.join_string import JoinString
from worker.agent import AgentEnvironment, run_agent
from worker.hosts.file import HostsBlock
from worker.settings import WorkerSettings

logging.basicConfig(level="INFO")
join = JoinString.parse(os.environ["JOIN"])
settings = WorkerSettings(
    loopback=True, hosts="auto", framework="command", log_dir=Path(sys.argv[2])
)
environment = AgentEnvironment(
    hosts_file=Path(sys.argv[1]),
    hosts_seconds=float(sys.argv[3]),
    hosts_block=functools.partial(HostsBlock, lock_seconds=60.0),
)
work = run_agent(settings, join, ["sleep", "60"], environment=environment)
sys.exit(asyncio.run(work))
"""


def start_node(
    registry: Registry,
    launch: Launch,
    folder: Path,
    *,
    slot: int = 0,
    hosts_seconds: float = 60.0,
) -> subprocess.Popen[bytes]:
    keys = launch.keys
    join = JoinString(
        registry.place,
        launch.run,
        keys.launch_id,
        slot,
        1,
        keys.join_token(slot, 1),
        keys.row_key,
        keys.probe_key,
    )
    with (folder / "agent.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-c", _NODE, str(folder / "hosts"), str(folder), str(hosts_seconds)],
            env={**os.environ, "JOIN": join.text()},
            stdin=subprocess.DEVNULL,
            stderr=log,
        )


@pytest.mark.nightly
async def test_a_node_that_takes_longer_than_its_lease_to_prepare_keeps_its_slot(
    tmp_path: Path,
) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text(PLAIN)
    launch = Launch("slow")
    with running(tmp_path) as registry, hosts.open("r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        await registry.create(launch, 1, lease_seconds=5, job=JOB)
        node = start_node(registry, launch, tmp_path)
        try:
            await joined(registry, launch, 0)
            await registry.wait_for_phase(launch, Phase.ARMING)
            await asyncio.sleep(6)
            status = await registry.status(launch)
            assert (status.phase, status.slots[0].incarnation) == (Phase.ARMING, 1)
            fcntl.flock(held, fcntl.LOCK_UN)
            await registry.wait_for_phase(launch, Phase.RUNNING)
        finally:
            node.terminate()
            node.wait(30)


@contextlib.asynccontextmanager
async def stuck_in_arming(
    registry: Registry, launch: Launch, folder: Path, hosts_seconds: float
) -> AsyncIterator[tuple[subprocess.Popen[bytes], FileIO]]:
    """The agent of slot 0, which hangs in reading its hosts file: a FIFO, of which the end to write
    to is given as well."""
    hosts = folder / "hosts"
    hosts.write_text(PLAIN)
    await registry.create(launch, 2, job=JOB)
    process = start_node(registry, launch, folder, hosts_seconds=hosts_seconds)
    try:
        await joined(registry, launch, 0)
        hosts.unlink()
        os.mkfifo(hosts)
        with ProbeListener(identity(launch, 1)) as listener:
            async with Node(registry.place, launch, 1, probe_port=listener.port, job=JOB) as node:
                await node.follow(lambda view: view.phase is Phase.ARMING)
                with await open_when_read(hosts) as feed:
                    yield process, feed
    finally:
        process.kill()
        process.wait()


async def joined(registry: Registry, launch: Launch, slot: int) -> None:
    """Wait until the slot has a node."""
    async with timeout(30):
        while (await registry.status(launch)).slots[slot].node_state is None:
            await asyncio.sleep(0.02)


async def open_when_read(fifo: Path) -> FileIO:
    """The end of a FIFO to write to, once somebody reads from it, who then waits."""
    async with timeout(30):
        while True:
            try:
                return FileIO(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK), "w")
            except OSError:
                await asyncio.sleep(0.02)


async def test_an_agent_ends_though_its_hosts_file_hangs_and_says_so(tmp_path: Path) -> None:
    launch = Launch("stuck")
    with running(tmp_path) as registry:
        async with stuck_in_arming(registry, launch, tmp_path, hosts_seconds=1) as (process, _):
            process.terminate()
            assert await asyncio.to_thread(process.wait, 45) == 128 + signal.SIGTERM
    assert (
        f"{tmp_path / 'hosts'} could not be put back within 1 s, as a disk or network file system "
        "hangs; the node ends all the same, and the next rdzv on this machine puts it back"
    ) in (tmp_path / "agent.log").read_text()


async def test_a_hosts_file_that_answers_late_is_still_put_back(tmp_path: Path) -> None:
    launch = Launch("late")
    hosts = tmp_path / "hosts"
    with running(tmp_path) as registry:
        async with stuck_in_arming(registry, launch, tmp_path, hosts_seconds=60) as (process, feed):
            process.terminate()
            await registry.events(launch, "exited")
            hosts.unlink()
            hosts.write_text(PLAIN)
            os.utime(hosts, (1, 1))  # the clock of a file system is coarse
            feed.write(PLAIN.encode())
            feed.close()  # the hanging read ends
            assert await asyncio.to_thread(process.wait, 45) == 128 + signal.SIGTERM
    assert hosts.read_text() == PLAIN
    assert hosts.stat().st_mtime > 1


def identity(launch: Launch, slot: int) -> Identity:
    return Identity(launch.keys.probe_key, launch.run, launch.keys.launch_id, slot)


@contextlib.contextmanager
def agent(registry: Registry, launch: Launch, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The real agent of slot 0."""
    (folder / "hosts").write_text(PLAIN)
    process = start_node(registry, launch, folder)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


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
            await joined(registry, launch, 0)
            async with Node(registry.place, launch, 1, probe_port=listener.port, job=JOB) as node:
                view = await node.follow(lambda view: view.plan is not None)
                assert view.plan is not None
                there = await probe_peers(identity(launch, 1), view.plan, [0])
                assert [(pair.slot, pair.outcome) for pair in there] == [(0, "ok")]
                await node.report(ProbeReport(epoch=view.epoch, pairs=there))
                await node.run()
                back = await probes_of(registry, launch, 0)
                assert [(pair.slot, pair.outcome) for pair in back] == [(1, "ok")]
                async with timeout(30):
                    while await outcome_of(launch, view.plan) != "refused":
                        await asyncio.sleep(0.05)


async def test_a_spare_that_comes_after_the_go_ends_well_and_says_why(tmp_path: Path) -> None:
    launch = Launch("late")
    with running(tmp_path) as registry:
        await registry.create(launch, 1, spares=1, last_call_seconds=0, job=JOB)
        async with Node(registry.place, launch, 0, job=JOB) as node:
            await node.run()
            process = start_node(registry, launch, tmp_path, slot=1)
            assert await asyncio.to_thread(process.wait, 45) == 0
    assert (
        "slot 1 came too late: run 'late' went on without it, and well"
        in (tmp_path / "agent.log").read_text()
    )


async def test_a_released_node_ends_well_and_says_why(tmp_path: Path) -> None:
    launch = Launch("spare")
    with running(tmp_path) as registry:
        await registry.create(launch, 2, spares=1, job=JOB)
        process = start_node(registry, launch, tmp_path, slot=2)
        async with (
            Node(registry.place, launch, 0, job=JOB) as one,
            Node(registry.place, launch, 1, job=JOB) as two,
        ):
            await one.join()
            await two.join()
            for node, other in ((one, 1), (two, 0)):
                view = await node.follow(lambda view: view.plan is not None)
                good = PairProbe(slot=other, outcome="ok")
                bad = PairProbe(slot=2, outcome="timeout")
                await node.report(ProbeReport(epoch=view.epoch, pairs=[good, bad]))
            await asyncio.gather(one.run(), two.run())
        assert await asyncio.to_thread(process.wait, 45) == 0
    log = (tmp_path / "agent.log").read_text()
    assert re.search(
        r"this node is released: slot 2 \(.*\) and the 2 others do not reach each", log
    )


async def test_an_agent_tells_which_peer_does_not_answer(tmp_path: Path) -> None:
    launch = Launch("mesh")
    with running(tmp_path) as registry, ProbeListener(identity(launch, 7)) as other:
        await registry.create(launch, 2, job=JOB)
        with agent(registry, launch, tmp_path) as process:
            await joined(registry, launch, 0)
            async with Node(registry.place, launch, 1, probe_port=other.port, job=JOB) as node:
                view = await node.follow(lambda view: view.result is not None)
                said = await probes_of(registry, launch, 0)
            assert process.wait(30) == ExitCode.VERIFICATION_FAILED
    assert [(pair.slot, pair.outcome, pair.detail) for pair in said] == [
        (1, "wrong_node", "slot 7 answers at 127.0.1.2")
    ]
    assert view.result is not None
    assert view.result.code == "verification_failed"
