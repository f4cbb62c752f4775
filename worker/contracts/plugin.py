"""A torchrun that a person has started, and that meets by rdzv's plug-in: `rdzv.torchrun`. Pure.

It runs already when its table comes, so nothing is started: what its agent has to know of the nodes
goes with the variables.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence

from worker.contracts.framework import Framework, Need, Start, StartRequest
from worker.contracts.outer import OUTER
from worker.contracts.torchrun import master_port
from worker.contracts.variables import Variable

NODES_VARIABLE = "RDZV_TORCHRUN_NODES"
"""In order of rank, how many nodes have how many processes of which role, as JSON; for the plug-in
alone."""
DEFAULT_ROLE = "default"
"""torchrun's own."""


def _start(ask: StartRequest) -> Start:
    kinds = [(row.nproc_per_node, row.role or DEFAULT_ROLE) for row in ask.table.rows]
    nodes = [[len([*alike]), *kind] for kind, alike in itertools.groupby(kinds)]
    told = Variable(NODES_VARIABLE, json.dumps(nodes), "the processes of each node, and their role")
    return Start(list(ask.command), owned=[told], port=master_port(ask))


def _needs(command: Sequence[str]) -> tuple[Need, ...]:
    """The interpreter of the torchrun, which is there: it has said so itself."""
    return (Need("torch", "pip install torch", program=command[0]),)


def nodes_in(env: Mapping[str, str]) -> tuple[dict[str, str], list[list[object]]]:
    """The environment without what is for the plug-in alone, and that: by rank, the number of a
    node's processes and their role."""
    kept = {name: value for name, value in env.items() if name != NODES_VARIABLE}
    nodes = json.loads(env[NODES_VARIABLE])
    return kept, [[count, role] for several, count, role in nodes for _ in range(several)]


PLUGIN = Framework("torchrun-plugin", _start, needs=_needs, keeps=OUTER)
