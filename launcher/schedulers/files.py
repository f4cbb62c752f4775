"""The files of a submission: each holds a join string, so each is its owner's alone."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from rendezvous.wire.errors import SchedulerError
from worker.program.output import write_whole

NEW = ".new"
"""What the file's own suffix is while it is being written."""


def write_private(path: Path, text: str, *, hint: str = "") -> None:
    """Write a file that only its owner can read; nobody sees half of it.

    Raises:
        SchedulerError: It cannot be written.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, path.with_suffix(NEW), text)
    except OSError as exc:
        raise SchedulerError(f"{path} cannot be written: {exc.strerror}", hint=hint) from exc


@contextlib.contextmanager
def on_disk(path: Path) -> Iterator[None]:
    """Name the file that cannot be reached: nothing is known of it, not that it is gone.

    Raises:
        SchedulerError: Its folder is closed, or its server does not answer.
    """
    try:
        yield
    except OSError as exc:
        raise SchedulerError(f"{path} cannot be reached: {exc.strerror}") from exc


def is_there(path: Path) -> bool:
    """Tell whether a file exists; raises SchedulerError where that cannot be known."""
    with on_disk(path), contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.stat(path)
        return True
    return False
