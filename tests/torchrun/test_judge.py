"""What docs/torchrun.md says of PyTorch's own tests."""

from __future__ import annotations

import re
from pathlib import Path

from launcher.torchrun.asked import CONF
from tests.torchrun.judge import JUDGED

PAGE = (Path(__file__).parents[2] / "docs" / "torchrun.md").read_text(encoding="utf-8")


def test_the_page_has_a_row_for_each_body() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", PAGE.partition("## PyTorch's own")[2], re.M)
    assert rows == [pair for bodies in JUDGED.values() for pair in bodies.items()]


def test_the_page_has_every_key_of_the_configuration() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.partition("## What happens")[0], re.M)
    assert sorted(rows) == sorted(CONF)
