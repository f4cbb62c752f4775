"""The agent against a real registry, where its own timing decides."""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
import sys
from pathlib import Path

from rendezvous.schema import Job, Phase
from rendezvous.security import JoinString
from tests.rendezvous.registry import Launch, Registry, running

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
