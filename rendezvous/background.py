"""Work in a thread that nobody has to wait for: a disk, a driver or a name server may hang.

The threads of `asyncio.to_thread` are waited for when the process ends, without limit.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


async def in_background(work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call it in a thread, as `asyncio.to_thread` does; the process ends without the thread.

    Where this is cancelled, the thread goes on, and what it answers is dropped.
    """
    answer: Future[T] = Future()
    answer.set_running_or_notify_cancel()  # from here on it always takes the answer

    def run() -> None:
        try:
            answer.set_result(work(*args, **kwargs))
        except BaseException as exc:  # noqa: BLE001 (told to whoever waits)
            answer.set_exception(exc)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(run,), name=work.__name__, daemon=True).start()
    return await asyncio.wrap_future(answer)
