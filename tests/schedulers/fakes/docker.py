"""`docker run`, `ps`, `inspect`, `stop` and `logs`, with the words of Docker 20 to 28."""

from __future__ import annotations

import itertools
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.schedulers.behaving import Store

COMMANDS = ["docker"]
SET = {"IMAGE": "registry/image:tag"}
FIRST_ID = 10**63  # 64 digits, as Docker's ids are
SAYS = {"queued": "running", "running": "running", "ended": "exited", "failed": "exited in error"}


def main(command: str, argv: list[str], store: Store) -> None:
    """See `tests.schedulers.behaving`."""
    verb, words = argv[0], argv[1:]
    # What follows the image is the container's.
    own = itertools.takewhile(lambda word: word.startswith("-"), words)
    options = dict(word.removeprefix("--").partition("=")[::2] for word in own)
    if verb == "run":
        variables = Path(options["env-file"]).read_text()
        print(store.create(options["name"], variables, FIRST_ID)["id"])
    elif verb == "ps":
        pattern = options["filter"].removeprefix("name=")
        for run in store.listed():
            if re.search(pattern, "/" + run["name"]):
                print(run["id"])
    elif verb == "stop" and not store.cancel(words[-1]) and store.get(words[-1]) is None:
        _unknown(words[-1])
    elif verb in ("inspect", "logs"):
        _tell(store, verb, words[-1], options)


def _tell(store: Store, verb: str, key: str, options: dict[str, str]) -> None:
    run = store.get(key)
    if run is None:
        _unknown(key)
    elif verb == "inspect":
        state = SAYS.get(run["state"], run["state"])
        print(f"{state}|exit code {int(run['state'] == 'failed')} ")
    else:
        for number in range(3 - int(options["tail"]), 3):
            print(f"line {number} of {key}", file=sys.__stdout__, flush=True)
        if "follow" in options:
            time.sleep(1000)


def _unknown(key: str) -> None:
    sys.exit(f"Error response from daemon: No such container: {key}")
