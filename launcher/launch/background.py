"""Tasks that live no longer than their launch, and interrupt it when they fail."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from rendezvous.tasks import cancel_all
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
            await cancel_all([task, failed])
        if (error := self.error) is not None:  # it may have come while the coroutine ended
            if is_done and not task.cancelled() and (own := task.exception()) is not None:
                self._note(own)
            self.error = None
            self._failed.clear()
            raise error
        return task.result()

    async def close(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        await cancel_all(self._tasks)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._note(error)
            self.fail(error)

    def _note(self, error: BaseException) -> None:
        if self.fault is None and not isinstance(error, RdzvError):
            self.fault = error
