"""The newest words of each rank of a node, by which a failure is told from its consequences."""

from __future__ import annotations

import re
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from typing import NamedTuple

KEPT_BYTES = 64 << 10
"""Of each rank, both streams together."""

_MOST_PIECES = 4_096
_LONGEST_LINE = 4_096
COLOURS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


class Piece(NamedTuple):
    """What came at once: when by `time.monotonic()`, and by which stream, where that is known."""

    at: float
    data: bytes
    stream: str = ""


class RankWords:
    """What each local rank has said last; None is what came by the program's common pipes.

    The thread that reads the pipes writes here, and the event loop reads. `clock` gives monotonic
    seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[int | None, _Newest] = {}
        self._lock = threading.Lock()

    def take(self, rank: int | None, data: bytes, stream: str = "") -> None:
        """Keep what has just come."""
        with self._lock:
            kept = self._kept.get(rank)
            if kept is None:
                kept = self._kept[rank] = _Newest()
            kept.add(Piece(self._clock(), data, stream))

    def ranks(self) -> list[int | None]:
        """Who has said something: None first, then by number."""
        with self._lock:
            return sorted(self._kept, key=lambda rank: -1 if rank is None else rank)

    def newest(self, rank: int | None) -> list[Piece]:
        """The pieces of a rank in the order in which they came; the first one of each stream may
        begin within a line."""
        with self._lock:
            kept = self._kept.get(rank)
            return list(kept.pieces) if kept is not None else []

    def lines(self, rank: int | None, most: int) -> list[tuple[float, str, str]]:
        """The newest lines of a rank in the order of the times of their last pieces: that time, the
        line without colours, and its stream; no line mixes streams."""
        found: list[tuple[float, str, str]] = []
        rests: defaultdict[str, Piece] = defaultdict(lambda: Piece(0.0, b""))
        for at, data, stream in self.newest(rank):
            *whole, rest = (rests[stream].data + data).split(b"\n")
            found += [(at, _text(line), stream) for line in whole]
            rests[stream] = Piece(at, rest)
        found += [(at, _text(r), name) for name, (at, r, _) in rests.items() if r.strip()]
        return sorted(found, key=lambda line: line[0])[-most:]


def _text(line: bytes) -> str:
    """Of a progress bar that overwrites itself the last state counts."""
    newest = line.rstrip(b"\r").rpartition(b"\r")[2][:_LONGEST_LINE]
    return COLOURS.sub("", newest.decode("utf-8", "replace"))


class _Newest:
    """The newest of one rank."""

    def __init__(self) -> None:
        self.pieces: deque[Piece] = deque()
        self._bytes = 0

    def add(self, piece: Piece) -> None:
        self.pieces.append(piece._replace(data=piece.data[-KEPT_BYTES:]))
        self._bytes += len(self.pieces[-1].data)
        while self._bytes > KEPT_BYTES or len(self.pieces) > _MOST_PIECES:
            oldest = self.pieces.popleft()
            length = len(oldest.data)
            kept = oldest.data[length - max(0, KEPT_BYTES - self._bytes + length) :]
            self._bytes -= length
            if kept and len(self.pieces) < _MOST_PIECES:
                self.pieces.appendleft(oldest._replace(data=kept))
                self._bytes += len(kept)
