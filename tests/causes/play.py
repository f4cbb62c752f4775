"""Plays one rank of a failure: prints its lines at their times, and ends as it did.

    RANK=2 PLAYED_IN=FOLDER python play.py FILE.toml

All ranks begin when the last of them has left its mark in FOLDER. Who has no end of its own waits
until somebody ends it.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_STREAMS = {"stdout": 1, "stderr": 2}
_GATHER_SECONDS = 30.0


def gather(folder: Path, rank: int, count: int) -> None:
    """Wait for all others."""
    (folder / f"rank-{rank}").touch()
    deadline = time.monotonic() + _GATHER_SECONDS
    while len([*folder.glob("rank-*")]) < count and time.monotonic() < deadline:
        time.sleep(0.005)


def printed(one: dict[str, Any]) -> str:
    """Give what is printed: whole lines, or a bar of progress, which ends with no line."""
    text = str(one["text"])
    return text if "\r" in text else text.rstrip("\n") + "\n"


def say(one: dict[str, Any]) -> None:
    """Print line by line, as a program does."""
    for line in printed(one).splitlines(keepends=True):
        os.write(_STREAMS[one["stream"]], line.encode())


def end(one: dict[str, Any]) -> None:
    """End by itself."""
    if "signal" in one:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        number = signal.Signals[one["signal"]]
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(one.get("code", 1))


def sleep_until(at: float) -> None:
    """Wait for a moment of the monotonic clock."""
    time.sleep(max(0.0, at - time.monotonic()))


def main() -> None:
    """Play."""
    table = tomllib.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    rank = int(os.environ["RANK"])
    ends = [one for one in table.get("ended", []) if one["rank"] == rank]
    said = [one for one in table["said"] if one["rank"] == rank]
    said.sort(key=lambda one: float(one["at"]))
    gather(Path(os.environ["PLAYED_IN"]), rank, table["nodes"] * table["each"])
    began = time.monotonic()
    last = min((one["at"] for one in ends), default=float("inf"))
    for one in said:  # what a child or a daemon prints after the end comes just before it
        sleep_until(began + min(one["at"], last))
        say(one)
    for one in ends:
        sleep_until(began + one["at"])
        end(one)
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
