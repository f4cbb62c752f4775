"""The folder that holds one folder for each run: RDZV_STATE_DIR, or one among the user's own.

A container may run under a user id without a name, with HOME=/, on a read-only or a full disk.
Where the user's state home cannot be had, a folder for this user alone among the temporary files
takes its place: a program that needs no home must not need one for rdzv.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

LEAST_ROOM = 8 << 20
"""Bytes; with less on its disk, a run cannot be kept there."""
_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 (0700, and of this user)


def state_home(environ: Mapping[str, str]) -> Path:
    """The folder in which a run is kept that begins now; one among temporary files is made."""
    usual = usual_home(environ)
    if environ.get("RDZV_STATE_DIR") or not _problem(usual):
        return usual
    return next(filter(_is_made, _spare(environ)), usual)


def why_elsewhere(environ: Mapping[str, str]) -> str:
    """Why the state is kept among temporary files, and where, as a sentence; empty where not."""
    usual, home = usual_home(environ), state_home(environ)
    if home == usual:
        return ""
    return (
        f"the state directory {usual} cannot be used ({_problem(usual)}): using {home} instead; "
        "set RDZV_STATE_DIR to choose another one"
    )


def home_with(environ: Mapping[str, str], run: str | None) -> Path:
    """The folder in which a run is found that may have begun when another one was in use.

    Args:
        environ: The environment.
        run: The run id; None: where the newest one began.
    """
    usual = usual_home(environ)
    if environ.get("RDZV_STATE_DIR"):
        return usual
    homes = [usual, *filter(_is_own, _spare(environ))]
    has_it = [home for home in homes if run and os.path.isdir(home / run)]
    return next(iter(has_it), max(homes, key=_changed_at))


def usual_home(environ: Mapping[str, str]) -> Path:
    """The folder that a person names, or the user's state home; whether it can be used or not."""
    if environ.get("RDZV_STATE_DIR"):
        return Path(environ["RDZV_STATE_DIR"])
    home = environ.get("XDG_STATE_HOME") or Path(_home(environ) or "/", ".local", "state")
    return Path(home) / "rdzv"


def _home(environ: Mapping[str, str]) -> str:
    """The user's folder: HOME is not set in every container, service and cron job."""
    if environ.get("HOME"):
        return environ["HOME"]
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:  # a user id without a name
        return ""


def _spare(environ: Mapping[str, str]) -> Iterator[Path]:
    for place in dict.fromkeys([environ.get("TMPDIR") or _TEMPORARY[0], *_TEMPORARY]):
        yield Path(place, f"rdzv-state-{os.geteuid()}")


def _problem(folder: Path) -> str:
    """Why no run can be kept below a folder; empty where one can. It makes nothing."""
    place = folder
    while not os.path.lexists(place) and place != place.parent:
        place = place.parent
    try:
        about = os.statvfs(place)
        if not os.path.isdir(place):
            return f"{place} is not a folder"
    except OSError as exc:
        return f"{place}: {exc.strerror}"
    if about.f_flag & os.ST_RDONLY:
        return f"{place} is on a read-only file system"
    if not os.access(place, os.W_OK | os.X_OK):
        return f"{place} is not writable for user {os.geteuid()}"
    if about.f_blocks and about.f_bavail * about.f_frsize < LEAST_ROOM:
        left = about.f_bavail * about.f_frsize >> 10
        return f"its disk has {left} kB left, and a run needs {LEAST_ROOM >> 20} MB"
    return ""


def _is_made(folder: Path) -> bool:
    """Whether a run can be kept in this folder, which is made where it is missing."""
    if _problem(folder):
        return False
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700)
    return _is_own(folder)


def _is_own(folder: Path) -> bool:
    """Whether this user made it, for nobody else: in /tmp, anybody may have."""
    try:
        about = folder.lstat()
    except OSError:
        return False
    mine = stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid()
    return mine and not stat.S_IMODE(about.st_mode) & 0o077


def _changed_at(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0
