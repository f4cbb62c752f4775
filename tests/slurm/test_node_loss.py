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
from tests.support.epochs import starts_apart, starts_in
from tests.support.losses import (
    REPLACE,
    SOON,
    THREE,
    check_end,
    end,
    epochs_of,
    wait_for_first,
    wait_for_second,
    waiting,
)
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


@contextmanager
def running(cluster: Slurm, folder: Path, *options: str) -> Iterator[Launch]:
    """Three jobs whose programs have started."""
    words = (*WORKERS, "3", *REPLACE, *options)
    with launching(cluster, folder, *words, command=waiting(folder)) as launch:
        wait_for_first(folder)
        yield launch


def job_of(cluster: Slurm, slot: int, generation: int = 1) -> str:
    """The job of a worker run; waits for it."""
    end = f"-{slot}-{generation}"
    [job] = until(lambda: [one for one, name in cluster.jobs().items() if name.endswith(end)])
    return job


def host_of(cluster: Slurm, job: str) -> str:
    """Where a job runs."""
    return cluster.ask("squeue", "--noheader", f"--jobs={job}", "--format=%N")


def test_a_job_that_somebody_cancels_is_submitted_again(cluster: Slurm, tmp_path: Path) -> None:
    with running(cluster, tmp_path) as launch:
        older, lost = job_of(cluster, 1), time.monotonic()
        cluster.ask("scancel", older)
        wait_for_second(tmp_path, lost, "scancel, submitted again")
        until(lambda: older not in cluster.jobs(), LIMIT_SECONDS)
        assert job_of(cluster, 1, 2)
        end(tmp_path)
        outcome = launch.finish()
    check_end(tmp_path, outcome.code, outcome.err)
    assert "slot 1 is submitted again (replacement 1 of 3)" in outcome.err
    assert cluster.state_of(older) == "CANCELLED"


@pytest.mark.nightly
def test_a_standby_steps_in_for_a_job_that_slurm_preempts(cluster: Slurm, tmp_path: Path) -> None:
    """No node is free for the next standby, which the run does not wait for."""
    options = ("--standby", "1", "--set", "SBATCH=--partition=again")
    with running(cluster, tmp_path, *options) as launch:
        older, lost = job_of(cluster, 0), time.monotonic()
        place = f"--nodelist={host_of(cluster, older)}"
        urgent = cluster.submit_other(1, "--partition=urgent", place)
        wait_for_second(tmp_path, lost, "preempted, a standby there")
        until(lambda: cluster.state_of(urgent) == "RUNNING", LIMIT_SECONDS)
        assert cluster.state_of(job_of(cluster, 0, 2)) == "PENDING"
        end(tmp_path)
        outcome = launch.finish()
        assert set(cluster.jobs()) == {urgent}, outcome.err
        cluster.ask("scancel", urgent)
        until(lambda: not cluster.jobs(), LIMIT_SECONDS)
    check_end(tmp_path, outcome.code, outcome.err)
    assert "takes the place of node" in outcome.err
    assert cluster.state_of(older) == "PREEMPTED"


@pytest.mark.nightly
@pytest.mark.parametrize("partition", ["again", "spot"])
def test_the_replacement_of_a_preempted_job_waits_for_a_node(
    cluster: Slurm, tmp_path: Path, partition: str
) -> None:
    blocker = cluster.occupy(1, "--partition=all")
    with running(cluster, tmp_path, "--set", f"SBATCH=--partition={partition}") as launch:
        lost = time.monotonic()
        urgent = cluster.submit_other(1, "--partition=urgent")
        launch.wait_for("Resources")
        cluster.ask("scancel", blocker)
        wait_for_second(tmp_path, lost, f"preempted in {partition}, another node free later")
        cluster.ask("scancel", urgent)
        end(tmp_path)
        outcome = launch.finish()
        until(lambda: not cluster.jobs(), LIMIT_SECONDS)
    check_end(tmp_path, outcome.code, outcome.err)


@pytest.mark.nightly
def test_a_job_whose_agent_is_killed_is_submitted_again(cluster: Slurm, tmp_path: Path) -> None:
    with running(cluster, tmp_path) as launch:
        older = job_of(cluster, 0)
        [host] = [one for one in cluster.nodes if one.name == host_of(cluster, older)]
        agents = [one for one in map(psutil.Process, host.pids()) if "worker" in one.cmdline()]
        lost = time.monotonic()
        for agent in agents:
            agent.kill()
        wait_for_second(tmp_path, lost, "agent killed, submitted again")
        end(tmp_path)
        outcome = launch.finish()
    check_end(tmp_path, outcome.code, outcome.err)
    assert len(agents) == 1
    assert cluster.state_of(older) == "FAILED"


