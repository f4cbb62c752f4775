"""What the kernel grants to this process and tells of this machine. It only looks.

Everything may be missing: a container hides files, and a sandboxed kernel lacks calls.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import resource
from collections.abc import Iterable
from pathlib import Path

from rendezvous.frozen import frozen
from worker.machine import limits, sysfs
from worker.machine.cpus import Cpus, read_cpus
from worker.machine.limits import soft_limit
from worker.machine.shortage import Limit

_IPC_LOCK = 1 << 14
_WHOLE_MACHINE = ["0", "0", "4294967295"]
_UNSYNCHRONISED, _TIME_ERROR = 0x40, 5
_PEER_MEMORY = (
    "sys/module/nvidia_peermem",
    "sys/kernel/mm/memory_peers/nv_mem/version",
    "sys/kernel/mm/memory_peers/nv_mem_nc/version",
)
_DRIVER = re.compile(r"Kernel Module\b.*?\s([0-9]+\.[0-9.]+)")
_MEMORY = re.compile(r"^MemTotal: +([0-9]+) kB", re.MULTILINE)
_AVAILABLE = re.compile(r"^MemAvailable: +([0-9]+) kB", re.MULTILINE)


@frozen
class ResourceLimits:
    """What the program inherits; None is unlimited.

    Attributes:
        memlock_bytes: Memory that may be pinned.
        may_lock: It has CAP_IPC_LOCK where it counts, so that the former does not matter.
        files: Open files.
        cpu_seconds: CPU time of each process.
        others: What rdzv itself may meet, too, with how far it is used.
    """

    memlock_bytes: int | None
    may_lock: bool
    files: int | None
    stack_bytes: int | None
    cpu_seconds: int | None = None
    others: tuple[Limit, ...] = ()
    cpus: Cpus | None = None


@frozen
class Clock:
    """The machine's clock, as the kernel's time keeping judges it."""

    is_synchronised: bool
    error_seconds: float


@frozen
class Arp:
    """How an interface treats ARP for the addresses of others; 0 is the kernel's default."""

    ignore: int = 0
    announce: int = 0


def read_limits(root: Path = Path("/")) -> ResourceLimits:
    """The limits of this process, which its children inherit."""
    return ResourceLimits(
        memlock_bytes=soft_limit(resource.RLIMIT_MEMLOCK),
        may_lock=_may_lock(root),
        files=soft_limit(resource.RLIMIT_NOFILE),
        stack_bytes=soft_limit(resource.RLIMIT_STACK),
        cpu_seconds=soft_limit(resource.RLIMIT_CPU),
        others=tuple(limits.read_limits(root)),
        cpus=read_cpus(root),
    )


def read_clock() -> Clock | None:
    """Ask adjtimex, which needs no privilege for it; None where there is no such call."""
    timex = (ctypes.c_long * 64)()  # modes 0 = read; offset, freq, maxerror, esterror, status
    try:
        state = ctypes.CDLL(None).adjtimex(timex)
    except (OSError, AttributeError):
        return None
    if state < 0:
        return None
    unsynchronised = state == _TIME_ERROR or timex[5] & _UNSYNCHRONISED
    return Clock(not unsynchronised, timex[3] / 1e6)


def read_arp(names: Iterable[str], root: Path = Path("/")) -> dict[str, Arp]:
    """By interface; of the interface's own and the common value the larger one counts."""
    folder = root / "proc/sys/net/ipv4/conf"

    def value(name: str, file: str) -> int:
        return max(sysfs.number(folder / place / file, 0) for place in ("all", name))

    return {
        name: Arp(value(name, "arp_ignore"), value(name, "arp_announce"))
        for name in names
        if os.path.isdir(folder / name)
    }


def reaches_gpu_memory(root: Path = Path("/")) -> bool:
    """Whether network cards may be given GPU memory: by nvidia_peermem, or the open driver."""
    open_driver = "Open Kernel Module" in sysfs.content(root / "proc/driver/nvidia/version")
    return open_driver or any(os.path.exists(root / name) for name in _PEER_MEMORY)


def driver_version(root: Path = Path("/")) -> str:
    """The NVIDIA driver's version; empty without one."""
    found = _DRIVER.search(sysfs.content(root / "proc/driver/nvidia/version"))
    return found[1] if found else ""


def memory_bytes(root: Path = Path("/")) -> int:
    """The machine's memory; 0 when unknown."""
    return memory_and_available(root)[0]


def memory_and_available(root: Path = Path("/")) -> tuple[int, int]:
    """The machine's memory in bytes, and what of it programs can still get; 0 when unknown."""
    text = sysfs.content(root / "proc/meminfo")
    total, free = _MEMORY.search(text), _AVAILABLE.search(text)
    return (int(total[1]) * 1024 if total else 0), (int(free[1]) * 1024 if free else 0)


def vendor(root: Path = Path("/")) -> str:
    """Who made the machine, or the cloud that pretends to be one."""
    return sysfs.text(root / "sys/class/dmi/id/sys_vendor")


def _may_lock(root: Path) -> bool:
    """The kernel asks for the capability in the user namespace of the machine itself."""
    status = sysfs.content(root / "proc/self/status")
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    has = bool(found and int(found[1], 16) & _IPC_LOCK)
    return has and sysfs.content(root / "proc/self/uid_map").split() == _WHOLE_MACHINE


def ephemeral_range() -> tuple[int, int]:
    """The ports that the kernel gives to outgoing connections, both ends included."""
    try:
        low, high = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
        return int(low), int(high)
    except (OSError, ValueError):
        return 32_768, 60_999


def reserved_ports(root: Path = Path("/")) -> list[int]:
    """The ports that an administrator has kept for programs which ask for them by number."""
    found: list[int] = []
    with contextlib.suppress(OSError, ValueError):
        text = (root / "proc/sys/net/ipv4/ip_local_reserved_ports").read_text()
        for word in filter(None, text.strip().split(",")):
            first, _, last = word.partition("-")
            found += range(int(first), int(last or first) + 1)
    return found
