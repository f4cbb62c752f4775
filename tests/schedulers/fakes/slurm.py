"""Slurm without accounting: `sbatch`, `squeue` and `scancel`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.schedulers.behaving import Store, options_of

COMMANDS = ["sbatch", "squeue", "scancel"]
WORDS = {
    "queued": "PENDING|(Resources)",
    "running": "RUNNING|n0",
    "ended": "COMPLETED|n0",
    "failed": "FAILED|(NonZeroExitCode)",
}


def main(command: str, argv: list[str], store: Store) -> None:
    """See `tests.schedulers.behaving`."""
    options = options_of(argv)
    if command == "sbatch":
        text = Path(argv[-1]).read_text()
        if not text.startswith("#!"):
            sys.exit("sbatch: error: This does not look like a batch script.")
        run = store.create(options["job-name"], text)
        lines = [f"line {number} of {run['id']}\n" for number in range(3)]
        Path(options["output"]).write_text("".join(lines))
        print(run["id"])
    elif command == "scancel":
        store.cancel(argv[-1])  # the real one too says nothing of a job that is over
    else:
        for run in store.listed():
            if run["name"] != options.get("name", run["name"]):
                continue
            row = options["format"]
            state, _, reason = WORDS.get(run["state"], f"{run['state']}|None").partition("|")
            for code, text in {"%A": str(run["id"]), "%T": state, "%R": reason}.items():
                row = row.replace(code, text)
            print(row)
