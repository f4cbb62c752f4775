"""Where a rank of a run is: `rdzv.current()`. Standard library only, any Python from 3.8.

Nothing in here raises because of what the environment holds or lacks: the training is worth more
than what it would like to know. What is not known is None, 0 or empty.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

_SIZES = {
    "RANK": "WORLD_SIZE",
    "HOROVOD_RANK": "HOROVOD_SIZE",
    "OMPI_COMM_WORLD_RANK": "OMPI_COMM_WORLD_SIZE",
    "PMI_RANK": "PMI_SIZE",
    "SLURM_PROCID": "SLURM_NTASKS",
}
"""The rank as whatever started the process says it, and beside it the number of ranks; in the order
of `rdzv.metrics`, so that both name a process alike."""

_LOCAL_RANKS = ("LOCAL_RANK", "HOROVOD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")


class Notice(NamedTuple):
    """A node of the run will leave: time to save a checkpoint.

    Attributes:
        seconds: From when the notice was written until all programs are stopped.
        node: The number of the node that leaves; None where that is not known.
        reason: Why, in words.
    """

    seconds: float
    node: int | None
    reason: str


@dataclass(frozen=True)
class Rank:
    """This process as a rank of a run; made by `current`.

    Attributes:
        rdzv_id: The run's name.
        epoch: The number of this start of the programs; each restart has a higher one.
        restarts: How often the programs were started again after a failure.
        max_restarts: How often they may be.
        replacements: How many nodes were replaced.
        last_failure: Why the epoch before this one ended; empty at the first start.
        rank: This process among all; None where nothing says so.
        local_rank: This process among those of its node; None where nothing says so.
        world_size: The number of processes of the run; None where nothing says so.
        node: This node's number.
        nnodes: The number of nodes.
    """

    rdzv_id: str
    epoch: int
    restarts: int
    max_restarts: int
    replacements: int
    last_failure: str
    rank: int | None
    local_rank: int | None
    world_size: int | None
    node: int | None
    nnodes: int | None

    @property
    def notice(self) -> Notice | None:
        """The notice, once there is one; looks at a file each time, which takes microseconds."""
        path = os.environ.get("RDZV_NOTICE_FILE", "")
        if not os.path.exists(path):
            return None
        told = _read(path)  # one that cannot be read is a notice as well
        seconds, node = told.get("seconds"), told.get("node")
        return Notice(
            float(seconds) if isinstance(seconds, (int, float)) else 0.0,
            node if isinstance(node, int) else None,
            str(told.get("reason", "")),
        )

    @property
    def table(self) -> Mapping[str, Any]:
        """The endpoint table: `master_address`, `master_port`, `world_size`, `nodes` and more.

        Each of `nodes` has its `node`, `hostname`, `address` and `nproc_per_node`. Empty where this
        node could not write it.
        """
        return _read(os.environ.get("RDZV_TABLE", ""))


def current() -> Rank | None:
    """This process as a rank of a run of rdzv; None outside of one."""
    if "RDZV_EPOCH" not in os.environ:  # RDZV_ID may be a person's, for `rdzv launch`
        return None
    node, nnodes = _number("NODE_RANK"), _number("NNODES")
    rank, world_size = _place(node, nnodes)
    return Rank(
        rdzv_id=os.environ.get("RDZV_ID", ""),
        epoch=_number("RDZV_EPOCH") or 0,
        restarts=_number("RDZV_RESTARTS") or 0,
        max_restarts=_number("RDZV_MAX_RESTARTS") or 0,
        replacements=_number("RDZV_REPLACEMENTS") or 0,
        last_failure=os.environ.get("RDZV_LAST_FAILURE", ""),
        rank=rank,
        local_rank=next((n for n in map(_number, _LOCAL_RANKS) if n is not None), None),
        world_size=world_size,
        node=node,
        nnodes=nnodes,
    )


def _place(node: int | None, nnodes: int | None) -> tuple[int | None, int | None]:
    """The rank and the number of ranks."""
    for name, size in _SIZES.items():
        rank = _number(name)
        if rank is not None:
            return rank, _number(size)
    local, nproc = _number("LOCAL_RANK"), _number("NPROC_PER_NODE") or 1
    if node is None or local is None:  # one process on each node
        return node, nnodes
    return node * nproc + local, None if nnodes is None else nnodes * nproc


def _number(name: str) -> int | None:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 16 else None


def _read(path: str) -> dict[str, Any]:
    """A file of JSON; empty where there is none, or it holds something else."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
