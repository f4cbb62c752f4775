"""Reads how many CPUs this process can use: fewer than the machine has, where a CPU set or the
quota of a control group says so."""

from __future__ import annotations

import math
import os
from pathlib import Path

from rendezvous.frozen import frozen
from worker.machine import sysfs
from worker.machine.groups import chains_of, cpus_in, mounts_in

_QUOTA_V1 = ("cpu.cfs_quota_us", "cpu.cfs_period_us")


@frozen
class Cpus:
    """The CPUs of a machine.

    Attributes:
        count: Those that can be used, at least 1; a part of one counts as one.
        machine: All that there are.
        why: What holds back the others; empty where nothing does.
    """

    count: int
    machine: int
    why: str = ""

    @property
    def words(self) -> str:
        """`8 CPUs`, or `2 of 8 CPUs (...)` with what holds back the others."""
        plural = "s" * (self.machine != 1)
        if self.count >= self.machine:
            return f"{self.machine} CPU{plural}"
        return f"{self.count} of {self.machine} CPU{plural} ({self.why})"


def count_cpus() -> int:
    """Count the CPUs that this process can use, at least 1."""
    return read_cpus().count


def read_cpus(root: Path = Path("/")) -> Cpus:
    """Count them: the narrowest of the CPU set and of the quotas of all groups above."""
    machine = os.cpu_count() or 1
    least = Cpus(machine, machine)
    allowed = len(os.sched_getaffinity(0))
    if allowed < machine:
        least = Cpus(max(1, allowed), machine, "its CPU set: cpuset or taskset")
    mounts = mounts_in(sysfs.content(root / "proc/self/mountinfo"))
    for chain in chains_of(sysfs.content(root / "proc/self/cgroup"), mounts, "cpu"):
        for folder in chain:
            place = root / folder.lstrip("/")
            name, quota = quota_of(place)
            cpus = cpus_in(quota)
            if cpus is not None and (count := math.ceil(cpus)) < least.count:
                why = f"{name} of the control group {folder} allows {cpus:g}"
                least = Cpus(count, machine, why)
    return least


def quota_of(group: Path) -> tuple[str, str]:
    """Read a group's quota: the file's name, and quota and period; empty where it has none."""
    if quota := sysfs.content(group / "cpu.max"):
        return "cpu.max", quota
    parts = (sysfs.content(group / name).strip() for name in _QUOTA_V1)
    return _QUOTA_V1[0], " ".join(parts).strip()
