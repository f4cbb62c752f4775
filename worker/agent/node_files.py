"""The folder of a node's files, which its program and the user's scripts read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from worker.program.output import make_private


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write texts into a folder, for its owner alone; each is there whole or not at all.

    Raises:
        OSError: The folder cannot be made, or not be written.
    """
    make_private(folder)
    for name, text in files.items():
        new = folder / f".{name}.new"
        new.unlink(missing_ok=True)
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)
        new.replace(folder / name)


def remove_file(file: Path) -> None:
    """Take away what an epoch before has left, if it is there. Raises OSError."""
    file.unlink(missing_ok=True)
