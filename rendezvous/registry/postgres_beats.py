"""One replica's beats in PostgreSQL: its row, the session that ends with it, and what both show."""

from __future__ import annotations

import secrets
from typing import Any

from rendezvous.registry import postgres_schema as sql
from rendezvous.registry.commits import LATE_SECONDS, Commits
from rendezvous.registry.membership import BEAT_LIMIT_SECONDS
from rendezvous.registry.postgres_line import Line
from rendezvous.registry.postgres_members import Row, Witness
from rendezvous.registry.postgres_place import Place
from rendezvous.registry.shared_journal import Holding, Member

_BURIED_LEASES = 10
_UNCONFIRMED = "none of its standbys confirms one"
_START_ONE = (
    "start one of its standbys; programs that run continue meanwhile. Try: rdzv docs standing"
)
Report = tuple[tuple[Member, ...], list[Holding], int]
"""The members, the runs that are its own or nobody's, and how often the tenants have changed."""


class Beats:
    """The connection for them, whose session the others watch.

    Args:
        place: Where the database is.
        id: Of this replica, `version`: of the records that it reads.
        commits: Those of this replica: one that waits for long may wait for a standby.
    """

    def __init__(self, place: Place, id: str, version: int, commits: Commits) -> None:  # noqa: A002
        self._id, self._version = id, version
        self._commits = commits
        # A beat need not outlive the primary, and must not wait for a standby.
        self.line = Line(
            place,
            {"synchronous_commit": "local"},
            greet=self._begin_session,
            limit_seconds=BEAT_LIMIT_SECONDS,
        )
        self._session = 0
        self._witness = Witness()

    async def report(
        self, row: tuple[str, float, bool, str], lease_seconds: float, connection: Any
    ) -> Report:
        """Write its row: its address, what its clock shows, whether it drains and what its tenants
        use; and look around.

        Who has been silent for long is removed.
        """
        address, *more = row
        beat = self._id, address, self._session, *more, self._version
        now, tenants = await connection.fetchrow(sql.BEAT, *beat)
        rows = [Row(**row) for row in await connection.fetch(sql.MEMBERS, sql.LOCKS)]
        members = self._witness.members(rows, now=now, lease_seconds=lease_seconds)
        longest = _BURIED_LEASES * lease_seconds
        gone = {member.id for member in members if member.silent_seconds > longest}
        if gone:
            beats = {row.id: row.beat for row in rows if row.id in gone}
            await connection.execute(sql.BURY, list(beats), list(beats.values()))
        alive = [member.id for member in members if member.is_alive(lease_seconds)]
        owned = await connection.fetch(sql.OWNED, self._id, alive)
        is_late = self._commits.seconds() > LATE_SECONDS
        if is_late and await connection.fetchval(sql.WAITS_FOR_STANDBY):
            self._commits.reason, self._commits.hint = _UNCONFIRMED, _START_ONE
        there = tuple(m for m in members if m.id not in gone)
        return there, [Holding(*row) for row in owned], tenants

    async def _begin_session(self, connection: Any) -> None:
        """A lock that ends with the connection; its key is a new one, as the server may not yet
        have noticed the end of the last."""
        self._witness.new_session()
        self._session = 1 + secrets.randbelow(2**31 - 1)
        await connection.execute(sql.SESSION, sql.LOCKS, self._session)
