"""An environment with rdzv alone, made from carried wheels without a network."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.gpu.session import Failed, call


def install(wheels: Path, folder: Path, environ: dict[str, str], seconds: float) -> Path:
    """Install rdzv's wheel and what it needs, and return its command.

    The carried pip does it: the interpreter may have none, nor ensurepip. torch is not installed,
    and not looked for: rdzv starts the one of the user's interpreter.

    Raises:
        Failed: There are no wheels, or they do not suffice.
    """
    own, pips = sorted(wheels.glob("rdzv-*.whl")), sorted(wheels.glob("pip-*.whl"))
    if not own or not pips:
        raise Failed(f"{wheels} has no wheels: run 'make wheels-gpu' where there is a network")
    if not (folder / "bin" / "python").exists():
        made = call([sys.executable, "-m", "venv", "--without-pip", str(folder)], environ, seconds)
        if made.code != 0:
            raise Failed(f"no environment can be made: {(made.error or made.text)[-500:]}")
    words = [str(folder / "bin" / "python"), f"{pips[-1]}/pip", "install", "--quiet", "--no-index"]
    words += ["--no-compile", "--disable-pip-version-check", "--find-links", str(wheels)]
    done = call([*words, "--force-reinstall", f"{own[-1]}[launcher,gpu]"], environ, seconds)
    if done.code != 0:
        raise Failed(f"the wheels cannot be installed: {(done.error or done.text)[-1000:]}")
    return folder / "bin" / "rdzv"
