"""PyTorch Lightning: the script once on each node, where it starts its own processes. Pure.

`num_nodes` and `devices` stand in the script, which can read NNODES and NPROC_PER_NODE.
"""

from __future__ import annotations

from worker.contracts.framework import (
    OF_A_PROCESS,
    Framework,
    Start,
    StartRequest,
    needs_module,
    program,
    refuse_uneven,
)
from worker.contracts.torchrun import master_port


def _start(ask: StartRequest) -> Start:
    refuse_uneven(ask, "Lightning uses devices x num_nodes as the number of its processes")
    return Start(program(ask.command), port=master_port(ask))


LIGHTNING = Framework(
    "lightning",
    _start,
    needs=needs_module("lightning", "lightning", "pytorch_lightning"),
    removes={
        # With LOCAL_RANK, one process a node starts, and all wait for the others.
        **dict.fromkeys(OF_A_PROCESS, "Lightning numbers its processes itself"),
        "TORCHELASTIC_*": "Lightning would take its ranks from there, not from the table",
    },
)
