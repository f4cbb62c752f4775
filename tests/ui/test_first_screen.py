"""The first screen answers: is it well, how fast, who has failed, why, and where is its log."""

from __future__ import annotations

import pytest

from tests.support.browser import Open
from tests.ui import runs
from tests.ui.seen import Seen
from tests.ui.stub import Stub

pytestmark = [pytest.mark.browser, pytest.mark.real_time]
COLOUR = "one => getComputedStyle(one).color"
STALL = "nothing has moved for 2 min: rank 17 (node 2, h2) has not called all_reduce #78"
WAITED_FOR = {"mark": "waited for", "tone": "wait", "suspect": 17, "worse": 90}


def times(seen: Seen, words: str) -> int:
    """How often the page says so."""
    return str(seen.page.evaluate("() => document.body.innerText")).count(words)


# ---- who, why, and where is its log --------------------------------------------------------------


def test_a_cause_is_said_once_with_its_evidence_below_and_a_way_to_the_log(opened: Open) -> None:
    stub = Stub(4, "failed")
    head = stub.answers["state"]["head"]
    said = ["node 0 said: rank 5 was killed for memory", *head["result"]["evidence"]]
    tail = [*(f"step {number}" for number in range(40)), *head["result"]["tail"]]
    stacks = {"finding": {"words": "a look had found", "stacks": ["rank 5: load (data.py:3)"]}}
    head["result"] = {**head["result"], "evidence": said, "tail": tail, **stacks}
    seen = opened(stub)
    place = seen.page.locator(".lead")
    place.get_by_text("the kernel's log of h0 names the process 4711").wait_for()
    place.get_by_text("MemoryError").wait_for()
    place.get_by_text("rank 5: load (data.py:3)").wait_for()
    assert times(seen, head["sentence"]) == times(seen, "was killed for memory") == 1
    assert times(seen, head["next_step"]) == 1
    assert place.locator("li").count() == 2
    output = place.locator("pre")
    assert output.evaluate("e => e.scrollHeight - e.scrollTop - e.clientHeight") < 2
    assert output.evaluate("e => e.scrollHeight > e.clientHeight")
    assert place.locator("h2").all_inner_texts() == [
        "Where ranks were",
        "Evidence",
        "Last output",
    ]
    place.get_by_role("link", name="Open the log of rank 5").click()
    seen.asks("/logs?rank=5")


def test_a_node_for_which_the_others_wait_is_coloured_while_it_runs(opened: Open) -> None:
    stub = Stub(4)
    stub.answers["state"]["head"] |= {"finding": "", "sentence": "running on 4 nodes"}
    seen = opened(stub)
    rows = seen.page.locator(".view-now tbody tr")
    rows.nth(3).wait_for()
    assert [row.locator("td").first.inner_text() for row in rows.all()] == ["0", "1", "2", "3"]
    legend = seen.page.locator(".legend li", has_text="waited for")
    assert not legend.is_visible()
    assert seen.page.get_by_role("link", name="Open the log").count() == 0
    more = {"sentence": f"running on 4 nodes; {STALL}", "finding": STALL, "tone": "wait"}
    more |= {"next_step": "rdzv logs demo --rank 17"}
    late = runs.slot(2, 4, "running", **WAITED_FOR)
    stub.change(head=runs.head(4, "running", **more), slots=[late])
    rows.first.get_by_text("waited for").wait_for()
    assert rows.first.locator("td").first.inner_text() == "2"
    assert rows.first.get_attribute("class") == "is-wait is-marked"
    amber, green = (row.locator(".badge").first.evaluate(COLOUR) for row in rows.all()[:2])
    assert amber != green
    assert amber == seen.page.locator("#state").evaluate(COLOUR)
    legend.wait_for()
    seen.page.get_by_text("1 waited for, 3 running").wait_for()
    assert times(seen, STALL) == times(seen, "Try: rdzv logs demo --rank 17") == 1
    href = rows.first.get_by_role("link", name="Log of rank 17").get_attribute("href")
    assert str(href).endswith("&rank=17")
    seen.page.get_by_role("link", name="Open the log of rank 17").wait_for()
    stub.change(
        head=runs.head(4, "running", finding="", sentence="running on 4 nodes"),
        slots=[runs.slot(2, 4, "running")],
    )
    legend.wait_for(state="hidden")


READ = """(canvas) => {
  const copy = document.createElement("canvas");
  [copy.width, copy.height] = [canvas.width, canvas.height];
  const brush = copy.getContext("2d", { willReadFrequently: true });
  brush.drawImage(canvas, 0, 0);
  return brush.getImageData(0, 0, copy.width, copy.height).data;
}"""
PIXEL = f"""(canvas, [x, y]) => {{
  const at = (Math.floor(y) * canvas.width + Math.floor(x)) * 4;
  return [...({READ})(canvas).slice(at, at + 4)].join();
}}"""


