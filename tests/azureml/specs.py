"""The Azure ML specs, rendered and loaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from launcher.plan.plan import Site, Spec, Submission, make_plan
from launcher.schedulers.catalog import scheduler_entry
from launcher.schedulers.contract import SchedulerContext
from launcher.schedulers.profile import ProfileScheduler
from launcher.schedulers.shipped import specs_folder
from launcher.settings import LaunchSettings
from tests.support.bed import join_text

FOLDER = specs_folder() / "azureml"
NAME = "rdzv-12e4567890-1-1"
OPTIONS = ["worker", "--nnodes", "4", "--nproc-per-node", "1", "--hosts", "off", "--"]


def worker_run(
    command: Sequence[str] = ("train.py",),
    *,
    image: str = "registry/image:tag",
    passed: Sequence[str] = (),
    code: str = "/code",
) -> Submission:
    """A worker run of the shipped template."""
    path = FOLDER / "worker.yaml.tpl"
    environ = {f"VALUE_{number}": value for number, value in enumerate(passed)}
    variables = [f"IMAGE={image}", "COMPUTE=azureml:gpu-cluster", f"CODE={code}"]
    plan = make_plan(
        LaunchSettings(nnodes="4", hosts="off", set=variables, pass_env=list(environ)),
        command,
        environ,
        Site(Spec(str(path), path.read_text(encoding="utf-8"))),
        run="llama",
        launch_id="12e4567890",
    )
    return plan.submission(1, 1)


def rendered(folder: Path, run: Submission) -> str:
    """The spec that is submitted."""
    scheduler = scheduler_entry("azureml").make(SchedulerContext(folder, {}))
    assert isinstance(scheduler, ProfileScheduler)
    return scheduler.render(run, join_text())


def shipped(name: str) -> Any:
    """A shipped job that is no template."""
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
