"""`ssh`, and on the host's side what the profile's commands would do there.

What these commands really do is tried in tests/ssh, by a shell.
"""

from __future__ import annotations

import re
import sys

from tests.schedulers.behaving import Store, log_lines

COMMANDS = ["ssh"]
SET = {"HOST": "n1"}
LOST_CODE = 255
_LOG = re.compile(r"/rdzv/ssh/(rdzv-[^\s/]+)\.log")


def main(command: str, argv: list[str], store: Store) -> None:
    """See `tests.schedulers.behaving`."""
    destination, remote = argv[argv.index("--") + 1 :]
    if destination != "ssh://n1":
        sys.exit(f"ssh: Could not resolve hostname {destination}: Name or service not known")
    print("\nrdzv: sh has started")
    if "exec sh -s begun" in remote:
        print("rdzv: worker run", store.create(_name(store.stdin), store.stdin)["id"])
    elif "kill -s" in remote:
        store.cancel(_id(remote))
    elif "running|" in remote:
        run = store.get(_id(remote))
        # A host has no queue.
        state = {"queued": "running"}.get(run["state"], run["state"]) if run else ""
        print(f"{state}|as the host says" if run else "none")
    elif "tail -n" in remote:
        log_lines(_name(remote), remote.split("tail -n ")[1].split()[0])
    else:
        run = store.get(_name(remote))
        print(f"rdzv: worker run {run['id']}" if run else "none")


def _name(text: str) -> str:
    found = _LOG.search(text)
    return found[1] if found else ""


def _id(text: str) -> str:
    return text.split("id=")[1].split(";")[0]
