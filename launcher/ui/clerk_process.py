"""The clerk as a process: `rdzv_command.py _clerk FD FOLDER [acts]`.

It lasts as long as the page's process and does next to nothing, so it imports next to nothing: less
than what a fork of that process would have for itself as time goes by.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
from pathlib import Path

from launcher.state.run_secret import read_keys
from worker.program.hidden import hide_memory

MOST_BYTES = 64 << 10


def main() -> None:
    """Answer until nobody asks any more."""
    _, fd, root, *acts = sys.argv
    hide_memory()
    asked = socket.socket(fileno=int(fd))
    with contextlib.suppress(OSError):
        while run := asked.recv(MOST_BYTES):
            asked.send(json.dumps(_handed_out(Path(root), run, acts=bool(acts))).encode())


def _handed_out(root: Path, run: bytes, *, acts: bool) -> dict[str, str]:
    """By what each credential is good for; one run's folder may be damaged, or somebody else's."""
    try:
        keys = read_keys(root / run.decode())
    except (OSError, ValueError):
        return {}
    read_only = {"read": keys.read.text(), "logs": keys.logs.text()}
    return read_only | ({"look": keys.look.text(), "admin": keys.admin.text()} if acts else {})
