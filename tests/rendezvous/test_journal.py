"""Every journal keeps the same promises."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rendezvous.registry.journal import Journal, MemoryJournal, Record
from rendezvous.registry.postgres_journal import PostgresJournal
from rendezvous.registry.sqlite_journal import SqliteJournal
from rendezvous.wire.errors import StorageFull, TenantClash
from rendezvous.wire.tenant import Tenant, TenantLimits
from tests.support.journals import contents, records, written


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def journal(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Journal]:
    """One of each kind, empty."""
    made: Journal
    if request.param == "memory":
        made = MemoryJournal()
    elif request.param == "sqlite":
        made = SqliteJournal(tmp_path / "journal.sqlite")
    else:
        postgres = request.getfixturevalue("postgres")
        made = await PostgresJournal.open(postgres.dsn(await postgres.new_database()), "ab" * 16)
    yield made
    await made.close()


async def test_records_are_read_as_they_are_and_in_the_order_of_the_appends(
    journal: Journal,
) -> None:
    odd = Record("with 'quotes' and é", 7, 1.000000000001, bytes(range(256)))
    assert await journal.runs() == []
    assert await written(journal, [odd, *records("b", 1, 2)]) == {}
    assert await written(journal, [*records("a", 1), *records("b", 3)]) == {}
    assert await journal.runs() == [odd.run, "b", "a"]
    assert await journal.read(odd.run) == [odd]
    assert await journal.read("b") == records("b", 1, 2, 3)
    assert await journal.read("nosuch") == []


async def test_appends_made_at_once_are_kept_in_the_order_of_the_calls(journal: Journal) -> None:
    assert await written(journal, records("a", 1)) == {}
    await asyncio.gather(*(journal.append(records("a", n)) for n in range(2, 51)))
    assert await journal.read("a") == records("a", *range(1, 51))


async def test_nothing_is_appended_without_any_error(journal: Journal) -> None:
    assert await written(journal, []) == {}
    assert await contents(journal) == []


async def test_a_number_that_is_taken_is_refused_with_all_of_its_run_and_with_no_other(
    journal: Journal,
) -> None:
    assert await written(journal, records("a", 1, 2)) == {}
    mixed = [*records("b", 1), *records("a", 3, 2), *records("b", 2)]
    assert await written(journal, mixed) == {"a": StorageFull}
    assert await written(journal, records("c", 1, 1)) == {"c": StorageFull}
    assert await written(journal, records("a", *range(3, 300), 2)) == {"a": StorageFull}
    assert await contents(journal) == [*records("a", 1, 2), *records("b", 1, 2)]
    assert await written(journal, records("a", 3)) == {}
    assert await journal.read("a") == records("a", 1, 2, 3)


async def test_a_dropped_run_is_gone_and_its_numbers_are_free(journal: Journal) -> None:
    await written(journal, [*records("a", 1), *records("b", 1), *records("a", 2)])
    await written(journal, records("c", 1))
    await journal.drop(["a", "nosuch", "c"])
    await journal.drop([])
    assert await contents(journal) == records("b", 1)
    assert await written(journal, records("a", 1)) == {}
    assert await contents(journal) == [*records("b", 1), *records("a", 1)]


A = Tenant(name="a", prefix="a-", sha256="a" * 64, limits=TenantLimits(max_runs=3))
B = Tenant(name="b", prefix="a2-", sha256="b" * 64)


async def found(journal: Journal) -> dict[str, Tenant]:
    return {tenant.name: tenant for tenant in await journal.tenants()}


async def test_tenants_are_kept_changed_and_removed_beside_the_records(journal: Journal) -> None:
    assert await found(journal) == {}
    assert not await journal.remove_tenant("a")
    await written(journal, records("a-1", 1))
    await journal.put_tenant(A)
    await journal.put_tenant(B)
    changed = A.model_copy(update={"sha256": "c" * 64, "limits": TenantLimits(max_nodes=7)})
    await journal.put_tenant(changed)
    assert await found(journal) == {"a": changed, "b": B}
    assert await journal.remove_tenant("a")
    assert not await journal.remove_tenant("a")
    assert await found(journal) == {"b": B}
    assert await contents(journal) == records("a-1", 1)


async def test_a_tenant_with_a_part_of_another_one_is_refused(journal: Journal) -> None:
    await journal.put_tenant(A)
    with pytest.raises(TenantClash):
        await journal.put_tenant(Tenant(name="c", prefix="a-b-", sha256="c" * 64))
    assert await found(journal) == {"a": A}


async def test_of_two_that_overlap_and_are_added_at_once_one_is_refused(journal: Journal) -> None:
    some = [A, *(Tenant(name=f"t{n}", prefix="a-", sha256=f"{n}" * 64) for n in range(4))]
    done = await asyncio.gather(*map(journal.put_tenant, some), return_exceptions=True)
    assert [type(one) for one in done if one is not None] == [TenantClash] * 4
    assert len(await found(journal)) == 1
