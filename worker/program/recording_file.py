"""Where a recording is on disk: a file of bounded size, of its own for each process."""

from __future__ import annotations

import os
from pathlib import Path

from rendezvous.recording.recorder import LIMIT_BYTES
from worker.program.log_file import LogFile, first_part, older_part
from worker.program.output import make_private


def begin_recording(path: Path) -> LogFile:
    """Open it, empty: a machine is recorded from its start. Raises OSError."""
    make_private(path.parent)
    for part in _parts(path):
        part.unlink()
    return LogFile(path, LIMIT_BYTES)


def drop_recording(path: Path, *, above_bytes: int) -> None:
    """Remove a recording that is larger than this. Raises OSError."""
    parts = _parts(path)
    if sum(part.stat().st_size for part in parts) > above_bytes:
        for part in parts:
            part.unlink()


def parts_of_recording(path: Path) -> list[Path]:
    """The files of a recording, in order; none where it is something else."""
    from rendezvous.recording.reading import is_recording  # whoever writes one reads none

    parts = _parts(path)
    return parts if parts and is_recording(parts[0]) else []


def _parts(path: Path) -> list[Path]:
    """A long one has its beginning beside the newest."""
    return [part for part in (first_part(path), older_part(path), path) if os.path.isfile(part)]
