"""The executables by which programs find `rdzv rsh`: `rdzv-rsh`, and `ssh` for those that insist.

mpirun takes the path of what it is to call in place of ssh; pdsh and horovodrun call `ssh`, the
first one on the PATH.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from worker.program.output import make_private

RSH = "rdzv-rsh"
_PROGRAM = Path(__file__).resolve().parents[1] / "programs" / "rsh.py"


def write_shims(folder: Path, socket: str) -> None:
    """Write both into a folder, which is made, for the agent at this socket. Raises OSError.

    The socket stands in them, as Hydra gives all ranks the variables of rank 0.
    """
    make_private(folder)
    where = f"RDZV_SOCKET={shlex.quote(socket)}; export RDZV_SOCKET"
    words = shlex.join([sys.executable, "-I", "-S", str(_PROGRAM)])
    for name in (RSH, "ssh"):
        new = folder / f".{name}.{os.getpid()}"
        new.write_text(f'#!/bin/sh\n{where}\nexec {words} "$@"\n')
        new.chmod(0o700)
        new.replace(folder / name)
