"""The ways to a database: TLS with an authority of the operator's, and poolers."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from rendezvous.compat import timeout
from rendezvous.registry import postgres_line
from rendezvous.registry.postgres_journal import PostgresJournal
from rendezvous.registry.shared_journal import Away, Holding, InDoubt, Overtaken
from rendezvous.wire.errors import UsageError
from tests.support.journals import contents, records, written
from tests.support.poolers import Mode, pooler
from tests.support.postgres import Postgres, one_primary

LEASE = 3.0
ME, OTHER = "a" * 32, "b" * 32


pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def alone() -> Iterator[Postgres]:
    with one_primary() as made:
        yield made


# TLS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two authorities, and what the first one has signed for 127.0.0.1."""
    made = tmp_path_factory.mktemp("tls")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    for name in ("ca", "other"):
        openssl(made, "req", "-x509", *key, "-keyout", f"{name}.key", "-out", f"{name}.crt",
                "-subj", f"/CN={name}", "-days", "2")  # fmt: skip
    openssl(made, "req", *key, "-keyout", "db.key", "-out", "db.csr", "-subj", "/CN=db")
    (made / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    openssl(made, "x509", "-req", "-in", "db.csr", "-CA", "ca.crt", "-CAkey", "ca.key",
            "-CAcreateserial", "-out", "db.crt", "-days", "2", "-extfile", "names")  # fmt: skip
    return made


def openssl(folder: Path, *words: str) -> None:
    done = subprocess.run(["openssl", *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


async def test_a_server_without_tls_is_named_where_tls_is_asked_for(alone: Postgres) -> None:
    with pytest.raises(Away, match="rejected SSL upgrade") as failure:
        await PostgresJournal.open(f"{alone.dsn()}?sslmode=require", ME)
    assert "with ssl = on" in failure.value.hint


async def test_a_journal_is_kept_over_verified_tls(
    alone: Postgres, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await alone.speak_tls(folder / "db.crt", folder / "db.key")
    dsn = f"{alone.dsn(await alone.new_database())}?sslmode=verify-full"
    journal = await PostgresJournal.open(f"{dsn}&sslrootcert={folder}/ca.crt", ME)
    assert await written(journal, records("r", 1)) == {}
    await journal.beat("a:1", lease_seconds=LEASE)
    sessions = "SELECT bool_and(s.ssl) FROM pg_stat_ssl s JOIN pg_stat_activity USING (pid)"
    assert await alone.execute(f"{sessions} WHERE application_name = 'rdzv'") is True
    assert await contents(journal) == records("r", 1)
    await journal.close()
    monkeypatch.setenv("PGSSLROOTCERT", str(folder / "ca.crt"))
    await (await PostgresJournal.open(dsn, ME)).close()


REFUSED = "its certificate is not accepted"
FAILURES = {
    "another authority": (
        "127.0.0.1",
        "sslmode=verify-full&sslrootcert={0}/other.crt",
        f"{REFUSED}: unable to get local issuer certificate",
        "the authority that signed the server's",
    ),
    "another name": (
        "localhost",
        "sslmode=verify-full&sslrootcert={0}/ca.crt",
        f"{REFUSED}: Hostname mismatch, certificate is not valid for 'localhost'.",
        "that one must have the host's name",
    ),
    "no such file": (
        "127.0.0.1",
        "sslmode=verify-full&sslrootcert={0}/nosuch.crt",
        "the file of sslrootcert cannot be read: No such file or directory",
        "sslrootcert=FILE",
    ),
    "not a certificate": (
        "127.0.0.1",
        "sslmode=verify-full&sslrootcert={0}/names",
        "TLS fails: NO_CERTIFICATE_OR_CRL_FOUND",
        "sslrootcert=FILE",
    ),
    "no authority": (
        "127.0.0.1",
        "sslmode=verify-full",
        "sslmode=verify-full verifies the server's certificate, and no sslrootcert is given",
        "or PGSSLROOTCERT",
    ),
}


@pytest.mark.parametrize("case", FAILURES)
async def test_what_is_wrong_with_tls_is_named_with_what_to_do(
    alone: Postgres, folder: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.setenv("HOME", str(folder))  # where no ~/.postgresql is
    await alone.speak_tls(folder / "db.crt", folder / "db.key")
    host, options, words, hint = FAILURES[case]
    dsn = f"{alone.dsn().replace('127.0.0.1', host)}?{options.format(folder)}"
    with pytest.raises(UsageError) as failure:
        await PostgresJournal.open(dsn, ME)
    assert not isinstance(failure.value, Away)
    assert failure.value.message.endswith(f"cannot be reached: {words}")
    assert hint in failure.value.hint


# Poolers


async def test_replicas_live_by_their_sessions_behind_a_pooler_of_sessions(
    alone: Postgres,
) -> None:
    database = await alone.new_database()
    with pooler(alone, "session") as port:
        first = await PostgresJournal.open(alone.dsn(database, port=port), ME)
        second = await PostgresJournal.open(alone.dsn(database, port=port), OTHER)
        assert await written(first, records("r", 1, 2)) == {}
        await first.beat("a:1", lease_seconds=LEASE)
        assert await sessions_of(second) == {ME: True, OTHER: True}
        own = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'rdzv'"
        settings = await first._asks.run(lambda one: one.fetchval("SHOW lock_timeout"))
        assert (settings, await alone.execute(own)) == ("8s", 5)
        await first._beats.line.close()  # as where its process has ended
        async with timeout(2):
            while (await sessions_of(second))[ME]:
                await asyncio.sleep(0.05)
        assert await second.claim([Holding("r", ME, 1)]) == {"r": 2}
        assert await contents(second) == records("r", 1, 2)
        assert isinstance((await first.append(records("r", 3)))["r"], Overtaken)
        await first.close()
        await second.close()


async def sessions_of(journal: PostgresJournal) -> dict[str, bool]:
    members = (await journal.beat("b:1", lease_seconds=LEASE)).members
    return {member.id: member.has_session for member in members}


async def test_sessions_that_wait_for_a_standby_do_not_pile_up_behind_a_pooler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pooler makes up the number of the process by which such a session is ended."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    with one_primary() as primary:
        standby = primary.standby("one")
        await primary.wait_for_one_of("one")
        with pooler(primary, "session") as port:
            journal = await PostgresJournal.open(primary.dsn(port=port), ME)
            standby.stop()
            monkeypatch.setattr(postgres_line, "LIMIT_SECONDS", 0.2)
            with pytest.raises(InDoubt):
                await journal.claim([Holding("r", None, 0)])
            async with timeout(10):
                while await primary.execute(waiting):
                    await asyncio.sleep(0.01)
            monkeypatch.undo()
            standby.start()
            await journal.close()


@pytest.mark.parametrize("mode", ["transaction", "statement"])
async def test_a_pooler_that_does_not_keep_sessions_is_refused(alone: Postgres, mode: Mode) -> None:
    database = await alone.new_database()
    with pooler(alone, mode) as port:
        with pytest.raises(UsageError, match="gives its sessions to transactions") as failure:
            await PostgresJournal.open(alone.dsn(database, port=port), ME)
        assert not isinstance(failure.value, Away)
        assert "pool_mode = session" in failure.value.hint
    assert await alone.execute("SELECT to_regnamespace('rdzv') IS NULL", database)


async def test_it_is_refused_as_well_while_others_use_its_sessions(alone: Postgres) -> None:
    database = await alone.new_database()
    with pooler(alone, "transaction") as port:
        dsn = alone.dsn(database, port=port)
        others = [asyncio.create_task(use(dsn)) for _ in range(6)]
        await asyncio.sleep(0.2)
        for _ in range(5):
            with pytest.raises(UsageError, match="gives its sessions to transactions") as failure:
                await PostgresJournal.open(dsn, ME)
            assert "pool_mode = session" in failure.value.hint
        for task in others:
            task.cancel()
        for done in await asyncio.gather(*others, return_exceptions=True):
            assert isinstance(done, asyncio.CancelledError), done


async def use(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        while True:
            await connection.execute("SELECT pg_sleep(0.001)")
    finally:
        connection.terminate()
