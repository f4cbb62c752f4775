"""The one who reads the runs' secrets, in a process of its own: it hands out what may be seen.

What talks to browsers holds the credentials that read a run's state and its output, and no secret
from which others could be made; with acts, also those that look and change. The clerk is forked
before anything else of the page begins, and ends when that does.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import socket
from pathlib import Path
from typing import Any, Protocol

from launcher.state.state_dir import StateDir
from rendezvous.frozen import frozen
from rendezvous.talk.credentials import Credential, parse_credential
from rendezvous.wire.errors import RdzvError

_MOST_BYTES = 64 << 10


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
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        gc.freeze()  # what both hold is not looked through: the pages that it is on stay shared
        self._pid = os.fork()
        if self._pid == 0:
            ours.close()
            _serve(its, root, acts=acts)
        its.close()
        self._socket = ours

    def keys(self, run: str) -> Keys:
        """Of the newest launch of a run; none where there is none. Takes a few milliseconds."""
        try:
            self._socket.send(run.encode())
            told: dict[str, str] = json.loads(self._socket.recv(_MOST_BYTES) or b"{}")
        except (OSError, ValueError):  # it was killed
            return Keys()
        return Keys(**{name: parse_credential(text) for name, text in told.items()})

    def close(self) -> None:
        """Nothing more is asked for."""
        self._socket.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


def _serve(asked: socket.socket, root: Path, *, acts: bool) -> None:
    """Answer until nobody asks any more; never returns."""
    code = 0
    try:
        while run := asked.recv(_MOST_BYTES):
            asked.send(json.dumps(_handed_out(root, run.decode(), acts=acts)).encode())
    except (OSError, KeyboardInterrupt):
        code = 1
    finally:
        os._exit(code)


def _handed_out(root: Path, run: str, *, acts: bool) -> dict[str, Any]:
    try:
        keys = StateDir(root, run).keys()
    except (RdzvError, OSError):  # one run's folder may be somebody else's
        return {}
    if keys is None:
        return {}
    read_only = {"read": keys.read.text(), "logs": keys.logs.text()}
    return read_only | ({"look": keys.look.text(), "admin": keys.admin.text()} if acts else {})
