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


class CannotInstall(Exception):
    """What pip, or the making of an environment, said."""


def python_with(requirement: str) -> str:
    """The Python of an environment that holds a pinned requirement: `azure-ai-ml==1.35.2`.

    Where it cannot be installed the test is skipped, with the reason; in CI it fails.
    """
    try:
        return str(installed(re.sub(r"[^\w.]+", "-", requirement), requirement) / "bin" / "python")
    except CannotInstall as error:
        _give_up(str(error))
        raise


def installed(name: str, *requirements: str) -> Path:
    """The folder of the environment of this name, which holds the requirements and nothing else.

    Made where it is missing, and anew where it was made for other requirements. Raises
    CannotInstall.
    """
    venv = FOLDER / name
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_installed(name, *requirements):
            _install(venv, requirements)
    return venv


def is_installed(name: str, *requirements: str) -> bool:
    """Whether the environment is there, whole, and made for these requirements."""
    stamp = FOLDER / name / "complete"
    return stamp.exists() and stamp.read_text() == "\n".join(requirements)


def pip_install(venv: Path) -> list[str]:
    """How our pip installs into an environment that has none of its own, which takes seconds.

    What is installed is compiled by whoever imports it: all of it would take longer than the rest.
    """
    pip = [sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python")]
    return [*pip, "install", "--quiet", "--no-compile"]


def _install(venv: Path, requirements: tuple[str, ...]) -> None:
    venv_of = [sys.executable, "-m", "venv", "--clear", "--without-pip", str(venv)]
    for argv in (venv_of, [*pip_install(venv), *requirements]):
        done = subprocess.run(argv, capture_output=True, text=True)
        if done.returncode != 0:
            words = " ".join(requirements)
            raise CannotInstall(f"{words} cannot be installed here: {done.stderr.strip()[-300:]}")
    (venv / "complete").write_text("\n".join(requirements))


def _give_up(reason: str) -> None:
    if os.environ.get("RDZV_CI") == "1":
        pytest.fail(f"{reason}, and RDZV_CI=1 lets no test be skipped", pytrace=False)
    pytest.skip(reason)
