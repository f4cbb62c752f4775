"""The newest words of each rank of a node, by which a failure is told from its consequences."""

from __future__ import annotations

import re
import threading
import time
from collections import deque

KEPT_BYTES = 64 << 10
"""Of each rank, both streams together."""

_MOST_PIECES = 4_096
_LONGEST_LINE = 4_096
COLOURS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


class RankWords:
    """What each local rank has said last; None is what came by the program's common pipes.

    The thread that reads the pipes writes here, and the event loop reads.
    """

    def __init__(self) -> None:
        self._kept: dict[int | None, _Newest] = {}
        self._lock = threading.Lock()

    def take(self, rank: int | None, data: bytes) -> None:
        """Keep what has just come."""
        with self._lock:
            kept = self._kept.get(rank)
            if kept is None:
                kept = self._kept[rank] = _Newest()
            kept.add(time.monotonic(), data)

    def ranks(self) -> list[int | None]:
        """Who has said something: None first, then by number."""
        with self._lock:
            return sorted(self._kept, key=lambda rank: -1 if rank is None else rank)

    def newest(self, rank: int | None) -> list[tuple[float, bytes]]:
        """The pieces of a rank in the order in which they came, each with its `time.monotonic()`;
        the first one may begin within a line."""
        with self._lock:
            kept = self._kept.get(rank)
            return list(kept.pieces) if kept is not None else []

    def lines(self, rank: int | None, most: int) -> list[tuple[float, str]]:
        """The newest lines of a rank, without colours, each with the time of its last piece."""
        found: list[tuple[float, str]] = []
        rest, at = b"", 0.0
        for at, data in self.newest(rank):
            *whole, rest = (rest + data).split(b"\n")
            found += [(at, _text(line)) for line in whole]
        if rest.strip():
            found.append((at, _text(rest)))
        return found[-most:]


def _text(line: bytes) -> str:
    """Of a progress bar that overwrites itself the last state counts."""
    newest = line.rstrip(b"\r").rpartition(b"\r")[2][:_LONGEST_LINE]
    return COLOURS.sub("", newest.decode("utf-8", "replace"))


class _Newest:
    """The newest of one rank."""

    def __init__(self) -> None:
        self.pieces: deque[tuple[float, bytes]] = deque()
        self._bytes = 0

    def add(self, now: float, data: bytes) -> None:
        self.pieces.append((now, data[-KEPT_BYTES:]))
        self._bytes += len(self.pieces[-1][1])
        while self._bytes > KEPT_BYTES or len(self.pieces) > _MOST_PIECES:
            at, oldest = self.pieces.popleft()
            kept = oldest[len(oldest) - max(0, KEPT_BYTES - self._bytes + len(oldest)) :]
            self._bytes -= len(oldest)
            if kept and len(self.pieces) < _MOST_PIECES:
                self.pieces.appendleft((at, kept))
                self._bytes += len(kept)
