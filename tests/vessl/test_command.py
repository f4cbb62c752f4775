"""VESSL by its command, with a fake one: what the profile's class adds to the contract."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from launcher.plan.plan import HIDDEN
from launcher.schedulers.catalog import scheduler_entry
from launcher.schedulers.contract import NothingSubmitted, SchedulerContext
from launcher.schedulers.description import Description
from rendezvous.wire.errors import SchedulerError, TemplateError
from rendezvous.wire.run import SlotState
from tests.support.bed import Bed, join_text
from tests.support.launching import RDZV, environment

pytestmark = pytest.mark.real_time

TEMPLATE = (Path(__file__).parent / "data" / "worker.yaml.tpl").read_text()


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bed:
    """A fake command, and an account with the project 'llama'."""
    monkeypatch.setenv("VESSL_DEFAULT_PROJECT", "llama")
    return Bed("vessl", tmp_path)


def spec_of(bed: Bed) -> dict[str, object]:
    """What the fake was given, as it was rendered."""
    found = yaml.safe_load(bed.made()[0]["spec"])
    assert isinstance(found, dict)
    return found


async def test_every_call_names_the_project_that_is_meant(bed: Bed) -> None:
    handle = await bed.scheduler().submit(bed.run(), join_text())
    await bed.scheduler().describe(bed.run(), handle)
    await bed.scheduler().cancel(bed.run(), handle, grace_seconds=0.0)
    assert [line async for line in bed.scheduler().logs(bed.run(), handle, lines=1, follow=False)]
    calls = [call["argv"] for call in bed.calls()]
    assert {argv[1] for argv in calls} == {"create", "list", "terminate", "logs"}
    assert {tuple(argv[2:4]) for argv in calls} == {("--project", "llama")}


def test_the_dry_run_shows_the_command_with_the_project(bed: Bed) -> None:
    first = bed.scheduler().prepare(bed.run(), HIDDEN).splitlines()[0]
    path = bed.submissions / f"{bed.run().name}.yaml"
    assert first == f"# vessl run create --project llama -f {path}"


def test_a_spec_in_a_relative_state_folder_is_found_from_the_folder_of_the_command(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bed.folder)
    context = SchedulerContext(Path("state/submissions"), bed.environ())
    first = scheduler_entry("vessl").make(context).prepare(bed.run(), HIDDEN).splitlines()[0]
    assert first.endswith(f" -f {bed.submissions / bed.run().name}.yaml")


def test_the_variables_of_the_public_example_launch_and_adopt_no_rank(
    bed: Bed, tmp_path: Path
) -> None:
    example = {
        "NUM_NODES": "2",
        "GPUS_PER_NODE": "8",
        "RDZV_ID": "some_uniq_id",
        "ROLE": "launcher",
        "MASTER_ADDR": "10.0.0.9",
        "NODE_RANK": "0",
    }
    template = tmp_path / "worker.yaml.tpl"
    template.write_text(TEMPLATE)
    words = ["--scheduler", "vessl", "--worker-spec", str(template), "--dry-run", "--", "train.py"]
    done = subprocess.run(
        [RDZV, "launch", *words],
        env=environment(tmp_path, VESSL_DEFAULT_PROJECT="llama", **example),
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    worker = yaml.safe_load(done.stdout.partition("# slot 1, by vessl: ")[2].partition("\n")[2])
    assert worker["env"] == {
        "MASTER_ADDR": "",
        "NODE_RANK": 1,
        "NUM_NODES": 2,
        "GPUS_PER_NODE": 8,
        "RDZV_ID": "some_uniq_id",
        "ROLE": "worker",
        "RDZV_JOIN": HIDDEN,
    }


async def test_a_project_of_ones_own_comes_first(bed: Bed) -> None:
    run = bed.run()
    run.variables["PROJECT"] = "--project other"
    await bed.scheduler().submit(run, join_text())
    assert bed.calls()[0]["argv"][2:4] == ["--project", "other"]


async def test_without_a_project_the_command_chooses(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("VESSL_DEFAULT_PROJECT")
    monkeypatch.setenv("HOME", str(tmp_path))
    await bed.scheduler().submit(bed.run(), join_text())
    assert bed.calls()[0]["argv"][:3] == ["run", "create", "-f"]


async def test_neither_telemetry_nor_crash_reports_are_sent(bed: Bed) -> None:
    await bed.scheduler().submit(bed.run(), join_text())
    environ = bed.calls()[0]["environ"]
    assert (environ["VESSL_DATA_COLLECTION_OPT_OUT"], environ["ENABLE_SENTRY"]) == ("true", "false")


async def test_a_users_spec_gets_the_join_string_and_a_name_that_can_be_found(bed: Bed) -> None:
    run = bed.run(template=TEMPLATE)
    handle = await bed.scheduler().submit(run, join_text())
    assert await bed.scheduler().find(run) == handle
    given = spec_of(bed)
    theirs = yaml.safe_load(TEMPLATE)
    assert given["name"] == run.name
    assert given["env"] == {
        "MASTER_ADDR": "",
        "NODE_RANK": 1,
        "NUM_NODES": 4,
        "GPUS_PER_NODE": 1,
        "RDZV_ID": "llama",
        "ROLE": "worker",
        "RDZV_JOIN": join_text(),
    }
    assert {k: v for k, v in given.items() if k not in ("name", "env")} == {
        k: v for k, v in theirs.items() if k not in ("name", "env")
    }


def test_a_value_that_would_not_arrive_is_refused_before_anything_is_submitted(bed: Bed) -> None:
    run = bed.run(template=TEMPLATE)
    run.variables["RDZV_ID"] = "12e4567"
    with pytest.raises(TemplateError, match=r"env.RDZV_ID: .* without quotes"):
        bed.scheduler().prepare(run, HIDDEN)
    assert bed.calls() == []


async def test_a_run_that_the_list_no_longer_shows_is_read_by_its_id(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = await bed.scheduler().submit(bed.run(1), join_text(1))
    await bed.scheduler().submit(bed.run(2), join_text(2))
    bed.turn("running")
    monkeypatch.setenv("FAKE_PAGE", "1")
    found = await bed.scheduler().describe(bed.run(1), handle)
    assert found == Description(SlotState.RUNNING)
    assert [call["argv"][1] for call in bed.calls()[-2:]] == ["list", "read"]


async def test_a_run_that_vessl_does_not_know_is_gone_when_that_is_said_again(bed: Bed) -> None:
    scheduler = bed.scheduler()
    scheduler.poll_seconds = 0.0
    found = [await scheduler.describe(bed.run(), "17") for _ in range(3)]
    assert [each.state for each in found] == [
        SlotState.UNKNOWN,
        SlotState.UNKNOWN,
        SlotState.ENDED,
    ]


async def test_the_reason_of_a_failure_is_read(bed: Bed) -> None:
    handle = await bed.scheduler().submit(bed.run(), join_text())
    bed.turn("failed")
    found = await bed.scheduler().describe(bed.run(), handle)
    assert found == Description(SlotState.FAILED, "failed: Exit code 1")


async def test_one_list_tells_of_all_worker_runs(bed: Bed) -> None:
    scheduler = bed.scheduler()
    handles = [await scheduler.submit(bed.run(slot), join_text(slot)) for slot in (1, 2, 3)]
    for slot, handle in enumerate(handles, 1):
        assert (await scheduler.describe(bed.run(slot), handle)).state is SlotState.QUEUED
    assert [call["argv"][1] for call in bed.calls()] == ["create"] * 3 + ["list"]


@pytest.mark.parametrize("fault", ["missing", "made for another Python"])
async def test_without_a_command_that_runs_the_other_way_is_named(bed: Bed, fault: str) -> None:
    program = bed.bin / "vessl"
    program.unlink()
    if fault != "missing":
        program.write_text(
            "#!/bin/sh\necho 'Traceback (most recent call last):' >&2\n"
            "echo '  File \"vessl/__init__.py\", line 9, in <module>' >&2\n"
            "echo \"ModuleNotFoundError: No module named 'packaging'\" >&2\nexit 1\n"
        )
        program.chmod(0o755)
    with pytest.raises(NothingSubmitted) as caught:
        await bed.scheduler().submit(bed.run(), join_text())
    assert caught.value.message in (
        "slot 1: the command 'vessl' is not on this machine",
        "slot 1: 'vessl' ended with exit code 1: ModuleNotFoundError: No module named 'packaging'",
    )
    assert "--scheduler vessl-http" in caught.value.hint
    assert "0.1.199" in caught.value.hint


async def test_an_error_says_what_the_command_said_and_nothing_else(bed: Bed) -> None:
    bed.faults.add("refuses")
    with pytest.raises(SchedulerError) as caught:
        await bed.scheduler().submit(bed.run(), join_text())
    assert "Organization:" not in caught.value.message
    assert "\x1b" not in caught.value.message
