"""How far a program has got, in a file of its own: the step of its last checkpoint."""

from __future__ import annotations

import os
import re
from pathlib import Path

_MOST = (1 << 53) - 1
_MOST_BYTES = 64
_NUMBER = re.compile(rb"\s*([0-9]{1,16})\s*")


def read_progress(path: Path) -> int | None:
    """The whole number that a file holds; None where there is no such file.

    Raises:
        OSError: It cannot be read.
        ValueError: It holds something else.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # it may be a pipe
    except FileNotFoundError:
        return None
    try:
        text = os.read(fd, _MOST_BYTES + 1)
    finally:
        os.close(fd)
    found = _NUMBER.fullmatch(text)
    if found is None or len(text) > _MOST_BYTES or int(found[1]) > _MOST:
        raise ValueError("it does not hold a whole number from 0 to 2^53 - 1, and nothing else")
    return int(found[1])
