"""This process's block of names in /etc/hosts: put there, replaced, taken away, in place.

In place, since a container's /etc/hosts is a bind mount that no rename can replace. The original
lines stay where they are, so that no reader misses `localhost`; `hosts_text` knows the block.

A process can be killed in the middle of a write, which then has written some pages and not the
others. So nothing that is somebody else's is ever away, and each step leaves a text from which
`restore_stale` takes the block, and gives loopback lines their names back.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from rendezvous.wire.errors import ArmingFailed
from rendezvous.wire.table import EndpointTable
from worker.hosts.plan import UNKNOWN, HostsPlan, plan_hosts
from worker.hosts.text import (
    BEGINS,
    Block,
    Fields,
    Owner,
    hollow,
    lines_of,
    missing_lines,
    names_in,
    original_of,
    remove_blocks,
    remove_lines,
    render_hosts,
)
from worker.machine import sysfs
from worker.program.process_table import read_process

_LOCK_SECONDS = 5.0
_LEASE_SECONDS = 0.1
_MOST_TRIES = 10


class HostsBlock:
    """This process's block in a hosts file.

    Its methods wait a moment for another process that holds the file's lock, and raise
    `ArmingFailed` when the file cannot be written; the file is then as it was.
    """

    def __init__(self, path: Path, run: str, *, lock_seconds: float = _LOCK_SECONDS) -> None:
        self._path = path
        self._lock_seconds = lock_seconds
        self._run = run
        self._owner = current_owner()
        self._written: frozenset[Fields] = frozenset()

    def install(
        self,
        table: EndpointTable,
        own_slot: int,
        resolved: Mapping[str, AbstractSet[str]] = UNKNOWN,
    ) -> str | None:
        """Write the table's names; say in one sentence which were left out, None when none was.

        Args:
            table: The endpoint table.
            own_slot: This node's.
            resolved: Where hostnames lead here already; see `plan_hosts`.
        """
        plan, written = HostsPlan([], frozenset(), ""), self._written

        def change(text: str) -> str:
            nonlocal plan, written
            rest = remove_lines(text, self._written)
            plan = plan_hosts(rest, table, own_slot, run=self._run, resolved=resolved)
            written = missing_lines(rest, plan.entries)
            return render_hosts(
                rest, plan.entries, run=self._run, own_names=plan.own_names, owner=self._owner
            )

        edit_hosts(self._path, change, lock_seconds=self._lock_seconds)
        self._written = written
        return plan.warning or None

    def remove(self) -> None:
        """Take away what `install` wrote, also where a container engine has dropped the markers.

        The block of another process of the same run stays.
        """
        edit_hosts(
            self._path,
            lambda text: remove_blocks(
                remove_lines(text, self._written),
                lambda block: block.run == self._run and block.owner == self._owner,
            ),
            lock_seconds=self._lock_seconds,
        )
        self._written = frozenset()


def restore_stale(path: Path) -> list[str]:
    """Take away the blocks of processes that are gone; tell the runs they belonged to.

    Raises:
        ArmingFailed: There is such a block, and the file cannot be written.
    """
    stale: dict[str, None] = {}

    def is_stale(block: Block) -> bool:
        if may_live(block.owner):
            return False
        stale[block.run] = None
        return True

    if os.path.exists(path):
        edit_hosts(path, lambda text: remove_blocks(text, is_stale))
    return list(stale)


def known_names(path: Path, run: str) -> dict[str, set[str]]:
    """The addresses by name, in lower case, that a hosts file has beside the run's own block."""
    try:
        text = path.read_bytes().decode("latin-1") if os.path.isfile(path) else ""
    except OSError:
        text = ""
    return names_in(text, besides=run)


# ---- the file -----------------------------------------------------------------------------------


def edit_hosts(
    path: Path, change: Callable[[str], str], *, lock_seconds: float = _LOCK_SECONDS
) -> None:
    """Change a hosts file in place, under its lock (flock).

    Args:
        path: The file; through a symbolic link its target is written.
        change: Makes the new text of the old one; called again when somebody else has written
            meanwhile, without asking for the lock.
        lock_seconds: How long to wait for another process that holds the lock.

    Raises:
        ArmingFailed: The file cannot be written; unless the message says more, it is as it was.
    """
    try:
        before = path.read_bytes().decode("latin-1")
        if change(before) == before:
            return  # also where the file could not be written
        for _ in range(_MOST_TRIES):
            if _edit_once(path, change, lock_seconds):
                return
        raise OSError(errno.EIO, "another program keeps writing it")
    except OSError as exc:
        raise ArmingFailed(
            f"{path} cannot be written: {exc.strerror or exc}",
            hint=_HINTS.get(exc.errno or 0, "use --hosts off to leave the file alone"),
        ) from exc


_HINTS = {
    errno.EROFS: "it is mounted read-only here; use --hosts off to leave it alone",
    errno.EACCES: "only root can write it; use --hosts off to leave it alone",
    errno.EPERM: "it may be immutable (lsattr); use --hosts off to leave it alone",
    errno.ENOSPC: "make room on its file system, or use --hosts off to leave it alone",
    errno.EWOULDBLOCK: "another process holds its lock (lslocks); try again",
}


