"""How fast those may ask who have not proven who they are: by connection, and by source address."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict

BURST = 20
PER_SECOND = 1.0
MAX_SOURCES = 10_000
LONGEST_WAIT_SECONDS = 1.0
"""For a request of a stranger: a node that looks for its registry gives up after 2 s."""


class FailedLogins:
    """Counts failed logins by source address; a right credential is never counted or refused.

    Many workers may share one address behind a NAT, so only failures count: 20 at once, then one
    a second. Memory is bounded: the source that failed longest ago is forgotten first.
    """

    def __init__(self) -> None:
        # By source: when all of its failures are paid off, at one per 1 / PER_SECOND seconds.
        self._paid_off_at: OrderedDict[str, float] = OrderedDict()

    def failed(self, source: str, now: float) -> float:
        """Count one failed login.

        Args:
            source: The peer's address; the addresses of one IPv6 /64 count as one.
            now: Monotonic seconds.

        Returns:
            0.0 while the source is within its allowance (answer 401), else the seconds until its
            next failure would be (answer 429 with Retry-After).
        """
        source = _network(source)
        paid_off_at = max(self._paid_off_at.get(source, now), now) + 1 / PER_SECOND
        excess = paid_off_at - now - BURST / PER_SECOND
        if excess > 0:
            return excess
        self._paid_off_at[source] = paid_off_at
        self._paid_off_at.move_to_end(source)
        if len(self._paid_off_at) > MAX_SOURCES:
            self._paid_off_at.popitem(last=False)
        return 0.0


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


class Strangers:
    """Paces the requests on connections that have proven no credential; nobody is refused.

    A node asks one question before it shows its credential. A connection that has proven one is
    not counted, and what it asked before is given back to its source: nodes may share an address
    with others, and with a flood. Memory is bounded as in `FailedLogins`.
    """

    CONNECTION = Pace(2, 1.0)
    SOURCE = Pace(10_000, 500.0)

    def __init__(self) -> None:
        self._sources: OrderedDict[str, float] = OrderedDict()

    def take(self, source: str, connection: float, now: float) -> tuple[float, float]:
        """One request.

        Args:
            source: The peer's address; the addresses of one IPv6 /64 count as one.
            connection: The state of its connection, 0.0 at first.
            now: Monotonic seconds.

        Returns:
            The connection's new state, and the seconds that the request has to wait.
        """
        source = _network(source)
        connection, wait = self.CONNECTION.take(connection, now)
        paid_off_at, excess = self.SOURCE.take(self._sources.get(source, now), now)
        if excess <= LONGEST_WAIT_SECONDS:
            self._sources[source] = paid_off_at
            self._sources.move_to_end(source)
        if len(self._sources) > MAX_SOURCES:
            self._sources.popitem(last=False)
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
