"""Who was heard of when, and who is given up: judged by the registry's monotonic clock alone.

Rules (with where they come from):

- A node renews its lease with every request. It is suspect after 3 poll lengths and dead after the
  larger of the lease and 7 poll lengths.
- A node whose last connection was closed (FIN) and that makes no request is suspect after 0.75 s
  and dead after 1 s. A dead process closes its sockets; a slow network does not. A live one whose
  requests all failed is back within 0.5 s: somebody else who asks for its slot has to wait. A reset
  (RST) says nothing: firewalls send them, and may then let nobody through for a while.
  When the node was suspect already, the close is the tail of an outage and says nothing; so is
  one that is read within 3 poll lengths after the registry itself was stalled, or before it.
- When 55 % or more of the nodes, and at least 3, are suspect together, the registry may be the one
  that is cut off: it waits one more lease (the rule of the Kubernetes node controller). With each
  of them that comes back, and when most are back, the others have 3 polls to do the same.

All times are seconds of one monotonic clock that stands still while the registry is down or
stalled: registry downtime never expires a lease (etcd and Consul extend leases after a leader
change). Nothing here is journalled: a lease that ran out becomes an event, a renewal does not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from rendezvous.wire.watch import poll_seconds

SWEEP_SECONDS = 0.25
_BACK_SECONDS = 0.75
_CLOSED_SECONDS = 1.0
DOUBT_SWEEPS = round(_CLOSED_SECONDS / SWEEP_SECONDS) + 2
"""After so many, a node whose connection has closed is dead, or back."""
_MASS_PERCENT = 55
_MASS_COUNT = 3

Key = tuple[int, int]
"""(slot, incarnation)"""


@dataclass(frozen=True, slots=True)
class Silence:
    """A node that is given up."""

    key: Key
    seconds: float
    closed: bool


@dataclass(slots=True)
class _Lease:
    heard: float
    connections: set[int] = field(default_factory=set)
    closed_at: float | None = None


class Leases:
    """The leases of one run.

    Args:
        lease_seconds: How long a silent node is kept.
        poll: Poll length handed out to the nodes, seconds.
        trust_close: Whether a closed connection says something of the node (not behind an ingress).
    """

    def __init__(self, lease_seconds: float, poll: float, *, trust_close: bool = True) -> None:
        self._lease_seconds = lease_seconds
        self._begin(poll)
        self.holding_until: float | None = None
        self._trust_close = trust_close
        self._leases: dict[Key, _Lease] = {}
        self._most_were_silent = False
        self._held_since = self._granted_at = float("-inf")

    def lengthen(self, nodes: int) -> None:
        """The registry has so many nodes now; a poll is never made shorter, as some wait in one."""
        self._begin(max(self.poll, poll_seconds(nodes, self._lease_seconds)))

    def _begin(self, poll: float) -> None:
        self.poll = poll
        self.suspect_after = 3 * poll
        self.dead_after = max(self._lease_seconds, 7 * poll)

    def heard(self, key: Key, now: float, connection: int | None = None) -> bool:
        """A request of this node came in, on this connection; whether it is a new one of it."""
        lease = self._leases.get(key)
        if lease is None:
            lease = self._leases[key] = _Lease(now)
        if self._held_since - lease.heard >= self.suspect_after:  # one of those it holds back for
            self.holding_until = max(self.holding_until or now, now + self.suspect_after)
        lease.heard = now
        lease.closed_at = None
        if connection is None or connection in lease.connections:
            return False
        lease.connections.add(connection)
        return True

    def closed(self, key: Key, now: float, connection: int, *, by_peer: bool = True) -> None:
        """A connection on which this node had spoken ended; only a FIN is the peer's."""
        lease = self._leases.get(key)
        if lease is None or connection not in lease.connections:
            return
        lease.connections.discard(connection)
        if by_peer and not lease.connections and now - lease.heard < self.suspect_after:
            lease.closed_at = now

    def stalled(self) -> None:
        """The registry was stalled: whose connection had closed could not come back meanwhile."""
        for lease in self._leases.values():
            lease.closed_at = None

    def forget(self, key: Key) -> None:
        """The node has left, was lost, or is fenced."""
        self._leases.pop(key, None)

    def keep(self, keys: list[Key], now: float) -> None:
        """These nodes are here, and no others; who was heard of when stays as it is."""
        self._leases = {key: self._leases.get(key) or _Lease(now) for key in keys}

    def grant_all(self, keys: list[Key], now: float) -> None:
        """Give these nodes a full lease: after a restart of the registry."""
        self._leases = {key: _Lease(now) for key in keys}
        self._granted_at = now
        self.holding_until, self._most_were_silent = None, False
        self._held_since = float("-inf")

    def silent_seconds(self, key: Key, now: float) -> float:
        """Seconds since the node was last heard of; 0 when it has no lease."""
        lease = self._leases.get(key)
        return 0.0 if lease is None else now - lease.heard

    def is_unheard(self, key: Key) -> bool:
        """Whether the node has said nothing since the registry came back: since when, who knows."""
        lease = self._leases.get(key)
        return lease is not None and lease.heard == self._granted_at

    def granted_seconds(self, now: float) -> float:
        """Seconds since the registry came back; without end when it never was away."""
        return now - self._granted_at

    def is_suspect(self, key: Key, now: float) -> bool:
        """Whether the node has missed three polls, or is not back after its connection closed."""
        lease = self._leases.get(key)
        if lease is None:
            return True
        is_gone = self._closed_seconds(lease, now) >= _BACK_SECONDS
        return is_gone or now - lease.heard >= self.suspect_after

    def is_in_doubt(self, now: float) -> bool:
        """Whether a node's last connection has closed, and it is neither back yet nor dead."""
        return any(self._closed_seconds(lease, now) >= 0 for lease in self._leases.values())

    def until_closed(self, now: float) -> float:
        """Seconds until the next node is dead of its closed connection; without end when none will
        be: of one that is dead already, the journal could not be told."""
        closed = (self._closed_seconds(lease, now) for lease in self._leases.values())
        return min(
            (_CLOSED_SECONDS - s for s in closed if 0 <= s < _CLOSED_SECONDS), default=math.inf
        )

    def is_holding(self, now: float) -> bool:
        """Whether so many are silent together that the registry may be the one cut off."""
        return self.holding_until is not None and now < self.holding_until

    def sweep(self, now: float) -> list[Silence]:
        """Judge all leases; call every `SWEEP_SECONDS`, and when `until_closed` has passed. Returns
        the nodes that are dead now."""
        dead = [s for key, lease in self._leases.items() if (s := self._judge(key, lease, now))]
        self._doubt(now, sudden=any(not silence.closed for silence in dead))
        return [s for s in dead if s.closed] if self.is_holding(now) else dead

    def _doubt(self, now: float, *, sudden: bool) -> None:
        """Begin to hold back when most are silent; go on for a while when they come back."""
        if self._mass_silence(now):
            # Three polls for those that came back were not the lease more for these.
            waits = self.holding_until is not None and self._held_since > float("-inf")
            if sudden and not waits:
                self.holding_until, self._held_since = now + self.dead_after, now
            self._most_were_silent = self.holding_until is None or self.is_holding(now)
        elif self._most_were_silent:  # also when nobody had died of it yet: the last may be late
            self.holding_until, self._most_were_silent = now + self.suspect_after, False
            self._held_since = float("-inf")
        elif not self.is_holding(now):
            self.holding_until = None

    def _judge(self, key: Key, lease: _Lease, now: float) -> Silence | None:
        if (closed := self._closed_seconds(lease, now)) >= _CLOSED_SECONDS:
            return Silence(key, closed, closed=True)
        if now - lease.heard >= self.dead_after:
            return Silence(key, now - lease.heard, closed=False)
        return None

    def _closed_seconds(self, lease: _Lease, now: float) -> float:
        """Seconds since its last connection was closed; below 0 when that says nothing."""
        if lease.closed_at is None or not self._trust_close:
            return -1.0
        return now - lease.closed_at

    def _mass_silence(self, now: float) -> bool:
        silent = sum(now - lease.heard >= self.suspect_after for lease in self._leases.values())
        return silent >= _MASS_COUNT and 100 * silent >= _MASS_PERCENT * len(self._leases)