def _edit_once(path: Path, change: Callable[[str], str], lock_seconds: float) -> bool:
    """Change the file; False when somebody else has written or replaced it meanwhile."""
    with _locked(path, lock_seconds) as file:
        old = _content(file)
        new = change(old)
        if _content(file) != old:
            return False
        _replace(file, old, new)
        return _content(file) == new and os.path.samestat(os.fstat(file.fileno()), path.stat())


def _locked(path: Path, seconds: float) -> IO[bytes]:
    """Open the file under its lock; it is not open while another process has the lock."""
    deadline = time.monotonic() + seconds
    while True:
        file = path.open("r+b", buffering=0)
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            file.close()
            if not isinstance(exc, BlockingIOError) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return file


def _replace(file: IO[bytes], old: str, new: str) -> None:
    try:
        _put(file.fileno(), old, new)
    except OSError as cause:
        try:
            _put(file.fileno(), _content(file), old)  # what it needs was allocated
        except OSError as exc:
            words = f"{cause.strerror}, and the old text could not be restored: {exc.strerror}"
            raise OSError(cause.errno, words) from exc
        raise


def _put(fd: int, old: str, new: str) -> None:
    """Take our blocks away, and write the new ones; others' lines stay, and are always there."""
    if not new.startswith(old):
        plain = original_of(new)
        if old != plain:
            _leave(fd, old, plain)
        old = plain
    if new != old:
        _append(fd, new[len(old) :])
        _overwrite(fd, old, new[: len(old)])
    os.fsync(fd)


def _leave(fd: int, old: str, plain: str) -> None:
    """Make the file plain again: first the lines that have lost a name, which the blocks know."""
    kept = _overwrite(fd, old, plain)
    if old.startswith(BEGINS, kept):
        # What follows is moved over it, marker first: the rest shall hold no name then.
        _write(fd, hollow(old)[kept:], kept)
    _write(fd, plain[kept:], kept)
    end, known = len(plain), len(old)
    with _others_kept_out(fd):
        while added := os.pread(fd, 1 << 20, known):  # by somebody else, meanwhile
            known += len(added)
            joined = end == len(plain) and plain[-1:] not in ("", "\n")
            piece = "\n" * joined + added.decode("latin-1")
            _write(fd, piece, end)
            end += len(piece)
        os.ftruncate(fd, end)


@contextmanager
def _others_kept_out(fd: int) -> Iterator[None]:
    """Let nobody open the file meanwhile, so that no line is added to what is cut off.

    A write lease (fcntl(2)) makes whoever opens the file wait until it is given back; it is there
    for root and the file's owner, and only while nobody else has the file open. Where it cannot
    be had within 0.1 s (a process that keeps the file open, a file system without leases), the
    file is cut without: a line added in those few microseconds is then lost.
    """
    held = _lease(fd)
    try:
        yield
    finally:
        if held:
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)


def _lease(fd: int) -> bool:
    fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)  # told of who waits: SIGIO would end us
    deadline = time.monotonic() + _LEASE_SECONDS
    while True:
        try:
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError as exc:
            if exc.errno != errno.EAGAIN or time.monotonic() > deadline:
                return False
            time.sleep(0.001)
        else:
            return True


def _overwrite(fd: int, old: str, new: str) -> int:
    """Write the lines that are others, as long as lines are as long as before; to which byte."""
    at = 0
    for before, after in zip(lines_of(old), lines_of(new), strict=False):
        if len(before) != len(after) or before.startswith(BEGINS):
            break
        if before != after:
            _write(fd, after, at)
        at += len(after)
    return at


def _append(fd: int, tail: str) -> None:
    """Add to the end, whoever else adds to it: first the markers, so that no block is without."""
    frame = hollow(tail).encode("latin-1")
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_APPEND)
    try:
        _check_whole(os.write(fd, frame), len(frame))
    finally:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags)
    _write(fd, tail, os.lseek(fd, 0, os.SEEK_CUR) - len(tail))


def _write(fd: int, piece: str, at: int) -> None:
    _check_whole(os.pwrite(fd, piece.encode("latin-1"), at), len(piece))


def _check_whole(written: int, wanted: int) -> None:
    if written < wanted:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _content(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("latin-1")


# ---- who is alive -------------------------------------------------------------------------------


def current_owner() -> Owner:
    """This process."""
    pid = os.getpid()
    return Owner(pid, _start_of(pid) or 0, _boot_id(), _pid_namespace())


def may_live(owner: Owner) -> bool:
    """Whether the process still runs, or cannot be seen from here."""
    if owner.boot != _boot_id():
        return False
    return owner.namespace != _pid_namespace() or owner.start == _start_of(owner.pid)


def _start_of(pid: int) -> int | None:
    """When a process started; None when there is none, or only a zombie."""
    found = read_process(pid)
    return None if found is None or found.state in "ZX" else found.started


def _boot_id() -> str:
    return sysfs.text(Path("/proc/sys/kernel/random/boot_id"))


def _pid_namespace() -> int:
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0
