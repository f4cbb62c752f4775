"""Runs a command on a terminal, as a person would see it."""

from __future__ import annotations

import fcntl
import os
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_MOVE = re.compile(r"\x1b\[[0-9;?]*[A-HJKf]")


def on_terminal(
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    columns: int = 80,
    rows: int = 40,
    seconds: float = 30.0,
) -> tuple[int, str]:
    """Its exit code, and all that it writes on a terminal of this size, with escape sequences."""
    ours, its = os.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    known = {name: value for name, value in env.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        argv, stdin=its, stdout=its, stderr=its, env=known, cwd="/", start_new_session=True
    )
    os.close(its)
    try:
        text = _read(ours, time.monotonic() + seconds)
        return process.wait(seconds), text.replace("\r\n", "\n")
    finally:
        os.close(ours)
        if process.poll() is None:
            process.kill()
        process.wait()


def _read(terminal: int, deadline: float) -> str:
    """What is written until the last writer has closed it."""
    found = b""
    while select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))[0]:
        try:
            data = os.read(terminal, 65_536)
        except OSError:  # EIO: that is how a terminal ends
            return found.decode()
        found += data
    raise AssertionError(f"it is not at its end: {found[-1_000:]!r}")


class Screen:
    """What a terminal shows in the end, its scrolled lines too: letters, the line discipline of a
    tty, and the sequences that move the cursor or erase. All letters are one cell wide."""

    _PART = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|[\r\n\b]|[^\x1b\r\n\b]")

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._lines: list[list[str]] = [[]]
        self._row = self._column = 0

    def write(self, text: str) -> Screen:
        """Show it."""
        for part in self._PART.finditer(text):
            numbers, final = part[1], part[2]
            if final is None:
                self._letter(part[0])
            elif final in "AB":
                self._go_to(self._row + int(numbers or 1) * (-1 if final == "A" else 1))
            elif final == "K":
                self._erase(int(numbers or 0))
            elif final == "G":
                self._column = int(numbers or 1) - 1
        return self

    def _letter(self, letter: str) -> None:
        if letter == "\n":
            self._go_to(self._row + 1)
            self._column = 0
        elif letter == "\r":
            self._column = 0
        elif letter == "\b":
            self._column = max(0, self._column - 1)
        else:
            if self._column == self._columns:
                self._letter("\n")
            line = self._lines[self._row]
            line += " " * (self._column + 1 - len(line))
            line[self._column] = letter
            self._column += 1

    def _go_to(self, row: int) -> None:
        self._row = max(0, row)
        self._lines += [[] for _ in range(self._row + 1 - len(self._lines))]

    def _erase(self, what: int) -> None:
        line = self._lines[self._row]
        if what == 2:
            line.clear()
        elif what == 0:
            del line[self._column :]

    def lines(self) -> list[str]:
        """All lines, without what stands empty at their ends."""
        return ["".join(line).rstrip() for line in self._lines]


def shown_lines(text: str) -> list[str]:
    """Every line that was ever shown, also of tables that were drawn over; without the escapes."""
    return [ESCAPE.sub("", line) for line in _MOVE.sub("\n", text).split("\n")]
