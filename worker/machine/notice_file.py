"""A file that appears when this machine will be taken away: an agent of its platform writes it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from rendezvous.compat import timeout

LOOK_SECONDS = 1.0
DEFAULT_SECONDS = 30.0
"""The shortest notice that is usual; a file that holds a number says how long it is."""
WRITTEN_SECONDS = 0.1
"""Who has just made the file may still write the number into it."""
_NUMBER = re.compile(r"\s*\d{1,6}(\.\d*)?(?=\s|$)")


def read_notice(path: Path) -> float | None:
    """Seconds until the machine is taken away; None while no file is known to be there."""
    try:
        with path.open(errors="replace") as file:
            said = _NUMBER.match(file.read(64))
    except OSError:  # a disk that fails, or too many open files, is no notice
        return DEFAULT_SECONDS if os.path.lexists(path) else None
    return float(said[0]) if said else DEFAULT_SECONDS


async def notice_in(
    path: Path, in_thread: Callable[..., Awaitable[Any]], look_seconds: float = LOOK_SECONDS
) -> float:
    """Wait until the file appears; returns the seconds that are left. Its disk may hang."""
    while True:
        seconds: float | None = await in_thread(read_notice, path)
        if seconds is not None:
            await asyncio.sleep(WRITTEN_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with timeout(look_seconds):
                    whole: float | None = await in_thread(read_notice, path)
                    return seconds if whole is None else whole
            return seconds
        await asyncio.sleep(look_seconds)
