"""Reads the limits that this process may meet, and how far they are used. It only looks."""

from __future__ import annotations

import os
import pwd
import re
import resource
from collections.abc import Iterator
from pathlib import Path

from rendezvous.wire.errors import RdzvError
from worker.machine import sysfs
from worker.machine.groups import chains_of, limit_in, mounts_in
from worker.machine.shortage import Kind, Limit, refusal, shortage, too_few_tasks

_HOST = Path("/")
_CAPABLE = 1 << 21 | 1 << 24  # CAP_SYS_ADMIN, CAP_SYS_RESOURCE
_WHOLE_MACHINE = ["0", "0", "4294967295"]
_UID = re.compile(r"^Uid:\s+([0-9]+)", re.MULTILINE)
_THREADS = re.compile(r"^Threads:\s+([0-9]+)", re.MULTILINE)
_CAPABILITIES = re.compile(r"^CapEff:\s*([0-9a-f]+)$", re.MULTILINE)
_SIZE = re.compile(r"^VmSize:\s+([0-9]+) kB", re.MULTILINE)
_DATA = re.compile(r"^VmData:\s+([0-9]+) kB", re.MULTILINE)


def named(error: Exception) -> Exception:
    """The error in words, where a limit of this machine was met; else the error itself."""
    if isinstance(error, RdzvError) and (error.__cause__ is None or not shortage(error.__cause__)):
        return error
    try:
        return refusal(error, read_limits()) or error
    except Exception:  # noqa: BLE001 (no file may be open, nor memory be left, to look with)
        return refusal(error, list(byte_limits())) or error


def read_limits(root: Path = _HOST) -> list[Limit]:
    """All that can be seen of the limits that hold for this process."""
    status = sysfs.content(root / "proc/self/status")
    found = [*task_limits(root), *byte_limits(status)]
    if (value := soft_limit(resource.RLIMIT_NOFILE)) is not None:
        found.append(Limit(Kind.FILES, value, _open_files(root, value)))
    return found


def byte_limits(status: str | None = None) -> Iterator[Limit]:
    """Of memory and files; without the status of this process, which needs memory to be read, all
    memory is used."""
    for which, kind, pattern in (
        (resource.RLIMIT_AS, Kind.ADDRESS_SPACE, _SIZE),
        (resource.RLIMIT_DATA, Kind.DATA, _DATA),
    ):
        if (value := soft_limit(which)) is not None:
            used = value if status is None else 1024 * _number(pattern, status)
            yield Limit(kind, value, used)
    if (value := soft_limit(resource.RLIMIT_FSIZE)) is not None:
        yield Limit(Kind.FILE_SIZE, value)


def why_too_few(processes: int) -> str:
    """Name the limit for which so many processes surely cannot be started now; empty: none."""
    return "; ".join(too_few(processes))


def too_few(processes: int) -> tuple[str, str] | tuple[()]:
    """Name the limit, and where it is set, for which so many processes surely cannot be started."""
    found = too_few_tasks(list(task_limits()), processes)
    if found is None:
        return ()
    plural = "es" * (processes != 1)
    return f"{processes} process{plural} cannot be started here: {found.words}", found.hint


def task_limits(root: Path = _HOST) -> Iterator[Limit]:
    """The limits of processes and threads: the user's, the control groups', the machine's."""
    user = os.getuid()
    value = soft_limit(resource.RLIMIT_NPROC)
    if value is not None and not is_exempt(user, root):
        yield Limit(Kind.USER_TASKS, value, threads_of(user, root), _user_name(user))
    mounts = mounts_in(sysfs.content(root / "proc/self/mountinfo"))
    for chain in chains_of(sysfs.content(root / "proc/self/cgroup"), mounts, "pids"):
        for folder in chain:
            place = root / folder.lstrip("/")
            limit = limit_in(sysfs.content(place / "pids.max"))
            if limit is not None:
                used = limit_in(sysfs.content(place / "pids.current")) or 0
                yield Limit(Kind.GROUP_TASKS, limit, used, folder)
    # "running/all" of the whole machine, whatever a container sees of it
    _, _, count = sysfs.text(root / "proc/loadavg").partition("/")
    for name in ("threads-max", "pid_max"):
        if limit := sysfs.number(root / "proc/sys/kernel" / name, 0):
            used = int(count.split()[0]) if count else 0
            yield Limit(Kind.MACHINE_TASKS, limit, used, f"kernel.{name}")


def threads_of(user: int, root: Path = _HOST) -> int:
    """How many threads the user has, in all processes that can be seen: a container sees its own,
    and the kernel counts all."""
    total = 0
    for entry in sysfs.entries(root / "proc"):
        if entry.name.isdecimal():
            status = sysfs.content(entry / "status")
            if _number(_UID, status) == user and "Uid:" in status:
                total += _number(_THREADS, status)
    return total


def soft_limit(which: int) -> int | None:
    """A soft limit of this process, which its children inherit; None: unlimited."""
    soft, _ = resource.getrlimit(which)
    return None if soft == resource.RLIM_INFINITY else soft


def is_exempt(user: int, root: Path) -> bool:
    """Return whether RLIMIT_NPROC does not hold for this process.

    The kernel asks for the machine's own root, or for capabilities of the machine itself.
    """
    if sysfs.content(root / "proc/self/uid_map").split() != _WHOLE_MACHINE:
        return False
    found = _CAPABILITIES.search(sysfs.content(root / "proc/self/status"))
    return user == 0 or bool(found and int(found[1], 16) & _CAPABLE)


def _user_name(user: int) -> str:
    try:
        return f"user '{pwd.getpwuid(user).pw_name}'"
    except (KeyError, OSError):  # an image that runs under any user has no name for it
        return f"user {user}"


def _open_files(root: Path, limit: int) -> int:
    """How many files are open; where none is left to look with, all are."""
    try:
        return len(os.listdir(root / "proc/self/fd"))
    except OSError:
        return limit


def _number(pattern: re.Pattern[str], text: str) -> int:
    found = pattern.search(text)
    return int(found[1]) if found else 0
