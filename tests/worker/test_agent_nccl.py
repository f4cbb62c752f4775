"""The agent and NCCL's log: what a person is told of the network that NCCL really uses."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rendezvous.talk.join_string import JoinString
from rendezvous.wire.errors import ExitCode
from rendezvous.wire.node import Job
from rendezvous.wire.run import Phase
from tests.support.registry import Launch, Registry, running
from tests.worker.test_agent import joined

pytestmark = pytest.mark.real_time

HERE = Path(__file__).parent
PROGRAM = HERE / "programs" / "like_nccl.py"
SENTENCE = (
    "NCCL uses sockets (eth0), and InfiniBand or RoCE was expected: libibverbs cannot be loaded; "
    "install it in the image, with its providers (rdma-core: libibverbs1, ibverbs-providers)"
)

# A node with a port of InfiniBand, as far as the others are told.
_NODE = """
import asyncio, functools, json, os, sys
from pathlib import Path
from rendezvous.wire.node import RdmaPort
from rendezvous.talk.join_string import JoinString
from worker.agent import AgentEnvironment, run_agent
from worker.nccl.log import NcclLog
from worker.offer.join_request import make_offer
from worker.settings import WorkerSettings

def offer(*args, **options):
    found = make_offer(*args, **options)
    port = RdmaPort(device="mlx5_0", link_layer="InfiniBand", state="ACTIVE", phys_state="LinkUp",
                    rate_gbps=400.0, lid=1, sm_lid=1, pkeys=[0xFFFF])
    facts = found.facts.model_copy(update={"rdma": [port]})
    return found.model_copy(update={"facts": facts, "findings": []})

join = JoinString.parse(os.environ.pop("JOIN"))
settings = WorkerSettings(
    loopback=True, hosts="off", framework="command", log_dir=Path(sys.argv[1]), nccl_log="on",
    require_rdma=json.loads(sys.argv[2]),
)
command = [sys.executable, *sys.argv[3:]]
environment = AgentEnvironment(
    make_offer=offer, nccl_log=functools.partial(NcclLog, look_seconds=0.1)
)
sys.exit(asyncio.run(run_agent(settings, join, command, environment=environment)))
"""


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with running(tmp_path_factory.mktemp("registry")) as registry:
        yield registry


@contextmanager
def node(
    registry: Registry, launch: Launch, logs: Path, *program: str, required: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
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
    given = {k: v for k, v in os.environ.items() if not k.startswith("NCCL_")}
    started = subprocess.Popen(
        [sys.executable, "-c", _NODE, str(logs), str(required).lower(), str(PROGRAM), *program],
        env={**given, "JOIN": join.text()},
        stdin=subprocess.DEVNULL,
    )
    try:
        yield started
    finally:
        started.terminate()
        started.wait(30)


async def create(registry: Registry, launch: Launch) -> None:
    await registry.create(launch, 1, verdict_seconds=0, job=Job(framework="command"))


async def test_a_silent_fall_back_is_a_warning_on_the_board_and_the_run_goes_on(
    registry: Registry, tmp_path: Path
) -> None:
    launch = Launch("slow")
    await create(registry, launch)
    log = HERE / "nccl" / "no_library.log"
    with node(registry, launch, tmp_path / "logs", str(log), "60", "0"):
        await joined(registry, launch, 0)
        lines = await registry.events(launch, "progressed")
        status = await registry.status(launch)
    assert lines[-1].reason.endswith(SENTENCE)
    assert not lines[-1].usual
    assert (status.phase, status.slots[0].progress) == (Phase.RUNNING, SENTENCE)


async def test_with_required_rdma_it_ends_the_run_with_the_sentence(
    registry: Registry, tmp_path: Path
) -> None:
    launch = Launch("strict")
    await create(registry, launch)
    log = HERE / "nccl" / "no_library.log"
    with node(registry, launch, tmp_path / "logs", str(log), "60", "0", required=True) as agent:
        await joined(registry, launch, 0)
        status = await registry.wait_for_phase(launch, Phase.FINISHED)
        code = await asyncio.to_thread(agent.wait, 30)
    assert status.result is not None
    assert status.result.message.endswith(f" failed: {SENTENCE}")
    assert status.result.exit_code == code == ExitCode.PREFLIGHT_FAILED


async def test_what_was_expected_is_the_nodes_progress_and_nothing_to_look_at(
    registry: Registry, tmp_path: Path
) -> None:
    launch = Launch("well")
    await create(registry, launch)
    with node(registry, launch, tmp_path / "logs", str(HERE / "nccl" / "ibext.log"), "60", "0"):
        await joined(registry, launch, 0)
        lines = await registry.events(launch, "progressed")
    assert lines[-1].usual
    assert lines[-1].reason.endswith("NCCL uses IBext (mlx5_0, mlx5_1)")


async def test_a_program_that_fails_for_its_network_is_reported_with_the_cause(
    registry: Registry, tmp_path: Path
) -> None:
    launch = Launch("fails")
    await create(registry, launch)
    log = HERE / "nccl" / "not_found.log"
    with node(registry, launch, tmp_path / "logs", str(log), "0", "3"):
        await joined(registry, launch, 0)
        status = await registry.wait_for_phase(launch, Phase.FINISHED)
    assert status.result is not None
    assert "NCCL cannot use IB, and may use no other network: libibverbs" in status.result.message
    assert status.result.exit_code == 3


async def test_the_logs_are_files_of_their_owner_beside_the_nodes_log(
    registry: Registry, tmp_path: Path
) -> None:
    launch = Launch("kept")
    await create(registry, launch)
    logs = tmp_path / "100%p logs"
    with node(registry, launch, logs, str(HERE / "nccl" / "ib.log"), "0", "0"):
        await joined(registry, launch, 0)
        await registry.wait_for_phase(launch, Phase.FINISHED)
    [kept] = logs.glob("nccl-*/*")
    assert kept.name.startswith("node-0.")
    assert kept.parent.name == f"nccl-{launch.keys.launch_id}"
    assert kept.parent.stat().st_mode & 0o077 == 0
    assert (logs / "node-0.log").exists()
