"""A page of the documentation, as it fits a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from launcher.terminal import fold

_FENCE = re.compile(r"\s*```")
_CODE = re.compile(r"\s{4}")
_ALONE = re.compile(r"\s*$|#|<!--")
"""What begins a line that is a block of its own: nothing, a heading, a mark."""
_ITEM = re.compile(r"\s*(?:[-*]|\d+\.) +")
_TEXT = ("prose", "item")
_BAR = re.compile(r"(?<!\\)\|")


def page_lines(text: str, width: int | None) -> Iterator[str]:
    """The lines of a page in Markdown; as they are where there is no width.

    Paragraphs and items that are too wide are folded anew. A table that is too wide becomes a list,
    as its columns would be a few letters wide. Code stays as it is, so that it can be copied.
    """
    for kind, block in _blocks(text.splitlines()):
        if width is None or kind == "code" or max(map(len, block)) <= width:
            yield from block
        elif kind == "table":
            yield from _listed(block, width)
        else:
            begin = _ITEM.match(block[0])
            line = " ".join([block[0].rstrip(), *map(str.strip, block[1:])])
            yield from fold(line, width, begin.end() if begin else 0)


def _blocks(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Lines that belong together, and what they are: code, table, item, prose, or a line alone."""
    block: list[str] = []
    kind, is_code = "", False
    for line in lines:
        was = kind
        kind = _kind(line, is_code)
        is_code ^= bool(_FENCE.match(line))
        goes_on = kind == was if kind in ("code", "table") else kind == "prose" and was in _TEXT
        if block and not goes_on:
            yield was, block
            block = []
        block.append(line)
        kind = was if goes_on else kind
    if block:
        yield kind, block


def _kind(line: str, is_code: bool) -> str:
    if is_code or _FENCE.match(line) or _CODE.match(line):
        return "code"
    if _ALONE.match(line):
        return "alone"
    if line.startswith("|"):
        return "table"
    return "item" if _ITEM.match(line) else "prose"


def _listed(rows: Sequence[str], width: int) -> Iterator[str]:
    """A table as a list: an item for each row, a line for each cell, behind its column's name."""
    names, _, *cells = [[cell.strip() for cell in _BAR.split(row)[1:-1]] for row in rows]
    for row in cells:
        begin = "- "
        for name, cell in zip_longest(names, row, fillvalue=""):
            if cell:
                yield from fold(f"{begin}{name}: {cell}" if name else f"{begin}{cell}", width, 4)
                begin = "  "
