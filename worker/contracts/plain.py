"""Any program, once on each node, with the variables and files and nothing else. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from worker.contracts.framework import OF_A_PROCESS, Framework, Need, Start
from worker.contracts.outer import OUTER
from worker.contracts.torchrun import PET, master_port


def needs_program(command: Sequence[str]) -> tuple[Need, ...]:
    """COMMAND's first word, on the user's PATH."""
    return (Need(command[0], "", program=command[0]),)


COMMAND = Framework(
    "command",
    lambda ask: Start(list(ask.command), port=master_port(ask)),
    needs=needs_program,
    keeps={
        **dict.fromkeys(
            OF_A_PROCESS, "it does not come from the table, and all of COMMAND gets the same value"
        ),
        **OUTER,  # COMMAND may be a step of its own: srun, mpirun
        **dict.fromkeys(PET, "a torchrun in COMMAND uses it unless a flag sets another"),
    },
)
