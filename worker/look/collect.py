"""Looks at the ranks of a node: where each of them is, and whether it moves.

It looks twice, a moment apart. Nothing here waits for a rank that does not answer longer than the
limits below, and no rank is stopped or waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from rendezvous.wire.look import MAX_LOOK_RANKS, RankLook, Stack
from rendezvous.wire.words import printable
from worker.look import proc as processes

BETWEEN_SECONDS = 0.2
"""From one look to the next: what moves shows it."""

_MOST_LETTERS = 100


class Seen(NamedTuple):
    """What a node has seen of its ranks; see `LookReport`."""

    ranks: list[RankLook]
    stacks: list[Stack]
    left_out: int


def collect(
    folder: Path, ranks: Mapping[int, int | None], first_rank: int, proc: Path = Path("/proc")
) -> Seen:
    """Look at the ranks of this node; takes about 0.25 s, and never more than 2 s.

    Args:
        folder: What RDZV_LOOK_FOLDER names for these ranks.
        ranks: The processes of the local ranks; None where nobody knows it.
        first_rank: The global rank of local rank 0.
        proc: Where /proc is.
    """
    chosen = {rank: pid or 0 for rank, pid in sorted(ranks.items())[:MAX_LOOK_RANKS]}
    before = {rank: processes.read_process(proc, pid) for rank, pid in chosen.items()}
    time.sleep(BETWEEN_SECONDS)
    found = []
    for rank, pid in chosen.items():
        now, was = processes.read_process(proc, pid), before[rank]
        found.append(
            RankLook(
                rank=first_rank + rank,
                pid=pid,
                state=now.state,
                waits_in=printable(processes.waits_in(proc, pid), _MOST_LETTERS),
                lives=processes.seconds_since(proc, now.started) if now.state else 0.0,
                cpu=max(0.0, now.cpu - was.cpu),
                bytes=max(0, now.bytes - was.bytes),
            )
        )
    return Seen(found, [], len(ranks) - len(chosen))
