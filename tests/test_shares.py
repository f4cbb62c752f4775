"""Each share of the tests has its tests where the Makefile looks for them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import pythons

ROOT = Path(__file__).parent.parent
SHARES = {
    *("browser", "faults", "frameworks", "fuzz", "page", "planted", "schedulers", "wheel"),
    "nightly",
}


@pytest.mark.parametrize(
    "mark", ["browser", "faults", "schedulers", "frameworks", "fuzz", "planted"]
)
def test_no_test_of_a_share_lies_where_it_does_not_look(mark: str) -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    [listed] = re.findall(rf"^{mark.upper()} := (.*)$", text, re.M)
    places = [ROOT / place for place in listed.split()]
    marked = [
        path
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if re.search(rf"pytest\.mark\.{mark}\b", path.read_text(encoding="utf-8"))
    ]
    assert marked
    assert [p for p in marked if not any(p.is_relative_to(place) for place in places)] == []
    assert [p for p in places if not any(path.is_relative_to(p) for path in marked)] == []


def test_what_does_more_at_night_is_run_then() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    [night] = re.findall(r"^NIGHT := (.*)$", text, re.M)
    [alone] = re.findall(r"^ALONE := (.*)$", text, re.M)
    marks = {
        path: {*re.findall(r"pytest\.mark\.(\w+)\b", words)} & SHARES
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if re.search(r"import .*\b(ROUNDS|but_at_night)\b", words := path.read_text("utf-8"))
    }
    assert ROOT / alone in marks
    assert {path: own for path, own in marks.items() if own - {*night.split(" or ")}} == {}


def test_what_is_tested_on_every_python_is_there() -> None:
    tried = (*pythons.pure(), *pythons.WHOLE, *pythons.OLDEST)
    assert [path for path in tried if not (ROOT / path).is_file()] == []
    sources = [(ROOT / path).read_text(encoding="utf-8") for path in pythons.pure()]
    assert [name for name in pythons.LONG if not any(name in text for text in sources)] == []
