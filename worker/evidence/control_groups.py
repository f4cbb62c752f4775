"""Reads what the control groups of some processes have counted, of both versions."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rendezvous.frozen import frozen
from worker.machine import sysfs
from worker.machine.groups import (
    Chain,
    Watched,
    chains_of,
    counter_in,
    droppable_in,
    limit_in,
    mounts_in,
)


@frozen
class Controller:
    """What is watched of a group: the names of its files, in version 2 and in version 1."""

    name: str
    events: tuple[str, ...]
    counter: str
    limit: tuple[str, ...]
    peak: tuple[str, ...]


MEMORY = Controller(
    "memory",
    ("memory.events", "memory.oom_control"),
    "oom_kill",
    ("memory.max", "memory.limit_in_bytes"),
    ("memory.peak", "memory.max_usage_in_bytes"),
)
PIDS = Controller("pids", ("pids.events",), "max", ("pids.max",), ("pids.peak",))
_USED = ("memory.current", "memory.usage_in_bytes")
_HIGH = "memory.high"
_MOST_GROUPS = 64


def watched(
    controller: Controller,
    processes: Iterable[int | str],
    *,
    known: Iterable[Chain] = (),
    root: Path = Path("/"),
) -> Watched:
    """The groups of the processes (`self` is this one), and all above them that can be seen.

    Args:
        controller: What is watched.
        processes: Those that are gone have no groups; of too many groups the first ones count.
        known: Groups that are looked at again.
        root: The directory that holds `sys` and `proc`.
    """
    mounts = mounts_in(sysfs.content(root / "proc/self/mountinfo"))
    texts = dict.fromkeys(sysfs.content(root / f"proc/{one}/cgroup") for one in processes)
    found = [chain for text in texts for chain in chains_of(text, mounts, controller.name)]
    chains = tuple(dict.fromkeys([*known, *found]))[:_MOST_GROUPS]
    counts, limits, peaks = {}, {}, {}
    for folder in dict.fromkeys(folder for chain in chains for folder in chain):
        place = root / folder.lstrip("/")
        counts[folder] = counter_in(
            sysfs.first_content(place, controller.events), controller.counter
        )
        limits[folder] = limit_in(sysfs.first_content(place, controller.limit))
        peaks[folder] = limit_in(sysfs.first_content(place, controller.peak))
    return Watched(chains, _known(counts), _known(limits), _known(peaks))


def _known(values: dict[str, int | None]) -> dict[str, int]:
    return {folder: value for folder, value in values.items() if value is not None}


def memory_chain(root: Path = Path("/")) -> Chain:
    """The groups that may limit the memory of this process, its own first; none that can be seen:
    empty."""
    mounts = mounts_in(sysfs.content(root / "proc/self/mountinfo"))
    chains = chains_of(sysfs.content(root / "proc/self/cgroup"), mounts, MEMORY.name)
    return chains[0] if chains else ()


def limited_memory(chain: Chain, root: Path = Path("/")) -> tuple[int, int] | None:
    """What is used of the narrowest limit above a group, and the limit; None: there is none.

    Above memory.high the kernel holds processes back instead of killing them: no more can be used.
    """
    limits: list[tuple[int, Path]] = []
    for folder in chain:
        place = root / folder.lstrip("/")
        found = (sysfs.first_content(place, MEMORY.limit), sysfs.content(place / _HIGH))
        limits += [(limit, place) for text in found if (limit := limit_in(text)) is not None]
    if not limits:
        return None
    limit, place = min(limits, key=lambda one: one[0])
    used = limit_in(sysfs.first_content(place, _USED)) or 0
    return max(0, used - droppable_in(sysfs.content(place / "memory.stat"))), limit
