"""Whatever a peer writes is text: nothing of it runs, and none of it breaks the page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from launcher.ui.page import saved_page
from tests.support.browser import Open
from tests.support.nightly import but_at_night
from tests.ui import runs
from tests.ui.hostile import ROTATIONS, STRINGS, UNSEEN, poisoned
from tests.ui.seen import VIEWS, Seen, watched
from tests.ui.stub import Stub

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

pytestmark = [pytest.mark.browser, pytest.mark.real_time]
NARROW = {"width": 390, "height": 800}
rotations = pytest.mark.parametrize("rotation", but_at_night(range(ROTATIONS), 4))


def harmless(seen: Seen, name: str) -> None:
    """The page as it is now has run nothing, shows nothing unseen, and is no wider than it may."""
    page = seen.page
    assert (name, page.evaluate("() => window.executed ?? null")) == (name, None)
    assert page.locator("img, iframe, svg, object, main script").count() == 0
    shown = page.evaluate("() => document.title + document.body.innerText")
    assert (name, set(shown) & UNSEEN) == (name, set())
    attributes = page.evaluate(
        "() => [...document.querySelectorAll('main *')].flatMap((e) => [...e.attributes])"
        ".map((a) => a.name)"
    )
    assert not {each for each in attributes if each.startswith("on")}
    assert (name, seen.overflow()) == (name, 0)


def bad_stub(rotation: int) -> Stub:
    stub = Stub(4, "failed")
    stub.answers["state"]["epochs"] = runs.state(4, "restarting")["epochs"]
    stub.answers["environment"] = runs.environment(0)
    stub.answers = poisoned(stub.answers, rotation)
    stub.logs = poisoned(stub.logs, rotation)
    stub.opened["run"] = STRINGS[rotation]
    stub.answers["state"]["head"]["over"] = False
    return stub


@rotations
def test_hostile_text_in_every_field_is_text(opened: Open, rotation: int) -> None:
    stub = bad_stub(rotation)
    seen = opened(stub, viewport=NARROW)
    for name in VIEWS:
        place = seen.view(name)
        seen.settled()
        if name == "events":
            place.get_by_role("checkbox").check()
        runs.open_all(name, place)
        if name == "logs":
            place.get_by_role("log").locator("div").nth(20).wait_for()
        harmless(seen, name)
    over = dict(stub.answers["state"]["head"]) | {"over": True}
    stub.change(head=over, events=poisoned([runs.event(400)], rotation))
    seen.view("now").locator(".result").wait_for()
    harmless(seen, "result")
    seen.page.get_by_role("link", name="All runs").click()
    seen.page.locator("tbody tr").first.wait_for()
    harmless(seen, "runs")


def test_a_hostile_refusal_is_text(opened: Open) -> None:
    stub = Stub(4)
    stub.refusal = poisoned({"code": "", "message": "", "hint": "", "retryable": False})
    stub.answers["checks"] = 503
    seen = opened(stub, viewport=NARROW)
    seen.view("checks").get_by_role("button", name="Try again").wait_for()
    harmless(seen, "refused")


@rotations
def test_hostile_text_in_a_saved_file_is_text(context: Any, tmp_path: Path, rotation: int) -> None:
    file = tmp_path / "run.html"
    file.write_bytes(saved_page(poisoned(runs.saved(4), rotation)))
    made: BrowserContext = context(viewport=NARROW, offline=True)
    seen = watched(made, None)
    seen.page.goto(file.as_uri())
    for name in VIEWS:
        seen.view(name)
        seen.settled()
        harmless(seen, name)
    seen.check()
