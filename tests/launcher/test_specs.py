"""Every shipped worker spec is loaded, planned and compared whole with what is stored of it.

RDZV_STORE=1 stores anew: look at the difference before you keep it.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.launch.lifecycle import CANNOT_START
from launcher.plan.plan import HIDDEN, Here, Plan, Site, Spec
from launcher.plan.template import form_of, placeholders
from launcher.schedulers.catalog import known_schedulers, scheduler_entry
from launcher.schedulers.contract import Scheduler, SchedulerContext
from launcher.schedulers.profile import ProfileScheduler
from launcher.schedulers.shipped import specs_folder
from launcher.state.state_dir import StateDir
from rendezvous.wire.errors import ExitCode
from rendezvous.wire.run import Result
from tests.launcher.command import NOWHERE, plan_of, record_of
from tests.support.bed import settings_of
from tests.support.nightly import at_night

STORED = Path(__file__).parent / "data" / "specs"
COMMAND = ["train.py", "--name", 'it\'s a "test"', "$HOME", "", "--", "two\nlines", "a=b c: #d"]


@pytest.fixture(params=list(known_schedulers()))
def scheduler(request: pytest.FixtureRequest) -> Scheduler:
    """Each scheduler in turn, in a folder that is not made."""
    context = SchedulerContext(Path("/state/llama/submissions"), {})
    return scheduler_entry(request.param).make(context)


def spec_of(scheduler: Scheduler) -> Path:
    return specs_folder() / scheduler_entry(scheduler.name).spec


def plan(scheduler: Scheduler) -> Plan:
    needed = {"IMAGE": "registry/image:tag"} | settings_of(scheduler.name)
    path = spec_of(scheduler)
    site = Site(
        Spec(str(path), path.read_text(encoding="utf-8")),
        here=Here(Spec("local/worker.yaml", ""), "/state/llama/logs"),
        loopback=scheduler.loopback,
        cwd="/home/u/project",
    )
    made = plan_of(
        *COMMAND,
        site=site,
        environ={"GREETING": "good morning", "NCCL_DEBUG": "INFO", "HOME": "/root"},
        nnodes="4",
        nproc_per_node="2,1,1,1",
        grace=2.5,
        network=["10.0.0.0/8"],
        pass_env=["GREETING"],
        set=[f"{name}={value}" for name, value in needed.items()],
    )
    return replace(made, master_addr="10.0.0.1")


def test_a_worker_run_is_prepared_as_stored(scheduler: Scheduler) -> None:
    prepared = scheduler.prepare(plan(scheduler).submission(1, 1), HIDDEN)
    prepared = prepared.replace(str(specs_folder()), "/specs")
    stored = STORED / f"{scheduler.name}.txt"
    if os.environ.get("RDZV_STORE") == "1":
        stored.write_text(prepared, encoding="utf-8")
    assert prepared == stored.read_text(encoding="utf-8")


def test_everything_that_is_stored_is_of_a_scheduler_that_is_known() -> None:
    assert {path.stem for path in STORED.iterdir()} == set(known_schedulers())


def test_a_worker_run_gets_the_options_and_the_command(scheduler: Scheduler) -> None:
    path = spec_of(scheduler)
    text = path.read_text(encoding="utf-8")
    used = {found for found, _ in placeholders(text, source=path.name, form=form_of(path.name))}
    if isinstance(scheduler, ProfileScheduler):
        words = "\n".join(scheduler.profile.submit.argv)
        used |= {found for found, _ in placeholders(words)}
    assert used >= {"WORKER_OPTIONS", "COMMAND"}


def test_what_is_no_worker_spec_has_nothing_to_be_filled() -> None:
    """Launchers' specs and scripts are used as they are."""
    filled = {specs_folder() / entry.spec for entry in known_schedulers().values()}
    left = [
        f"{path}: {found}"
        for path in sorted(specs_folder().rglob("*"))
        if path.is_file() and path not in filled
        for found in placeholders(path.read_text(encoding="utf-8"), source=str(path))
    ]
    assert left == []


def test_a_job_requeues_itself_after_the_codes_that_are_worth_it() -> None:
    text = (specs_folder() / "slurm" / "requeue.sbatch").read_text(encoding="utf-8")
    codes = re.search(r"^((\d+ \| )+\d+)\)$", text, re.MULTILINE)
    assert codes is not None
    worth_it = [str(int(code)) for code in ExitCode if code.requeue]
    assert codes[1].split(" | ") == worth_it


@pytest.mark.parametrize(
    ("code", "whose", "before", "calls"),
    [
        (86, "rdzv", 0, ["requeue 7"]),
        (86, "program", 0, []),
        at_night(86, "rdzv", 10, []),
        at_night(84, "rdzv", 0, []),
        (85, None, 0, ["requeue 7"]),  # the result could not be written
    ],
)
def test_a_job_does_not_requeue_itself_for_a_code_of_its_program(
    code: int, whose: Any, before: int, calls: list[str], tmp_path: Path
) -> None:
    state = StateDir(tmp_path / "state", "slurm-7")
    state.acquire()
    state.write_record(record_of(NOWHERE))
    state.secret()
    if whose is not None:
        state.write_result(Result(status="failed", exit_code=code, exit_code_of=whose, message="x"))
    state.release()
    called = tmp_path / "called"
    called.touch()
    real = f'exec {shlex.quote(sys.executable)} -m rdzv "$@"'
    for name, script in {
        "rdzv": f'if [ "$1" = launch ]; then exit {code}; fi; {real}',
        "scontrol": f'echo "$@" >> {shlex.quote(str(called))}',
        "sleep": "",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}
    env |= {"RDZV_STATE_DIR": str(tmp_path / "state"), "SLURM_RESTART_COUNT": str(before)}
    job = [str(specs_folder() / "slurm" / "requeue.sbatch"), "train.py"]
    done = subprocess.run(["bash", *job], env=env, check=False, capture_output=True)
    assert (done.returncode, called.read_text().splitlines()) == (code, calls), done.stderr


SLURM_SPECS = specs_folder() / "slurm"


@pytest.mark.parametrize("name", ["worker.sbatch", "symmetric.sbatch"])
def test_a_slurm_job_without_rdzv_on_its_path_says_so_and_why(name: str, tmp_path: Path) -> None:
    def said(**environ: str) -> str:
        argv = ["/bin/bash", str(SLURM_SPECS / name)]
        done = subprocess.run(argv, env={"PATH": str(tmp_path), **environ}, capture_output=True)
        assert done.returncode == 127
        return done.stdout.decode()

    begin = CANNOT_START + "the job's PATH has no command 'rdzv'"
    assert said().startswith(f"{begin}: export it with ALL, or set PATH in a copy of the spec")
    assert said(SLURM_EXPORT_ENV="NONE").startswith(
        f"{begin}, and your PATH does not come along (--export or SBATCH_EXPORT is NONE): export"
    )


@pytest.mark.parametrize("size", ["1", "3"])
def test_a_heterogeneous_job_is_not_started_in_part(size: str, tmp_path: Path) -> None:
    argv = ["/bin/bash", str(SLURM_SPECS / "symmetric.sbatch"), "train.py"]
    environ = {"PATH": str(tmp_path), "SLURM_HET_SIZE": size}
    done = subprocess.run(argv, env=environ, capture_output=True)
    words = b"rdzv: this is a heterogeneous job of 3 components, and srun would start the first one"
    assert done.returncode == (64 if size == "3" else 127)
    assert (words in done.stderr) is (size == "3")
    assert (b"srun --het-group=0-2 in place of --nodes and --ntasks" in done.stderr) is (
        size == "3"
    )
