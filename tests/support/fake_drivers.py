"""Driver libraries that behave as they are told, in the place of the machine's own."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.missing import give_up

SOURCES = Path(__file__).parent / "drivers"


def install(source: str, library: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Build a library of `drivers/` into `folder`; programs that the test starts will load it."""
    compiler = shutil.which("cc")
    if compiler is None:
        give_up("the stand-in for a driver is in C, and there is no compiler")
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", str(folder / library), str(SOURCES / source)],
        check=True,
    )
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
