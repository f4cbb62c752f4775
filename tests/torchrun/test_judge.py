"""What docs/torchrun.md says of PyTorch's own tests."""

from __future__ import annotations

import re
from pathlib import Path

from launcher.torchrun.asked import CONF
from tests.torchrun.judge import JUDGED, PASSES

PAGE = (Path(__file__).parents[2] / "docs" / "torchrun.md").read_text(encoding="utf-8")


def test_the_page_says_how_many_bodies_pass() -> None:
    verdicts = [verdict for bodies in JUDGED.values() for verdict in bodies.values()]
    part = PAGE.partition("## PyTorch's own")[2]
    assert re.findall(r"\d+", part) == [str(len(verdicts))]
    assert set(verdicts) == {PASSES}
    assert "All of them pass." in part


def test_the_page_has_every_key_of_the_configuration() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.partition("## What happens")[0], re.M)
    assert sorted(rows) == sorted(CONF)
