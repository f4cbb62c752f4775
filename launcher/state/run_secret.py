"""The secret of a run's newest launch, as it is on disk."""

from __future__ import annotations

from pathlib import Path

FILE = "secret"
BYTES = 32


def read_secret(folder: Path) -> bytes:
    """The secret in the folder of a run.

    Raises:
        OSError: It cannot be read.
        ValueError: It is damaged.
    """
    secret = bytes.fromhex((folder / FILE).read_text("utf-8"))
    if len(secret) != BYTES:
        raise ValueError(f"a secret has {BYTES} bytes, and this one {len(secret)}")
    return secret
