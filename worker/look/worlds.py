"""Reads which worlds the ranks of a node have been in, as the hook has noted them there."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from rendezvous.wire.world import MAX_PLACES, MAX_WORLDS, RankWorld

_NOTE = re.compile(
    r"(?P<local>[0-9]{1,4})\.world\.(?P<library>[a-z]{1,20})\.(?P<size>[0-9]{1,9})"
    r"\.(?P<place>[0-9]{1,9})\.(?P<pid>[0-9]{1,10})\Z"
)


def read_worlds(folder: Path, first_rank: int, count: int) -> tuple[RankWorld, ...]:
    """Read the notes in a folder; nothing where there is no such folder.

    Args:
        folder: What RDZV_LOOK_FOLDER names for these ranks.
        first_rank: The global rank of local rank 0.
        count: How many local ranks the table has.
    """
    try:
        names = os.listdir(folder)
    except OSError:
        return ()
    return worlds_in(names, first_rank, count)


def worlds_in(names: Iterable[str], first_rank: int, count: int) -> tuple[RankWorld, ...]:
    """The worlds of each rank by the names of the notes, in order; nothing of too many. Pure."""
    noted: dict[tuple[int, str, int], set[tuple[int, int]]] = {}
    for found in filter(None, map(_NOTE.match, names)):
        local, size, place = (int(found[name]) for name in ("local", "size", "place"))
        if local < count and place < size:
            key = (first_rank + local, found["library"], size)
            noted.setdefault(key, set()).add((place, int(found["pid"])))
    if len(noted) > MAX_WORLDS:
        return ()
    return tuple(
        RankWorld(
            rank=rank,
            library=library,
            size=size,
            places=sorted({place for place, _ in members})[:MAX_PLACES],
            whole=_is_whole(size, members),
        )
        for (rank, library, size), members in sorted(noted.items())
    )


def _is_whole(size: int, members: set[tuple[int, int]]) -> bool:
    """Return whether these places, each with its process, are all of a world of this size."""
    places = {place for place, _ in members}
    pids = {pid for _, pid in members}
    return len(places) == size and (size == 1 or len(pids) == len(members) == size)
