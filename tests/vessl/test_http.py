"""VESSL by its API, and by its own command: what is said, and that no run is lost."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.schedulers.catalog import scheduler_entry
from launcher.schedulers.contract import SERVICE_FAILS, NothingSubmitted, SchedulerContext
from launcher.schedulers.description import Description
from launcher.schedulers.vessl import VesslScheduler
from launcher.schedulers.vessl_http import VesslHttpScheduler
from rendezvous.talk.certificate import make_certificate
from rendezvous.wire.errors import SchedulerError, TemplateError
from rendezvous.wire.run import SlotState
from tests.support.bed import Bed, join_text, time_out_once
from tests.support.nightly import at_night
from tests.support.vendors import vessl_folder
from tests.support.waiting import soon
from tests.vessl.service import ECHO, FIRST_ID, QUIET, TOKEN, Vessl, environment_of

pytestmark = pytest.mark.timeout(500)

Made = Callable[..., VesslHttpScheduler]


@pytest.fixture
def vessl() -> Iterator[Vessl]:
    """The service; runs stay as the test sets them."""
    with Vessl() as served:
        yield served


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    """Gives worker runs."""
    return Bed("vessl", tmp_path)


@pytest.fixture
def made(vessl: Vessl, tmp_path: Path) -> Made:
    """Makes a scheduler for a person with an account, and further variables."""

    def make(**more: str) -> VesslHttpScheduler:
        scheduler = VesslHttpScheduler(SchedulerContext(tmp_path, vessl.environ() | more))
        scheduler.looks, scheduler.try_again_seconds = (0.0, 0.0, 0.0), 0.0
        return scheduler

    return make


async def refused(scheduler: VesslHttpScheduler, bed: Bed, **run: Any) -> SchedulerError:
    """The error of a submit."""
    with pytest.raises(SchedulerError) as caught:
        await scheduler.submit(bed.run(**run), join_text())
    assert TOKEN not in str(caught.value)
    assert "rdzv1-" not in str(caught.value)
    return caught.value


async def test_a_spec_is_sent_as_it_is(vessl: Vessl, made: Made, bed: Bed) -> None:
    template = "image: i\nresources: {}\nenv: {TAG: '12e4567', MODE: \"0755\"}\nname: theirs\n"
    handle = await made().submit(bed.run(template=template), join_text())
    run = vessl.runs[int(handle)]
    assert run.name == bed.run().name
    sent = {"TAG": "12e4567", "MODE": "0755", "RDZV_JOIN": join_text()}
    assert environment_of(run.spec) == sent


@pytest.mark.parametrize(
    ("errors", "hidden", "lost", "posts"),
    [([500, 503], 0, 0, 3), ([429, 429], 0, 0, 3), ([], 0, 1, 1), ([], 2, 1, 1)],
)
async def test_a_run_is_made_once_whatever_is_answered_at_first(
    vessl: Vessl, made: Made, bed: Bed, errors: list[int], hidden: int, lost: int, posts: int
) -> None:
    vessl.errors, vessl.hidden, vessl.lose_answers = errors, hidden, lost
    assert await made().submit(bed.run(), join_text()) == str(FIRST_ID)
    assert (len(vessl.runs), len(vessl.posts())) == (1, posts)


async def test_a_failed_try_is_told_at_once(vessl: Vessl, made: Made, bed: Bed) -> None:
    vessl.errors = [500, 429]
    heard = []

    async def trouble(words: str) -> None:
        heard.append((words.partition(" answered ")[2][:3], len(vessl.posts())))

    await made().submit(bed.run(), join_text(), trouble=trouble)
    assert heard == [("500", 1), ("429", 2)]


async def test_a_run_that_is_listed_too_late_is_an_error_and_found_afterwards(
    vessl: Vessl, made: Made, bed: Bed
) -> None:
    vessl.lose_answers, vessl.hidden = 1, 3
    error = await refused(made(), bed)
    assert error.message.endswith(f"there is no run {bed.run().name}")
    assert len(vessl.posts()) == 1
    assert await made().find(bed.run()) == str(FIRST_ID)


async def test_a_slow_api_is_given_up_and_its_run_is_found_afterwards(
    vessl: Vessl, made: Made, bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = made()
    await scheduler.submit(bed.run(2), join_text(2))  # the clusters are known now
    specs = scheduler._specs
    specs.profile = specs.profile.model_copy(update={"timeout_seconds": 0.3})
    vessl.stuck.set()
    time_out_once(monkeypatch, lambda: len(vessl.posts()) == 2)
    error = await refused(scheduler, bed)
    assert "did not answer within 0.3 s; rdzv does not know whether worker run" in error.message
    vessl.stuck.clear()
    await soon(lambda: len(vessl.runs) == 2)
    assert await made().find(bed.run()) == str(FIRST_ID + 1)
    assert len(vessl.posts()) == 2


@pytest.mark.parametrize(
    ("errors", "certain", "words", "posts"),
    [
        ([500] * 3, False, "answered 500: InternalServerError Something went wrong.; there is", 3),
        ([500, 429, 429], False, "answered 500", 3),
        ([429] * 3, True, "answered 429", 3),
        ([422], True, "answered 422: InternalServerError Something went wrong.", 1),
        ([ECHO], True, 'RDZV_JOIN: "(hidden)"', 1),
    ],
)
async def test_a_submit_that_fails_says_how_often_it_was_tried_and_whether_it_is_certain(
    vessl: Vessl, made: Made, bed: Bed, errors: list[Any], certain: bool, words: str, posts: int
) -> None:
    vessl.errors = errors
    template = "env: {RDZV_JOIN: <<RDZV_JOIN>>}\nimage: i\nresources: {}\n"
    error = await refused(made(), bed, template=template)
    assert error.message.startswith(f"VESSL's API ({vessl.host}) answered ")
    assert words in error.message
    assert isinstance(error, NothingSubmitted) is certain
    assert (error.hint == SERVICE_FAILS) is (posts == 3)
    assert len(vessl.posts()) == posts


@pytest.mark.parametrize(
    ("variables", "words", "hint"),
    [
        ({"VESSL_ACCESS_TOKEN": "wrong"}, "401: Unauthorized Invalid token.", "VESSL_ACCESS_TOKEN"),
        ({"VESSL_DEFAULT_PROJECT": "nope"}, "answered 404", "VESSL_DEFAULT_PROJECT"),
        ({"VESSL_API_HOST": "ftp://h"}, "VESSL_API_HOST is 'ftp://h'", "begin with https://"),
        ({"VESSL_API_HOST": "api.ai"}, "VESSL_API_HOST is 'api.ai'", "begin with https://"),
        ({"VESSL_API_HOST": "https://:443"}, "VESSL_API_HOST is 'https://:443'", "begin with"),
        ({"VESSL_API_HOST": "http://127.0.0.1:9"}, "API (http://127.0.0.1:9): ", ""),
        ({"VESSL_ACCESS_TOKEN": ""}, "without the access token", "vessl configure"),
    ],
)
async def test_an_account_that_is_not_taken_is_told_with_where_to_look(
    vessl: Vessl, made: Made, bed: Bed, variables: dict[str, str], words: str, hint: str
) -> None:
    error = await refused(made(HOME="/nonexistent", **variables), bed)
    assert isinstance(error, NothingSubmitted)
    assert words in error.message
    assert hint in error.hint
    assert vessl.runs == {}


async def test_a_stranger_with_a_certificate_of_its_own_gets_no_token(
    made: Made, bed: Bed, tmp_path: Path
) -> None:
    certificate, read = make_certificate(b"s" * 32), list[bytes]()
    (tmp_path / "impostor.pem").write_bytes(certificate.key_pem + certificate.pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "impostor.pem")

    async def told(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        read.append(await reader.read(1000))
        writer.close()

    async with await asyncio.start_server(told, "127.0.0.1", ssl=context) as server:
        host = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        error = await refused(made(VESSL_API_HOST=host), bed)
    assert "cannot be trusted: self-signed certificate" in error.message
    assert "SSL_CERT_FILE" in error.hint
    assert read == []


async def test_an_unknown_cluster_is_told_with_the_known(
    vessl: Vessl, made: Made, bed: Bed
) -> None:
    vessl.clusters = ("a100", "h100")
    error = await refused(made(), bed)
    assert error.message == "there is no cluster 'gpu-cluster' in 'acme'"
    assert error.hint == "its clusters are: a100, h100"
    assert vessl.posts() == []


async def test_all_runs_of_a_name_are_ended_with_it(vessl: Vessl, made: Made, bed: Bed) -> None:
    first, second, _ = [await made().submit(bed.run(slot), join_text()) for slot in (1, 1, 2)]
    assert first != second
    await made().cancel(bed.run(), first, grace_seconds=1.0)
    assert [run.status for run in vessl.runs.values()] == ["terminated", "terminated", "pending"]


def test_what_is_no_spec_is_refused_before_anything_is_asked(made: Made, bed: Bed) -> None:
    with pytest.raises(TemplateError, match="it has no 'resources'"):
        made().prepare(bed.run(template="image: i\n"), "hidden")


@pytest.mark.parametrize(
    ("status", "reason", "expected", "words"),
    [
        ("pending", "Insufficient GPUs", SlotState.QUEUED, "Insufficient GPUs"),
        ("initializing", "", SlotState.SUBMITTED, "initializing"),
        ("initializing", "Pulling image", SlotState.SUBMITTED, "Pulling image"),
        ("running", "", SlotState.RUNNING, ""),
        ("stopping", "", SlotState.RUNNING, ""),
        ("completed", "", SlotState.ENDED, "completed"),
        ("idle", "", SlotState.ENDED, "idle"),
        ("failed", "Preempted", SlotState.FAILED, "failed: Preempted"),
        ("terminated", "", SlotState.FAILED, "terminated"),
        ("hibernating", "", SlotState.UNKNOWN, "hibernating"),
    ],
)
async def test_a_run_is_described_in_vessls_words(
    vessl: Vessl, made: Made, bed: Bed, status: str, reason: str, expected: SlotState, words: str
) -> None:
    handle = await made().submit(bed.run(), join_text())
    vessl.runs[int(handle)].status, vessl.runs[int(handle)].reason = status, reason
    vessl.lose_reads = 1  # it is asked again
    preempted = reason == "Preempted"
    assert await made().describe(bed.run(), handle) == Description(expected, words, preempted)


async def test_an_api_that_is_down_says_nothing_of_a_run(
    vessl: Vessl, made: Made, bed: Bed
) -> None:
    handle = await made().submit(bed.run(), join_text())
    vessl.lose_reads = 10
    with pytest.raises(SchedulerError, match="answered 500"):
        await made().describe(bed.run(), handle)


@pytest.mark.parametrize(("pages", "lists"), [(True, 3), (False, 2)])
async def test_a_run_is_looked_for_on_later_pages_and_not_for_ever(
    vessl: Vessl, made: Made, bed: Bed, pages: bool, lists: int
) -> None:
    vessl.pages, vessl.knows_pages = 100, pages
    handle = await made().submit(bed.run(), join_text())
    for number in range(250):
        vessl.create("llama", f"image: i\nname: other-{number}\n")
    assert await made().find(bed.run()) == (handle if pages else None)
    assert await made().find(bed.run(3)) is None
    asked = [line for line in vessl.requests if line.endswith("/run_executions")]
    assert len(asked) == 2 * lists


async def test_logs_are_followed_until_the_run_is_over(
    vessl: Vessl, made: Made, bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launcher.schedulers.vessl_http._FOLLOW_SECONDS", 0.02)
    handle = await made().submit(bed.run(), join_text())
    run = vessl.runs[int(handle)]
    run.lines = [(float(at), f"line {at}") for at in range(10)]
    found = []
    async for line in made().logs(bed.run(), handle, lines=2, follow=True):
        found.append(line)
        if line == "line 9":
            run.lines.append((10.0, "\x1b[31mtwo\x1b[0m\\nlines"))
        if line == "lines":
            run.status = "completed"
    assert found == ["line 8", "line 9", "two", "lines"]
    newest = made().logs(bed.run(), handle, lines=1, follow=False)
    assert [line async for line in newest] == ["two", "lines"]


async def test_the_command_to_end_a_run_shows_no_token(vessl: Vessl, made: Made, bed: Bed) -> None:
    assert made().cancel_words(bed.run(), "4711") == (
        'curl -X POST -H "Authorization: Token $VESSL_ACCESS_TOKEN" '
        f"{vessl.host}/api/v1/organizations/acme/projects/llama/run_executions/4711/terminate"
    )


# ---- VESSL's own command 0.1.199 against the same API -------------------------------------------


Commanded = Callable[..., VesslScheduler]
SPEC = "name: by-hand\nimage: i\nresources: {cluster: gpu-cluster}\nrun: echo\n"
DEAD = "http://127.0.0.1:9"
VALUES = ['it\'s "a"', "a: b #c", "a|b&c", "0123", "yes", "12:30", "two\nlines", "학습 训练", "\t"]


@pytest.fixture
def environ(vessl: Vessl, tmp_path: Path) -> dict[str, str]:
    """A person's environment. Whatever goes elsewhere than to the service fails."""
    path = {"PATH": f"{vessl_folder()}:/usr/bin:/bin", "HOME": str(tmp_path)}
    return vessl.environ() | path | {"HTTPS_PROXY": DEAD, "HTTP_PROXY": DEAD}


