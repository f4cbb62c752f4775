"""Open MPI's own mpirun over `rdzv rsh`: what happens when something dies in the middle."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.frameworks.environments import ENVIRONMENTS
from tests.frameworks.lab import JOBS, environment_of, left_on
from tests.support.cluster import Cluster, cluster
from tests.support.netlab import Lab
from tests.support.waiting import until

pytestmark = [
    pytest.mark.netns,
    pytest.mark.timeout(200),
    pytest.mark.frameworks("torch", "mpirun", "mpicc"),
]


@contextmanager
def waiting(folder: Path, code: int) -> Iterator[tuple[Lab, Cluster]]:
    """A job of four ranks on two hosts that waits for the file `go`; the last one ends with `code`.

    All of it runs.
    """
    program = folder / "program"
    subprocess.run(["mpicc", "-o", program, JOBS / "mpi_wait.c"], check=True)
    command = [str(program), str(folder / "go"), str(code)]
    options = ("--framework", "openmpi", "--nproc-per-node", "2")
    env = environment_of(ENVIRONMENTS["torch"], folder)
    with Lab(2) as lab, cluster(lab, folder, *options, command=command, env=env) as run:
        run.start_workers()
        log = run.state(0) / "r" / "logs" / "node-0.log"
        until(lambda: log.exists() and log.read_text().count("of 4, sum 6\n") == 4)
        yield lab, run


def test_the_code_of_a_rank_on_another_host_is_the_runs(tmp_path: Path) -> None:
    with waiting(tmp_path, 3) as (lab, run):
        (tmp_path / "go").touch()
        outcome = run.finish()
        until(lambda: left_on(lab) == [])
    assert outcome.code == 3
    assert "run 'r' failed: node 0 (h0) failed first: the program ended with exit code 3" in (
        outcome.last_line
    )


def test_a_node_that_dies_inside_of_mpirun_ends_the_run_and_is_named(tmp_path: Path) -> None:
    with waiting(tmp_path, 0) as (lab, run):
        psutil.Process(run.workers[1].pid).kill()
        outcome = run.finish()
        until(lambda: left_on(lab) == [])
    assert outcome.code == 86
    assert "run 'r' failed: node 1 (h1) was lost" in outcome.last_line


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["orted", "program"])
def test_a_daemon_or_a_rank_that_is_killed_ends_all_of_the_run(tmp_path: Path, name: str) -> None:
    with waiting(tmp_path, 0) as (lab, run):
        below = psutil.Process(run.workers[1].pid).children(recursive=True)
        [process for process in below if process.name() == name][-1].kill()
        outcome = run.finish()
        until(lambda: left_on(lab) == [])
    assert outcome.code not in (0, 86)
    assert "run 'r' failed: node 0 (h0) failed" in outcome.last_line


@pytest.mark.nightly
def test_a_launch_that_is_interrupted_leaves_nothing_of_mpirun(tmp_path: Path) -> None:
    with waiting(tmp_path, 0) as (lab, run):
        run.launcher.send_signal(signal.SIGINT)
        outcome = run.finish()
        until(lambda: left_on(lab) == [])
    assert outcome.code in (84, 130), outcome.err


@contextmanager
def mounted_noexec(*folders: Path) -> Iterator[None]:
    """Folders in which no program can be run, as hardened machines mount /tmp and data disks."""
    for folder in folders:
        folder.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "noexec,mode=700", "x", folder], check=True)
    try:
        yield
    finally:
        for folder in folders:
            subprocess.run(["umount", "--lazy", folder], check=True)


def test_mpirun_reaches_the_other_nodes_where_the_log_folder_runs_no_programs(
    tmp_path: Path,
) -> None:
    with mounted_noexec(tmp_path / "h0", tmp_path / "h1"), waiting(tmp_path, 0) as (lab, run):
        (tmp_path / "go").touch()
        outcome = run.finish()
        until(lambda: left_on(lab) == [])
    assert outcome.code == 0, outcome.last_line
