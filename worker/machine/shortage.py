"""Which limit of this machine a failed call has met, how far it is used, and where it is set. Pure.

The kernel's words for such a failure name neither the limit nor its value: `can't start new
thread`, `Resource temporarily unavailable`, `Cannot allocate memory`.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from enum import Enum

from rendezvous.frozen import frozen
from rendezvous.wire.errors import ArmingFailed, RdzvError
from rendezvous.wire.words import bytes_text


class Kind(Enum):
    """A limit of the machine."""

    USER_TASKS = "user tasks"
    GROUP_TASKS = "group tasks"
    MACHINE_TASKS = "machine tasks"
    FILES = "files"
    ADDRESS_SPACE = "address space"
    DATA = "data"
    FILE_SIZE = "file size"
    CPU_TIME = "CPU time"


class Short(Enum):
    """What a call could not have; its value is how a sentence says so."""

    TASKS = "no more threads or processes can be started"
    FILES = "no more files can be opened"
    MEMORY = "no more memory can be obtained"
    FILE_SIZE = "a file cannot become longer"


@frozen
class Limit:
    """A limit that holds for this process.

    Attributes:
        value: The limit; `used` is what can be seen of it, which may be less than what counts.
        holder: The user, or the folder of the control group.
    """

    kind: Kind
    value: int
    used: int = 0
    holder: str = ""

    @property
    def left(self) -> int:
        """What is left of it, as far as can be seen."""
        return max(0, self.value - self.used)

    @property
    def words(self) -> str:
        """Name, value and use, as a clause."""
        return _WORDS[self.kind].format(
            value=self.value,
            used=self.used,
            size=bytes_text(self.value),
            used_size=bytes_text(self.used),
            holder=self.holder,
        )

    @property
    def hint(self) -> str:
        """Where it is set."""
        return _HINTS[self.kind]


TASK_KINDS = (Kind.USER_TASKS, Kind.GROUP_TASKS, Kind.MACHINE_TASKS)
_OF_SHORT = {
    Short.TASKS: (*TASK_KINDS, Kind.ADDRESS_SPACE, Kind.DATA),
    Short.FILES: (Kind.FILES,),
    Short.MEMORY: (Kind.ADDRESS_SPACE, Kind.DATA),
    Short.FILE_SIZE: (Kind.FILE_SIZE,),
}
_WORDS = {
    Kind.USER_TASKS: "{holder} may have {value} processes and threads (ulimit -u), and has {used}",
    Kind.GROUP_TASKS: "the control group {holder} may have {value} processes and threads "
    "(pids.max), and has {used}",
    Kind.MACHINE_TASKS: "this machine may have {value} threads (sysctl {holder}), and has {used}",
    Kind.FILES: "this process may have {value} files open (ulimit -n), and has {used}",
    Kind.ADDRESS_SPACE: "this process may use {size} of address space (ulimit -v), and uses "
    "{used_size}",
    Kind.DATA: "this process may have {size} of data (ulimit -d), and has {used_size}",
    Kind.CPU_TIME: "this process may use {value} s of CPU time (ulimit -t), and has used {used} s",
    Kind.FILE_SIZE: "this process may write files of at most {value} bytes (ulimit -f)",
}
_HINTS = {
    Kind.USER_TASKS: "raise it where it is set: 'ulimit -u' in the job script, nproc in "
    "/etc/security/limits.conf, LimitNPROC= of a systemd unit, docker run --ulimit nproc=",
    Kind.GROUP_TASKS: "raise it where it is set: docker run --pids-limit, the kubelet's "
    "podPidsLimit, TasksMax= of the systemd unit or of the user's slice",
    Kind.MACHINE_TASKS: "raise it on the host with sysctl -w, or run less on this machine",
    Kind.FILES: "raise it where it is set: 'ulimit -n' in the job script, nofile in "
    "/etc/security/limits.conf, LimitNOFILE= of a systemd unit, docker run --ulimit nofile=",
    Kind.ADDRESS_SPACE: "raise it where it is set: 'ulimit -v' in the job script, as in "
    "/etc/security/limits.conf, LimitAS= of a systemd unit, or the scheduler's virtual memory",
    Kind.DATA: "raise it where it is set: 'ulimit -d' in the job script, data in "
    "/etc/security/limits.conf, LimitDATA= of a systemd unit",
    Kind.CPU_TIME: "raise it where it is set: 'ulimit -t' in the job script, cpu in "
    "/etc/security/limits.conf, LimitCPU= of a systemd unit; login nodes often have one",
    Kind.FILE_SIZE: "raise it where it is set: 'ulimit -f' in the job script, fsize in "
    "/etc/security/limits.conf, LimitFSIZE= of a systemd unit",
}
_ERRNO = {
    errno.EAGAIN: Short.TASKS,
    errno.EMFILE: Short.FILES,
    errno.ENFILE: Short.FILES,
    errno.ENOMEM: Short.MEMORY,
    errno.EFBIG: Short.FILE_SIZE,
}
_ROOM = "make room there, or choose another folder"
_MODE = "compare its owner and mode, and those of the folders above it, with this user"
_MOUNT = "look at that file system (dmesg, mount); the server behind it may be down"
_PLACE = "something else is at the place of rdzv's own file or folder: move it away"
_OF_FILES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), ("written", _ROOM)),
    errno.EROFS: ("written", "choose another folder"),
    **dict.fromkeys((errno.EACCES, errno.EPERM), ("used", _MODE)),
    **dict.fromkeys(
        (errno.EIO, errno.ESTALE, errno.ENODEV, errno.ENXIO, errno.ENOTCONN, errno.EREMOTEIO),
        ("used", _MOUNT),
    ),
    **dict.fromkeys((errno.ENOTDIR, errno.EISDIR, errno.ELOOP), ("used", _PLACE)),
}
"""What a file's error says cannot be done, and what to do; rdzv is not at fault."""
_THREAD = "can't start new thread"
_NEAR_TASKS, _NEAR_FILES, _NEAR_BYTES = 16, 8, 32 << 20
"""A limit of which no more is left has probably been met: what failed has ended some by then."""


