"""What a terminal can show: colours, a table that is redrawn, and lines of so many cells."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, TextIO

from worker.program.terminal import can_redraw

if TYPE_CHECKING:
    from rich.console import RenderableType

_USUAL_WIDTH = 80
"""Of a terminal that does not tell."""
_WIDTH_OF_A_FILE = 200
_INDENT = 4
_LEAST_ROOM = 24
"""Cells; in a narrower column words would stand one below the other."""


def shows_colours(environ: Mapping[str, str]) -> bool:
    """Whether a terminal has colours, and its user wants them: see https://no-color.org."""
    return can_redraw(environ) and not environ.get("NO_COLOR")


def width_of(stream: TextIO | None) -> int | None:
    """Cells of a line of a standard stream; None where it is no terminal, and nothing folds."""
    if stream is None or not stream.isatty():  # it may be closed from the start
        return None
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns or _USUAL_WIDTH
    except OSError:
        return _USUAL_WIDTH


def fold_lines(text: str, width: int | None, at: int = 0) -> str:
    """Each line of the text folded, see `fold`."""
    return "\n".join(part for line in text.split("\n") for part in fold(line, width, at))


def fold(line: str, width: int | None, at: int = 0) -> list[str]:
    """The line in parts that fit, folded between words.

    Args:
        line: Words, behind columns of other things that end at `at`.
        width: Of the terminal. No word is cut: a longer one is folded by the terminal, and what is
            copied from there has it whole. None: nothing is folded.
        at: Where the words begin, and each later part. Where too little room is behind it, they are
            indented by a few cells only.
    """
    if width is None or len(line) <= width:
        return [line]
    room = width - at
    if room < _LEAST_ROOM or any(len(word) > room for word in line[at:].split()):
        indent = " " * min(at, _INDENT)
        line = line if line[:at].strip() else indent + line[at:]
    else:
        indent = " " * at
    return textwrap.wrap(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ) or [line]


def show(drawn: RenderableType) -> None:
    """Print on standard output; where that is no terminal, in lines as long as they have to be."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _WIDTH_OF_A_FILE
    Console(file=sys.stdout, highlight=False, width=width).print(drawn)
