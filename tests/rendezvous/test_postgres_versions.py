"""Replicas of two journal versions at one PostgreSQL: none gets a run that it cannot read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import pytest

from rendezvous.registry import postgres_schema
from rendezvous.registry.journal import JOURNAL
from rendezvous.registry.postgres_journal import PostgresJournal
from rendezvous.registry.shared_journal import Beat, Holding
from tests.support.journals import contents, records, written

NEXT = JOURNAL + 1
LEASE = 3.0
_OLD = "o" * 32
"""A replica of an rdzv that knows nothing of versions: this is how such a one beats and claims."""
_OLD_BEAT = """
INSERT INTO rdzv.replicas (id, address, seen, session, clock, drains, usage)
VALUES ($1, 'o:1', clock_timestamp(), 1, 0.0, false, '{}') ON CONFLICT (id) DO NOTHING
"""
_OLD_CLAIM = """
UPDATE rdzv.runs SET owner = $1, epoch = epoch + 1 WHERE run = $2 AND epoch = $3 RETURNING epoch
"""
_OLD_MAKE = "INSERT INTO rdzv.runs (run, owner, epoch, clock) VALUES ($2, $1, 1, 0.0)"


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def replica(stack: AsyncExitStack, dsn: str, name: str, version: int) -> PostgresJournal:
    """A replica that has beaten once."""
    journal = await PostgresJournal.open(dsn, name * 32, version)
    stack.push_async_callback(journal.close)
    await beat(journal)
    return journal


async def beat(journal: PostgresJournal) -> Beat:
    return await journal.beat(f"{journal.id[0]}:1", lease_seconds=LEASE)


async def test_a_run_goes_only_to_who_reads_it(stack: AsyncExitStack, dsn: str) -> None:
    first = await replica(stack, dsn, "a", JOURNAL)
    newer = await replica(stack, dsn, "b", NEXT)
    assert await written(first, records("r", 1)) == {}
    assert await written(newer, records("n", 1)) == {}
    seen = {member.id: member.reads for member in (await beat(first)).members}
    assert seen == {first.id: JOURNAL, newer.id: NEXT}
    known = Holding("r", first.id, 1, JOURNAL)
    assert await newer.owner("r") == known
    assert await newer.claim([known]) == {}
    assert not await first.hand_over("r", newer.id)  # it is its own still, and nobody else's
    assert await newer.owner("r") == known
    assert await first.claim([Holding("n", newer.id, 1, NEXT)]) == {}
    await first.leave()
    left = (await beat(newer)).left
    assert left == (known,)
    again = await replica(stack, dsn, "c", JOURNAL)
    assert await again.claim(left) == {"r": 2}
    assert await contents(again) == [*records("r", 1), *records("n", 1)]


async def test_a_name_that_is_free_is_for_any_version(stack: AsyncExitStack, dsn: str) -> None:
    first = await replica(stack, dsn, "a", JOURNAL)
    newer = await replica(stack, dsn, "b", NEXT)
    assert await written(first, records("r", 1)) == {}
    await first.drop(["r"])
    free = await newer.owner("r")
    assert free == Holding("r", None, 1, JOURNAL)
    assert await newer.claim([free]) == {"r": 2}
    assert await first.owner("r") == Holding("r", newer.id, 2, NEXT)


async def test_one_that_knows_no_versions_gets_no_run_of_one(
    stack: AsyncExitStack, dsn: str
) -> None:
    old = await asyncpg.connect(dsn)
    stack.push_async_callback(old.close)
    await old.execute("CREATE SCHEMA rdzv")
    await old.execute(postgres_schema._CREATE)
    await old.execute("INSERT INTO rdzv.journal VALUES ($1)", postgres_schema._VERSION)
    await old.execute(_OLD_BEAT, _OLD)
    await old.execute(_OLD_MAKE, _OLD, "before")

    async def claims(run: str, epoch: int) -> Any:
        return await old.fetchval(_OLD_CLAIM, _OLD, run, epoch)

    new = await replica(stack, dsn, "a", JOURNAL)
    assert await written(new, records("r", 1)) == {}
    await old.execute(_OLD_MAKE, _OLD, "since")
    for run in ("before", "since"):
        assert await new.owner(run) == Holding(run, _OLD, 1, 0)
        assert await new.claim([Holding(run, _OLD, 1, 0)]) == {}
        assert await claims(run, 1) == 2
    await new.leave()
    assert await claims("r", 1) is None
    assert await new.owner("r") == Holding("r", new.id, 1, JOURNAL)
    again = await replica(stack, dsn, "b", JOURNAL)
    assert await again.claim([Holding("r", new.id, 1, JOURNAL)]) == {"r": 2}
    await again.drop(["r"])
    assert await claims("r", 2) == 3  # the name is free
    assert await again.owner("r") == Holding("r", _OLD, 3, 0)
