"""VESSL's own command 0.1.199 against an API that behaves: section by section, what goes wrong."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launcher.schedulers.catalog import scheduler_entry
from launcher.schedulers.contract import SERVICE_FAILS, SchedulerContext
from launcher.schedulers.description import Description
from launcher.schedulers.vessl import VesslScheduler
from rendezvous.wire.errors import SchedulerError, TemplateError
from rendezvous.wire.run import SlotState
from tests.support.bed import Bed, join_text
from tests.support.nightly import but_at_night
from tests.support.vendors import vessl_folder
from tests.vessl.service import ECHO, FIRST_ID, TOKEN, Vessl, environment_of

pytestmark = [pytest.mark.schedulers, pytest.mark.timeout(500)]

Made = Callable[..., VesslScheduler]
SPEC = "name: by-hand\nimage: i\nresources: {cluster: gpu-cluster}\nrun: echo\n"
DEAD = "http://127.0.0.1:9"


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
    return {
        **vessl.environ(),
        "PATH": f"{vessl_folder()}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "HTTPS_PROXY": DEAD,
        "HTTP_PROXY": DEAD,
    }


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


async def refused(scheduler: VesslScheduler, bed: Bed) -> SchedulerError:
    """The error of a submit."""
    with pytest.raises(SchedulerError) as caught:
        await scheduler.submit(bed.run(), join_text())
    assert TOKEN not in str(caught.value)
    assert join_text() not in str(caught.value)
    return caught.value


def by_hand(environ: dict[str, str], folder: Path, spec: str) -> subprocess.CompletedProcess[str]:
    """What a person sees who types `vessl run create`."""
    (folder / "spec.yaml").write_text(spec)
    return subprocess.run(
        ["vessl", "run", "create", "-f", str(folder / "spec.yaml")],
        env={**environ, "VESSL_DATA_COLLECTION_OPT_OUT": "true", "ENABLE_SENTRY": "false"},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
    )


async def test_a_worker_run_is_made_found_described_shown_and_ended(
    vessl: Vessl, made: Made, bed: Bed
) -> None:
    handle = await made().submit(bed.run(), join_text())
    assert not [line for line in vessl.requests if line.endswith("/run_executions")]
    run = vessl.runs[int(handle)]
    assert (run.name, run.project, run.id) == (bed.run().name, "llama", FIRST_ID)
    assert environment_of(run.spec) == {"RDZV_JOIN": join_text()}
    scheduler = made()
    assert await scheduler.find(bed.run()) == handle
    assert await scheduler.find(bed.run(2)) is None
    assert await scheduler.describe(bed.run(), handle) == Description(SlotState.QUEUED)
    lines = [line async for line in scheduler.logs(bed.run(), handle, lines=5, follow=False)]
    assert [line.partition("] ")[2] for line in lines] == [f"Run {run.name} was created."]
    await scheduler.cancel(bed.run(), handle, grace_seconds=1.0)
    await scheduler.cancel(bed.run(), handle, grace_seconds=1.0)
    assert run.status == "terminated"
    assert await scheduler.describe(bed.run(), handle) == Description(
        SlotState.FAILED, "terminated"
    )


async def test_the_reason_of_a_failure_and_a_run_beyond_the_list_are_read(
    vessl: Vessl, made: Made, bed: Bed
) -> None:
    handle = await made().submit(bed.run(), join_text())
    vessl.runs[int(handle)].status = "failed"
    vessl.runs[int(handle)].reason = "Preempted: the node was reclaimed"
    failed = Description(SlotState.FAILED, "failed: Preempted: the node was reclaimed")
    assert await made().describe(bed.run(), handle) == failed
    vessl.pages = 0
    assert await made().describe(bed.run(), handle) == failed
    scheduler = made()
    await scheduler.cancel(bed.run(2), "17", grace_seconds=0.0)
    assert (await scheduler.describe(bed.run(2), "17")).state is SlotState.ENDED


@pytest.mark.nightly
async def test_an_unknown_cluster_ends_with_0_and_is_an_error_here(
    vessl: Vessl, made: Made, bed: Bed, environ: dict[str, str], tmp_path: Path
) -> None:
    vessl.clusters = ("a100",)
    assert by_hand(environ, tmp_path, SPEC).returncode == 0
    error = await refused(made(), bed)
    assert "gpu-cluster cluster does not exist! Please select among ['a100']." in error.message
    assert "--set CLUSTER=" in error.hint
    assert vessl.runs == {}


@pytest.mark.parametrize("missing", but_at_night(["image", "resources"], "image"))
def test_a_missing_field_ends_with_0_and_is_refused_before_it_is_sent(
    vessl: Vessl, made: Made, bed: Bed, environ: dict[str, str], tmp_path: Path, missing: str
) -> None:
    spec = "".join(line for line in SPEC.splitlines(True) if not line.startswith(missing))
    assert by_hand(environ, tmp_path, spec).returncode == 0
    with pytest.raises(TemplateError, match=f"it has no '{missing}'"):
        made().prepare(bed.run(template=spec), "hidden")
    assert vessl.runs == {}


def test_a_value_that_it_would_change_is_refused_before_it_is_sent(
    vessl: Vessl, made: Made, bed: Bed, environ: dict[str, str], tmp_path: Path
) -> None:
    spec = f"{SPEC}env: {{TAG: '12e4567', MODE: 0755, GOOD: '0755'}}\n"
    assert by_hand(environ, tmp_path, spec).returncode == 0
    arrived = environment_of(vessl.runs[FIRST_ID].spec)
    assert arrived == {"TAG": "inf", "MODE": "493", "GOOD": "0755"}
    with pytest.raises(TemplateError, match=r"env.TAG: .* without quotes"):
        made().prepare(bed.run(template=spec), "hidden")


async def test_values_of_all_kinds_arrive_as_they_were_given(
    vessl: Vessl, made: Made, bed: Bed
) -> None:
    values = [
        'it\'s "a"',
        "a: b #c",
        "a|b&c",
        "0123",
        "yes",
        "12:30",
        "two\nlines",
        "학습 训练",
        "\t",
    ]
    spec = SPEC + "env:\n" + "".join(f"  V{n}: <<V{n}>>\n" for n in range(len(values)))
    run = bed.run(template=spec)
    run.variables.update({f"V{number}": value for number, value in enumerate(values)})
    handle = await made().submit(run, join_text())
    found = environment_of(vessl.runs[int(handle)].spec)
    assert [found[f"V{number}"] for number in range(len(values))] == values


async def test_a_server_error_is_tried_again_and_makes_one_run(
    vessl: Vessl, made: Made, bed: Bed
) -> None:
    vessl.errors = [500]
    assert await made().submit(bed.run(), join_text()) == str(FIRST_ID)
    assert len(vessl.runs) == 1


async def test_server_errors_without_end_are_told_and_the_command_is_not_blamed(
    vessl: Vessl, made: Made, bed: Bed
) -> None:
    vessl.errors = [500] * 10
    error = await refused(made(), bed)
    assert "InternalServerError (500)" in error.message
    assert error.hint == SERVICE_FAILS
    assert len(vessl.posts()) == 3


async def test_a_refusal_is_told_in_vessls_words_and_not_tried_again(
    vessl: Vessl, made: Made, bed: Bed
) -> None:
    vessl.errors = [422]
    error = await refused(made(), bed)
    assert error.message == (
        "slot 1: 'vessl' ended with exit code 1: vessl.util.exception.VesslApiException: "
        "InternalServerError (422): Something went wrong."
    )
    assert len(vessl.posts()) == 1


async def test_an_api_that_repeats_the_spec_makes_no_secret_known(
    vessl: Vessl, made: Made, bed: Bed
) -> None:
    vessl.errors = [ECHO]
    error = await refused(made(), bed)
    assert "RDZV_JOIN: (hidden)" in error.message
    assert "rdzv1-" not in str(error)


@pytest.mark.parametrize("fault", but_at_night(["lose_reads", "lose_answers"], "lose_answers"))
async def test_a_run_that_was_made_although_the_command_failed_is_found(
    vessl: Vessl, made: Made, bed: Bed, environ: dict[str, str], tmp_path: Path, fault: str
) -> None:
    setattr(vessl, fault, 1)
    assert by_hand(environ, tmp_path, SPEC).returncode == 1
    setattr(vessl, fault, 1)
    assert await made().submit(bed.run(), join_text()) == str(FIRST_ID + 1)
    assert [run.name for run in vessl.runs.values()] == ["by-hand", bed.run().name]


async def test_an_api_that_is_away_is_told(made: Made, bed: Bed) -> None:
    error = await refused(made(VESSL_API_HOST=DEAD), bed)
    assert "Connection refused" in error.message
    assert f"whether worker run {bed.run().name} was made is not known" in error.message


async def test_a_stuck_api_is_given_up(vessl: Vessl, made: Made, bed: Bed) -> None:
    scheduler = made()
    scheduler.profile = scheduler.profile.model_copy(
        update={"timeout_seconds": 1.5, "retry_submit": False}
    )
    vessl.stuck.set()
    error = await refused(scheduler, bed)
    assert "did not answer in time" in error.message


@pytest.mark.parametrize(
    ("variable", "words", "hint"),
    [
        ("VESSL_ACCESS_TOKEN", "Invalid access token.", "VESSL_ACCESS_TOKEN"),
        ("VESSL_DEFAULT_ORGANIZATION", "Invalid organization", "VESSL_DEFAULT_ORGANIZATION"),
        ("VESSL_DEFAULT_PROJECT", "Invalid project.", "VESSL_DEFAULT_PROJECT"),
    ],
)
async def test_an_account_that_is_not_taken_is_told_with_what_to_set(
    vessl: Vessl, made: Made, bed: Bed, variable: str, words: str, hint: str
) -> None:
    error = await refused(made(**{variable: "nope"}), bed)
    assert words in error.message
    assert hint in error.hint
    assert vessl.runs == {}


@pytest.mark.nightly
async def test_the_only_project_of_an_organization_is_not_taken_for_another_one(
    vessl: Vessl, made: Made, bed: Bed, environ: dict[str, str], tmp_path: Path
) -> None:
    vessl.projects = ("other",)
    assert by_hand(environ, tmp_path, SPEC).returncode == 0
    assert vessl.runs[FIRST_ID].project == "other"
    error = await refused(made(), bed)
    assert "Invalid project." in error.message
    assert len(vessl.runs) == 1


async def test_the_account_may_be_in_the_runs_own_configuration(
    vessl: Vessl, made: Made, bed: Bed, tmp_path: Path
) -> None:
    lines = [f"{key} = '{value}'" for key, value in vessl.account("other").items()]
    (tmp_path / "run.toml").write_text("\n".join(["[user]", *lines, ""]))
    nothing = dict.fromkeys(
        ("VESSL_ACCESS_TOKEN", "VESSL_DEFAULT_ORGANIZATION", "VESSL_DEFAULT_PROJECT"), ""
    )
    scheduler = made(**nothing, VESSL_RUN_INITIAL_CONFIG=str(tmp_path / "run.toml"))
    handle = await scheduler.submit(bed.run(), join_text())
    assert vessl.runs[int(handle)].project == "other"


async def test_it_speaks_to_the_api_alone(
    vessl: Vessl, made: Made, bed: Bed, environ: dict[str, str], tmp_path: Path
) -> None:
    with_telemetry = {**environ, "VESSL_DATA_COLLECTION_OPT_OUT": "false"}
    (tmp_path / "spec.yaml").write_text(SPEC)
    done = subprocess.run(
        ["vessl", "run", "create", "-f", str(tmp_path / "spec.yaml")],
        env=with_telemetry,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "ProxyError" in done.stderr
    await made(VESSL_DATA_COLLECTION_OPT_OUT="false", ENABLE_SENTRY="true").submit(
        bed.run(), join_text()
    )
    assert len(vessl.runs) == 1


@pytest.mark.nightly
async def test_a_dotenv_file_and_an_odd_checkout_where_the_launcher_stands_do_not_matter(
    vessl: Vessl, made: Made, bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").write_text("gitdir: /nowhere\n")
    (tmp_path / ".env").write_text(f"VESSL_API_HOST={DEAD}\n")
    monkeypatch.chdir(tmp_path)
    assert await made().submit(bed.run(), join_text()) == str(FIRST_ID)
