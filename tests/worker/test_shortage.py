"""Which limit of the machine a failed call has met, and what is said of it."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest

from rendezvous.wire.errors import ArmingFailed, ExitCode, RdzvError, RunError
from worker.machine import limits as reading
from worker.machine.shortage import Kind, Limit, Short, inner, met, refusal, shortage, too_few_tasks

USER = Limit(Kind.USER_TASKS, 20, 18, "user 'ada'")
GROUP = Limit(Kind.GROUP_TASKS, 64, 63, "/sys/fs/cgroup/pod")
ROOMY = Limit(Kind.USER_TASKS, 96_364, 40, "user 'ada'")
NO_THREAD = RuntimeError("can't start new thread")
NO_FORK = BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")


@pytest.mark.parametrize(
    ("error", "short"),
    [
        (NO_THREAD, Short.TASKS),
        (NO_FORK, Short.TASKS),
        (MemoryError(), Short.MEMORY),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), Short.MEMORY),
        (OSError(errno.EMFILE, "Too many open files"), Short.FILES),
        (OSError(errno.ENFILE, "Too many open files in system"), Short.FILES),
        (OSError(errno.EFBIG, "File too large"), Short.FILE_SIZE),
        (OSError("no number"), None),
        (RuntimeError("other"), None),
        (KeyError("other"), None),
    ],
)
def test_what_could_not_be_had(error: Exception, short: Short | None) -> None:
    assert shortage(error) is short


def test_the_narrowest_limit_that_is_nearly_used_is_the_one() -> None:
    assert met(Short.TASKS, [ROOMY, USER, GROUP]) is GROUP
    assert met(Short.TASKS, [ROOMY]) is None
    files = Limit(Kind.FILES, 64, 60)
    assert met(Short.FILES, [USER, files]) is files
    assert met(Short.FILES, [Limit(Kind.FILES, 1024, 60)]) is None
    assert met(Short.FILES, [Limit(Kind.FILES, 64, 52)]) is None
    twelve = Limit(Kind.USER_TASKS, 64, 52)
    assert met(Short.TASKS, [twelve]) is twelve
    size = Limit(Kind.FILE_SIZE, 4096)
    assert met(Short.FILE_SIZE, [size]) is size


def test_a_thread_needs_a_stack_in_the_address_space() -> None:
    space = Limit(Kind.ADDRESS_SPACE, 80 << 20, 78 << 20)
    assert met(Short.TASKS, [ROOMY, space]) is space
    assert met(Short.TASKS, [USER, space]) is USER
    assert met(Short.MEMORY, [Limit(Kind.DATA, 1 << 40, 5)]) is None


@pytest.mark.parametrize(
    ("error", "limit", "words"),
    [
        (NO_THREAD, USER, "user 'ada' may have 20 processes and threads (ulimit -u), and has 18"),
        (
            NO_FORK,
            GROUP,
            (
                "the control group /sys/fs/cgroup/pod may have 64 processes and threads "
                "(pids.max), and has 63"
            ),
        ),
        (
            MemoryError(),
            Limit(Kind.ADDRESS_SPACE, 80 << 20, 78 << 20),
            "this process may use 80 MiB of address space (ulimit -v), and uses 78 MiB",
        ),
    ],
)
def test_a_refusal_names_limit_value_and_place(error: Exception, limit: Limit, words: str) -> None:
    told = refusal(error, [ROOMY, limit])
    assert told is not None
    assert told.exit_code is ExitCode.ARMING_FAILED
    assert words in told.message
    assert told.hint == limit.hint
    assert "where it is set" in told.hint


def test_what_was_tried_stays_in_the_sentence() -> None:
    error = RunError("'train.sh' cannot be started: Resource temporarily unavailable")
    error.__cause__ = NO_FORK
    told = refusal(error, [USER])
    assert told is not None
    assert told.message.startswith("'train.sh' cannot be started: ")
    assert "(ulimit -u)" in told.message


def test_a_lock_that_is_held_names_no_limit() -> None:
    assert refusal(NO_FORK, [ROOMY]) is None


def test_a_thread_that_cannot_be_is_told_without_a_limit_that_can_be_seen() -> None:
    told = refusal(NO_THREAD, [])
    assert told is not None
    assert "can't start new thread" in told.message
    nameless = refusal(MemoryError(), [])
    assert nameless is not None
    assert "MemoryError" in nameless.message


def test_a_full_disk_is_no_bug() -> None:
    told = refusal(OSError(errno.ENOSPC, "No space left on device", "/data/x"), [])
    assert told is not None
    assert told.message == "/data/x cannot be written: No space left on device"
    assert refusal(OSError(errno.ENOENT, "No such file or directory", "/x"), [USER]) is None


@pytest.mark.parametrize(
    ("number", "words", "hint"),
    [
        (errno.EDQUOT, "cannot be written: Disk quota exceeded", "make room"),
        (errno.EROFS, "cannot be written: Read-only file system", "another folder"),
        (errno.EACCES, "cannot be used: Permission denied", "its owner and mode"),
        (errno.EPERM, "cannot be used: Operation not permitted", "its owner and mode"),
        (errno.EIO, "cannot be used: Input/output error", "dmesg"),
        (errno.ESTALE, "cannot be used: Stale file handle", "the server behind it"),
        (errno.ENOTDIR, "cannot be used: Not a directory", "move it away"),
        (errno.ELOOP, "cannot be used: Too many levels of symbolic links", "move it away"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(number: int, words: str, hint: str) -> None:
    told = refusal(OSError(number, os.strerror(number), "/data/x"), [USER])
    assert told is not None
    assert told.message == f"/data/x {words}"
    assert hint in (told.hint or "")
    assert refusal(OSError(errno.EACCES, "Permission denied"), [USER]) is None  # of a socket, say


def test_errors_are_looked_through() -> None:
    outer = ValueError("outer")
    outer.__context__ = NO_THREAD
    assert list(inner(outer)) == [outer, NO_THREAD]
    NO_THREAD_CYCLE = RuntimeError("a")
    NO_THREAD_CYCLE.__context__ = ValueError("b")
    NO_THREAD_CYCLE.__context__.__context__ = NO_THREAD_CYCLE
    assert len(list(inner(NO_THREAD_CYCLE))) == 2


def test_too_few_tasks_are_those_that_surely_do_not_do() -> None:
    assert too_few_tasks([ROOMY, USER, GROUP], 2) is GROUP
    assert too_few_tasks([ROOMY, USER], 2) is None
    assert too_few_tasks([Limit(Kind.FILES, 1, 1)], 2) is None


@pytest.mark.parametrize(("processes", "words"), [(1, "1 process"), (2, "2 processes")])
def test_what_surely_cannot_be_started_is_refused_with_the_limit_and_its_place(
    monkeypatch: pytest.MonkeyPatch, processes: int, words: str
) -> None:
    full = Limit(Kind.GROUP_TASKS, 64, 64, "/sys/fs/cgroup/pod")
    monkeypatch.setattr(reading, "task_limits", lambda: iter([ROOMY, full]))
    expected = (f"{words} cannot be started here: {full.words}", full.hint)
    assert reading.too_few(processes) == expected


def test_an_error_in_words_stays_itself() -> None:
    error = RdzvError("known")
    assert reading.named(error) is error
    bug = KeyError("a bug")
    assert reading.named(bug) is bug


def test_nothing_to_look_with_is_no_second_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> list[Limit]:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(reading, "read_limits", broken)
    assert isinstance(reading.named(MemoryError()), ArmingFailed)


STATUS = "Name:\tx\nVmSize:\t 2048 kB\nVmData:\t 1024 kB\nUid:\t{0}\t{0}\t{0}\t{0}\nThreads:\t{1}\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine whose user has seven threads in a group of version 2 below a limited one."""
    user = os.getuid()
    (tmp_path / "proc/self").mkdir(parents=True)
    for pid, threads, owner in ((10, 4, user), (11, 3, user), (12, 50, user + 1)):
        (tmp_path / f"proc/{pid}").mkdir()
        (tmp_path / f"proc/{pid}/status").write_text(STATUS.format(owner, threads))
    (tmp_path / "proc/self/status").write_text(STATUS.format(user, 4) + "CapEff:\t0000000000\n")
    (tmp_path / "proc/self/uid_map").write_text("0 1000 1\n")
    (tmp_path / "proc/self/cgroup").write_text("0::/pod/job\n")
    (tmp_path / "proc/self/mountinfo").write_text(
        "30 25 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    )
    for name, limit, used in (("pod", "64", "9"), ("pod/job", "max", "7")):
        folder = tmp_path / "sys/fs/cgroup" / name
        folder.mkdir(parents=True)
        (folder / "pids.max").write_text(limit)
        (folder / "pids.current").write_text(used)
    (tmp_path / "proc/loadavg").write_text("0.00 0.01 0.05 2/381 999\n")
    kernel = tmp_path / "proc/sys/kernel"
    kernel.mkdir(parents=True)
    (kernel / "threads-max").write_text("192000\n")
    return tmp_path


def test_limits_are_read_with_what_is_used(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {resource.RLIMIT_NPROC: 20, resource.RLIMIT_AS: 4 << 20, resource.RLIMIT_FSIZE: 512}
    monkeypatch.setattr(reading, "soft_limit", values.get)
    found = {one.kind: one for one in reading.read_limits(root)}
    assert (found[Kind.USER_TASKS].value, found[Kind.USER_TASKS].used) == (20, 7)
    assert found[Kind.GROUP_TASKS] == Limit(Kind.GROUP_TASKS, 64, 9, "/sys/fs/cgroup/pod")
    assert found[Kind.MACHINE_TASKS] == Limit(
        Kind.MACHINE_TASKS, 192_000, 381, "kernel.threads-max"
    )
    assert found[Kind.ADDRESS_SPACE].left == 2 << 20
    assert found[Kind.FILE_SIZE].value == 512


def test_the_machines_own_root_has_no_limit_of_processes(root: Path) -> None:
    (root / "proc/self/uid_map").write_text("0 0 4294967295\n")
    assert reading.is_exempt(0, root)
    assert not reading.is_exempt(1001, root)
    (root / "proc/self/status").write_text("CapEff:\t0000000001000000\n")
    assert reading.is_exempt(1001, root)
    (root / "proc/self/uid_map").write_text("0 1000 65536\n")
    assert not reading.is_exempt(0, root)  # a container's root is a user of the machine


def test_a_user_without_a_name_has_its_number() -> None:
    assert reading._user_name(3_999_999) == "user 3999999"
