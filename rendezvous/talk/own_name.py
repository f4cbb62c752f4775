"""The name by which a registry of another protocol refuses this process."""

from __future__ import annotations

import functools
import os
import socket
import sys
from collections.abc import Sequence
from itertools import dropwhile, islice

_DOORS = ("rdzv", "rdzv_command.py")
_ROLES = {
    "launch": "the launcher",
    "ui": "the page of 'rdzv ui'",
    "worker": "the node",
    **dict.fromkeys(("_torchrun", "_torchrun_host"), "the rendezvous of torchrun"),
}
"""By the command of the process; another one is named as it is."""


@functools.cache
def own_name() -> str:
    """The name of this process."""
    return name_of(sys.orig_argv, socket.gethostname())


def name_of(words: Sequence[str], host: str) -> str:
    """The name of a process with this command line: `'rdzv status' on h1`."""
    own = dropwhile(lambda word: os.path.basename(word) not in _DOORS, words)
    command = next(islice(own, 1, None), "")
    role = f"'rdzv {command}'" if command[:1].isalpha() else "rdzv"
    return f"{_ROLES.get(command, role)} on {host}"
