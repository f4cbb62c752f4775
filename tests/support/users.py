"""Other users of this machine, and what begins a command line that one of them runs."""

from __future__ import annotations

import itertools
import os
import pwd
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.launching import RDZV
from tests.support.missing import give_up

_FIRST_UID = 54_321
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class User:
    """A user without a name, a password entry or a group.

    Attributes:
        home: Its own.
        by: What a command line begins with that it runs.
    """

    uid: int
    home: Path
    by: tuple[str, ...]

    @property
    def state(self) -> Path:
        """Where its runs live, when nothing else is said."""
        return self.home / ".local" / "state" / "rdzv"

    def environment(self, **more: str) -> dict[str, str]:
        """What differs from the environment of the tests."""
        return {"HOME": str(self.home), "RDZV_STATE_DIR": "", "XDG_STATE_HOME": "", **more}


def make_users(place: Path, count: int = 1) -> list[User]:
    """Users with a home in this folder, which everyone must be able to enter.

    Skips the test, with the reason, where none can be made.
    """
    if os.geteuid() != 0:
        give_up("another user needs root")
    if missing := [tool for tool in ("unshare", "setpriv", "mount") if shutil.which(tool) is None]:
        give_up(f"another user needs: {', '.join(missing)}")
    before = _opening(place)
    users = []
    for uid in _free_uids(count):
        home = place / f"home-{uid}"
        home.mkdir()
        os.chown(home, uid, uid)
        ids = (f"--reuid={uid}", f"--regid={uid}", "--clear-groups")
        users.append(User(uid, home, (*before, "setpriv", *ids, "--")))
    tried = subprocess.run(
        [*users[0].by, RDZV, "--version"], capture_output=True, text=True, cwd="/", timeout=30
    )
    if tried.returncode:
        give_up(f"no other user can run rdzv here: {tried.stderr.strip()[-300:]}")
    return users


def _free_uids(count: int) -> Iterator[int]:
    taken = {entry.pw_uid for entry in pwd.getpwall()}
    uids = (uid for uid in range(_FIRST_UID, 60_000) if uid not in taken)
    return (next(uids) for _ in range(count))


def _opening(place: Path) -> tuple[str, ...]:
    """What lets others reach the interpreter and the sources of these tests.

    They may be below a folder that only root enters, such as /root. In a mount namespace, a folder
    with nothing but the way to them takes its place; everything else of the machine is the same.
    """
    needed = (Path(sys.base_prefix), Path(sys.prefix), _ROOT)
    doors = {door for path in needed if (door := _closed(path.resolve())) is not None}
    if not doors:
        return ()
    script = []
    for number, closed in enumerate(sorted({door.parent for door in doors})):
        stage = place / f"stage-{number}"
        for door in sorted(door for door in doors if door.parent == closed):
            (stage / door.name).mkdir(parents=True)
            script.append(shlex.join(["mount", "--bind", str(door), str(stage / door.name)]))
        script.append(shlex.join(["mount", "--rbind", str(stage), str(closed)]))
    script.append('exec "$@"')
    return ("unshare", "--mount", "--propagation", "private", "sh", "-c", " && ".join(script), "sh")


def _closed(path: Path) -> Path | None:
    """The first folder on the way to a path that lies in one that others cannot enter."""
    way = [*reversed(path.parents), path]
    for parent, folder in itertools.pairwise(way):
        if not parent.stat().st_mode & 0o001:
            return folder
    return None
