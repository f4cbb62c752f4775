"""Each view shows what the contract brings, and says so where there is nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.browser import Open
from tests.ui import runs
from tests.ui.seen import VIEWS
from tests.ui.stub import Stub

pytestmark = [pytest.mark.browser, pytest.mark.real_time]


COLOUR = "one => getComputedStyle(one).color"
ALL = [(nodes, how) for nodes in runs.SIZES for how in runs.HOWS]


@pytest.mark.parametrize(
    ("nodes", "how"),
    [
        pytest.param(
            *one, marks=[] if one[0] == 4 or one[1] == "running" else [pytest.mark.nightly]
        )
        for one in ALL
    ],
)
def test_the_first_screen_says_how_the_run_stands(opened: Open, nodes: int, how: runs.How) -> None:
    seen = opened(Stub(nodes, how))
    state = runs.state(nodes, how)
    page = seen.page
    page.locator(".sentence", has_text=state["head"]["sentence"]).wait_for()
    assert page.locator("#state").inner_text() == how
    assert page.locator(".view-now tbody tr").count() == min(nodes, 200)
    assert page.locator(".result").is_visible() == (how == "failed")
    worst = max(state["slots"], key=lambda slot: (slot["worse"], -slot["slot"]))
    named = str(worst["slot"]) if worst["node"] is not None else f"slot {worst['slot']}"
    assert page.locator(".view-now tbody tr td").first.inner_text() == named
    seen.settled()
    assert seen.overflow() == 0


def test_of_a_failed_run_the_culprit_is_first_red_and_marked_and_the_stopped_are_grey(
    opened: Open,
) -> None:
    stub = Stub(4, "failed")
    stopped = {"state": "ended", "tone": "off", "worse": 0, "problem": "", "exit_code": 143}
    stopped |= {"words": "ended, stopped by rdzv, exit code 143"}
    first = {"state": "ended", "tone": "bad", "worse": 110, "mark": "first cause", "exit_code": 1}
    first |= {"words": "ended, exit code 1", "suspect": 17}
    after = {"state": "ended", "tone": "bad", "worse": 100, "exit_code": 1, "problem": "reset"}
    after |= {"mark": "", "suspect": None, "words": "ended, exit code 1: reset"}
    stopped |= {"mark": "", "suspect": None}
    changes = [stopped, after, first, stopped]
    stub.answers["state"]["slots"] = [
        runs.slot(number, 4, "failed", **change) for number, change in enumerate(changes)
    ]
    seen = opened(stub)
    rows = seen.page.locator(".view-now tbody tr")
    rows.first.wait_for()
    assert [row.locator("td").first.inner_text() for row in rows.all()] == ["2", "1", "0", "3"]
    assert rows.first.locator(".badge").all_inner_texts() == ["first cause", "ended"]
    colours = [row.locator(".badge").first.evaluate(COLOUR) for row in rows.all()]
    red, grey = colours[0], colours[2]
    assert colours == [red, red, grey, grey]
    assert red != grey
    assert "stopped by rdzv" in rows.nth(2).inner_text()
    assert rows.nth(0).locator(".badge").nth(1).evaluate(COLOUR) == grey
    assert rows.first.get_attribute("class") == "is-bad is-marked"
    seen.page.get_by_text("1 first cause, 1 failed, 2 stopped by rdzv").wait_for()
    links = [row.get_by_role("link").get_attribute("href") for row in rows.all()[:2]]
    assert str(links[0]).endswith("&rank=17")
    assert str(links[1]).endswith("&node=1")
    seen.settled()
    assert seen.overflow() == 0


def test_every_view_has_its_content(opened: Open) -> None:
    stub = Stub(4, "running")
    stub.answers["state"]["epochs"] = runs.state(4, "restarting")["epochs"]
    seen = opened(stub)
    expected = {
        "now": ["running on 4 nodes", "Restarts", "slurm", "step 1,200, loss 0.53"],
        "matrix": ["eth0 10", "slot 1 (h1) to slot 2 (h2): no answer", "0.18 ms", "11 pairs ok"],
        "checks": ["slot 3 is 40 s ahead", "Try: start chronyd", "1 failed, 1 warning"],
        "logs": ["rank 0 step 1 loss 1.000", "rank 1 warning WARNING nan", "node 3 (h3): has left"],
        "epochs": ["Epoch 1 is in progress", "node 0 (h0) was lost", "no lease for 30 s"],
        "events": ["reason 316", "lost"],
        "environment": ["MASTER_ADDR", "10.0.0.1", "the address of node 0"],
    }
    for feature in runs.features().values():
        expected |= feature.TEXTS
    assert set(expected) == set(VIEWS)
    for name, texts in expected.items():
        place = seen.view(name)
        seen.settled()
        for text in texts:
            place.get_by_text(text).first.wait_for()
        assert seen.overflow() == 0


NOTHING: dict[str, Any] = {
    "matrix": ("No network was probed", {"shown": None, "networks": [], "names": [], "cells": ""}),
    "checks": ("Nothing was checked yet", {"findings": [], "total": ""}),
    "environment": ("rdzv sets no variable", {"host": "h0", "variables": []}),
}
for one in runs.features().values():
    NOTHING |= one.NOTHING


@pytest.mark.parametrize("name", list(NOTHING))
def test_loading_nothing_and_failed_look_different(opened: Open, name: str) -> None:
    words, nothing = NOTHING[name]
    stub = Stub(4)
    stub.answers[name] = 503
    seen = opened(stub)
    place = seen.view(name)
    place.get_by_text("the registry does not answer").wait_for()
    place.get_by_text("Try: ask again").wait_for()
    stub.answers[name] = nothing
    place.get_by_role("button", name="Try again").click()
    place.get_by_text(words).wait_for()
    assert not place.get_by_text("Loading").is_visible()


def test_a_view_that_has_nothing_yet_says_so(opened: Open) -> None:
    stub = Stub(1, "gathering")
    stub.logs, stub.answers["state"]["events"] = [], []
    seen = opened(stub)
    for name, words in {
        "logs": "No line has come yet",
        "environment": "No node has a number yet",
        "events": "Nothing has happened yet",
        "epochs": "No earlier epoch",
    }.items():
        seen.view(name).get_by_text(words).wait_for()


def test_the_table_of_many_slots_grows_on_request(opened: Open) -> None:
    seen = opened(Stub(1024))
    rows = seen.page.locator(".view-now tbody tr")
    seen.page.get_by_role("button", name="Show 200 more of 824 nodes").click()
    seen.page.get_by_role("button", name="Show 200 more of 624 nodes").wait_for()
    assert rows.count() == 400


def test_the_phases_of_a_slot_are_read_by_pointer_and_by_keyboard(opened: Open) -> None:
    seen = opened(Stub(4, "failed"))
    canvas = seen.page.locator(".timeline canvas")
    words = seen.page.locator(".timeline .picked")
    canvas.hover(position={"x": 200, "y": 20})
    words.get_by_text("node 1 (h1): submitted 3.0 s, queued 2.0 s, booted 2.0 s").wait_for()
    canvas.focus()
    seen.page.keyboard.press("ArrowDown")
    words.get_by_text("node 2 (h2): submitted 4.0 s").wait_for()


def test_a_cell_of_the_matrix_is_read_by_pointer_and_by_keyboard(opened: Open) -> None:
    seen = opened(Stub(4))
    place = seen.view("matrix")
    canvas = place.locator("canvas")
    canvas.wait_for()
    seen.page.wait_for_timeout(100)
    canvas.hover(position={"x": 160, "y": 96})
    place.locator(".picked", has_text="slot 1 (h1) to slot 2 (h2): no answer").wait_for()
    canvas.focus()
    seen.page.keyboard.press("ArrowLeft")
    place.locator(".picked", has_text="slot 1 (h1): the node itself").wait_for()
    seen.page.keyboard.press("ArrowUp")
    place.locator(".picked", has_text="slot 0 (h0) to slot 1 (h1): ok, 0.18 ms").wait_for()


def test_the_matrix_of_1024_nodes_is_drawn(opened: Open) -> None:
    seen = opened(Stub(1024))
    place = seen.view("matrix")
    place.get_by_text("slot 1 (h1) to slot 2 (h2): no answer").first.wait_for()
    seen.page.wait_for_timeout(100)
    place.locator("canvas").hover(position={"x": 767.6, "y": 10})
    place.locator(".picked", has_text="to slot 1023 (h1023): ok, 33 ms").wait_for()


def test_the_log_follows_filters_and_keeps_the_newest_lines(opened: Open) -> None:
    seen = opened(Stub(4))
    place = seen.view("logs")
    log = place.get_by_role("log")
    log.get_by_text("rank 0 step 1 loss 1.000").wait_for()
    high = log.bounding_box()
    assert high is not None
    assert high["height"] >= 440
    seen.stub.log({"source": "rank 0", "lines": [f"line {n}" for n in range(6000)]})
    log.get_by_text("line 5999").wait_for()
    assert log.bounding_box() == high
    assert log.evaluate("(e) => e.scrollHeight - e.scrollTop - e.clientHeight") < 2
    log.evaluate("(e) => { e.scrollTop = 0; }")
    seen.page.wait_for_timeout(100)
    seen.stub.log({"source": "rank 0", "lines": ["one more"]})
    seen.page.wait_for_timeout(300)
    assert log.evaluate("(e) => e.scrollTop") < 100
    log.evaluate("(e) => { e.scrollTop = e.scrollHeight; }")
    log.get_by_text("one more").wait_for()
    place.get_by_label("Only lines with one of").fill("loss, nan")
    place.get_by_label("Level").select_option("error")
    place.get_by_role("button", name="rank 3", exact=True).click()
    seen.asks("rank=3&lines=1000&grep=loss&grep=nan&level=error&follow=1")
    place.get_by_role("button", name="rank 3", exact=True, pressed=True).wait_for()


def test_the_log_of_an_earlier_epoch_is_chosen(opened: Open) -> None:
    seen = opened(Stub(4, "restarting"))
    place = seen.view("logs")
    place.get_by_label("Epoch").select_option("1")
    seen.asks("logs?all=1&lines=375&epoch=1&follow=1")
    place.get_by_label("Follow").uncheck()
    place.get_by_text("End of the log.").wait_for()


def test_a_log_behind_a_proxy_that_holds_back_streams_is_asked_again(opened: Open) -> None:
    stub = Stub(4)
    stub.silent = True
    seen = opened(stub, clock=True)
    for times in (1, 2):
        seen.asks("/stream", times)
        seen.page.clock.fast_forward(15_500)
    seen.asks("/changes")
    place = seen.view("logs")
    place.get_by_text("step 1 loss").wait_for()
    seen.page.clock.fast_forward(3_500)
    seen.asks("/logs", 2)
    assert not [path for _, path, _ in stub.asked if "follow" in path]


def test_a_log_that_is_refused_says_so_and_does_not_change_its_mind(opened: Open) -> None:
    stub = Stub(4)
    stub.answers["logs"] = 404
    seen = opened(stub)
    place = seen.view("logs")
    words = "Could not load the log: the registry does not answer; try: ask again"
    place.get_by_text(words).wait_for()
    seen.page.wait_for_timeout(2_500)
    assert place.get_by_text(words).is_visible()


def test_older_events_come_on_request_until_there_are_none(opened: Open) -> None:
    seen = opened(Stub(4))
    place = seen.view("events")
    place.get_by_label("Show also what every node does").check()
    assert place.locator("tbody tr").count() == 20
    older = place.get_by_role("button", name="Older")
    older.click()
    place.get_by_text("reason 100").wait_for()
    older.click()
    place.get_by_text("There are no older events").wait_for()
    place.get_by_label("Show also what every node does").uncheck()
    assert place.get_by_text("reason 301").count() == 0


def test_the_environment_is_of_the_chosen_node_and_filtered(opened: Open) -> None:
    seen = opened(Stub(4))
    place = seen.view("environment")
    place.get_by_label("Node").select_option("2")
    seen.page.locator(".view-environment tr", has_text="NODE_RANK").get_by_text("2").wait_for()
    place.get_by_label("Only what contains").fill("nccl")
    place.get_by_text("1 variable shown").wait_for()
    assert place.locator("tbody tr:visible").count() == 1
