"""rdzv on a real Slurm: a job for each worker run, and all nodes in one job."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from launcher.schedulers.shipped import specs_folder
from tests.slurm.cluster import PROGRAMS, Slurm
from tests.support.launching import RDZV, Outcome
from tests.support.waiting import until

pytestmark = [
    pytest.mark.schedulers(*PROGRAMS),
    pytest.mark.netns,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("slurm"),
]

LIMIT_SECONDS = 100.0
SPECS = specs_folder() / "slurm"
UGLY = ["a b", "it's", 'say "hi"', "$HOME `id` \\", "two\n#SBATCH --nodes=9", "", "--", "<<NAME>>"]
UGLY += ["한국어 中文", "a|b & c; d: #e", "0755", "yes", "12e4567", "%j"]
NOTE = (
    "import json, os, pathlib, socket, sys; "
    "name = pathlib.Path(sys.argv[1], os.environ['NODE_RANK']); "
    "draft = name.with_suffix('.draft'); "
    "draft.write_text(json.dumps([socket.gethostname(), sys.argv[2:]])); draft.rename(name)"
)


@dataclass
class Launch:
    """A launch on the login host."""

    process: subprocess.Popen[str]
    output: Path

    def wait_for(self, words: str, times: int = 1) -> None:
        """Until it has printed these words so often, as long as it lives."""

        def seen() -> bool:
            assert self.process.poll() is None, self.output.read_text()
            return self.output.read_text().count(words) >= times

        until(seen, LIMIT_SECONDS)

    def finish(self) -> Outcome:
        """Wait for the end."""
        return Outcome(self.process.wait(LIMIT_SECONDS), "", self.output.read_text())


@contextmanager
def launching(
    cluster: Slurm, folder: Path, *options: str, command: list[str], **env: str
) -> Iterator[Launch]:
    """A launch on the login host; a job that it leaves behind is a fault."""
    argv = [RDZV, "launch", "--rdzv-id", "r", "--scheduler", "slurm", "--framework", "command"]
    output = folder / "launch.out"
    with output.open("a") as out:
        process = cluster.login.start(
            [*argv, *options, "--", *command],
            env=cluster.environment(folder / "state", **env),
            stdout=out,
        )
    with process:
        try:
            yield Launch(process, output)
            assert cluster.jobs() == {}
        finally:
            process.kill()
            cluster.end_all_jobs()


def notes(folder: Path) -> list[list[object]]:
    """What each node has written of itself, by rank."""
    files = sorted(path for path in folder.iterdir() if path.name.isdigit())
    return [json.loads(path.read_text()) for path in files]


def states(cluster: Slurm, folder: Path) -> set[str]:
    """How the jobs stand, as the launcher was told last."""
    env = cluster.environment(folder / "state")
    shown = cluster.login.run([RDZV, "status", "r", "--json"], env=env, check=False)
    known = json.loads(shown.stdout)["slots"] if shown.returncode == 0 else []
    return {slot["state"] for slot in known}


WORKERS = ("--no-local-node", "--nnodes")


def test_a_launch_from_a_login_host_runs_on_a_job_for_each_node(
    cluster: Slurm, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", NOTE, str(tmp_path), *UGLY]
    with launching(cluster, tmp_path, "--nnodes", "4", command=command) as launch:
        outcome = launch.finish()
    assert outcome.code == 0, outcome.err
    assert sorted(notes(tmp_path)) == [[host, UGLY] for host in ("login", "n0", "n1", "n2")]


def test_a_job_that_somebody_cancels_is_named_with_slurms_words(
    cluster: Slurm, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", f"{NOTE}; import time; time.sleep(1000)", str(tmp_path)]
    with launching(cluster, tmp_path, *WORKERS, "3", command=command) as launch:
        until(lambda: states(cluster, tmp_path) == {"running"}, LIMIT_SECONDS)
        [job] = [job for job, name in cluster.jobs().items() if name.endswith("-1-1")]
        host = cluster.ask("squeue", "--noheader", f"--jobs={job}", "--format=%N")
        cluster.ask("scancel", job)
        outcome = launch.finish()
    assert outcome.code == 128 + signal.SIGTERM, outcome.err
    assert f"({host}, slot 1)" in outcome.last_line
    assert "its scheduler says: CANCELLED" in outcome.last_line


def test_a_launcher_killed_while_its_jobs_wait_finds_them_again(
    cluster: Slurm, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", NOTE, str(tmp_path)]
    blocker = cluster.occupy(4)
    with launching(cluster, tmp_path, *WORKERS, "2", command=command) as first:
        first.wait_for("Resources")
        until(lambda: len(cluster.jobs()) == 3, LIMIT_SECONDS)
        first.process.kill()
        first.process.wait()
        waiting, said = cluster.jobs(), first.output.read_text().count("Resources")
        with launching(cluster, tmp_path, *WORKERS, "2", command=command) as second:
            second.wait_for("Resources", said + 1)
            assert cluster.jobs() == waiting
            cluster.ask("scancel", blocker)
            outcome = second.finish()
    assert outcome.code == 0, outcome.err
    assert sorted(str(host) for host, _ in notes(tmp_path)) == ["n0", "n1"]


def test_a_job_that_slurm_refuses_ends_the_launch_at_once_with_slurms_words(
    cluster: Slurm, tmp_path: Path
) -> None:
    env = {"SBATCH_PARTITION": "gpus"}
    with launching(cluster, tmp_path, *WORKERS, "2", command=["true"], **env) as launch:
        outcome = launch.finish()
    assert outcome.code not in (0, 80)
    assert "invalid partition specified: gpus" in outcome.last_line


def submitted(cluster: Slurm, folder: Path, *argv: str | Path, **env: str) -> tuple[str, str]:
    """Submit a job: its id, and what it has printed once it has ended well."""
    output = folder / "out"
    options = ("sbatch", "--parsable", f"--output={output}")
    env["RDZV_STATE_DIR"] = str(folder / "state")
    job = cluster.ask(*options, *map(str, argv), env=env)
    assert cluster.wait_until_over(job, LIMIT_SECONDS) == "COMPLETED", output.read_text()
    return job, output.read_text()


def test_one_job_of_four_nodes_is_a_run(cluster: Slurm, tmp_path: Path) -> None:
    # What a user adds where the environment does not come along.
    added = f"export PATH={Path(RDZV).parent}:$PATH RDZV_FRAMEWORK=command"
    text = (SPECS / "symmetric.sbatch").read_text()
    spec = tmp_path / "symmetric.sbatch"
    spec.write_text(text.replace("set -eu\n", f"set -eu\n{added}\n"))
    command = [sys.executable, "-c", NOTE, tmp_path, *UGLY]
    job, said = submitted(cluster, tmp_path, "--export=NONE", spec, *command)
    assert notes(tmp_path) == [[f"n{rank}", UGLY] for rank in range(4)]
    assert f"1: rdzv: node 1 of 4, rank 0 at {cluster.nodes[0].address} (NodeAddr of n0)," in said
    assert f"0: rdzv: run 'slurm-{job}-0' ok: all 4 nodes ended with exit code 0" in said


def test_a_launcher_in_a_job_submits_the_others(cluster: Slurm, tmp_path: Path) -> None:
    command = [sys.executable, "-c", NOTE, tmp_path]
    env = {"RDZV_FRAMEWORK": "command", "NUM_NODES": "3"}
    submitted(cluster, tmp_path, SPECS / "launcher.sbatch", *command, **env)
    assert sorted(str(host) for host, _ in notes(tmp_path)) == ["n0", "n1", "n2"]
    assert cluster.jobs() == {}
