"""Each view shows what the contract brings, and says so where there is nothing."""

from __future__ import annotations

import pytest

from tests.ui import runs
from tests.ui.conftest import Open
from tests.ui.seen import VIEWS
from tests.ui.stub import Stub

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("nodes", runs.SIZES)
@pytest.mark.parametrize("how", runs.HOWS)
def test_the_first_screen_says_how_the_run_stands(opened: Open, nodes: int, how: runs.How) -> None:
    seen = opened(Stub(nodes, how))
    state = runs.state(nodes, how)
    page = seen.page
    page.locator(".sentence", has_text=state["head"]["sentence"]).wait_for()
    assert page.locator("#state").inner_text() == how
    assert page.locator(".view-now tbody tr").count() == min(nodes, 200)
    assert page.locator(".result").is_visible() == (how == "failed")
    worst = max(state["slots"], key=lambda slot: (slot["worse"], -slot["slot"]))
    assert page.locator(".view-now tbody tr td").first.inner_text() == str(worst["slot"])
    seen.settled()
    assert seen.overflow() == 0


def test_every_view_has_its_content(opened: Open) -> None:
    stub = Stub(4, "running")
    stub.answers["state"]["epochs"] = runs.state(4, "restarting")["epochs"]
    seen = opened(stub)
    expected = {
        "now": ["running on 4 nodes", "Elapsed", "slurm", "step 1,200, loss 0.53"],
        "matrix": ["eth0 10.0.0.0/16", "1 h1 to 2 h2: no answer", "0.18 ms usual", "good"],
        "checks": ["slot 3 is 40 s ahead", "try: start chronyd", "1 failed, 1 warning"],
        "curves": ["loss", "median of 64 ranks, and the range of all", "Step 1,990"],
        "logs": ["[rank 0] step 1 loss 1.000", "[rank 1] WARNING nan", "node 3 (h3): has left"],
        "hang": ["rank 2 on node 0 (h0) makes the others wait"],
        "machines": ["8 x H100", "Driver", "570.86"],
        "epochs": ["Epoch 1 is in progress", "node 0 (h0) was lost", "no lease for 30 s"],
        "events": ["reason 316", "lost"],
        "environment": ["MASTER_ADDR", "10.0.0.1", "the address of node 0"],
    }
    assert set(expected) == set(VIEWS)
    for name, texts in expected.items():
        place = seen.view(name)
        seen.settled()
        for text in texts:
            place.get_by_text(text).first.wait_for()
        assert seen.overflow() == 0
