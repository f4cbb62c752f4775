"""Where a database is, in words that have no part of its password; and hosts that do not answer."""

from __future__ import annotations

import logging
import socket
import traceback
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import pytest

from rendezvous.registry import postgres_trouble
from rendezvous.registry.postgres_journal import PostgresJournal
from rendezvous.registry.postgres_line import Line
from rendezvous.registry.postgres_place import Place, without_password
from rendezvous.registry.shared_journal import Away
from rendezvous.wire.errors import Unavailable, UsageError
from tests.support.postgres import GUARDED, PASSWORD, Postgres

SECRET = "canary-of-the-journal"
ME = "ab" * 16


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        (f"postgresql://me:{SECRET}@h/db", "postgresql://me@h/db"),
        (f"postgres://me:{SECRET}@h1:5432,h2:5433/db?x=y", "postgresql://me@h1:5432,h2:5433/db"),
        (f"postgresql://me:{SECRET}@[::1]:5432/db", "postgresql://me@[::1]:5432/db"),
        (f"postgresql://h/db?user=me&password={SECRET}", "postgresql://h/db"),
        ("postgresql:///db?host=/run/pg", "postgresql:///db"),
        (f"postgresql://me:{SECRET}@%2Frun%2Fpg/db", "postgresql://me@%2Frun%2Fpg/db"),
        ("postgresql://me@h", "postgresql://me@h"),
        (f"postgresql://me:a@{SECRET}@h/db", "postgresql://me@h/db"),
        (f"postgresql://me:1/{SECRET}@h/db", "postgresql://..."),
        (f"postgresql://me:1?{SECRET}@h/db", "postgresql://..."),
        (f"postgresql://me:1#{SECRET}@h/db", "postgresql://..."),
        (f"postgresql://me:{SECRET}/2@h/db", "postgresql://..."),
        (f"postgresql://me:[{SECRET}@h/db", "postgresql://..."),
        (f"postgresql://me:{SECRET}", "postgresql://..."),
    ],
)
async def test_no_word_about_a_database_has_a_part_of_its_password(dsn: str, shown: str) -> None:
    assert without_password(dsn) == shown
    assert SECRET not in shown
    if "[c" not in dsn:  # that is no URL at all
        assert repr(Place(dsn)) == f"Place({shown})"


@pytest.mark.parametrize("dsn", ["", "host=h password=" + SECRET, f"mysql://me:{SECRET}@h/db"])
async def test_an_address_of_another_kind_is_refused(dsn: str) -> None:
    with pytest.raises(UsageError, match="not a PostgreSQL URL") as failure:
        await PostgresJournal.open(dsn, ME)
    assert SECRET not in "".join(traceback.format_exception(failure.value))


