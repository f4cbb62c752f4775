"""Control groups of both versions: where a process's groups are, and which has met a limit. Pure.

A *chain* is the folders of a group and of all above it that can be seen, its own first. In version
2 a group counts what happens below it, too; in version 1 it does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import TypeAlias

from rendezvous.frozen import frozen

Chain: TypeAlias = tuple[str, ...]

UNLIMITED = 10**18
"""What the kernel says for no limit is at least this, and a message holds no more."""

_ESCAPED = re.compile(r"\\([0-7]{3})")


@frozen
class Mount:
    """Where a hierarchy of groups can be seen.

    Attributes:
        controllers: Of version 1; None for version 2.
        root: The group that is seen at `point`.
    """

    controllers: frozenset[str] | None
    root: str
    point: str


@frozen
class Watched:
    """Groups, and what they have counted; `limits` and `peaks` are those that exist."""

    chains: tuple[Chain, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    peaks: Mapping[str, int] = field(default_factory=dict)


@frozen
class Rise:
    """A group that has counted something meanwhile; `limit` is 0 where there is none."""

    folder: str
    times: int
    limit: int = 0
    peak: int = 0


def mounts_in(mountinfo: str) -> list[Mount]:
    """The hierarchies that /proc/PID/mountinfo shows, those of version 1 first."""
    found = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(" "), after.split(" ")
        if len(fields) < 5 or len(kinds) < 3 or kinds[0] not in ("cgroup", "cgroup2"):
            continue
        controllers = frozenset(kinds[2].split(",")) if kinds[0] == "cgroup" else None
        found.append(Mount(controllers, _plain(fields[3]), _plain(fields[4])))
    return sorted(found, key=lambda mount: mount.controllers is None)


def chains_of(groups: str, mounts: Iterable[Mount], controller: str) -> list[Chain]:
    """The chains of a process, from its /proc/PID/cgroup, that may limit what a controller counts.

    There is one in the hierarchy of version 1 that has the controller, or that of version 2; where
    both are mounted, version 1 has it.
    """
    paths = dict(_paths(groups))
    for mount in mounts:
        if mount.controllers is None:
            path = paths.get("")
        else:
            path = paths.get(controller) if controller in mount.controllers else None
        if path is not None and (chain := _chain(path, mount)):
            return [chain]
    return []


def counter_in(text: str, name: str) -> int | None:
    """A line `NAME NUMBER` of memory.events, memory.oom_control, pids.events, /proc/vmstat."""
    found = re.search(rf"^{name} ([0-9]+)$", text, re.MULTILINE)
    return int(found[1]) if found else None


def limit_in(text: str) -> int | None:
    """A limit or an amount; None for `max`, for version 1's number that says so, or for nothing."""
    word = text.strip()
    return int(word) if word.isdecimal() and int(word) < UNLIMITED else None


def cpus_in(quota: str) -> float | None:
    """How many CPUs a quota gives: `200000 100000`, microseconds of each period; None for `max`,
    for version 1's -1, or for nothing."""
    words = quota.split()
    if len(words) != 2 or not all(word.isdecimal() and int(word) for word in words):
        return None
    return int(words[0]) / int(words[1])


def droppable_in(stat: str) -> int:
    """Bytes of files that the kernel drops before it is short of memory, from memory.stat: what a
    group below it holds of them counts in version 1 only in the total."""
    total = counter_in(stat, "total_inactive_file")
    return (counter_in(stat, "inactive_file") or 0) if total is None else total


def rises(before: Watched, after: Watched) -> list[Rise]:
    """The groups of the program that have counted since, each told once.

    A group that was not known before is taken for one that was made since, and all its count is
    new; but not one at the top: version 1 says that of every process that has ended. Where a group
    is gone, the nearest one above it that counted speaks for it.
    """
    found: dict[str, Rise] = {}
    for chain in after.chains:
        if len(chain) > 1 or chain[0] in before.counts:
            found |= _rise(chain, chain[:1], before, after)
    if not found:
        for chain in after.chains:
            if chain[0] not in after.counts:
                found |= _rise(chain, chain[1:], before, after)
    folders = list(found)
    return [
        found[folder]
        for folder in folders
        if not any(other.startswith(f"{folder}/") for other in folders)
    ]


def _rise(chain: Chain, asked: Iterable[str], before: Watched, after: Watched) -> dict[str, Rise]:
    """The first of the folders `asked` that has counted; its limit is the narrowest above it."""
    for folder in asked:
        now, then = after.counts.get(folder, 0), before.counts.get(folder, 0)
        times = now - then if now >= then else now  # the group was made anew
        if times:
            limits = [after.limits[one] for one in chain if one in after.limits]
            limit = min(limits, default=0)
            return {folder: Rise(folder, times, limit, after.peaks.get(folder, 0))}
    return {}


def _paths(groups: str) -> Iterator[tuple[str, str]]:
    """By controller, where a process is; the empty name is version 2."""
    for line in groups.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not path.startswith("/"):
            continue
        path = path.removesuffix(" (deleted)")
        if number == "0" and not controllers:
            yield "", path
        for controller in filter(None, controllers.split(",")):
            yield controller, path


def _chain(path: str, mount: Mount) -> Chain:
    """Empty where the group lies outside of what can be seen."""
    if "/.." in path:
        return ()
    root, point = mount.root.rstrip("/"), mount.point.rstrip("/")
    inside = path == root or path.startswith(f"{root}/")
    # A container without a namespace of its own is told the host's path, and sees its own group.
    below = path[len(root) :].strip("/") if inside else ""
    names = below.split("/") if below else []
    return tuple("/".join([point, *names[:depth]]) for depth in range(len(names), -1, -1))


def _plain(text: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), text)
