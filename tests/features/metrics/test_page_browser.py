"""A browser shows metrics: how it is going, and the curves."""

from __future__ import annotations

import pytest

from tests.features.metrics import shown
from tests.support.browser import Open
from tests.ui import runs
from tests.ui.stub import Stub

pytestmark = [pytest.mark.browser, pytest.mark.real_time]


def test_it_says_how_far_and_how_fast_the_program_is(opened: Open) -> None:
    stub = Stub(4)
    ranks = [shown.rank(0, 1190), shown.rank(1), shown.rank(2)]
    for one in ranks:
        one["values"]["total_steps"] = 5090.0
    stub.answers["state"]["parts"]["metrics"] = ranks
    seen = opened(stub)
    seen.page.locator(".tiles b").first.wait_for()
    found = seen.tiles()
    assert found["Step"] == ["1,200", "the last rank at 1,190"]
    assert found["Loss"] == ["0.53", "median of 3 ranks"]
    assert found["Throughput"] == ["18,250", "tokens_per_second"]
    assert found["Speed"] == ["3.9/s", "steps"]
    assert found["Time left"] == ["16 min 40 s", "at this speed"]
    ranks = [{**shown.rank(number, 1300), "pace": 0.5} for number in range(3)]
    stub.change(parts={"metrics": ranks})
    seen.page.locator(".tiles b", has_text="1,300").wait_for()
    assert seen.tiles()["Speed"] == ["2 s", "each step"]
    assert seen.tiles()["Loss"] == ["0.53", "median of 3 ranks"]


def test_ranks_in_lock_step_that_report_at_different_moments_are_not_behind(opened: Open) -> None:
    stub = Stub(4)
    ranks = [{**shown.rank(0, 1190), "at": 299.0}, shown.rank(1)]
    stub.answers["state"]["parts"]["metrics"] = ranks
    seen = opened(stub)
    seen.page.locator(".tiles b").first.wait_for()
    assert seen.tiles()["Step"] == ["1,200"]


def test_a_speed_that_is_over_is_not_shown(opened: Open) -> None:
    stub = Stub(4)
    for one in stub.answers["state"]["parts"]["metrics"]:
        one["at"] = 100.0
    seen = opened(stub)
    seen.page.locator(".tiles b").first.wait_for()
    found = seen.tiles()
    assert found["Step"][1] in ("3 min 38 s ago", "3 min 39 s ago", "3 min 40 s ago")
    assert not {"Throughput", "Speed", "Time left"} & set(found)


@pytest.mark.parametrize(
    ("how", "words"),
    [("running", "The program reports no step or loss"), ("gathering", "do not run yet")],
)
def test_a_program_that_reports_nothing_is_told_how(
    opened: Open, how: runs.How, words: str
) -> None:
    stub = Stub(4, how)
    stub.answers["state"]["parts"] = {}
    seen = opened(stub)
    seen.page.get_by_text(words).wait_for()
    assert seen.tiles() == {}


def test_a_value_that_is_no_number_is_shown_as_it_is(opened: Open) -> None:
    stub = Stub(4)
    stub.answers["state"]["parts"]["metrics"][2]["values"] = {"train_loss": "NaN"}
    for one in stub.answers["state"]["parts"]["metrics"]:
        one["values"].pop("loss", None)
    seen = opened(stub)
    seen.page.locator(".tiles b").first.wait_for()
    assert seen.tiles()["Loss"] == ["NaN", "train_loss"]


def test_curves_are_asked_again_when_ranks_report(opened: Open) -> None:
    seen = opened(Stub(4))
    place = seen.view("curves")
    place.get_by_text("Step 1,990").first.wait_for()
    seen.stub.answers["curves"] = shown.curves(300)
    seen.stub.change(parts={"metrics": [shown.rank(0, 3000)]})
    seen.stub.change(parts={"metrics": [shown.rank(1, 3000)]})
    place.get_by_text("Step 2,990").first.wait_for()
    assert seen.stub.count("/curves") == 2
