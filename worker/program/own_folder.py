"""Folders among the temporary files, each removed by the next start when its process was killed.

A process holds a lock (flock) on a file in its folder for as long as it lives, in whatever
namespace; the file is never there without the lock. A folder without that file is somebody else's.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

_PREFIX = "rdzv-"
_LOCK = "lock"
_NAME = re.compile(rf"{_PREFIX}[a-z0-9_]{{8}}\Z")  # as mkdtemp makes them


class OwnFolder:
    """A folder of this process, for its user alone; removed by `remove`.

    Args:
        place: Where it is made. Raises OSError when it cannot be.
    """

    def __init__(self, place: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
        self._lock = _locked(self.path)

    def remove(self) -> None:
        """Remove it with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def remove_left(places: Iterable[str]) -> None:
    """Remove this user's folders of processes that are gone."""
    for place in dict.fromkeys(places):
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                if _NAME.match(entry.name):
                    _remove_if_left(Path(entry.path))


def _locked(folder: Path) -> int:
    """A locked file in the folder; -1 where the file system knows no locks."""
    new = folder / f".{_LOCK}"
    try:
        fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError:
        return -1
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        new.rename(folder / _LOCK)  # whoever sees it sees it locked
    except OSError:
        os.close(fd)
        return -1
    return fd


def _remove_if_left(folder: Path) -> None:
    with contextlib.suppress(OSError):
        about = folder.lstat()
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
            return
        fd = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(fd).st_nlink:  # else another start has just removed it
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(fd)
