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
from tests.schedulers.behaving import REFUSAL
from tests.support.bed import Bed, join_text
from tests.support.launching import RDZV, environment

DATA = Path(__file__).parent / "data"
TEMPLATE = (DATA / "worker.yaml.tpl").read_text()
TRACEBACK = (
    'Traceback (most recent call last):\n  File "vessl/__init__.py", line 9, in <module>\n'
    "ModuleNotFoundError: No module named 'packaging'\n"
)


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bed:
    """A fake command, and an account with the project 'llama'."""
    monkeypatch.setenv("VESSL_DEFAULT_PROJECT", "llama")
    return Bed("vessl", tmp_path)


async def test_every_call_names_the_project_and_sends_no_telemetry(bed: Bed) -> None:
    handle = await bed.scheduler().submit(bed.run(), join_text())
    await bed.scheduler().describe(bed.run(), handle)
    await bed.scheduler().cancel(bed.run(), handle, grace_seconds=0.0)
    assert [line async for line in bed.scheduler().logs(bed.run(), handle, lines=1, follow=False)]
    calls = bed.calls()
    assert {call["argv"][1] for call in calls} == {"create", "list", "terminate", "logs"}
    assert {tuple(call["argv"][2:4]) for call in calls} == {("--project", "llama")}
    wanted = {"VESSL_DATA_COLLECTION_OPT_OUT": "true", "ENABLE_SENTRY": "false"}
    assert all(wanted.items() <= call["environ"].items() for call in calls)


@pytest.mark.parametrize(
    ("given", "account", "words"),
    [
        ({}, "llama", "--project llama "),
        ({"PROJECT": "--project other"}, "llama", "--project other "),
        ({}, "", ""),
    ],
)
def test_a_project_of_ones_own_comes_first_and_the_path_of_the_spec_is_whole(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], account: str, words: str
) -> None:
    monkeypatch.setenv("VESSL_DEFAULT_PROJECT", account)
    monkeypatch.setenv("HOME", str(bed.folder))
    monkeypatch.chdir(bed.folder)
    run = bed.run()
    run.variables.update(given)
    context = SchedulerContext(Path("state/submissions"), bed.environ())
    first = scheduler_entry("vessl").make(context).prepare(run, HIDDEN).splitlines()[0]
    assert first == f"# vessl run create {words}-f {bed.submissions}/{run.name}.yaml"


def variables_of_a_worker(**more: object) -> dict[str, object]:
    """What the public example's template is filled in with."""
    return {"MASTER_ADDR": "", "NODE_RANK": 1, "ROLE": "worker"} | more


def test_the_variables_of_the_public_example_launch_and_adopt_no_rank(tmp_path: Path) -> None:
    example = yaml.safe_load((DATA / "launcher.yaml").read_text())["env"]
    spec = str(DATA / "worker.yaml.tpl")
    words = ["--scheduler", "vessl", "--worker-spec", spec, "--dry-run=full"]
    more = {"MASTER_ADDR": "10.0.0.9", "NODE_RANK": "0", "VESSL_DEFAULT_PROJECT": "llama"}
    done = subprocess.run(
        [RDZV, "launch", *words, "--", "train.py"],
        env=environment(tmp_path, **example, **more),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    worker = yaml.safe_load(done.stdout.partition("# slot 1, by vessl: ")[2].partition("\n")[2])
    assert worker["env"] == variables_of_a_worker(
        NUM_NODES=3, GPUS_PER_NODE=8, RDZV_ID="some_uniq_id", RDZV_JOIN=HIDDEN
    )


async def test_a_users_spec_gets_the_join_string_and_a_name_that_can_be_found(bed: Bed) -> None:
    run = bed.run(template=TEMPLATE)
    handle = await bed.scheduler().submit(run, join_text())
    assert await bed.scheduler().find(run) == handle
    given, theirs = yaml.safe_load(bed.made()[0]["spec"]), yaml.safe_load(TEMPLATE)
    env = variables_of_a_worker(
        NUM_NODES=4, GPUS_PER_NODE=1, RDZV_ID="llama", RDZV_JOIN=join_text()
    )
    assert given == theirs | {"name": run.name, "env": env}


def test_a_value_that_would_not_arrive_is_refused_before_anything_is_submitted(bed: Bed) -> None:
    run = bed.run(template=TEMPLATE)
    run.variables["RDZV_ID"] = "12e4567"
    with pytest.raises(TemplateError, match=r"env.RDZV_ID: .* without quotes"):
        bed.scheduler().prepare(run, HIDDEN)
    assert bed.calls() == []


async def test_a_run_that_vessl_does_not_know_is_gone_when_that_is_said_again(bed: Bed) -> None:
    scheduler = bed.scheduler()
    scheduler.poll_seconds = 0.0
    states = [(await scheduler.describe(bed.run(), "17")).state for _ in range(3)]
    assert states == [SlotState.UNKNOWN, SlotState.UNKNOWN, SlotState.ENDED]


async def test_one_list_tells_of_all_worker_runs_and_why_one_failed_is_read(bed: Bed) -> None:
    scheduler = bed.scheduler()
    handles = [await scheduler.submit(bed.run(slot), join_text(slot)) for slot in (1, 2, 3)]
    for slot, handle in enumerate(handles, 1):
        assert (await scheduler.describe(bed.run(slot), handle)).state is SlotState.QUEUED
    assert [call["argv"][1] for call in bed.calls()] == ["create"] * 3 + ["list"]
    bed.turn("failed")
    failed = Description(SlotState.FAILED, "failed: Exit code 1")
    assert await bed.scheduler().describe(bed.run(), handles[0]) == failed


@pytest.mark.parametrize(
    ("says", "words"),
    [
        (None, "the command 'vessl' is not on this machine"),
        (TRACEBACK, "'vessl' ended with exit code 1: ModuleNotFoundError: No module named 'packag"),
    ],
    ids=["missing", "made for another Python"],
)
async def test_without_the_command_the_other_way_is_named(
    bed: Bed, says: str | None, words: str
) -> None:
    bed.commands = [] if says is None else bed.commands
    bed.says["vessl"] = (1, says or "")
    with pytest.raises(NothingSubmitted) as caught:
        await bed.scheduler().submit(bed.run(), join_text())
    assert caught.value.message.startswith(words)
    assert "--scheduler vessl-http" in caught.value.hint
    assert "0.1.199" in caught.value.hint


async def test_an_error_says_what_the_command_said_and_nothing_else(bed: Bed) -> None:
    bed.faults.add("refuses")
    with pytest.raises(SchedulerError, match=f"exit code 1: {REFUSAL}"):
        await bed.scheduler().submit(bed.run(), join_text())
