"""How full file systems are, and which do not answer: of what `places_probe` prints. Pure."""

from __future__ import annotations

import errno
import json
from collections.abc import Sequence

from rendezvous.cause.facts import FactKind
from rendezvous.frozen import frozen
from rendezvous.wire.evidence import Fact
from worker.evidence.parsing.telling import fact

_SILENT = "no answer in time"
_LEAST_BYTES = 1 << 20
_BROKEN = frozenset(
    [
        *(errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN),
        *(errno.EHOSTUNREACH, errno.EREMOTEIO, errno.ENXIO, errno.ENODEV, errno.ESHUTDOWN),
    ]
)
"""What a file system says whose disk or server is gone, a stale NFS or a FUSE without its end."""


@frozen
class Place:
    """A file system."""

    device: int
    mount: str
    free_bytes: int
    bytes: int
    free_inodes: int
    inodes: int

    @property
    def is_full(self) -> bool:
        """Whether nearly no byte is free; file systems without storage have none at all."""
        least = max(_LEAST_BYTES, self.bytes // 1000)
        return self.bytes > 0 and self.free_bytes < least

    @property
    def has_no_inode(self) -> bool:
        """Some file systems make inodes as they need them, and count none."""
        return self.inodes > 0 and self.free_inodes == 0


def place_facts(paths: Sequence[str], printed: str) -> list[Fact]:
    """What is told of file systems, each once, and of paths that do not answer.

    Args:
        paths: What the probe was given; the first is the folder of shared memory.
        printed: What it said.
    """
    places, problems = _read(printed)
    facts = [
        fact(FactKind.FILES, path=path, words=problems[index])
        for index, path in enumerate(paths)
        if problems.get(index)
    ]
    if "end" in printed.splitlines():  # else it may have had no time to ask
        silent = [i for i in range(len(paths)) if i not in places and i not in problems]
        facts += [fact(FactKind.FILES, path=paths[i], words=_SILENT) for i in silent]
    for place in {place.device: place for place in reversed(places.values())}.values():
        if place.is_full:
            free, size = place.free_bytes, place.bytes
            facts.append(fact(FactKind.SPACE, path=place.mount, value=free, limit=size))
        if place.has_no_inode:
            facts.append(fact(FactKind.INODES, path=place.mount, limit=place.inodes))
    if 0 in places:
        free, size = places[0].free_bytes, places[0].bytes
        facts.append(fact(FactKind.SHARED_MEMORY, path=places[0].mount, value=free, limit=size))
    return facts


def _read(printed: str) -> tuple[dict[int, Place], dict[int, str]]:
    """By path, the place, or why there is none: empty where it is merely not allowed."""
    places: dict[int, Place] = {}
    problems: dict[int, str] = {}
    for line in printed.splitlines():
        if not line.startswith("["):
            continue
        try:
            index, *found = json.loads(line)
        except ValueError:  # it was killed while it wrote
            continue
        if len(found) == 6:
            places[index] = Place(*found)
        else:
            problems[index] = found[1] if found[0] in _BROKEN else ""
    return places, problems
