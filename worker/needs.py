"""Whether what a contract needs is installed on this node: looked for, and nothing is imported."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from worker.contracts import Need
from worker.machine.user_python import has_module


def missing_of(needs: Iterable[Need], environ: Mapping[str, str]) -> str:
    """What is missing and how to install it, in one sentence; empty when nothing is known to be.

    Args:
        needs: Of the contract.
        environ: The program's environment: PATH, PYTHONPATH and HOME count.
    """
    path = environ.get("PATH", "")
    for need in needs:
        if need.program and shutil.which(need.program, path=path) is None:
            return _words_of_program(need, path)
        if need.modules and has_module(need.program, environ, need.modules) is False:
            python = shutil.which(need.program, path=path)
            return (
                f"{need.name} is not installed for '{python}' on this node; install it in the "
                f"job's environment ({need.install}), or put that environment first on PATH"
            )
    return ""


def _words_of_program(need: Need, path: str) -> str:
    if not need.install:
        if "/" in need.program and Path(need.program).exists():
            return (
                f"'{need.program}' of COMMAND is not executable (chmod +x, or name its interpreter)"
            )
        return f"'{need.program}' of COMMAND is not on this node's PATH ({path})"
    return (
        f"'{need.program}' is not on this node's PATH ({path}); install {need.name} in the job's "
        f"environment ({need.install}), or activate that environment before rdzv is started"
    )
