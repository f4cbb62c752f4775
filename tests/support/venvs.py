"""Virtual environments for tools that must not share ours: made once, kept in build/venvs."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent.parent.parent / "build" / "venvs"


class CannotInstall(Exception):
    """What pip, or the making of an environment, said."""


def installed(name: str, *requirements: str, python: str = sys.executable) -> Path:
    """The folder of the environment of this name, which holds the requirements and nothing else.

    Made where it is missing, and anew where it was made for other requirements. Raises
    CannotInstall.
    """
    venv = FOLDER / name
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_installed(name, *requirements):
            _install(venv, requirements, python)
    return venv


def is_installed(name: str, *requirements: str) -> bool:
    """Whether the environment is there, whole, and made for these requirements."""
    stamp = FOLDER / name / "complete"
    return stamp.exists() and stamp.read_text() == "\n".join(requirements)


def pip_for(venv: Path) -> list[str]:
    """Our pip, at work for an environment that has none of its own: to make one takes seconds."""
    return [sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python")]


def _install(venv: Path, requirements: tuple[str, ...], python: str) -> None:
    bare = [python, "-m", "venv", "--clear", "--without-pip", str(venv)]
    # Compiled by whoever imports it: to compile all of it takes longer than to install it.
    install = [*pip_for(venv), "install", "--quiet", "--no-compile", *requirements]
    for argv in (bare, install):
        done = subprocess.run(argv, capture_output=True, text=True)
        if done.returncode != 0:
            words = " ".join(requirements)
            raise CannotInstall(f"{words} cannot be installed here: {done.stderr.strip()[-300:]}")
    (venv / "complete").write_text("\n".join(requirements))
