"""`ssh`, and on the host's side what the profile's commands would do there.

What these commands really do is tried in tests/ssh, by a shell.
"""

from __future__ import annotations

import re
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.schedulers.behaving import Store

COMMANDS = ["ssh"]
SET = {"HOST": "n1"}
_LOG = re.compile(r"/rdzv/ssh/(rdzv-[^\s/]+)\.log")


def main(command: str, argv: list[str], store: Store) -> None:
    """See `tests.schedulers.behaving`."""
    destination, remote = argv[argv.index("--") + 1 :]
    if destination != "ssh://n1":
        sys.exit(f"ssh: Could not resolve hostname {destination}: Name or service not known")
    if remote == "exec sh -s":
        spec = sys.stdin.read()
        print("rdzv: worker run", store.create(_name(spec), spec)["id"])
    elif "kill -s" in remote:
        store.cancel(_id(remote))
    elif "tail -n" in remote and "running|" not in remote:
        _print_log(remote)
    else:
        _tell(store, remote)


def _tell(store: Store, remote: str) -> None:
    """Answer what looks for a worker run, or asks how it is."""
    if "running|" not in remote:
        run = store.get(_name(remote))
        print(f"rdzv: worker run {run['id']}" if run else "none")
    elif (run := store.get(_id(remote))) is None:
        print("none")
    else:
        state = "running" if run["state"] == "queued" else run["state"]  # a host has no queue
        print(f"{state}|as the host says")


def _print_log(remote: str) -> None:
    for number in range(int(remote.split("tail -n ")[1].split()[0])):
        print(f"line {number} of {_name(remote)}", file=sys.__stdout__, flush=True)
    if "-F" in remote:
        time.sleep(1000)


def _name(text: str) -> str:
    found = _LOG.search(text)
    return found[1] if found else ""


def _id(text: str) -> str:
    return text.split("id=")[1].split(";")[0]
