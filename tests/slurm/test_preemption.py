"""A real Slurm takes nodes back: what the launch makes of it, and a launcher that is requeued."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from rendezvous.wire.errors import ExitCode
from tests.slurm.cluster import PROGRAMS, Slurm, slurm
from tests.slurm.test_slurm import LIMIT_SECONDS, SPECS, WORKERS, launching, states
from tests.support.nightly import at_night
from tests.support.waiting import until

pytestmark = [
    pytest.mark.schedulers(*PROGRAMS),
    pytest.mark.netns,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("slurm losses"),  # beside the cluster of test_slurm
]

SLEEPS = [sys.executable, "-c", "import time; time.sleep(1000)"]
# The first start never ends: the second one finds what that has left, as it would a checkpoint.
TWICE = (
    "import os, pathlib, sys, time; "
    "mark = pathlib.Path(sys.argv[1], 'mark-' + os.environ['NODE_RANK']); "
    "mark.exists() or (mark.touch(), time.sleep(1000))"
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """The cluster."""
    with slurm(tmp_path_factory.mktemp("slurm")) as up:
        yield up


@pytest.mark.parametrize("partition", [at_night("again"), "spot"])
def test_a_preemption_is_the_cause_in_slurms_words(
    cluster: Slurm, tmp_path: Path, partition: str
) -> None:
    """`again`: at once. `spot`: after a grace, of which Slurm tells no batch script."""
    options = (*WORKERS, "4", "--set", f"SBATCH=--partition={partition}")
    with launching(cluster, tmp_path, *options, command=SLEEPS) as launch:
        until(lambda: states(cluster, tmp_path) == {("running", "running")}, LIMIT_SECONDS)
        other = cluster.submit_other(1, "--partition=urgent")
        outcome = launch.finish()
        cluster.ask("scancel", other)
        until(lambda: not cluster.jobs(), LIMIT_SECONDS)
    assert outcome.code == ExitCode.PREEMPTED, outcome.err
    assert "; the scheduler preempted its worker run: PREEMPTED: n" in outcome.last_line
    result = json.loads((tmp_path / "state" / "r" / "result.json").read_text())
    assert (result["code"], result["exit_code_of"]) == ("preempted", "rdzv")


@dataclass
class Job:
    """A launcher in a batch job that may be requeued."""

    cluster: Slurm
    folder: Path
    id: str

    @property
    def run(self) -> str:
        return f"slurm-{self.id}"

    @property
    def output(self) -> str:
        path = self.folder / "out"
        return path.read_text() if path.exists() else ""

    def wait_for(self, words: str) -> None:
        until(lambda: words in self.output, LIMIT_SECONDS)

    def wait_until_running(self) -> None:
        """Until its program runs on each node."""
        until(lambda: len(list(self.folder.glob("mark-*"))) == 2, LIMIT_SECONDS)

    def end_well(self) -> str:
        """What it has printed."""
        assert self.cluster.wait_until_over(self.id, LIMIT_SECONDS) == "COMPLETED", self.output
        return self.output

    def lose(self, *, to: str = "n0") -> None:
        """Requeue it as Slurm does when its node is gone: nothing of it says or writes a word.

        Args:
            to: The node where it starts again.
        """
        record = json.loads((self.folder / "state" / self.run / "launch.json").read_text())
        launcher = psutil.Process(record["pid"])
        script = launcher.parent()
        assert script is not None
        script.suspend()  # until Slurm's SIGCONT
        launcher.suspend()
        for process in (*launcher.children(recursive=True), launcher):
            process.kill()
        self.cluster.ask("scontrol", "requeue", self.id)
        until(lambda: self.cluster.state_of(self.id) == "PENDING", LIMIT_SECONDS)
        self.cluster.ask("scontrol", "update", f"JobId={self.id}", f"ReqNodeList={to}")


@contextmanager
def requeueing(
    cluster: Slurm, folder: Path, *options: str, others: str = "--exclude=n0"
) -> Iterator[Job]:
    """The shipped job on n0, with one other node."""
    text = (SPECS / "requeue.sbatch").read_text()
    assert 'others=""' in text
    spec = folder / "requeue.sbatch"
    spec.write_text(text.replace('others=""', f'others="{others}"'))
    env = {"RDZV_STATE_DIR": str(folder / "state"), "RDZV_FRAMEWORK": "command", "NUM_NODES": "2"}
    argv = ["sbatch", "--parsable", "--exclusive", "--nodelist=n0", f"--output={folder / 'out'}"]
    command = [str(spec), sys.executable, "-c", TWICE, str(folder)]
    job = Job(cluster, folder, cluster.ask(*argv, *options, *command, env=env))
    try:
        yield job
        assert set(cluster.jobs()) <= {job.id}, job.output
    finally:
        cluster.end_all_jobs()


@pytest.mark.nightly
def test_a_launcher_that_slurm_preempts_starts_again_with_its_run_id(
    cluster: Slurm, tmp_path: Path
) -> None:
    with requeueing(cluster, tmp_path, "--partition=again") as job:
        job.wait_until_running()
        other = cluster.occupy(1, "--partition=urgent", "--nodelist=n0")
        assert f"run '{job.run}' was cancelled: SIGTERM at the launcher" in job.output
        cluster.ask("scancel", other)
        said = job.end_well()
    words = "the previous launch has ended; starting a new launch"
    assert f"rdzv: the job was requeued (restart 1): {words}" in said
    assert f"rdzv: run '{job.run}' ok: both nodes ended with exit code 0" in said


@pytest.mark.nightly
def test_a_job_requeues_itself_after_a_worker_run_was_preempted(
    cluster: Slurm, tmp_path: Path
) -> None:
    with requeueing(cluster, tmp_path, others="--partition=again --nodelist=n1") as job:
        job.wait_until_running()
        other = cluster.occupy(1, "--partition=urgent", "--nodelist=n1")
        job.wait_for("the scheduler preempted its worker run: PREEMPTED: n1")
        cluster.ask("scancel", other)
        said = job.end_well()
    assert "; exit code 88 (rdzv's)" in said
    assert "the job was requeued (restart 1): the previous launch has ended" in said
    assert f"rdzv: run '{job.run}' ok" in said


@pytest.mark.nightly
def test_a_launcher_lost_after_the_go_begins_anew_once_it_is_requeued(
    cluster: Slurm, tmp_path: Path
) -> None:
    with requeueing(cluster, tmp_path) as job:
        job.wait_until_running()
        job.lose()
        said = job.end_well()
    assert (
        f"rdzv: the job was requeued (restart 1): the previous launch of run '{job.run}' was "
        "running, and its launcher had ended: rdzv ends what is left of it and starts a new launch"
    ) in said
    assert f"rdzv: run '{job.run}' ok" in said


@pytest.mark.nightly
def test_a_launcher_lost_before_the_go_resumes_once_it_is_requeued(
    cluster: Slurm, tmp_path: Path
) -> None:
    blocker = cluster.occupy(3, "--exclude=n0")
    (tmp_path / "mark-0").touch()
    (tmp_path / "mark-1").touch()
    with requeueing(cluster, tmp_path) as job:
        job.wait_for("Resources")
        waiting = cluster.jobs()
        job.lose()
        job.wait_for("rdzv: the job was requeued (restart 1): resuming launch ")
        assert set(cluster.jobs()) == set(waiting)
        cluster.ask("scancel", blocker)
        said = job.end_well()
    assert f"rdzv: run '{job.run}' ok" in said


@pytest.mark.nightly
def test_a_launcher_lost_before_the_go_begins_anew_where_it_is_requeued_on_another_node(
    cluster: Slurm, tmp_path: Path
) -> None:
    """Its workers know only the former node's address."""
    blocker = cluster.occupy(2, "--nodelist=n2,n3")
    (tmp_path / "mark-0").touch()
    (tmp_path / "mark-1").touch()
    with requeueing(cluster, tmp_path, others="--nodelist=n2") as job:
        job.wait_for("queued")
        job.lose(to="n1")
        job.wait_for("on this host: starting a new launch")
        cluster.ask("scancel", blocker)
        said = job.end_well()
    assert f"(restart 1): run '{job.run}' was launched on n0; there is nothing to resume" in said
    assert "1 worker run of the previous launch may still exist: ending" in said
    assert f"rdzv: run '{job.run}' ok" in said
