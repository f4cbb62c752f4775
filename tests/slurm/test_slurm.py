"""rdzv on a real Slurm: a job for each worker run, and all nodes in one job."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from launcher.schedulers.shipped import specs_folder
from rendezvous.wire.errors import ExitCode
from tests.slurm.cluster import PROGRAMS, Slurm
from tests.support.launching import RDZV, Outcome, other_rdzv
from tests.support.waiting import until

pytestmark = [
    pytest.mark.schedulers(*PROGRAMS),
    pytest.mark.netns,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("slurm"),
]

LIMIT_SECONDS = 100.0
SPECS = specs_folder() / "slurm"
PROGRAM = str(Path(__file__).parent.parent / "programs" / "check_all_reduce.py")
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

    cluster: Slurm
    process: subprocess.Popen[str]
    state: Path
    output: Path

    def said(self) -> str:
        """What it has printed so far."""
        return self.output.read_text()

    def until(self, look: Callable[[], bool]) -> None:
        """Look until there is something to see, as long as the launcher lives."""

        def seen() -> bool:
            assert self.process.poll() is None, self.said()
            return look()

        until(seen, LIMIT_SECONDS)

    def wait_for(self, words: str) -> None:
        """Until it has printed these words."""
        self.until(lambda: words in self.said())

    def slots(self) -> dict[int, tuple[str, str]]:
        """What the scheduler says of each slot, as `rdzv status` shows it."""
        argv = [RDZV, "status", "r", "--json"]
        env = self.cluster.environment(self.state)
        shown = self.cluster.login.run(argv, env=env, check=False)
        if shown.returncode != 0:
            return {}
        return {s["slot"]: (s["state"], s["detail"]) for s in json.loads(shown.stdout)["slots"]}

    def finish(self) -> Outcome:
        """Wait for the end."""
        self.process.wait(LIMIT_SECONDS)
        return Outcome(self.process.returncode, "", self.said())


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
                yield Launch(cluster, process, folder / "state", output)
            finally:
                process.kill()
                cluster.end_all_jobs()


def notes(folder: Path) -> list[list[object]]:
    """What each node has written of itself, by rank."""
    files = sorted(path for path in folder.iterdir() if path.name.isdigit())
    return [json.loads(path.read_text()) for path in files]


@pytest.mark.parametrize(
    ("options", "hosts"),
    [([], ["login", "n0", "n1", "n2"]), (["--no-local-node"], ["n0", "n1", "n2", "n3"])],
)
def test_a_launch_from_a_login_host_runs_on_a_job_for_each_node(
    cluster: Slurm, tmp_path: Path, options: list[str], hosts: list[str]
) -> None:
    command = [sys.executable, "-c", NOTE, str(tmp_path), *UGLY]
    with launching(cluster, tmp_path, "--nnodes", "4", *options, command=command) as launch:
        outcome = launch.finish()
        assert cluster.jobs() == {}
    assert outcome.code == 0, outcome.err
    assert sorted(notes(tmp_path)) == [[host, UGLY] for host in hosts]


def test_a_job_that_waits_is_told_with_slurms_reason_and_goes_with_the_launch(
    cluster: Slurm, tmp_path: Path
) -> None:
    options = ("--no-local-node", "--nnodes", "5")
    with launching(cluster, tmp_path, *options, command=["true"]) as launch:
        launch.wait_for("Resources")
        wanted = ["queued", "running", "running", "running", "running"]
        launch.until(lambda: sorted(state for state, _ in launch.slots().values()) == wanted)
        launch.process.send_signal(signal.SIGTERM)
        outcome = launch.finish()
        assert cluster.jobs() == {}
    assert outcome.code == 128 + signal.SIGTERM


def test_a_job_that_somebody_cancels_ends_the_run_and_is_named(
    cluster: Slurm, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", f"{NOTE}; import time; time.sleep(600)", str(tmp_path)]
    options = ("--no-local-node", "--nnodes", "3", "--grace", "2")
    with launching(cluster, tmp_path, *options, command=command) as launch:
        launch.until(lambda: len(notes(tmp_path)) == 3)
        launch.until(lambda: {state for state, _ in launch.slots().values()} == {"running"})
        [job] = [job for job, name in cluster.jobs().items() if name.endswith("-1-1")]
        host = cluster.ask("squeue", "--noheader", f"--jobs={job}", "--format=%N")
        cluster.ask("scancel", job)
        outcome = launch.finish()
        assert cluster.jobs() == {}
    assert outcome.code == 128 + signal.SIGTERM, outcome.err
    assert f"({host}, slot 1)" in outcome.last_line
    assert "its scheduler says: CANCELLED" in outcome.last_line


def test_a_launcher_killed_while_its_jobs_wait_finds_them_again(
    cluster: Slurm, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", NOTE, str(tmp_path)]
    options = ("--no-local-node", "--nnodes", "2")
    blocker = cluster.occupy(4)
    with launching(cluster, tmp_path, *options, command=command) as first:
        first.wait_for("Resources")
        first.until(lambda: len(cluster.jobs()) == 3)
        first.process.kill()
        first.process.wait()
        waiting, said = cluster.jobs(), first.said().count("Resources")
        with launching(cluster, tmp_path, *options, command=command) as second:
            second.until(lambda: second.said().count("Resources") > said)
            assert cluster.jobs() == waiting
            cluster.ask("scancel", blocker)
            outcome = second.finish()
            assert cluster.jobs() == {}
    assert outcome.code == 0, outcome.err
    assert sorted(str(host) for host, _ in notes(tmp_path)) == ["n0", "n1"]


def test_a_job_that_slurm_refuses_ends_the_launch_at_once_with_slurms_words(
    cluster: Slurm, tmp_path: Path
) -> None:
    options = ("--no-local-node", "--nnodes", "2")
    env = {"SBATCH_PARTITION": "gpus"}
    with launching(cluster, tmp_path, *options, command=["true"], **env) as launch:
        outcome = launch.finish()
    assert outcome.code not in (0, 80)
    assert "invalid partition specified: gpus" in outcome.last_line


def test_jobs_that_slurm_packs_on_one_machine_are_refused_with_its_flag(
    cluster: Slurm, tmp_path: Path
) -> None:
    spec = tmp_path / "worker.sbatch"
    spec.write_text((SPECS / "worker.sbatch").read_text().replace("#SBATCH --exclusive\n", ""))
    options = ("--no-local-node", "--nnodes", "2", "--worker-spec", str(spec))
    with launching(cluster, tmp_path, *options, command=["true"]) as launch:
        outcome = launch.finish()
    assert outcome.code == ExitCode.VERIFICATION_FAILED
    assert "sbatch --exclusive" in outcome.last_line


@pytest.mark.nightly
def test_a_job_without_the_launchers_environment_gets_what_was_passed_on(
    cluster: Slurm, tmp_path: Path
) -> None:
    spec = tmp_path / "worker.sbatch"
    # What a user adds where the environment does not come along.
    path = f"export PATH={Path(RDZV).parent}:$PATH\n"
    spec.write_text((SPECS / "worker.sbatch").read_text().replace("export R", f"{path}export R"))
    command = ["sh", "-c", 'echo "$NODE_RANK: $NCCL_DEBUG, $GREETING, $OTHER."']
    options = ["--no-local-node", "--nnodes", "2", "--worker-spec", str(spec)]
    options += ["--set", "SBATCH=--export=NONE --comment 'a b'", "--pass-env", "GREETING"]
    env = {"NCCL_DEBUG": "INFO", "GREETING": "good 'morning'", "OTHER": "not passed"}
    with launching(cluster, tmp_path, *options, command=command, **env) as launch:
        outcome = launch.finish()
        argv = (RDZV, "logs", "r", "--lines", "100")
        told = cluster.ask(*argv, env={"RDZV_STATE_DIR": str(launch.state)})
    assert outcome.code == 0, outcome.err
    kept = told.partition("\n==> rdzv-")[2]  # by Slurm, behind this machine's own files
    assert [f"{rank}: INFO, good 'morning', .\n" in kept for rank in range(2)] == [True, True]


@pytest.mark.nightly
def test_a_slurm_that_cannot_be_asked_for_a_while_disturbs_no_run(
    cluster: Slurm, tmp_path: Path
) -> None:
    command = ["sh", "-c", 'until [ -e "$0" ]; do sleep 0.2; done', str(tmp_path / "end")]
    options = ("--no-local-node", "--nnodes", "2")
    with launching(cluster, tmp_path, *options, command=command) as launch:
        launch.wait_for("all are: go")
        cluster.stop_controller()
        launch.until(lambda: {state for state, _ in launch.slots().values()} == {"unknown"})
        words = {detail for _, detail in launch.slots().values()}
        cluster.start_controller()
        launch.until(lambda: {state for state, _ in launch.slots().values()} == {"running"})
        (tmp_path / "end").touch()
        outcome = launch.finish()
        assert cluster.jobs() == {}
    assert outcome.code == 0, outcome.err
    assert all("Unable to contact slurm controller" in word for word in words)


def test_the_check_of_a_scheduler_proves_a_real_slurm(cluster: Slurm) -> None:
    said = cluster.ask(RDZV, "schedulers", "check", "slurm")
    assert said.splitlines()[-1] == "the scheduler 'slurm' works"
    assert cluster.jobs() == {}


def all_at_once(
    cluster: Slurm,
    folder: Path,
    *options: str,
    added: str = "",
    command: list[str],
    ends: str = "COMPLETED",
) -> tuple[str, str]:
    """Submit one job of several nodes; its id and what it has printed once it has so ended."""
    spec, output = folder / "symmetric.sbatch", folder / "out"
    text = (SPECS / "symmetric.sbatch").read_text()
    spec.write_text(text.replace("set -eu\n", f"set -eu\n{added}"))
    argv = ("sbatch", "--parsable", f"--output={output}", *options, str(spec), *command)
    job = cluster.ask(*argv, env={"RDZV_STATE_DIR": str(folder / "state")})
    state = cluster.wait_until_over(job, LIMIT_SECONDS)
    assert state == ends, output.read_text()
    return job, output.read_text()


def test_one_job_of_four_nodes_is_a_run(cluster: Slurm, tmp_path: Path) -> None:
    # What a user adds where the environment does not come along.
    added = f"export PATH={Path(RDZV).parent}:$PATH RDZV_FRAMEWORK=command\n"
    command = [sys.executable, "-c", NOTE, str(tmp_path), *UGLY]
    job, said = all_at_once(cluster, tmp_path, "--export=NONE", added=added, command=command)
    assert notes(tmp_path) == [[f"n{rank}", UGLY] for rank in range(4)]
    assert f"1: rdzv: node 1 of 4, rank 0 at {cluster.nodes[0].address} (NodeAddr of n0)," in said
    assert f"0: rdzv: run 'slurm-{job}-0' ok: all 4 nodes ended with exit code 0" in said


def test_a_node_of_a_job_that_cannot_take_part_is_named_to_all(
    cluster: Slurm, tmp_path: Path
) -> None:
    """Nobody waits for it until the join time-out, nor looks for a firewall."""
    folder = other_rdzv(tmp_path, '[ "$SLURM_NODEID" = 2 ] && export RDZV_INTERFACE=ib9')
    added = f"export PATH={folder}:$PATH RDZV_FRAMEWORK=command\n"
    _, said = all_at_once(cluster, tmp_path, added=added, command=["true"], ends="FAILED")
    for rank in range(4):
        last = [line for line in said.splitlines() if line.startswith(f"{rank}: ")][-2:]
        assert "'ib9' names no address" in " ".join(last), said
        assert rank == 2 or "slot 2 (n2) cannot take part" in last[-1], said
    assert "never called" not in said


@pytest.mark.torch
def test_torchrun_trains_in_one_job(cluster: Slurm, tmp_path: Path) -> None:
    _, said = all_at_once(cluster, tmp_path, "--nodes=2", command=[PROGRAM])
    results = [json.loads(line[10:]) for line in said.splitlines() if line[3:10] == "RESULT "]
    assert sorted((r["rank"], r["sum"], r["hostname"]) for r in results) == [
        (0, 3, "n0"),
        (1, 3, "n1"),
    ]


def test_a_launcher_in_a_job_submits_the_others(cluster: Slurm, tmp_path: Path) -> None:
    output = tmp_path / "out"
    command = [sys.executable, "-c", NOTE, str(tmp_path)]
    argv = ["sbatch", "--parsable", f"--output={output}", str(SPECS / "launcher.sbatch"), *command]
    env = {"RDZV_FRAMEWORK": "command", "NUM_NODES": "3", "RDZV_STATE_DIR": str(tmp_path / "state")}
    job = cluster.ask(*argv, env=env)
    assert cluster.wait_until_over(job, LIMIT_SECONDS) == "COMPLETED", output.read_text()
    assert sorted(str(host) for host, _ in notes(tmp_path)) == ["n0", "n1", "n2"]
    assert cluster.jobs() == {}
