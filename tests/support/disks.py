"""Real disks that fill up and fail: small file systems of a test's own."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

from rendezvous.registry.sqlite_journal import DISK_FULL


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system in memory, no larger than 12 MiB; needs root."""
    folder.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=12m,mode=0755", "tmpfs", str(folder))
    try:
        yield folder
    finally:
        run("umount", "--lazy", str(folder))


@contextlib.contextmanager
def failing_disk(folder: Path) -> Iterator[tuple[Path, Path]]:
    """An ext4 file system in a file; gives its folder, and the file that makes it fail.

    Whatever is written into that file, the kernel takes for a damage and allows no more writes.
    """
    folder.mkdir()
    image = folder.with_suffix(".image")
    image.write_bytes(b"")
    os.truncate(image, 24 << 20)
    run("mkfs.ext4", "-q", str(image))
    run("mount", "-o", "loop,errors=remount-ro", str(image), str(folder))
    try:
        device = run("findmnt", "-no", "SOURCE", str(folder)).strip()
        yield folder, Path("/sys/fs/ext4", Path(device).name, "trigger_fs_error")
    finally:
        run("umount", "--lazy", str(folder))


def run(*command: str) -> str:
    """Run a command that must succeed; what it printed."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def fill(folder: Path) -> Path:
    """Leave no byte free on the folder's disk; the file to remove when there is to be room."""
    filler = folder / "filler"
    while True:
        with filler.open("ab", buffering=0) as file:
            for piece in (1 << 16, 1):
                with contextlib.suppress(OSError):
                    while file.write(bytes(piece)) == piece:
                        pass
        if is_full(folder):  # a run that writes there may have given room back meanwhile
            return filler


def is_full(folder: Path) -> bool:
    """Whether not one more byte can be written."""
    probe = folder / "probe"
    try:
        probe.write_bytes(bytes(4_096))
    except OSError as error:
        return error.errno == errno.ENOSPC
    finally:
        probe.unlink(missing_ok=True)
    return False


@contextlib.contextmanager
def no_reserve(journal: Path) -> Iterator[None]:
    """Take what room the journal has kept for itself on a full disk.

    A reader of an old state keeps the journal's log from being written over; what is left in the
    log is filled with rows that are nobody's.
    """
    with (
        contextlib.closing(sqlite3.connect(journal, isolation_level=None)) as reader,
        contextlib.closing(sqlite3.connect(journal, isolation_level=None)) as writer,
    ):
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM events").fetchone()
        _until_full(writer, "CREATE TABLE IF NOT EXISTS junk (bytes BLOB)", times=1)
        for size in (200_000, 10_000, 1_000, 0):
            _until_full(writer, f"INSERT INTO junk VALUES (zeroblob({size}))")
        yield


def _until_full(writer: sqlite3.Connection, statement: str, times: int = 1 << 30) -> None:
    """Repeat the statement until there is no room for it; who holds the lock is waited for."""
    while times:
        try:
            writer.execute(statement)
        except sqlite3.OperationalError as error:
            if str(error) == DISK_FULL:
                return
            if "locked" not in str(error):
                raise
        else:
            times -= 1
