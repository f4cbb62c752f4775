"""Where nodes came from, as the registry saw it: NAT and tunnels. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import TypeAlias

from rendezvous.wire.node import JoinRequest
from rendezvous.wire.types import parse_address
from rendezvous.wire.words import listed, slot_name

Sources: TypeAlias = Mapping[int, str]
"""By slot, the address from which the registry saw the node's join come; empty: unknown."""


OUT_OF_NAT = (
    "give every node an address that the others can reach: the host's own network (docker run "
    "--network host, hostNetwork: true), one overlay network for all containers, or a network "
    "that is routed between the nodes"
)
NO_SOURCES: Sources = MappingProxyType({})


class Origin(Enum):
    """What a join's source address says of the way between node and registry."""

    UNKNOWN = "unknown"
    OWN = "own"
    TUNNEL = "tunnel"
    FOREIGN = "foreign"


def origin_of(join: JoinRequest, source: str) -> Origin:
    """What the source of this node's join says.

    A node that is not on the registry's machine comes from loopback through something on that
    machine. No link-local address passes a NAT.
    """
    if not source:
        return Origin.UNKNOWN
    parsed = parse_address(source)
    if parsed.is_loopback:
        return Origin.OWN if join.candidates[0].is_loopback else Origin.TUNNEL
    is_own = parsed.is_link_local or source in join.own_addresses
    return Origin.OWN if is_own else Origin.FOREIGN


def words_of_origin(origin: Origin, join: JoinRequest) -> str:
    """What is behind a source that is none of the node's own addresses."""
    if origin is Origin.TUNNEL:
        return "through a tunnel or a proxy on the registry's machine"
    own = listed((one for one in join.own_addresses if not parse_address(one).is_loopback), 3)
    return f"not an address of the node, which has {own}: NAT or a proxy is in between"


def behind_nat(joins: Iterable[JoinRequest], sources: Sources) -> dict[int, str]:
    """Of each slot whose join came from an address that is none of its own: that one."""
    found = {join.slot: (join, sources.get(join.slot, "")) for join in joins}
    return {
        slot: source
        for slot, (join, source) in found.items()
        if origin_of(join, source) is Origin.FOREIGN
    }


def nat_text(seen: Mapping[int, str], hostnames: Mapping[int, str]) -> str:
    """That the registry sees these slots under addresses that are not theirs; empty for none."""
    if not seen:
        return ""
    each = listed((f"{slot_name(s, hostnames)} as {a}" for s, a in sorted(seen.items())), 3)
    own = "which is not one of its addresses" if len(seen) == 1 else "which they do not have"
    return (
        f"; the registry sees {each}, {own}: most likely NAT (masquerading, ports that are "
        "mapped), which lets no other connection in"
    )
