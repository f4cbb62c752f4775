"""Who listens on a port of this machine: a run, a standing registry, or some other process."""

from __future__ import annotations

import contextlib
import os
import pwd
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

from launcher.state.state_dir import JOURNAL, StateDir, recorded_runs
from rendezvous.frozen import frozen
from rendezvous.talk.join_string import RegistryString
from rendezvous.wire.errors import UsageError
from rendezvous.wire.words import printable

STANDING, STANDING_RUN, CREDENTIAL = "standing", "registry", "credential"
"""Where `rdzv serve` keeps its state, below that of runs; and its credential, in there."""
_LISTENS = "0A"
_MOST_CHARACTERS = 120


@frozen
class Holder:
    """What listens there, in words, and what can be done about it; empty: not known."""

    words: str = ""
    hint: str = ""


def holder_of(port: int, root: Path) -> Holder:
    """Look for it: among the runs below this folder first, then at the socket itself."""
    for state, record in recorded_runs(root):
        if record is None or not record.owns_registry or record.host != socket.gethostname():
            continue
        if record.registry_place().port == port and state.is_held():
            run = state.run
            see = f"look at it with 'rdzv status {run}', end it with 'rdzv cancel {run}'"
            return Holder(f"the registry of your run '{run}' uses it", see)
    standing = StateDir(root / STANDING, STANDING_RUN)
    if _standing_port(standing) == port and standing.is_held():
        path = standing.path / CREDENTIAL
        use = f"launch with RDZV_REGISTRY_FILE={path} to use it"
        return Holder("your standing registry ('rdzv serve') uses it", use)
    sockets = list(_sockets(port))
    user = sockets[0][0] if sockets else os.getuid()
    of = f" of user {user_name(user)}" if user != os.getuid() else ""
    process, run = _process({inode for _, inode in sockets})
    if run:
        return Holder(f"the registry of run '{run}'{of} uses it ({process})")
    if process:
        return Holder(f"{process}{of} uses it")
    return Holder(f"a process{of} uses it") if of else Holder()


def _standing_port(state: StateDir) -> int | None:
    with contextlib.suppress(OSError, UnicodeDecodeError, UsageError):
        return RegistryString.parse((state.path / CREDENTIAL).read_text().strip()).place.port
    return None


def _sockets(port: int) -> Iterator[tuple[int, str]]:
    """User and inode of each socket of this network that listens on the port."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        lines: Sequence[str] = ()
        with contextlib.suppress(OSError):
            lines = Path(table).read_text().splitlines()[1:]
        for words in map(str.split, lines):
            if words[3] == _LISTENS and int(words[1].rpartition(":")[2], 16) == port:
                yield int(words[7]), words[9]


def user_name(user: int) -> str:
    """Return the name of a user, or else its number."""
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(user).pw_name
    return str(user)


def _process(inodes: set[str]) -> tuple[str, str]:
    """A process that has one of these sockets, as far as this user may see it; and the run whose
    journal it has open: the launcher keeps the socket beside its registry."""
    wanted, found = {f"socket:[{inode}]" for inode in inodes}, ("", "")
    for folder in Path("/proc").glob("[0-9]*") if wanted else ():
        with contextlib.suppress(OSError):
            links = _links(folder / "fd")
            if wanted.isdisjoint(links):
                continue
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            shown = printable(" ".join(words).strip(), _MOST_CHARACTERS)
            runs = [path.parent.name for path in map(Path, links) if path.name == JOURNAL]
            found = f"process {folder.name}: {shown}", printable(next(iter(runs), ""), 63)
            if runs:
                break
    return found


def _links(folder: Path) -> list[str]:
    found = []
    for one in folder.iterdir():
        with contextlib.suppress(OSError):
            found.append(os.readlink(one))
    return found
