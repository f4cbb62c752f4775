"""Small files of the kernel, any of which may be missing or answer a read with an error.

A container hides some, and the kernel refuses others where they have no meaning: the speed of a
link that is down, the type of an empty GID slot.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from rendezvous.wire.words import natural_key, printable

_MOST_CHARACTERS = 253


def entries(path: Path) -> list[Path]:
    """What a directory holds, in natural order; nothing when it cannot be read."""
    try:
        return sorted(path.iterdir(), key=lambda entry: natural_key(entry.name))
    except OSError:
        return []


def content(path: Path) -> str:
    """All that a file says; nothing when it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def first_content(folder: Path, names: Iterable[str]) -> str:
    """Read the first of these files that says anything; empty where none does."""
    return next((text for name in names if (text := content(folder / name))), "")


def text(path: Path) -> str:
    """What a file says, on one printable line; nothing when it cannot be read."""
    return printable(content(path).strip(), _MOST_CHARACTERS)


def number(path: Path, default: int) -> int:
    """The decimal or 0x number that a file holds, else the default."""
    words = text(path)
    try:
        return int(words, 16 if words[:2].lower() == "0x" else 10)
    except ValueError:
        return default


def link_name(path: Path) -> str | None:
    """The last part of where a link leads to; None when there is no such link."""
    try:
        return path.readlink().name
    except OSError:
        return None


def exists(path: Path) -> bool:
    """Whether there is something; not so when that cannot be found out."""
    return os.path.exists(path)  # Path.exists raises where a directory may not be searched
