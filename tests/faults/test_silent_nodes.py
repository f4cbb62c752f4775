"""Hosts of a run fall silent, on emulated hosts: nothing of an older program meets a newer one."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from rendezvous.wire.watch import poll_seconds
from tests.support.cluster import Cluster, cluster
from tests.support.epochs import program, starts_apart, starts_in
from tests.support.launching import RDZV, environment
from tests.support.losses import SIX, end, epochs_of
from tests.support.netlab import Lab
from tests.support.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.netns, pytest.mark.timeout(200)]

LEASE, FENCE, GRACE = 4, 9, 1
ORPHAN = 11
"""Seconds: so long a host that nobody reaches any more tries to, before its agent ends."""
REPLACE = (
    *("--framework", "command", "--on-node-loss", "replace", "--standby", "1"),
    *("--lease", str(LEASE), "--fence-timeout", str(FENCE), "--grace", str(GRACE)),
    *("--orphan-timeout", str(ORPHAN)),
)
# Deaf: only SIGKILL ends it. It says all the time that it is alive.
LIVES = """
while not (folder / f"end-{epoch}").exists():
    write(f"alive-{epoch}-{rank}", time.monotonic())
    time.sleep(0.02)
"""


@contextmanager
def running(
    lab: Lab, folder: Path, *options: str, env: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """Three nodes that run, and a standby, on the first four hosts."""
    command = program(folder, LIVES, before="hear(signal.SIGTERM)\n")
    options = ("--nnodes", "3", *REPLACE, *options)
    with cluster(lab, folder, *options, command=command, env=env) as run:
        run.start_workers(1, 2, 3)
        until(lambda: len(starts_in(folder)) == 3)
        yield run


def alive_at(folder: Path, epoch: int, rank: int) -> float:
    """When a program last was alive."""
    return float((folder / f"alive-{epoch}-{rank}").read_text())


def test_a_silent_host_is_replaced_once_its_fence_is_over(tmp_path: Path) -> None:
    with Lab(4) as lab, running(lab, tmp_path) as run:
        cut = time.monotonic()
        lab.lose(lab.hosts[1], 100)
        until(lambda: len(starts_in(tmp_path)) == 6, 60)
        end(tmp_path)
        assert run.finish().code == 0
        again = max(start.at for start in starts_in(tmp_path)[3:]) - cut
        gone = alive_at(tmp_path, 1, 1) - cut
    assert epochs_of(starts_apart(tmp_path)) == SIX
    print(f"silent -> its program gone {gone:.2f} s, all start again {again:.2f} s")
    # Both count from when they last heard of each other, which is up to a poll before the cut.
    assert FENCE - GRACE - 2 - 2 < gone < FENCE - poll_seconds(4, LEASE) < again


@pytest.mark.nightly
def test_a_program_whose_agent_stands_still_is_gone_before_its_replacement_starts(
    tmp_path: Path,
) -> None:
    """Nobody but what keeps the program can end it."""
    with Lab(4) as lab, running(lab, tmp_path) as run:
        agent = psutil.Process(run.workers[1].pid)
        agent.suspend()
        until(lambda: len(starts_in(tmp_path)) == 6, 60)
        agent.resume()
        assert run.workers[1].wait(60) != 0
        end(tmp_path)
        assert run.finish().code == 0
    assert epochs_of(starts_apart(tmp_path)) == SIX


@contextmanager
def standing(lab: Lab, host: int, folder: Path) -> Iterator[dict[str, str]]:
    """`rdzv serve` on a host; what its launchers need to know."""
    address = lab.hosts[host].address
    argv = [RDZV, "serve", "--registry-address", address]
    server = lab.hosts[host].start(argv, env=environment(folder), stdout=subprocess.PIPE)
    assert server.stdout is not None
    said = server.stdout.readline()
    yield {"RDZV_REGISTRY_FILE": said.rsplit("RDZV_REGISTRY_FILE=", 1)[1].strip()}
    server.terminate()
    server.communicate(timeout=30)


@pytest.mark.nightly
def test_the_machine_of_launcher_and_slot_0_is_lost_where_the_registry_is_elsewhere(
    tmp_path: Path,
) -> None:
    """A standby becomes rank 0; nobody is left who could submit anything, and the run ends ok."""
    with (
        Lab(5) as lab,
        standing(lab, 4, tmp_path / "registry") as env,
        running(lab, tmp_path, env=env) as run,
    ):
        lab.lose(lab.hosts[0], 100)
        until(lambda: len(starts_in(tmp_path)) == 6, 60)
        end(tmp_path)
        for slot in (1, 2, 3):
            assert run.workers[slot].wait(60) == 0
        run.launcher.kill()
    assert epochs_of(starts_apart(tmp_path)) == SIX
