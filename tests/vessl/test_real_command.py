"""VESSL's own command 0.1.199 against an API that behaves."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.schedulers.catalog import scheduler_entry
from launcher.schedulers.contract import SchedulerContext
from launcher.schedulers.description import Description
from launcher.schedulers.vessl import VesslScheduler
from rendezvous.wire.errors import SchedulerError, TemplateError
from rendezvous.wire.run import SlotState
from tests.support.bed import Bed, join_text
from tests.support.vendors import vessl_folder
from tests.vessl.place import QUIET
from tests.vessl.service import ECHO, FIRST_ID, TOKEN, Vessl, environment_of

pytestmark = [pytest.mark.schedulers, pytest.mark.timeout(500)]

Made = Callable[..., VesslScheduler]
SPEC = "name: by-hand\nimage: i\nresources: {cluster: gpu-cluster}\nrun: echo\n"
DEAD = "http://127.0.0.1:9"
VALUES = ['it\'s "a"', "a: b #c", "a|b&c", "0123", "yes", "12:30", "two\nlines", "학습 训练", "\t"]


@pytest.fixture
def vessl() -> Iterator[Vessl]:
    """The service; runs stay as the test sets them."""
    with Vessl() as served:
        yield served


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    """Gives worker runs."""
    return Bed("vessl", tmp_path, installed=False)


@pytest.fixture
def environ(vessl: Vessl, tmp_path: Path) -> dict[str, str]:
    """A person's environment. Whatever goes elsewhere than to the service fails."""
    path = {"PATH": f"{vessl_folder()}:/usr/bin:/bin", "HOME": str(tmp_path)}
    return vessl.environ() | path | {"HTTPS_PROXY": DEAD, "HTTP_PROXY": DEAD}


@pytest.fixture
def made(environ: dict[str, str], tmp_path: Path) -> Made:
    """Makes a scheduler for that person, with further variables."""

    def make(**more: str) -> VesslScheduler:
        context = SchedulerContext(tmp_path / "submissions", {**environ, **more})
        scheduler = scheduler_entry("vessl").make(context)
        assert isinstance(scheduler, VesslScheduler)
        scheduler.looks, scheduler.try_again_seconds = (0.0,), 0.0
        return scheduler

    return make


def by_hand(environ: dict[str, str], folder: Path, spec: str) -> int:
    """The exit code that a person sees who types `vessl run create`."""
    (folder / "spec.yaml").write_text(spec)
    argv = ["vessl", "run", "create", "-f", str(folder / "spec.yaml")]
    return subprocess.run(argv, env=environ | QUIET, cwd="/", capture_output=True).returncode


async def test_a_run_is_made_found_described_shown_and_ended(
    vessl: Vessl, made: Made, bed: Bed
) -> None:
    spec = SPEC + "env:\n" + "".join(f"  V{n}: <<V{n}>>\n" for n in range(len(VALUES)))
    submission = bed.run(template=spec)
    submission.variables.update({f"V{number}": value for number, value in enumerate(VALUES)})
    # Telemetry, and whatever else it might tell, would go to a proxy that is not there.
    handle = await made(VESSL_DATA_COLLECTION_OPT_OUT="false", ENABLE_SENTRY="true").submit(
        submission, join_text()
    )
    assert not [line for line in vessl.requests if line.endswith("/run_executions")]
    run = vessl.runs[int(handle)]
    assert (run.name, run.project, run.id) == (bed.run().name, "llama", FIRST_ID)
    sent = {f"V{number}": value for number, value in enumerate(VALUES)}
    assert environment_of(run.spec) == sent | {"RDZV_JOIN": join_text()}
    scheduler = made()
    assert await scheduler.find(bed.run()) == handle
    assert await scheduler.find(bed.run(2)) is None
    assert await scheduler.describe(bed.run(), handle) == Description(SlotState.QUEUED)
    lines = [line async for line in scheduler.logs(bed.run(), handle, lines=5, follow=False)]
    assert [line.partition("] ")[2] for line in lines] == [f"Run {run.name} was created."]
    for _ in range(2):
        await scheduler.cancel(bed.run(), handle, grace_seconds=1.0)
    ended = Description(SlotState.FAILED, "terminated")
    assert await scheduler.describe(bed.run(), handle) == ended


