"""`rdzv schedulers`: what can start nodes, and what is missing for it on this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping

from launcher.schedulers.catalog import known_schedulers
from launcher.terminal import fold

_WORDS_AT = 13


def scheduler_lines(environ: Mapping[str, str], width: int | None = None) -> Iterator[str]:
    """All schedulers, with how the join string travels and which commands are missing."""
    path = environ.get("PATH", os.defpath)
    for name, entry in known_schedulers().items():
        yield from fold(f"{name:12} {entry.summary}", width, _WORDS_AT)
        words = f"join string: {entry.secret}"
        if entry.commands:
            missing = [
                command for command in entry.commands if not shutil.which(command, path=path)
            ]
            gone = f" (not here: {', '.join(missing)})" if missing else ""
            words = f"{words}; commands: {', '.join(entry.commands)}{gone}"
        yield from fold(f"{'':12} {words}", width, _WORDS_AT)
