"""The secret of a run's newest launch, as it is on disk, and the keys that come of it.

For a process that imports next to nothing; all others have `StateDir`.
"""

from __future__ import annotations

import json
from pathlib import Path

from rendezvous.talk.credentials import RunKeys

FILE = "secret"
RECORD = "launch.json"
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


def read_keys(folder: Path) -> RunKeys:
    """The keys of the newest launch of the run that has this folder.

    Raises:
        OSError: There is none, or it cannot be read.
        ValueError: Its record or its secret is damaged.
    """
    record = json.loads((folder / RECORD).read_bytes())
    launch_id = record.get("launch_id") if isinstance(record, dict) else None
    if not isinstance(launch_id, str):
        raise ValueError(f"{RECORD} names no launch")
    return RunKeys(read_secret(folder), folder.name, launch_id)
