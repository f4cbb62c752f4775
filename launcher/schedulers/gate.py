"""How many commands of a scheduler run side by side: fewer while connections are dropped.

A bastion's sshd drops connections that have not logged in beyond its MaxStartups, at random. Who
tries all of them again at once is dropped again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

TRIES: Final = 8
"""Of a command whose connection is dropped each time: in all about 25 s."""
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 5.0
_WIDENS_AFTER = 4
"""Commands for each place that came through, until there is one place more."""


class Gate:
    """Gives places to commands.

    Args:
        most: How many places there are at best; None for no limit, until one is dropped.

    Attributes:
        width: How many there are now; None for no limit.
    """

    def __init__(self, most: int | None) -> None:
        self.width = most
        self._most = most
        self._running = 0
        self._passed = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def dropped(self) -> None:
        """One was dropped: half the places are left."""
        self.width = max(1, (self.width or self._running + 1) // 2)
        self._passed = 0

    def passed(self) -> None:
        """One came through; after several, there is one place more."""
        self._passed += 1
        if self.width is None or self.width == self._most:
            return
        if self._passed >= _WIDENS_AFTER * self.width:
            self.width, self._passed = self.width + 1, 0
            self._wake()

    @contextlib.asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """A place for as long as the context lasts; waits for one, the first first."""
        while self._is_full():
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn in self._waiting:
                    self._waiting.remove(turn)
                else:
                    self._wake()  # it was this one's turn
                raise
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            self._wake()

    def _is_full(self) -> bool:
        return self.width is not None and self._running >= self.width

    def _wake(self) -> None:
        free = len(self._waiting) if self.width is None else self.width - self._running
        for _ in range(min(free, len(self._waiting))):
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)


def pause_seconds(tries: int, jitter: float) -> float:
    """Seconds until the next try, after so many: twice as long each time, and not all at once.

    Args:
        tries: How often it was dropped, from 1.
        jitter: A number in 0 to 1.
    """
    pause: float = min(_FIRST_PAUSE_SECONDS * 2 ** (tries - 1), _LONGEST_PAUSE_SECONDS)
    return pause * (1 + jitter) / 2
