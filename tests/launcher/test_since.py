"""The value of --since: which forms there are, and what they mean."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from launcher.cli.logs import moment


@pytest.fixture(autouse=True)
def _zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Of this machine: an hour east of Greenwich."""
    monkeypatch.setenv("TZ", "XXX-1")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("0s", 1e9),
        ("90s", 1e9 - 90),
        ("10m", 1e9 - 600),
        ("2h", 1e9 - 7_200),
        ("1h30m", 1e9 - 5_400),
        ("3d", 1e9 - 3 * 86_400),
        ("2001-09-09T02:46:40", 1e9),
        ("2001-09-09 02:46", 1e9 - 40),
        ("2001-09-09", 1e9 - 10_000),
        ("2001-09-09T01:46:40Z", 1e9),
        ("2001-09-08T20:46:40-05:00", 1e9),
        ("2001-09-09T01:46:40.500+00:00", 1e9 + 0.5),
    ],
)
def test_how_long_ago_or_when(text: str, at: float) -> None:
    assert moment(text, 1e9) == at


@pytest.mark.parametrize(
    "text",
    ["", "10", "m", "10 m", "-10m", "1.5h", "10min", "yesterday", "14:30", "2001-13-01", "Z"],
)
def test_what_is_neither(text: str) -> None:
    assert moment(text, 1e9) is None
