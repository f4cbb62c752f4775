"""What brings the hook into a program's Python processes: see `worker.look`. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from worker.contracts.framework import Paths
from worker.contracts.variables import ProgramOptions, Variable

LOOK_VARIABLE = "RDZV_LOOK_FOLDER"


def look_variables(
    paths: Paths, environ: Mapping[str, str], options: ProgramOptions
) -> list[Variable]:
    """The variables of the hook; none with `--look off`, and where the agent has no folder.

    Not for a launcher that leads: it reads all of its ranks itself, on all nodes.
    """
    if options.look == "off" or not paths.look:
        return []
    path = with_hook(paths.hook, environ)
    return [
        Variable(LOOK_VARIABLE, paths.look, "where a rank finds its own output streams"),
        Variable("PYTHONPATH", path, "rdzv's hook is first, yours follows ('--look off': none)"),
    ]


def with_hook(hook: str, environ: Mapping[str, str]) -> str:
    """A PYTHONPATH with the hook's folder in front of the user's."""
    return ":".join(filter(None, (hook, environ.get("PYTHONPATH"))))
