"""The agent against a real registry, where its own timing decides."""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rendezvous.schema import AckReport, ExitReport, Job, Phase
from rendezvous.security import JoinString
from tests.rendezvous.registry import Launch, Registry, running
from worker.agent import _aged

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
        await registry.create(launch, 1, lease_seconds=2, job=Job(framework="command"))
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


@pytest.mark.parametrize("code", [0, 3])
def test_an_exit_is_as_old_as_it_is_when_it_is_told(code: int) -> None:
    report = ExitReport(epoch=1, exit_code=code, age_seconds=0.5)
    assert _aged(report, 2.0) == ExitReport(epoch=1, exit_code=code, age_seconds=2.5)


def test_other_reports_have_no_age() -> None:
    report = AckReport(epoch=1, digest="0" * 64)
    assert _aged(report, 2.0) is report
