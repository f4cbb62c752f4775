"""Where events are kept: in memory, or in SQLite with grouped commits.

A journal keeps bytes in one order for each run. `append` returns when the records are durable, and
not before; the caller puts many records into one call, so that they share one commit.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rendezvous.errors import StorageFull, UsageError

_SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Record:
    """One event of one run: `number` counts from 1 in each run, `at` is seconds of its clock."""

    run: str
    number: int
    at: float
    body: bytes


class Journal(Protocol):
    """What the service needs of a journal."""

    async def append(self, records: list[Record]) -> None:
        """Make the records durable, all or none; raises StorageFull."""

    def read(self) -> Iterator[Record]:
        """Every record, in the order in which it was appended."""

    async def drop(self, run: str) -> None:
        """Remove a run's records; raises StorageFull."""

    async def close(self) -> None:
        """Let go of files and threads."""


class MemoryJournal:
    """Keeps records as long as the process lives."""

    def __init__(self) -> None:
        self._records: list[Record] = []

    async def append(self, records: list[Record]) -> None:
        """See the protocol."""
        self._records.extend(records)

    def read(self) -> Iterator[Record]:
        """See the protocol."""
        yield from self._records

    async def drop(self, run: str) -> None:
        """See the protocol."""
        self._records = [record for record in self._records if record.run != run]

    async def close(self) -> None:
        """See the protocol."""


class SqliteJournal:
    """A file that survives the registry: WAL mode, one fsync for each append.

    All work is done in one thread of its own, so that a slow disk does not stop the event loop.

    Raises:
        UsageError: The file cannot be opened or is no journal of this version.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._connection = self._thread.submit(_open, path).result()

    async def append(self, records: list[Record]) -> None:
        """See the protocol."""
        await self._run(_insert, records)

    def read(self) -> Iterator[Record]:
        """See the protocol."""
        yield from self._thread.submit(_select, self._connection).result()

    async def drop(self, run: str) -> None:
        """See the protocol."""
        await self._run(_delete, run)

    async def close(self) -> None:
        """See the protocol."""
        self._thread.submit(self._connection.close).result()
        self._thread.shutdown()

    async def _run(self, function, argument) -> None:  # type: ignore[no-untyped-def]
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._thread, function, self._connection, argument)
        except sqlite3.Error as exc:
            raise StorageFull(
                f"the journal {self._path} could not be written: {exc}",
                hint="free space on that disk; the registry keeps serving what it has",
            ) from exc


def read_journal(path: Path) -> list[Record]:
    """The records of a journal file, opened read-only; raises UsageError."""
    if not path.is_file():
        raise UsageError(f"there is no journal at {path}")
    connection = _open(path, readonly=True)
    try:
        return _select(connection)
    finally:
        connection.close()


def _open(path: Path, *, readonly: bool = False) -> sqlite3.Connection:
    try:
        if readonly:
            connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        else:
            path.touch(mode=0o600)
            connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS events (id INTEGER PRIMARY KEY, run TEXT NOT NULL,"
                " number INTEGER NOT NULL, at REAL NOT NULL, body BLOB NOT NULL,"
                " UNIQUE (run, number))"
            )
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version == 0 and not readonly:
            connection.execute(f"PRAGMA user_version={_SCHEMA_VERSION}")
        elif version != _SCHEMA_VERSION:
            raise UsageError(
                f"{path} has journal version {version}; this rdzv reads version {_SCHEMA_VERSION}"
            )
    except (sqlite3.Error, OSError) as exc:
        raise UsageError(f"the journal {path} cannot be opened: {exc}") from exc
    return connection


def _insert(connection: sqlite3.Connection, records: list[Record]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.executemany(
            "INSERT INTO events (run, number, at, body) VALUES (?, ?, ?, ?)",
            [(record.run, record.number, record.at, record.body) for record in records],
        )
        connection.execute("COMMIT")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _select(connection: sqlite3.Connection) -> list[Record]:
    rows = connection.execute("SELECT run, number, at, body FROM events ORDER BY id")
    return [Record(*row) for row in rows]


def _delete(connection: sqlite3.Connection, run: str) -> None:
    connection.execute("DELETE FROM events WHERE run = ?", (run,))
