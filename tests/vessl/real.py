"""VESSL's own command, in an environment of its own: its pins are none of ours."""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.venvs import pip_install

VERSION = "0.1.199"
FOLDER = Path(__file__).parent.parent.parent / "build" / f"vessl-{VERSION}"
"""Kept between runs of the tests: it is large."""
INSTALL_SECONDS = 400


@functools.cache
def why_no_command() -> str | None:
    """Install the command where it is not yet; says why it is not here, or None."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (FOLDER / "command" / "vessl").exists():
            return None
        python = _python()
        if python is None:
            return "the command vessl needs Python 3.9 to 3.12, and there is none here"
        venv = FOLDER / "venv"
        for argv in (
            [python, "-m", "venv", "--clear", "--without-pip", str(venv)],
            [*pip_install(venv), f"vessl=={VERSION}"],
        ):
            done = subprocess.run(argv, capture_output=True, text=True, timeout=INSTALL_SECONDS)
            if done.returncode != 0:
                return f"vessl {VERSION} cannot be installed: {done.stderr.strip()[-300:]}"
        (FOLDER / "command").mkdir(exist_ok=True)
        (FOLDER / "command" / "vessl").symlink_to(venv / "bin" / "vessl")
        return None


def command_folder() -> str:
    """The folder to put on a PATH; skips the test, or fails it in CI, where there is no command."""
    reason = why_no_command()
    if reason is not None and os.environ.get("RDZV_CI") == "1":
        pytest.fail(f"{reason}, and RDZV_CI=1 lets no test be skipped", pytrace=False)
    if reason is not None:
        pytest.skip(reason)
    return str(FOLDER / "command")


def _python() -> str | None:
    for name in (sys.executable, "python3", "python3.12", "python3.11", "python3.10", "python3.9"):
        path = shutil.which(name)
        if path is None:
            continue
        test = "import sys; sys.exit(not (3, 9) <= sys.version_info < (3, 13))"
        if subprocess.run([path, "-c", test], capture_output=True).returncode == 0:
            return path
    return None
