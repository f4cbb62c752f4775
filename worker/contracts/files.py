"""The files that every node is given: hostfiles in both dialects, and the table as JSON. Pure."""

from __future__ import annotations

import json

from rendezvous.wire.table import EndpointTable
from rendezvous.wire.watch import DepartureNotice
from rendezvous.wire.words import bracketed
from worker.contracts.framework import Paths
from worker.contracts.variables import Variable

HOSTFILE = "hostfile"
HOSTFILE_MPICH = "hostfile.mpich"
TABLE = "table.json"
NOTICE = "notice.json"
NOTICE_VARIABLE = "RDZV_NOTICE_FILE"


def files_of(table: EndpointTable) -> dict[str, str]:
    """The files' texts by name, the same on every node; in the order of the nodes.

    A host is its address: a name would have to resolve on every node.
    """
    return {
        HOSTFILE: "".join(f"{r.address} slots={r.nproc_per_node}\n" for r in table.rows),
        HOSTFILE_MPICH: "".join(f"{bracketed(r.address)}:{r.nproc_per_node}\n" for r in table.rows),
        TABLE: json.dumps(_described(table), indent=1) + "\n",
    }


def file_variables(paths: Paths) -> list[Variable]:
    """Where the files are, and the agent's socket."""
    found = []
    if paths.socket:
        found = [Variable("RDZV_SOCKET", paths.socket, "this node's agent: 'rdzv rsh', metrics")]
    if not paths.folder:
        return found
    return [
        *found,
        Variable("RDZV_HOSTFILE", paths.file(HOSTFILE), "the nodes as 'ADDRESS slots=PROCESSES'"),
        Variable("RDZV_HOSTFILE_MPICH", paths.file(HOSTFILE_MPICH), "as 'ADDRESS:PROCESSES'"),
        Variable("RDZV_TABLE", paths.file(TABLE), "the endpoint table as JSON"),
        Variable(NOTICE_VARIABLE, paths.file(NOTICE), "appears when a node of the run will leave"),
    ]


def notice_text(departure: DepartureNotice) -> str:
    """What the notice file holds: when all programs are stopped, for which node, and why."""
    return json.dumps(
        {
            "seconds": departure.seconds,
            "node": departure.node,
            "slot": departure.slot,
            "reason": departure.words,
        }
    )


def _described(table: EndpointTable) -> dict[str, object]:
    """The table without the nodes' signatures."""
    return {
        "run": table.run,
        "launch_id": table.launch_id,
        "epoch": table.epoch,
        "digest": table.digest(),
        "master_address": table.master_address,
        "master_port": table.master_port,
        "world_size": table.world_size,
        "network": table.network,
        "transport": table.transport,
        "nodes": table.model_dump(exclude={"rows": {"__all__": {"mac"}}}, exclude_none=True)[
            "rows"
        ],
    }
