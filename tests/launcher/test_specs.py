"""Every shipped spec is loaded, planned and compared whole with what is stored of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.plan import HIDDEN, Here, Plan, make_plan
from launcher.schedulers import SCHEDULERS, Scheduler, SchedulerContext, specs_folder
from launcher.settings import LaunchSettings
from launcher.template import form_of, placeholders

STORED = Path(__file__).parent / "data" / "specs"
SPECS = sorted(
    str(path.relative_to(specs_folder())) for path in specs_folder().rglob("*") if path.is_file()
)
COMMAND = ["train.py", "--name", 'it\'s a "test"', "$HOME", "", "--", "two\nlines", "a=b c: #d"]


def plan(name: str, scheduler: Scheduler) -> Plan:
    settings = LaunchSettings(
        nnodes="4",
        nproc_per_node="2,1,1,1",
        grace=2.5,
        network=["10.0.0.0/8"],
        pass_env=["GREETING"],
    )
    return make_plan(
        settings,
        COMMAND,
        {"GREETING": "good morning", "NCCL_DEBUG": "INFO", "HOME": "/root"},
        run="llama",
        launch_id="k7f2a9c1xy",
        source=name,
        template=(specs_folder() / name).read_text(encoding="utf-8"),
        loopback=scheduler.loopback,
        master_addr="10.0.0.1",
        here=Here("local/worker.yaml", "", "/state/llama/logs"),
    )


def scheduler_of(name: str, folder: Path) -> Scheduler:
    return SCHEDULERS[name.split("/")[0]].make(SchedulerContext(folder, {}))


@pytest.mark.parametrize("name", SPECS)
def test_a_spec_is_rendered_as_stored(name: str, tmp_path: Path) -> None:
    scheduler = scheduler_of(name, tmp_path)
    rendered = scheduler.prepare(plan(name, scheduler).worker_run(1, 1), HIDDEN)
    assert rendered == (STORED / name).read_text(encoding="utf-8")


def test_every_stored_rendering_is_of_a_spec_that_is_shipped() -> None:
    stored = sorted(str(p.relative_to(STORED)) for p in STORED.rglob("*") if p.is_file())
    assert stored == SPECS


@pytest.mark.parametrize("name", SPECS)
def test_a_spec_hands_on_the_secret_the_options_and_the_command(name: str) -> None:
    text = (specs_folder() / name).read_text(encoding="utf-8")
    used = {found for found, _ in placeholders(text, source=name, form=form_of(name))}
    assert used >= {"RDZV_JOIN", "WORKER_OPTIONS", "COMMAND"}


def test_every_scheduler_has_its_spec() -> None:
    assert {entry.spec for entry in SCHEDULERS.values()} <= set(SPECS)
