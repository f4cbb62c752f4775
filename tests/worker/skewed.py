"""Three nodes of which no number is another one: what the middle one is given is written down."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rendezvous.wire.table import EndpointTable
from tests.worker.test_hosts_plan import row
from tests.worker.test_hosts_plan import table as table_of

SLOT = 5
"""Of the middle one, which is rank 1."""
SLOTS = (7, SLOT, 3)
NPROC = (8, 5, 2)
HOSTS = ("gpu-9", "gpu-4", "gpu-6")
ADDRESSES = ("10.4.0.31", "10.4.0.14", "10.4.0.22")
INTERFACES = ("ib0", "eth2", "bond1")


def skewed(
    epoch: int = 4,
    port: int = 29_517,
    *,
    order: tuple[int, ...] = (0, 1, 2),
    nproc: tuple[int, ...] = NPROC,
    addresses: tuple[str, ...] = ADDRESSES,
    interfaces: tuple[str, ...] = INTERFACES,
    **more: Any,
) -> EndpointTable:
    """Their table; `order`: which of them has each rank."""
    rows = [
        replace(
            row(rank, HOSTS[n], addresses[n], slot=SLOTS[n]),
            interface=interfaces[n],
            nproc_per_node=nproc[n],
        )
        for rank, n in enumerate(order)
    ]
    made = table_of(*rows, run="llama")
    values = {"epoch": epoch, "master_port": port, "launch_id": "k7f2a9c1xy"}
    return made.model_copy(update=values | more)
