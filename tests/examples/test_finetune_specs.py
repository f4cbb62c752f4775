"""The fine-tuning's specs for VESSL: read as VESSL reads them, and planned as the launcher does."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from launcher.plan.plan import HIDDEN, Site, Spec, make_plan
from launcher.schedulers.catalog import scheduler_entry
from launcher.schedulers.contract import SchedulerContext
from launcher.settings import LaunchSettings

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "examples" / "finetune"


def launcher_spec() -> dict[str, Any]:
    spec: dict[str, Any] = yaml.safe_load((FOLDER / "vessl" / "launcher.yaml").read_text("utf-8"))
    return spec


def here(path: str) -> Path:
    """A path inside the run as it lies in this checkout."""
    return ROOT / path.removeprefix("/rdzv/")


def test_the_launcher_s_spec_names_files_that_are_there() -> None:
    spec = launcher_spec()
    words = shlex.split(spec["run"])
    assert words[0] == "sh"
    named = [words[1], words[words.index("--") + 1], spec["env"]["RDZV_WORKER_SPEC"]]
    assert [path for path in named if not here(path).is_file()] == []


def test_a_worker_run_starts_as_the_launcher_does() -> None:
    spec = launcher_spec()
    words = shlex.split(spec["run"])
    command = words[words.index("--") + 1 :]
    template = here(spec["env"]["RDZV_WORKER_SPEC"])
    plan = replace(
        make_plan(
            LaunchSettings(nnodes="2", nproc_per_node="8", set=spec["env"]["RDZV_SET"].split()),
            command,
            {},
            Site(Spec(str(template), template.read_text("utf-8")), cwd="/root"),
            run="finetune",
            launch_id="k7f2a9c1xy",
        ),
        master_addr="10.0.0.1",
    )
    scheduler = scheduler_entry("vessl").make(SchedulerContext(Path("/state"), {}))
    worker = yaml.safe_load(scheduler.prepare(plan.submission(1, 1), HIDDEN))
    for field in ("resources", "image"):
        assert worker[field] == spec[field]
    assert worker["import"] == spec["import"]
    run = shlex.split(worker["run"])
    assert run[run.index("sh") + 1] == words[1]
    assert run[run.index("--") + 1 :] == command


def test_the_start_script_is_one_for_a_plain_shell() -> None:
    subprocess.run(["sh", "-n", str(FOLDER / "vessl" / "start.sh")], check=True, timeout=20)
