"""The executables by which programs find `rdzv rsh`: `rdzv-rsh`, and `ssh` for those that insist.

mpirun takes the path of what it is to call in place of ssh; pdsh and horovodrun call `ssh`, the
first one on the PATH that can be executed. On a file system that is mounted noexec neither can, and
the next `ssh` is the real one: so both are tried, and lie where they can be executed.
"""

from __future__ import annotations

import atexit
import errno
import os
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from rendezvous.wire.words import listed
from worker.program.local_socket import places
from worker.program.output import make_private
from worker.program.own_folder import OwnFolder

RSH = "rdzv-rsh"
_PROGRAM = Path(__file__).resolve().parents[1] / "programs" / "rsh.py"
_TRY_SECONDS = 10.0
_TRY = "--rdzv-try"
"""The only word that a shim answers itself, by ending well: Python would take 20 ms."""
_MORE_PLACES = ("/var/tmp", "/dev/shm")  # noqa: S108 (0700)


def place_shims(folders: Iterable[Path], socket: str, environ: Mapping[str, str]) -> Path:
    """Write both where they can be executed; returns the folder.

    Args:
        folders: What is tried first; each is made, and removed by whoever names it.
        socket: The agent's. It stands in them, as Hydra gives all ranks the variables of rank 0.
        environ: Names folders for temporary files, which are tried next.

    Raises:
        OSError: They can be executed nowhere; the message names each folder, and why not there.
    """
    problems: defaultdict[str, list[str]] = defaultdict(list)
    for folder in folders:
        problem = _problem_of(folder, socket)
        if not problem:
            return folder
        problems[problem].append(str(folder))
    for place in shim_places(environ):
        try:
            own = OwnFolder(place)
        except OSError as exc:
            problems[exc.strerror or str(exc)].append(place)
            continue
        problem = _problem_of(own.path / "bin", socket)
        if not problem:
            atexit.register(own.remove)
            return own.path / "bin"
        own.remove()
        problems[problem].append(place)
    tried = (f"{problem} ({listed(where, 6)})" for problem, where in problems.items())
    raise OSError(errno.EACCES, "; ".join(tried))


def shim_places(environ: Mapping[str, str]) -> Iterator[str]:
    """Where they may lie beside the folders of the run itself."""
    yield from dict.fromkeys((*places(environ), *_MORE_PLACES, os.getcwd()))


def _problem_of(folder: Path, socket: str) -> str:
    """Why the shims cannot be had in a folder; empty where they are written, and run."""
    try:
        write_shims(folder, socket)
        return next(filter(None, map(_why_not_run, (folder / RSH, folder / "ssh"))), "")
    except OSError as exc:
        return exc.strerror or str(exc)


def _why_not_run(shim: Path) -> str:
    """Why it cannot be executed; empty where it can."""
    try:
        done = subprocess.run(
            [shim, _TRY],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_TRY_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return ""  # it runs: this machine is busy
    except PermissionError as exc:
        return "mounted noexec" if _is_noexec(shim) else str(exc.strerror)
    return done.stderr.decode(errors="replace").strip()[-200:] if done.returncode else ""


def _is_noexec(path: Path) -> bool:
    return bool(os.statvfs(path).f_flag & os.ST_NOEXEC)


def write_shims(folder: Path, socket: str) -> None:
    """Write both into a folder, which is made, for the agent at this socket. Raises OSError."""
    make_private(folder)
    trial = f'[ "$1" != {_TRY} ] || exit 0'
    where = f"RDZV_SOCKET={shlex.quote(socket)}; export RDZV_SOCKET"
    words = shlex.join([sys.executable, "-I", "-S", str(_PROGRAM)])
    for name in (RSH, "ssh"):
        new = folder / f".{name}.{os.getpid()}"
        new.write_text(f'#!/bin/sh\n{trial}\n{where}\nexec {words} "$@"\n')
        new.chmod(0o700)
        new.replace(folder / name)