def shortage(error: BaseException) -> Short | None:
    """What an error says could not be had; None where it says something else."""
    if isinstance(error, MemoryError):
        return Short.MEMORY
    if isinstance(error, OSError):
        return _ERRNO.get(error.errno or 0)
    if isinstance(error, RuntimeError) and _THREAD in str(error):
        return Short.TASKS
    return None


def inner(error: BaseException) -> Iterable[BaseException]:
    """An error and what it came of, or holds as a group, the outermost first."""
    seen: list[BaseException] = []
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop(0)
        if one is not None and one not in seen:
            seen.append(one)
            left += [*getattr(one, "exceptions", ()), one.__cause__, one.__context__]
    return seen


def is_near(limit: Limit) -> bool:
    """Return whether it has probably been met just now."""
    if limit.kind is Kind.FILE_SIZE:
        return True
    if limit.kind in (Kind.ADDRESS_SPACE, Kind.DATA):
        return limit.left <= max(_NEAR_BYTES, limit.value // 4)
    least = _NEAR_FILES if limit.kind is Kind.FILES else _NEAR_TASKS
    return limit.left <= max(least, limit.value // 8)


def met(short: Short, limits: Sequence[Limit]) -> Limit | None:
    """The limit that has probably been met; None where all that are known leave room.

    Memory that a thread's stack needs counts where no more tasks can be started, too.
    """
    kinds = _OF_SHORT[short]
    near = [one for one in limits if one.kind in kinds and is_near(one)]
    return min(near, key=lambda one: (kinds.index(one.kind) > 2, one.left), default=None)


def refusal(error: BaseException, limits: Sequence[Limit]) -> ArmingFailed | None:
    """The error in words, where it names a file that cannot be used, or says that a limit of this
    machine was met; None otherwise.

    Who is refused a lock is told `Resource temporarily unavailable`, too: that alone names none.
    """
    for one in inner(error):
        if isinstance(one, RdzvError):
            continue
        if isinstance(one, OSError) and one.filename and one.errno in _OF_FILES:
            done, hint = _OF_FILES[one.errno]
            return ArmingFailed(f"{one.filename} cannot be {done}: {one.strerror}", hint=hint)
        short = shortage(one)
        if short is None:
            continue
        what = error.message if isinstance(error, RdzvError) else f"{short.value} on this node"
        found = met(short, limits)
        if found is not None:
            return ArmingFailed(f"{what}: {found.words}", hint=found.hint)
        if not isinstance(one, BlockingIOError):
            return ArmingFailed(
                f"{what}: {str(one) or type(one).__name__}",
                hint="no limit that can be seen from here is met: see dmesg, 'ulimit -a' and the "
                "control group of this node",
            )
    return None


def too_few_tasks(limits: Sequence[Limit], needed: int) -> Limit | None:
    """The narrowest limit of processes and threads that leaves fewer than are needed."""
    few = [one for one in limits if one.kind in TASK_KINDS and one.left < needed]
    return min(few, key=lambda one: one.left, default=None)


def cpu_time_used_up(seconds: int, used: int) -> ArmingFailed:
    """The error of a process that the kernel is about to end at its limit of CPU time."""
    limit = Limit(Kind.CPU_TIME, seconds, used)
    return ArmingFailed(f"the CPU time is used up: {limit.words}", hint=limit.hint)


def cpu_time_met(soft: int, hard: int | None) -> str:
    """The warning of a process that goes on above its soft limit of CPU time."""
    until = ": there is no hard limit" if hard is None else f" until {hard} s"
    return f"this process has used its {soft} s of CPU time (ulimit -S -t), and continues{until}"
