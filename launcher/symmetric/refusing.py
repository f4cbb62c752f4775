"""How a node of a symmetric start that cannot take part lets the others know. Pure.

Node 0 opens the registry for a moment, with a run that ends at once for its reason; a node above it
tells the registry as the node of its slot. One whose number is no slot of the run, or 0 while the
registry is elsewhere, tells it with the token of slot 0: the registry keeps that it was there.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping

from launcher.plan.plan import check_run_id, parse_nnodes
from launcher.symmetric.claim import Value, check_is_host
from rendezvous.frozen import frozen
from rendezvous.wire.errors import UsageError
from rendezvous.wire.types import is_loopback

SECONDS = 20.0
"""How long node 0 waits for the others: they start at about the same time."""
ABOVE_SECONDS = 30.0
"""How long a node above it waits for the registry, whose process has to start first."""
STRAY_SECONDS = 10.0
"""The same of a node without a slot: all nodes may be without one, and no registry come."""


@frozen
class Refuser:
    """A node that cannot take part.

    Attributes:
        run: The run that it was to be in.
        nodes: How many nodes, least and most, and how many beside these.
        slot: Its own; that of node 0 where it has none.
        of_slot: Whether it has one.
        hosts: Whether the registry is to be here.
        addresses: Where the registry is.
    """

    run: str
    nodes: tuple[int, int, int]
    slot: int
    of_slot: bool
    hosts: bool
    addresses: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """How long it tries."""
        if not self.of_slot:
            return STRAY_SECONDS
        return SECONDS if self.hosts else ABOVE_SECONDS


def refuser(values: Mapping[str, Value], extra: int, own: Collection[str]) -> Refuser | None:
    """Who tells what is wrong; None where it is not known of which run, or where that is.

    Args:
        values: What is known of this node, by the name of the setting.
        extra: The spares and standbys.
        own: The addresses of this machine.
    """
    if not {"nnodes", "rdzv_id", "master_addr"} <= set(values):
        return None
    try:
        run = check_run_id(values["rdzv_id"].text)
        least, most = parse_nnodes(values["nnodes"].text)
        check_is_host(values["master_addr"])
    except UsageError:
        return None
    master, text = (
        values["master_addr"].text,
        values["node_rank"].text if "node_rank" in values else "",
    )
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 7 else -1
    hosts = number == 0 and _may_be_here(master, own)
    of_slot = hosts or 0 < number < most + extra
    slot = number if of_slot else 0
    return Refuser(run, (least, most, extra), slot, of_slot, hosts, tuple(master.split(",")))


def _may_be_here(master: str, own: Collection[str]) -> bool:
    """Whether an address of node 0 may be this machine's; what a name means is not looked up."""
    try:
        address = str(ipaddress.ip_address(master))
    except ValueError:
        return True
    return address in own or is_loopback(address)
