"""How many connections a registry may hold, and what it says when there is no more room.

Each connection is an open file, and the kernel gives out the lowest free number: the number of a
connection tells how many are left. The last ones are kept for those who are told so, and for people
and launchers, who ask what is wrong.
"""

from __future__ import annotations

import logging
import resource
import time
from collections.abc import Callable
from enum import Enum

from rendezvous.serving.trouble import Trouble
from rendezvous.wire.errors import Unavailable

logger = logging.getLogger(__name__)

RESERVE = 32
"""Descriptors that are kept for the last connections; a part of `REGISTRY_FILES`."""

_UNSEEN = 8
"""Of these, how many are never used: for what the process itself opens."""

MAX_REFUSALS = 200
"""Connections above the cap that still get an answer."""


class Seat(Enum):
    """What becomes of a connection that was accepted."""

    FREE = "it is served"
    LAST = "it is refused with an answer, and closed"
    NONE = "it is closed without an answer"


class Room:
    """The connections of one registry.

    How many files the process may open is read anew for each of them.
    """

    def __init__(
        self,
        max_connections: int,
        *,
        limit: Callable[[], int] = lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_connections = max_connections
        self._limit = limit
        self._clock = clock
        self._trouble = Trouble()

    def seat(self, count: int, descriptor: int) -> Seat:
        """What becomes of a connection on this descriptor, the `count`th of those that are open."""
        left = self._limit() - descriptor
        if left <= _UNSEEN or count > self._max_connections + MAX_REFUSALS:
            seat = Seat.NONE
        elif left <= RESERVE or count > self._max_connections:
            seat = Seat.LAST
        else:
            return Seat.FREE
        words = self._full(by_files=left <= RESERVE)
        if not self.words():
            logger.warning("%s", words)
        self._trouble.failed(words, self._clock())
        return seat

    def refusal(self) -> Unavailable:
        """What a connection without a seat is told."""
        return Unavailable(self.words() or "the registry had no room for another connection")

    def words(self) -> str:
        """What is wrong; empty when there is room."""
        return self._trouble.words(self._clock())

    def _full(self, *, by_files: bool) -> str:
        if not by_files:
            return (
                f"the registry has {self._max_connections} connections, which is its limit; "
                "start it with a higher limit"
            )
        return (
            f"the registry has no file descriptors left for another connection: it may open "
            f"{self._limit()} files, and each node needs one; raise that limit where the registry "
            "runs (ulimit -n, LimitNOFILE=)"
        )
