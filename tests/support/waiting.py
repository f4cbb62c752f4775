"""Waiting for what another process does, with a limit that no healthy machine needs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

SECONDS = 40.0


def until(look: Callable[[], T | None], seconds: float = SECONDS) -> T:
    """Look until there is something to see, and return it.

    Whoever looks at all processes, or starts one to look, leaves most of a core to the others.
    """
    deadline = time.monotonic() + seconds
    while (began := time.monotonic()) < deadline:
        if found := look():
            return found
        time.sleep(min(max(0.01, 2 * (time.monotonic() - began)), 1.0))
    raise AssertionError(f"nothing to see within {seconds} s")


async def soon(look: Callable[[], T | None], seconds: float = SECONDS) -> T:
    """As `until`, while the loop of this process goes on."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := look():
            return found
        await asyncio.sleep(0.005)
    raise AssertionError(f"nothing to see within {seconds} s")
