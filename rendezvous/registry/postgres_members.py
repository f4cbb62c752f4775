"""Which replicas are alive: judged by what one of them has itself seen at its beats.

Times are the database's, and only how they go on counts: never the clock of a replica, and never
what is stored against what the clock says now. So a database that was away, or another one with
another clock in its place, makes nobody look dead: all were silent then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rendezvous.frozen import frozen
from rendezvous.registry.journal import JOURNAL
from rendezvous.registry.quotas import read_usages
from rendezvous.registry.shared_journal import Member


@frozen
class Row:
    """A replica as the database has it.

    Attributes:
        beat: When it was heard last, in seconds; another value is another beat.
        session: The key of the lock that its session holds.
        holds: Whether that lock is held now.
        reads: The version of records that it reads.
        usage: See `quotas.usages_text`.
    """

    id: str
    address: str
    beat: float
    session: int
    holds: bool
    drains: bool
    reads: int = JOURNAL
    usage: str = "{}"


class Witness:
    """What one replica has seen of all."""

    def __init__(self) -> None:
        self._last = -math.inf
        self._beats: dict[str, tuple[float, float]] = {}  # the beat, and since when it is the last
        self._sessions: set[tuple[str, int]] = set()

    def new_session(self) -> None:
        """Where the own session ended, those of others may have ended with it."""
        self._sessions.clear()

    def members(
        self, rows: Sequence[Row], *, now: float, lease_seconds: float
    ) -> tuple[Member, ...]:
        """Judge all, at a beat of the own.

        A silence counts from when it could be heard: where this replica itself missed its lease, it
        begins with this beat. A session has ended once it was seen to stand, in one of the own.
        """
        if not 0 <= now - self._last <= lease_seconds:
            self._beats.clear()
            self._last = now
        self._beats = {row.id: self._heard(row, now) for row in rows}
        self._last = now
        self._sessions |= {(row.id, row.session) for row in rows if row.holds}
        self._sessions &= {(row.id, row.session) for row in rows}
        return tuple(
            Member(
                id=row.id,
                address=row.address,
                silent_seconds=now - self._beats[row.id][1],
                has_session=row.holds or (row.id, row.session) not in self._sessions,
                drains=row.drains,
                reads=row.reads,
                usage=read_usages(row.usage),
            )
            for row in rows
        )

    def _heard(self, row: Row, now: float) -> tuple[float, float]:
        known = self._beats.get(row.id)
        if known is not None and known[0] == row.beat:
            return known
        return row.beat, min(max(row.beat, self._last), now)
