"""Slurm without accounting: `sbatch`, `squeue` and `scancel`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.schedulers.behaving import Store

COMMANDS = ["sbatch", "squeue", "scancel"]
WORDS = {
    "queued": "PENDING|(Resources)",
    "running": "RUNNING|n0",
    "ended": "COMPLETED|n0",
    "failed": "FAILED|(NonZeroExitCode)",
}


def main(command: str, argv: list[str], store: Store) -> None:
    """See `tests.schedulers.behaving`."""
    options = dict(word.lstrip("-").partition("=")[::2] for word in argv if word.startswith("-"))
    if command == "sbatch":
        _sbatch(store, options, Path(argv[-1]))
    elif command == "squeue":
        _squeue(store, options)
    else:
        store.cancel(argv[-1])  # the real one too says nothing of a job that is over


def _sbatch(store: Store, options: dict[str, str], script: Path) -> None:
    text = script.read_text()
    if not text.startswith("#!"):
        sys.exit("sbatch: error: This does not look like a batch script.")
    run = store.create(options["job-name"], text)
    lines = [f"line {number} of {run['id']}\n" for number in range(3)]
    Path(options["output"]).write_text("".join(lines))
    print(run["id"])


def _squeue(store: Store, options: dict[str, str]) -> None:
    names = options["name"].split(",") if "name" in options else None
    alive = "all" not in options.get("states", "").split(",")
    for run in store.listed():
        if names is not None and run["name"] not in names:
            continue
        if alive and run["state"] in ("ended", "failed"):
            continue
        print(_row(run, options["format"]))


def _row(run: dict[str, Any], form: str) -> str:
    state, _, reason = WORDS.get(run["state"], f"{run['state']}|None").partition("|")
    for code, text in {"%A": str(run["id"]), "%T": state, "%R": reason}.items():
        form = form.replace(code, text)
    return form
