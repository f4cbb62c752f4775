"""Hang as the page shows it: what a look finds."""

from __future__ import annotations

from typing import Any

from features.hang.page import Look

TEXTS = {"hang": ["nothing has moved for 2 min: rank 2 (node 0, h0)"]}
"""Of each view."""
OVER = {"hang": "No stall was reported"}
"""Of each view, of a run that has failed."""
BEFORE = ("checks",)
"""The tabs before which its own stands."""
NOTHING: dict[str, tuple[str, Any]] = {}
"""Words where an answer has nothing, and that answer."""
LOOK = Look(
    sentence="7 of 8 ranks have waited 4 min in all_reduce #21; rank 5 has not called it",
    next_step="see what rank 5 prints: rdzv logs demo --rank 5",
    places=[
        {"ranks": "5", "head": "rank 5 (node 0, h0), state S", "frames": ["load (data.py:31)"]},
        {"ranks": "0-4, 6, 7", "head": "7 ranks", "frames": ["all_reduce (c10d.py:3252)"]},
    ],
    notes=["node 3 (h3) has not answered for 5 s"],
)
"""One rank is elsewhere."""
ACTS = {"look": LOOK}
"""Answers."""


def part(nodes: int, how: str) -> None:
    """Of State."""


def views(nodes: int) -> dict[str, Any]:
    """Answers."""
    return {}


def open_all(place: Any) -> None:
    """Have its view show all that it can."""
    place.get_by_role("button", name="Look at all ranks").click()
    place.get_by_text("Not seen").wait_for()
