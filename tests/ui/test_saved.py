"""A run in one file: opened from a disk, without a network, with the same views."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from launcher.ui.page import saved_page
from tests.support.nightly import at_night
from tests.ui import runs
from tests.ui.seen import VIEWS, watched
from tests.ui.test_access import found_by_axe

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

pytestmark = [pytest.mark.browser, pytest.mark.real_time]


@pytest.mark.parametrize("nodes", [4, at_night(1024)])
def test_a_saved_file_shows_every_view(
    context: Callable[..., BrowserContext], tmp_path: Path, nodes: int
) -> None:
    file = tmp_path / "run.html"
    file.write_bytes(saved_page(runs.saved(nodes)))
    seen = watched(context(offline=True), None)
    page = seen.page
    page.goto(file.as_uri())
    page.get_by_text("Saved at 2026-11-25 14:30 UTC by rdzv 0.1.0").wait_for()
    page.get_by_text("was killed for memory").first.wait_for()
    expected = {
        "matrix": "slot 1 (h1) to slot 2 (h2): no answer",
        "checks": "slot 3 is 40 s ahead",
        "logs": "step 1 loss 1.000",
        "epochs": "No earlier epoch",
        "events": "reason 316",
        "environment": "MASTER_ADDR",
    }
    for feature in runs.features().values():
        expected |= {view: texts[0] for view, texts in feature.TEXTS.items()}
        expected |= getattr(feature, "OVER", {})
    assert {"now", *expected} == set(VIEWS)
    for name, text in expected.items():
        seen.view(name).get_by_text(text).first.wait_for()
        if name == "epochs":
            assert (name, found_by_axe(seen)) == (name, [])
    log = seen.view("logs")
    if nodes == 4:
        log.get_by_role("button", name="rank 1", exact=True).click()
    else:
        log.get_by_label("Rank").fill("1")
        page.keyboard.press("Enter")
    page.locator(".view-logs").get_by_text("WARNING nan in loss").wait_for()
    assert page.get_by_text("step 1 loss").count() == 0
    assert page.get_by_role("link", name="All runs").count() == 0
    assert page.get_by_role("button", name="Cancel the run").count() == 0
    seen.check()


def test_in_a_file_a_rank_without_a_log_of_its_own_has_that_of_its_node(
    context: Callable[..., BrowserContext], tmp_path: Path
) -> None:
    saved = runs.saved(4)
    saved["logs"] = [{"source": f"node-{node}", "lines": [f"of node {node}"]} for node in range(4)]
    file = tmp_path / "run.html"
    file.write_bytes(saved_page(saved))
    seen = watched(context(offline=True), None)
    seen.page.goto(f"{file.as_uri()}#view=logs&rank=9")
    log = seen.page.locator(".view-logs")
    log.get_by_text("of node 1").wait_for()
    assert log.get_by_text("of node").count() == 1
    log.get_by_label("Node").select_option("3")
    log.get_by_text("of node 3").wait_for()
    assert log.get_by_text("of node").count() == 1
    seen.check()
