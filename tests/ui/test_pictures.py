"""The page looks as it did: its pictures differ from the kept ones in few pixels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from tests.support.nightly import but_at_night
from tests.ui.pictures import ALL, EVERYDAY, FOLDER, TOLERATED, differing, take

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.browser, pytest.mark.real_time]


@pytest.mark.parametrize("name", but_at_night(ALL, *EVERYDAY))
def test_the_page_looks_as_it_did(browser: Browser, tmp_path: Path, name: str) -> None:
    taken = take(browser, name)
    taken.save(tmp_path / f"{name}.png")
    part = differing(taken, Image.open(FOLDER / f"{name}.png"))
    assert part <= TOLERATED, f"{part:.1%} of {tmp_path / name}.png; see tests/ui/pictures.py"


def test_there_is_no_picture_too_many() -> None:
    assert {path.stem for path in FOLDER.glob("*.png")} == set(ALL)


def test_a_picture_that_differs_is_found() -> None:
    kept = Image.new("RGB", (100, 100), "white")
    moved = kept.copy()
    moved.paste("black", (10, 10, 30, 20))
    assert differing(kept, moved) == 0.02
    assert differing(kept, kept.resize((100, 99))) == 1.0
