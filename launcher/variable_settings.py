"""What the launcher can be told of the variables of programs; see `worker.settings`."""

from __future__ import annotations

from pathlib import Path

from worker.options import RUN, option
from worker.settings import NodeSettings


class VariableSettings(NodeSettings):
    """Options of `rdzv launch` that give variables to the programs of all nodes."""

    env: list[str] = option(
        [],
        "Set this variable for the program of every node; without a value, as it is set here. "
        "'{slot}' in a value is the number of the node's slot. Repeatable.",
        group=RUN,
        metavar="NAME[=VALUE]",
    )
    env_file: list[Path] = option(
        [],
        "Set the variables of this file, in the format of docker's --env-file. Repeatable.",
        group=RUN,
        metavar="FILE",
    )
    secret_env: list[str] = option(
        [],
        "Treat this variable as a secret, whatever its name is: it travels sealed, and no text "
        "shows it. See 'rdzv docs environment'. Repeatable.",
        group=RUN,
        metavar="NAME",
    )
