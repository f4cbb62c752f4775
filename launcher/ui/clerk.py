"""The one who reads the runs' secrets, in a process of its own: it hands out what may be seen.

What talks to browsers holds the credentials that read a run's state and its output, and no secret
from which others could be made; with acts, also those that look and change. The clerk ends when
that process does.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Protocol

from launcher.ui.clerk_process import MOST_BYTES
from rendezvous.door import own_command
from rendezvous.frozen import frozen
from rendezvous.secret_variables import SECRET_VARIABLES
from rendezvous.talk.credentials import Credential, parse_credential


@frozen
class Keys:
    """The credentials of one launch of a run; None: not held."""

    read: Credential | None = None
    logs: Credential | None = None
    look: Credential | None = None
    admin: Credential | None = None


class HandsOut(Protocol):
    """Where credentials are asked for."""

    def keys(self, run: str) -> Keys:
        """Of the newest launch of a run; none where there is none."""


class Clerk:
    """Where credentials are asked for.

    Args:
        root: The folder of all runs.
        acts: Whether also what looks and changes is handed out.
    """

    def __init__(self, root: Path, *, acts: bool) -> None:
        self._socket, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            self.process = subprocess.Popen(
                own_command("_clerk", str(its.fileno()), str(root), *["acts"] * acts),
                pass_fds=(its.fileno(),),
                env={k: v for k, v in os.environ.items() if k not in SECRET_VARIABLES},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )

    def keys(self, run: str) -> Keys:
        """Of the newest launch of a run; none where there is none. Takes a few milliseconds."""
        try:
            self._socket.send(run.encode())
            told: dict[str, str] = json.loads(self._socket.recv(MOST_BYTES) or b"{}")
        except (OSError, ValueError):  # it was killed
            return Keys()
        return Keys(**{name: parse_credential(text) for name, text in told.items()})

    def close(self) -> None:
        """Nothing more is asked for."""
        self._socket.close()
        self.process.wait()
