"""Metrics as the page shows them: generated, of a run of any size."""

from __future__ import annotations

import math
from typing import Any

from features.metrics.page_curves import Curve, Curves
from features.metrics.page_ranks import Rank

TEXTS = {"curves": ["loss", "median of 64 ranks, and the range of all", "Step 1,990"]}
"""Of each view."""
BEFORE = ("hang", "checks")
"""The tabs before which its own stands."""
NOTHING: dict[str, tuple[str, Any]] = {
    "curves": ("No rank has reported a value", {"rows": 0, "curves": {}})
}
"""Words where an answer has nothing, and that answer."""


def part(nodes: int, how: str) -> list[Rank]:
    """Of State."""
    return [rank(number) for number in range(min(nodes, 64))] if how == "running" else []


def views(nodes: int) -> dict[str, Any]:
    """Answers."""
    return {"curves": curves()}


def rank(number: int, step: int = 1200) -> Rank:
    """What a process has reported last."""
    values: dict[str, float | str] = {"loss": 0.53, "lr": "NaN", "tokens_per_second": 18_250.0}
    return Rank(rank=number, slot=number, step=step, at=300.0, pace=3.9, values=values)


def curves(points: int = 200) -> Curves:
    """One value with a range and a gap, one of two ranks."""
    steps = list(range(0, points * 10, 10))
    loss: list[float | None] = [2.0 * math.exp(-step / 900) + 0.3 for step in steps]
    loss[points // 2] = None
    low = [None if value is None else value * 0.9 for value in loss]
    high = [None if value is None else value * 1.2 for value in loss]
    median = Curve(label="median of 64 ranks", steps=steps, values=loss, low=low, high=high)
    lr: list[float | None] = [1e-3 / (1 + step / 500) for step in steps]
    ones = [
        Curve(label=f"rank {one}", steps=steps, values=lr, low=None, high=None) for one in (0, 1)
    ]
    return Curves(rows=points, curves={"loss": [median], "learning rate": ones})
