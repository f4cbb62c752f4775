"""Tables of tests as they are read: one row a line, its cells between bars."""

from __future__ import annotations


def rows(text: str) -> list[tuple[str, ...]]:
    """The rows of a text, without blanks around their cells."""
    lines = (line for line in text.splitlines() if line.strip())
    return [tuple(cell.strip() for cell in line.split("|")) for line in lines]
