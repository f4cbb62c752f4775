"""Reads NCCL's configuration files, as NCCL itself will: they are the user's words as well."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from pathlib import Path

from rendezvous.wire.words import printable
from worker.nccl.env import Given, conf_values

SYSTEM_FILE = Path("/etc/nccl.conf")
_MOST_BYTES = 65_536


def read_conf(
    environ: Mapping[str, str], *, home: Path | None = None, system: Path = SYSTEM_FILE
) -> dict[str, Given]:
    """What the files set that NCCL will read: NCCL_CONF_FILE or ~/.nccl.conf, then /etc/nccl.conf.

    Args:
        environ: The program's environment.
        home: The user's home; the account's own when None, as NCCL takes it, whatever HOME says.
        system: The file for everybody.
    """
    own = environ.get("NCCL_CONF_FILE")
    first = Path(own) if own else (home or _home()) / ".nccl.conf"
    found: dict[str, Given] = {}
    for path in (first, system):
        for name, value in conf_values(_text(path)).items():
            found.setdefault(name, Given(value, printable(str(path), 200)))
    return found


def _home() -> Path:
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:  # an account that the image does not know
        return Path("/nonexistent")


def _text(path: Path) -> str:
    """A file's beginning; empty for what is none, as for NCCL."""
    try:
        if not os.path.isfile(path):
            return ""
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
