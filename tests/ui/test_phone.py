"""On a phone the page tells first what is asked first, and its controls leave room for the rest."""

from __future__ import annotations

import pytest

from tests.support.browser import Open
from tests.ui import runs
from tests.ui.seen import Seen
from tests.ui.stub import Stub
from tests.ui.test_access import found_by_axe

pytestmark = [pytest.mark.browser, pytest.mark.real_time]
PHONE = {"width": 390, "height": 800}
PARTS = (".sentence", ".tiles", ".nodes", ".timeline", ".facts", ".about .buttons")
ORDER = """parts => {
  const found = parts.map((part) => document.querySelector(part));
  const of = (sorts) => [...found].sort(sorts).map((one) => parts[found.indexOf(one)]);
  return [
    of((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top),
    of((a, b) => a.compareDocumentPosition(b) & Node.DOCUMENT_POSITION_FOLLOWING ? -1 : 1),
  ];
}"""
ROWS = """controls => {
  let [rows, bottom] = [0, -Infinity];
  for (const one of controls.querySelectorAll(":scope > :not(.note)")) {
    const box = one.getBoundingClientRect();
    if (box.top >= bottom) rows += 1;
    bottom = Math.max(bottom, box.bottom);
  }
  return rows;
}"""


def orders(seen: Seen) -> list[list[str]]:
    """The parts of the first screen as they are seen, and as they are read out."""
    found: list[list[str]] = seen.page.evaluate(ORDER, list(PARTS))
    return found


def test_nodes_come_before_facts_and_acts_for_eyes_and_for_readers(opened: Open) -> None:
    seen = opened(Stub(4), viewport=PHONE)
    seen.page.locator(".timeline canvas").wait_for()
    assert orders(seen) == [list(PARTS)] * 2
    cancel = seen.page.get_by_role("button", name="Cancel the run")
    cancel.focus()
    seen.page.set_viewport_size({"width": 800, "height": 390})  # it was turned
    seen.page.wait_for_timeout(300)
    assert cancel.evaluate("e => e === document.activeElement")
    assert orders(seen) == [list(PARTS)] * 2
    seen.page.set_viewport_size({"width": 1280, "height": 800})
    seen.page.locator(".first .about").wait_for()
    assert orders(seen)[1] == [*PARTS[:2], *PARTS[4:], *PARTS[2:4]]
    assert seen.overflow() == 0


@pytest.mark.parametrize("how", ["running", "failed"])
def test_a_node_is_read_without_scrolling_sideways(opened: Open, how: runs.How) -> None:
    seen = opened(Stub(4, how), viewport=PHONE)
    table = seen.page.get_by_role("table", name="Nodes, the worst first")
    table.wait_for()
    assert table.get_by_role("row").count() == 5
    assert table.get_by_role("columnheader", name="State").count() == 1
    box = seen.page.locator(".nodes .scrolls")
    assert box.evaluate("e => e.scrollWidth - e.clientWidth") == 0
    row = table.get_by_role("row").nth(1)
    assert row.get_by_role("cell", name="node 0", exact=True).count() == 1
    first = row.locator("td").first.bounding_box()
    log = row.get_by_role("link", name="Log of").bounding_box()
    assert first is not None
    assert log is not None
    assert abs(first["y"] - log["y"]) < 5
    assert log["x"] + log["width"] <= PHONE["width"]
    assert found_by_axe(seen) == []


def test_a_slot_without_a_number_is_called_no_node(opened: Open) -> None:
    seen = opened(Stub(4, "gathering"), viewport=PHONE)
    seen.page.get_by_role("cell", name="slot 3", exact=True).wait_for()


@pytest.mark.parametrize("nodes", [1, 4, 64])
@pytest.mark.parametrize("how", ["running", "failed"])
def test_the_controls_of_the_log_take_three_rows(opened: Open, nodes: int, how: runs.How) -> None:
    seen = opened(Stub(nodes, how), "logs", viewport=PHONE)
    seen.page.get_by_text("step 29 loss").wait_for()
    assert seen.page.locator(".controls").evaluate(ROWS) <= 3
    log = seen.page.get_by_role("log").bounding_box()
    assert log is not None
    assert log["y"] < 265
    assert seen.overflow() == 0


def test_they_do_so_too_while_others_wait_for_a_rank_that_has_printed_errors(opened: Open) -> None:
    stub = Stub(4)
    late = runs.slot(2, 4, "running", mark="waited for", tone="wait", suspect=17, worse=90)
    stub.answers["state"]["slots"][2] = late
    stub.log({"source": "rank 17", "lines": ["Error: x"], "at": [1764081000.0], "kinds": "e"})
    seen = opened(stub, "logs", viewport=PHONE)
    seen.page.get_by_role("button", name="First error of rank 17").wait_for()
    assert seen.page.locator(".controls").evaluate(ROWS) == 3


def test_a_finger_reads_a_cell_of_a_small_matrix(opened: Open) -> None:
    seen = opened(Stub(4), "matrix", viewport=PHONE, has_touch=True)
    canvas = seen.page.locator(".matrix canvas")
    canvas.wait_for()
    seen.page.wait_for_timeout(100)
    box = canvas.bounding_box()
    assert box is not None
    assert (box["width"], box["height"]) == (256, 256)
    canvas.tap(position={"x": 160, "y": 96})
    seen.page.locator(".picked", has_text="slot 1 (h1) to slot 2 (h2): no answer").wait_for()


@pytest.mark.parametrize(("nodes", "wide"), [(2, 128), (8, 256), (16, 384), (64, 768)])
def test_a_matrix_is_large_enough_to_point_at(opened: Open, nodes: int, wide: int) -> None:
    seen = opened(Stub(nodes), "matrix")
    canvas = seen.page.locator(".matrix canvas")
    canvas.wait_for()
    seen.page.wait_for_timeout(100)
    box = canvas.bounding_box()
    assert box is not None
    assert box["width"] == wide
