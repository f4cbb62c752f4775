"""How fast those may ask who have not proven who they are: by connection, and by source address.

All addresses of one IPv6 /64 are one source: a host has a whole one to choose from. Memory is
bounded: the source that asked longest ago is forgotten first. Times are monotonic seconds.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict

BURST = 20
MAX_SOURCES = 10_000
LONGEST_WAIT_SECONDS = 1.0
"""For a request of a stranger: a node that looks for its registry gives up after 2 s."""


class Pace:
    """So many at once, then so many a second; the state is when all that was taken is paid off."""

    def __init__(self, burst: int, per_second: float) -> None:
        self.burst = burst
        self._per_second = per_second

    def take(self, paid_off_at: float, now: float) -> tuple[float, float]:
        """Take one; returns the new state and the seconds to wait for it."""
        paid_off_at = max(paid_off_at, now) + 1 / self._per_second
        return paid_off_at, max(0.0, paid_off_at - now - self.burst / self._per_second)

    def give_back(self, paid_off_at: float, count: int) -> float:
        """The state as if so many had not been taken."""
        return paid_off_at - count / self._per_second


class _BySource(OrderedDict[str, float]):
    """The states of sources' paces."""

    def note(self, source: str, paid_off_at: float) -> None:
        """The new state of a source, which has just asked."""
        self[source] = paid_off_at
        self.move_to_end(source)
        if len(self) > MAX_SOURCES:
            self.popitem(last=False)


class FailedLogins:
    """Counts failed logins by source address; a right credential is never counted or refused.

    Many workers may share one address behind a NAT, so only failures count.
    """

    PACE = Pace(BURST, 1.0)

    def __init__(self) -> None:
        self._sources = _BySource()

    def failed(self, source: str, now: float) -> float:
        """Count one failed login, unless it is too many.

        Returns 0.0 while the source is within its allowance (answer 401), else the seconds until
        its next failure would be (answer 429 with Retry-After).
        """
        source = _network(source)
        paid_off_at, excess = self.PACE.take(self._sources.get(source, now), now)
        if excess == 0:
            self._sources.note(source, paid_off_at)
        return excess


class Strangers:
    """Paces the requests on connections that have proven no credential; nobody is refused.

    A node asks one question before it shows its credential. A connection that has proven one is
    not counted, and what it asked before is given back to its source: nodes may share an address
    with others, and with a flood.
    """

    CONNECTION = Pace(2, 1.0)
    SOURCE = Pace(10_000, 500.0)

    def __init__(self) -> None:
        self._sources = _BySource()

    def take(self, source: str, connection: float, now: float) -> tuple[float, float]:
        """One request on a connection of this state, 0.0 at first.

        Returns the connection's new state, and the seconds that the request has to wait.
        """
        source = _network(source)
        connection, wait = self.CONNECTION.take(connection, now)
        paid_off_at, excess = self.SOURCE.take(self._sources.get(source, now), now)
        if excess <= LONGEST_WAIT_SECONDS:
            self._sources.note(source, paid_off_at)
        return connection, min(LONGEST_WAIT_SECONDS, max(wait, excess))

    def give_back(self, source: str, count: int) -> None:
        """So many requests of this source were of somebody who has proven a credential."""
        source = _network(source)
        if source in self._sources:
            self._sources[source] = self.SOURCE.give_back(self._sources[source], count)


def _network(source: str) -> str:
    """One host has a whole IPv6 /64 to choose its address from."""
    if ":" not in source:
        return source
    return str(ipaddress.IPv6Interface(f"{source.partition('%')[0]}/64").network)
