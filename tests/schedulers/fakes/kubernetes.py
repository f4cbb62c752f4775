"""kubectl: `create`, `get` with jsonpath, `delete` and `logs`, for Jobs, their pods and Secrets."""

from __future__ import annotations

import re
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.schedulers.behaving import Store

COMMANDS = ["kubectl"]
SET = {"GPUS": "8"}
UNSCHEDULED = {
    "type": "PodScheduled",
    "status": "False",
    "message": "0/4 nodes are available: 4 Insufficient nvidia.com/gpu.",
}
STATUS: dict[str, dict[str, Any]] = {
    "queued": {"phase": "Pending", "conditions": [UNSCHEDULED]},
    "running": {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]},
    "ended": {"phase": "Succeeded"},
    "failed": {
        "phase": "Failed",
        "containerStatuses": [{"state": {"terminated": {"reason": "Error", "exitCode": 1}}}],
    },
}
PIECE = re.compile(r"\{(range |end|)([^}]*)\}")
STEP = re.compile(r'\.([\w/-]+)|\[(\*|\d+)\]|\[\?\(@\.(\w+)=="(\w+)"\)\]')


def main(command: str, argv: list[str], store: Store) -> None:
    """See `tests.schedulers.behaving`."""
    options = dict(word.lstrip("-").partition("=")[::2] for word in argv if word.startswith("-"))
    verb, *rest = [word for word in argv if not word.startswith("-")]
    if verb == "create":
        _create(store)
    elif verb == "get":
        _get(store, rest, options)
    elif verb == "delete":
        _delete(store, rest)
    elif verb == "logs":
        _logs(store, rest[0], options)


def _create(store: Store) -> None:
    """Like the real one, it goes on with the next object when one is refused."""
    refused = []
    for text in sys.stdin.read().split("\n---\n"):
        found = re.search(r"^kind: (\w+)$", text, re.MULTILINE)
        named = re.search(r'^  name: "([a-z0-9-]{1,63})"$', text, re.MULTILINE)
        if found is None or named is None:
            sys.exit("error: error validating data: kind or a valid name is missing")
        kind, name = found[1], named[1]
        path = store.folder / f"{kind}-{name}"
        if path.exists():
            noun = "jobs.batch" if kind == "Job" else "secrets"
            words = f'error when creating "STDIN": {noun} "{name}" already exists'
            refused.append(f"Error from server (AlreadyExists): {words}")
            continue
        if kind == "Job":
            store.create(name, text)
        path.write_text(text)
        print(f"job.batch/{name}" if kind == "Job" else f"secret/{name}")
    if refused:
        sys.exit("\n".join(refused))


def _get(store: Store, rest: list[str], options: dict[str, str]) -> None:
    template = options["output"].removeprefix("jsonpath=")
    there = [run for run in store.listed() if (store.folder / f"Job-{run['name']}").exists()]
    if len(rest) == 2:
        if run := next((run for run in there if run["name"] == rest[1]), None):
            print(filled(template, _job(run)), end="")
        return
    items = []
    if "jobs" in rest[0]:
        items += [_job(run) for run in there]
    if "pods" in rest[0]:
        items += [_pod(run) for run in there]
    print(filled(template, {"kind": "List", "items": items}), end="")


def _job(run: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "Job", "metadata": {"name": run["name"]}, "status": {}}


def _pod(run: dict[str, Any]) -> dict[str, Any]:
    labels = {"rdzv/worker-run": run["name"]}
    status = STATUS.get(run["state"], {"phase": run["state"]})
    metadata = {"name": f"{run['name']}-x7k2p", "labels": labels}
    return {"kind": "Pod", "metadata": metadata, "spec": {"nodeName": "gpu-17"}, "status": status}


def _delete(store: Store, names: list[str]) -> None:
    for word in names:
        kind, _, name = word.partition("/")
        if kind == "job":
            store.cancel(name)
        if "/" not in name:
            (store.folder / f"{kind.capitalize()}-{name}").unlink(missing_ok=True)


def _logs(store: Store, word: str, options: dict[str, str]) -> None:
    name = word.partition("/")[2]
    if store.get(name) is None:
        sys.exit(f'Error from server (NotFound): jobs.batch "{name}" not found')
    for number in range(3 - int(options["tail"]), 3):
        print(f"line {number} of {name}", file=sys.__stdout__, flush=True)
    if "follow" in options:
        time.sleep(1000)


# ---- jsonpath, as far as the profile uses it -----------------------------------------------------


def filled(template: str, root: Any) -> str:
    """A jsonpath template filled from an object."""
    text, rest = _block(template, root)
    assert not rest, f"an {{end}} too many before {rest!r}"
    return text


def _block(template: str, here: Any) -> tuple[str, str]:
    """The text up to the `{end}` of this block, and what follows."""
    text = ""
    while piece := PIECE.search(template):
        text += template[: piece.start()]
        template = template[piece.end() :]
        if piece[1] == "end":
            return text, template
        if piece[1]:
            body = template
            for value in _values(piece[2], here):
                text += _block(body, value)[0]
            template = _block(body, {})[1]
        else:
            text += " ".join(str(value) for value in _values(piece[2], here))
    return text + template, ""


def _values(path: str, here: Any) -> list[Any]:
    """What a path leads to; nothing where something on the way is missing."""
    values = [here]
    for name, index, key, wanted in STEP.findall(path):
        if name:
            values = [value[name] for value in values if isinstance(value, dict) and name in value]
        elif key:
            values = [item for value in values for item in value if item.get(key) == wanted]
        elif index == "*":
            values = [item for value in values for item in value]
        else:
            values = [value[int(index)] for value in values if len(value) > int(index)]
    return values
