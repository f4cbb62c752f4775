"""The one who reads the runs' secrets, in a process of its own: it hands out what may be seen.

What talks to browsers holds the credentials that read a run's state and its output, and no secret
from which others could be made; with acts, also those that look and change. The clerk ends when
that process does.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Protocol

from launcher.ui.clerk_process import MOST_BYTES
from rendezvous.door import own_command
from rendezvous.frozen import frozen
from rendezvous.secret_variables import SECRET_VARIABLES
from rendezvous.talk.credentials import Credential, parse_credential

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 2.0
"""For an answer; the first one waits for the process to start."""

PAUSE_SECONDS = 1.0
"""Between two starts."""


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

    It is called in the page's event loop, so a clerk that hangs is ended, and one that has ended is
    started again: meanwhile there are no credentials.

    Args:
        root: The folder of all runs.
        acts: Whether also what looks and changes is handed out.
    """

    def __init__(self, root: Path, *, acts: bool) -> None:
        self._root, self._acts = root, acts
        self._start()

    def _start(self) -> None:
        self._started_at = time.monotonic()
        self._socket, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(PATIENCE_SECONDS)
        words = own_command("_clerk", str(its.fileno()), str(self._root), *["acts"] * self._acts)
        with its:
            self.process = subprocess.Popen(
                words,
                pass_fds=(its.fileno(),),
                env={k: v for k, v in os.environ.items() if k not in SECRET_VARIABLES},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )

    def keys(self, run: str) -> Keys:
        """Of the newest launch of a run; none where there is none. Takes a few milliseconds."""
        try:
            asked = run.encode()
        except UnicodeEncodeError:
            return Keys()
        told = self._ask(asked)
        if told is None and self._start_again():
            told = self._ask(asked)
        return Keys(**{name: parse_credential(text) for name, text in (told or {}).items()})

    def _ask(self, run: bytes) -> dict[str, str] | None:
        """What the clerk hands out; None: it does not answer, and is gone now."""
        try:
            self._socket.send(run)
            if said := self._socket.recv(MOST_BYTES):
                told: dict[str, str] = json.loads(said)
                return told
        except (OSError, ValueError):  # it was killed, or hangs
            pass
        self._end()
        return None

    def _start_again(self) -> bool:
        """Whether a new one could be started; not at once where they end as they begin."""
        if time.monotonic() - self._started_at < PAUSE_SECONDS:
            return False
        logger.warning("the process that reads the runs' secrets did not answer: starting it again")
        try:
            self._start()
        except OSError as exc:
            logger.warning("it cannot be started: %s", exc.strerror)
            return False
        return True

    def _end(self) -> None:
        self._socket.close()
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """Nothing more is asked for."""
        self._socket.close()
        try:
            self.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._end()
