"""What the peer of a connection owes, and until when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rendezvous.enums import StrEnum


class Awaited(StrEnum):
    """What a peer owes, as a sentence names it."""

    NOTHING = ""
    REQUEST = "request"
    HEADER = "header"
    BODY = "body"


class Deadline:
    """The moment until which something is awaited; another takes its place.

    A timer that is set stays as it is, unless it would be too late: it looks again when it is due.
    So hardly any request sets one.

    Args:
        late: Called with what did not come, and the seconds that it had.
    """

    __slots__ = ("_at", "_late", "_loop", "_seconds", "_timer", "_timer_at", "awaited")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, late: Callable[[Awaited, float], None]
    ) -> None:
        self._loop = loop
        self._late: Callable[[Awaited, float], None] | None = late
        self._at = self._timer_at = self._seconds = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.awaited = Awaited.NOTHING

    def set(self, part: Awaited, seconds: float) -> None:
        """From now on this is awaited for so long."""
        self.awaited, self._seconds = part, seconds
        self._at = self._loop.time() + seconds
        if self._timer is None:
            self._set_timer()
        elif self._timer_at > self._at:
            self._timer.cancel()
            self._set_timer()

    def clear(self) -> None:
        """Nothing is awaited."""
        self.awaited = Awaited.NOTHING

    def close(self) -> None:
        """Nothing will be: let go of everything."""
        self.clear()
        self._late = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        self._timer_at = self._at
        self._timer = self._loop.call_at(self._at, self._look)

    def _look(self) -> None:
        self._timer = None
        if self.awaited is Awaited.NOTHING or self._late is None:
            return
        if self._loop.time() < self._at:
            self._set_timer()
        else:
            self._late(self.awaited, self._seconds)
