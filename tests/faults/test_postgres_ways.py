"""The ways to a database: TLS with an authority of the operator's."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rendezvous.server.postgres_journal import PostgresJournal
from rendezvous.server.shared_journal import Away
from rendezvous.wire.errors import UsageError
from tests.support.journals import contents, records, written
from tests.support.postgres import Postgres, one_primary

LEASE = 3.0
ME = "a" * 32


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
