"""What a probe waits for: sockets, and moments. In the running event loop.

A visit waits some ten times, mostly for less than a millisecond: the loop's own readers and timers,
each made for one wait and taken back, would cost more than what is waited for.
"""

from __future__ import annotations

import asyncio
import math
import select
from collections.abc import Callable


class Readers:
    """Calls back when sockets can be read: an epoll of its own, which the event loop watches."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._epoll = select.epoll()
        self._calls: dict[int, Callable[[], None]] = {}
        self._loop.add_reader(self._epoll.fileno(), self._call)

    def close(self) -> None:
        """Call nobody any more."""
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()
        self._calls.clear()

    def add(self, file: int, call: Callable[[], None]) -> None:
        """Call this whenever the socket of this number can be read, or has failed."""
        self._epoll.register(file, select.EPOLLIN)
        self._calls[file] = call

    def remove(self, file: int) -> None:
        """Call no longer, if it was added; to be said before the socket is closed."""
        if self._calls.pop(file, None) is not None:
            self._epoll.unregister(file)

    def _call(self) -> None:
        for file, _ in self._epoll.poll(0):
            call = self._calls.get(file)  # one before it may have removed it
            try:
                if call is not None:
                    call()
            except Exception as exc:  # noqa: BLE001 (those behind it would wait while it fails)
                context = {"message": "a probe's socket was not read", "exception": exc}
                self._loop.call_exception_handler(context)


class Alarm:
    """Ends waits that last too long, with one timer for all of them.

    Nearly all are over long before: when it rings it mostly ends none, and is set to the earliest
    end of those that go on.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waits: list[tuple[float, asyncio.Future[bool]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._rings = math.inf

    def close(self) -> None:
        """End no wait any more."""
        self._rings = math.inf
        if self._timer is not None:
            self._timer.cancel()

    def wait(self, ends: float) -> asyncio.Future[bool]:
        """For somebody to set; False when nobody has done so by then, in the loop's time."""
        awaited: asyncio.Future[bool] = self._loop.create_future()
        self._waits.append((ends, awaited))
        if ends < self._rings:
            self._set(ends)
        return awaited

    def _set(self, moment: float) -> None:
        self.close()
        self._rings = moment
        self._timer = self._loop.call_at(moment, self._ring)

    def _ring(self) -> None:
        self._rings = math.inf
        now = self._loop.time()
        going_on = [(ends, awaited) for ends, awaited in self._waits if not awaited.done()]
        self._waits = [(ends, awaited) for ends, awaited in going_on if ends > now]
        for ends, awaited in going_on:
            if ends <= now:
                awaited.set_result(False)
        if self._waits:
            self._set(min(ends for ends, _ in self._waits))


class Waits:
    """Both of them, for the visits of a round; raises OSError when no file is left for it."""

    def __init__(self) -> None:
        self.readers, self.alarm = Readers(), Alarm()

    def close(self) -> None:
        """Call nobody, and end no wait, any more."""
        self.readers.close()
        self.alarm.close()
