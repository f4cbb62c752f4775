"""Machines as the page shows them: generated, of a run of any size."""

from __future__ import annotations

import math
from typing import Any

from features.machines.page import Machine
from features.machines.page_usage import Busy, Usage

TEXTS = {"machines": ["8 x H100", "Driver", "570.86"]}
"""Of each view."""
BEFORE = ("epochs",)
"""The tabs before which its own stands."""
NOTHING: dict[str, tuple[str, Any]] = {"machines": ("No node has joined yet", [])}
"""Words where an answer has nothing, and that answer."""


def part(nodes: int, how: str) -> Usage | None:
    """Of State."""
    return usage(nodes) if how == "running" else None


def views(nodes: int) -> dict[str, Any]:
    """Answers."""
    return {"machines": machines(nodes)}


def usage(nodes: int, points: int = 120) -> Usage:
    """An hour of machines of which the last one does less."""
    waves = [math.sin(number / 9) for number in range(points)]
    told = [
        [30.0 * n, round(36 + 9 * w), 61 + n // 60, round(93 + 4 * w), 71]
        for n, w in enumerate(waves)
    ]
    busy: dict[str, Busy] = {str(n): [40 + n % 7, 62, 97 - n % 5, 71] for n in range(nodes)}
    busy[str(nodes - 1)][2] = 31
    return Usage(points=[list(point) for point in told], slots=busy)


def machines(nodes: int) -> list[Machine]:
    """The same machine for each node."""
    facts = [["GPUs", "8 x H100"], ["Memory", "2.0 TiB"], ["Kernel", "6.1"], ["Driver", "570.86"]]
    return [Machine(slot=n, node=n, host=f"h{n}", facts=facts) for n in range(nodes)]
