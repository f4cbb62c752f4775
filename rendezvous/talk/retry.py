"""Ask again: a registry that is away for a moment comes back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rendezvous.wire.errors import RdzvError, RegistryError, TooManyRequests

T = TypeVar("T")

RANDOM = random.Random()  # noqa: S311 (jitter)
_PASSING: tuple[type[RdzvError], ...] = (RegistryError, TooManyRequests)


def retry_pause(draw: random.Random = RANDOM) -> float:
    """Seconds before the next try: steady, with jitter.

    Exponential backoff would cost a quarter of a registry's lateness."""
    return draw.uniform(0.2, 0.5)


async def until_answered(
    ask: Callable[[], Awaitable[T]],
    *,
    seconds: float = float("inf"),
    failed: Callable[[RdzvError], None] | None = None,
    pause: Callable[[], float] = retry_pause,
    also: tuple[type[RdzvError], ...] = (),
) -> T:
    """Ask until there is an answer, or a failure that cannot pass.

    Args:
        ask: Asks once.
        seconds: After so long a failure is the last one, and raised.
        failed: Called with each failure that is followed by another try; may raise to give up.
        pause: Seconds before the next try.
        also: What else than a registry that is away, or has too much to do, may pass.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + seconds
    passing = _PASSING + also
    while True:
        try:
            return await ask()
        except passing as exc:
            if clock() > deadline:
                raise
            if failed is not None:
                failed(exc)
        await asyncio.sleep(pause())
