"""Programs under an agent, as tests of `worker.program` start them."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from worker.program import process_table
from worker.program.output import Stream
from worker.program.process import Program

PYTHON = [sys.executable, "-I", "-S"]
PROGRAMS = Path(__file__).parent
TWO_THAT_IGNORE_TERM = [*PYTHON, str(PROGRAMS / "ignore_term.py")]
Start = Callable[..., Awaitable[Program]]


class Recording:
    """An output that keeps what it is given."""

    def __init__(self) -> None:
        self.pieces: list[tuple[Stream, bytes]] = []
        self.ranks: list[int | None] = []

    def write(self, stream: Stream, data: bytes, rank: int | None = None) -> None:
        self.pieces.append((stream, data))
        self.ranks.append(rank)

    def idle(self) -> None:
        pass

    def of(self, stream: Stream) -> bytes:
        return b"".join(data for name, data in self.pieces if name == stream)

    def of_rank(self, rank: int | None) -> tuple[bytes, bytes]:
        """What came by the streams of one rank: stdout, stderr."""
        found = {"stdout": b"", "stderr": b""}
        for (stream, data), its in zip(self.pieces, self.ranks, strict=True):
            if its == rank:
                found[stream] += data
        return found["stdout"], found["stderr"]

    def pids(self) -> list[int]:
        lines = self.of("stdout").split(b"\n")[:-1]
        return [int(line.split()[1]) for line in lines if line.startswith(b"pid ")]


def is_dead(pid: int) -> bool:
    """Gone, or a zombie that its new parent, which is not ours, has still to reap."""
    found = process_table.read_process(pid)
    return found is None or found.state == "Z"


def is_gone(pid: int) -> bool:
    """Reaped as well."""
    return process_table.read_process(pid) is None


def until_there(path: Path, then: str) -> str:
    """A line for a shell, which does nothing until there is such a file."""
    return f"until [ -e {path} ]; do sleep 0.02; done; {then}"
