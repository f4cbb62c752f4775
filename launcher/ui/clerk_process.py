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

from launcher.state.run_secret import read_secret
from rendezvous.talk.credentials import RunKeys
from worker.program import keeper

_MOST_BYTES = 64 << 10


def main() -> None:
    """Answer until nobody asks any more."""
    _, fd, root, *acts = sys.argv
    with contextlib.suppress(OSError):
        keeper.prctl(keeper.PR_SET_DUMPABLE, 0)  # see `worker.program.process.hide_memory`
    asked = socket.socket(fileno=int(fd))
    with contextlib.suppress(OSError):
        while run := asked.recv(_MOST_BYTES):
            asked.send(json.dumps(_handed_out(Path(root), run, acts=bool(acts))).encode())


def _handed_out(root: Path, run: bytes, *, acts: bool) -> dict[str, str]:
    """By what each credential is good for; one run's folder may be damaged, or somebody else's."""
    try:
        name = run.decode()
        launch: str = json.loads((root / name / "launch.json").read_bytes())["launch_id"]
        keys = RunKeys(read_secret(root / name), name, launch)
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    read_only = {"read": keys.read.text(), "logs": keys.logs.text()}
    return read_only | ({"look": keys.look.text(), "admin": keys.admin.text()} if acts else {})
