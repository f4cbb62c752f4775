"""The index of a log: where in the file what time is.

`rank-37.log.index` is beside `rank-37.log`, and `node-4.log.index` beside `node-4.log`. Who asks
for the last minutes of a long log does not read all of it, and is shown nothing of what was printed
long before.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from worker.program.log_file import LogFile, first_part, older_part

MARK_BYTES = 64 << 10
MARK_SECONDS = 2.0
"""What is written so long after a mark has one of its own."""
_MARK = "%015d %015.3f\n"
_MARK_LENGTH = 32
_MOST_MARKS = 5_000
"""Of a log that has more, the times of its newest places are known: hours of it, at least."""
_LONGEST_LINE = 64 << 10


def index_of(log: Path) -> Path:
    """Where the index of a part of a log is."""
    return log.with_name(f"{log.name}.index")


def has_times(log: Path) -> bool:
    """Whether it has an index: one that an older version wrote has none."""
    return os.path.exists(index_of(log))


def offset_at(log: Path, at: float) -> int | None:
    """The nearest known place in this part of a log before which nothing was written at that time
    or later; None: there is none, and older parts may be as young.

    What was written within `MARK_SECONDS` before that time, or 64 KiB, may be behind the place.
    Without an index it is the end of a file that nobody has written into since.

    Args:
        log: The file.
        at: As `time.time()` on this machine.
    """
    try:
        known = log.stat()  # before the index: what comes meanwhile has its mark there
        try:
            return _by_marks(log, at, known.st_size)
        except (OSError, ValueError):  # there is none, or it is damaged
            return known.st_size if known.st_mtime < at else None
    except OSError:
        return None


def _by_marks(log: Path, at: float, size: int) -> int | None:
    with index_of(log).open("rb") as file:
        low, high = 0, os.fstat(file.fileno()).st_size // _MARK_LENGTH
        if not high:
            raise ValueError("no mark")
        before: tuple[int, float] | None = None
        while low < high:
            middle = (low + high) // 2
            offset, when = _mark(file, middle)
            if when < at:
                low, before = middle + 1, (offset, when)
            else:
                high = middle
        if before is None:
            return None
        if at < before[1] + MARK_SECONDS:
            return min(size, before[0])
        following = os.fstat(file.fileno()).st_size // _MARK_LENGTH > low
        return min(size, _mark(file, low)[0]) if following else size


def _mark(file: IO[bytes], number: int) -> tuple[int, float]:
    file.seek(number * _MARK_LENGTH)
    return _parsed(file.read(_MARK_LENGTH))


def _parsed(line: bytes) -> tuple[int, float]:
    offset, _, when = line.partition(b" ")
    return int(offset), float(when)


def young_from(file: IO[bytes], at: float, *, follow: bool) -> int | None:
    """As `offset_at`, where a line begins; the file has been opened by its path.

    Args:
        file: Where it stands afterwards is not said.
        at: As `time.time()`.
        follow: A line without an end may go on: it counts from its beginning.
    """
    place = offset_at(Path(file.name), at)
    if place is None or (place >= os.fstat(file.fileno()).st_size and not follow):
        return place
    return line_at(file, place)


def line_at(file: IO[bytes], offset: int) -> int:
    """Where the line begins that this place is in; the place itself, if it is very long."""
    begin = max(0, offset - _LONGEST_LINE)
    file.seek(begin)
    before = file.read(offset - begin)
    found = before.rfind(b"\n") + 1
    return begin + found if found or not begin else offset


class LogTimes:
    """The times of places in one part of a log, as its index knows them.

    A place between two marks has a time between theirs, by its distance from each: what follows a
    mark was written within `MARK_SECONDS` of it. Places are asked for in their order.

    Args:
        log: The file; without an index no time is known.
    """

    def __init__(self, log: Path) -> None:
        self._marks = _marks_of(log)
        self._next = 0

    def at(self, offset: int) -> float | None:
        """When what is in this place was written, as `time.time()`; None: not known."""
        marks = self._marks
        while self._next < len(marks) and marks[self._next][0] <= offset:
            self._next += 1
        if not self._next:
            return None
        begin, when = marks[self._next - 1]
        if self._next == len(marks):
            return when
        end, then = marks[self._next]
        passed = min(then - when, MARK_SECONDS)
        return when + max(0.0, passed) * (offset - begin) / (end - begin)


def _marks_of(log: Path) -> list[tuple[int, float]]:
    """The newest marks of a part of a log, and its end, which was written last."""
    try:
        known = log.stat()
        with index_of(log).open("rb") as file:
            count = file.seek(0, os.SEEK_END) // _MARK_LENGTH
            file.seek(max(0, count - _MOST_MARKS) * _MARK_LENGTH)
            data = file.read(_MOST_MARKS * _MARK_LENGTH)
        lines = (data[at : at + _MARK_LENGTH] for at in range(0, len(data), _MARK_LENGTH))
        marks = [_parsed(line) for line in lines if len(line) == _MARK_LENGTH]
    except (OSError, ValueError):  # there is none, or it is damaged
        return []
    return [*marks, (known.st_size + 1, known.st_mtime)] if marks else []


class IndexedLog(LogFile):
    """A log with its index. Raises OSError, as `write` does; not for what the index lacks.

    Args:
        path: Of the file.
        limit: See `LogFile`; the index is not counted.
        clock: As `time.time`.
    """

    def __init__(
        self,
        path: Path,
        limit: int,
        clock: Callable[[], float] = time.time,  # noqa: TID251 (people ask by that clock)
    ) -> None:
        super().__init__(path, limit)
        self._clock = clock
        self._marked_size, self._marked_at = -MARK_BYTES, float("-inf")
        self._has_index = stat.S_ISREG(os.fstat(self._fd).st_mode)

    def _put(self, data: bytes) -> None:
        now = self._clock()
        if data and (
            self._size - self._marked_size >= MARK_BYTES
            or abs(now - self._marked_at) >= MARK_SECONDS
        ):
            self._marked_size, self._marked_at = self._size, now
            if self._has_index:
                with contextlib.suppress(OSError):  # the log is worth more
                    self._mark(now)
        super()._put(data)

    def _mark(self, now: float) -> None:
        mark = (_MARK % (self._size, now)).encode()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        fd = os.open(index_of(self.path), flags, 0o600)
        try:
            os.write(fd, mark)
        finally:
            os.close(fd)

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self._marked_size = -MARK_BYTES
        with contextlib.suppress(OSError):
            index_of(self.path).replace(index_of(older_part(self.path)))

    def _drop_older(self) -> None:
        first, index = first_part(self.path), index_of(older_part(self.path))
        had_first = os.path.exists(first)
        super()._drop_older()
        with contextlib.suppress(OSError):
            if had_first:
                index.unlink()
            else:
                index.replace(index_of(first))
