"""Driver libraries that behave as they are told, in the place of the machine's own."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.missing import give_up

SOURCES = Path(__file__).parent / "drivers"


def install(source: str, library: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a library of `drivers/` into `folder`; programs that the test starts will load it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / library).write_bytes(built(source))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))


@cache
def built(source: str) -> bytes:
    """A library of `drivers/`, compiled once."""
    compiler = shutil.which("cc")
    if compiler is None:
        give_up("the stand-in for a driver is in C, and there is no compiler")
    with TemporaryDirectory() as folder:
        made = Path(folder, "library.so")
        argv = [compiler, "-shared", "-fPIC", "-o", str(made), str(SOURCES / source)]
        subprocess.run(argv, check=True)
        return made.read_bytes()
