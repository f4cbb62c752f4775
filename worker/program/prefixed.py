"""One stream of a program's on an output that several nodes share: each line behind a prefix. Pure.

A line is passed on when it is finished, an unfinished one after a silence. Of a bar that overwrites
itself the newest state is shown: on a terminal in place, in the one row that all nodes have for
that; elsewhere as a line now and then. The cursor of the terminal is left at the row's beginning,
and whoever writes next erases the row: this needs no word between the nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from worker.program.terminal_rows import TerminalRows, cut_to

IN_PLACE_SECONDS = 1.0
LINE_SECONDS = 10.0
"""At most so often a bar's state is shown: on a terminal, and as a line."""
_MOST_UNFINISHED = 65_536
_ERASE = b"\x1b[K"


class PrefixedOutput:
    """Bytes to write of one stream.

    Args:
        prefix: Such as `[0] `.
        width: Cells of the terminal's lines; None: it is no terminal, or one that cannot redraw.
    """

    def __init__(self, prefix: bytes, width: Callable[[], int | None]) -> None:
        self._prefix = prefix
        self._width = width
        self._rows = TerminalRows()
        self._is_midline = False
        self._passed = b""
        self._shown = b""
        self._shown_at = -math.inf

    def write(self, data: bytes, now: float) -> bytes:
        """Take what the program has written; `now` in seconds."""
        done = self._lines(self._rows.write(data))
        if self._rows.overwrites:
            return done + self._state(now)
        if len(self._rows.newest) > _MOST_UNFINISHED:
            return done + self._unfinished()
        return done

    def idle(self, now: float) -> bytes:
        """Nothing has come for a moment."""
        self._rows.settle()
        return self._state(now, silent=True) if self._rows.overwrites else self._unfinished()

    def close(self) -> bytes:
        """Nothing more comes: the last line is ended, the next one there is another's."""
        left = self._lines(self._rows.close())
        if self._is_midline:
            return left + b"\n"
        return left or (_ERASE if self._shown and self._width() else b"")

    def _lines(self, rows: list[bytes]) -> bytes:
        """Finished rows as lines; a state that was the newest line already is not shown again."""
        if not rows:
            return b""
        width = self._width()
        first, *more = rows
        is_shown = bool(first) and first == self._shown and width is None
        done = b"" if is_shown else self._continued(first, width) + b"\n"
        if more:
            start = self._start(width)
            done += start + (b"\n" + start).join(more) + b"\n"
        self._shown = b""
        return done

    def _state(self, now: float, *, silent: bool = False) -> bytes:
        """Show a bar's newest state if it is time to; `silent`: it may be its last for long."""
        state, width = self._rows.newest, self._width()
        seconds = LINE_SECONDS if width is None else 0.0 if silent else IN_PLACE_SECONDS
        if state == self._shown or now - self._shown_at < seconds:
            return b""
        if width is None and not state.strip():
            return b""
        self._shown, self._shown_at = state, now
        if width is None:
            return self._continued(state, None) + b"\n"
        back = b"\r" if self._is_midline else b""
        self._is_midline, self._passed = False, b""
        text = (state and self._prefix + state).decode("utf-8", "replace").expandtabs(8)
        return back + _ERASE + cut_to(text, width - 1).encode() + b"\r"

    def _unfinished(self) -> bytes:
        """Pass on what there is of a line."""
        row = self._rows.newest
        if row == self._passed:
            return b""
        data = self._continued(row, self._width())
        self._is_midline, self._passed = True, row
        if len(row) > _MOST_UNFINISHED:
            self._rows.drop()
            self._passed = b""
        return data

    def _continued(self, row: bytes, width: int | None) -> bytes:
        """The row, or what is not there yet of it, without an end."""
        is_midline, passed = self._is_midline, self._passed
        self._is_midline, self._passed = False, b""
        if not is_midline:
            return self._start(width) + row
        if row.startswith(passed):
            return row[len(passed) :]
        return (b"\n" if width is None else b"\r") + self._start(width) + row

    def _start(self, width: int | None) -> bytes:
        return self._prefix if width is None else _ERASE + self._prefix
