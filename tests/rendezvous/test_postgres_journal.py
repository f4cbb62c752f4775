"""The journal of several replicas on a real PostgreSQL: its fence, its beats, and its faults."""

from __future__ import annotations

import asyncio
import math
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from rendezvous.compat import timeout
from rendezvous.registry import postgres_line
from rendezvous.registry.journal import Record
from rendezvous.registry.postgres_journal import PostgresJournal
from rendezvous.registry.shared_journal import Beat, Holding, Overtaken
from rendezvous.wire.errors import StorageFull, Unavailable, UsageError
from rendezvous.wire.tenant import Tenant, Usage
from tests.support.journals import contents, records, written
from tests.support.postgres import Postgres

LEASE = 3.0
Opening = Callable[[str], Awaitable[PostgresJournal]]


@pytest.fixture
async def opened(dsn: str) -> AsyncIterator[Opening]:
    """Opens the journal for the replica of a letter, its ID being that letter 32 times."""
    async with AsyncExitStack() as stack:

        async def open_it(letter: str) -> PostgresJournal:
            journal = await PostgresJournal.open(dsn, letter * 32)
            stack.push_async_callback(journal.close)
            return journal

        yield open_it


async def until(look: Callable[[], Awaitable[bool]]) -> None:
    """Wait until it is so."""
    async with timeout(20):
        while not await look():
            await asyncio.sleep(0.01)


async def waits(dsn: str, event: str = "", count: int = 1) -> bool:
    """Whether so many of rdzv's sessions wait: for a lock, or for this event."""
    connection = await asyncpg.connect(dsn)
    try:
        found = await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'rdzv' "
            "AND datname = current_database() "
            "AND CASE WHEN $1 = '' THEN wait_event_type = 'Lock' ELSE wait_event = $1 END",
            event,
        )
    finally:
        await connection.close()
    return bool(found >= count)


# The fence


async def test_who_was_overtaken_writes_nothing_and_is_told(opened: Opening) -> None:
    first, second = await opened("a"), await opened("b")
    await written(first, [*records("r", 1), *records("s", 1)])
    assert await second.claim([Holding("r", first.id, 1)]) == {"r": 2}
    for number in (2, 3):  # the second time it knows by itself
        refused = await first.append([*records("r", number), *records("s", number)])
        assert {run: type(error) for run, error in refused.items()} == {"r": Overtaken}
    assert await second.append(records("r", 2)) == {}
    assert await contents(second) == [*records("r", 1, 2), *records("s", 1, 2, 3)]
    assert await second.owner("r") == Holding("r", second.id, 2)
    assert await second.owner("nosuch") is None


async def test_a_run_is_claimed_only_as_it_is_known(opened: Opening) -> None:
    first, second = await opened("a"), await opened("b")
    new = [Holding(run, None, 0) for run in ("r", "s")]
    assert await first.claim(new) == {"r": 1, "s": 1}
    stale = [Holding("r", None, 0), Holding("r", None, 1), Holding("s", first.id, 2)]
    for holding in (*stale, Holding("s", second.id, 1), Holding("t", None, 1)):
        assert await second.claim([holding]) == {}
    many = [Holding("r", first.id, 1), Holding("s", first.id, 7), Holding("t", None, 0)]
    assert await second.claim(many) == {"r": 2, "t": 1}
    assert await second.claim([]) == {}


async def test_of_many_that_claim_a_run_at_once_one_has_it(opened: Opening) -> None:
    replicas = [await opened(letter) for letter in "abcdef"]
    for holding in (Holding("r", None, 0), None):
        known = holding or await replicas[0].owner("r")
        assert known is not None
        won = await asyncio.gather(*(replica.claim([known]) for replica in replicas))
        assert [claimed for claimed in won if claimed] == [{"r": known.epoch + 1}]


async def test_a_claim_waits_for_what_is_being_written(opened: Opening, dsn: str) -> None:
    first, second = await opened("a"), await opened("b")
    await written(first, records("r", 1))
    blocker = await asyncpg.connect(dsn)
    taken = blocker.transaction()
    await taken.start()
    await blocker.execute("INSERT INTO rdzv.events VALUES ('r', 2, 9, 0, '')")
    appending = asyncio.create_task(first.append(records("r", 2)))
    await until(lambda: waits(dsn))
    claiming = asyncio.create_task(second.claim([Holding("r", first.id, 1)]))
    await until(lambda: waits(dsn, count=2))
    await taken.rollback()
    await blocker.close()
    assert await appending == {}
    assert await claiming == {"r": 2}
    assert await second.read("r") == records("r", 1, 2)


