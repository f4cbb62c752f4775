"""Rows of a stream as on a terminal of its own, where progress bars overwrite themselves. Pure.

Several nodes share one terminal, where moving the cursor would change another node's line. So what
a program overwrites is overwritten here, and what is left of a row is text and colours: behind the
last carriage return, in the row that the cursor was moved to.
"""

from __future__ import annotations

import re
import unicodedata

_MOST_ROWS = 64
_MOST_HELD = 256
_CONTROL = re.compile(
    rb"[\r\n\b]"
    rb"|\x1b\[(?P<numbers>[0-9;:<=>?]*)[ -/]*(?P<final>[@-~])"
    rb"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"
    rb"|\x1b[78c=>DEHMNOZ]"
)
_UNFINISHED = re.compile(rb"(?:\r|\x1b(?:\[[0-9;:<=>?]*[ -/]*|\][^\x07\x1b]*\x1b?)?)\Z")
"""The end of a piece that the next one may make another thing of: `\\r\\n`, an escape sequence."""
_MOVES = re.compile(rb"\x1b(?!\[[0-9;:]*m)")
"""An escape sequence that is no colour."""
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_NO_COLOUR = "\x1b[0m"
_MOVES_DOWN, _MOVES_UP, _TO_COLUMN = b"BE", b"AF", b"GH`f"


