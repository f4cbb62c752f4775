"""The addresses of names: of a name that is asked for again and again, the last answer is used for
a growing while.

A node asks for its registry every 0.2 to 0.5 s until that is there, and each look-up is two
queries for each search domain: of a thousand nodes a name server would hear nothing else.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from rendezvous.talk.failures import NetworkFailure
from rendezvous.talk.retry import RANDOM

_FIRST_SECONDS = 0.25
_LONGEST_SECONDS = 2.0
_FORGET_SECONDS = 10.0
"""Who asks after so long has not been waiting for it."""


def hold_seconds(times: int, draw: random.Random) -> float:
    """For how long an answer is used that has come so many times in a row."""
    most = _FIRST_SECONDS * 2.0 ** min(times, 16)
    return min(most, _LONGEST_SECONDS) * draw.uniform(0.75, 1.0)


@dataclass(slots=True)
class _Answer:
    addresses: list[str]
    failure: NetworkFailure | None
    at: float
    times: int
    until: float

    def get(self) -> list[str]:
        if self.failure is not None:
            raise self.failure.again()
        return list(self.addresses)


class Names:
    """What a resolver has said last of each name.

    Args:
        clock: Seconds.
        draw: Of how long an answer is used.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, draw: random.Random = RANDOM
    ) -> None:
        self._clock = clock
        self._draw = draw
        self._known: dict[str, _Answer] = {}

    async def addresses_of(
        self, name: str, look_up: Callable[[str], Awaitable[list[str]]]
    ) -> list[str]:
        """The addresses of a name, by `look_up` or as it said last; raises NetworkFailure."""
        last = self._known.get(name)
        if last is not None and self._clock() < last.until:
            return last.get()
        failure, found = None, list[str]()
        try:
            found = await look_up(name)
        except NetworkFailure as exc:
            failure = exc
        now, times = self._clock(), 0
        if last is not None and now - last.at < _FORGET_SECONDS and found == last.addresses:
            times = last.times + 1
        answer = _Answer(found, failure, now, times, now + hold_seconds(times, self._draw))
        self._known[name] = answer
        return answer.get()
