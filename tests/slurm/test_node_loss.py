"""A real Slurm ends jobs of a run in whatever way: others take their place."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.slurm.cluster import PROGRAMS, Slurm, slurm
from tests.slurm.test_slurm import LIMIT_SECONDS, WORKERS, Launch, launching
from tests.support.losses import (
    REPLACE,
    NodeLoss,
    Nodes,
    finish,
    wait_for_first,
    wait_for_second,
    waiting,
)
from tests.support.netlab import Host
from tests.support.waiting import until

pytestmark = [
    pytest.mark.schedulers(*PROGRAMS),
    pytest.mark.netns,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("slurm losses"),  # beside the cluster of test_slurm
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """The cluster."""
    with slurm(tmp_path_factory.mktemp("slurm")) as up:
        yield up


class Jobs(Nodes):
    """Nodes are jobs, each on a host of its own of a cluster of four."""

    def __init__(self, cluster: Slurm) -> None:
        self.cluster = cluster
        self.former = ""

    @contextmanager
    def running(self, folder: Path, *options: str) -> Iterator[Launch]:
        words = (*WORKERS, "3", *REPLACE, *options)
        with launching(self.cluster, folder, *words, command=waiting(folder)) as launch:
            wait_for_first(folder)
            yield launch

    def job(self, slot: int, generation: int = 1) -> str:
        """The job of a worker run; waits for it."""
        end = f"-{slot}-{generation}"
        jobs = self.cluster.jobs
        [job] = until(lambda: [one for one, name in jobs().items() if name.endswith(end)])
        return job

    def host(self, job: str) -> Host:
        """Where a job runs."""
        name = self.cluster.ask("squeue", "--noheader", f"--jobs={job}", "--format=%N")
        [host] = [one for one in self.cluster.nodes if one.name == name]
        return host

    def kill(self, slot: int) -> None:
        self.former = self.host(job := self.job(slot)).name
        self.cluster.ask("scancel", job)

    def silence(self, slot: int) -> None:
        """Slurm itself misses the host only later."""
        host = self.host(self.job(slot))
        self.former = host.name
        self.cluster.lab.lose(host, 100)

    def answer_again(self) -> None:
        for host in self.cluster.nodes:
            self.cluster.lab.lose(host, 0)

    def check(self, slot: int, said: str) -> None:
        """Slurm alone would take the same host again: the first that is free."""
        assert f"slot {slot}: rdzv asks for another host than {self.former}" in said


@pytest.fixture
def nodes(cluster: Slurm) -> Iterator[Jobs]:
    """The cluster, all of whose hosts answer again after a test."""
    made = Jobs(cluster)
    yield made
    made.answer_again()


class TestJobs(NodeLoss):
    pass


@pytest.mark.nightly
@pytest.mark.parametrize("partition", ["again", "spot"])
def test_the_replacement_of_a_preempted_job_waits_for_a_node(
    nodes: Jobs, tmp_path: Path, partition: str
) -> None:
    blocker = nodes.cluster.occupy(1, "--partition=all")
    with nodes.running(tmp_path, "--set", f"SBATCH=--partition={partition}") as launch:
        lost = time.monotonic()
        urgent = nodes.cluster.submit_other(1, "--partition=urgent")
        launch.wait_for("Resources")
        nodes.cluster.ask("scancel", blocker)
        wait_for_second(tmp_path, lost, f"preempted in {partition}, another node free later")
        nodes.cluster.ask("scancel", urgent)
        finish(launch, tmp_path)
        until(lambda: not nodes.cluster.jobs(), LIMIT_SECONDS)


@pytest.mark.nightly
def test_a_job_whose_agent_is_killed_is_submitted_again(nodes: Jobs, tmp_path: Path) -> None:
    with nodes.running(tmp_path) as launch:
        older = nodes.job(0)
        pids = nodes.host(older).pids()
        agents = [one for one in map(psutil.Process, pids) if "worker" in one.cmdline()]
        lost = time.monotonic()
        for agent in agents:
            agent.kill()
        wait_for_second(tmp_path, lost, "agent killed, submitted again")
        finish(launch, tmp_path)
    assert len(agents) == 1
    assert nodes.cluster.state_of(older) == "FAILED"


@pytest.mark.nightly
def test_where_no_other_node_comes_free_it_is_the_same_one(nodes: Jobs, tmp_path: Path) -> None:
    with nodes.running(tmp_path, "--avoid", "n[0-0]") as launch:
        assert {nodes.host(job).name for job in nodes.cluster.jobs()} == {"n1", "n2", "n3"}
        lost = time.monotonic()
        nodes.kill(1)
        launch.wait_for(f"Resources; another host than {nodes.former} is asked for")
        wait_for_second(tmp_path, lost, "scancel, no other node free")
        assert nodes.host(nodes.job(1, 3)).name == nodes.former
        said = finish(launch, tmp_path)
    assert f"another host than {nodes.former} has not come free within 60 s" in said


@pytest.mark.nightly
def test_a_launcher_that_is_killed_while_a_job_is_replaced_goes_on_with_that(
    nodes: Jobs, tmp_path: Path
) -> None:
    """No node is free for the replacement; the others have ended their programs, and wait."""
    options = ("--set", "SBATCH=--partition=again")
    blocker = nodes.cluster.occupy(1, "--partition=all")
    with nodes.running(tmp_path, *options) as first:
        lost = time.monotonic()
        urgent = nodes.cluster.submit_other(1, "--partition=urgent")
        first.wait_for("Resources")
        waiting_jobs, said = nodes.cluster.jobs(), first.output.read_text().count("Resources")
        first.process.kill()
        first.process.wait()
        with nodes.running(tmp_path, *options) as second:
            second.wait_for("Resources", said + 1)
            assert nodes.cluster.jobs() == waiting_jobs
            nodes.cluster.ask("scancel", blocker)
            wait_for_second(tmp_path, lost, "preempted, and its launcher killed")
            nodes.cluster.ask("scancel", urgent)
            finish(second, tmp_path)
            until(lambda: not nodes.cluster.jobs(), LIMIT_SECONDS)