def test_the_bars_show_who_failed_red_and_the_others_faded(opened: Open) -> None:
    seen = opened(Stub(4, "failed"))
    canvas = seen.page.locator(".timeline canvas")
    seen.page.locator(".legend li", has_text="has failed").wait_for()
    box = canvas.bounding_box()
    assert box is not None
    end = [box["width"] - 4, 5]
    bars = [canvas.evaluate(PIXEL, [end[0], end[1] + 14 * row]) for row in range(4)]
    red, green, blue, _ = map(int, bars[0].split(","))
    assert red > 2 * max(green, blue)
    assert len(set(bars[1:])) == 1
    red, green, blue, alpha = map(int, bars[1].split(","))
    assert max(red, green, blue) - min(red, green, blue) < 30
    assert alpha < 140


# ---- tabs, width ---------------------------------------------------------------------------------


def names(seen: Seen) -> list[str]:
    """Of the tabs, as who sees the page reads them."""
    return [tab.inner_text().replace("\n", "") for tab in seen.page.get_by_role("tab").all()]


def test_tabs_say_what_is_in_them_and_empty_ones_are_dimmed(opened: Open) -> None:
    stub = Stub(4, "gathering")
    stub.answers["state"]["events"] = []
    seen = opened(stub)
    curves = ["Curves"] * ("metrics" in runs.features())
    hang = ["Hang"] * ("hang" in runs.features())
    for name in (*curves, *hang, "Checks", "Epochs", "Events", "Environment"):
        seen.page.get_by_role("tab", name=f"{name} (empty)", exact=True).wait_for()
    dim = seen.page.locator("#tab-checks").evaluate(COLOUR)
    assert seen.page.locator("#tab-logs").evaluate(COLOUR) != dim
    more = {"finding": STALL, "checks": "2 warnings", "epoch": 3, "sentence": "running"}
    stub.change(
        head=runs.head(4, "running", **more),
        slots=[runs.slot(number, 4, "running") for number in range(4)],
        parts=runs.state(4)["parts"],
        events=[runs.event(400), runs.event(401)],
        epochs=runs.state(4, "restarting")["epochs"],
    )
    seen.page.get_by_role("tab", name="Checks 2 warnings", exact=True).wait_for()
    machines = ["Machines 4"] * ("machines" in runs.features())
    more_of = [*(f"{one} 3" for one in curves), *(f"{one} 1" for one in hang)]
    wanted = ["Now", "Logs", *more_of, "Checks 2 warnings", "Matrix", *machines]
    assert names(seen) == [*wanted, "Epochs 3", "Events 1", "Environment"]
    assert seen.page.locator("#tab-checks").evaluate(COLOUR) != dim
    assert seen.overflow() == 0


@pytest.mark.parametrize(("width", "beside"), [(1920, True), (1280, False), (390, False)])
def test_a_wide_screen_is_used(opened: Open, width: int, beside: bool) -> None:
    seen = opened(Stub(64), viewport={"width": width, "height": 900})
    seen.page.locator(".timeline canvas").wait_for()
    seen.settled()
    nodes = seen.page.locator(".nodes .scrolls").bounding_box()
    bars = seen.page.locator(".timeline canvas").bounding_box()
    assert nodes is not None
    assert bars is not None
    assert (bars["x"] > nodes["x"] + nodes["width"]) is beside
    assert max(one["x"] + one["width"] for one in (nodes, bars)) > width - 40
    assert nodes["height"] < 450
    assert seen.overflow() == 0


def test_a_check_links_to_what_its_page_says_of_it(opened: Open) -> None:
    stub = Stub(4)
    stub.answers["checks"]["findings"][0]["check"] = "L04"
    seen = opened(stub)
    link = seen.view("checks").get_by_role("link", name="L04")
    assert link.get_attribute("href") == "docs/checks.md#:~:text=L04"
    assert link.get_attribute("target") == "_blank"


# ---- marks of fresh eyes -----------------------------------------------------------------------


def test_before_nodes_have_numbers_there_is_nothing_to_restart_or_to_drain(opened: Open) -> None:
    seen = opened(Stub(4, "gathering"))
    acts = seen.page.locator(".about .buttons button:visible")
    acts.first.wait_for()
    assert acts.all_inner_texts() == ["Cancel the run …"]
    slots = [runs.slot(number, 4, "running") for number in range(4)]
    seen.stub.change(head=runs.head(4, "running"), slots=slots)
    seen.page.get_by_role("button", name="Drain a node").wait_for()
    assert acts.count() == 3


def test_the_tab_that_is_open_is_in_view_on_a_phone(opened: Open) -> None:
    seen = opened(Stub(4), "environment", viewport={"width": 390, "height": 800})
    tab = seen.page.get_by_role("tab", name="Environment")
    tab.wait_for()
    inside = "e => e.getBoundingClientRect().right <= e.parentElement.getBoundingClientRect().right"
    assert tab.evaluate(inside)
    assert seen.page.evaluate("() => scrollY") == 0
    tab.press("Home")
    seen.page.locator(".view-now").wait_for()
    assert seen.page.locator("#tabs").evaluate("e => e.scrollLeft") == 0


def test_pairs_that_failed_are_named_above_the_picture_of_all(opened: Open) -> None:
    place = opened(Stub(4)).view("matrix")
    pairs, picture = place.locator(".pairs").bounding_box(), place.locator("canvas").bounding_box()
    assert pairs is not None
    assert picture is not None
    assert pairs["y"] + pairs["height"] <= picture["y"]
