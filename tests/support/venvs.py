"""Virtual environments for tools that must not share ours: made once, kept in build/venvs.

    python -m tests.support.venvs PYTHON WORD...

installs what the words of `pip install` say into the environment of that Python. uv does it, in a
fifth of pip's time on a processor, with what this machine has configured of pip.

    python -m tests.support.venvs --build CONSTRAINTS WORD...

builds an sdist, and the wheel from it, by `uv build` with these words.
"""

from __future__ import annotations

import ast
import fcntl
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).parent.parent.parent / "build" / "venvs"
_OF_PIP = {
    "cert": "SSL_CERT_FILE",
    "constraint": "UV_CONSTRAINT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "index-url": "UV_DEFAULT_INDEX",
    "no-index": "UV_NO_INDEX",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
    "trusted-host": "UV_INSECURE_HOST",
}
"""What stands for these settings where uv runs."""
_WITH_COMMAS = ("UV_FIND_LINKS",)


class CannotInstall(Exception):
    """What uv and pip, or the making of an environment, said."""


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
            make(venv, python)
            install(venv / "bin" / "python", *requirements)
            (venv / "complete").write_text("\n".join(requirements))
    return venv


def is_installed(name: str, *requirements: str) -> bool:
    """Whether the environment is there, whole, and made for these requirements."""
    stamp = FOLDER / name / "complete"
    return stamp.exists() and stamp.read_text() == "\n".join(requirements)


def make(venv: Path, python: str | Path) -> None:
    """Make an environment without a pip of its own, which takes seconds; raises CannotInstall."""
    _run([str(python), "-m", "venv", "--clear", "--without-pip", str(venv)])


def install(python: Path, *words: str, **of_uv: str) -> None:
    """Install what these words of `pip install` say there; raises CannotInstall.

    Nothing is compiled but by whoever imports it: to compile all takes longer than to install it.
    pip does it where uv cannot, as where something is configured that only pip knows.

    Args:
        of_uv: Variables that uv alone understands, such as `UV_RESOLUTION`.
    """
    by_uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", str(python)]
    try:
        _run([*by_uv, *words], uv() | of_uv)
    except CannotInstall as error:
        print(f"{error}\npip tries it", file=sys.stderr, flush=True)
        _run([*pip_for(python), "install", "--quiet", "--no-compile", *words])


def pip_for(python: Path) -> list[str]:
    """Our pip, at work for an environment that has none of its own."""
    return [sys.executable, "-m", "pip", "--python", str(python)]


def uv() -> dict[str, str]:
    """The environment for uv where it is to find packages as pip does here."""
    own = as_uv_has_it(pip_config_list())
    return {"UV_INDEX_STRATEGY": "unsafe-best-match", **own, **os.environ}


def pip_config_list() -> str:
    """What is configured of pip here, a line each."""
    argv = [sys.executable, "-m", "pip", "config", "list"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def settings_in(listed: str, section: str) -> dict[str, str]:
    """What its lines of `pip config list` say; several values of one are a line each."""
    found = re.findall(rf"^{section}\.(\S+)=(.*)$", listed, re.M)
    return {key: str(ast.literal_eval(value)) for key, value in found}


def as_uv_has_it(listed: str) -> dict[str, str]:
    """The variables of uv that stand for the lines of `pip config list`."""
    found = {}
    for section in ("global", "install", ":env:"):  # a later one counts
        for key, value in settings_in(listed, section).items():
            if name := _OF_PIP.get(key):
                found[name] = ("," if name in _WITH_COMMAS else " ").join(value.split())
    return found


def build(constraints: str, *words: str) -> None:
    """Build an sdist and the wheel from it, by tools of these versions; raises CannotInstall.

    The same sources become the same bytes, whatever their times are, and the umask.
    """
    argv = [sys.executable, "-m", "uv", "build", "--quiet", "--build-constraints", constraints]
    _run([*argv, *words], uv())


def _run(argv: list[str], env: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(argv, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        words = " ".join(argv[argv.index("-m") + 1 :])
        raise CannotInstall(f"{words} fails here: {done.stderr.strip()[-300:]}")


def main(words: list[str]) -> int:
    """Install; returns the exit code."""
    try:
        if words[0] == "--build":
            build(*words[1:])
        else:
            install(Path(words[0]), *words[1:])
    except CannotInstall as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
