"""rdzv on a real Slurm: a job for each worker run, and all nodes in one job."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from launcher.plan.plan import Submission
from launcher.schedulers.contract import Scheduler
from launcher.schedulers.shipped import specs_folder
from launcher.symmetric.platforms import ONE_TASK
from rendezvous.wire.run import SlotState
from tests.schedulers.test_contract import (
    described,
    test_a_handle_that_the_scheduler_never_had_is_over_and_can_be_cancelled,
    test_only_a_worker_run_of_exactly_that_name_is_found,
    test_worker_runs_are_submitted_described_found_and_cancelled,
)
from tests.slurm.cluster import PROGRAMS, Slurm, slurm
from tests.support.bed import Bed, join_text
from tests.support.launching import RDZV, Outcome
from tests.support.waiting import soon, until

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
ASKS_SLURM_FIRST = (
    "import json, os, pathlib, sys; env = os.environ; "
    "rank, local, world = (env.get(first, env[second]) for first, second in ("
    "('SLURM_PROCID', 'RANK'), ('SLURM_LOCALID', 'LOCAL_RANK'), ('SLURM_NTASKS', 'WORLD_SIZE'))); "
    "name = f'{rank}-{local}-of-{world}'; "
    "pathlib.Path(sys.argv[1], name).open('x').write(env['SLURM_JOB_ID'])"
)
"""A program that takes its rank from Slurm where that names one; the second of a rank fails."""
NOTE = (
    "import json, os, pathlib, socket, sys; "
    "name = pathlib.Path(sys.argv[1], os.environ['NODE_RANK']); "
    "draft = name.with_suffix('.draft'); "
    "draft.write_text(json.dumps([socket.gethostname(), sys.argv[2:]])); draft.rename(name)"
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """The cluster."""
    with slurm(tmp_path_factory.mktemp("slurm")) as up:
        yield up


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

    def finish(self, seconds: float = LIMIT_SECONDS) -> Outcome:
        """Wait for the end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        said = self.output.read_text()
        assert self.process.returncode is not None, said
        return Outcome(self.process.returncode, "", said)


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


def states(cluster: Slurm, folder: Path) -> set[tuple[str, str]]:
    """How the jobs stand, as the launcher was told last, and the nodes in them.

    A job that is cancelled before its node has heard the go is submitted again.
    """
    env = cluster.environment(folder / "state")
    shown = cluster.login.run([RDZV, "status", "r", "--json"], env=env, check=False)
    known = json.loads(shown.stdout)["slots"] if shown.returncode == 0 else []
    return {(slot["state"], slot["node_state"]) for slot in known}


WORKERS = ("--no-local-node", "--nnodes")


def test_a_launch_from_a_login_host_has_a_job_for_each_node(cluster: Slurm, tmp_path: Path) -> None:
    command = [sys.executable, "-c", NOTE, str(tmp_path), *UGLY]
    with launching(cluster, tmp_path, "--nnodes", "4", command=command) as launch:
        outcome = launch.finish()
    assert outcome.code == 0, outcome.err
    assert sorted(notes(tmp_path)) == [[host, UGLY] for host in ("login", "n0", "n1", "n2")]


def test_a_job_somebody_cancels_is_named_with_slurms_words(cluster: Slurm, tmp_path: Path) -> None:
    command = [sys.executable, "-c", f"{NOTE}; import time; time.sleep(1000)", str(tmp_path)]
    with launching(cluster, tmp_path, *WORKERS, "3", command=command) as launch:
        until(lambda: states(cluster, tmp_path) == {("running", "running")}, LIMIT_SECONDS)
        [job] = [job for job, name in cluster.jobs().items() if name.endswith("-1-1")]
        host = cluster.ask("squeue", "--noheader", f"--jobs={job}", "--format=%N")
        cluster.ask("scancel", job)
        outcome = launch.finish()
    assert outcome.code == 128 + signal.SIGTERM, outcome.err
    # Slurm gives the jobs their hosts, and nodes are numbered in the order of those.
    assert re.search(rf"node (1 \({host}\)|2 \({host}, slot 1\))", outcome.last_line)
    assert "the scheduler reports: CANCELLED" in outcome.last_line


def test_a_launcher_killed_while_jobs_wait_finds_them_again(cluster: Slurm, tmp_path: Path) -> None:
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


