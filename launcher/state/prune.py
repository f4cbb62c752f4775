"""Old runs are removed: what rdzv wrote into their folders, by its names, and nothing else."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

from launcher.state.former_logs import (
    FORMER_LOGS,
    OWN_LOG_FOLDERS,
    OWN_LOGS,
    drop_empty_folders,
    files_like,
)
from launcher.state.last_words import LAST_WORDS, WORDS_FILES, WORDS_FOLDERS
from launcher.state.state_dir import StateDir
from rendezvous.feature import declared
from rendezvous.frozen import frozen
from rendezvous.wire.words import listed

DAYS = 30
NEWEST = 50
DAY_SECONDS = 86_400.0
_MOST_SECONDS = 0.3
"""What pruning may add to a launch; the next one goes on."""

_OF_FEATURES = tuple(name for feature in declared() for name in feature.run_files)
_WRITTEN = ("launch.json", "result.json", "journal.sqlite", "journal.sqlite-wal", *_OF_FEATURES)
_FILES = re.compile(
    r"(launch|registry|result|status|table|report)\.json|run\.toml|secret|key\.pem"
    r"|certificate\.(pem|der)|(worker-runs|former-launches)\.jsonl|\.[^/]+\.new"
    r"|journal\.sqlite(-wal|-shm|-journal)?|submissions/[^/]+"
    rf"|(logs|{FORMER_LOGS})/({OWN_LOGS})|({FORMER_LOGS}/)?{LAST_WORDS}/{WORDS_FILES}"
    + "".join(f"|{re.escape(name)}" for name in _OF_FEATURES)
)
_FOLDERS = re.compile(
    rf"submissions|(logs|{FORMER_LOGS})(/({OWN_LOG_FOLDERS}))?"
    rf"|({FORMER_LOGS}/)?{LAST_WORDS}(/{WORDS_FOLDERS})?"
)

_LIVES = "its launcher runs"
_AGAIN = "it was launched again just now"
_NOT_OURS = "its launch.json is damaged, or not one of rdzv's"


@frozen
class Pruned:
    """What became of a run.

    Attributes:
        removed: It is no longer listed; in a rehearsal, it would not be.
        kept: What of it stays, and why; empty when nothing does.
    """

    run: str
    removed: bool
    kept: str = ""


def old_runs(
    root: Path, *, older_than: float = DAYS * DAY_SECONDS, keep: int = NEWEST
) -> list[str]:
    """The runs that are neither among the newest nor younger than so many seconds, oldest last."""
    since = time.time() - older_than  # noqa: TID251 (files have that clock)
    found = []
    with contextlib.suppress(FileNotFoundError), os.scandir(root) as folders:
        for folder in folders:
            at = _written_at(folder.path, _WRITTEN[:1])
            if 0 < at <= since:  # of what has begun since, it does not matter when it ended
                at = _written_at(folder.path)
            if at:
                found.append((at, folder.name))
    old = [run for at, run in sorted(found, reverse=True)[keep:] if at <= since]
    return [run for run in old if os.path.exists(root / run / "lock")]


def prune(state: StateDir, *, dry_run: bool = False) -> Pruned:
    """Remove a run that is over, in front of any launch of it. Raises OSError.

    Args:
        dry_run: Say what would become of it.
    """
    record = state.record()
    if why := _NOT_OURS * (not is_ours(state)) or _LIVES * state.is_held() or _left_words(state):
        return Pruned(state.run, removed=False, kept=why)
    if dry_run:
        return Pruned(state.run, removed=True, kept=_unknown_words(state.path))
    if not state.try_lock():
        return Pruned(state.run, removed=False, kept=_LIVES)
    try:
        if why := _AGAIN * (state.record() != record) or _left_words(state):
            return Pruned(state.run, removed=False, kept=why)
        _remove_files(state.path)
        return Pruned(state.run, removed=True, kept=_unknown_words(state.path))
    finally:
        state.release()


def prune_after_launch(root: Path) -> None:
    """Remove old runs for a moment; whatever is in the way of that is left for the next launch."""
    with contextlib.suppress(Exception):
        runs = old_runs(root)
        until = time.monotonic() + _MOST_SECONDS
        for run in reversed(runs):
            if time.monotonic() > until:
                return
            with contextlib.suppress(OSError):
                prune(StateDir(root, run))


def is_ours(state: StateDir) -> bool:
    """Whether rdzv launched it: other programs have a launch.json, too."""
    record = state.record()
    return record is not None and record.run == state.run


def _left_words(state: StateDir) -> str:
    ledger = state.ledger
    left = [entry.name for entry in ledger.left()]
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if ledger.path.stat().st_size and not ledger.entries():
            return f"{ledger.path}, its list of worker runs, cannot be read"
    if not left:
        return ""
    return f"{listed(left)} may still exist at the scheduler; rdzv cancel {state.run} ends that"


def _written_at(folder: str, names: Sequence[str] = _WRITTEN) -> float:
    """When its launch last wrote into one of its files; 0 where it has none of them."""
    at = 0.0
    for name in names:
        with contextlib.suppress(OSError):
            at = max(at, os.stat(f"{folder}/{name}").st_mtime)
    return at


def _remove_files(folder: Path) -> None:
    """The lock goes last: from then on the folder may be a new launch's."""
    (folder / "launch.json").unlink(missing_ok=True)  # a half-removed run is none
    for path in files_like(_FILES, folder):
        (folder / path).unlink(missing_ok=True)
    drop_empty_folders(_FOLDERS, folder)
    if not _unknown(folder):
        (folder / "lock").unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            folder.rmdir()


def _unknown(folder: Path) -> list[str]:
    """What rdzv has not written, by its path from here."""
    found = []
    for place, folders, files in os.walk(folder):
        for names, ours in ((files, _FILES), (folders, _FOLDERS)):
            paths = (Path(place, name).relative_to(folder).as_posix() for name in names)
            found += [path for path in paths if path != "lock" and not ours.fullmatch(path)]
    return sorted(found)


def _unknown_words(folder: Path) -> str:
    unknown = _unknown(folder)
    return f"{folder} still holds {listed(unknown)}, which rdzv did not write" if unknown else ""
