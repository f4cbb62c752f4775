"""A real run, and the real `rdzv ui` of it."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rendezvous.talk.credentials import RunKeys
from rendezvous.wire.errors import ExitCode
from tests.support.canaries import Canaries
from tests.support.launching import RDZV, Launched, environment, launch, launching, rdzv, shell
from tests.support.nightly import at_night
from tests.support.page_process import Looker, Page, heads, page_of
from tests.support.waiting import until

pytestmark = [pytest.mark.page, pytest.mark.real_time, pytest.mark.timeout(120)]

ONE = ("--nnodes", "1", "--framework", "command")
WAITS = 'echo begun; while [ ! -e "$0" ]; do sleep 0.05; done; echo ended'
CAN_READ_MEMORY = os.geteuid() == 0  # of another process


def waiting(folder: Path) -> list[str]:
    """A program that goes on until there is a file `go`."""
    return [*shell(WAITS), str(folder / "go")]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "s"


@pytest.fixture
def run(tmp_path: Path, state: Path) -> Iterator[Launched]:
    """A run that goes on until there is a file `go`."""
    with launching(state, *ONE, command=waiting(tmp_path)) as launched:
        launched.wait_for_phase("running")
        yield launched


def keys_of(launched: Launched) -> RunKeys:
    record = (launched.folder / "launch.json").read_text()
    launch_id = record.partition('"launch_id": "')[2].partition('"')[0]
    secret = bytes.fromhex((launched.folder / "secret").read_text())
    return RunKeys(secret, launched.run, launch_id)


def memory_of(pid: int) -> Iterator[bytes]:
    """All that a process could write, piece by piece."""
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb") as memory:
        for line in maps:
            place, rights, *_ = line.split()
            if not rights.startswith("rw") or line.rstrip().endswith(("[vvar]", "[vsyscall]")):
                continue
            start, end = (int(number, 16) for number in place.split("-"))
            try:
                memory.seek(start)
                yield memory.read(end - start)
            except OSError:  # it is gone meanwhile
                continue


def credentials_held(page: Page, looker: Looker, run: Launched) -> set[str]:
    """Those that the page has in its memory, once it was asked for all sorts of things."""
    keys, canaries = keys_of(run), Canaries()
    for name, secret in (
        ("secret", keys.secret),
        ("admin", keys.admin.secret),
        ("look", keys.look.secret),
        ("read", keys.read.secret),
    ):
        canaries.add(name, secret)
    for what in ("checks", "logs"):
        looker.get(what)
    looker.act(act="drain", node=7)
    return set[str]().union(*map(canaries.find, memory_of(page.process.pid)))


# ---- a run that goes on --------------------------------------------------------------------------


def test_who_looks_sees_the_run_its_output_and_its_end(
    run: Launched, state: Path, tmp_path: Path
) -> None:
    with page_of(state) as page:
        looker = page.looker()
        assert looker.opened["actions"] is False
        head = looker.wait("running")
        assert (head["tone"], head["nodes"], head["over"]) == ("good", "1", False)
        assert [row["run"] for row in looker.client.get("ui-api/runs").json()] == ["r"]
        [slot] = looker.state()["slots"]
        assert [span["phase"] for span in slot["spans"]][-1] == "running"
        assert looker.get("checks").json()["total"]
        names = [one["name"] for one in looker.get("environment?node=0").json()["variables"]]
        assert "MASTER_ADDR" in names
        changes = looker.watch()
        pieces = looker.lines("logs?follow=1")
        first = next(piece for piece in pieces if "lines" in piece)
        assert first["lines"][0].endswith("begun")
        for act in ("cancel", "restart", "drain"):
            assert looker.act(act=act, node=0).status_code == 403
        (tmp_path / "go").touch()
        rest = list(pieces)
        assert [line for piece in rest for line in piece.get("lines", [])] == ["ended"]
        assert rest[-1] == {"over": True}
        assert run.finish().code == 0
        head = until(lambda: next((one for one in heads(changes) if one["over"]), None))
        assert (head["state"], head["result"]["exit_code"]) == ("ok", 0)
        kinds = [event["kind"] for change in changes[1:] for event in change.get("events", [])]
        assert "exited" in kinds
        assert [piece for piece in looker.lines("logs?follow=1") if "lines" in piece]


def test_every_answer_says_how_a_browser_is_to_treat_it(run: Launched, state: Path) -> None:
    """And to give it, the page has no credential in its memory that could act."""
    with page_of(state) as page:
        looker = page.looker()
        looker.wait("running")
        ask = looker.client.request
        answers = [
            ask("GET", ""),
            ask("GET", "nosuch"),
            ask("PUT", ""),
            ask("GET", "ui-api/runs"),
            ask("GET", "ui-api/runs/nosuch/state"),
            ask("POST", "ui-api/session", content=b"x" * 100_000),
            ask("GET", "", headers={"host": "evil.example"}),
            ask("GET", "", headers={"origin": "http://evil.example"}),
            ask("GET", "ui-api/runs", headers={"x-rdzv-session": "x"}),
            ask("GET", "/" + "a" * 60_000),
            looker.get("state"),
        ]
        with looker.client.stream("GET", "ui-api/runs/r/stream") as stream:
            answers.append(stream)
        assert [answer.status_code for answer in answers[:-3]] == [
            *(200, 404, 405, 200, 404, 413, 400, 403, 401)
        ]
        for answer in answers:
            headers = answer.headers
            assert "default-src 'none'" in headers["content-security-policy"]
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["x-frame-options"] == "DENY"
            assert headers["referrer-policy"] == "no-referrer"
            assert headers["cross-origin-opener-policy"] == "same-origin"
            assert headers["cross-origin-resource-policy"] == "same-origin"
            assert headers["cache-control"] == "no-store"
            assert "access-control-allow-origin" not in headers
            assert "set-cookie" not in headers
        if not CAN_READ_MEMORY:
            pytest.skip("the rest of it needs root: to read another process's memory")
        assert credentials_held(page, looker, run) == {"read"}


def test_a_page_with_acts_cancels_as_the_command_does(run: Launched, state: Path) -> None:
    """Only such a page has what it needs for that in its memory."""
    with page_of(state, "--ui-actions") as page:
        looker = page.looker()
        assert looker.opened["actions"] is True
        looker.wait("running")
        assert "has no node 7" in looker.act(act="drain", node=7).json()["message"]
        assert looker.act(act="drain").status_code == 400
        if CAN_READ_MEMORY:
            assert credentials_held(page, looker, run) == {"read", "look", "admin"}
        done = looker.act(act="cancel", reason="from the page")
        assert done.status_code == 200, done.text
        outcome = run.finish()
        assert outcome.code == ExitCode.CANCELLED
        assert "from the page" in outcome.last_line
        assert looker.wait("cancelled")["tone"] == "off"


# ---- what it holds -------------------------------------------------------------------------------


def test_a_saved_page_is_private_and_holds_no_secret(tmp_path: Path, state: Path) -> None:
    words = ["train.py --api-key hunter2hunter2", "export PASSWORD='hunter2 hunter2'"]
    command = ["sh", "-c", 'echo "$@"', "x", *words, "--token", "hunter2 with a space"]
    env = {"HF_TOKEN": "hunter2hunter2", "WANDB_API_KEY": "hunter2"}
    with launching(state, *ONE, command=command, env=env) as launched:
        assert launched.finish().code == 0
    keys, file = keys_of(launched), tmp_path / "run.html"
    subprocess.run(
        [RDZV, "ui", "r", "--save", str(file)], env=environment(state), check=True, umask=0
    )
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    text = file.read_text()
    assert "train.py" in text
    assert "hunter2" not in text
    assert not found_in(text.encode(), keys)


def found_in(data: bytes, keys: RunKeys) -> set[str]:
    canaries = Canaries()
    for name in ("secret", "row_key", "probe_key"):
        canaries.add(name, getattr(keys, name))
    for name in ("read", "admin", "look", "logs"):
        canaries.add(name, getattr(keys, name).secret)
    return canaries.find(data)


# ---- what it refuses -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "env", "said"),
    [
        (("--ui-listen", "0.0.0.0"), {}, "--ui-behind-ingress"),
        at_night(("--ui-listen", "::"), {}, "--ui-behind-ingress"),
        ((), {"RDZV_UI_KEY": "short"}, "RDZV_UI_KEY has 5 characters"),
    ],
)
def test_what_would_not_be_safe_is_refused(
    state: Path, words: tuple[str, ...], env: dict[str, str], said: str
) -> None:
    done = subprocess.run(
        [RDZV, "ui", "r", *words],
        env=environment(state, **env),
        capture_output=True,
        text=True,
        timeout=40,
    )
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert "#t=" not in done.stdout
    assert done.returncode not in (0, 1)


# ---- what happens to the run meanwhile -----------------------------------------------------------


def test_a_launcher_that_is_killed_is_said_to_be_and_the_events_are_there_once(
    run: Launched, state: Path, tmp_path: Path
) -> None:
    with page_of(state) as page:
        looker = page.looker()
        looker.wait("running")
        changes = looker.watch()
        run.process.kill()
        run.finish()
        head = until(lambda: [head for head in heads(changes) if head["state"] == "killed"])[0]
        assert (head["tone"], head["over"]) == ("bad", True)
        numbers = [event["number"] for event in looker.state()["events"]]
        assert numbers == sorted({*numbers}), "of the registry, and then of its journal"
        (tmp_path / "go").touch()
        rdzv(state, "cancel", "r")


def test_a_registry_that_comes_back_goes_on_being_read_and_a_second_launch_from_its_start(
    run: Launched, state: Path, tmp_path: Path
) -> None:
    with page_of(state) as page:
        looker = page.looker()
        first = looker.wait("running")["launch_id"]
        changes = looker.watch()
        run.child("_registry").kill()
        run.wait_for_phase("running")
        (tmp_path / "go").touch()
        assert run.finish().code == 0
        head = until(lambda: next((one for one in heads(changes) if one["over"]), None))
        assert head["state"] == "ok"
        kinds = until(lambda: kinds_with("exited", looker))
        assert kinds.count("created") == kinds.count("exited") == 1
        assert launch(state, *ONE, command=waiting(tmp_path)).code == 0
        until(lambda: [change for change in changes if change.get("reset")])
        until(lambda: looker.wait("ok")["launch_id"] != first)
        assert [event["kind"] for event in looker.state()["events"]].count("created") == 1


def kinds_with(kind: str, looker: Looker) -> list[str] | None:
    kinds = [event["kind"] for event in looker.state()["events"]]
    return kinds if kind in kinds else None
