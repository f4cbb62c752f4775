"""What the fake commands of all schedulers share: runs that exist once they are made, and faults.

A fake is a file `fakes/NAME.py`, found by its name, for the profile NAME:

    COMMANDS = ["sbatch", "squeue"]    # what it plays: programs of these names
    SET = {"HOST": "one"}              # variables that the profile needs; may be left out
    def main(command: str, argv: list[str], store: Store) -> None: ...

A fake of something that is no command may have a context manager `serving(folder: Path)` that gives
further environment variables.

`main` reads its argv as the real command would, and calls `store.create`, `store.listed`,
`store.get` and `store.cancel`; it prints what the real command prints. The faults happen in here,
so that every fake has them all:

    hangs        the submit never comes to anything    hangs-after   once the run is made
    refuses      it says no, with words                refuses-once  only the first time
    nothing      it ends with 0 and makes nothing      lost          it makes the run and fails
    colours      every line is coloured                warning       numbers come before the id
    no-word      states are words nobody knows         late          listed at the third look
    down         nothing can be asked
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = "FAKE_FOLDER"
FAULTS = "FAKE_FAULTS"
REFUSAL = "error: Invalid account or partition: no-such-queue"
DOWN = "error: 500 Internal Server Error"
LOST = "error: Connection reset by peer"
ODD_WORD = "QUIRKY"
_LATE_LOOKS = 2


class Hangs(Exception):
    """The command does not end by itself."""


class Store:
    """The scheduler's own memory: one file for each run, in a folder."""

    def __init__(self, folder: Path, faults: set[str], stdin: str = "") -> None:
        self.folder = folder
        self.faults = faults
        self.stdin = stdin
        self.created = False

    def create(self, name: str, spec: str = "", first_id: int = 7001) -> dict[str, Any]:
        """Make a run; it is queued. Returns it, with its `id`."""
        if "hangs" in self.faults:
            raise Hangs
        once = self.folder / "refused"
        if "refuses" in self.faults or ("refuses-once" in self.faults and not once.exists()):
            once.touch()
            sys.exit(REFUSAL)
        if "nothing" in self.faults:
            sys.exit(0)
        key = first_id + len(list(self.folder.glob("run-*.json")))
        run = {"id": key, "name": name, "state": "queued", "looks": 0, "spec": spec}
        self._write(run)
        self.created = True
        return run

    def listed(self) -> list[dict[str, Any]]:
        """All runs that are shown, the ended ones too."""
        self._answer()
        paths = sorted(self.folder.glob("run-*.json"))
        return [run for run in map(self._look, paths) if self._is_shown(run)]

    def get(self, key: str) -> dict[str, Any] | None:
        """The run with this id or name; None when there is none."""
        return next((run for run in self.listed() if key in (str(run["id"]), run["name"])), None)

    def cancel(self, key: str) -> bool:
        """End a run; False when there is none that lives."""
        self._answer()
        for path in sorted(self.folder.glob("run-*.json")):
            run = json.loads(path.read_text())
            if key in (str(run["id"]), run["name"]) and run["state"] in ("queued", "running"):
                self._write(run | {"state": "ended"})
                return True
        return False

    def _answer(self) -> None:
        if "down" in self.faults:
            sys.exit(DOWN)

    def _look(self, path: Path) -> dict[str, Any]:
        run: dict[str, Any] = json.loads(path.read_text())
        self._write(run | {"looks": run["looks"] + 1})
        if "no-word" in self.faults:
            run["state"] = ODD_WORD
        return run

    def _is_shown(self, run: dict[str, Any]) -> bool:
        return "late" not in self.faults or run["looks"] >= _LATE_LOOKS

    def _write(self, run: dict[str, Any]) -> None:
        (self.folder / f"run-{run['id']}.json").write_text(json.dumps(run))


def options_of(argv: list[str]) -> dict[str, str]:
    """The options of a command line that are one word each."""
    return dict(word.lstrip("-").partition("=")[::2] for word in argv if word.startswith("-"))


def log_lines(key: str, count: str) -> None:
    """Print the newest of three lines."""
    for number in range(3 - int(count), 3):
        print(f"line {number} of {key}")


def note_call(argv: list[str], stdin: str, environ: Mapping[str, str]) -> None:
    """Keep a call for the test to look at."""
    call = {"command": argv[0], "argv": argv[1:], "stdin": stdin, "environ": dict(environ)}
    with Path(environ[FOLDER], "calls.jsonl").open("a") as calls:
        calls.write(json.dumps(call) + "\n")


def play(
    fake: str, argv: list[str], stdin: str, environ: Mapping[str, str]
) -> tuple[int | None, str, str]:
    """Call a command of a fake: its exit code (None: it hangs), and what it has printed."""
    note_call(argv, stdin, environ)
    folder, faults = Path(environ[FOLDER]), set(environ.get(FAULTS, "").split(","))
    store, out, err, code = Store(folder, faults, stdin), io.StringIO(), io.StringIO(), 0
    module = load(fake)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            module.main(argv[0], argv[1:], store)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
        err.write(ended.code if isinstance(ended.code, str) else "")
    except Hangs:
        return None, "", ""
    if store.created and "hangs-after" in faults:
        return None, "", ""
    if store.created and "lost" in faults:
        return getattr(module, "LOST_CODE", 1), "", LOST
    return code, _as_printed(out.getvalue(), faults), err.getvalue()


def _as_printed(text: str, faults: set[str]) -> str:
    if "warning" in faults:
        text = "Warning: 3 of 12 quotas (2024-01-05) are used up, see job 99\n" + text
    if "colours" in faults:
        lines = [f"\x1b[1;32m{line}\x1b[0m\r\n" for line in text.splitlines()]
        text = "\x1b]0;title\x07" + "".join(lines)
    return text


def load(path: str) -> Any:
    """The module of a fake."""
    spec = importlib.util.spec_from_file_location("fake", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
