"""Reads what the control groups of some processes hold them back with: a freezer, memory, CPUs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from features.hang.ranks.held_back import Group
from worker.machine import sysfs
from worker.machine.cpus import quota_of
from worker.machine.groups import chains_of, mounts_in

_MOST_GROUPS = 32
_FILES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "freezer": {"frozen": ("cgroup.events", "freezer.state")},
    "cpu": {"cpu": ("cpu.stat",)},
    "memory": {
        "memory": ("memory.events",),
        "high": ("memory.high",),
        "oom": ("memory.oom_control",),
    },
}


def read_groups(pids: Iterable[int], root: Path = Path("/")) -> dict[str, Group]:
    """The groups of these processes and all above them that can be seen, by folder.

    Args:
        pids: Those that are gone have no groups.
        root: The directory that holds `sys` and `proc`.
    """
    mounts = mounts_in(sysfs.content(root / "proc/self/mountinfo"))
    texts = dict.fromkeys(sysfs.content(root / f"proc/{pid}/cgroup") for pid in pids)
    found: dict[str, dict[str, str]] = {}
    for controller, files in _FILES.items():
        chains = [chain for text in texts for chain in chains_of(text, mounts, controller)]
        for folder in dict.fromkeys(folder for chain in chains for folder in chain):
            place = root / folder.lstrip("/")
            found.setdefault(folder, {}).update(
                {name: sysfs.first_content(place, names) for name, names in files.items()}
            )
            if controller == "cpu":
                _, found[folder]["quota"] = quota_of(place)
    return {folder: Group(**texts) for folder, texts in [*found.items()][:_MOST_GROUPS]}