def submitted(cluster: Slurm, folder: Path, *argv: object, **env: str) -> tuple[str, str]:
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
    assert f"1: rdzv: node 1 of 4, node 0 at {cluster.nodes[0].address} (NodeAddr of n0)," in said
    assert f"0: rdzv: run 'slurm-{job}-0' ok: all 4 nodes ended with exit code 0" in said


@pytest.mark.nightly
def test_ranks_that_ask_slurm_first_are_one_world(cluster: Slurm, tmp_path: Path) -> None:
    (ranks := tmp_path / "ranks").mkdir()
    command = [sys.executable, "-c", ASKS_SLURM_FIRST, ranks]
    env = {"RDZV_FRAMEWORK": "env", "RDZV_NPROC_PER_NODE": "2"}
    spec = SPECS / "symmetric.sbatch"
    job, said = submitted(cluster, tmp_path, "--nodes=2", spec, *command, **env)
    found = {file.name: file.read_text() for file in ranks.iterdir()}
    assert found == dict.fromkeys(("0-0-of-4", "1-1-of-4", "2-0-of-4", "3-1-of-4"), job)
    assert "SLURM_NTASKS" in said
    assert "were removed: of the launcher around rdzv" in said


@pytest.mark.nightly
def test_a_job_with_several_tasks_on_a_node_is_a_run_by_the_line_that_is_advised(
    cluster: Slurm, tmp_path: Path
) -> None:
    """srun with --ntasks-per-node=1 alone keeps the tasks of the job."""
    script = tmp_path / "job.sh"
    note = shlex.join([sys.executable, "-c", NOTE, str(tmp_path)])
    launch = f"{RDZV} launch --framework command -- {note}"
    script.write_text(
        "#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node=2\n"
        f"export RDZV_TOKEN=$({RDZV} token new)\n"
        f"srun --ntasks-per-node=1 {launch}\n"
        f"{ONE_TASK}{launch}\n"
    )
    job, said = submitted(cluster, tmp_path, script)
    assert "rdzv: srun starts several tasks on a node (SLURM_STEP_TASKS_PER_NODE is 2(x2))" in said
    assert f" {ONE_TASK}rdzv launch --framework command -- {note}\n" in said
    assert notes(tmp_path) == [["n0", []], ["n1", []]]
    assert f"rdzv: run 'slurm-{job}-1' ok: both nodes ended with exit code 0" in said


def test_a_launcher_in_a_job_submits_the_others(cluster: Slurm, tmp_path: Path) -> None:
    command = [sys.executable, "-c", NOTE, tmp_path]
    env = {"RDZV_FRAMEWORK": "command", "NUM_NODES": "3"}
    submitted(cluster, tmp_path, SPECS / "launcher.sbatch", *command, **env)
    assert sorted(str(host) for host, _ in notes(tmp_path)) == ["n0", "n1", "n2"]
    assert cluster.jobs() == {}


@pytest.mark.nightly
def test_the_job_around_a_launcher_does_not_place_its_jobs(cluster: Slurm, tmp_path: Path) -> None:
    """The outer job has the hosts of a file (`--distribution=arbitrary`), the others are idle."""
    (hosts := tmp_path / "hosts").write_text("n3\n")
    outer = {
        "SLURM_JOB_ID": "1",
        "SLURM_HOSTFILE": str(hosts),
        "SLURM_DISTRIBUTION": "arbitrary",
        "SBATCH_WAIT": "1",
        "SQUEUE_PARTITION": "urgent",
    }
    command = [sys.executable, "-c", NOTE, str(tmp_path)]
    with launching(cluster, tmp_path, *WORKERS, "2", command=command, **outer) as launch:
        outcome = launch.finish()
    assert outcome.code == 0, outcome.err
    assert sorted(str(host) for host, _ in notes(tmp_path)) == ["n0", "n1"]


@pytest.mark.nightly
def test_a_job_without_the_environment_says_so_and_is_not_submitted_again(
    cluster: Slurm, tmp_path: Path
) -> None:
    env = {"SBATCH_EXPORT": "NONE"}
    with launching(cluster, tmp_path, *WORKERS, "2", command=["true"], **env) as launch:
        outcome = launch.finish()
    assert outcome.code == 83, outcome.err
    assert (
        "the job's PATH has no command 'rdzv', and your PATH does not come along (--export or"
        in (outcome.last_line)
    )
    assert "SBATCH_EXPORT is NONE): export it with ALL" in outcome.last_line
    assert "is submitted again" not in outcome.err


