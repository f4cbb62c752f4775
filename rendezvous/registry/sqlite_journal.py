"""The journal of one registry on its own machine: an SQLite file, with grouped commits."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import sqlite3
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from rendezvous.registry.journal import JOURNAL, Record, by_run, load_tenants
from rendezvous.registry.quotas import refuse_clash
from rendezvous.wire.errors import RegistryError, StorageFull, UsageError
from rendezvous.wire.tenant import Tenant

DISK_FULL = "database or disk is full"
"""SQLite's words for SQLITE_FULL: Python 3.10 does not have the code."""
_RESERVE_BYTES = 2 << 20
_TRIED_BYTES = 1 << 16
_MOST_COMPACTED = 32 << 20
"""Bytes: a larger journal, of many runs, would hold up the end of its registry."""
_SIZE = ("page_count", "page_size")
_CACHE_KIB = 256  # of 2 MB, SQLite's default, the reserve alone fills all; records go to the end
_CHECKPOINT_PAGES = 400  # fewer than the reserve holds: the log begins anew before it is full

A = TypeVar("A")
T = TypeVar("T")


class SqliteJournal:
    """A file that survives the registry: WAL mode, one fsync for each append; raises UsageError.

    All work is done in one thread of its own, so that a slow disk does not stop the event loop.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = _open(path)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")

    async def append(self, records: list[Record]) -> Mapping[str, RegistryError]:
        """See the protocol: all of it at once, and where that fails run by run."""
        error = await self._written(records)
        runs = by_run(records)
        if (
            error is None
            or len(runs) == 1
            or not isinstance(error.__cause__, sqlite3.IntegrityError)
        ):
            return {} if error is None else dict.fromkeys(runs, error)
        found = {run: await self._written(some) for run, some in runs.items()}
        return {run: error for run, error in found.items() if error is not None}

    async def _written(self, records: list[Record]) -> StorageFull | None:
        try:
            await self._run(_insert, records)
        except StorageFull as exc:
            return exc
        return None

    async def runs(self) -> list[str]:
        return await self._read(_names, None)

    async def read(self, run: str) -> list[Record]:
        return await self._read(_select, run)

    async def drop(self, runs: Sequence[str]) -> None:
        for run in runs:  # one after the other, so that what is appended meanwhile waits for one
            await self._run(_delete, run)

    async def tenants(self) -> list[Tenant]:
        return load_tenants(await self._read(_select_tenants, None))

    async def put_tenant(self, tenant: Tenant) -> None:
        await self._run(_put_tenant, tenant)

    async def remove_tenant(self, name: str) -> bool:
        return await self._run(_delete_tenant, name)

    async def close(self) -> None:
        self._thread.submit(_close, self._connection).result()
        self._thread.shutdown()

    async def _read(self, work: Callable[[sqlite3.Connection, A], T], argument: A) -> T:
        try:
            return await self._run(work, argument)
        except StorageFull as exc:
            raise UsageError(f"the journal {self._path} cannot be read: {exc.__cause__}") from exc

    async def _run(self, work: Callable[[sqlite3.Connection, A], T], argument: A) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, work, self._connection, argument)
        except sqlite3.IntegrityError as exc:
            raise StorageFull(
                f"another registry writes the journal {self._path} ({exc})",
                hint="end one of the two; each registry needs its own journal",
            ) from exc
        except sqlite3.Error as exc:
            raise StorageFull(
                f"the journal {self._path} could not be written: {exc}",
                hint=f"{self._cure(exc)}; the registry keeps serving what it has",
            ) from exc

    def _cure(self, exc: sqlite3.Error) -> str:
        if str(exc) == DISK_FULL:
            return "free space on that disk"
        if (number := _refusal_of(self._path.parent)) in (errno.EDQUOT, errno.ENOSPC):
            return f"{os.strerror(number)} there: free space, or ask for a larger quota"
        limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
        files = filter(os.path.exists, (self._path, _log_of(self._path)))
        largest = max((path.stat().st_size for path in files), default=0)
        # SQLite takes what goes beyond the limit for an error of the disk.
        if limit != resource.RLIM_INFINITY and limit < largest + _RESERVE_BYTES:
            return f"the registry may write files of at most {limit} bytes: raise ulimit -f"
        return "check that disk (dmesg, mount)"


def _refusal_of(folder: Path) -> int:
    """The error of a small file that is written there, 0 without one: SQLite calls each one that
    is not ENOSPC an I/O error, also that of a quota."""
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            file.write(bytes(_TRIED_BYTES))
    except OSError as exc:
        return exc.errno or 0
    return 0


def read_journal(path: Path) -> list[Record]:
    """The records of a journal file, opened read-only; raises UsageError."""
    if not os.path.isfile(path):
        raise UsageError(f"there is no journal at {path}")
    with contextlib.closing(_open(path, readonly=True)) as connection:
        try:
            return _select_all(connection)
        except sqlite3.Error as exc:
            raise UsageError(f"the journal {path} cannot be read: {exc}") from exc


def _open(path: Path, *, readonly: bool = False) -> sqlite3.Connection:
    mode = "ro" if readonly else "rw"
    try:
        if not readonly:
            path.touch(mode=0o600)
        elif not os.path.exists(_log_of(path)):
            mode += "&immutable=1"  # nobody writes it; else a read-only folder could not be read
        with contextlib.ExitStack() as undo:
            connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode={mode}",
                uri=True,
                isolation_level=None,
                check_same_thread=False,
            )
            undo.callback(connection.close)
            _check_version(connection, path, may_be_new=not readonly)
            if not readonly:
                _prepare(connection)
            undo.pop_all()
    except (sqlite3.Error, OSError) as exc:
        raise UsageError(f"the journal {path} cannot be opened: {exc}") from exc
    return connection


def _log_of(path: Path) -> Path:
    """What SQLite has written and not yet put into the database."""
    return path.with_name(path.name + "-wal")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _check_version(connection: sqlite3.Connection, path: Path, *, may_be_new: bool) -> None:
    """Look before anything is changed: the file may be somebody else's."""
    version = _version(connection)
    empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    if version == JOURNAL or (version == 0 and empty and may_be_new):
        return
    if version == 0:
        raise UsageError(f"{path} is not an rdzv journal")
    raise UsageError(
        f"{path} has journal version {version}; this rdzv reads version {JOURNAL}",
        hint="use the version of rdzv that wrote it; nothing in it was changed",
    )


