"""TensorFlow: COMMAND once on each node, with the cluster in TF_CONFIG. Pure.

Every process listens on the port of its own entry, so that port has to be free on every node. Nodes
of one machine (loopback addresses) have a port each: the master port and those after it.
"""

from __future__ import annotations

import json

from rendezvous.wire.errors import UsageError
from rendezvous.wire.table import TableRow
from rendezvous.wire.words import bracketed
from worker.contracts.framework import (
    OF_A_PROCESS,
    Framework,
    Start,
    StartRequest,
    needs_module,
    program,
)
from worker.contracts.variables import Variable


def _start(ask: StartRequest) -> Start:
    roles = _roles(ask)
    own = roles[ask.row.node]
    cluster: dict[str, list[str]] = {}
    for row in ask.table.rows:
        cluster.setdefault(roles[row.node][0], []).append(
            f"{bracketed(row.address)}:{_port(ask, row)}"
        )
    config = {"cluster": cluster, "task": {"type": own[0], "index": own[1]}}
    variable = Variable("TF_CONFIG", json.dumps(config), "the cluster, and this node's task in it")
    return Start(program(ask.command), owned=[variable], port=_port(ask, ask.row))


def _roles(ask: StartRequest) -> list[tuple[str, int]]:
    """The task of each node: first the chief, where one is wanted, last the servers."""
    nodes, chiefs, servers = len(ask.table.rows), int(ask.options.tf_chief), ask.options.tf_ps
    workers = nodes - chiefs - servers
    if workers < 1:
        raise UsageError(
            f"with --tf-ps {servers}{' and --tf-chief' if chiefs else ''}, none of the "
            f"{nodes} nodes is a worker",
            hint="give more --nnodes, or fewer parameter servers",
        )
    counts = (("chief", chiefs), ("worker", workers), ("ps", servers))
    return [(kind, index) for kind, count in counts for index in range(count)]


def _port(ask: StartRequest, row: TableRow) -> int:
    return ask.table.master_port + (row.node if ask.row.is_loopback else 0)


TENSORFLOW = Framework(
    "tensorflow",
    _start,
    needs=needs_module("tensorflow"),
    removes=dict.fromkeys(OF_A_PROCESS, "TF_CONFIG says which task it is"),
)
