"""What only a journal in a file can meet: cut logs, full disks, read-only folders."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import multiprocessing
import os
import resource
import shutil
import signal
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rendezvous.registry.journal import Record
from rendezvous.registry.sqlite_journal import SqliteJournal, read_journal
from rendezvous.wire.errors import StorageFull, UsageError
from rendezvous.wire.tenant import Tenant
from tests.support.journals import contents, records


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a journal may be made."""
    return tmp_path / "journal.sqlite"


async def test_a_file_is_read_while_it_is_written_and_when_it_is_opened_again(path: Path) -> None:
    first = SqliteJournal(path)
    await first.append(records("a", 1))
    assert read_journal(path) == records("a", 1)
    await first.append(records("a", 2))
    assert read_journal(path) == records("a", 1, 2)
    await first.close()
    second = SqliteJournal(path)
    await second.append(records("a", 3))
    assert await contents(second) == records("a", 1, 2, 3)
    await second.close()
    assert read_journal(path) == records("a", 1, 2, 3)


def _in_child(work: Callable[[], None]) -> int | None:
    """Do this in a process of its own; how it ended."""
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join(20)
    return process.exitcode


async def _made(path: Path) -> None:
    journal = SqliteJournal(path)
    await journal.append(records("a", 1))
    await journal.close()


async def test_a_journal_is_readable_by_its_owner_alone(path: Path) -> None:
    journal = SqliteJournal(path)
    await journal.append(records("a", 1))
    files = sorted(path.parent.iterdir())
    assert [(f.name, stat.S_IMODE(f.stat().st_mode)) for f in files] == [
        ("journal.sqlite", 0o600),
        ("journal.sqlite-shm", 0o600),
        ("journal.sqlite-wal", 0o600),
    ]
    await journal.close()


