"""A batch system that is made up: `batch submit`, `list`, `show`, `kill` and `output`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.schedulers.behaving import Store, log_lines, options_of

COMMANDS = ["batch"]
SET = {"QUEUE": "long"}
WORDS = {"queued": "WAITING", "running": "ACTIVE", "ended": "DONE", "failed": "BROKEN"}


def main(command: str, argv: list[str], store: Store) -> None:
    """See `tests.schedulers.behaving`."""
    verb, options = argv[0], options_of(argv)
    key = next((word for word in argv[1:] if not word.startswith("-")), "")
    if verb == "submit":
        print(f"job {store.create(options['name'], Path(key).read_text())['id']} submitted")
    elif verb == "list":
        for each in store.listed():
            print(f"{each['id']} {each['name']} {each['state']}")
    elif verb == "kill" and not store.cancel(key):
        sys.exit("no such job")
    elif verb in ("show", "output"):
        run = store.get(key)
        if run is None:
            sys.exit("no such job")
        if verb == "show":
            print(f"state={WORDS.get(run['state'], run['state'])} reason=because")
        else:
            log_lines(key, options["lines"])
