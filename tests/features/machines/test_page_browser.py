"""A browser shows machines: how busy they are, with the lines of an hour, and each one's facts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.browser import Open
from tests.ui.stub import Stub
from tests.ui.test_first_screen import READ

pytestmark = [pytest.mark.browser, pytest.mark.real_time]

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
    stub.answers["state"]["parts"]["machines"] = usage
    seen = opened(stub)
    seen.page.locator(".tiles b", has_text="50 %").wait_for()
    assert seen.page.locator(".tiles canvas:visible").count() == 0
    assert {"CPU load", "Memory"} <= set(seen.tiles())
    assert "GPU" not in seen.tiles()
    assert seen.tiles()["CPU load"] == ["50 %"]
    cells = seen.page.locator(".view-now tbody tr td:nth-child(6)")
    assert cells.all_inner_texts()[:2] == ["CPU load 50 %, Memory 10 %", ""]
    points = [[30.0, 90, 10, None, None], [60.0, 5, 10, None, None]]
    slots = {"0": [5, 9, None, None], "3": [6, 11, None, None]}
    stub.change(parts={"machines": {"points": points, "slots": slots}})
    line = seen.page.get_by_role("img", name="CPU load in the last hour: 5 to 90 %")
    line.wait_for()
    assert seen.tiles()["CPU load"] == ["5 %", "5 to 6 % by node"]
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
    usage = {"points": new, "slots": {"0": [70, 70, 70, 70]}}
    stub.change(parts={"machines": usage})
    seen.page.get_by_role("img", name="CPU load in the last hour: 70 %").wait_for()