def test_a_replacement_runs_on_another_node(cluster: Slurm, tmp_path: Path) -> None:
    """Slurm alone would take the same one again: the first that is free."""
    with running(cluster, tmp_path) as launch:
        older, lost = job_of(cluster, 1), time.monotonic()
        former = host_of(cluster, older)
        cluster.ask("scancel", older)
        wait_for_second(tmp_path, lost, "scancel, submitted again for another node")
        assert host_of(cluster, job_of(cluster, 1, 2)) != former
        end(tmp_path)
        outcome = launch.finish()
    check_end(tmp_path, outcome.code, outcome.err)
    assert f"slot 1: rdzv asks for another host than {former}" in outcome.err


@pytest.mark.nightly
def test_where_no_other_node_comes_free_it_is_the_same_one(cluster: Slurm, tmp_path: Path) -> None:
    with running(cluster, tmp_path, "--avoid", "n[0-0]") as launch:
        assert {host_of(cluster, job) for job in cluster.jobs()} == {"n1", "n2", "n3"}
        older, lost = job_of(cluster, 1), time.monotonic()
        former = host_of(cluster, older)
        cluster.ask("scancel", older)
        launch.wait_for(f"Resources; another host than {former} is asked for")
        wait_for_second(tmp_path, lost, "scancel, no other node free")
        assert host_of(cluster, job_of(cluster, 1, 3)) == former
        end(tmp_path)
        outcome = launch.finish()
    check_end(tmp_path, outcome.code, outcome.err)
    assert f"another host than {former} has not come free within 60 s" in outcome.err


@pytest.mark.nightly
def test_a_job_whose_node_falls_silent_is_submitted_again_elsewhere(
    cluster: Slurm, tmp_path: Path
) -> None:
    """Slurm itself misses the node only later."""
    with running(cluster, tmp_path, *SOON) as launch:
        older = job_of(cluster, 1)
        [host] = [one for one in cluster.nodes if one.name == host_of(cluster, older)]
        lost = time.monotonic()
        cluster.lab.lose(host, 100)
        wait_for_second(tmp_path, lost, "its node silent, submitted again")
        assert host_of(cluster, job_of(cluster, 1, 2)) != host.name
        cluster.lab.lose(host, 0)
        end(tmp_path)
        outcome = launch.finish()
    check_end(tmp_path, outcome.code, outcome.err)
    assert cluster.state_of(older) == "CANCELLED"


@pytest.mark.nightly
def test_a_launcher_that_is_killed_while_a_job_is_replaced_goes_on_with_that(
    cluster: Slurm, tmp_path: Path
) -> None:
    """No node is free for the replacement; the others have ended their programs, and wait."""
    options = ("--set", "SBATCH=--partition=again")
    blocker = cluster.occupy(1, "--partition=all")
    with running(cluster, tmp_path, *options) as first:
        lost = time.monotonic()
        urgent = cluster.submit_other(1, "--partition=urgent")
        first.wait_for("Resources")
        waiting_jobs, said = cluster.jobs(), first.output.read_text().count("Resources")
        first.process.kill()
        first.process.wait()
        with running(cluster, tmp_path, *options) as second:
            second.wait_for("Resources", said + 1)
            assert cluster.jobs() == waiting_jobs
            cluster.ask("scancel", blocker)
            wait_for_second(tmp_path, lost, "preempted, and its launcher killed")
            cluster.ask("scancel", urgent)
            end(tmp_path)
            outcome = second.finish()
            until(lambda: not cluster.jobs(), LIMIT_SECONDS)
    check_end(tmp_path, outcome.code, outcome.err)


@pytest.mark.nightly
def test_a_run_that_may_shrink_goes_on_without_a_job_that_somebody_cancels(
    cluster: Slurm, tmp_path: Path
) -> None:
    words = (*WORKERS, "2:3", "--on-node-loss", "shrink")
    with launching(cluster, tmp_path, *words, command=waiting(tmp_path)) as launch:
        wait_for_first(tmp_path)
        cluster.ask("scancel", job_of(cluster, 1))
        until(lambda: len(starts_in(tmp_path)) == 5, LIMIT_SECONDS)
        end(tmp_path)
        outcome = launch.finish()
    assert outcome.code == 0, outcome.err
    assert epochs_of(starts_apart(tmp_path)) == [*THREE, (2, 0), (2, 1)]
