"""The environment that rdzv is installed in, as the last place for a program that PATH has not.

A torchrun often lies beside rdzv, in a virtual environment that nobody has activated. PATH always
wins: only a program that is nowhere on it is looked for here, and only one that can start counts.
"""

from __future__ import annotations

import shutil
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rendezvous.frozen import frozen
from rendezvous.wire.words import printable
from worker.contracts.framework import Need
from worker.machine.user_python import has_module

_PIP = "pip install "
_NAME_CHARACTERS = 200


@frozen
class Completed:
    """An environment in which a program can be found, where that is possible.

    Attributes:
        environ: The user's, with the folder of rdzv's own Python at the end of PATH where a
            program is only there.
        added: That program, with its folder; empty: PATH is unchanged.
        program: Its name.
    """

    environ: Mapping[str, str]
    added: str = ""
    program: str = ""

    @property
    def sentence(self) -> str:
        """Says which program is used; empty where PATH has it, or nothing has."""
        if not self.added:
            return ""
        name = printable(self.program, _NAME_CHARACTERS)
        return f"'{name}' is not on PATH: using {self.added}, of rdzv's own environment"


def own_folders() -> Sequence[str]:
    """The folders in which rdzv's own Python and its programs are."""
    scripts = sysconfig.get_path("scripts")
    return tuple(dict.fromkeys([str(Path(sys.executable).parent), scripts]))


def complete_path(
    needs: Iterable[Need], environ: Mapping[str, str], folders: Sequence[str] | None = None
) -> Completed:
    """Find what starts a program: on PATH, else beside rdzv's own Python.

    Args:
        needs: What starts it.
        environ: The user's environment.
        folders: Where to look beside PATH; `own_folders` when None.
    """
    path = environ.get("PATH", "")
    wanted = (need for need in needs if need.program and "/" not in need.program)
    need = next((one for one in wanted if shutil.which(one.program, path=path) is None), None)
    if need is None:
        return Completed(environ)
    for program in _beside(need, own_folders() if folders is None else folders):
        if _can_start(program, need, environ):
            found = {**environ, "PATH": f"{path}:{Path(program).parent}".lstrip(":")}
            return replace(Completed(found), added=program, program=need.program)
    return Completed(environ)


def _beside(need: Need, folders: Sequence[str]) -> Iterator[str]:
    yield from filter(None, (shutil.which(need.program, path=folder) for folder in folders))


def _can_start(program: str, need: Need, environ: Mapping[str, str]) -> bool:
    """Return whether what pip installs is there for the program's own interpreter as well: its
    script may be left of a package that was removed, or name an interpreter that was moved."""
    modules = need.modules or ((need.name,) if need.install.startswith(_PIP) else ())
    return not modules or has_module(program, environ, modules) is True
