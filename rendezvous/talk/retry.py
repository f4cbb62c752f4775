"""Ask again: a registry that is away for a moment comes back, and a late answer may be lost.

`until_answered` tries one after another, `persistently` side by side.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from rendezvous.tasks import cancel_all
from rendezvous.wire.errors import RdzvError, RegistryError, TooManyRequests, Unavailable

T = TypeVar("T")
Tries = list[asyncio.Task[T]]

RANDOM = random.Random()  # noqa: S311 (jitter)
_MAX_TRIES_AT_ONCE = 3
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
) -> T:
    """Ask until there is an answer, or a failure that cannot pass.

    Args:
        ask: Asks once.
        seconds: After so long a failure is the last one, and raised.
        failed: Called with each failure that is followed by another try; may raise to give up.
        pause: Seconds before the next try.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + seconds
    while True:
        try:
            return await ask()
        except _PASSING as exc:
            if clock() > deadline:
                raise
            if failed is not None:
                failed(exc)
        await asyncio.sleep(pause())


async def persistently(
    send: Callable[[], Coroutine[Any, Any, T]],
    *,
    late: float,
    again_after: float,
    pause: Callable[[], float],
    on_late: Callable[[], None],
) -> T:
    """Ask with more and more connections side by side when answers are late.

    They are opened before the first is given up: a closed connection tells the registry that
    the node is gone. Two follow soon upon each other, as a network that lost one may well lose
    the next. While the first is waited for, one that failed is followed by another: those that
    still wait may be on connections that nobody knows any more.

    Args:
        send: Asks once, for at most four times `late`; raises Unavailable when the network fails.
        late: Seconds after which the first answer is late.
        again_after: Seconds after which the next one is.
        pause: Seconds to wait after a failure while another try waits.
        on_late: Called before another is sent as none has answered in time.
    """
    clock = asyncio.get_running_loop().time
    patience, give_up_at = late, clock() + 4 * late
    tries = [asyncio.create_task(send())]
    try:
        while True:
            ended, tries = await _wait(tries, patience)
            for task in sorted(ended, key=_is_unavailable):
                if not tries or not _is_unavailable(task):
                    return task.result()
            # Refused at once, while an older try still waits.
            if ended and (await _wait(tries, pause()))[0]:
                continue
            if clock() < give_up_at and len(tries) < _MAX_TRIES_AT_ONCE:
                if not ended:
                    on_late()
                tries.append(asyncio.create_task(send()))
                patience = again_after
    finally:
        await cancel_all(tries)


async def _wait(tries: Tries[T], seconds: float) -> tuple[Tries[T], Tries[T]]:
    """Those that have ended and those that have not, once one has or the time is over."""
    await asyncio.wait(tries, timeout=seconds, return_when="FIRST_COMPLETED")
    ended = [task for task in tries if task.done()]
    return ended, [task for task in tries if not task.done()]


def _is_unavailable(task: asyncio.Task[Any]) -> bool:
    return isinstance(task.exception(), Unavailable)
