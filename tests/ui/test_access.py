"""The page can be used by everyone: with axe-core's rules, by keyboard, dark and light, narrow."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.browser import Open
from tests.support.nightly import at_night
from tests.ui import runs
from tests.ui.seen import VIEWS, Seen
from tests.ui.stub import Stub

pytestmark = [pytest.mark.browser, pytest.mark.real_time]
GRAVE = {"serious", "critical", "moderate"}


def found_by_axe(seen: Seen) -> list[str]:
    """What axe-core holds against the page as it is now."""
    from axe_playwright_python.sync_playwright import Axe

    response: dict[str, Any] = Axe().run(seen.page).response
    return [
        f"{one['impact']}: {one['id']}: {node['html']}"
        for one in response["violations"]
        for node in one["nodes"]
        if one["impact"] in GRAVE
    ]


@pytest.mark.parametrize(
    ("width", "theme"),
    [
        (1280, "dark"),
        (390, "light"),
        at_night(1280, "light"),
        at_night(390, "dark"),
    ],
)
def test_axe_finds_nothing_in_any_view(opened: Open, width: int, theme: str) -> None:
    stub = Stub(4, "running")
    stub.answers["state"]["epochs"] = runs.state(4, "restarting")["epochs"]
    seen = opened(stub, viewport={"width": width, "height": 800}, color_scheme=theme)
    for name in VIEWS:
        place = seen.view(name)
        runs.open_all(name, place)
        seen.settled()
        assert (name, found_by_axe(seen), seen.overflow()) == (name, [], 0)


@pytest.mark.parametrize("theme", ["dark", at_night("light")])
def test_axe_finds_nothing_at_the_doors_and_in_a_question(opened: Open, theme: str) -> None:
    stub = Stub(4, "failed")
    seen = opened(stub, ticket="used", color_scheme=theme)
    page = seen.page
    page.get_by_text("the ticket was used").wait_for()
    assert found_by_axe(seen) == []
    page.get_by_label("Key").fill("key-1")
    page.keyboard.press("Enter")
    page.locator(".result").wait_for()
    assert found_by_axe(seen) == []
    page.get_by_role("link", name="All runs").click()
    page.get_by_text("rank 5 ran out of memory").wait_for()
    assert found_by_axe(seen) == []
    stub.answers["state"] = runs.state(4, "restarting")
    page.get_by_role("link", name="demo", exact=True).click()
    page.get_by_role("button", name="Drain a node").click()
    assert found_by_axe(seen) == []
    stub.stop()
    page.get_by_text("Not connected for").wait_for()
    assert found_by_axe(seen) == []


def test_everything_is_reached_by_keyboard(opened: Open) -> None:
    seen = opened(Stub(4))
    page = seen.page
    page.locator(".sentence").wait_for()
    keys = page.keyboard
    focused = (
        "() => { const one = document.activeElement;"
        " return one === document.body ? 'BODY' : one.textContent || one.tagName; }"
    )
    keys.press("Tab")
    assert page.evaluate(focused) == "Skip to the content"
    keys.press("Enter")
    assert page.evaluate("() => document.activeElement.id") == "main"
    assert "view=now" in page.url
    page.locator("#tab-now").focus()
    for name in (*VIEWS[1:], "now"):
        keys.press("ArrowRight")
        page.locator(f".view-{name}").wait_for()
    keys.press("End")
    assert page.evaluate(focused) == "Environment"
    keys.press("Home")
    page.locator(".view-now").wait_for()
    names = []
    for _ in range(20):
        keys.press("Tab")
        names.append(page.evaluate(focused))
        outline = page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid" or names[-1] == "BODY"
    assert {"Cancel the run …", "CANVAS", "log"} <= set(names)


def test_the_focus_stays_where_it_is_while_changes_come(opened: Open) -> None:
    seen = opened(Stub(4))
    link = seen.page.get_by_role("link", name="Log of node 3")
    link.focus()
    worse = runs.slot(2, 4, "running", worse=3, problem="no lease")
    seen.stub.change(slots=[worse], head=runs.head(4, "running", sentence="node 2 is lost"))
    seen.page.get_by_text("no lease").wait_for()
    assert link.evaluate("(e) => e === document.activeElement")


@pytest.mark.parametrize(("theme", "other"), [("dark", "light"), ("light", "dark")])
def test_the_theme_is_chosen_and_kept(opened: Open, theme: str, other: str) -> None:
    seen = opened(Stub(4), color_scheme=theme)
    page = seen.page
    page.locator(".sentence").wait_for()
    background = "() => getComputedStyle(document.body).backgroundColor"
    colours = {"dark": "rgb(18, 22, 27)", "light": "rgb(255, 255, 255)"}
    assert page.evaluate(background) == colours[theme]
    page.get_by_role("button", name=f"Theme: {theme}").click()
    page.get_by_role("button", name=f"Theme: {other}").wait_for()
    assert page.evaluate(background) == colours[other]
    page.reload()
    page.locator(".sentence").wait_for()
    assert page.evaluate(background) == colours[other]


def test_nothing_moves_for_who_wants_no_motion(opened: Open) -> None:
    seen = opened(Stub(4), reduced_motion="reduce")
    seen.page.locator(".sentence").wait_for()
    moving = seen.page.evaluate(
        "() => [...document.querySelectorAll('*')].filter((e) => { const s = getComputedStyle(e);"
        " return s.animationName !== 'none' || parseFloat(s.transitionDuration) > 0; }).length"
    )
    assert moving == 0
