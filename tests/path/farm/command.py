"""`farm`: a small batch system with a queue, whose runs are real processes on this machine.

    farm submit --name=NAME SPEC    farm find NAME    farm show ID    farm kill ID GRACE
    farm log ID LINES [--follow]

What it knows is a folder (FARM_FOLDER): `ID.json` for each run, `ID.log`, `ID.exit` once it is
over. There is no server: every call lets queued runs begin, as many as `capacity` says.

Files in the folder that a test makes are its troubles:

    hold-answer     submit waits after it has made the run
    down            every call fails
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ["FARM_FOLDER"])
# The program's own shell waits for it, so that its exit code is known whatever ends it; a run is
# up once a signal ends the program, and no longer the shell.
_SHEPHERD = (
    'trap : TERM; (: > "$1.up"; exec sh "$0") > "$1.log" 2>&1; '
    'echo $? > "$1.new"; mv "$1.new" "$1.exit"'
)


def main(verb: str, *words: str) -> None:
    """One call."""
    if verb == "log":
        _log(*words)
        return
    if _has("down"):
        sys.exit("farm: error 500: internal server error")
    if verb == "submit":
        _submit(*words)
    elif verb == "find":
        with _locked():
            for run in _runs():
                if run["name"] == words[0] and _state(run)[0] in ("QUEUED", "RUNNING"):
                    print(run["id"])
    elif verb == "show":
        _show(words[0])
    elif verb == "kill":
        _kill(*words)


def _has(trouble: str) -> bool:
    return (FOLDER / trouble).exists()


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _begin_queued()
        yield
        _begin_queued()


def _runs() -> list[dict[str, Any]]:
    found = [json.loads(path.read_text()) for path in FOLDER.glob("*.json")]
    return sorted(found, key=lambda run: run["id"])


def _write(run: dict[str, Any]) -> None:
    path = FOLDER / f"{run['id']}.json"
    path.with_suffix(".new-json").write_text(json.dumps(run))
    path.with_suffix(".new-json").replace(path)


def _state(run: dict[str, Any]) -> tuple[str, str]:
    """Its state and why, in the farm's words."""
    if run["state"] != "STARTED":
        return run["state"], run["why"]
    exited = FOLDER / f"{run['id']}.exit"
    if not exited.exists():
        return "RUNNING", ""
    code = int(exited.read_text())
    return ("DONE", "") if code == 0 else ("BROKEN", f"exit code {code}")


def _begin_queued() -> None:
    capacity = FOLDER / "capacity"
    room = int(capacity.read_text()) if capacity.exists() else 1000
    runs = _runs()
    room -= sum(_state(run)[0] == "RUNNING" for run in runs)
    for run in runs:
        if run["state"] == "QUEUED" and room > 0:
            room -= 1
            base = FOLDER / str(run["id"])
            started = subprocess.Popen(
                ["sh", "-c", _SHEPHERD, run["spec"], str(base)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            while not base.with_suffix(".up").exists():
                time.sleep(0.001)
            _write(run | {"state": "STARTED", "pid": started.pid})


def _submit(name: str, spec: str) -> None:
    with _locked():
        number = 1 + max((run["id"] for run in _runs()), default=100)
        kept = FOLDER / f"{number}.sh"
        kept.write_text(Path(spec).read_text())
        run = {"id": number, "name": name.removeprefix("--name="), "spec": str(kept), "pid": 0}
        _write(run | {"state": "QUEUED", "why": "Quota"})
    while _has("hold-answer"):
        time.sleep(0.02)
    print(f"submitted {number}")


def _show(key: str) -> None:
    with _locked():
        for run in _runs():
            if str(run["id"]) == key:
                print(*_state(run))
                return
    sys.exit("farm: error: no such run")


def _kill(key: str, grace: str) -> None:
    with _locked():
        run = next((run for run in _runs() if str(run["id"]) == key), None)
        if run is None:
            sys.exit("farm: error: no such run")
        if run["state"] == "QUEUED":
            _write(run | {"state": "ENDED", "why": "it was ended in the queue"})
        elif _state(run)[0] == "RUNNING":
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run["pid"], signal.SIGTERM)


def _log(key: str, lines: str, *more: str) -> None:
    tail = ["tail", "-n", lines, *(["-F"] if more else []), str(FOLDER / f"{key}.log")]
    os.execvp("tail", tail)


if __name__ == "__main__":
    main(*sys.argv[1:])
