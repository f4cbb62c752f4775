"""Which addresses this node offers to its peers, in which order, and why.

All that can be reached from elsewhere is offered; nothing is guessed away. The order is a
preference only: the registry chooses among what proves to work for every pair of nodes. Of what is
left out as virtual, VPNs and the way to the registry are kept for when nothing else works.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import field
from typing import Literal, TypeAlias

from rendezvous.frozen import frozen
from rendezvous.wire.errors import AddressError
from rendezvous.wire.node import MOST_LEFT_OUT, Candidate, LinkKind
from rendezvous.wire.words import natural_key
from worker.machine.network import Interface, Network, RdmaKind, Skipped

Prefer: TypeAlias = Literal["auto", "ib", "fastest"]

_IPOIB = 32  # values of /sys/class/net/*/type
_LOOPBACK = 772
_NONE = 65534
_MOST_CANDIDATES = 64  # what a join may carry
_MOST_LISTED = 20
_VIRTUAL_NAME = re.compile(
    r"docker|br-|veth|cali|cilium|lxc|flannel|cni|podman|nerdctl|virbr|vnet|tap|tun|tailscale|wg|"
    r"kube-|dummy|vxlan|weave|antrea|ovn"
)
_VPN_NAME = re.compile(r"tailscale|wg|tun|tap")
"""Virtual ones that lead to other machines; bridges and ports of containers do not."""

_Cidr: TypeAlias = ipaddress.IPv4Interface | ipaddress.IPv6Interface


@frozen
class AddressChoice:
    """What a node offers, best first, and what it does not.

    `left_out` are those of the skipped that might lead to other nodes all the same.
    """

    candidates: list[Candidate]
    skipped: list[Skipped]
    left_out: list[Candidate] = field(default_factory=list)


@frozen
class _Offer:
    """An address that could be offered.

    `attached` says why only to who asks for it, `virtual` why only when nothing else remains.
    """

    interface: Interface
    cidr: _Cidr
    attached: str
    virtual: str

    def skipped(self, reason: str) -> Skipped:
        return Skipped(self.interface.name, str(self.cidr), reason)


def choose_candidates(
    machine: Network,
    *,
    route_source: str | None,
    prefer: Prefer = "auto",
    overrides: Sequence[str] = (),
    loopback: bool = False,
) -> AddressChoice:
    """Choose what this node offers, and say why of each address, offered or not.

    Args:
        machine: What `look` saw.
        route_source: The source address of the route to the registry, where known.
        prefer: `auto` puts the front-end network first (an IPoIB interface may be missing where
            verbs work), `ib` puts IPoIB first, `fastest` goes by link speed.
        overrides: Interface names, IP addresses or CIDRs. Only what they name is offered, in their
            order; what is skipped otherwise (virtual, slave) is offered when it is named.
        loopback: All nodes live on this machine: loopback is offered, and nothing else.

    Raises:
        AddressError: An override names nothing that is up, or no address remains.
    """
    rail = _rail(machine)
    offers, skipped = _sort_out(machine, loopback=loopback)
    offers.sort(key=lambda offer: _order(offer, rail, route_source, prefer))
    chosen = dict.fromkeys(_usual(offers), "")
    if overrides:
        chosen = _asked_for(machine, offers, overrides)
    if not chosen:
        raise AddressError(
            f"this node has no address to offer; it has: {_listing(machine)}", hint=_hint(offers)
        )
    skipped += [_left_out(offer, asked=bool(overrides)) for offer in offers if offer not in chosen]
    skipped += [o.skipped(f"after {_MOST_CANDIDATES} others") for o in chosen][_MOST_CANDIDATES:]
    candidates = [
        _candidate(offer, asked + _reason(offer, rail, route_source))
        for offer, asked in chosen.items()
    ]
    spare = [] if overrides else [o for o in offers if o not in chosen]
    left_out = [
        _candidate(offer, _reason(offer, rail, route_source))
        for offer in sorted(spare, key=lambda offer: str(offer.cidr.ip) != route_source)
        if _may_lead_on(offer, route_source)
    ]
    return AddressChoice(candidates[:_MOST_CANDIDATES], skipped, left_out[:MOST_LEFT_OUT])


def _sort_out(machine: Network, *, loopback: bool) -> tuple[list[_Offer], list[Skipped]]:
    """Every address that could be offered, and the others with the reason."""
    offers: list[_Offer] = []
    skipped: list[Skipped] = []
    for interface in machine.interfaces:
        attached = _attached(interface)
        unusable = _unusable(interface, loopback=loopback)
        if not interface.addresses:
            skipped.append(Skipped(interface.name, "", unusable or attached or "no address"))
        for cidr in map(ipaddress.ip_interface, interface.addresses):
            offer = _Offer(interface, cidr, attached, _virtual(interface))
            unreachable = _unreachable(cidr, loopback=loopback)
            if unusable or unreachable:
                skipped.append(offer.skipped(unusable or attached or unreachable))
            else:
                offers.append(offer)
    return offers, skipped


def _unusable(interface: Interface, *, loopback: bool) -> str:
    if loopback != (interface.link_type == _LOOPBACK):
        return "not loopback" if loopback else "loopback"
    return _not_up(interface)


def _not_up(interface: Interface) -> str:
    if interface.carrier is False:
        return "no carrier"
    return "" if interface.is_running else "down"


def _unreachable(cidr: _Cidr, *, loopback: bool) -> str:
    if loopback != cidr.ip.is_loopback:
        return "not loopback" if loopback else "loopback"
    return "link-local" if cidr.ip.is_link_local else ""


def _attached(interface: Interface) -> str:
    if interface.bridge:
        return f"port of {interface.bridge}"
    return f"slave of {interface.master}" if interface.master else ""


def _virtual(interface: Interface) -> str:
    if interface.is_bridge:
        return "bridge"
    if _VIRTUAL_NAME.match(interface.name):
        return "virtual by name"
    return "tunnel" if interface.link_type == _NONE and not interface.is_physical else ""


def _usual(offers: Sequence[_Offer]) -> list[_Offer]:
    """What is offered unasked: what is not virtual, or the virtual ones when there is no other."""
    free = [offer for offer in offers if not offer.attached]
    return [offer for offer in free if not offer.virtual] or free


def _may_lead_on(offer: _Offer, route_source: str | None) -> bool:
    """Whether a virtual interface may lead to other nodes: a VPN, or what leads to the registry."""
    is_vpn = offer.interface.link_type == _NONE or _VPN_NAME.match(offer.interface.name) is not None
    leads = str(offer.cidr.ip) == route_source
    return bool(offer.virtual) and not offer.attached and (leads or is_vpn)


def _left_out(offer: _Offer, *, asked: bool) -> Skipped:
    return offer.skipped("not asked for" if asked else offer.attached or offer.virtual)


def _rail(machine: Network) -> RdmaKind | None:
    """The commonest kind of RDMA device: these carry the collectives. None when two are."""
    counts = Counter(machine.rdma).most_common(2)
    if len(counts) == 2 and counts[0][1] == counts[1][1]:
        return None
    return counts[0][0] if counts else None


def _order(
    offer: _Offer, rail: RdmaKind | None, route_source: str | None, prefer: Prefer
) -> tuple[object, ...]:
    interface = offer.interface
    is_ipoib = interface.link_type == _IPOIB
    return (
        -interface.speed_mbps if prefer == "fastest" else 0,
        is_ipoib != (prefer == "ib"),
        rail is not None and interface.rdma == rail,
        offer.cidr.version,
        not interface.is_physical,
        str(offer.cidr.ip) != route_source,
        -interface.speed_mbps,
        natural_key(interface.name),
    )


def _kind(interface: Interface) -> LinkKind:
    if interface.link_type == _LOOPBACK:
        return LinkKind.LOOPBACK
    if _virtual(interface):
        return LinkKind.VIRTUAL
    return LinkKind.IPOIB if interface.link_type == _IPOIB else LinkKind.ETHERNET


def _candidate(offer: _Offer, reason: str) -> Candidate:
    return Candidate(
        interface=offer.interface.name,
        address=str(offer.cidr.ip),
        prefix_length=offer.cidr.network.prefixlen,
        kind=_kind(offer.interface),
        mtu=offer.interface.mtu,
        speed_mbps=offer.interface.speed_mbps,
        reason=reason,
    )


_KIND_WORDS = {
    LinkKind.ETHERNET: "Ethernet",
    LinkKind.IPOIB: "IPoIB",
    LinkKind.LOOPBACK: "loopback",
}


def _reason(offer: _Offer, rail: RdmaKind | None, route_source: str | None) -> str:
    """The facts that gave the address its place, in the order in which they count."""
    interface = offer.interface
    words = [offer.virtual or _KIND_WORDS[_kind(interface)]]
    if rail is not None and interface.rdma == rail:
        words.append("rail of the collectives")
    words.append(f"IPv{offer.cidr.version}")
    if str(offer.cidr.ip) == route_source:
        words.append("on the route to the registry")
    if interface.speed_mbps:
        words.append(f"{interface.speed_mbps / 1000:g} Gb/s")
    return ", ".join(words)


def _asked_for(
    machine: Network, offers: Sequence[_Offer], overrides: Sequence[str]
) -> dict[_Offer, str]:
    """What the overrides name, in their order, each with the words for its reason."""
    chosen: dict[_Offer, str] = {}
    for override in overrides:
        named = _named(offers, override)
        if not named:
            raise AddressError(
                f"{override!r} does not name an address that is up and can be offered; this "
                f"node has: {_listing(machine)}",
                hint=_hint(offers),
            )
        for offer in named:
            chosen.setdefault(offer, f"asked for by {override}: ")
    return chosen


def _named(offers: Sequence[_Offer], override: str) -> list[_Offer]:
    by_name = [offer for offer in offers if offer.interface.name == override]
    if by_name:
        return by_name
    try:
        wanted = ipaddress.ip_interface(override)
    except ValueError:
        return []
    if "/" in override:
        inside = [offer for offer in offers if offer.cidr.ip in wanted.network]
        return _usual(inside) or inside
    return [o for o in offers if o.cidr.ip == wanted.ip] or _inside_loopback(offers, wanted)


def _inside_loopback(offers: Sequence[_Offer], wanted: _Cidr) -> list[_Offer]:
    """127.0.0.3 belongs to this machine although only 127.0.0.1/8 is listed."""
    for offer in offers:
        if wanted.ip.is_loopback and wanted.ip in offer.cidr.network:
            cidr = ipaddress.ip_interface(f"{wanted.ip}/{offer.cidr.network.prefixlen}")
            return [_Offer(offer.interface, cidr, "", "")]
    return []


def _hint(offers: Sequence[_Offer]) -> str:
    if not offers:
        return "bring up an interface with an address that fits, then try again"
    best = (_usual(offers) or offers)[0]
    return (
        f"try --interface {best.interface.name}, --address {best.cidr.ip} "
        f"or --network {best.cidr.network}"
    )


def _listing(machine: Network) -> str:
    """What exists, with address and state, on one line."""
    words: list[str] = []
    for interface in machine.interfaces:
        state = _not_up(interface) or _attached(interface) or _virtual(interface)
        if not interface.addresses:
            words.append(f"{interface.name} without an address ({state or 'up'})")
        for cidr in map(ipaddress.ip_interface, interface.addresses):
            scope = state or _unreachable(cidr, loopback=False) or "up"
            words.append(f"{interface.name} {cidr} ({scope})")
    more = len(words) - _MOST_LISTED
    listed = ", ".join(words[:_MOST_LISTED]) or "no interface at all"
    return f"{listed} and {more} more" if more > 0 else listed
