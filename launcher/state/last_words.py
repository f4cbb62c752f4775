"""The last words of a run's ranks, as files in its folder: they outlive the machines of its nodes.

<run>/last-words/    0700
    epoch-2/
        rank-5.txt   what this global rank printed last
        node-1.txt   what those ranks of a node printed last that share their output
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from rendezvous.frozen import frozen

LAST_WORDS = "last-words"
"""The folder, in that of the run."""
WORDS_FILES = r"epoch-\d+/(rank|node)-\d+\.txt"
"""What rdzv writes there, as a regular expression of paths from there."""
WORDS_FOLDERS = r"epoch-\d+"
EPOCHS_KEPT = 32
"""The newest."""

_FILE = re.compile(r"(?P<what>rank|node)-(?P<number>\d+)\.txt")
_EPOCH = re.compile(r"epoch-(\d+)")


@frozen
class RankWords:
    """What one rank printed last, or those of a node that share their output (`rank` None)."""

    epoch: int
    node: int
    rank: int | None
    text: str


class LastWordsFolder:
    """The folder of one run; it is made when there is something to keep.

    Args:
        path: Where.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, words: Iterable[RankWords]) -> None:
        """Write a file for each, in this order, readable for its owner alone. Raises OSError."""
        made = set[Path]()
        for one in words:
            folder = self.path / f"epoch-{one.epoch}"
            if folder not in made:
                _make(self.path)
                _make(folder)
                made.add(folder)
            name = f"node-{one.node}.txt" if one.rank is None else f"rank-{one.rank}.txt"
            _write(folder / name, f"{one.text}\n".encode())
        if made:
            for _, folder in self._epochs()[:-EPOCHS_KEPT]:
                shutil.rmtree(folder, ignore_errors=True)

    def _epochs(self) -> list[tuple[int, Path]]:
        """Each with its folder, oldest first."""
        found = [(_EPOCH.fullmatch(path.name), path) for path in _entries(self.path)]
        return sorted((int(match[1]), path) for match, path in found if match)

    def epochs(self) -> list[int]:
        """Of which something is kept, oldest first."""
        return [epoch for epoch, _ in self._epochs()]

    def files(self, epoch: int) -> dict[tuple[str, int], Path]:
        """What is kept of an epoch, by `rank` or `node` and its number, in order."""
        found = {}
        for path in _entries(self.path / f"epoch-{epoch}"):
            if match := _FILE.fullmatch(path.name):
                found[match["what"], int(match["number"])] = path
        return dict(sorted(found.items()))


def _entries(folder: Path) -> list[Path]:
    """List what is in a folder; nothing where it cannot be read, as one taken from its user."""
    with contextlib.suppress(OSError):
        return list(folder.iterdir())
    return []


def _make(folder: Path) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)


def _write(path: Path, data: bytes) -> None:
    """In as few calls as it takes: of a thousand nodes there are thousands."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb", buffering=0) as file:
        file.write(data)
