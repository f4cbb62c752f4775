"""`az ml job`: create, show, cancel and stream, of the jobs of a workspace."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.schedulers.behaving import Store

COMMANDS = ["az"]
SET = {"COMPUTE": "azureml:gpu-cluster", "CODE": "/code"}
STATUS = {"queued": "Queued", "running": "Running", "ended": "Completed", "failed": "Failed"}


def main(command: str, argv: list[str], store: Store) -> None:
    """See `tests.schedulers.behaving`."""
    options = dict(word.lstrip("-").partition("=")[::2] for word in argv if word.startswith("-"))
    verb = argv[2]
    if argv[:2] != ["ml", "job"]:
        sys.exit(f"ERROR: '{argv[0]}' is misspelled or not recognized by the system.")
    if verb == "create":
        _create(store, Path(options["file"]))
        return
    name = options["name"]
    run = store.get(name)
    if run is None:
        print("(UserError) Run " + name + " was not found.", file=sys.stderr)
        print("Code: UserError", file=sys.stderr)
        sys.exit(3)
    if verb == "show":
        print(name if options["query"] == "name" else STATUS.get(run["state"], run["state"]))
    elif verb == "cancel" and not store.cancel(name):
        sys.exit("ERROR: (UserError) The job is in a terminal state and cannot be canceled.")
    elif verb == "stream":
        _stream(name)


def _create(store: Store, path: Path) -> None:
    text = path.read_text()
    found = re.search(r'^name: "([\w-]+)"$', text, re.MULTILINE)
    if found is None or "\ntype: command\n" not in text:
        sys.exit("ERROR: Met error <class 'Exception'>: Validation for CommandSchema failed")
    print(store.create(found[1], text)["name"])


def _stream(name: str) -> None:
    print(f"RunId: {name}", file=sys.__stdout__)
    for number in range(3):
        print(f"line {number} of {name}", file=sys.__stdout__, flush=True)