@pytest.fixture
def commanded(environ: dict[str, str], tmp_path: Path) -> Commanded:
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


@pytest.mark.schedulers
async def test_a_run_is_made_found_described_shown_and_ended(
    vessl: Vessl, commanded: Commanded, bed: Bed
) -> None:
    spec = SPEC + "env:\n" + "".join(f"  V{n}: <<V{n}>>\n" for n in range(len(VALUES)))
    submission = bed.run(template=spec)
    submission.variables.update({f"V{number}": value for number, value in enumerate(VALUES)})
    # Telemetry, and whatever else it might tell, would go to a proxy that is not there.
    handle = await commanded(VESSL_DATA_COLLECTION_OPT_OUT="false", ENABLE_SENTRY="true").submit(
        submission, join_text()
    )
    assert not [line for line in vessl.requests if line.endswith("/run_executions")]
    run = vessl.runs[int(handle)]
    assert (run.name, run.project, run.id) == (bed.run().name, "llama", FIRST_ID)
    sent = {f"V{number}": value for number, value in enumerate(VALUES)}
    assert environment_of(run.spec) == sent | {"RDZV_JOIN": join_text()}
    scheduler = commanded()
    assert await scheduler.find(bed.run()) == handle
    assert await scheduler.find(bed.run(2)) is None
    assert await scheduler.describe(bed.run(), handle) == Description(SlotState.QUEUED)
    lines = [line async for line in scheduler.logs(bed.run(), handle, lines=5, follow=False)]
    assert [line.partition("] ")[2] for line in lines] == [f"Run {run.name} was created."]
    for _ in range(2):
        await scheduler.cancel(bed.run(), handle, grace_seconds=1.0)
    ended = Description(SlotState.FAILED, "terminated")
    assert await scheduler.describe(bed.run(), handle) == ended


