"""The logs of a run's former launch: a new launch sets them aside, and begins its own."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from launcher.state.last_words import LAST_WORDS, WORDS_FILES, WORDS_FOLDERS

FORMER_LOGS = "former-logs"
"""The folder for them, next to `logs`; those of the launch before that are removed."""

OWN_LOGS = (
    r"(registry|agent-\d+)\.log|(node|rank|launcher)-\d+(\.e\d+)?\.log(\.first|\.1)?"
    r"|(node|rank|launcher)-\d+(\.e\d+)?\.log(\.first|\.1)?\.index"
    r"|nccl-[^/]+/node-\d+(\.e\d+)?\.\d+\.log"
    r"|node-\d+/(hostfile|hostfile\.mpich|table\.json|notice\.json|\.[^/]+\.new)"
    r"|node-\d+/bin/(rdzv-rsh|ssh|\.(rdzv-rsh|ssh)\.\d+)"
)
"""What rdzv writes into a folder of logs, as a regular expression of paths from there."""
OWN_LOG_FOLDERS = r"nccl-[^/]+|node-\d+(/bin)?"
"""The folders that it makes there."""

_WORDS, _OF_WORDS = re.compile(WORDS_FILES), re.compile(WORDS_FOLDERS)
_FILE = re.compile(OWN_LOGS)
_FOLDER = re.compile(OWN_LOG_FOLDERS)


def set_aside(run: Path) -> None:
    """Move the logs in the folder of a run out of the way of a new launch.

    What rdzv did not write stays where it is, and so does what cannot be moved: that is no reason
    not to launch.
    """
    logs, former = run / "logs", run / FORMER_LOGS
    files = files_like(_FILE, logs)
    if not files:
        return
    with contextlib.suppress(OSError):
        for path in files_like(_FILE, former):
            (former / path).unlink(missing_ok=True)
        _move(logs, former, files)
    for folder in (logs, former):
        drop_empty_folders(_FOLDER, folder)


def _move(folder: Path, to: Path, files: list[str]) -> None:
    for path in files:
        (to / path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / path).replace(to / path)


def set_words_aside(run: Path) -> None:
    """Move the last words of the former launch's ranks to its logs, in place of older ones; a new
    launch's own are not to be taken for them."""
    words, former = run / LAST_WORDS, run / FORMER_LOGS / LAST_WORDS
    _remove_words(former)
    with contextlib.suppress(OSError):
        _move(words, former, files_like(_WORDS, words))
    _remove_words(words)


def _remove_words(folder: Path) -> None:
    for path in files_like(_WORDS, folder):
        (folder / path).unlink(missing_ok=True)
    drop_empty_folders(_OF_WORDS, folder)
    with contextlib.suppress(OSError):
        folder.rmdir()


def files_like(names: re.Pattern[str], folder: Path) -> list[str]:
    """The files there of such paths from there."""
    found = (
        Path(place, name).relative_to(folder).as_posix()
        for place, _, files in os.walk(folder)
        for name in files
    )
    return [path for path in found if names.fullmatch(path)]


def drop_empty_folders(names: re.Pattern[str], folder: Path) -> None:
    """Remove the folders there of such paths from there, deepest first."""
    for place, folders, _ in os.walk(folder, topdown=False):
        for name in folders:
            path = Path(place, name)
            if names.fullmatch(path.relative_to(folder).as_posix()):
                with contextlib.suppress(OSError):  # there is something else in it
                    path.rmdir()
