"""Which addresses belong together: the network classes that a run can be proven on. Pure.

A *network class* is one candidate of each node. Slot 0's candidates lead, in their order: with each
of them goes, of every other node, the candidate in the same subnet; what is left of a node's
candidates goes, in order, with what is left of slot 0's of the same family and kind (where every
rack, or every host, is a subnet of its own). A class in which a node has no candidate is none.
For a family without any, the first addresses of all nodes are tried, whatever they are made of.

An address that two nodes offer proves nothing (each host has the same docker0) and is dropped for
both. A network that most nodes prefer is not given up in silence for some that have no address in
it: they are named.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

from rendezvous.frozen import frozen
from rendezvous.proof.compare import ONE_A_MACHINE
from rendezvous.proof.findings import Property, hostnames_of, make_finding
from rendezvous.proof.network_class import NetworkClass
from rendezvous.proof.origins import NO_SOURCES, OUT_OF_NAT, Sources, behind_nat, nat_text
from rendezvous.wire.checks import Check
from rendezvous.wire.node import Candidate, Finding, JoinRequest, LinkKind
from rendezvous.wire.types import Subnet, subnet_of, subnet_text
from rendezvous.wire.words import group_name, listed, printable, slots_text

_KINDS = {
    LinkKind.ETHERNET: "Ethernet",
    LinkKind.IPOIB: "IP over InfiniBand",
    LinkKind.LOOPBACK: "loopback",
    LinkKind.VIRTUAL: "virtual",
}


@frozen
class Unreachable:
    """No choice of addresses works for all nodes; `reason` says whose fault it is."""

    slots: tuple[int, ...]
    reason: str
    hint: str


def classes_of(
    joins: Sequence[JoinRequest], sources: Sources = NO_SOURCES
) -> list[NetworkClass] | Unreachable:
    """The classes in which every node has an address of its own, the preferred one first.

    There is at least one, or the reason why there is none.
    """
    usable = _usable(joins)
    bare = [join for join in joins if not usable[join.slot]]
    alone = [join for join in bare if all(c.is_loopback for c in join.candidates)]
    if alone and len(alone) < len(joins):
        return _only_loopback(alone, joins)
    if bare:
        return _all_shared(bare, joins, sources)
    common = set.intersection(*({c.family for c in cs} for cs in usable.values()))
    if not common:
        return _no_common_family(usable)
    lead = min(usable)
    partners = _all_partners(lead, usable)
    found = [
        {lead: candidate} | {s: others[place] for s, others in partners.items()}
        for place, candidate in enumerate(usable[lead])
        if all(place in others for others in partners.values())
    ]
    left = common - {members[lead].family for members in found}
    found += _first_of_each(left, usable)
    return named_classes(found)


def _usable(joins: Sequence[JoinRequest]) -> dict[int, list[Candidate]]:
    """The candidates of each slot whose address no other node offers; loopback if all offer it."""
    offered = Counter(a for join in joins for a in {c.address for c in join.candidates})
    is_near = all(any(c.is_loopback for c in join.candidates) for join in joins)
    return {
        join.slot: [
            c for c in join.candidates if offered[c.address] == 1 and (is_near or not c.is_loopback)
        ]
        for join in joins
    }


def _all_shared(
    bare: list[JoinRequest], joins: Sequence[JoinRequest], sources: Sources
) -> Unreachable:
    first = bare[0]
    address = first.candidates[0].address
    others = [
        join
        for join in joins
        if join is not first and any(c.address == address for c in join.candidates)
    ]
    boots = {join.facts.boot_id for join in (first, *others)}
    same_machine = len(boots) == 1 and "" not in boots
    who = listed(f"slot {join.slot} ({join.hostname})" for join in others)
    seen: set[str] = set()
    later = []  # without these, those before them have their addresses to themselves
    for join in sorted(bare, key=lambda join: join.slot):
        own = {candidate.address for candidate in join.candidates}
        if own & seen:
            later.append(join.slot)
        seen |= own
    hidden = {} if same_machine else behind_nat((first, *others), sources)
    hint = "name the interface or network in which they differ, with --interface or --network"
    if same_machine:
        hint = f"two nodes of this run are on one machine; {ONE_A_MACHINE}"
    return Unreachable(
        tuple(later) or (first.slot,),
        f"slot {first.slot} ({first.hostname}) does not have its own address: {address} "
        f"is also the address of {who}{nat_text(hidden, hostnames_of(joins))}",
        OUT_OF_NAT if hidden else hint,
    )


def _only_loopback(alone: list[JoinRequest], joins: Sequence[JoinRequest]) -> Unreachable:
    who, its = group_name([join.slot for join in alone], hostnames_of(joins)), alone[0].candidates
    return Unreachable(
        tuple(join.slot for join in alone),
        f"{who} can offer loopback addresses only ({its[0].address}), which no other machine "
        "can reach",
        "bring up an interface with an address that the other nodes reach",
    )


def _no_common_family(usable: dict[int, list[Candidate]]) -> Unreachable:
    only = {
        family: sorted(slot for slot, cs in usable.items() if {c.family for c in cs} == {family})
        for family in (4, 6)
    }
    fewest = min(only.values(), key=len)
    return Unreachable(
        tuple(fewest),
        f"{slots_text(only[4])} can offer IPv4 addresses only "
        f"and {slots_text(only[6])} IPv6 addresses only",
        "give every node an address of one family, or choose it with --network",
    )


def _all_partners(lead: int, usable: dict[int, list[Candidate]]) -> dict[int, dict[int, Candidate]]:
    """By slot, which of its candidates goes with each of the lead's, by that one's place."""
    led = [_subnet(candidate) for candidate in usable[lead]]
    is_simple = len(set(led)) == len(led)
    return {
        slot: dict(enumerate(own))
        if is_simple and [_subnet(candidate) for candidate in own] == led
        else _partners(usable[lead], led, own)
        for slot, own in usable.items()
        if slot != lead
    }


def _partners(
    lead: Sequence[Candidate], led: Sequence[Subnet], own: Sequence[Candidate]
) -> dict[int, Candidate]:
    """The same of one slot; `led` are the subnets of the lead's."""
    near, left = defaultdict(list), defaultdict(list)
    for candidate in own:
        if (subnet := _subnet(candidate)) in led:
            near[subnet].append(candidate)
        else:
            left[candidate.family, candidate.kind].append(candidate)
    found = {}
    for place, subnet in enumerate(led):
        if near[subnet]:  # of several in one subnet each has its turn, and the last again
            found[place] = near[subnet].pop(0) if len(near[subnet]) > 1 else near[subnet][0]
    for place, candidate in enumerate(lead):
        same_kind = left[candidate.family, candidate.kind]
        if place not in found and same_kind:
            found[place] = same_kind.pop(0)
    return found