async def test_a_log_that_was_cut_off_loses_its_end_and_nothing_else(path: Path) -> None:
    await _made(path)
    journal = SqliteJournal(path)
    for number in range(2, 6):
        await journal.append(records("a", number))
    main, log = path.read_bytes(), path.with_name("journal.sqlite-wal").read_bytes()
    await journal.close()
    found = []
    for length in [*range(0, 60_000, 2_000), len(log)]:  # behind it is room kept for later
        copy = path.with_name(f"{length}.sqlite")
        copy.write_bytes(main)
        copy.with_name(f"{length}.sqlite-wal").write_bytes(log[:length])
        left = read_journal(copy)
        assert left == records("a", *range(1, len(left) + 1))
        found.append(len(left))
    assert (found[0], sorted(found), found[-1]) == (1, found, 5)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"notes of mine\n" * 1000, "cannot be opened: file is not a database"),
        ("PRAGMA user_version=1; CREATE TABLE events (id)", "has journal version 1; .* version 3"),
        ("CREATE TABLE photos (id)", "is not an rdzv journal"),
    ],
    ids=["no database", "another version", "another kind"],
)
def test_what_is_no_journal_is_refused_and_left_as_it_is(
    path: Path, content: str | bytes, words: str
) -> None:
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.executescript(content)
    before = path.read_bytes()
    for opening in (SqliteJournal, read_journal):
        with pytest.raises(UsageError, match=words):
            opening(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


async def test_a_damaged_journal_cannot_be_read_and_says_so(path: Path) -> None:
    journal = SqliteJournal(path)
    await journal.append(records("a", *range(1, 2_000)))
    await journal.close()
    whole, page = path.read_bytes(), 4096
    path.write_bytes(whole[: 3 * page] + b"\xff" * page + whole[4 * page :])
    with pytest.raises(UsageError, match="cannot be read: database disk image is malformed"):
        read_journal(path)
    journal = SqliteJournal(path)
    with pytest.raises(UsageError, match="cannot be read: database disk image is malformed"):
        await journal.read("a")
    await journal.close()


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no/journal.sqlite cannot be opened: .*No such file"):
        SqliteJournal(tmp_path / "no" / "journal.sqlite")
    with pytest.raises(UsageError, match=r"there is no journal at .*no/journal.sqlite"):
        read_journal(tmp_path / "no" / "journal.sqlite")


async def test_a_read_only_folder_is_refused_for_writing_and_can_be_read() -> None:
    folder = Path(tempfile.mkdtemp())  # not under tmp_path, which other users cannot enter
    path = folder / "journal.sqlite"

    def look() -> None:
        if os.geteuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        assert read_journal(path) == records("a", 1)
        for file in (path, folder / "other.sqlite"):
            with pytest.raises(UsageError, match="cannot be opened"):
                SqliteJournal(file)

    try:
        await _made(path)
        path.chmod(0o444)
        folder.chmod(0o555)
        assert _in_child(look) == 0
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


async def test_two_registries_on_one_file_never_overwrite_each_other(path: Path) -> None:
    first, second = SqliteJournal(path), SqliteJournal(path)
    await first.append(records("a", 1))
    await second.append(records("a", 2))
    refused = await first.append(records("a", 2, 3))
    assert "another registry writes the journal" in refused["a"].message
    await first.append(records("a", 3))
    assert await contents(first) == await contents(second) == records("a", 1, 2, 3)
    await first.close()
    await second.close()


async def test_a_journal_without_tenants_stays_as_it_was_and_one_with_them_is_of_its_version(
    path: Path,
) -> None:
    def tables() -> list[str]:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA user_version").fetchone() == (3,)
            return [name for (name,) in connection.execute("SELECT name FROM sqlite_master")]

    journal = SqliteJournal(path)
    assert await journal.tenants() == []
    assert not await journal.remove_tenant("team")
    await journal.append(records("a", 1))
    assert "tenants" not in tables()
    await journal.put_tenant(Tenant(name="team", prefix="team-", sha256="a" * 64))
    await journal.close()
    assert "tenants" in tables()
    assert read_journal(path) == records("a", 1)


# A disk that is full


@contextlib.contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """A write beyond that size fails in this process, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_full_disk_keeps_nothing_of_the_batch_and_can_be_written_later(path: Path) -> None:
    journal = SqliteJournal(path)
    await journal.append(records("a", 1))
    large = [Record("a", number, 0.0, bytes(2_000_000)) for number in (2, 3)]
    log = path.with_name("journal.sqlite-wal")
    for room in (0, 5_000, 25_000):
        with files_no_larger_than(log.stat().st_size + room):
            [error] = (await journal.append(large)).values()
        assert isinstance(error, StorageFull)
        assert "journal.sqlite could not be written: " in error.message
        assert error.hint.endswith("the registry keeps serving what it has")
        assert await contents(journal) == read_journal(path) == records("a", 1)
    await journal.append(large)
    await journal.close()
    assert read_journal(path) == [*records("a", 1), *large]


async def test_a_quota_that_is_used_up_is_named(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = SqliteJournal(path)
    large = [Record("a", number, 0.0, bytes(2_000_000)) for number in (1, 2)]

    def refuses(**_: object) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuses)
    with files_no_larger_than(path.with_name("journal.sqlite-wal").stat().st_size):
        [error] = (await journal.append(large)).values()
    assert error.hint.startswith("Disk quota exceeded there: free space, or ask for a larger quota")
    await journal.close()


async def test_a_journal_on_a_full_disk_can_be_opened_and_read(path: Path) -> None:
    def append_and_die() -> None:
        asyncio.run(SqliteJournal(path).append(records("a", 1, 2, 3)))
        os.kill(os.getpid(), signal.SIGKILL)

    assert _in_child(append_and_die) == -signal.SIGKILL
    with files_no_larger_than(max(file.stat().st_size for file in path.parent.iterdir())):
        journal = SqliteJournal(path)
        assert await contents(journal) == records("a", 1, 2, 3)
        refused = await journal.append([Record("a", 4, 0.0, bytes(10_000_000))])
        assert [type(error) for error in refused.values()] == [StorageFull]
    await journal.append(records("a", 4))
    await journal.close()
    assert read_journal(path) == records("a", 1, 2, 3, 4)


async def test_a_disk_that_fills_up_has_kept_room_for_the_rest_of_a_run(path: Path) -> None:
    journal = SqliteJournal(path)
    events = [Record("a", number, 0.0, bytes(4_800)) for number in range(1, 251)]
    with files_no_larger_than(max(file.stat().st_size for file in path.parent.iterdir())):
        for event in events:
            assert await journal.append([event]) == {}
    await journal.close()
    assert read_journal(path) == events


async def test_a_closed_journal_is_one_file_of_the_records_alone(path: Path) -> None:
    journal = SqliteJournal(path)
    await journal.append(records("a", *range(1, 21)))
    await journal.close()
    assert [*path.parent.iterdir()] == [path]
    assert path.stat().st_size < 30_000
    again = SqliteJournal(path)  # a resumed launch takes its reserve anew
    assert path.stat().st_size + path.with_name(f"{path.name}-wal").stat().st_size > 2 << 20
    with files_no_larger_than(0):  # no room: it is closed as it is
        await again.close()
    assert read_journal(path) == records("a", *range(1, 21))
