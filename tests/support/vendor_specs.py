"""The specs for Kubernetes and Azure ML, rendered; values that a careless template would break."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from launcher.plan.plan import Site, Spec, Submission, Where, make_plan
from launcher.schedulers.catalog import scheduler_entry
from launcher.schedulers.contract import SchedulerContext
from launcher.schedulers.profile import ProfileScheduler
from launcher.schedulers.shipped import specs_folder
from launcher.settings import LaunchSettings
from tests.support.bed import join_text, settings_of

NAME = "rdzv-12e4567890-1-1"
OPTIONS = ["worker", "--nnodes", "4", "--nproc-per-node", "1", "--hosts", "off", "--"]
IMAGE = "registry.example:5000/team/image@sha256:" + "0" * 64
UGLY = ["a b", "it's", 'say "hi"', "key: value", "#comment", "a|b & c; d > e", "0755", "yes", "No"]
UGLY += ["null", "~", "12e4567", "1_000", "12:30", "0x1f", "", "--", "two\nlines\n", "\ttab "]
UGLY += ["back\\slash", "$HOME `id` $$ $(HOSTNAME) $(RDZV_JOIN_FILE) ${{ inputs.x }}"]
UGLY += ["{{ .Values }} %s %(x)s", "- item", "*alias &anchor !tag @at", "<<NAME>>", "한국어"]
UGLY += ["中文。标点", "e\u0301 \u00a0 \u2028"]


def worker_run(
    command: Sequence[str] = ("train.py",),
    *,
    of: str = "kubernetes",
    image: str = IMAGE,
    run: str = "llama",
    passed: Sequence[str] = (),
    slot: int = 1,
    generation: int = 1,
    avoid: Sequence[str] = (),
    **variables: str,
) -> Submission:
    """A worker run of a scheduler's shipped template."""
    path = specs_folder() / of / "worker.yaml.tpl"
    environ = {f"VALUE_{number}": value for number, value in enumerate(passed)}
    needed = {"IMAGE": image} | settings_of(of) | variables
    given = [f"{name}={value}" for name, value in needed.items()]
    plan = make_plan(
        LaunchSettings(nnodes="4", hosts="off", set=given, pass_env=list(environ)),
        command,
        environ,
        Site(Spec(str(path), path.read_text(encoding="utf-8"))),
        run=run,
        launch_id="12e4567890",
    )
    return plan.submission(slot, generation, Where(avoid=tuple(avoid)))


def rendered(folder: Path, run: Submission, of: str = "kubernetes") -> str:
    """The spec that is submitted."""
    scheduler = scheduler_entry(of).make(SchedulerContext(folder, {}))
    assert isinstance(scheduler, ProfileScheduler)
    return scheduler.render(run, join_text())


def shipped(name: str) -> list[Any]:
    """The documents of a shipped file that is no template."""
    return list(yaml.safe_load_all((specs_folder() / name).read_text(encoding="utf-8")))


def rules() -> list[Any]:
    """What the shipped Role lets a launcher do."""
    objects = shipped("kubernetes/launcher.yaml")
    found: list[Any] = next(o for o in objects if o["kind"] == "Role")["rules"]
    return found
