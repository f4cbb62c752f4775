"""Which lines of a log somebody wants to see, and how a line is shown. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rendezvous.frozen import frozen
from rendezvous.wire.log_view import LINE_LETTERS, Level
from rendezvous.wire.words import printable
from worker.program.rank_words import COLOURS

_ERROR = re.compile(
    r"ERROR|CRITICAL|FATAL|Traceback \(most recent call last\)|[Ee]rror: |Exception: "
    r"|(?:^|[\[ ])[EF]\d{4} \d\d:"
)
_WARNING = re.compile(r"WARN|[Ww]arning: |(?:^|[\[ ])W\d{4} \d\d:")
"""glog, and torch below Python, begin a line with the letter of its level and the date."""

_STAND_INS = ("?", "\N{REPLACEMENT CHARACTER}")
"""A line is shown with these in place of characters that cannot be shown."""


def looks_like(line: str, level: Level) -> bool:
    """Whether a line is of this level, or worse, as far as its words show it."""
    return bool(_ERROR.search(line) or (level == "warning" and _WARNING.search(line)))


def shown_line(raw: bytes) -> str:
    """A line as it may be shown: text without colours and other control characters, cut where it is
    very long, which is said. Of a progress bar that overwrites itself the last state counts."""
    raw = raw.rstrip(b"\r\n")
    if b"\r" in raw:
        raw = raw.rpartition(b"\r")[2]
    text = raw.decode("utf-8", "replace")
    if "\x1b" in text:
        text = COLOURS.sub("", text)
    if "\t" in text:
        text = text.expandtabs(4)
    if (more := len(text) - LINE_LETTERS) > 0:
        return f"{printable(text[:LINE_LETTERS], LINE_LETTERS)} ... {more} more characters"
    return printable(text, LINE_LETTERS)


@frozen
class Wanted:
    """The lines that have one of some texts in them, and are of some level.

    Attributes:
        grep: The texts; empty: any line.
        level: Or worse; None: any.
    """

    grep: Sequence[str] = ()
    level: Level | None = None

    @property
    def all(self) -> bool:
        """Whether every line is wanted."""
        return not self.grep and self.level is None

    def has(self, line: str) -> bool:
        """Whether a line, as it is shown, is wanted."""
        if self.grep and not any(text in line for text in self.grep):
            return False
        return self.level is None or looks_like(line, self.level)

    def line(self, raw: bytes) -> str | None:
        """A line as it is shown; None where it is not wanted."""
        text = shown_line(raw)
        return text if self.has(text) else None

    def may_be_in(self, block: bytes) -> bool:
        """False where no line of this block can be wanted: to look is quicker than to read it."""
        if not self.grep or b"\x1b" in block or b"\t" in block:
            return True
        if any(letter in text for text in self.grep for letter in _STAND_INS):
            return True
        return any(text.encode() in block for text in self.grep) or _is_cut(block)


def _is_cut(block: bytes) -> bool:
    """Whether a line of this block is so long that words are added to what is shown of it."""
    begin = 0
    while len(block) - begin > LINE_LETTERS:
        end = block.rfind(b"\n", begin, begin + LINE_LETTERS + 1)
        if end < 0:
            return True
        begin = end + 1
    return False
