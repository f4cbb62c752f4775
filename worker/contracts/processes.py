"""What rdzv starts itself, a process for each rank: env:// and JAX. Pure.

The agent starts `worker/programs/processes.py`, which starts the processes of its node, fills
`$LOCAL_RANK` and its like into the arguments, and ends all when one fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rendezvous.wire.words import bracketed
from worker.contracts.framework import (
    OF_A_PROCESS,
    Framework,
    Start,
    StartRequest,
    needs_module,
    program,
)
from worker.contracts.plain import needs_program
from worker.contracts.restarts import elastic_variables
from worker.contracts.torchrun import master_port
from worker.contracts.variables import Variable

OWN_RANKS = dict.fromkeys(OF_A_PROCESS, "each process is given its own")
"""What the starter sets for each process."""

JAX_VARIABLES = {"JAX_NUM_PROCESSES": "$WORLD_SIZE", "JAX_PROCESS_ID": "$RANK"}
"""Conventions for scripts: of its own accord JAX reads the coordinator's address alone."""


def start_processes(
    ask: StartRequest,
    *,
    own: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
    variables: Sequence[Variable] = (),
    offered: Sequence[Variable] = (),
) -> Start:
    """Start COMMAND once for each rank of the node.

    Args:
        own: Variables of a process; `$RANK` and its like are filled in.
        options: Further options of the starter.
        variables: Of the node, in place of the user's.
        offered: Of the node, where the user has set none.
    """
    row, starter = ask.row, f"{ask.paths.programs}/processes.py"
    argv = [ask.paths.python, "-I", "-S", starter, "--rank", str(ask.first_rank)]
    argv += ["--processes", str(row.nproc_per_node), "--world", str(ask.table.world_size)]
    argv += ["--node", str(row.node), "--grace", f"{ask.options.grace:g}"]
    argv += [word for name, value in (own or {}).items() for word in ("--set", f"{name}={value}")]
    return Start(
        [*argv, *options, "--", *program(ask.command)],
        owned=[*elastic_variables(ask.restarts), *variables],
        offered=list(offered),
        port=master_port(ask),
        fatal_workers=True,
    )


def master(ask: StartRequest) -> str:
    """Node 0's address and port, as one word."""
    return f"{bracketed(ask.table.master_address)}:{ask.table.master_port}"


def _start_jax(ask: StartRequest) -> Start:
    own = dict(JAX_VARIABLES)
    if ask.row.nproc_per_node > 1:
        own["JAX_LOCAL_DEVICE_IDS"] = "$LOCAL_RANK"
    address = Variable("JAX_COORDINATOR_ADDRESS", master(ask), "process 0 listens there")
    return start_processes(ask, own=own, variables=[address])


ENV = Framework(
    "env",
    start_processes,
    needs=lambda command: needs_program(program(command)),
    removes=OWN_RANKS,
)
JAX = Framework(
    "jax",
    _start_jax,
    needs=needs_module("jax"),
    removes={
        **OWN_RANKS,
        **dict.fromkeys(
            ("JAX_COORDINATOR_BIND_ADDRESS", "JAX_COORDINATOR_PORT"),
            "the coordinator's address comes from the table",
        ),
    },
)
