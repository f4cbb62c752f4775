"""The name by which a registry of another protocol refuses this process."""

from __future__ import annotations

import functools
import socket
import sys
from collections.abc import Sequence

_ROLES = {
    "launch": "the launcher",
    "ui": "the page of 'rdzv ui'",
    "worker": "the node",
    **dict.fromkeys(("_torchrun", "_torchrun_host"), "the rendezvous of torchrun"),
    **{
        name: f"'rdzv {name}'"
        for name in (
            *("bench", "cancel", "doctor", "drain", "logs", "look", "metrics", "prune"),
            *("restart", "serve", "status", "tenant", "token"),
        )
    },
}
"""By the command of the process."""


@functools.cache
def own_name() -> str:
    """The name of this process."""
    return name_of(sys.orig_argv, socket.gethostname())


def name_of(words: Sequence[str], host: str) -> str:
    """The name of a process with this command line: `'rdzv status' on h1`."""
    role = next((_ROLES[word] for word in words if word in _ROLES), "rdzv")
    return f"{role} on {host}"
