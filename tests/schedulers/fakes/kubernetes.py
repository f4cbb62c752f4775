"""kubectl: `create`, `get`, `delete` and `logs`, for Jobs and Secrets; and the script that asks it.

What kubectl makes of the script's templates is tried in tests/kubernetes, by the real one.
"""

from __future__ import annotations

import re
import sys

from tests.schedulers.behaving import Store, log_lines, options_of

COMMANDS = ["kubectl", "sh"]
SET = {"GPUS": "8"}
STATUS = {
    "queued": "Pending| 0/4 nodes are available: 4 Insufficient nvidia.com/gpu.",
    "running": "Running|gpu-17",
    "ended": "Succeeded|",
    "failed": "Failed|Error, exit code 1",
}


def main(command: str, argv: list[str], store: Store) -> None:
    """See `tests.schedulers.behaving`."""
    options = options_of(argv)
    verb, *rest = [word for word in argv if not word.startswith("-")]
    if command == "sh":
        for each in store.listed():
            status = STATUS.get(each["state"], f"{each['state']}|")
            print(f"{each['name']}|NoPod|no pod has been created yet\n{each['name']}|{status}")
    elif verb == "create":
        _create(store)
    elif verb == "get":
        run = store.get(rest[1])
        if run and run["state"] not in ("ended", "failed"):
            print(f"{run['name']}||")
    elif verb == "delete":
        for word in rest:
            kind, _, name = word.partition("/")
            (store.folder / f"{kind.capitalize()}-{name}").unlink(missing_ok=True)
            if kind == "job":
                store.cancel(name)
    elif store.get(rest[0].partition("/")[2]) is None:
        sys.exit(f'Error from server (NotFound): jobs.batch "{rest[0]}" not found')
    else:
        log_lines(rest[0], options["tail"])


def _create(store: Store) -> None:
    """Like the real one, it goes on with the next object when one is refused."""
    refused = []
    for text in store.stdin.split("\n---\n"):
        found = re.search(r"^kind: (\w+)$", text, re.MULTILINE)
        named = re.search(r'^  name: "([a-z0-9-]{1,63})"$', text, re.MULTILINE)
        if found is None or named is None:
            sys.exit("error: error validating data: kind or a valid name is missing")
        path, name = store.folder / f"{found[1]}-{named[1]}", named[1]
        if path.exists():
            refused.append(f'Error from server (AlreadyExists): {found[1]} "{name}" already exists')
            continue
        if found[1] == "Job":
            store.create(name, text)
        path.write_text(text)
        print(f"job.batch/{name}" if found[1] == "Job" else f"secret/{name}")
    if refused:
        sys.exit("\n".join(refused))
