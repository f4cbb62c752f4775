"""Networks that nodes leave out as virtual: tried once all others have failed, or named. Pure.

A VPN may be all that joins two LANs. Where nodes reached the registry over one, it is tried last:
of each node the address by which it came, else that of an interface of the same name, else another
one that it has left out; of a node without a VPN, the address by which it came (a gateway may lead
there). What nothing points to is not tried, but named where a run fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from rendezvous.proof.findings import Property, make_finding
from rendezvous.proof.network_class import NetworkClass
from rendezvous.proof.networks import Unreachable, named_classes
from rendezvous.proof.origins import Sources
from rendezvous.wire.checks import Check
from rendezvous.wire.node import Candidate, Finding, JoinRequest, LinkKind
from rendezvous.wire.words import listed, printable, seconds_text

_MOST_TRIED = 2
_MOST_NAMED = 3
_USED = Property(
    Check.NETWORK_GIVEN_UP,
    "network",
    "use it from the start with {options}, or connect the nodes by a faster network",
)


def last_networks(
    joins: Sequence[JoinRequest], sources: Sources, others: Sequence[NetworkClass] = ()
) -> list[NetworkClass]:
    """The networks to try after these `others`, best first; mostly none."""
    if not any(join.left_out for join in joins):
        return []
    options = _options(joins)
    reached = Counter(
        (one.family, one.interface)
        for join in joins
        for one in join.left_out
        if one in options[join.slot] and one.address == sources.get(join.slot)
    )
    found = []
    for (family, name), _ in reached.most_common(_MOST_TRIED):
        members = {
            join.slot: chosen
            for join in joins
            if (chosen := _chosen(join, options[join.slot], sources, family, name)) is not None
        }
        if len(members) == len(joins) and all(members != other.members for other in others):
            found.append(members)
    return [replace(one, is_last=True) for one in named_classes(found, first=len(others))]


def _options(joins: Sequence[JoinRequest]) -> dict[int, list[Candidate]]:
    """Of each slot what may be taken: what it left out, and virtual ones that it offers.

    An address that two nodes have proves nothing.
    """
    every = {
        join.slot: [*join.left_out, *(c for c in join.candidates if c.kind is LinkKind.VIRTUAL)]
        for join in joins
    }
    owned = Counter(a for join in joins for a in {c.address for c in _all(join)})
    return {slot: [one for one in own if owned[one.address] == 1] for slot, own in every.items()}


def _all(join: JoinRequest) -> list[Candidate]:
    return [*join.candidates, *join.left_out]


def _chosen(
    join: JoinRequest, options: Sequence[Candidate], sources: Sources, family: int, name: str
) -> Candidate | None:
    """The address of a node in the network that leads to the registry from interfaces so named."""
    source = sources.get(join.slot, "")
    own = [one for one in options if one.family == family]
    own.sort(key=lambda one: (one.interface != name, one.address != source))
    came = (one for one in join.candidates if one.family == family and one.address == source)
    return own[0] if own else next(came, None)


def with_untried(
    why: Unreachable, joins: Sequence[JoinRequest], tried: Sequence[NetworkClass]
) -> Unreachable:
    """The same, with the interfaces that every node has left out as virtual and none has tried."""
    members = {(slot, one.address) for each in tried for slot, one in each.members.items()}
    options = _options(joins)
    left = {
        join.slot: [
            one
            for one in join.left_out
            if one in options[join.slot] and (join.slot, one.address) not in members
        ]
        for join in joins
    }
    common = set.intersection(*({one.interface for one in own} for own in left.values()))
    if not all(left.values()):
        return why
    shown = [one for own in left.values() for one in own if not common or one.interface in common]
    by_name: dict[str, list[str]] = {}
    for one in shown:
        by_name.setdefault(one.interface, []).append(one.address)
    which = [f"{name} ({listed(addresses, 2)})" for name, addresses in by_name.items()]
    was = "was" if len(which) == 1 else "were"
    uses = listed((f"--interface {name} uses it" for name in by_name), _MOST_NAMED)
    return Unreachable(
        why.slots,
        printable(f"{why.reason}; {listed(which, _MOST_NAMED)} {was} left out as virtual", 1000),
        f"{why.hint}; {uses}{'' if common else ' on the nodes that have it'}",
    )


def used(taken: NetworkClass, joins: Sequence[JoinRequest], seconds: float) -> list[Finding]:
    """X09: the run uses what its nodes left out as virtual, and what that costs."""
    if not taken.is_last:
        return []
    members = [taken.members[join.slot] for join in joins]
    names = [*dict.fromkeys(one.interface for one in members)]
    after = "they offer no other network in common"
    if (before := taken.number) > 0:
        many = f"{before} other networks" if before > 1 else "the other network"
        after = f"{many} failed, which took {seconds_text(seconds)}"
    sentence = (
        f"the nodes are joined by {taken.words}, with MTU {min(one.mtu for one in members)}, "
        f"which was left out at first as virtual: {after}; a VPN may be slow"
    )
    options = " ".join(f"--interface {name}" for name in names[:_MOST_NAMED])
    fix = _USED.fix.format(options=options)
    return [make_finding(replace(_USED, fix=fix), sentence)]
