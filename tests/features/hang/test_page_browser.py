"""A browser shows what was found while nothing moves, and a look at the ranks."""

from __future__ import annotations

import pytest

from tests.support.browser import Open
from tests.ui import runs
from tests.ui.stub import Stub
from tests.ui.test_first_screen import COLOUR, STALL

pytestmark = [pytest.mark.browser, pytest.mark.real_time]


def test_its_tab_says_whether_something_was_found(opened: Open) -> None:
    stub = Stub(4)
    stub.answers["state"]["head"] |= {"finding": "", "sentence": "running on 4 nodes"}
    seen = opened(stub)
    seen.page.get_by_role("tab", name="Hang (empty)", exact=True).wait_for()
    dim = seen.page.locator("#tab-hang").evaluate(COLOUR)
    assert seen.page.locator("#tab-logs").evaluate(COLOUR) != dim
    stub.change(head=runs.head(4, "running", finding=STALL, sentence="running on 4 nodes"))
    seen.page.get_by_role("tab", name="Hang 1", exact=True).wait_for()
    assert seen.page.locator("#tab-hang").evaluate(COLOUR) != dim
    stub.change(head=runs.head(4, "running", finding="", sentence="running on 4 nodes"))
    seen.page.get_by_role("tab", name="Hang (empty)", exact=True).wait_for()


@pytest.mark.parametrize(
    ("how", "silence", "words"),
    [
        ("running", "no output and no collective for 2 min", "no output and no collective for 2"),
        ("running", "", "No stall was reported so far, and none is with --stall off"),
        ("restarting", "", "Not judged: the programs do not run."),
        ("failed", "", "No stall was reported. Short runs, and"),
    ],
)
def test_a_run_that_was_not_judged_is_not_said_to_be_well(
    opened: Open, how: runs.How, silence: str, words: str
) -> None:
    stub = Stub(4, how)
    stub.answers["state"]["head"] |= {"finding": "", "silence": silence}
    seen = opened(stub)
    seen.view("hang").locator(".current", has_text=words).wait_for()
    assert seen.page.get_by_text(silence).count() >= 1


def test_a_page_that_may_only_look_offers_no_look(opened: Open) -> None:
    stub = Stub(4)
    stub.opened["actions"] = False
    seen = opened(stub)
    seen.view("hang").get_by_text("rdzv look demo").wait_for()
    assert not seen.page.get_by_role("button", name="Look").is_visible()


def test_a_look_shows_the_odd_one_first(opened: Open) -> None:
    seen = opened(Stub(4))
    place = seen.view("hang")
    place.get_by_role("button", name="Look at all ranks").click()
    place.get_by_text("rank 5 has not called it").wait_for()
    heads = place.locator("summary").all_inner_texts()
    assert ["rank 5" in heads[0], "7 ranks" in heads[1]] == [True, True]
    place.get_by_text("load (data.py:31)").wait_for()
    place.get_by_text("has not answered for 5 s").wait_for()
    place.get_by_role("button", name="Look again").wait_for()
