"""Follows NCCL's log files of one node's processes, while the program runs.

NCCL falls back from InfiniBand to sockets in silence, and a training that is ten times slower ends
all the same. What it says at the level INFO is kept in files, out of the training's output, and
read here; see `worker.nccl.verdict`.
"""

from __future__ import annotations

import asyncio
import glob
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from rendezvous.background import in_background
from worker.nccl.verdict import Heard, NetworkVerdict, judge, take_in

LOOK_SECONDS = 1.0
_QUIET_LOOKS = 3
_MOST_LOOKS = 15
_MOST_FILES = 512
_MOST_AT_ONCE = 1 << 18
_MOST_OF_A_FILE = 8 << 20
_MOST_OF_A_LINE = 4_096


@dataclass(slots=True)
class _File:
    """One log: how far it is read, and what it has said."""

    path: Path
    offset: int = 0
    rest: bytes = b""
    heard: Heard = field(default_factory=Heard)

    def read(self) -> bool:
        """Take in what is new; whether there was something."""
        size = self.path.stat().st_size
        if size < self.offset:  # another process has begun it anew
            self.offset, self.rest, self.heard = 0, b"", Heard()
        if size == self.offset or self.offset >= _MOST_OF_A_FILE:
            return False
        with self.path.open("rb") as file:
            file.seek(self.offset)
            data = file.read(_MOST_AT_ONCE)
        self.offset += len(data)
        *lines, rest = (self.rest + data).split(b"\n")
        self.rest = rest[-_MOST_OF_A_LINE:]
        for line in lines:
            take_in(self.heard, line[:_MOST_OF_A_LINE].decode("utf-8", "replace"))
        return True


class NcclLog:
    """The logs of one node's processes, from now on.

    Args:
        file: NCCL_DEBUG_FILE, with its %h and %p.
        expected: The table's transport.
        required: Whether a fall-back to sockets ends the run.
        look_seconds: From one look at them to the next.
    """

    def __init__(
        self,
        file: str,
        expected: str,
        *,
        required: bool = False,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._look_seconds = look_seconds
        self._pattern = _glob_of(file)
        self._expected = expected
        self._required = required
        self._files: dict[Path, _File] = {}
        self._said: set[str] = set()
        self._quiet = 0
        self._looks = 0
        # What a former program has left does not count, unless it is written anew.
        self._former = {path: _state(path) for path in self._found()}

    async def verdicts(self) -> AsyncIterator[NetworkVerdict]:
        """What is to be said of this node, each once, as long as it is asked."""
        while True:
            await asyncio.sleep(self._look_seconds)
            for verdict in await in_background(self.look):
                yield verdict

    def look(self) -> list[NetworkVerdict]:
        """Read what is new; what is to be said now and has not been. Never raises OSError."""
        news = False
        for path in self._found():
            if path in self._former and self._former[path] == _state(path):
                continue
            file = self._files.setdefault(path, _File(path))
            try:
                news |= file.read()
            except OSError:  # it is gone, or the disk is: nothing is known of it
                continue
        self._quiet = 0 if news else self._quiet + 1
        self._looks += bool(self._files)
        return self._new(settled=self._quiet >= _QUIET_LOOKS or self._looks >= _MOST_LOOKS)

    def trouble(self) -> str:
        """What stands between this node's processes and their network; empty when nothing does."""
        self.look()
        worst = [v.words for v in self._judge() if v.kind in ("unusable", "fallback")]
        return worst[0] if worst else ""

    def _new(self, *, settled: bool) -> list[NetworkVerdict]:
        """What ends the run is said at once; the rest when all processes have had their say."""
        found = []
        for verdict in self._judge():
            if verdict.kind not in self._said and (settled or verdict.level == "fail"):
                self._said.add(verdict.kind)
                found.append(verdict)
        return found

    def _judge(self) -> list[NetworkVerdict]:
        heard = [file.heard for file in self._files.values()]
        return list(judge(heard, self._expected, required=self._required))

    def _found(self) -> list[Path]:
        return sorted(Path(name) for name in glob.iglob(self._pattern))[:_MOST_FILES]


def _state(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_ino, found.st_mtime_ns


def _glob_of(file: str) -> str:
    """The files that NCCL makes of its pattern: %h is this host's name, %p a process's id."""
    host = socket.gethostname().partition(".")[0].replace("/", "-").replace("%", "-")
    parts = file.split("%%")
    return glob.escape("%").join(
        "*".join(glob.escape(piece.replace("%h", host)) for piece in part.split("%p"))
        for part in parts
    )
