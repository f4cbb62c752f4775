"""`az ml job`: create, show, cancel and stream, of the jobs of a workspace."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.schedulers.behaving import Store, log_lines, options_of

COMMANDS = ["az", "sh"]
SET = {"COMPUTE": "azureml:gpu-cluster", "CODE": "/code"}
STATUS = {"queued": "Queued", "running": "Running", "ended": "Completed", "failed": "Failed"}


def main(command: str, argv: list[str], store: Store) -> None:
    """See `tests.schedulers.behaving`."""
    if command == "sh":  # az, cut short and by its end
        log_lines(*argv[-2:])
        return
    options, verb = options_of(argv), argv[2]
    if argv[:2] != ["ml", "job"]:
        sys.exit(f"ERROR: '{argv[0]}' is misspelled or not recognized by the system.")
    if verb == "create":
        text = Path(options["file"]).read_text()
        found = re.search(r'^name: "([\w-]+)"$', text, re.MULTILINE)
        if found is None or "\ntype: command\n" not in text:
            sys.exit("ERROR: Met error <class 'Exception'>: Validation for CommandSchema failed")
        print(store.create(found[1], text)["name"])
        return
    name = options["name"]
    run = store.get(name)
    if run is None:
        sys.exit(f"(UserError) Run {name} was not found.\nCode: UserError")
    if verb == "show":
        print(name if options["query"] == "name" else STATUS.get(run["state"], run["state"]))
    elif verb == "cancel" and not store.cancel(name):
        sys.exit("ERROR: (UserError) The job is in a terminal state and cannot be canceled.")
    elif verb == "stream":
        log_lines(name, "3")
