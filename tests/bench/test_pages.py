"""The page is measured as users start it; without a browser that is said, and not more."""

from __future__ import annotations

import pytest

from bench import browser, pages
from bench.rows import Figure


def test_without_a_browser_the_wheel_alone_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(browser, "CHROMIUM", "/nowhere/chromium")
    (work,) = pages.works((4,), pages.QUICK)
    said = "the page is not measured: the page needs /nowhere/chromium: apt install chromium\n"
    assert capsys.readouterr().out == said
    (made,) = work()
    assert isinstance(made, Figure)
    assert (made.what, made.unit) == ("page_wheel", "kB")
    assert made.target is not None
    assert 10 < made.value < made.target


@pytest.mark.parametrize(("values", "expected"), [([1.0], (1.0, 1.0)), ([3, 1, 2.04], (2.0, 3))])
def test_of_few_values_the_largest_is_p99(
    values: list[float], expected: tuple[float, float]
) -> None:
    assert pages._median_and_p99(values) == expected


@pytest.mark.nightly
@pytest.mark.real_time
def test_a_page_of_emulated_nodes_is_open_while_its_registry_is_measured() -> None:
    quiet, busy = pages.of_registry(4, pairs=1, seconds=0.5)
    assert [(one.what, one.nodes, one.rounds) for one in (quiet, busy)] == [
        ("registry_page", 4, 1),
        ("registry_page", 4, 1),
    ]
    assert quiet.note.startswith("added by a page, quiet; ")
    assert busy.note.startswith("added by a page, 20 changes/s; ")
