"""The page beside a launch: `rdzv launch --ui`, whose end ends nothing."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.support.canaries import Canaries, command_of
from tests.support.launching import Launched, launching, lives, shell
from tests.support.page_process import Looker, heads, launch_on_terminal
from tests.support.waiting import until

pytestmark = [pytest.mark.page, pytest.mark.real_time, pytest.mark.timeout(120)]

WITH_PAGE = ("--nnodes", "1", "--framework", "command", "--ui")
WAITS = 'echo begun; while [ ! -e "$0" ]; do sleep 0.05; done; exit 3'
KEY = "correct-horse-battery"


@contextmanager
def beside(folder: Path) -> Iterator[tuple[Launched, psutil.Process, Looker]]:
    """A run with its page, and one who looks at it; the program ends with 3 once there is `go`."""
    command = [*shell(WAITS), str(folder / "go")]
    with launching(folder / "s", *WITH_PAGE, command=command, env={"RDZV_UI_KEY": KEY}) as run:
        page = run.child(" ui ")
        base = until(lambda: address_of(page))
        looker = Looker(base, key=KEY)
        try:
            run.wait_for_phase("running")
            looker.wait("running")
            yield run, page, looker
        finally:
            run.process.kill()
            looker.close()


def address_of(page: psutil.Process) -> str | None:
    """Where it listens."""
    ports = [one.laddr.port for one in page.net_connections() if one.status == "LISTEN"]
    return f"http://127.0.0.1:{ports[0]}/" if ports else None


def environment_of(pid: int) -> bytes:
    """Of a process; empty: it has ended meanwhile, as those do that only look at the machine."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def test_the_key_of_a_person_opens_sessions_and_is_in_no_environment(tmp_path: Path) -> None:
    """And who has opened one is shown the end, and how to see it again."""
    with beside(tmp_path) as (run, page, looker):
        changes = looker.watch()
        canaries = Canaries()
        canaries.add_text("key", KEY)
        everyone = [run.process.pid, *(child.pid for child in run.children())]
        programs = [pid for pid in everyone if "while" in command_of(pid)]
        assert programs
        assert page.pid in everyone
        assert canaries.find_in_processes(everyone) == {}
        for pid in everyone:
            assert b"\0RDZV_UI_KEY=" not in environment_of(pid)
        for pid in programs:
            if "keeper" not in command_of(pid) and "rdzv_command" not in command_of(pid):
                assert b"RDZV_UI_KEY" not in environment_of(pid)
        (tmp_path / "go").touch()
        outcome = run.finish()
        assert outcome.code == 3
        head = until(lambda: heads(changes)[-1] if heads(changes) else None)
        assert head["state"] == "failed"
        assert head["next_step"].endswith("rdzv ui r, to see this again")
        assert not lives(page.pid)
    assert "rdzv ui r" in outcome.err
    assert "open it with your RDZV_UI_KEY" in outcome.err
    assert "#t=" not in outcome.err
    assert KEY not in outcome.err + outcome.out


def test_a_page_that_is_killed_changes_nothing_for_the_run(tmp_path: Path) -> None:
    with beside(tmp_path) as (run, page, _):
        family = [page, *page.children(recursive=True)]
        page.kill()
        until(lambda: not any(lives(one.pid) for one in family))
        (tmp_path / "go").touch()
        assert run.finish().code == 3


def test_a_page_ends_soon_after_its_launcher_was_killed(tmp_path: Path) -> None:
    with beside(tmp_path) as (run, page, looker):
        looker.watch()
        family = [page, *page.children(recursive=True)]
        run.process.send_signal(signal.SIGKILL)
        run.process.wait()
        until(lambda: not any(lives(one.pid) for one in family), 20)
        (tmp_path / "go").touch()


def test_on_a_terminal_the_link_is_shown(tmp_path: Path) -> None:
    words = (*WITH_PAGE, "--", *shell(WAITS), str(tmp_path / "go"))
    with launch_on_terminal(tmp_path / "s", *words) as (process, link):
        base, ticket = link()
        looker = Looker(base, ticket=ticket)
        looker.wait("running")
        (tmp_path / "go").touch()
        assert process.wait(40) == 3
        looker.close()


def test_a_page_that_cannot_be_served_is_said_and_the_run_goes_on(tmp_path: Path) -> None:
    command, words = [*shell(WAITS), str(tmp_path / "go")], ("--ui-listen", "0.0.0.0")
    with launching(tmp_path / "s", *WITH_PAGE, *words, command=command) as run:
        run.wait_to_say("--ui-behind-ingress")
        (tmp_path / "go").touch()
        outcome = run.finish()
    assert outcome.code == 3
    assert "--ui-behind-ingress" in outcome.err
    assert "Traceback" not in outcome.err
