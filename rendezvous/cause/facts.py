"""The facts that a node may tell of a failure, and what their amounts mean. Pure.

A fact beats a line of output, and a line beats a guess.
"""

from __future__ import annotations

from rendezvous.enums import StrEnum


class FactKind(StrEnum):
    """What a fact says; the fields of `rendezvous.wire.evidence.Fact` that it fills."""

    OOM_KILL = "oom_kill"
    """The kernel has killed processes of the node's control group for memory since the program
    began: `value` of them; `limit` bytes are the group's limit, 0 for none; `path` the group;
    `words` is the kernel's own line, or `peak` and the most bytes that the group has had."""
    OOM_MACHINE = "oom_machine"
    """The kernel has killed processes for memory since then, of this machine, and none is known of
    the control group: `value` of them; `limit` bytes is the machine's memory; `words` is the
    kernel's own line, where it can be read."""
    PIDS = "pids"
    """The group's limit of processes and threads was met since then: `value` times; `limit`."""
    SPACE = "space"
    """A file system has less than 1 MiB, or a thousandth, free: `value` bytes free of `limit`;
    `path` is where it is mounted."""
    INODES = "inodes"
    """A file system has no inode left: `value` are free of `limit`; `path` as above."""
    SHARED_MEMORY = "shared_memory"
    """Shared memory, /dev/shm: `value` of `limit` bytes are free, after the ranks' ends; it is
    always told."""
    RLIMIT = "rlimit"
    """A limit of the program's processes: `path` is nofile, nproc, fsize, as, memlock or cpu;
    `limit`; without a rank it is that of all; of nproc `value` threads of the user were there."""
    PORT = "port"
    """Who listens on a port that the program could not have, or is connected from it: `value`;
    `words` names the process."""
    STATE = "state"
    """A process of the rank was stopped (T) or waited for a disk (D): `words` is the letter and
    what it waits in; `value` its pid."""
    KERNEL = "kernel"
    """A line of the kernel's log since then that names a GPU's error (Xid): `words`."""
    GPU = "gpu"
    """A GPU's own counters: `path` its uuid, `words` ecc or throttled, `value` how many, or the
    reasons' bits (8 slowed down, 64 too hot, 128 too little power); other `words` are the driver's
    on a GPU that cannot be used, whose `path` may be its number."""
    FILES = "files"
    """A path that the program named does not answer: `path`; `words` is why."""
    REMOVED = "removed"
    """A variable of this node that rdzv keeps from the program, which names it: `path`."""