async def test_what_waits_too_long_for_a_claim_is_undone_and_not_in_doubt(
    opened: Opening, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(postgres_line._SESSION, "lock_timeout", "100")
    first, second = await opened("a"), await opened("b")
    await written(first, records("r", 1))
    blocker = await asyncpg.connect(dsn)
    taken = blocker.transaction()
    await taken.start()
    await blocker.execute("SELECT FROM rdzv.runs FOR UPDATE")
    [error] = (await first.append(records("r", 2))).values()
    assert type(error) is Unavailable
    with pytest.raises(Unavailable, match="lock timeout") as failure:
        await second.claim([Holding("r", first.id, 1)])
    assert type(failure.value) is Unavailable
    await taken.rollback()
    await blocker.close()
    assert await first.append(records("r", 2)) == {}


async def _contend(
    journal: PostgresJournal, kept: list[tuple[int, bytes]], fenced: list[int]
) -> None:
    """Claim and append, in turns with others, until a hundred records are kept and ten were not."""
    chance = random.Random(journal.id)
    while len(kept) <= 100 or len(fenced) <= 10:
        known = await journal.owner("r") or Holding("r", None, 0)
        epoch = (await journal.claim([known])).get("r")
        if epoch is None:
            continue
        number = len(await journal.read("r"))
        for _ in range(chance.randrange(60)):
            body = f"{journal.id} {epoch} {number}".encode()
            refused = await journal.append([Record("r", number + 1, 0.0, body)])
            if refused:
                assert isinstance(refused["r"], Overtaken)
                fenced.append(epoch)
                break
            number += 1
            kept.append((number, body))


async def test_epochs_never_interleave_and_nothing_acknowledged_is_lost(
    opened: Opening, dsn: str
) -> None:
    replicas, kept = [await opened(letter) for letter in "abcd"], list[tuple[int, bytes]]()
    fenced: list[int] = []
    await asyncio.gather(*(_contend(replica, kept, fenced) for replica in replicas))
    connection = await asyncpg.connect(dsn)
    rows = await connection.fetch("SELECT number, epoch, body FROM rdzv.events ORDER BY number")
    await connection.close()
    assert [row["number"] for row in rows] == list(range(1, len(rows) + 1))
    epochs = [row["epoch"] for row in rows]
    assert epochs == sorted(epochs)
    assert sorted(kept) == [(row["number"], row["body"]) for row in rows]
    assert min(len(fenced), len(kept) / 10) > 10, (fenced, len(kept))


# Runs change hands


async def test_a_run_is_handed_over_to_whom_it_is_given(opened: Opening) -> None:
    first, second = await opened("a"), await opened("b")
    await written(first, [*records("r", 1), *records("s", 1)])
    assert await first.hand_over("r", second.id)
    assert not await first.hand_over("r", second.id)
    assert [type(error) for error in (await first.append(records("r", 2))).values()] == [Overtaken]
    beat = await second.beat("b:1", lease_seconds=LEASE)
    assert beat.given == (Holding("r", second.id, 1),)
    assert await second.claim(beat.given) == {"r": 2}
    assert (await second.beat("b:1", lease_seconds=LEASE)).given == ()
    assert await first.hand_over("s", None)
    assert await first.owner("s") == Holding("s", None, 1)
    assert await second.claim([Holding("s", None, 1)]) == {"s": 2}


async def test_who_is_given_back_a_run_writes_nothing_before_it_has_claimed_it(
    opened: Opening,
) -> None:
    first, second = await opened("a"), await opened("b")
    await written(first, records("r", 1))
    await second.claim([Holding("r", first.id, 1)])
    assert await second.append(records("r", 2)) == {}
    assert await second.hand_over("r", first.id)
    refused = await first.append(records("r", 3))  # it knows of nothing
    assert [type(error) for error in refused.values()] == [Overtaken]
    assert (await _seen(first))[0].given == (Holding("r", first.id, 2),)
    assert await first.read("r") == records("r", 1, 2)


async def test_what_another_one_has_claimed_is_neither_handed_over_nor_dropped(
    opened: Opening,
) -> None:
    first, second = await opened("a"), await opened("b")
    await written(first, [*records("r", 1), *records("s", 1)])
    await second.claim([Holding("r", first.id, 1), Holding("s", first.id, 1)])
    assert not await first.hand_over("r", None)
    await first.drop(["s"])
    assert await contents(second) == [*records("r", 1), *records("s", 1)]
    assert await second.owner("r") == Holding("r", second.id, 2)


async def test_a_run_whose_removal_the_database_refuses_is_held_as_before(
    opened: Opening, postgres: Postgres, dsn: str
) -> None:
    journal, database = await opened("a"), dsn.rpartition("/")[2]
    await written(journal, records("r", 1))
    await postgres.execute("ALTER TABLE rdzv.events RENAME TO photos", database)
    with pytest.raises(StorageFull):
        await journal.drop(["r"])
    await postgres.execute("ALTER TABLE rdzv.photos RENAME TO events", database)
    assert await journal.append(records("r", 2)) == {}
    await journal.drop(["r"])
    assert await contents(journal) == []


async def test_the_epoch_of_a_dropped_run_goes_on(opened: Opening) -> None:
    first, second = await opened("a"), await opened("b")
    await written(first, records("r", 1, 2))
    await first.drop(["r"])
    assert await first.owner("r") == Holding("r", None, 1)
    assert await second.claim([Holding("r", None, 0)]) == {}
    assert await second.claim([Holding("r", None, 1)]) == {"r": 2}
    assert await second.append(records("r", 1)) == {}


# Beats


async def _seen(journal: PostgresJournal) -> tuple[Beat, dict[str, bool]]:
    """A beat, and whether each of its members has its session."""
    beat = await journal.beat(f"{journal.id[0]}:1", lease_seconds=LEASE)
    return beat, {member.id[0]: member.has_session for member in beat.members}


async def test_a_beat_says_who_is_there(opened: Opening) -> None:
    first, second = await opened("a"), await opened("b")
    [alone] = (await first.beat("a:1", lease_seconds=LEASE)).members
    assert (alone.id, alone.address, alone.silent_seconds) == (first.id, "a:1", 0.0)
    assert (alone.has_session, alone.drains) == (True, False)
    await second.beat("b:2", lease_seconds=LEASE, drains=True)
    found = (await first.beat("a:3", lease_seconds=LEASE)).members
    assert [(m.id, m.address, m.drains) for m in found] == [
        (first.id, "a:3", False),
        (second.id, "b:2", True),
    ]
    assert 0 <= found[1].silent_seconds < LEASE
    await second.leave()
    assert [m.id for m in (await first.beat("a:3", lease_seconds=LEASE)).members] == [first.id]


async def test_who_dies_loses_its_session_at_once_and_its_runs(opened: Opening) -> None:
    first, second = await opened("a"), await opened("b")
    await written(first, records("r", 1))
    await _seen(first)
    beat, sessions = await _seen(second)
    assert (sessions, beat.left) == ({"a": True, "b": True}, ())
    await first.close()

    async def is_gone() -> bool:
        return (await _seen(second))[1] == {"a": False, "b": True}

    await until(is_gone)
    beat, _ = await _seen(second)
    assert beat.left == (Holding("r", first.id, 1),)
    assert max(m.silent_seconds for m in beat.members) < LEASE
    assert await second.claim(beat.left) == {"r": 2}
    assert (await _seen(second))[0].left == ()


async def test_who_is_silent_for_longer_than_the_lease_loses_its_runs(opened: Opening) -> None:
    first, second = await opened("a"), await opened("b")
    await written(first, records("r", 1))
    await first.beat("a:1", lease_seconds=0.3)
    left: tuple[Holding, ...] = ()
    began = asyncio.get_running_loop().time()
    while not left:
        await asyncio.sleep(0.1)
        left = (await second.beat("b:1", lease_seconds=0.3)).left
    assert left == (Holding("r", first.id, 1),)
    assert asyncio.get_running_loop().time() - began > 0.3
    await second.claim(left)
    beat = await first.beat("a:1", lease_seconds=0.3)  # it is there again
    assert (beat.lost, beat.given, beat.left) == (("r",), (), ())
    while len((await second.beat("b:1", lease_seconds=0.15)).members) == 2:
        await asyncio.sleep(0.01)  # nor is it kept in mind for ever


async def test_runs_of_a_replica_that_is_no_member_are_left(opened: Opening) -> None:
    first, second = await opened("a"), await opened("b")
    await written(first, records("r", 1))
    assert (await _seen(second))[0].left == (Holding("r", first.id, 1),)


async def test_a_beat_says_nothing_of_a_run_that_is_just_being_claimed(
    opened: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else who claims its own run once more, and ends just then, would leave it behind."""
    journal = await opened("a")
    await written(journal, records("r", 1))
    ask, answered, arrives = journal._asks.run, asyncio.Event(), asyncio.Event()

    async def late(work: Any, *more: Any) -> Any:
        answer = await ask(work, *more)
        answered.set()
        await arrives.wait()
        return answer

    monkeypatch.setattr(journal._asks, "run", late)
    wanted = [Holding("r", journal.id, 1), Holding("s", None, 0)]
    claiming = asyncio.create_task(journal.claim(wanted))
    await answered.wait()
    beat, _ = await _seen(journal)
    assert (beat.lost, beat.given, dict(journal.epochs)) == ((), (), {"r": 1})
    arrives.set()
    assert await claiming == {"r": 2, "s": 1}
    beat, _ = await _seen(journal)
    assert (beat.lost, beat.given, dict(journal.epochs)) == ((), (), {"r": 2, "s": 1})


async def test_a_claim_that_nobody_waited_for_is_found_by_the_next_beat(opened: Opening) -> None:
    journal = await opened("a")
    await journal.beat("a:1", lease_seconds=LEASE)
    claiming = asyncio.create_task(journal.claim([Holding("r", None, 0)]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    claiming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claiming
    await journal.read("r")  # after it, on the same connection
    assert (await _seen(journal))[0].given == (Holding("r", journal.id, 1),)


# The time of a run


async def test_the_time_of_a_run_goes_on_where_its_owner_was_heard_of_last(opened: Opening) -> None:
    first, second = await opened("a"), await opened("b")
    first.clock, second.clock = lambda: 100.0, lambda: 7.0
    await written(first, records("r", 1))
    assert first.ahead("r") == 0
    first.clock = lambda: 150.0
    await first.beat("a:1", lease_seconds=LEASE)
    first.clock = lambda: 180.0  # nobody hears of that
    await second.claim([Holding("r", first.id, 1)])
    assert second.ahead("r") == 150 - 7
    second.clock = lambda: 17.0
    await second.claim([Holding("r", second.id, 2)])  # as what it wrote last was in doubt
    assert second.ahead("r") == 150 - 7
    await second.hand_over("r", first.id)
    assert (first.ahead("s"), second.ahead("r")) == (-math.inf, -math.inf)
    await first.claim([Holding("r", first.id, 3)])
    assert first.ahead("r") == 160 - 180
    await first.drop(["r"])
    assert first.ahead("r") == -math.inf
    await second.claim([Holding("r", None, 4)])
    assert second.ahead("r") == 0


async def test_the_time_of_a_run_that_has_nobody_stands_still(opened: Opening) -> None:
    first, second = await opened("a"), await opened("b")
    first.clock = second.clock = lambda: 5.0
    await written(first, [*records("r", 1), *records("s", 1)])
    first.clock = lambda: 8.0
    await first.beat("a:1", lease_seconds=0.15)
    while [member.id for member in (await second.beat("b:1", lease_seconds=0.15)).members] != [
        second.id
    ]:
        await asyncio.sleep(0.01)
    await second.claim([Holding("r", first.id, 1)])
    assert second.ahead("r") == 3
    first.clock = lambda: 9.0
    await first.leave()
    await second.claim([Holding("s", first.id, 1)])
    assert second.ahead("s") == 4


# Room


def forgetting() -> str:
    """The statement of docs/standing.md that removes old rows."""
    text = (Path(__file__).parents[2] / "docs" / "standing.md").read_text(encoding="utf-8")
    (found,) = re.findall(r"DELETE FROM rdzv\.runs [^;]*;", text)
    return str(found)


async def test_old_rows_that_an_operator_removes_are_those_of_no_run_and_weaken_no_fence(
    opened: Opening, postgres: Postgres, dsn: str
) -> None:
    former = await opened("a")
    for run in ("over", "left", "held"):
        assert await written(former, records(run, 1)) == {}
    await former.drop(["over"])
    assert await former.hand_over("left", None)
    former._held["over"] = 1  # what a former process sends late: it knows nothing of the drop
    assert await former.owner("over") == Holding("over", None, 1)
    await postgres.execute(forgetting(), dsn.rpartition("/")[2])
    assert [await former.owner(run) for run in ("over", "left", "held")] == [
        None,
        Holding("left", None, 1),
        Holding("held", former.id, 1),
    ]
    later = await opened("b")
    assert await written(later, records("over", 1)) == {}
    assert later.epochs == {"over": 1}
    refused = await former.append(records("over", 2))
    assert isinstance(refused["over"], Overtaken)
    assert await contents(later) == [*records("left", 1), *records("held", 1), *records("over", 1)]


# Opening


async def test_replicas_that_start_at_once_make_the_tables_once(dsn: str) -> None:
    found = await asyncio.gather(*(PostgresJournal.open(dsn, c * 32) for c in "abcd"))
    assert await written(found[0], records("r", 1)) == {}
    for journal in found:
        assert await contents(journal) == records("r", 1)
        await journal.close()


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        (
            "UPDATE rdzv.journal SET version = 1",
            "has layout 1 of the tables; .* layout 2",
        ),
        ("DROP TABLE rdzv.journal", "is not an rdzv journal"),
        ("ALTER TABLE rdzv.journal RENAME version TO photos", "is not an rdzv journal"),
        ("ALTER ROLE CURRENT_USER IN DATABASE {} SET synchronous_commit TO off", "commit is off"),
    ],
)
async def test_what_is_no_journal_of_this_version_is_refused(
    opened: Opening, postgres: Postgres, dsn: str, statement: str, words: str
) -> None:
    await opened("a")
    database = dsn.rpartition("/")[2]
    await postgres.execute(statement.format(database), database)
    with pytest.raises(UsageError, match=words) as failure:
        await PostgresJournal.open(dsn, "b" * 32)
    assert failure.value.hint


async def test_a_user_needs_only_a_schema_and_is_told_so(postgres: Postgres, dsn: str) -> None:
    database = dsn.rpartition("/")[2]
    await postgres.execute(f"CREATE ROLE {database} LOGIN")
    as_user = postgres.dsn(database, user=database)
    with pytest.raises(UsageError, match="permission denied") as failure:
        await PostgresJournal.open(as_user, "a" * 32)
    assert "CREATE SCHEMA rdzv AUTHORIZATION" in failure.value.hint
    await postgres.execute(f"CREATE SCHEMA rdzv AUTHORIZATION {database}", database)
    for _ in range(2):
        journal = await PostgresJournal.open(as_user, "a" * 32)
        assert await written(journal, []) == {}
        await journal.beat("a:1", lease_seconds=LEASE)
        await journal.close()


# Refused by the server


async def test_a_journal_that_cannot_be_written_says_what_to_do(
    opened: Opening, postgres: Postgres, dsn: str
) -> None:
    journal, database = await opened("a"), dsn.rpartition("/")[2]
    await written(journal, records("r", 1))
    await postgres.execute("ALTER TABLE rdzv.events RENAME TO lost", database)
    [error] = (await journal.append(records("r", 2))).values()
    assert isinstance(error, StorageFull)
    assert error.hint.startswith("the tables were removed: restore them from a backup; ")
    with pytest.raises(UsageError, match="cannot be read"):
        await journal.read("r")
    await postgres.execute("ALTER TABLE rdzv.lost RENAME TO events", database)
    assert await journal.append(records("r", 2)) == {}


async def test_a_server_that_takes_no_changes_is_asked_again_on_a_new_connection(
    opened: Opening, postgres: Postgres, dsn: str
) -> None:
    journal, database = await opened("a"), dsn.rpartition("/")[2]
    await written(journal, records("r", 1))
    await postgres.execute(f"ALTER DATABASE {database} SET default_transaction_read_only TO on")
    await postgres.execute(_END_SESSIONS.format(database))
    await asyncio.sleep(0.05)
    [error] = (await journal.append(records("r", 2))).values()
    assert type(error) is Unavailable
    assert "read-only" in error.message
    await postgres.execute(f"ALTER DATABASE {database} RESET default_transaction_read_only")
    assert await journal.append(records("r", 2)) == {}


_END_SESSIONS = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{}'"


async def test_a_connection_that_has_ended_is_made_again(
    opened: Opening, postgres: Postgres, dsn: str
) -> None:
    journal, database = await opened("a"), dsn.rpartition("/")[2]
    await written(journal, records("r", 1))
    await journal.beat("a:1", lease_seconds=LEASE)
    await postgres.execute(_END_SESSIONS.format(database))
    await asyncio.sleep(0.05)
    assert await journal.append(records("r", 2)) == {}
    assert await journal.read("r") == records("r", 1, 2)
    beat, sessions = await _seen(journal)
    assert (sessions, beat.given, beat.lost) == ({"a": True}, (), ())


# Tenants


async def test_what_tenants_use_goes_with_the_beat_and_a_change_of_them_shows_in_it(
    opened: Opening,
) -> None:
    first, second = await opened("a"), await opened("b")
    usage = {"team": Usage(runs=2, nodes=16, creates=3, frees_seconds=12.5)}
    await first.beat("a:1", lease_seconds=LEASE, usage=usage)
    before = await second.beat("b:1", lease_seconds=LEASE)
    assert {member.id[0]: member.usage for member in before.members} == {"a": usage, "b": {}}
    assert (await second.beat("b:1", lease_seconds=LEASE)).tenants == before.tenants
    await first.put_tenant(Tenant(name="team", prefix="team-", sha256="a" * 64))
    put = await second.beat("b:1", lease_seconds=LEASE)
    assert [tenant.name for tenant in await second.tenants()] == ["team"]
    await first.remove_tenant("team")
    removed = await second.beat("b:1", lease_seconds=LEASE)
    assert len({before.tenants, put.tenants, removed.tenants}) == 3


async def test_a_commit_that_changes_nothing_leaves_nothing_behind(opened: Opening) -> None:
    journal = await opened("a")
    await written(journal, records("r", 1))
    await journal.probe()
    assert not journal.commits.has_failed
    with pytest.raises(ZeroDivisionError), journal.commits.one():
        raise ZeroDivisionError
    assert journal.commits.has_failed  # now it takes room, as an event would
    await journal.probe()
    assert not journal.commits.has_failed
    assert await contents(journal) == records("r", 1)
    assert await journal.runs() == ["r"]


async def test_what_is_refused_of_one_run_says_nothing_of_the_database(opened: Opening) -> None:
    journal = await opened("a")
    await written(journal, records("r", 1))
    assert (await written(journal, records("r", 1))) == {"r": StorageFull}
    assert not journal.commits.has_failed


async def test_why_nothing_is_committed_names_no_file_of_the_server(
    opened: Opening, dsn: str
) -> None:
    journal = await opened("a")
    await written(journal, records("r", 1))
    connection = await asyncpg.connect(dsn)
    reasons = {"53100": "its disk is full", "58030": "it answers with SQLSTATE 58030"}
    for code, reason in reasons.items():
        await connection.execute(FAILING.format(code))
        with pytest.raises(ZeroDivisionError), journal.commits.one():
            raise ZeroDivisionError  # what follows needs room
        with pytest.raises(StorageFull, match="base/16384"):
            await journal.probe()
        assert journal.commits.reason == reason
    await connection.execute("DROP TRIGGER fails ON rdzv.events")
    await connection.close()
    await journal.probe()
    assert journal.commits.reason == ""


FAILING = """
CREATE OR REPLACE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  RAISE EXCEPTION 'could not extend file "base/16384/2"' USING ERRCODE = '{}'; END $$;
CREATE OR REPLACE TRIGGER fails BEFORE INSERT ON rdzv.events FOR EACH ROW EXECUTE FUNCTION fails();
"""
