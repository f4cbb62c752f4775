"""Virtual environments for tools that must not share ours: made once, kept in build/venvs."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "build" / "venvs"


def python_with(requirement: str) -> str:
    """The Python of an environment that holds a pinned requirement: `azure-ai-ml==1.35.2`.

    Where it cannot be installed the test is skipped, with the reason; in CI it fails.
    """
    venv = FOLDER / re.sub(r"[^\w.]+", "-", requirement)
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f"{venv.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (venv / "complete").exists():
            _install(venv, requirement)
    return str(venv / "bin" / "python")


def _install(venv: Path, requirement: str) -> None:
    python = str(venv / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--quiet", requirement]
    for argv in ([sys.executable, "-m", "venv", "--clear", str(venv)], pip):
        done = subprocess.run(argv, capture_output=True, text=True)
        if done.returncode != 0:
            _give_up(f"{requirement} cannot be installed here: {done.stderr.strip()[-300:]}")
    (venv / "complete").touch()


def _give_up(reason: str) -> None:
    if os.environ.get("RDZV_CI") == "1":
        pytest.fail(f"{reason}, and RDZV_CI=1 lets no test be skipped", pytrace=False)
    pytest.skip(reason)