class TerminalRows:
    """The rows of one stream that are not finished; usually one, the line that is being written.

    A row is finished by the line feed that leaves the lowest one. Where the cursor goes up again,
    the rows below it are unfinished until it leaves them.
    """

    def __init__(self) -> None:
        self._rows: list[bytes | None] = [b""]  # None: finished before, and left alone since
        self._at = 0
        self._held = b""
        self._at_begin = False
        self._colours = b""
        self._overwrites = False

    @property
    def overwrites(self) -> bool:
        """Return whether the program goes back to what it wrote: the newest is a bar's state."""
        return self._overwrites

    @property
    def newest(self) -> bytes:
        """The row that is being written; where that is empty, the lowest one with text."""
        here = self._rows[self._at] or next(filter(None, reversed(self._rows)), b"")
        return here.rstrip(b" ") if self._overwrites else here

    def write(self, data: bytes) -> list[bytes]:
        """Take what was written; returns the rows that this has finished."""
        data, self._held = (self._held + data).replace(b"\r\n", b"\n"), b""
        if unfinished := _UNFINISHED.search(data, max(0, len(data) - _MOST_HELD)):
            data, self._held = data[: unfinished.start()], unfinished[0]
        return self._take(data)

    def settle(self) -> None:
        """Nothing has come for a while: a carriage return at the end is no part of a line end."""
        if self._held == b"\r":
            self._held = b""
            self._take(b"\r")

    def drop(self) -> None:
        """Forget the row that is being written, but not that it is: it was passed on."""
        self._rows[self._at] = b""

    def close(self) -> list[bytes]:
        """Return the rows with text that no line feed has finished."""
        self.settle()
        left = self._texts()
        self._begin_row()
        return [row for row in left if row]

    def _texts(self) -> list[bytes]:
        """Text left in each row; the blanks behind it were to cover what was longer."""
        rows = [row for row in self._rows if row is not None]
        return [row.rstrip(b" ") for row in rows] if self._overwrites else rows

    def _take(self, data: bytes) -> list[bytes]:
        done: list[bytes] = []
        if not (self._is_moved or b"\r" in data or b"\b" in data or _MOVES.search(data)):
            first, *more = data.split(b"\n")
            self._put(first)
            if more:
                done = [*self._texts(), *more[:-1]]
                self._begin_row()
                self._put(more[-1])
            return done
        at = 0
        for found in _CONTROL.finditer(data):
            self._put(data[at : found.start()])
            done += self._control(found)
            at = found.end()
        self._put(data[at:])
        return done

    @property
    def _is_moved(self) -> bool:
        """Return whether the cursor is elsewhere than at the end of the one row."""
        return self._at_begin or len(self._rows) > 1

    def _control(self, found: re.Match[bytes]) -> list[bytes]:
        final = found["final"]
        if found[0] == b"\n":
            return self._line_feed()
        if found[0] == b"\r":
            self._to_begin()
        elif found[0] == b"\b":
            self._go_left(1)
        elif final == b"m" and self._at_begin:  # the row stays until there is another text
            self._colours += found[0]
        elif final == b"m":
            self._put(found[0])
        elif final is not None:
            self._move(final, found["numbers"])
        elif found[0].startswith(b"\x1b]8;"):  # a link
            self._put(found[0])
        return []

    def _move(self, final: bytes, numbers: bytes) -> None:
        count = int(numbers) if numbers.isdigit() and len(numbers) < 6 else 0
        if final in _MOVES_UP:
            self._go_up(max(1, count))
        elif final in _MOVES_DOWN:
            self._at = min(self._at + max(1, count), len(self._rows) - 1)
        if final in b"EF" or (final in _TO_COLUMN and count < 2):
            self._to_begin()
        elif final == b"D":
            self._go_left(max(1, count))
        elif final == b"K" and (self._at_begin or count):
            self._rows[self._at] = b""
        elif final == b"J" and self._at_begin:  # else the whole screen: what was said stays
            self._rows[self._at :] = [b""]

    def _to_begin(self) -> None:
        self._rows[self._at] = (self._rows[self._at] or b"") + self._colours
        self._colours = b""
        self._at_begin = self._overwrites = True

    def _go_left(self, count: int) -> None:
        row = (self._rows[self._at] or b"").decode("utf-8", "surrogateescape")
        if count >= len(row):
            self._to_begin()
        else:
            self._rows[self._at] = row[:-count].encode("utf-8", "surrogateescape")
            self._overwrites = True

    def _go_up(self, count: int) -> None:
        self._at_begin = self._overwrites = True
        added = min(max(0, count - self._at), _MOST_ROWS - len(self._rows))
        self._rows[:0] = [None] * added
        self._at = max(0, self._at + added - count)

    def _put(self, text: bytes) -> None:
        if text:
            before = b"" if self._at_begin else self._rows[self._at] or b""
            self._rows[self._at] = before + self._colours + text
            self._at_begin, self._colours = False, b""

    def _line_feed(self) -> list[bytes]:
        row = self._rows[self._at]
        if row is not None:
            self._rows[self._at] = row + self._colours
        self._colours, self._at_begin = b"", False
        self._at += 1
        if self._at < len(self._rows):
            self._at_begin = True
            return []
        is_one, done = len(self._rows) == 1, self._texts()
        self._begin_row()
        return [row for row in done if row or is_one]

    def _begin_row(self) -> None:
        self._rows, self._at = [b""], 0
        self._at_begin = self._overwrites = False
        self._colours = b""


def shown_text(line: str) -> str:
    """A line of a log as a terminal would show it at its end, in text and colours."""
    line = line.rstrip("\r\n")
    if "\r" not in line and "\b" not in line and "\x1b" not in line:
        return line
    rows = TerminalRows()
    rows.write(line.encode())
    return rows.newest.decode()


def cut_to(text: str, cells: int) -> str:
    """Cut one line to so many cells; colours take none, and are ended."""
    parts, used, at = [], 0, 0
    for colour in [*_COLOUR.finditer(text), None]:
        for letter in text[at : colour.start() if colour else len(text)]:
            used += _cells(letter)
            if used <= cells:
                parts.append(letter)
        if colour is not None:
            parts.append(colour[0])
            at = colour.end()
    return "".join(parts) + (_NO_COLOUR if at else "")


def _cells(letter: str) -> int:
    if letter.isascii():
        return letter.isprintable()
    if unicodedata.combining(letter) or unicodedata.category(letter) in ("Cf", "Me", "Mn"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1
