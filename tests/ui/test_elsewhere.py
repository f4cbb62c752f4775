"""`rdzv ui` on another machine than the launch's: by RDZV_VIEW, with an empty state folder."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from rendezvous.wire.errors import ExitCode
from tests.support.launching import RDZV, Launched, environment, launching, rdzv, shell
from tests.support.page_process import Looker, page_of
from tests.support.waiting import until

pytestmark = [pytest.mark.page, pytest.mark.real_time, pytest.mark.timeout(120)]

TWO = ("--nnodes", "2", "--framework", "command")
WAITS = 'echo begun on $NODE_RANK; while [ ! -e "$0" ]; do sleep 0.05; done; exit 3'


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Launched]:
    """A run that fails once there is a file `go`."""
    command = [*shell(WAITS), str(tmp_path / "go")]
    with launching(tmp_path / "there", *TWO, command=command) as launched:
        launched.wait_for_phase("running")
        yield launched


@pytest.fixture
def here(tmp_path: Path, run: Launched) -> dict[str, str]:
    """The environment of who was given the run's view as a file."""
    view = tmp_path / "view"
    view.write_text(rdzv(run.state, "token", "view", "r"))
    return {"RDZV_VIEW_FILE": str(view)}


def lines_of(looker: Looker) -> list[str]:
    """Of both programs; of none while one of them has none."""
    found = [line for piece in looker.lines("logs") for line in piece.get("lines", [])]
    return found if len(found) >= 2 else []


def refuses_what_a_view_does_not_let(here: dict[str, str], state: Path) -> None:
    for words, env, said in (
        (("other",), here, "RDZV_VIEW is for run 'r', and 'other' was asked for"),
        (("--ui-actions",), here, "RDZV_VIEW lets a page see a run, and not act"),
        (("--url", "ftp://x"), here, "--url is 'ftp://x', which is not an address of a registry"),
        (("--url", "https://localhost:1"), {}, "--url needs RDZV_VIEW"),
        ((), {"RDZV_VIEW": "x"}, "RDZV_VIEW does not begin with"),
    ):
        done = subprocess.run(
            [RDZV, "ui", *words],
            env=environment(state, **env),
            capture_output=True,
            text=True,
            timeout=40,
        )
        assert done.returncode == ExitCode.USAGE
        assert said in done.stderr
        assert "#t=" not in done.stdout
        assert "Traceback" not in done.stderr


def test_a_run_is_shown_where_nothing_of_it_is_kept_and_what_a_view_does_not_let_is_refused(
    run: Launched, here: dict[str, str], tmp_path: Path
) -> None:
    refuses_what_a_view_does_not_let(here, tmp_path / "here")
    place = json.loads((run.folder / "launch.json").read_text())["place"]
    url = f"http://localhost:{place['p']}"
    with (
        page_of(tmp_path / "here", env=here) as page,
        page_of(tmp_path / "here", "--url", url, env=here) as by_url,
    ):
        lookers = [page.looker(), by_url.looker()]
        for looker in lookers:
            assert looker.opened["run"] == "r"
            assert looker.opened["actions"] is False
            assert looker.wait("running")["nodes"] == "2"
            assert {slot["state"] for slot in looker.state()["slots"]} == {"running"}
            assert looker.get("matrix").json()["shown"] is not None
            assert "rdzv status r --env 1" in looker.get("environment?node=1").json()["hint"]
            lines = until(partial(lines_of, looker))
            assert sorted(lines) == ["begun on 0", "begun on 1"]
            for act in ("cancel", "restart", "drain"):
                answer = looker.act(act=act, node=0)
                assert (answer.status_code, "--ui-actions" in answer.text) == (403, True)
        (tmp_path / "go").touch()
        assert run.finish().code == 3
        for looker in lookers:
            head = looker.wait("failed")
            assert (head["over"], head["result"]["exit_code"]) == (True, 3)
            assert looker.state()["slots"]
    assert not (tmp_path / "here").exists()
