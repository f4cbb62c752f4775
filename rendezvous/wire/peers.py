"""Whom each node probes. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

FULL_MESH = 128
"""Up to so many nodes, everyone probes everyone."""

PEERS_EACH = 64
"""How many peers each node probes, and is probed by, in a larger run."""


def peers_of(
    slots: Collection[int], own: int, epoch: int, fresh: Collection[int] | None = None
) -> list[int]:
    """Whom a node probes in an epoch: a function of its arguments alone.

    Up to `FULL_MESH` nodes: everybody else. Above, `PEERS_EACH` of them: nodes stand in a ring, in
    order of their slots, and each probes those 1, 2, 4, 8 ... places away in both directions (so
    that both directions of these pairs are seen, and any two nodes are connected by few proven
    pairs), and those at distances drawn by the epoch's digest. As all use the same distances,
    everyone is probed by exactly as many as it probes. So a node that nobody reaches is seen by 64
    others; a single bad direction among n (n - 1) is found with a chance of 64 in n - 1.

    Where only some are `fresh`, all other pairs are proven already: they are left away.
    """
    ring = sorted(slots)
    here = ring.index(own)
    if len(ring) <= FULL_MESH:
        peers = [slot for slot in ring if slot != own]
    else:
        peers = sorted(ring[(here + way) % len(ring)] for way in _distances(len(ring), epoch))
    if fresh is None or own in fresh:
        return peers
    return [slot for slot in peers if slot in fresh]


def _distances(size: int, epoch: int) -> set[int]:
    powers = [2**n for n in range(size.bit_length()) if 2**n <= size // 2]
    ways = {way % size for power in powers for way in (power, -power)}
    draw = 0
    while len(ways) < PEERS_EACH:
        digest = hashlib.sha256(f"{epoch}/{draw}".encode()).digest()
        way = int.from_bytes(digest[:8], "big") % size
        ways |= {way} - {0}
        draw += 1
    return ways