@pytest.mark.nightly
@pytest.mark.schedulers
async def test_the_reason_of_a_failure_and_a_run_beyond_the_list_are_read(
    vessl: Vessl, commanded: Commanded, bed: Bed
) -> None:
    run = vessl.create("llama", SPEC)
    run.status, run.reason, vessl.pages = "failed", "Preempted: the node was reclaimed", 0
    words = "failed: Preempted: the node was reclaimed"
    failed = Description(SlotState.FAILED, words, preempted=True)
    assert await commanded().describe(bed.run(), str(run.id)) == failed
    scheduler = commanded()
    await scheduler.cancel(bed.run(2), "17", grace_seconds=0.0)
    assert (await scheduler.describe(bed.run(2), "17")).state is SlotState.ENDED


@pytest.mark.schedulers
def test_what_it_loses_or_changes_and_ends_with_0_is_refused_before_it_is_sent(
    vessl: Vessl, commanded: Commanded, bed: Bed, environ: dict[str, str], tmp_path: Path
) -> None:
    without = SPEC.replace("image: i\n", "")
    assert by_hand(environ, tmp_path, without) == 0
    assert vessl.runs == {}
    with pytest.raises(TemplateError, match="it has no 'image'"):
        commanded().prepare(bed.run(template=without), "hidden")
    spec = f"{SPEC}env: {{TAG: '12e4567', MODE: 0755, GOOD: '0755'}}\n"
    assert by_hand(environ, tmp_path, spec) == 0
    arrived = environment_of(vessl.runs[FIRST_ID].spec)
    assert arrived == {"TAG": "inf", "MODE": "493", "GOOD": "0755"}
    with pytest.raises(TemplateError, match=r"env.TAG: .* without quotes"):
        commanded().prepare(bed.run(template=spec), "hidden")


