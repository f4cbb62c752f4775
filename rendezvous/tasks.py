"""Ways to wait for asyncio's tasks and events that the standard library leaves to its users."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable
from typing import Any, Protocol, TypeVar

from rendezvous.compat import timeout

T = TypeVar("T")


class Waitable(Protocol):
    """An event, or a process."""

    async def wait(self) -> object:
        """Return once it is set, or has ended."""


class Interrupted(Exception):
    """The awaited coroutine was interrupted."""


def now() -> float:
    """Return seconds, by the clock of the running loop."""
    return asyncio.get_running_loop().time()


async def wait_for(event: Waitable, seconds: float | None) -> None:
    """Wait for an event, for at most so many seconds; None: however long it takes."""
    with contextlib.suppress(TimeoutError):
        async with timeout(seconds):
            await event.wait()


async def unless(event: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine; raises Interrupted, and cancels it, where the event is set first."""
    task, alarm = asyncio.create_task(work), asyncio.create_task(event.wait())
    try:
        await asyncio.wait({task, alarm}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Interrupted
    finally:
        await cancel_all([task, alarm])


async def cancel_all(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel tasks, and wait until they have ended, however that is."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
