"""How many wrong credentials one source may show before it is told to slow down."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict

BURST = 20
PER_SECOND = 1.0
MAX_SOURCES = 10_000


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


def _network(source: str) -> str:
    """One host has a whole IPv6 /64 to choose its address from."""
    if ":" not in source:
        return source
    return str(ipaddress.IPv6Interface(f"{source.partition('%')[0]}/64").network)
