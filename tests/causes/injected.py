"""The causes of a training program's failure that this machine can really make, as data."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.causes import programs
from tests.support.disks import run

CAUSES = {
    1: "memory_limit",
    2: "machine_memory",
    3: "killed",
    4: "terminated",
    5: "time_limit",
    6: "evicted",
    7: "bus_error",
    8: "shared_memory",
    9: "loader_worker",
    10: "segfault",
    11: "abort",
    12: "exception",
    13: "exception",
    14: "import_error",
    15: "shared_library",
    16: "file_missing",
    17: "permission",
    18: "disk_full",
    19: "disk_full",
    20: "file_limit",
    21: "inodes",
    22: "open_files",
    23: "threads",
    24: "address_space",
    25: "locked_memory",
    26: "port_taken",
    27: "name_resolution",
    28: "exception",
    29: "size_mismatch",
    30: "desync",
    31: "absent_rank",
    32: "early_end",
    33: "nccl_timeout",
    34: "watchdog_stuck",
    35: "peer_gone",
    36: "ib_path",
    37: "ib_queue_pair",
    38: "cuda_memory",
    39: "cuda_fault",
    40: "gpu_ecc",
    41: "gpu_xid",
    42: "gpu_slow",
    43: "filesystem_gone",
    44: "exit_code",
    45: "stopped_process",
    46: "keeper_killed",
    47: "exception",
    48: "late_rank",
}
"""What a row of the catalogue is called in a result."""

By = tuple[str, ...]
"""The words in front of what is started."""
SetUp = Callable[[Path], AbstractContextManager[By]]


@contextmanager
def nothing(folder: Path) -> Iterator[By]:
    """The program alone is to blame."""
    yield ()


def small_disk(options: str) -> SetUp:
    """A file system in memory, at `FOLDER/disk`."""

    @contextmanager
    def set_up(folder: Path) -> Iterator[By]:
        disk = folder / "disk"
        disk.mkdir()
        run("mount", "-t", "tmpfs", "-o", f"mode=1777,{options}", "tmpfs", str(disk))
        try:
            yield ()
        finally:
            run("umount", "--lazy", str(disk))

    return set_up


@contextmanager
def broken_disk(folder: Path) -> Iterator[By]:
    """An ext4 file system at `FOLDER/disk` that has lost its device under a file."""
    disk, image = folder / "disk", folder / "image"
    disk.mkdir()
    image.touch()
    os.truncate(image, 24 << 20)
    run("mkfs.ext4", "-q", "-O", "^has_journal", str(image))
    run("mount", "-o", "loop", str(image), str(disk))
    try:
        (disk / "batches").write_bytes(bytes(1 << 20))
        run("mount", "-o", "remount,ro", str(disk))
        os.truncate(image, 0)
        Path("/proc/sys/vm/drop_caches").write_text("1")
        yield ()
    finally:
        run("umount", "--lazy", str(disk))


def small_shm(options: str) -> SetUp:
    """A small /dev/shm for all of the launch."""

    @contextmanager
    def set_up(folder: Path) -> Iterator[By]:
        yield in_own_mounts(f"mount -t tmpfs -o {options} shm /dev/shm")

    return set_up


@contextmanager
def no_resolver(folder: Path) -> Iterator[By]:
    """No name server answers."""
    (folder / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
    yield in_own_mounts(f"mount --bind {folder}/resolv.conf /etc/resolv.conf")


def in_own_mounts(command: str) -> By:
    """What starts something for which alone `command` has mounted something."""
    return ("unshare", "--mount", "sh", "-c", f'{command} && exec "$@"', "sh")


def memory_limit(mebibytes: int) -> SetUp:
    """All of the launch in one memory cgroup, as in a container."""

    @contextmanager
    def set_up(folder: Path) -> Iterator[By]:
        with _cgroup("memory", f"rdzv-{folder.name}-{os.getpid()}") as group:
            names = ("memory.limit_in_bytes", "memory.max")
            [limit] = [group / name for name in names if (group / name).exists()]
            limit.write_text(str(mebibytes << 20))
            yield ("sh", "-c", f'echo $$ >{group}/cgroup.procs && exec "$@"', "sh")

    return set_up


@contextmanager
def few_threads(folder: Path) -> Iterator[By]:
    """A pids cgroup, `FOLDER/cgroup`, for the guilty rank to join."""
    with _cgroup("pids", f"rdzv-{folder.name}-{os.getpid()}") as group:
        (group / "pids.max").write_text("32")
        (folder / "cgroup").symlink_to(group)
        yield ()


@contextmanager
def _cgroup(controller: str, name: str) -> Iterator[Path]:
    place = _cgroup_root(controller)
    assert place is not None
    (place / name).mkdir()
    try:
        yield place / name
    finally:
        _remove_cgroup(place / name)


def _cgroup_root(controller: str) -> Path | None:
    """Where groups of this controller are made; None where that is not possible."""
    first, second = Path("/sys/fs/cgroup", controller), Path("/sys/fs/cgroup")
    if first.is_dir():
        return first if os.access(first, os.W_OK) else None
    control = second / "cgroup.subtree_control"
    has = control.exists() and controller in control.read_text().split()
    return second if has and os.access(second, os.W_OK) else None


def _remove_cgroup(group: Path) -> None:
    """What is left in it is given back to the group above; an empty one can be removed."""
    for pid in (group / "cgroup.procs").read_text().split():
        (group.parent / "cgroup.procs").write_text(pid)
    group.rmdir()


@contextmanager
def missing_library(folder: Path) -> Iterator[By]:
    """A module of Python, `FOLDER/modules/fused_optimizer`, linked to what is not there."""
    modules = folder / "modules"
    modules.mkdir()
    (modules / "empty.c").write_text("int libempty;\n")
    library, module = modules / "libcudart.so.12", modules / "fused_optimizer.so"
    run("gcc", "-shared", "-o", str(library), str(modules / "empty.c"))
    source = str(modules / "empty.c")
    linked = ("-Wl,--no-as-needed", "-L", str(modules), "-l:libcudart.so.12")
    run("gcc", "-shared", "-o", str(module), source, *linked)
    library.unlink()
    yield ()


@contextmanager
def secret_file(folder: Path) -> Iterator[By]:
    """A file that root alone may read, though all may look where it lies."""
    (folder / "secret").mkdir()
    (folder / "secret" / "tokens.bin").write_bytes(b"x")
    (folder / "secret" / "tokens.bin").chmod(0o600)
    for above in (folder, *folder.parents):
        if above.owner() == "root" and len(above.parts) > 2:
            above.chmod(above.stat().st_mode | 0o111)
    yield ()


@dataclass(frozen=True)
class Case:
    """A fault, the rank that meets it, and what this machine needs to make it.

    Attributes:
        row: Of the catalogue.
        name: In the catalogue's row, of this way to fail.
        program: The source text.
        others: What the innocent meet; empty where they only work on until they are told to stop.
        by: Makes what the program needs.
        env: Variables of the launch.
        needs: Programs.
        guilty: The one to blame, of two and of four ranks.
        controller: The cgroups that it needs.
        cause: What a result must name, where it is not the row's cause.
        says: Printed on the node of the guilty one; empty where nothing is.
        code: The guilty rank's exit code; 0 where it ends well, or is told to end.
        each: Ranks on each of two nodes.
        bare: Whether it is started by rdzv itself, without torchrun.
        shows_whom: Whether anything tells the guilty from the others.
        alone: Whether it can happen without rdzv.
    """

    row: int
    name: str
    program: str
    others: str = ""
    by: SetUp = nothing
    env: dict[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    controller: str = ""
    guilty: dict[int, int] = field(default_factory=lambda: {2: 1, 4: 2})
    cause: str = ""
    says: str = ""
    code: int = 1
    each: int = 1
    bare: bool = False
    shows_whom: bool = True
    alone: bool = True

    @property
    def expected(self) -> str:
        """The cause that a result must name."""
        return self.cause or CAUSES[self.row]

    @property
    def has_rank(self) -> bool:
        """Whether it is a rank of torchrun that fails, whose number is known."""
        return not self.bare and self.row != 46

    def why_not(self) -> str | None:
        """Why this machine cannot make it; None when it can."""
        if os.geteuid() != 0 and self.by is not nothing:
            return "this fault needs root"
        missing = [program for program in self.needs if shutil.which(program) is None]
        if missing:
            return f"this fault needs: {', '.join(missing)}"
        if self.controller and _cgroup_root(self.controller) is None:
            return f"no cgroup of {self.controller} can be made here"
        return None


FAULTHANDLER = {"PYTHONFAULTHANDLER": "1"}
MOUNTS = ("mount", "umount", "unshare")
TWO_MB = small_disk("size=2m")
TIMED_OUT = "timed out waiting in gloo"
CLOSED = "connection closed by peer, in gloo"
STORE = "DistStoreError: wait timeout"
MISMATCH = "size mismatch, or connection reset by peer, in gloo"
MONITORED = "failed to pass monitoredBarrier"
PREAMBLE = "op.preamble.length <= op.nbytes"
FIRST = {2: 0, 4: 0}

CASES = [
    Case(
        1,
        "memory-limit",
        programs.MEMORY_LIMIT,
        by=memory_limit(1000),
        controller="memory",
        code=137,
        bare=True,
    ),
    Case(3, "killed", programs.KILLED, code=137, bare=True),
    Case(4, "terminated", programs.TERMINATED, code=143),
    Case(7, "bus-error", programs.BUS_ERROR, by=TWO_MB, needs=MOUNTS, code=135),
    Case(
        7,
        "bus-error-faulthandler",
        programs.BUS_ERROR,
        by=TWO_MB,
        needs=MOUNTS,
        env=FAULTHANDLER,
        code=135,
        says="Fatal Python error: Bus error",
    ),
    Case(
        8,
        "shared-memory",
        programs.SHARED_MEMORY,
        by=small_shm("size=4m"),
        needs=MOUNTS,
        says="unable to allocate shared memory(shm)",
    ),
    Case(
        9,
        "loader-killed",
        programs.LOADER_WORKER,
        cause="killed",
        says="is killed by signal: Killed",
    ),
    Case(
        9,
        "loader-segfault",
        programs.LOADER_SEGFAULT,
        says="is killed by signal: Segmentation fault",
    ),
    Case(
        9,
        "loader-exception",
        programs.LOADER_EXCEPTION,
        cause="exception",
        says="Caught OSError in DataLoader worker process",
    ),
    Case(
        9,
        "loader-memory",
        programs.LOADER_MEMORY,
        by=memory_limit(3000),
        controller="memory",
        cause="memory_limit",
        says="is killed by signal: Killed",
    ),
    Case(10, "segfault", programs.SEGFAULT, code=139, bare=True),
    Case(
        10,
        "segfault-faulthandler",
        programs.SEGFAULT,
        env=FAULTHANDLER,
        code=139,
        says="Fatal Python error: Segmentation fault",
    ),
    Case(11, "abort", programs.ABORT, code=134),
    Case(
        11,
        "cpp-exception",
        programs.CPP_EXCEPTION,
        code=134,
        says="what():  tokenizer: vocabulary is empty",
    ),
    Case(
        12,
        "exception-gloo",
        programs.EXCEPTION_GLOO,
        CLOSED,
        each=2,
        says="ValueError: loss is nan",
    ),
    Case(
        12,
        "exception-async",
        programs.EXCEPTION_ASYNC,
        CLOSED,
        each=2,
        says="ValueError: loss is nan",
    ),
    Case(
        12,
        "exception-abort",
        programs.EXCEPTION_ABORT,
        code=134,
        says="terminate called without an active exception",
    ),
    Case(13, "exception", programs.EXCEPTION, bare=True, says="ValueError: sample 17"),
    Case(14, "import-error", programs.IMPORT_ERROR, says="ModuleNotFoundError: No module named"),
    Case(
        15,
        "shared-library",
        programs.SHARED_LIBRARY,
        by=missing_library,
        needs=("gcc",),
        says="ImportError: libcudart.so.12",
    ),
    Case(16, "file-missing", programs.FILE_MISSING, says="FileNotFoundError: [Errno 2]"),
    Case(17, "permission", programs.PERMISSION, by=secret_file, says="PermissionError: [Errno 13]"),
    Case(
        18,
        "disk-full-save",
        programs.DISK_FULL_SAVE,
        by=TWO_MB,
        needs=MOUNTS,
        says="unexpected pos",
    ),
    Case(
        19,
        "disk-full",
        programs.DISK_FULL,
        by=TWO_MB,
        needs=MOUNTS,
        bare=True,
        says="[Errno 28] No space left",
    ),
    Case(20, "file-limit", programs.FILE_LIMIT, says="[Errno 27] File too large"),
    Case(20, "file-limit-save", programs.FILE_LIMIT_SAVE, says="unexpected pos"),
    Case(
        21,
        "inodes",
        programs.INODES,
        by=small_disk("nr_inodes=100"),
        needs=MOUNTS,
        says="[Errno 28] No space left",
    ),
    Case(22, "open-files", programs.OPEN_FILES, says="[Errno 24] Too many open files"),
    Case(
        23,
        "threads",
        programs.THREADS,
        by=few_threads,
        controller="pids",
        says="can't start new thread",
    ),
    Case(
        24,
        "address-space",
        programs.ADDRESS_SPACE,
        says="DefaultCPUAllocator: can't allocate memory",
    ),
    Case(24, "address-space-python", programs.ADDRESS_SPACE_PYTHON, says="MemoryError"),
    Case(26, "port-taken", programs.PORT_TAKEN, says="[Errno 98] Address already in use"),
    Case(26, "port-taken-http", programs.PORT_TAKEN_HTTP, says="[Errno 98] Address already in use"),
    Case(
        27,
        "name-resolution",
        programs.NAME_RESOLUTION,
        by=no_resolver,
        needs=MOUNTS,
        says="socket.gaierror: [Errno -3]",
    ),
    Case(
        27,
        "name-url",
        programs.NAME_URL,
        by=no_resolver,
        needs=MOUNTS,
        says="<urlopen error [Errno -3]",
    ),
    Case(28, "recursion", programs.RECURSION, says="RecursionError: maximum recursion depth"),
    Case(
        29,
        "size-mismatch",
        programs.SIZE_MISMATCH,
        MISMATCH,
        each=2,
        code=134,
        says=PREAMBLE,
        shows_whom=False,
    ),
    Case(
        29,
        "size-mismatch-larger",
        programs.SIZE_MISMATCH_LARGER,
        MISMATCH,
        each=2,
        code=0,
        shows_whom=False,
    ),
    Case(
        29,
        "shape-mismatch",
        programs.SHAPE_MISMATCH,
        MISMATCH,
        each=2,
        code=134,
        says=PREAMBLE,
        shows_whom=False,
    ),
    Case(30, "desync-barrier", programs.DESYNC, TIMED_OUT, each=2, code=0, shows_whom=False),
    Case(
        30,
        "desync-broadcast",
        programs.DESYNC_BROADCAST,
        TIMED_OUT,
        each=2,
        code=0,
        shows_whom=False,
    ),
    Case(31, "absent-rank", programs.ABSENT_SLEEP, TIMED_OUT, each=2, code=0),
    Case(31, "absent-lock", programs.ABSENT_LOCK, TIMED_OUT, each=2, code=0),
    Case(31, "absent-monitored", programs.ABSENT_MONITORED, MONITORED, each=2, code=0),
    Case(32, "early-end", programs.EARLY_END, CLOSED, each=2, code=0),
    Case(32, "early-end-tidy", programs.EARLY_END_TIDY, CLOSED, each=2, code=0, shows_whom=False),
    Case(32, "early-end-before", programs.EARLY_END_BEFORE, STORE, each=2, code=0),
    Case(32, "early-end-before-0", programs.EARLY_END_BEFORE, STORE, each=2, code=0, guilty=FIRST),
    Case(35, "peer-killed", programs.PEER_KILLED, CLOSED, each=2, cause="killed", code=137),
    Case(
        35,
        "peer-killed-0",
        programs.PEER_KILLED,
        CLOSED,
        each=2,
        cause="killed",
        code=137,
        guilty=FIRST,
    ),
    Case(35, "peer-exit", programs.PEER_EXIT, CLOSED, each=2, cause="exit_code", code=7),
    Case(35, "peer-segfault", programs.PEER_SEGFAULT, CLOSED, each=2, cause="segfault", code=139),
    Case(
        43,
        "disk-error",
        programs.DISK_ERROR,
        by=broken_disk,
        needs=(*MOUNTS, "mkfs.ext4"),
        says="[Errno 5] Input/output error",
    ),
    Case(44, "exit-code", programs.EXIT_CODE, code=7),
    Case(44, "sys-exit", programs.SYS_EXIT, bare=True, says="no checkpoint to resume from"),
    # A stopped process ends with its grace, later than the verdict falls.
    Case(45, "stopped", programs.STOPPED, TIMED_OUT, each=2, code=0, shows_whom=False),
    Case(46, "torchrun-killed", programs.PARENT_KILLED, code=137, cause="killed"),
    Case(
        46,
        "keeper-killed",
        programs.PARENT_KILLED,
        code=137,
        bare=True,
        alone=False,
        cause="killed",
    ),
    Case(47, "nan-guard", programs.NAN_GUARD, says="FloatingPointError: loss is nan"),
    Case(48, "late-rank", programs.LATE, STORE, each=2, code=0),
    Case(48, "late-rank-0", programs.LATE, STORE, each=2, code=0, guilty=FIRST),
]
"""Each is one row of the catalogue, in one of the ways in which it happens."""
QUICK = ("memory-limit", "segfault", "exception")
"""Without torch, each of its own kind: they run whenever faults are tested; all others by night."""
