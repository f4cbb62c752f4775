"""What becomes of events while servers are killed, standbys are away and answers are lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping

import pytest

from rendezvous.compat import timeout
from rendezvous.registry import postgres_line
from rendezvous.registry.postgres_journal import PostgresJournal
from rendezvous.registry.shared_journal import Holding, InDoubt
from rendezvous.wire.errors import RegistryError, Unavailable
from tests.support.journals import records, written
from tests.support.postgres import Postgres, Wire, one_primary

LEASE = 3.0
ME, OTHER = "a" * 32, "b" * 32


pytestmark = pytest.mark.faults


@pytest.fixture
def alone() -> Iterator[Postgres]:
    """A server that a test may kill."""
    with one_primary() as made:
        yield made


@pytest.fixture
async def pair(alone: Postgres) -> Postgres:
    """A primary that waits for its standby."""
    alone.standby("one")
    await alone.wait_for_one_of("one", "two")
    return alone


async def opened(dsn: str, id: str = ME) -> PostgresJournal:  # noqa: A002
    """With a run `r` of one event, where there is none."""
    journal = await PostgresJournal.open(dsn, id)
    if await journal.owner("r") is None:
        assert await written(journal, records("r", 1)) == {}
    return journal


async def claimed_again(journal: PostgresJournal) -> list[int]:
    """Claim the run as it is, as soon as that can be done; the numbers that are there."""
    async with timeout(30):
        while True:
            try:
                held = await journal.owner("r")
                assert held is not None
                # Not, where a claim that was given up has come to its end meanwhile.
                if await journal.claim([held]) == {"r": held.epoch + 1}:
                    return [record.number for record in await journal.read("r")]
            except Unavailable:
                await asyncio.sleep(0.05)


def kinds(refused: Mapping[str, RegistryError]) -> list[type[RegistryError]]:
    return [type(error) for error in refused.values()]


async def is_waiting(postgres: Postgres) -> bool:
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    return bool(await postgres.execute(query))


async def until_it_waits(postgres: Postgres) -> None:
    async with timeout(20):
        while not await is_waiting(postgres):
            await asyncio.sleep(0.01)


async def append_until_refused(
    journal: PostgresJournal, kept: list[int]
) -> list[type[RegistryError]]:
    while True:
        refused = await journal.append(records("r", kept[-1] + 1))
        if refused:
            return kinds(refused)
        kept.append(kept[-1] + 1)


ENDS: dict[str, Callable[[Postgres], None]] = {
    "killed": Postgres.kill,
    "stopped at once": lambda server: server.stop("immediate"),
    "stopped": Postgres.stop,
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
async def test_nothing_acknowledged_is_lost_with_a_server_that_ends(
    alone: Postgres, end: Callable[[Postgres], None]
) -> None:
    journal, kept = await opened(alone.dsn()), [1]
    appending = asyncio.create_task(append_until_refused(journal, kept))
    while len(kept) < 20:
        await asyncio.sleep(0.001)
    await asyncio.to_thread(end, alone)
    assert await appending in ([InDoubt], [Unavailable])
    assert kinds(await journal.append(records("r", 999))) in ([InDoubt], [Unavailable])
    await asyncio.to_thread(alone.start)
    found = await claimed_again(journal)
    assert found in (kept, [*kept, kept[-1] + 1])
    assert await journal.append(records("r", found[-1] + 1)) == {}
    await journal.close()


async def test_what_was_not_sent_is_not_in_doubt(alone: Postgres) -> None:
    journal = await opened(alone.dsn())
    alone.stop()
    await asyncio.sleep(0.05)  # it sees that the connection has ended
    for _ in range(2):
        assert kinds(await journal.append(records("r", 2))) == [Unavailable]
    alone.start()
    assert await journal.append(records("r", 2)) == {}
    await journal.close()


async def test_a_lost_answer_leaves_in_doubt_what_is_there(alone: Postgres) -> None:
    async with Wire(alone.port) as wire:
        journal = await opened(alone.dsn(port=wire.port))
        wire.swallows = True
        appending = asyncio.create_task(journal.append(records("r", 2)))
        await wire.swallowed.wait()
        await asyncio.sleep(0.2)  # the commit comes after the first of the answer
        wire.cut()
        assert kinds(await appending) == [InDoubt]
        wire.swallows = False
        assert kinds(await journal.append(records("r", 2))) == [InDoubt]
        assert await claimed_again(journal) == [1, 2]
        assert await journal.append(records("r", 3)) == {}
        await journal.close()


async def test_a_lost_answer_to_a_claim_is_found_again(alone: Postgres) -> None:
    async with Wire(alone.port) as wire:
        journal = await PostgresJournal.open(alone.dsn(port=wire.port), ME)
        assert await journal.claim([Holding("q", None, 0)]) == {"q": 1}
        wire.swallows = True
        claiming = asyncio.create_task(journal.claim([Holding("r", None, 0)]))
        await wire.swallowed.wait()
        wire.cut()
        with pytest.raises(Unavailable):
            await claiming
        wire.swallows = False
        beat = await journal.beat("a:1", lease_seconds=LEASE)
        assert (beat.given, beat.lost) == ((Holding("r", ME, 1),), ())
        await journal.close()


async def test_a_server_that_stands_still_is_given_up(
    alone: Postgres, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    journal = await opened(alone.dsn())
    await journal.beat("a:1", lease_seconds=LEASE)
    monkeypatch.setattr(postgres_line, "LIMIT_SECONDS", 0.3)
    monkeypatch.setattr("rendezvous.registry.postgres_trouble.CONNECT_SECONDS", 0.3)
    alone.pause()
    try:
        assert kinds(await journal.append(records("r", 2))) == [InDoubt]
        with pytest.raises(Unavailable, match=r"did not answer within 1\.5 s"):
            await journal.beat("a:1", lease_seconds=LEASE)
        with pytest.raises(Unavailable, match="cannot be reached"):
            await journal.beat("a:1", lease_seconds=LEASE)
        assert "no answer within 0.3 s" in caplog.text
    finally:
        alone.resume()
    assert await claimed_again(journal) in ([1], [1, 2])
    await journal.close()


# A standby


async def test_while_the_standby_is_away_events_wait_and_beats_do_not(pair: Postgres) -> None:
    journal = await opened(pair.dsn())
    pair.standbys[0].stop()
    appending = asyncio.create_task(journal.append(records("r", 2)))
    await until_it_waits(pair)
    for _ in range(3):
        async with timeout(2):
            beat = await journal.beat("a:1", lease_seconds=LEASE)
        assert [member.id for member in beat.members] == [ME]
    assert not appending.done()
    pair.standbys[0].start()
    assert await appending == {}
    assert [record.number for record in await journal.read("r")] == [1, 2]
    await journal.close()


async def test_a_wait_that_the_server_gave_up_is_no_acknowledgement(pair: Postgres) -> None:
    journal = await opened(pair.dsn())
    pair.standbys[0].stop()
    appending = asyncio.create_task(journal.append(records("r", 2)))
    await until_it_waits(pair)
    await pair.execute(
        "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    )
    refused = await appending
    assert kinds(refused) == [InDoubt]
    assert "stop waiting for its standby" in refused["r"].message
    pair.standbys[0].start()
    assert await claimed_again(journal) == [1, 2]
    await journal.close()


async def test_a_run_is_not_claimed_before_the_standby_has_its_events(
    pair: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await opened(pair.dsn()), await opened(pair.dsn(), OTHER)
    pair.standbys[0].stop()
    monkeypatch.setattr(postgres_line, "LIMIT_SECONDS", 0.5)
    assert kinds(await first.append(records("r", 2))) == [InDoubt]
    with pytest.raises(Unavailable):
        await second.claim([Holding("r", ME, 1)])
    monkeypatch.undo()
    claiming = asyncio.create_task(claimed_again(second))
    await asyncio.sleep(0.3)
    assert not claiming.done()
    pair.standbys[0].start()
    assert await claiming == [1, 2]
    assert kinds(await first.append(records("r", 3))) == [InDoubt]
    await first.close()
    await second.close()


async def test_sessions_that_wait_for_a_standby_do_not_pile_up(
    pair: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = await opened(pair.dsn())
    pair.standbys[0].stop()
    monkeypatch.setattr(postgres_line, "LIMIT_SECONDS", 0.2)
    for run in ("s", "t", "u"):
        while not await pair.execute(f"SELECT epoch FROM rdzv.runs WHERE run = '{run}'"):
            with pytest.raises(InDoubt):  # also of one that a busy server has not begun with
                await journal.claim([Holding(run, None, 0)])
            async with timeout(10):
                while await is_waiting(pair):
                    await asyncio.sleep(0.01)
    monkeypatch.undo()
    pair.standbys[0].start()
    beat = await journal.beat("a:1", lease_seconds=LEASE)
    assert await journal.claim(beat.given) == {"s": 2, "t": 2, "u": 2}
    await journal.close()


async def test_a_standby_takes_the_place_of_a_primary_that_dies(pair: Postgres) -> None:
    [standby] = pair.standbys
    both = pair.dsn().replace("@", f"@127.0.0.1:{standby.port},")
    first, second = await opened(both), await opened(both, OTHER)
    for journal in (first, second):
        await journal.beat("x:1", lease_seconds=LEASE)
    kept = [1]
    appending = asyncio.create_task(append_until_refused(first, kept))
    while len(kept) < 20:
        await asyncio.sleep(0.001)
    pair.kill()
    assert await appending in ([InDoubt], [Unavailable])
    with pytest.raises(Unavailable):
        await second.beat("b:1", lease_seconds=LEASE)
    standby.promote()
    beat = await second.beat("b:1", lease_seconds=LEASE)
    assert beat.left == ()  # the session of the other one has ended with the primary
    assert {member.id: member.has_session for member in beat.members} == {ME: True, OTHER: True}
    pair.seed("two", standby)  # before that nothing is acknowledged
    found = await claimed_again(first)
    assert found in (kept, [*kept, kept[-1] + 1])
    assert await first.append(records("r", found[-1] + 1)) == {}
    await first.close()
    await second.close()


@pytest.fixture(autouse=True)
async def nothing_goes_on() -> AsyncIterator[None]:
    """No task of a journal is left when a test ends."""
    before = asyncio.all_tasks()
    yield
    assert not asyncio.all_tasks() - before - {asyncio.current_task()}
