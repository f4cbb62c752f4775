"""Names 127.0.0.1 the way torch's store asks for it, for this process and its children alone."""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
from pathlib import Path

_HOSTS = Path("/etc/hosts")
_LINE = "::ffff:127.0.0.1 localhost\n"
_CLONE_NEWNS = 0x0002_0000


def name_mapped_loopback() -> bool:
    """Let the mapped form of 127.0.0.1 be found in /etc/hosts; whether it is.

    torch asks for the name of each address that it dials, as `::ffff:127.0.0.1`. Where no name
    server answers, that costs c10d seconds at each node, and 128 nodes never meet. rdzv writes such
    lines for its nodes; the peers shall have them too. Needs root: a mount namespace of its own.
    """
    text = _HOSTS.read_text()
    if _LINE.split()[0] in text.split():
        return True
    if os.geteuid() != 0 or ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS) != 0:
        return False
    with tempfile.NamedTemporaryFile("w", suffix="-hosts") as file:
        file.write(f"{text.rstrip()}\n{_LINE}")
        file.flush()
        for command in (["--make-rprivate", "/"], ["--bind", file.name, str(_HOSTS)]):
            if subprocess.run(["mount", *command], check=False).returncode != 0:
                return False
    return True