@pytest.mark.nightly
def test_a_heterogeneous_job_is_refused_and_runs_by_the_line_that_is_advised(
    cluster: Slurm, tmp_path: Path
) -> None:
    parts = ("--nodes=1", ":", "--nodes=1", ":", "--nodes=2")
    output, spec = tmp_path / "out", SPECS / "symmetric.sbatch"
    command = [sys.executable, "-c", NOTE, str(tmp_path)]
    env = {"RDZV_STATE_DIR": str(tmp_path / "state"), "RDZV_FRAMEWORK": "command"}

    def run(script: Path) -> str:
        argv = ["sbatch", "--parsable", f"--output={output}", *parts, str(script), *command]
        cluster.ask(*argv, env=env)
        until(lambda: not cluster.jobs(), LIMIT_SECONDS)
        return output.read_text()

    said = run(spec)
    assert "rdzv: this is a heterogeneous job of 3 components, and srun would start the" in said
    assert notes(tmp_path) == []
    text = spec.read_text()
    begin, end = text.index('if [ "${SLURM_HET'), text.index("command -v rdzv")
    old = '--nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES"'
    assert old in text
    copy = tmp_path / "copy.sbatch"
    copy.write_text((text[:begin] + text[end:]).replace(old, "--het-group=0-2"))
    said = run(copy)
    assert [host for host, _ in notes(tmp_path)] == ["n0", "n1", "n2", "n3"], said
    assert "ok: all 4 nodes ended with exit code 0" in said


# ---- the contract of all schedulers, on a real Slurm instead of a fake one ----------------------


__all__ = [
    "test_a_handle_that_the_scheduler_never_had_is_over_and_can_be_cancelled",
    "test_only_a_worker_run_of_exactly_that_name_is_found",
    "test_worker_runs_are_submitted_described_found_and_cancelled",
]


class LoginHost(Bed):
    """Slurm's commands, as they are on the login host; a worker finds no registry, and waits."""

    def run(self, slot: int = 1, generation: int = 1, *, template: str | None = None) -> Submission:
        """See the base class; a real Slurm remembers the jobs of other tests."""
        run = super().run(slot, generation, template=template)
        name = f"{run.name}-{zlib.crc32(str(self.folder).encode()):x}"
        return replace(run, name=name, variables=run.variables | {"NAME": name})

    def played(self, made: Scheduler) -> Scheduler:
        """See the base class: they are not played."""
        return made


@pytest.fixture
def bed(cluster: Slurm, tmp_path: Path) -> Iterator[Bed]:
    """The real commands on the PATH in place of the fake ones."""
    made = LoginHost("slurm", tmp_path)
    for name in made.commands:
        (made.bin / name).write_text(
            f"#!/bin/sh\nexport SLURM_CONF={cluster.folder}/slurm.conf\n"
            f'exec ip netns exec {cluster.login.namespace} {shutil.which(name)} "$@"\n'
        )
        (made.bin / name).chmod(0o755)
    (made.bin / "rdzv").symlink_to(RDZV)
    yield made
    cluster.end_all_jobs()


async def test_what_a_job_prints_is_read_while_it_runs_and_why_it_failed_is_told(bed: Bed) -> None:
    scheduler, run = bed.scheduler(), bed.run(template="#!/bin/sh\nseq 3\nexec sleep 600\n")
    handle = await scheduler.submit(run, join_text())
    failing = bed.run(2, template="#!/bin/sh\nexit 3\n")
    failed = await scheduler.submit(failing, join_text())
    await described(bed, handle, SlotState.RUNNING)
    logs = bed.submissions.glob  # Slurm calls a job running before it prints
    await soon(lambda: [p for p in logs("*.log") if p.read_text().endswith("3\n")])
    followed = scheduler.logs(run, handle, lines=2, follow=True)
    assert [await anext(followed), await anext(followed)] == ["2", "3"]
    await followed.aclose()  # type: ignore[attr-defined]
    assert (await described(bed, failed, SlotState.FAILED)).detail == "FAILED: NonZeroExitCode"
