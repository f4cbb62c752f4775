"""Where a node of Slurm is: the address at which Slurm reaches it, since names need not resolve."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping

from launcher.options import outside_environment

_NODE_ADDR = re.compile(r"(?:^|\s)NodeAddr=(\S+)")
_LIMIT_SECONDS = 10.0


def address_in(said: str, name: str) -> str:
    """The NodeAddr in what `scontrol show node` says; empty where it is no more than the name."""
    found = _NODE_ADDR.search(said)
    return found[1] if found and found[1] not in (name, "(null)") else ""


def node_address(name: str, environ: Mapping[str, str]) -> str:
    """The NodeAddr of a node, asked of Slurm; empty where that cannot be asked, or knows no more.

    Args:
        name: The node, as Slurm names it.
        environ: The user's environment, which says where Slurm is.
    """
    command = shutil.which("scontrol", path=environ.get("PATH", ""))
    if command is None or name.startswith("-"):
        return ""
    try:
        done = subprocess.run(
            [command, "--oneliner", "show", "node", name],
            env=outside_environment(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return address_in(done.stdout, name)
