"""VESSL by its API, when something is wrong: what is said, and that no run is lost."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launcher.schedulers.contract import SERVICE_FAILS, NothingSubmitted, SchedulerContext
from launcher.schedulers.description import Description
from launcher.schedulers.vessl_http import VesslHttpScheduler
from rendezvous.talk.certificate import make_certificate
from rendezvous.wire.errors import SchedulerError, TemplateError
from rendezvous.wire.run import SlotState
from tests.support.bed import Bed, join_text, time_out_once
from tests.vessl.service import ECHO, FIRST_ID, TOKEN, Vessl, environment_of

pytestmark = pytest.mark.real_time

Made = Callable[..., VesslHttpScheduler]


@pytest.fixture
def vessl() -> Iterator[Vessl]:
    """The service; runs stay as the test sets them."""
    with Vessl() as served:
        yield served


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    """Gives worker runs."""
    with contextlib.closing(Bed("vessl-http", tmp_path)) as made:
        yield made


@pytest.fixture
def made(vessl: Vessl, tmp_path: Path) -> Made:
    """Makes a scheduler for a person with an account, and further variables."""

    def make(**more: str) -> VesslHttpScheduler:
        environ = {**vessl.environ(), **more}
        scheduler = VesslHttpScheduler(SchedulerContext(tmp_path, environ))
        scheduler.looks, scheduler.try_again_seconds = (0.0, 0.0, 0.0), 0.0
        return scheduler

    return make


async def refused(scheduler: VesslHttpScheduler, bed: Bed) -> SchedulerError:
    """The error of a submit."""
    with pytest.raises(SchedulerError) as caught:
        await scheduler.submit(bed.run(), join_text())
    assert TOKEN not in str(caught.value)
    assert join_text() not in str(caught.value)
    return caught.value


async def test_a_spec_is_sent_as_it_is(vessl: Vessl, made: Made, bed: Bed) -> None:
    template = "image: i\nresources: {}\nenv: {TAG: '12e4567', MODE: \"0755\"}\nname: theirs\n"
    handle = await made().submit(bed.run(template=template), join_text())
    run = vessl.runs[int(handle)]
    assert run.name == bed.run().name
    assert environment_of(run.spec) == {
        "TAG": "12e4567",
        "MODE": "0755",
        "RDZV_JOIN": join_text(),
    }
    assert vessl.headers[-1]["Authorization"] == f"Token {TOKEN}"


@pytest.mark.parametrize("count", [1, 2])
async def test_a_server_error_is_tried_again_once_no_run_is_found(
    vessl: Vessl, made: Made, bed: Bed, count: int
) -> None:
    vessl.errors = [500, 503][:count]
    assert await made().submit(bed.run(), join_text()) == str(FIRST_ID)
    assert len(vessl.runs) == 1


async def test_server_errors_without_end_are_told(vessl: Vessl, made: Made, bed: Bed) -> None:
    vessl.errors = [500] * 10
    error = await refused(made(), bed)
    assert error.message == (
        f"slot 1: VESSL's API ({vessl.host}) answered 500: InternalServerError Something went "
        f"wrong.; there is no run {bed.run().name}"
    )
    assert error.hint == SERVICE_FAILS
    assert len(vessl.posts()) == 3


async def test_a_failed_try_is_told_at_once(vessl: Vessl, made: Made, bed: Bed) -> None:
    vessl.errors = [500, 429]
    heard = []

    async def trouble(words: str) -> None:
        heard.append((words.partition(" answered ")[2][:3], len(vessl.posts())))

    await made().submit(bed.run(), join_text(), trouble=trouble)
    assert heard == [("500", 1), ("429", 2)]


async def test_too_many_requests_are_tried_again(vessl: Vessl, made: Made, bed: Bed) -> None:
    vessl.errors = [429, 429]
    assert await made().submit(bed.run(), join_text()) == str(FIRST_ID)


@pytest.mark.parametrize("hidden", [0, 2])
async def test_a_run_whose_answer_was_lost_is_found_by_its_name(
    vessl: Vessl, made: Made, bed: Bed, hidden: int
) -> None:
    vessl.lose_answers, vessl.hidden = 1, hidden
    assert await made().submit(bed.run(), join_text()) == str(FIRST_ID)
    assert len(vessl.posts()) == 1


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
    assert "did not answer within 0.3 s; whether worker run" in error.message
    vessl.stuck.clear()
    while len(vessl.runs) < 2:
        await asyncio.sleep(0.02)
    assert await made().find(bed.run()) == str(FIRST_ID + 1)
    assert len(vessl.posts()) == 2


async def test_what_was_certainly_not_submitted_is_told_apart(
    vessl: Vessl, made: Made, bed: Bed
) -> None:
    for errors, certain in (([422], True), ([429] * 3, True), ([500, 429, 429], False)):
        vessl.errors = errors
        error = await refused(made(), bed)
        assert isinstance(error, NothingSubmitted) is certain, error
    assert isinstance(await refused(made(VESSL_ACCESS_TOKEN="wrong"), bed), NothingSubmitted)


async def test_an_api_that_repeats_the_spec_makes_no_secret_known(
    vessl: Vessl, made: Made, bed: Bed
) -> None:
    vessl.errors = [ECHO]
    template = "env: {RDZV_JOIN: <<RDZV_JOIN>>}\nimage: i\nresources: {}\n"
    with pytest.raises(SchedulerError, match=r'RDZV_JOIN: "\(hidden\)"') as caught:
        await made().submit(bed.run(template=template), join_text())
    assert "rdzv1-" not in str(caught.value)


async def test_all_runs_of_a_name_are_ended_with_it(vessl: Vessl, made: Made, bed: Bed) -> None:
    first = await made().submit(bed.run(), join_text())
    second = await made().submit(bed.run(), join_text())
    other = await made().submit(bed.run(2), join_text(2))
    await made().cancel(bed.run(), first, grace_seconds=1.0)
    states = {run.id: run.status for run in vessl.runs.values()}
    assert states == {int(first): "terminated", int(second): "terminated", int(other): "pending"}


async def test_an_api_that_is_away_is_named(made: Made, bed: Bed) -> None:
    with socket.socket() as held:  # and not listened on
        held.bind(("127.0.0.1", 0))
        host = f"http://127.0.0.1:{held.getsockname()[1]}"
        error = await refused(made(VESSL_API_HOST=host), bed)
    assert error.message.startswith(f"slot 1: VESSL's API ({host}): ")
    assert "refused" in error.message


@pytest.mark.parametrize("host", ["ftp://127.0.0.1", "api.vessl.ai", "https://:443"])
async def test_an_address_that_is_none_is_refused(made: Made, bed: Bed, host: str) -> None:
    error = await refused(made(VESSL_API_HOST=host), bed)
    assert f"VESSL_API_HOST is '{host}'" in error.message


async def test_a_stranger_with_a_certificate_of_its_own_gets_no_token(
    made: Made, bed: Bed, tmp_path: Path
) -> None:
    with Impostor(tmp_path) as (host, read):
        error = await refused(made(VESSL_API_HOST=host), bed)
    assert "cannot be trusted: self-signed certificate" in error.message
    assert "SSL_CERT_FILE" in error.hint
    assert read == []


async def test_a_wrong_token_is_told_with_where_to_look(made: Made, bed: Bed) -> None:
    error = await refused(made(VESSL_ACCESS_TOKEN="wrong"), bed)
    assert "answered 401: Unauthorized Invalid token." in error.message
    assert "VESSL_ACCESS_TOKEN" in error.hint


async def test_a_wrong_project_is_told_and_no_other_one_is_taken(
    vessl: Vessl, made: Made, bed: Bed
) -> None:
    vessl.projects = ("other",)
    error = await refused(made(), bed)
    assert "answered 404" in error.message
    assert "VESSL_DEFAULT_PROJECT" in error.hint
    assert vessl.runs == {}


async def test_an_unknown_cluster_is_told_with_the_known_ones(
    vessl: Vessl, made: Made, bed: Bed
) -> None:
    vessl.clusters = ("a100", "h100")
    error = await refused(made(), bed)
    assert error.message == "slot 1: there is no cluster 'gpu-cluster' in 'acme'"
    assert error.hint == "its clusters are: a100, h100"
    assert vessl.posts() == []


async def test_without_an_account_nothing_is_asked(vessl: Vessl, bed: Bed, tmp_path: Path) -> None:
    scheduler = VesslHttpScheduler(SchedulerContext(tmp_path, {"HOME": str(tmp_path)}))
    error = await refused(scheduler, bed)
    assert "without the access token (VESSL_ACCESS_TOKEN)" in error.message
    assert vessl.requests == []


async def test_a_spec_that_vessl_refuses_is_told_in_its_words(
    vessl: Vessl, made: Made, bed: Bed
) -> None:
    vessl.errors = [422]
    error = await refused(made(), bed)
    assert "answered 422: InternalServerError Something went wrong." in error.message
    assert len(vessl.posts()) == 1


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
    assert await made().describe(bed.run(), handle) == Description(expected, words)


async def test_a_read_that_fails_once_is_asked_again(vessl: Vessl, made: Made, bed: Bed) -> None:
    handle = await made().submit(bed.run(), join_text())
    vessl.lose_reads = 1
    assert (await made().describe(bed.run(), handle)).state is SlotState.QUEUED


async def test_an_api_that_does_not_answer_says_nothing_of_a_run(
    vessl: Vessl, made: Made, bed: Bed
) -> None:
    handle = await made().submit(bed.run(), join_text())
    vessl.lose_reads = 10
    with pytest.raises(SchedulerError, match="answered 500"):
        await made().describe(bed.run(), handle)


async def test_a_run_on_a_later_page_is_found(vessl: Vessl, made: Made, bed: Bed) -> None:
    vessl.pages = 100
    handle = await made().submit(bed.run(), join_text())
    for number in range(250):
        vessl.create("llama", f"image: i\nname: other-{number}\n")
    assert await made().find(bed.run()) == handle
    assert await made().find(bed.run(3)) is None


async def test_a_server_that_knows_no_pages_is_not_asked_for_ever(
    vessl: Vessl, made: Made, bed: Bed
) -> None:
    vessl.knows_pages = False
    for number in range(120):
        vessl.create("llama", f"image: i\nname: other-{number}\n")
    assert await made().find(bed.run()) is None
    assert len([line for line in vessl.requests if line.endswith("/run_executions")]) == 2


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
    assert [line async for line in made().logs(bed.run(), handle, lines=1, follow=False)] == [
        "two",
        "lines",
    ]


async def test_the_command_that_ends_a_run_by_hand_shows_no_token(
    vessl: Vessl, made: Made, bed: Bed
) -> None:
    words = made().cancel_words(bed.run(), "4711")
    assert words == (
        'curl -X POST -H "Authorization: Token $VESSL_ACCESS_TOKEN" '
        f"{vessl.host}/api/v1/organizations/acme/projects/llama/run_executions/4711/terminate"
    )


class Impostor:
    """A server with a certificate that nobody has signed; it keeps what it is told."""

    def __init__(self, folder: Path) -> None:
        made = make_certificate(b"s" * 32)
        (folder / "impostor.pem").write_bytes(made.key_pem + made.pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "impostor.pem")
        self._context = context
        self._read: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> tuple[str, list[bytes]]:
        self._thread.start()
        return f"https://127.0.0.1:{self._socket.getsockname()[1]}", self._read

    def __exit__(self, *exc: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            with client:
                try:
                    with self._context.wrap_socket(client, server_side=True) as stream:
                        self._read.append(stream.recv(1000))
                except OSError:
                    continue