CASES = {
    "nobody listens": ("postgresql://me:{0}@127.0.0.1:1/db", "check the host and the port"),
    "one of two": ("postgresql://rdzv:{0}@127.0.0.1:1,{1}/nosuch", "create the database"),
    "no such host": ("postgresql://me:{0}@nosuch.invalid/db", "check the host and the port"),
    "wrong password": (f"postgresql://{GUARDED}:{{0}}@{{1}}/postgres", "check the user and the"),
    "no such database": ("postgresql://rdzv:{0}@{1}/nosuch", "create the database"),
    "not a port": ("postgresql://me:{0}@127.0.0.1:{0}/db", "write it as postgresql://USER"),
    "password with @ and :": ("postgresql://me:1@a:{0}@127.0.0.1/db", "write it as|check the host"),
    "password with /": ("postgresql://me:{0}/{0}@127.0.0.1/db", "write it as postgresql://USER"),
    "odd option": ("postgresql://me:{0}@127.0.0.1:1/db?sslmode={0}", "write it as postgresql://"),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_database_that_cannot_be_reached_is_said_with_what_to_do_and_no_password(
    postgres: Postgres, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    dsn, hint = CASES[case]
    await postgres.execute(_GUARDED)
    with pytest.raises(UsageError) as failure:
        await PostgresJournal.open(dsn.format(SECRET, f"127.0.0.1:{postgres.port}"), ME)
    assert any(words in failure.value.hint for words in hint.split("|"))
    assert isinstance(failure.value, Away) is ("check the host" in failure.value.hint)
    told = "".join(traceback.format_exception(failure.value)) + caplog.text + repr(failure.value)
    assert SECRET not in told


_GUARDED = f"""DO $$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{GUARDED}') THEN
    CREATE ROLE {GUARDED} LOGIN SUPERUSER PASSWORD '{PASSWORD}'; END IF; END $$"""


async def test_a_right_password_of_any_characters_opens_it(postgres: Postgres, dsn: str) -> None:
    await postgres.execute(_GUARDED)
    user = f"{GUARDED}:{quote(PASSWORD, safe='')}"
    journal = await PostgresJournal.open(dsn.replace("rdzv@", f"{user}@"), ME)
    assert await journal.runs() == []
    await journal.close()


async def test_once_it_is_open_only_the_log_says_where_it_is_without_the_password(
    postgres: Postgres, dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    journal = await PostgresJournal.open(dsn.replace("rdzv@", f"rdzv:{SECRET}@"), ME)
    database = dsn.rpartition("/")[2]
    await postgres.execute(f"DROP DATABASE {database} WITH (FORCE)")
    for _ in range(2):
        with pytest.raises(Unavailable) as failure:
            await journal.owner("r")
        told = "".join(traceback.format_exception(failure.value))
        assert SECRET not in told
        assert "127.0.0.1" not in failure.value.message
        assert failure.value.message == "the journal of this registry cannot be reached"
    (line,) = [record.getMessage() for record in caplog.records]  # once for the same cause
    assert f'database "{database}" does not exist' in line
    assert SECRET not in line
    await journal.close()


async def test_asyncpg_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rendezvous.registry.postgres_journal.asyncpg", None)
    with pytest.raises(UsageError) as failure:
        await PostgresJournal.open("postgresql://h/db", ME)
    assert failure.value.hint == "pip install 'rdzv[postgres]'"


async def test_a_host_that_is_silent_does_not_keep_the_next_one_from_being_asked(
    postgres: Postgres, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_trouble, "CONNECT_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.setblocking(False)
        port = silent.getsockname()[1]
        journal = None
        while journal is None:
            with suppress(Away):  # the server was late
                journal = await PostgresJournal.open(dsn.replace("@", f"@127.0.0.1:{port},"), ME)
            silent.accept()[0].close()
        await journal.beat("me:1", lease_seconds=3.0)
        with pytest.raises(BlockingIOError):  # the next one begins with the host that answered
            silent.accept()
        await journal.close()
        with pytest.raises(Away, match=r"no answer within 0\.3 s"):
            await PostgresJournal.open(f"postgresql://127.0.0.1:{port}/db", ME)


async def test_a_standby_is_passed_over_for_the_primary(postgres: Postgres, dsn: str) -> None:
    standby = postgres.standby("passed")
    try:
        hosts = f"@127.0.0.1:{standby.port},"
        journal = await PostgresJournal.open(dsn.replace("@", hosts), ME)
        assert await journal.runs() == []
        await journal.close()
        with pytest.raises(Away, match="the server is a standby") as failure:
            await PostgresJournal.open(standby.dsn(), ME)
        assert "one must be the primary" in failure.value.hint
    finally:
        postgres.standbys.remove(standby)
        standby.remove()


async def test_a_server_that_is_cut_off_is_noticed_within_seconds(dsn: str) -> None:
    async def look(connection: Any) -> list[int]:
        made = connection._transport.get_extra_info("socket")  # as rdzv itself has it from asyncpg
        own = (_ALIVE, (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
        servers = [int(await connection.fetchval(f"SHOW {name}")) for name in _SERVERS]
        return [*(made.getsockopt(*of) for of in own), *servers]

    line = Line(Place(dsn))
    assert await line.run(look) == [1, 3_000, 3_000, 1, 0]
    await line.close()


_ALIVE = (socket.SOL_SOCKET, socket.SO_KEEPALIVE)
_SERVERS = ("tcp_user_timeout", "tcp_keepalives_idle", "statement_timeout")


async def test_a_server_is_found_by_its_socket(postgres: Postgres, dsn: str) -> None:
    database = dsn.rpartition("/")[2]
    place = f"postgresql://rdzv@/{database}?host={postgres.folder}&port={postgres.port}"
    journal = await PostgresJournal.open(place, ME)
    assert await journal.runs() == []
    await journal.close()
