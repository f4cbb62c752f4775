"""A batch system that is made up: `batch submit`, `list`, `show`, `kill` and `output`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.schedulers.behaving import Store

COMMANDS = ["batch"]
SET = {"QUEUE": "long"}
WORDS = {"queued": "WAITING", "running": "ACTIVE", "ended": "DONE", "failed": "BROKEN"}


def main(command: str, argv: list[str], store: Store) -> None:
    """See `tests.schedulers.behaving`."""
    verb, words = argv[0], argv[1:]
    options = dict(word.lstrip("-").partition("=")[::2] for word in words if word.startswith("-"))
    rest = [word for word in words if not word.startswith("-")]
    if verb == "submit":
        run = store.create(options["name"], Path(rest[0]).read_text())
        print(f"job {run['id']} submitted")
    elif verb == "list":
        for run in store.listed():
            print(f"{run['id']} {run['name']} {run['state']}")
    elif verb == "kill" and not store.cancel(rest[0]):
        sys.exit("no such job")
    elif verb in ("show", "output"):
        _tell(store, verb, rest[0], options)


def _tell(store: Store, verb: str, key: str, options: dict[str, str]) -> None:
    run = store.get(key)
    if run is None:
        sys.exit("no such job")
    if verb == "show":
        print(f"state={WORDS.get(run['state'], run['state'])} reason=because")
        return
    for number in range(3 - int(options["lines"]), 3):
        print(f"line {number} of {key}", file=sys.__stdout__, flush=True)
    if "follow" in options:
        time.sleep(1000)
