"""A folder of join strings, one file for each worker run, from which each worker takes one.

It lets equal containers join a run that know neither their number nor one another: on a volume of
docker compose, or on any disk that the launcher and the workers share. `RDZV_JOIN_FILE` names it.

`NAME.join` is free. A worker takes it by renaming it to `NAME.taken`, which succeeds for one alone,
and then writes its hostname in place of the secret. Who finds none waits: the launcher may not be
up yet, or this worker is one too many, and takes over when a node fails before the start.
"""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rendezvous.wire.errors import JoinTimeout, UsageError

FREE = ".join"
TAKEN = ".taken"
_LOOK_SECONDS = 0.2


def take_join(folder: Path, seconds: float, say: Callable[[str], None]) -> str:
    """Take a join string out of a folder; wait for one that long.

    Args:
        folder: Where the launcher puts them.
        seconds: The join time-out.
        say: Told what is waited for, when that changes.

    Raises:
        JoinTimeout: None came.
        UsageError: The folder cannot be read or written.
    """
    deadline = time.monotonic() + seconds
    seen = None
    with _ended_by_term():
        while True:
            try:
                if (join := _take_one(folder)) is not None:
                    return join
                taken = len(list(folder.glob(f"*{TAKEN}")))
            except OSError as exc:
                raise UsageError(
                    f"RDZV_JOIN_FILE names the folder {folder}, from which no join string can be "
                    f"taken: {exc.strerror}",
                    hint="a worker renames the file that it takes, so the folder must be writable",
                ) from exc
            words = f"{folder} contains no join string"
            if taken:
                words = (
                    f"every join string in {folder} is taken ({taken}); this worker is a spare "
                    "and waits"
                )
            if time.monotonic() > deadline:
                raise JoinTimeout(
                    f"{words} (waited {seconds:.0f} s)",
                    hint="check that the launcher is running, with --scheduler external and this "
                    "same folder",
                )
            if taken != seen:
                say(words if taken else f"{words} yet")
            seen = taken
            time.sleep(_LOOK_SECONDS)


def _take_one(folder: Path) -> str | None:
    """The join string of the first file that nobody else takes."""
    for path in sorted(folder.glob(f"*{FREE}")):
        own = path.with_suffix(TAKEN)
        try:
            path.rename(own)
        except FileNotFoundError:
            continue  # another worker was faster
        with own.open("r+", encoding="utf-8") as file:
            join = file.read()
            file.seek(0)
            file.truncate()
            file.write(socket.gethostname())
        return join
    return None


@contextmanager
def _ended_by_term() -> Iterator[None]:
    """Let TERM end the process also where it is a container's first, which has no default."""

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    former = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)
