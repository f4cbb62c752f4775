"""The real page of a real run in a real Chromium."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.launching import Launched, launching, rdzv
from tests.support.nightly import at_night
from tests.support.page_process import page_of
from tests.support.proxies import proxy
from tests.support.waiting import until
from tests.ui.seen import VIEWS, Seen, watched

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

pytestmark = [pytest.mark.browser, pytest.mark.real_time, pytest.mark.timeout(180)]

TWO = ("--nnodes", "2", "--framework", "command")
KEY = "correct-horse-battery"
LIMIT_MS = 40_000
PROGRAM = """
import os, sys, time
from rdzv import metrics
folder, rank = sys.argv[1], os.environ["NODE_RANK"]
print("begun on", rank, flush=True)
step = said = 0
while not os.path.exists(f"{folder}/go"):
    step += 1
    metrics.send(step, loss=1 / step)
    if os.path.exists(f"{folder}/say"):
        lines = open(f"{folder}/say").read().splitlines()
        for line in lines[said:]:
            print(line, "of", rank, flush=True)
        said = len(lines)
    time.sleep(0.1)
print("ended on", rank, flush=True)
"""
"""Goes on until there is a file `go`, and prints what is written to `say`."""


def program(folder: Path) -> list[str]:
    return [sys.executable, "-c", PROGRAM, str(folder)]


def say(folder: Path, line: str) -> None:
    """Let both programs print this."""
    with (folder / "say").open("a") as file:
        file.write(f"{line}\n")


@contextmanager
def running(folder: Path) -> Iterator[Launched]:
    with launching(folder / "s", *TWO, command=program(folder)) as launched:
        launched.wait_for_phase("running")
        yield launched


Look = Callable[..., Seen]


@pytest.fixture
def look(context: Callable[..., BrowserContext]) -> Iterator[Look]:
    """Open a page, by its address and a ticket; whatever it does wrong fails the test."""
    seen: list[Seen] = []

    def look_(base: str, ticket: str, *, clock: bool = False) -> Seen:
        made = watched(context(), None, base)
        made.page.set_default_timeout(LIMIT_MS)
        seen.append(made)
        if clock:
            made.page.clock.install()
        made.page.goto(f"{base}#t={ticket}")
        return made

    yield look_
    for one in seen:
        one.check()


OF_FEATURES = {
    "curves": ["loss", "rank 1"],
    "machines": ["CPUs", "memory"],
    "hang": [
        "No stall was reported so far",
        *("rdzv look r", "rdzv ui --ui-actions"),
    ],
}


def says(seen: Seen, sentence: str) -> None:
    """Wait until the first screen says so."""
    seen.page.locator(".sentence", has_text=sentence).wait_for()


def every_view(seen: Seen, expected: dict[str, list[str]]) -> None:
    """Each has its content, and nothing is wider than the window."""
    assert set(expected) == set(VIEWS)
    for name, texts in expected.items():
        place = seen.view(name)
        for text in texts:
            place.get_by_text(text).first.wait_for()
        seen.settled()
        assert seen.overflow() == 0, name


# ---- a run, and its file -------------------------------------------------------------------------


def test_a_run_is_shown_to_its_end_and_then_in_one_file(
    look: Look, context: Callable[..., BrowserContext], tmp_path: Path
) -> None:
    with running(tmp_path) as run, page_of(run.state) as page:
        seen = look(page.base, page.ticket)
        says(seen, "running on 2 nodes")
        assert page.ticket not in seen.page.url
        assert not seen.page.get_by_role("button", name="Cancel the run").is_visible()
        every_view(
            seen,
            {
                "now": ["running on 2 nodes", "Command", "local", "python"],
                "matrix": ["No pair has failed", "2 pairs ok. Yellow: slower than the others."],
                "checks": ["7 ok", "all nodes have MTU"],
                "logs": ["begun on 0", "begun on 1", "New lines appear at the end"],
                **{view: texts for view, texts in OF_FEATURES.items() if view in VIEWS},
                "epochs": ["Epoch 1 is in progress", "No earlier epoch"],
                "events": ["both nodes reach each other"],
                "environment": ["MASTER_ADDR", "NODE_RANK"],
            },
        )
        log = seen.view("logs")
        log.get_by_text("begun on 1").wait_for()
        say(tmp_path, "a line that is printed now")
        for rank in range(2):
            log.get_by_text(f"a line that is printed now of {rank}").wait_for()
        log.get_by_role("button", name="rank 1", exact=True).click()
        log.get_by_text("begun on 1").wait_for()
        log.get_by_text("begun on 0").wait_for(state="detached")
        (tmp_path / "go").touch()
        log.get_by_text("ended on 1").wait_for()
        log.get_by_text("End of the log.").wait_for()
        seen.page.locator("#state", has_text="ok").wait_for()
        assert run.finish().code == 0
        now = seen.view("now")
        now.locator(".sentence.is-good").wait_for()
        sentence = now.locator(".sentence").inner_text()
        rows = now.locator("tbody tr")
        rows.filter(has_text="ended").nth(1).wait_for()
        slots = rows.all_inner_texts()
    file = tmp_path / "run.html"
    assert str(file) in rdzv(run.state, "ui", "r", "--save", str(file))
    kept = watched(context(offline=True), None)
    kept.page.goto(file.as_uri())
    kept.page.get_by_text("nothing here changes any more").wait_for()
    now = kept.page.locator(".view-now")
    assert now.locator(".sentence").inner_text() == sentence
    assert now.locator("tbody tr").all_inner_texts() == slots
    log = kept.view("logs")
    for rank in range(2):
        log.get_by_text(f"a line that is printed now of {rank}").wait_for()
    log.get_by_role("button", name="rank 1", exact=True).click()
    log.get_by_text("ended on 1").wait_for()
    log.get_by_text("ended on 0").wait_for(state="detached")
    kept.check()


# ---- what else may end ---------------------------------------------------------------------------


def test_the_page_goes_on_after_its_registry_and_its_server_were_killed(
    look: Look, tmp_path: Path
) -> None:
    with running(tmp_path) as run:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])  # a page that chooses may have one that is not given
        with page_of(run.state, "--ui-port", port) as page:
            seen = look(page.base, page.ticket, clock=True)
            says(seen, "running on 2 nodes")
            registry = run.child("_registry")
            registry.kill()
            until(lambda: run.child("_registry").pid != registry.pid)
            log = seen.view("logs")
            say(tmp_path, "after the registry")
            log.get_by_text("after the registry of 1").wait_for()
            words = "the registry restarted from its journal"
            seen.view("events").get_by_text(words).wait_for()
            seen.view("now")
            says(seen, "running on 2 nodes")

            link = seen.page.locator("#link", has_text="Not connected for")
            page.process.send_signal(signal.SIGSTOP)
            seen.page.clock.fast_forward(15_500)
            link.wait_for()
            page.process.send_signal(signal.SIGCONT)
            link.wait_for(state="hidden")
            page.process.kill()
            page.process.wait()
            link.wait_for()
            assert seen.page.locator(".sentence").is_visible()
        with page_of(run.state, "--ui-port", port, env={"RDZV_UI_KEY": KEY}):
            seen.page.get_by_text("Your session has ended").wait_for()
            link.wait_for(state="hidden")
            seen.page.get_by_label("Key").fill(KEY)
            seen.page.get_by_role("button", name="Open", exact=True).click()
            says(seen, "running on 2 nodes")
            (tmp_path / "go").touch()
            seen.page.locator("#state", has_text="ok").wait_for()
        assert run.finish().code == 0


# ---- behind a proxy ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "words"),
    [
        at_night({"strips": True}, ()),
        at_night({"own_host": True}, ("--ui-host", "127.0.0.1")),
        ({"strips": True, "holds_back": True}, ()),
    ],
    ids=["strips", "keeps", "holds-back"],
)
def test_behind_a_prefix_of_a_proxy(
    look: Look, tmp_path: Path, how: dict[str, bool], words: tuple[str, ...]
) -> None:
    with (
        running(tmp_path) as run,
        page_of(run.state, *words) as page,
        proxy(page.base, "/hub/user-1", **how) as between,
    ):
        seen = look(between.base, page.ticket, clock=True)
        says(seen, "running on 2 nodes")
        if how.get("holds_back"):
            for times in (1, 2):
                until(partial(between.asked_for, "/stream?", times))
                seen.page.clock.fast_forward(15_500)
            until(partial(between.asked_for, "/changes?", 1))
        log = seen.view("logs")
        log.get_by_text("begun on 1").wait_for()
        say(tmp_path, "through the proxy")
        log.get_by_text("through the proxy of 1").wait_for()
        seen.view("matrix").get_by_text("No pair has failed").wait_for()
        seen.view("now")
        (tmp_path / "go").touch()
        seen.page.locator("#state", has_text="ok").wait_for()
        seen.page.locator("#state", has_text="ok").wait_for()
        assert not seen.page.locator("#link").is_visible()
        assert run.finish().code == 0