@pytest.mark.schedulers
@pytest.mark.parametrize(
    ("errors", "variables", "words", "posts"),
    [
        at_night([500] * 3, {}, "InternalServerError (500)", 3),
        at_night([422], {}, "VesslApiException: InternalServerError (422): Something went", 1),
        ([ECHO], {}, "RDZV_JOIN: (hidden)", 1),
        at_night([], {"VESSL_API_HOST": DEAD}, "Connection refused", 0),
        ([], {"VESSL_ACCESS_TOKEN": "nope"}, "Invalid access token.", 0),
        at_night([], {"VESSL_DEFAULT_PROJECT": "nope"}, "Invalid project.", 0),
    ],
)
async def test_an_error_is_told_in_its_words_without_a_secret(
    vessl: Vessl,
    commanded: Commanded,
    bed: Bed,
    errors: list[Any],
    variables: Any,
    words: str,
    posts: int,
) -> None:
    vessl.errors = errors
    with pytest.raises(SchedulerError) as caught:
        await commanded(**variables).submit(bed.run(), join_text())
    assert words in caught.value.message
    assert TOKEN not in str(caught.value)
    assert "rdzv1-" not in str(caught.value)
    assert all(name in caught.value.hint for name in variables if name != "VESSL_API_HOST")
    assert len(vessl.posts()) == posts
    assert vessl.runs == {}


@pytest.mark.schedulers
async def test_a_run_that_was_made_although_the_command_failed_is_found(
    vessl: Vessl, commanded: Commanded, bed: Bed
) -> None:
    vessl.lose_answers = 1
    assert await commanded().submit(bed.run(), join_text()) == str(FIRST_ID)
    assert [run.name for run in vessl.runs.values()] == [bed.run().name]


@pytest.mark.schedulers
async def test_the_account_may_be_in_the_runs_own_configuration(
    vessl: Vessl, commanded: Commanded, bed: Bed, tmp_path: Path
) -> None:
    lines = [f"{key} = '{value}'" for key, value in vessl.account("other").items()]
    (tmp_path / "run.toml").write_text("\n".join(["[user]", *lines, ""]))
    names = ("VESSL_ACCESS_TOKEN", "VESSL_DEFAULT_ORGANIZATION", "VESSL_DEFAULT_PROJECT")
    nothing = dict.fromkeys(names, "")
    scheduler = commanded(**nothing, VESSL_RUN_INITIAL_CONFIG=str(tmp_path / "run.toml"))
    handle = await scheduler.submit(bed.run(), join_text())
    assert vessl.runs[int(handle)].project == "other"
