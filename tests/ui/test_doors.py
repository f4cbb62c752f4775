"""How the page is opened, and what it may do."""

from __future__ import annotations

import pytest

from tests.support.browser import Open
from tests.ui import runs
from tests.ui.stub import KEY, Stub

pytestmark = [pytest.mark.browser, pytest.mark.real_time]


def test_a_ticket_leaves_the_address_at_once_and_the_session_stays(opened: Open) -> None:
    seen = opened(Stub(4))
    page = seen.page
    page.locator(".sentence").wait_for()
    assert "ticket" not in page.url
    assert page.evaluate("() => history.length") <= 2
    page.reload()
    page.locator(".sentence").wait_for()
    assert seen.stub.count("/session") == 1
    page.goto(f"{seen.stub.address}#t=used&view=checks")
    page.locator(".view-checks").wait_for()
    assert (seen.stub.count("/session"), "used" in page.url) == (2, False)


def test_a_used_ticket_leads_to_the_form_for_a_key(opened: Open) -> None:
    seen = opened(Stub(4), ticket="used")
    page = seen.page
    page.get_by_text("the ticket was used").wait_for()
    page.get_by_text("prints a new one").wait_for()
    page.get_by_text("RDZV_UI_KEY_FILE").wait_for()
    page.get_by_label("Key").fill("wrong")
    page.keyboard.press("Enter")
    page.get_by_text("Could not load a session").wait_for()
    page.get_by_label("Key").fill(KEY)
    page.get_by_role("button", name="Open", exact=True).click()
    page.locator(".sentence").wait_for()
    assert KEY not in page.url


def test_a_session_that_has_ended_leads_back_to_the_form(opened: Open) -> None:
    seen = opened(Stub(4))
    seen.page.locator(".sentence").wait_for()
    seen.stub.streams(1)
    seen.stub.session_ok = False
    seen.stub.cut()
    seen.page.get_by_text("Your session has ended").wait_for()
    assert seen.page.evaluate("() => sessionStorage.length") == 0


def test_without_a_run_there_is_the_list_of_runs(opened: Open) -> None:
    stub = Stub(4)
    stub.opened["run"] = None
    seen = opened(stub)
    page = seen.page
    page.get_by_text("rank 5 ran out of memory").wait_for()
    page.get_by_role("link", name="demo", exact=True).click()
    page.locator(".sentence").wait_for()
    page.get_by_role("link", name="All runs").click()
    page.get_by_role("heading", name="Runs").wait_for()
    stub.answers["runs"] = []
    page.get_by_text("No run was launched on this machine").wait_for()
    assert stub.count("/stream") == 1


def test_a_run_that_is_not_there_is_said(opened: Open) -> None:
    stub = Stub(4)
    stub.answers["state"] = 404
    seen = opened(stub)
    seen.page.get_by_text("Could not load run 'demo'").wait_for()
    stub.answers["state"] = runs.state(4)
    seen.page.get_by_role("button", name="Try again").click()
    seen.page.locator(".sentence").wait_for()


def test_an_act_asks_first_and_says_what_has_come_of_it(opened: Open) -> None:
    seen = opened(Stub(4))
    page = seen.page
    page.get_by_role("button", name="Drain a node").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("before the node leaves").wait_for()
    dialog.get_by_role("button", name="Do nothing").click()
    assert seen.stub.acts == []
    page.get_by_role("button", name="Drain a node").click()
    dialog.get_by_label("Node").select_option("2")
    dialog.get_by_label("Seconds").fill("120")
    dialog.get_by_label("Reason").fill("broken fan")
    dialog.get_by_role("button", name="Drain a node").click()
    page.get_by_text("drain: the registry has accepted it").wait_for()
    assert seen.stub.acts == [
        {"act": "drain", "reason": "broken fan", "node": 2, "seconds": 120},
    ]
    page.get_by_role("button", name="Cancel the run").click()
    page.keyboard.press("Escape")
    assert page.get_by_role("dialog").count() == 0
    assert len(seen.stub.acts) == 1


def test_a_page_that_may_only_look_offers_no_act(opened: Open) -> None:
    stub = Stub(4)
    stub.opened["actions"] = False
    seen = opened(stub)
    seen.page.locator(".sentence").wait_for()
    assert not seen.page.get_by_role("button", name="Cancel the run").is_visible()