def _prepare(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
    if _version(connection) == 0:  # else nothing is written, so that a full disk can be opened
        connection.executescript(
            "BEGIN IMMEDIATE; CREATE TABLE IF NOT EXISTS events (id INTEGER PRIMARY KEY,"
            " run TEXT NOT NULL, number INTEGER NOT NULL, at REAL NOT NULL, body BLOB NOT NULL,"
            f" UNIQUE (run, number)); PRAGMA user_version={JOURNAL}; COMMIT"
        )
    _reserve(connection)


def _reserve(connection: sqlite3.Connection) -> None:
    """Take room now, so that a disk that fills up later does not keep a run from ending well.

    The database keeps it as free pages; the log keeps its size, and is written over.
    """
    connection.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}")
    with contextlib.suppress(sqlite3.OperationalError):  # there is none: go on without
        connection.executescript(
            "DROP TABLE IF EXISTS reserve;"
            f"CREATE TABLE reserve AS SELECT zeroblob({_RESERVE_BYTES}) AS room;"
            "DROP TABLE reserve"
        )


def _close(connection: sqlite3.Connection) -> None:
    """Keep the records alone: the reserve is given back, and the log becomes part of the file."""
    with contextlib.suppress(sqlite3.Error):  # a full disk: the file stays as large as it is
        pages, size = (connection.execute(f"PRAGMA {what}").fetchone()[0] for what in _SIZE)
        if pages * size <= _MOST_COMPACTED:
            connection.execute("PRAGMA temp_store=MEMORY")
            connection.execute("VACUUM")
    connection.close()


_INSERT = "INSERT INTO events (run, number, at, body) VALUES (?, ?, ?, ?)"
_ROWS = 128
"""In one statement: between two the thread would wait for the event loop, which has much to do."""


def _insert(connection: sqlite3.Connection, records: list[Record]) -> None:
    if len(records) <= _ROWS:
        _insert_some(connection, records)  # which is a transaction of its own
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for at in range(0, len(records), _ROWS):
            _insert_some(connection, records[at : at + _ROWS])
        connection.execute("COMMIT")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _insert_some(connection: sqlite3.Connection, records: list[Record]) -> None:
    values = [value for r in records for value in (r.run, r.number, r.at, r.body)]
    connection.execute(_INSERT + ", (?, ?, ?, ?)" * (len(records) - 1), values)


_COLUMNS = "SELECT run, number, at, body FROM events"


def _names(connection: sqlite3.Connection, _: None) -> list[str]:
    rows = connection.execute("SELECT run FROM events GROUP BY run ORDER BY min(id)")
    return [str(run) for (run,) in rows]


def _select(connection: sqlite3.Connection, run: str) -> list[Record]:
    rows = connection.execute(_COLUMNS + " WHERE run = ? ORDER BY number", (run,))
    return [Record(*row) for row in rows]


def _select_all(connection: sqlite3.Connection) -> list[Record]:
    return [Record(*row) for row in connection.execute(_COLUMNS + " ORDER BY id")]


def _delete(connection: sqlite3.Connection, run: str) -> None:
    connection.execute("DELETE FROM events WHERE run = ?", (run,))


# Tenants: their table is made with the first of them, so that a journal without any stays what it
# was. Versions that know no tenants pass it over.


def _select_tenants(connection: sqlite3.Connection, _: None) -> list[str]:
    known = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'tenants'"
    if not connection.execute(known).fetchone()[0]:
        return []
    return [str(body) for (body,) in connection.execute("SELECT body FROM tenants ORDER BY name")]


def _put_tenant(connection: sqlite3.Connection, tenant: Tenant) -> None:
    # There is no other writer: nothing comes between.
    refuse_clash(load_tenants(_select_tenants(connection, None)), tenant)
    connection.execute(
        "CREATE TABLE IF NOT EXISTS tenants (name TEXT PRIMARY KEY, body TEXT NOT NULL)"
    )
    row = tenant.name, tenant.model_dump_json()
    connection.execute("INSERT OR REPLACE INTO tenants VALUES (?, ?)", row)


def _delete_tenant(connection: sqlite3.Connection, name: str) -> bool:
    if not _select_tenants(connection, None):
        return False
    return connection.execute("DELETE FROM tenants WHERE name = ?", (name,)).rowcount > 0
