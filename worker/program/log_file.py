"""A node's log file, which may grow up to a limit: its beginning and the newest are kept.

`node-0.log` is what is being written. Once it is long it becomes `node-0.log.1`, and what was
`node-0.log.1` before falls out, but for the very first 16 MiB: they stay as `node-0.log.first`,
which ends with one line that says how much has fallen out since. The three, in this order, are the
log; nothing is ever copied, so that no write takes longer than others.

A program that starts again has a log of its own, `node-0.e3.log` in epoch 3: the first error stays.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Literal

HEAD_BYTES = 16 << 20
_LINE_BYTES = 80
"""Of the one line, with a line feed before it where there is none."""
_LONG_LINE_BYTES = 64 << 10
Whose = Literal["node", "rank", "launcher"]
_NAME = re.compile(r"(node|rank|launcher)-(\d{1,9})(?:\.e([1-9]\d{0,8}))?\.log")


def log_name(number: int, epoch: int = 0, of: Whose = "node") -> str:
    """The log of a node, of a global rank, or of the launcher of a node's ranks; with its epoch, of
    a program that has started again."""
    return f"{of}-{number}.e{epoch}.log" if epoch else f"{of}-{number}.log"


def read_log_name(name: str, of: Whose = "node") -> tuple[int, int] | None:
    """What `log_name` was given; None where it made no such name."""
    found = _NAME.fullmatch(name)
    return (int(found[2]), int(found[3] or 0)) if found and found[1] == of else None


def epoch_of_log(paths: Mapping[int, Path], epoch: int | None, newest: int) -> int:
    """Which of the logs of a node or rank is meant, by its epoch; perhaps one that is not there.

    A folder of the user's may have those of a former launch, with higher epochs.

    Args:
        paths: By epoch; 0: of the first start, of whichever epoch that was.
        epoch: The one that is asked for; None: the newest.
        newest: Of the run.
    """
    if epoch is None:
        return max(paths, key=lambda one: (_written_at(paths[one]), one))
    again = min((one for one in paths if one), default=newest + 1)
    return epoch if epoch >= again else 0


def _written_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:  # it has just become its older part
        return sys.maxsize


def first_part(log: Path) -> Path:
    """Where the beginning of a long log is."""
    return log.with_name(f"{log.name}.first")


def older_part(log: Path) -> Path:
    """What was written before the log's file was begun anew."""
    return log.with_name(f"{log.name}.1")


class LogFile:
    """A log file that is appended to; created with mode 0600. Raises OSError, as `write` does.

    Args:
        path: Of the file that is being written.
        limit: Bytes of it and its older parts together; 0 for none.
    """

    _limit_words = "--log-limit"
    """What limits it, as the line says that counts what has fallen out."""

    def __init__(self, path: Path, limit: int) -> None:
        self.path = path
        self._fd, self._size = -1, 0
        self._open()
        is_file = stat.S_ISREG(os.fstat(self._fd).st_mode)
        self._head = min(HEAD_BYTES, limit // 4)
        self._most = (limit - self._head - _LINE_BYTES) // 2 if limit and is_file else 0
        self._left_out = 0
        self._line_at: int | None = None

    @property
    def has_content(self) -> bool:
        """Whether something was written into it before."""
        return self._size > 0

    def write(self, data: bytes) -> None:
        """Append it, in a new file where this one is full."""
        if self._most and self._size + len(data) > self._most:
            cut = data.rfind(b"\n", 0, max(0, self._most - self._size)) + 1
            self._put(data[:cut])
            self._begin_anew()
            data = data[cut:]
        self._put(data)

    def close(self) -> None:
        """Close the file; nothing is written any more."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        fd = os.open(self.path, flags, 0o600)
        self.close()
        self._fd, self._size = fd, os.fstat(fd).st_size

    def _put(self, data: bytes) -> None:
        while data:
            written = os.write(self._fd, data)
            self._size += written
            data = data[written:]

    def _begin_anew(self) -> None:
        self._drop_older()
        with contextlib.suppress(FileNotFoundError):  # somebody has moved it away
            self.path.rename(older_part(self.path))
        is_too_long = self._size > self._most  # with a smaller limit than before
        self._open()
        if is_too_long:
            self._drop_older()

    def _drop_older(self) -> None:
        """Make room: of the older part only the beginning of the whole log is kept."""
        older, first = older_part(self.path), first_part(self.path)
        if not os.path.exists(older):
            return
        size = older.stat().st_size
        if os.path.exists(first):
            os.truncate(older, 0)  # who still reads it holds no space
            older.unlink()
            self._count(size)
            return
        kept = _end_of_line(older, self._head)
        os.truncate(older, kept)
        older.rename(first)
        self._line_at = None
        self._count(size - kept)

    def _count(self, left_out: int) -> None:
        """Say in one line behind the beginning how much has fallen out; the same line each time."""
        self._left_out += left_out
        words = f"rdzv: {self._left_out} bytes of output are omitted here ({self._limit_words})"
        with first_part(self.path).open("r+b", buffering=0) as file:
            if self._line_at is None:
                self._line_at = _end_whole(file)
            file.seek(self._line_at)
            file.write(words.ljust(_LINE_BYTES - 2).encode() + b"\n")


def _end_whole(file: IO[bytes]) -> int:
    """Go to the end of a file, and end the line there if it is not."""
    end = file.seek(0, os.SEEK_END)
    file.seek(max(0, end - 1))
    if file.read(1) not in (b"\n", b""):
        end += file.write(b"\n")
    return end


def _end_of_line(path: Path, most: int) -> int:
    """Where the last whole line of the first `most` bytes ends; there, if no line does."""
    with path.open("rb") as file:
        begin = max(0, most - _LONG_LINE_BYTES)
        file.seek(begin)
        piece = file.read(most - begin)
    return begin + (piece.rfind(b"\n") + 1 or len(piece))
