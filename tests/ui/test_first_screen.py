"""The first screen answers: is it well, how fast, who has failed, why, and where is its log."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ui import runs
from tests.ui.conftest import Open
from tests.ui.seen import Seen
from tests.ui.stub import Stub

pytestmark = [pytest.mark.browser, pytest.mark.real_time]
COLOUR = "one => getComputedStyle(one).color"
STALL = "nothing has moved for 2 min: rank 17 (node 2, h2) has not called all_reduce #78"
WAITED_FOR = {"mark": "waited for", "tone": "wait", "suspect": 17, "worse": 90}


def tiles(seen: Seen) -> dict[str, list[str]]:
    """What stands under each name."""
    places = seen.page.locator(".tiles > div")
    return {
        one.locator("dt").inner_text(): [
            text for text in one.locator("b, dd span").all_inner_texts() if text
        ]
        for one in places.all()
    }


def times(seen: Seen, words: str) -> int:
    """How often the page says so."""
    return str(seen.page.evaluate("() => document.body.innerText")).count(words)


# ---- who, why, and where is its log --------------------------------------------------------------


def test_a_cause_is_said_once_with_its_evidence_below_and_a_way_to_the_log(opened: Open) -> None:
    stub = Stub(4, "failed")
    head = stub.answers["state"]["head"]
    said = ["node 0 said: rank 5 was killed for memory", *head["result"]["evidence"]]
    tail = [*(f"step {number}" for number in range(40)), *head["result"]["tail"]]
    head["result"] = {**head["result"], "evidence": said, "tail": tail, "certain": False}
    seen = opened(stub)
    place = seen.page.locator(".lead")
    place.get_by_text("the kernel's log of h0 names the process 4711").wait_for()
    place.get_by_text("MemoryError").wait_for()
    place.get_by_text("Exit code 137 (the program's). This node failed first").wait_for()
    assert times(seen, head["sentence"]) == times(seen, "was killed for memory") == 1
    assert times(seen, head["next_step"]) == 1
    assert place.locator("li").count() == 1
    output = place.locator("pre")
    assert output.evaluate("e => e.scrollHeight - e.scrollTop - e.clientHeight") < 2
    assert output.evaluate("e => e.scrollHeight > e.clientHeight")
    assert place.locator("h2").all_inner_texts() == ["Evidence", "Last output"]
    place.get_by_role("link", name="Open the log of rank 5").click()
    seen.asks("/logs?rank=5")


def test_a_node_for_which_the_others_wait_is_coloured_while_it_runs(opened: Open) -> None:
    stub = Stub(4)
    stub.answers["state"]["head"] |= {"stall": "", "sentence": "running on 4 nodes"}
    seen = opened(stub)
    rows = seen.page.locator(".view-now tbody tr")
    rows.nth(3).wait_for()
    assert [row.locator("td").first.inner_text() for row in rows.all()] == ["0", "1", "2", "3"]
    legend = seen.page.locator(".legend li", has_text="waited for")
    assert not legend.is_visible()
    assert seen.page.get_by_role("link", name="Open the log").count() == 0
    more = {"sentence": f"running on 4 nodes; {STALL}", "stall": STALL, "tone": "wait"}
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
    seen.page.get_by_role("tab", name="Hang 1").wait_for()
    stub.change(
        head=runs.head(4, "running", stall="", sentence="running on 4 nodes"),
        slots=[runs.slot(2, 4, "running")],
    )
    legend.wait_for(state="hidden")
    seen.page.get_by_role("tab", name="Hang (empty)").wait_for()


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


# ---- how it is going -----------------------------------------------------------------------------


def test_it_says_how_far_and_how_fast_the_program_is(opened: Open) -> None:
    stub = Stub(4)
    ranks = [runs.rank(0, 1190), runs.rank(1), runs.rank(2)]
    for one in ranks:
        one["values"]["total_steps"] = 5090.0
    stub.answers["state"]["ranks"] = ranks
    seen = opened(stub)
    seen.page.locator(".tiles b").first.wait_for()
    found = tiles(seen)
    assert found["Step"] == ["1,200", "the last rank at 1,190"]
    assert found["Loss"] == ["0.53", "median of 3 ranks"]
    assert found["Throughput"] == ["18,250", "tokens_per_second"]
    assert found["Speed"] == ["3.9/s", "steps"]
    assert found["Time left"] == ["16 min 40 s", "at this speed"]
    stub.change(ranks=[{**runs.rank(number, 1300), "pace": 0.5} for number in range(3)])
    seen.page.locator(".tiles b", has_text="1,300").wait_for()
    assert tiles(seen)["Speed"] == ["2 s", "each step"]
    assert tiles(seen)["Loss"] == ["0.53", "median of 3 ranks"]


def test_a_speed_that_is_over_is_not_shown(opened: Open) -> None:
    stub = Stub(4)
    for one in stub.answers["state"]["ranks"]:
        one["at"] = 100.0
    seen = opened(stub)
    seen.page.locator(".tiles b").first.wait_for()
    found = tiles(seen)
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
    stub.answers["state"] |= {"ranks": [], "usage": None}
    seen = opened(stub)
    seen.page.get_by_text(words).wait_for()
    assert tiles(seen) == {}


def test_a_value_that_is_no_number_is_shown_as_it_is(opened: Open) -> None:
    stub = Stub(4)
    stub.answers["state"]["ranks"][2]["values"] = {"train_loss": "NaN"}
    for one in stub.answers["state"]["ranks"]:
        one["values"].pop("loss", None)
    seen = opened(stub)
    seen.page.locator(".tiles b").first.wait_for()
    assert tiles(seen)["Loss"] == ["NaN", "train_loss"]


# ---- the machines --------------------------------------------------------------------------------

DRAWN = f"""canvas => {{
  const {{ width, height }} = canvas;
  const data = ({READ})(canvas);
  const rows = new Set();
  for (let y = 3; y < height - 3; y += 1) for (let x = 4; x < width - 8; x += 1) {{
    if (data[(y * width + x) * 4 + 3] > 100) rows.add(y);
  }}
  return [...rows];
}}"""


def test_machines_are_numbers_and_lines_of_the_samples_that_came(opened: Open) -> None:
    stub = Stub(4)
    usage: dict[str, Any] = {"points": [[0.0, 50, 10, None, None]], "slots": {}}
    usage["slots"] = {"0": [50, 10, None, None], "3": [50, 10, None, None]}
    stub.answers["state"]["usage"] = usage
    seen = opened(stub)
    seen.page.locator(".tiles b", has_text="50 %").wait_for()
    assert seen.page.locator(".tiles canvas:visible").count() == 0
    assert {"CPU load", "Memory"} <= set(tiles(seen))
    assert "GPU" not in tiles(seen)
    assert tiles(seen)["CPU load"] == ["50 %"]
    cells = seen.page.locator(".view-now tbody tr td:nth-child(6)")
    assert cells.all_inner_texts() == [
        "CPU load 50 %, Memory 10 %",
        "",
        "",
        "CPU load 50 %, Memory 10 %",
    ]
    points = [[30.0, 90, 10, None, None], [60.0, 5, 10, None, None]]
    slots = {"0": [5, 9, None, None], "3": [6, 11, None, None]}
    stub.change(usage={"points": points, "slots": slots})
    line = seen.page.get_by_role("img", name="CPU load in the last hour: 5 to 90 %")
    line.wait_for()
    assert tiles(seen)["CPU load"] == ["5 %", "5 to 6 % by node"]
    assert cells.all_inner_texts()[0] == "CPU load 5 %, Memory 9 %"
    high = line.evaluate(DRAWN)
    assert max(high) - min(high) > 8
    flat = seen.page.get_by_role("img", name="Memory in the last hour: 10 %").evaluate(DRAWN)
    assert max(flat) - min(flat) < 4


def test_an_hour_of_samples_is_kept(opened: Open) -> None:
    stub = Stub(4)
    seen = opened(stub)
    seen.page.get_by_role("img", name="CPU load in the last hour: 27 to 45 %").wait_for()
    new = [[30.0 * number, 70, 70, 70, 70] for number in range(120)]
    stub.change(usage={"points": new, "slots": {"0": [70, 70, 70, 70]}})
    seen.page.get_by_role("img", name="CPU load in the last hour: 70 %").wait_for()


# ---- tabs, theme, width --------------------------------------------------------------------------


def names(seen: Seen) -> list[str]:
    """Of the tabs, as who sees the page reads them."""
    return [tab.inner_text().replace("\n", "") for tab in seen.page.get_by_role("tab").all()]


def test_tabs_say_what_is_in_them_and_empty_ones_are_dimmed(opened: Open) -> None:
    stub = Stub(4, "gathering")
    stub.answers["state"]["events"] = []
    seen = opened(stub)
    for name in ("Curves", "Hang", "Checks", "Epochs", "Events", "Environment"):
        seen.page.get_by_role("tab", name=f"{name} (empty)", exact=True).wait_for()
    dim = seen.page.locator("#tab-hang").evaluate(COLOUR)
    assert seen.page.locator("#tab-logs").evaluate(COLOUR) != dim
    more = {"stall": STALL, "checks": "2 warnings", "epoch": 3, "sentence": "running"}
    stub.change(
        head=runs.head(4, "running", **more),
        slots=[runs.slot(number, 4, "running") for number in range(4)],
        ranks=[runs.rank(0)],
        events=[runs.event(400), runs.event(401)],
        epochs=runs.state(4, "restarting")["epochs"],
    )
    seen.page.get_by_role("tab", name="Hang 1", exact=True).wait_for()
    wanted = ["Now", "Logs", "Curves 3", "Hang 1", "Checks 2 warnings", "Matrix", "Machines 4"]
    assert names(seen) == [*wanted, "Epochs 3", "Events 1", "Environment"]
    assert seen.page.locator("#tab-hang").evaluate(COLOUR) != dim
    assert seen.overflow() == 0


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_the_switch_says_which_theme_is_on(opened: Open, theme: str) -> None:
    seen = opened(Stub(4), color_scheme=theme)
    other = {"dark": "light", "light": "dark"}[theme]
    seen.page.get_by_role("button", name=f"Theme: {theme}").click()
    seen.page.get_by_role("button", name=f"Theme: {other}").wait_for()


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