def _subnet(candidate: Candidate) -> Subnet:
    return subnet_of(candidate.address, candidate.prefix_length)


def _first_of_each(
    families: Collection[int], usable: dict[int, list[Candidate]]
) -> Iterator[dict[int, Candidate]]:
    first = usable[min(usable)][0].family
    for family in sorted(families, key=lambda family: family != first):
        yield {s: next(c for c in cs if c.family == family) for s, cs in usable.items()}


def named_classes(found: Iterable[dict[int, Candidate]], first: int = 0) -> list[NetworkClass]:
    """Each once, with numbers from the `first` one on."""
    classes: list[NetworkClass] = []
    alike: Counter[str] = Counter()
    for members in found:
        if any(members == other.members for other in classes):
            continue
        words = printable(_words(list(members.values())), 500)
        alike[words] += 1
        if alike[words] > 1:
            words = f"{words} ({alike[words]})"
        classes.append(NetworkClass(first + len(classes), words, members))
    return classes


def _words(candidates: list[Candidate]) -> str:
    first, subnets = candidates[0], {_subnet(c) for c in candidates}
    interfaces = dict.fromkeys(c.interface for c in candidates)
    some = " or ".join(interfaces) if len(interfaces) <= 3 else f"{len(interfaces)} interface names"
    where = subnet_text(_subnet(first)) if len(subnets) == 1 else f"{len(subnets)} subnets"
    kinds = [*dict.fromkeys(_KINDS[c.kind] for c in candidates)]
    if kinds == ["loopback"]:
        return f"{some} ({where})"
    family = f", IPv{first.family}" * (len(subnets) > 1)  # a subnet shows its own
    return f"{some} ({where}, {' and '.join(kinds)}{family})"


_GIVEN_UP = Property(
    Check.NETWORK_GIVEN_UP,
    "network",
    "run 'rdzv doctor' there to see why the node offers no address in it (interface down or "
    "without an address, another --interface or --network), or choose another network for "
    "all nodes with --network",
)


def given_up(joins: Sequence[JoinRequest], taken: NetworkClass) -> list[Finding]:
    """X09: networks that nodes prefer to the one that is taken, and the few that are not in them.

    What only a minority has is none of the run's.
    """
    if all(join.candidates[0] is taken.members[join.slot] for join in joins):
        return []
    usable = _usable(joins)
    lead = _typical(joins, usable, taken)
    partners = _all_partners(lead, usable)
    found: list[Finding] = []
    preferred = usable[lead][: usable[lead].index(taken.members[lead])]
    for place, candidate in enumerate(preferred):
        without = [slot for slot in sorted(partners) if place not in partners[slot]]
        subnet = _subnet(candidate)  # in which some of them may offer what another offers, too
        out = set(without)
        none = [j for j in joins if j.slot in out and subnet not in map(_subnet, j.candidates)]
        if without and 2 * len(none) <= len(joins):
            inside = [others[place] for others in partners.values() if place in others]
            found += _without(without, _words([candidate, *inside]), taken.words, joins)
    return found


def _typical(
    joins: Sequence[JoinRequest], usable: dict[int, list[Candidate]], taken: NetworkClass
) -> int:
    """A slot whose first address is of the most frequent kind and subnet; better one not taken."""
    first = {join.slot: join.candidates[0] for join in joins}
    kinds = Counter((c.family, c.kind) for c in first.values())
    subnets = Counter(_subnet(c) for c in first.values())

    def rank(slot: int) -> tuple[int, int, bool, int]:
        own = usable[slot][0]
        is_taken = own == taken.members[slot]
        return -kinds[own.family, own.kind], -subnets[_subnet(own)], is_taken, slot

    return min(usable, key=rank)


def _without(
    slots: list[int], network: str, taken: str, joins: Sequence[JoinRequest]
) -> Iterator[Finding]:
    """One finding per node if they are a minority; otherwise one finding that names no node."""
    names, rest = hostnames_of(joins), len(joins) - len(slots)
    others = f"{rest} others have" if rest > 1 else "other has"
    few = 2 * len(slots) < len(joins)
    for group in [[slot] for slot in slots] if few else [slots]:
        does, its = ("does", "its") if len(group) == 1 else ("do", "their")
        sentence = (
            f"{group_name(group, names)} {does} not have {its} own address in {network}, where "
            f"the {others} one: the run does not use that network, but {taken}"
        )
        yield make_finding(_GIVEN_UP, sentence, slot=group[0] if few else None)
