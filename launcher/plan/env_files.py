"""The files of `--env-file`, as they are on this machine."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rendezvous.wire.errors import UsageError


def read_env_files(paths: Iterable[Path]) -> list[tuple[str, bytes]]:
    """Each file's name and content; raises UsageError."""
    found = []
    for path in paths:
        try:
            found.append((str(path), path.read_bytes()))
        except OSError as exc:
            raise UsageError(f"--env-file {path} cannot be read: {exc.strerror}") from exc
    return found
