"""`docker run`, `ps`, `inspect`, `stop` and `logs`, with the words of Docker 20 to 28."""

from __future__ import annotations

import itertools
import re
import sys
from pathlib import Path

from tests.schedulers.behaving import Store, log_lines, options_of

COMMANDS = ["docker"]
SET = {"IMAGE": "registry/image:tag"}
FIRST_ID = 10**63  # 64 digits, as Docker's ids are
SAYS = {"queued": "running", "running": "running", "ended": "exited", "failed": "exited in error"}


def main(command: str, argv: list[str], store: Store) -> None:
    """See `tests.schedulers.behaving`."""
    verb, key = argv[0], argv[-1]
    # What follows the image is the container's.
    options = options_of(list(itertools.takewhile(lambda word: word.startswith("-"), argv[1:])))
    if verb == "run":
        variables = Path(options["env-file"]).read_text()
        print(store.create(options["name"], variables, FIRST_ID)["id"])
    elif verb == "ps":
        pattern = options["filter"].removeprefix("name=")
        for each in store.listed():
            if re.search(pattern, "/" + each["name"]):
                print(each["id"])
    elif verb != "stop" or not store.cancel(key):
        run = store.get(key)
        if run is None:
            sys.exit(f"Error response from daemon: No such container: {key}")
        if verb == "inspect":
            state = SAYS.get(run["state"], run["state"])
            print(f"{state}|exit code {int(run['state'] == 'failed')} ")
        elif verb == "logs":
            log_lines(key, options["tail"])
