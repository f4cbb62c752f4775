"""The whole path across emulated hosts, each with its own address, hostname and /etc/hosts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.cluster import cluster
from tests.support.netlab import Host, HostsMode, Lab

PROGRAM = str(Path(__file__).parent.parent / "programs" / "check_all_reduce.py")

pytestmark = [pytest.mark.netns, pytest.mark.timeout(180)]


def expectations(hosts: Sequence[Host]) -> list[str]:
    """What each node's hostname and alias must resolve to, on every node."""
    words = []
    for rank, host in enumerate(hosts):
        words += ["--expect", f"{host.name}={host.address}"]
        words += ["--expect", f"node-{rank}={host.address}"]
    return words


def original_files(lab: Lab) -> list[bytes]:
    """Every host's /etc/hosts."""
    return [host.hosts_file.read_bytes() for host in lab.hosts]


@pytest.mark.torch
@pytest.mark.parametrize(
    ("hosts_mode", "backend", "count", "ipv6_only"),
    [
        ("debian", "static", 3, False),
        pytest.param("none", "static", 2, True, marks=pytest.mark.nightly),
        pytest.param("selfonly", "c10d", 2, False, marks=pytest.mark.nightly),
    ],
)
def test_nodes_that_know_at_most_their_own_name_train_together(
    tmp_path: Path, hosts_mode: HostsMode, backend: str, count: int, ipv6_only: bool
) -> None:
    with Lab(count, hosts_mode=hosts_mode, ipv6_only=ipv6_only) as lab:
        before = original_files(lab)
        command = [PROGRAM, *expectations(lab.hosts)]
        options = ("--rdzv-backend", backend, "--nproc-per-node", "2" + ",1" * (count - 1))
        with cluster(lab, tmp_path, *options, command=command) as run:
            run.start_workers()
            outcome = run.finish()
        assert outcome.code == 0, outcome.err + str(run.told)
        results = run.results(outcome)
        world = count + 1
        assert [r["rank"] for r in results] == list(range(world))
        assert {r["sum"] for r in results} == {world * (world + 1) // 2}
        names = {str(r["hostname"]) for r in results}
        assert names == {host.name for host in lab.hosts}
        if backend == "static":
            ranks = [lab.hosts[0].name] * 2 + [host.name for host in lab.hosts[1:]]
            assert [r["hostname"] for r in results] == ranks
            assert {r["master_addr"] for r in results} == {lab.hosts[0].address}
        assert original_files(lab) == before
