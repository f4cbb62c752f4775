"""Reads a log beside who writes it: the newest lines that somebody wants, then those that come.

Each step reads a little and holds nobody up: the log is a file, and the program's output goes on
into it. What has fallen out of a long log, or was replaced before it was read, is passed over.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from worker.program.log_file import first_part, older_part
from worker.program.log_index import young_from
from worker.program.wanted import Wanted

STEP_BYTES = 128 << 10
"""What one step reads: of text, 2 to 5 ms."""
KEPT_BYTES = 16 << 20
"""Of the newest lines, before they are given out."""
BEHIND_BYTES = 4 << 20
"""Who is further behind what is written is not fast enough to read all of it."""
_LONGEST = 64 << 10
"""What is looked at of one line."""


class LogReader:
    """Reads one log in steps. None of them raises OSError: what cannot be read is not there.

    Args:
        path: Of the log; need not be there yet.
        wanted: Which lines.
        lines: How many of those that are there, at most; None: all, from the first.
        since: As `time.time`: nothing of what its index knows to be older; None: any.
        follow: Go on with what comes; a line that is unfinished is waited for.
    """

    def __init__(
        self,
        path: Path,
        wanted: Wanted,
        lines: int | None,
        *,
        since: float | None = None,
        follow: bool = False,
    ) -> None:
        self.path = path
        self._wanted = wanted
        self._lines = lines or 0
        self._since = since
        self._follow = follow
        self._file: IO[bytes] | None = None
        self._rest = b""
        self._steps = iter(()) if lines is None else self._newest()
        self.follows = False
        """Whether all of the newest lines have been given out."""
        self.is_there = False
        self.at_end = False
        """Whether the last step has found nothing more."""

    def step(self) -> list[str]:
        """Read a little; returns the wanted lines in it."""
        try:
            found = next(self._steps, None)
            if found is not None:
                return found
            self.follows = True
            if self._follow:
                return self._forward()
            self.at_end = True
            return []
        except OSError:
            self.at_end = True
            return []

    def skip(self, behind: int = BEHIND_BYTES) -> int:
        """Go on with the newest where that is so far from here; returns how many lines are skipped,
        which have not been looked at."""
        if self._file is None:
            return 0
        try:
            left = os.fstat(self._file.fileno()).st_size - self._file.tell()
            skipped = 0
            if left > max(behind, STEP_BYTES):
                left -= STEP_BYTES
                while left > 0 and (data := self._file.read(min(left, 1 << 20))):
                    left -= len(data)
                    skipped += data.count(b"\n")
                self._rest = b""
            return skipped
        except OSError:
            return 0

    def close(self) -> None:
        """Nobody reads it any more."""
        if self._file is not None:
            self._file.close()
            self._file = None

    # --- what is there ------------------------------------------------------------------------

    def _newest(self) -> Iterator[list[str]]:
        """Look from the end for the newest lines, some of them in each step; then give them out."""
        parts = self._parts()
        if not parts:
            return
        self.is_there = True
        self._file, end = parts[-1], parts[-1].seek(0, os.SEEK_END)
        found: deque[str] = deque()
        for _ in self._backward(parts, end, found):
            if sum(map(len, found)) > KEPT_BYTES:
                break
            yield []
        for part in parts[:-1]:
            part.close()
        self._file.seek(end)
        while found:
            yield [found.popleft() for _ in range(min(len(found), 500))]

    def _backward(self, parts: list[IO[bytes]], end: int, found: deque[str]) -> Iterator[None]:
        """Read blocks from the end, and keep what is wanted in front of what was found before."""
        carry = b""
        unfinished = self._follow  # is read when it is whole: it goes on from there
        for part in reversed(parts):
            place = end if part is parts[-1] else part.seek(0, os.SEEK_END)
            floor = self._floor(part)
            while place > (floor or 0):
                begin = max(floor or 0, place - STEP_BYTES)
                part.seek(begin)
                block = part.read(place - begin) + carry
                place = begin
                if unfinished:
                    whole = block.rfind(b"\n") + 1
                    self._rest = (block[whole:] + self._rest)[:_LONGEST]
                    block, unfinished = block[:whole], not whole
                head, newline, lines = block.partition(b"\n")
                carry = (head + newline)[:_LONGEST]
                if self._keep(lines, found):
                    return
                yield
            if floor is not None:  # what is before is older
                break
        self._keep(carry, found)

    def _keep(self, lines: bytes, found: deque[str]) -> bool:
        """Keep those that are wanted; whether that is enough."""
        if not self._lines:
            return True
        if not lines or not self._wanted.may_be_in(lines):
            return False
        for raw in reversed(lines.removesuffix(b"\n").split(b"\n")):
            if (line := self._wanted.line(raw[:_LONGEST])) is not None:
                found.appendleft(line)
                if len(found) >= self._lines:
                    return True
        return False

    def _floor(self, part: IO[bytes]) -> int | None:
        """The line with which this part begins to be young enough; None: older ones may be."""
        return None if self._since is None else young_from(part, self._since, follow=self._follow)

    def _parts(self) -> list[IO[bytes]]:
        """Its files, the oldest first; one that was renamed meanwhile is there once."""
        opened: list[IO[bytes]] = []
        for path in (first_part(self.path), older_part(self.path), self.path):
            with suppress(OSError):
                file = path.open("rb", buffering=0)
                if opened and is_same(opened[-1], file):
                    file.close()
                else:
                    opened.append(file)
        return opened

    # --- what comes ---------------------------------------------------------------------------

    def _forward(self) -> list[str]:
        if self._file is None:
            self._file = self._open()
            if self._file is None:
                self.at_end = True
                return []
            self.is_there = True
        data = self._file.read(STEP_BYTES)
        if not data and self._is_replaced():
            data = self._next_file()
        self.at_end = not data
        return self._cut(data)

    def _open(self) -> IO[bytes] | None:
        try:
            return self.path.open("rb", buffering=0)
        except OSError:
            return None

    def _is_replaced(self) -> bool:
        assert self._file is not None
        try:
            return not os.path.samestat(self.path.stat(), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            return False

    def _next_file(self) -> bytes:
        """What was written into this file to its end has been read: go on in the next one."""
        assert self._file is not None
        last = self._file.read(STEP_BYTES)  # written between the two looks
        if last:
            return last
        with suppress(OSError):
            older = older_part(self.path).open("rb", buffering=0)
            if is_same(older, self._file):
                older.close()
            else:
                self._file.close()
                self._file = older
                return older.read(STEP_BYTES)
        newest = self._open()
        if newest is not None:
            self._file.close()
            self._file = newest
            return newest.read(STEP_BYTES)
        return b""

    def _cut(self, data: bytes) -> list[str]:
        """The lines that are whole now, and what of a progress bar is its newest state."""
        whole, newline, rest = (self._rest + data).rpartition(b"\n")
        raw = whole.split(b"\n") if newline and self._wanted.may_be_in(whole) else []
        state, mark, newest = rest.rpartition(b"\r")
        if mark and state.strip(b"\r"):
            raw.append(state)
            rest = newest
        if len(rest) > _LONGEST:
            raw.append(rest)
            rest = b""
        self._rest = rest
        shown = (self._wanted.line(line[:_LONGEST]) for line in raw)
        return [line for line in shown if line is not None]


def is_same(one: IO[Any], other: IO[Any]) -> bool:
    """Return whether both are open on one file."""
    return os.path.samestat(os.fstat(one.fileno()), os.fstat(other.fileno()))
