"""What is written to PostgreSQL by a connection: events, their removal, and commits to try it.

Each raises an `asyncpg.PostgresError` where the server refuses it, and undoes all of it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from rendezvous.registry import postgres_schema as sql
from rendezvous.registry.journal import Record


async def insert(
    me: str, epochs: Mapping[str, int], runs: Mapping[str, Sequence[Record]], connection: Any
) -> set[str]:
    """Write the events of these runs; returns those of which it holds these epochs."""
    records = [record for some in runs.values() for record in some]
    rows = await connection.fetch(
        sql.INSERT,
        me,
        list(epochs),
        list(epochs.values()),
        [record.run for record in records],
        [record.number for record in records],
        [record.at for record in records],
        [record.body for record in records],
    )
    return {row["run"] for row in rows}


async def delete(run: str, me: str, epoch: int, clock: float, connection: Any) -> None:
    """Remove a run's events, and own it no more, where it is held with this epoch."""
    async with connection.transaction():
        # First the row: the next statement sees what was being appended.
        if await connection.fetchval(sql.SET_OWNER, run, me, epoch, None, clock):
            await connection.execute(sql.DELETE, run)


async def probe(needs_room: bool, connection: Any) -> None:
    """Commit something that changes nothing; where it needs room, as an event may need it."""
    if not needs_room:
        await connection.execute(sql.PROBE)
        return
    async with connection.transaction():
        await connection.execute(sql.PROBE_ROOM, secrets.randbelow(2**63))
        await connection.execute(sql.DELETE, "")
