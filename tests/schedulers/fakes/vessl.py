"""VESSL's command 0.1.199, as far as worker runs need it: `vessl run create`, `list`, `read` ..."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.schedulers.behaving import Store

COMMANDS = ["vessl"]
SET = {
    "CLUSTER": "gpu-cluster",
    "PRESET": "gpu-h100-80g-xlarge",
    "REPOSITORY": "git://github.com/acme/training.git",
}
WORDS = {"queued": "pending", "running": "running", "ended": "completed", "failed": "failed"}
UNKNOWN = "vessl.util.exception.VesslApiException: NotFound (404): There is no such run."


def main(command: str, argv: list[str], store: Store) -> None:
    """See `tests.schedulers.behaving`."""
    verb, words = argv[1], argv[2:]
    sys.stderr.write("\x1b[36mOrganization: acme\x1b[0m\n\x1b[36mProject: llama\x1b[0m\n")
    if verb == "create":
        _create(store, Path(words[words.index("-f") + 1]))
    elif verb == "list":
        print("  \x1b[1mID\x1b[0m  \x1b[1mName\x1b[0m  \x1b[1mType\x1b[0m  Status  Created")
        for run in store.listed():
            state = WORDS.get(run["state"], run["state"])
            print(f" {run['id']}  {run['name']}  batch  {state}  2026-09-05 12:30:45+00:00  ")
    elif not words[-1].isdigit():
        sys.exit(f"Error: Invalid value for 'RUN_ID': '{words[-1]}' is not a valid integer.")
    elif verb == "terminate" and not store.cancel(words[-1]):
        sys.exit(UNKNOWN)
    elif verb == "read":
        _read(store, words[-1])
    elif verb == "logs":
        print("[12:30:45.123456] training")


def _create(store: Store, spec: Path) -> None:
    text = spec.read_text()
    if not re.search(r"^image:", text, re.MULTILINE):
        print("[12:30:45] \x1b[91m Field image does not exist! Please specify them.\x1b[0m")
        return
    name = re.search(r'^name: "?([^"\n]+)"?$', text, re.MULTILINE)
    run = store.create(name[1] if name else "None", text, first_id=369_367_263_402)
    link = f"https://app.vessl.ai/acme/runs/llama/{run['id']}"
    print(f"[12:30:45]\x1b[96m Check your Run at: {link}\x1b[0m")


def _read(store: Store, key: str) -> None:
    run = store.get(key)
    if run is None:
        sys.exit(UNKNOWN)
    reason = "Exit code 1" if run["state"] == "failed" else ""
    print(f" \x1b[36mID\x1b[0m {run['id']}\n \x1b[36mName\x1b[0m {run['name']}")
    print(f" Status {WORDS.get(run['state'], run['state'])}\n Status reason {reason}")
