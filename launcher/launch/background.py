"""Tasks that live no longer than their launch, and interrupt it when they fail."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

from rendezvous.compat import timeout
from rendezvous.wire.errors import RdzvError

T = TypeVar("T")


class Background:
    """Runs tasks beside the launch; the first error is raised where the launch is attended.

    Attributes:
        error: The first error since the last one was raised; None while there is none.
        fault: The first error of a task that no RdzvError tells of, raised or not.
    """

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.fault: BaseException | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failed = asyncio.Event()

    def start(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[Any]:
        """Run a coroutine beside the launch; an error of it interrupts the launch."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def fail(self, error: BaseException) -> None:
        """Interrupt the launch with this error, unless another one does so already."""
        if self.error is None:
            self.error = error
            self._failed.set()

    async def attend(self, work: Coroutine[Any, Any, T]) -> T:
        """Await a coroutine, and cancel it when something fails beside it.

        Raises:
            BaseException: The error that interrupts it, or its own.
        """
        task, failed = asyncio.create_task(work), asyncio.create_task(self._failed.wait())
        try:
            await asyncio.wait({task, failed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            is_done = task.done()
            await cancelled(task, failed)
        if (error := self.error) is not None:  # it may have come while the coroutine ended
            if is_done and not task.cancelled() and (own := task.exception()) is not None:
                self._note(own)
            self.error = None
            self._failed.clear()
            raise error
        return task.result()

    async def close(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        await cancelled(*self._tasks)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._note(error)
            self.fail(error)

    def _note(self, error: BaseException) -> None:
        if self.fault is None and not isinstance(error, RdzvError):
            self.fault = error


def now() -> float:
    """Return seconds, by the clock of the running loop."""
    return asyncio.get_running_loop().time()


async def wait_for(event: asyncio.Event, seconds: float | None) -> None:
    """Wait for an event, for at most so many seconds; None: however long it takes."""
    with contextlib.suppress(TimeoutError):
        async with timeout(seconds):
            await event.wait()


def message_of(error: BaseException) -> str:
    """Return what an error says; one that nobody raised on purpose is shown as it is."""
    return error.message if isinstance(error, RdzvError) else repr(error)


async def cancelled(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Interrupted(Exception):
    """The awaited coroutine was interrupted."""


async def unless(event: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine; raises Interrupted, and cancels it, where the event is set first."""
    task, alarm = asyncio.create_task(work), asyncio.create_task(event.wait())
    try:
        await asyncio.wait({task, alarm}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Interrupted
    finally:
        await cancelled(task, alarm)