async def test_the_reason_of_a_failure_and_a_run_beyond_the_list_are_read(
    vessl: Vessl, made: Made, bed: Bed
) -> None:
    run = vessl.create("llama", SPEC)
    run.status, run.reason, vessl.pages = "failed", "Preempted: the node was reclaimed", 0
    failed = Description(SlotState.FAILED, "failed: Preempted: the node was reclaimed")
    assert await made().describe(bed.run(), str(run.id)) == failed
    scheduler = made()
    await scheduler.cancel(bed.run(2), "17", grace_seconds=0.0)
    assert (await scheduler.describe(bed.run(2), "17")).state is SlotState.ENDED


def test_what_it_loses_or_changes_and_ends_with_0_is_refused_before_it_is_sent(
    vessl: Vessl, made: Made, bed: Bed, environ: dict[str, str], tmp_path: Path
) -> None:
    without = SPEC.replace("image: i\n", "")
    assert by_hand(environ, tmp_path, without) == 0
    assert vessl.runs == {}
    with pytest.raises(TemplateError, match="it has no 'image'"):
        made().prepare(bed.run(template=without), "hidden")
    spec = f"{SPEC}env: {{TAG: '12e4567', MODE: 0755, GOOD: '0755'}}\n"
    assert by_hand(environ, tmp_path, spec) == 0
    arrived = environment_of(vessl.runs[FIRST_ID].spec)
    assert arrived == {"TAG": "inf", "MODE": "493", "GOOD": "0755"}
    with pytest.raises(TemplateError, match=r"env.TAG: .* without quotes"):
        made().prepare(bed.run(template=spec), "hidden")


@pytest.mark.parametrize(
    ("errors", "variables", "words", "posts"),
    [
        ([500] * 3, {}, "InternalServerError (500)", 3),
        ([422], {}, "VesslApiException: InternalServerError (422): Something went wrong.", 1),
        ([ECHO], {}, "RDZV_JOIN: (hidden)", 1),
        ([], {"VESSL_API_HOST": DEAD}, "Connection refused", 0),
        ([], {"VESSL_ACCESS_TOKEN": "nope"}, "Invalid access token.", 0),
        ([], {"VESSL_DEFAULT_PROJECT": "nope"}, "Invalid project.", 0),
    ],
)
async def test_an_error_is_told_in_its_words_without_a_secret(
    vessl: Vessl, made: Made, bed: Bed, errors: list[Any], variables: Any, words: str, posts: int
) -> None:
    vessl.errors = errors
    with pytest.raises(SchedulerError) as caught:
        await made(**variables).submit(bed.run(), join_text())
    assert words in caught.value.message
    assert TOKEN not in str(caught.value)
    assert "rdzv1-" not in str(caught.value)
    assert all(name in caught.value.hint for name in variables if name != "VESSL_API_HOST")
    assert len(vessl.posts()) == posts
    assert vessl.runs == {}


async def test_a_run_that_was_made_although_the_command_failed_is_found(
    vessl: Vessl, made: Made, bed: Bed
) -> None:
    vessl.lose_answers = 1
    assert await made().submit(bed.run(), join_text()) == str(FIRST_ID)
    assert [run.name for run in vessl.runs.values()] == [bed.run().name]


async def test_the_account_may_be_in_the_runs_own_configuration(
    vessl: Vessl, made: Made, bed: Bed, tmp_path: Path
) -> None:
    lines = [f"{key} = '{value}'" for key, value in vessl.account("other").items()]
    (tmp_path / "run.toml").write_text("\n".join(["[user]", *lines, ""]))
    names = ("VESSL_ACCESS_TOKEN", "VESSL_DEFAULT_ORGANIZATION", "VESSL_DEFAULT_PROJECT")
    nothing = dict.fromkeys(names, "")
    scheduler = made(**nothing, VESSL_RUN_INITIAL_CONFIG=str(tmp_path / "run.toml"))
    handle = await scheduler.submit(bed.run(), join_text())
    assert vessl.runs[int(handle)].project == "other"
