"""Why a network does not work for all nodes, and who is to blame. Pure.

Nodes that are in failed pairs with several others are guilty, the worst first, until only single
pairs are left. Of a single pair nobody is guilty: both ends and the direction are named. Nor is
anybody when half of the nodes or more would be: then the nodes are split.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from rendezvous.proof.network_class import NetworkClass
from rendezvous.proof.networks import Unreachable
from rendezvous.proof.origins import (
    NO_SOURCES,
    OUT_OF_NAT,
    Origin,
    Sources,
    nat_text,
    origin_of,
)
from rendezvous.proof.pairs import (
    NO_NEIGHBOUR,
    OUTCOMES,
    PROHIBITED,
    OutcomeKind,
    Pair,
    ProbedRound,
    failures,
    guilty_nodes,
    kind_of,
)
from rendezvous.wire.node import JoinRequest
from rendezvous.wire.peers import FULL_MESH
from rendezvous.wire.run import Round
from rendezvous.wire.types import Subnet, subnet_of, subnet_text
from rendezvous.wire.verify import PairProbe
from rendezvous.wire.words import group_name, listed, printable, slots_text

Direction: TypeAlias = Literal["in", "out", "both"]

_TELLING = ("timeout", "no_route", "wrong_node", "stranger", "error")
"""Outcomes of which the node's own words say more than ours."""
_OF_A_PORT = ("timeout", "refused")
_OF_A_HOST = ("neighbour", "unreachable")
"""What ICMP says of a whole host: there a port says nothing."""
_CONNECT = (
    "choose a network that joins all nodes with --network CIDR or --interface NAME, or connect "
    "these (compare `ip route get {address}` on the nodes)"
)
_BEHIND_NAT = ("timeout", "refused", "no_route", "wrong_node", "stranger")
"""What becomes of connections to an address that only means something on the other side of NAT."""


def to_release(tried: Round, known: Collection[int] = ()) -> list[int]:
    """The smallest set of slots (as far as greed finds it) without which every pair is good.

    Never slot 0, which cannot be released: where it is the guilty one, it is all of the others. Nor
    one of those that are `known` to reach each other: a newcomer that one of them does not reach
    is released.
    """
    there, pairs = set(known), set(failures(tried))
    out = {slot for pair in pairs if there & set(pair) for slot in pair if slot not in there}
    pairs = {pair for pair in pairs if not (out | there) & set(pair)}
    out |= {a or b for a, b in pairs if 0 in (a, b)}
    guilty, single = guilty_nodes(pair for pair in pairs if not out & set(pair))
    return sorted(out.union(guilty, (max(pair) for pair in single)))


def why_released(
    tried: Round,
    joins: Sequence[JoinRequest],
    classes: Iterable[NetworkClass],
    known: Collection[int] = (),
    sources: Sources = NO_SOURCES,
) -> dict[int, str]:
    """Of each slot of `to_release`: whom it does not reach, or who not it, and the likeliest cause.

    Those that fail alike with the nodes that stay are told of together.
    """
    round_, out = ProbedRound.of(tried, joins, classes, sources), to_release(tried, known)
    failed: defaultdict[int, dict[Pair, PairProbe]] = defaultdict(dict)
    for pair, probe in round_.failed.items():
        for slot in pair:
            failed[slot][pair] = probe
    gone = frozenset(out)
    groups: defaultdict[frozenset[tuple[int, bool]], list[int]] = defaultdict(list)
    for slot in out:
        stay = frozenset(_others(slot, (p for p in failed[slot] if not gone.issuperset(p))))
        groups[stay or frozenset({(slot, True)})].append(slot)
    told: dict[int, str] = {}
    for slots in groups.values():
        pairs = {pair: probe for slot in slots for pair, probe in failed[slot].items()}
        told |= dict.fromkeys(slots, _of_nodes(replace(round_, failed=pairs), slots, []).reason)
    return told


def _others(slot: int, pairs: Iterable[Pair]) -> Iterator[tuple[int, bool]]:
    """The other end of each pair, and whether it is the slot that does not reach it."""
    return ((b, True) if a == slot else (a, False) for a, b in pairs)


def _what(round_: ProbedRound, pairs: Iterable[Pair]) -> str:
    """`no answer at 10.0.0.2:41873`: what happened to these pairs, the most frequent first."""
    count: Counter[str] = Counter()
    places: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for pair in pairs:
        words, probe = _words(round_, pair), round_.failed[pair]
        count[words] += 1
        of_port = probe.outcome in _OF_A_PORT and probe.icmp not in _OF_A_HOST
        if of_port and (place := round_.place(pair[1])):
            places[words][place] = None
    return listed((_at(words, [*places[words]]) for words, _ in count.most_common()), 3)


def _at(words: str, places: Sequence[str]) -> str:
    """The words with where it was tried: a firewall's rules are about ports."""
    return f"{words} at {listed(places, 3)}" if places else words


def _words(round_: ProbedRound, pair: Pair) -> str:
    probe, member = round_.failed[pair], round_.members.get(pair[1])
    words = kind_of(probe).words
    if probe.outcome == "self" and member is not None:
        return f"{member.address} is an address of {round_.name(pair[0])} itself"
    if probe.outcome == "black_hole" and probe.path_mtu:
        return f"{words} (packets of up to {probe.path_mtu} bytes pass)"
    tells = probe.outcome in _TELLING or probe.icmp
    return probe.detail or words if tells else words


def _kind(round_: ProbedRound, pairs: Iterable[Pair]) -> OutcomeKind:
    count = Counter(kind_of(round_.failed[pair]) for pair in pairs)
    # Who has no way there knows it for sure; the others' time-outs only follow from it.
    no_route = OUTCOMES["no_route"]
    kind = no_route if no_route in count else count.most_common(1)[0][0]
    # That the address is the node's own, the registry has seen.
    is_own = kind is OUTCOMES["refused"] and all(_came_by_it(round_, b) for _, b in pairs)
    return PROHIBITED if is_own else kind


def _why(
    round_: ProbedRound, pairs: Sequence[Pair], slot: int, direction: Direction = "both"
) -> tuple[str, str]:
    """The cause to which something points, as the end of a sentence, and what to try for it."""
    hidden = _hidden(round_, pairs)
    if hidden:
        return nat_text(hidden, round_.hostnames), OUT_OF_NAT
    apart = _apart(round_, pairs) if direction == "both" else ""
    if apart:
        address = round_.members[slot].address
        return apart, _CONNECT.format(address=address)
    return _cause(round_, pairs, direction), _fix(round_, pairs, slot)


def _hidden(round_: ProbedRound, pairs: Sequence[Pair]) -> dict[int, str]:
    """The nodes that are not reached and behind NAT, with the address that the registry sees.

    NAT that all share, as one towards a registry elsewhere, is not between them.
    """
    hidden = round_.hidden_addresses()
    return {
        slot: hidden[slot]
        for peer, slot in sorted(pairs)
        if slot in hidden
        and round_.failed[peer, slot].outcome in _BEHIND_NAT
        and round_.sources.get(peer) != hidden[slot]
    }


def _apart(round_: ProbedRound, pairs: Sequence[Pair]) -> str:
    """That nothing shows these nodes to be on connected networks; empty where something does."""
    silent = _kind(round_, pairs) in (OUTCOMES["timeout"], NO_NEIGHBOUR)
    known = all(slot in round_.members for pair in pairs for slot in pair)
    if not silent or not known or any(_is_connected(round_, pair) for pair in pairs):
        return ""
    slots = sorted({slot for pair in pairs for slot in pair})
    subnets = [*dict.fromkeys(subnet_text(s) for slot in slots if (s := _subnet(round_, slot)))]
    way = f"way between {listed(subnets, 3)}" if len(subnets) > 1 else "way there"
    others = {slot: round_.sources[slot] for slot in slots if _came_by_another(round_, slot)}
    came = listed((f"{round_.name(slot)} from {other}" for slot, other in others.items()), 3)
    over = f"; the registry was reached over another network ({came})" if others else ""
    return f"{over}; nothing shows a {way}"


def _is_connected(round_: ProbedRound, pair: Pair) -> bool:
    """Whether something shows that the networks of two nodes lead to each other.

    A node that came to the registry from its address there has a way out of it, and back.
    """
    ends = {_subnet(round_, slot) for slot in pair}
    if any(ends == {_subnet(round_, slot) for slot in good} for good in round_.good):
        return True
    sources = {slot: source for slot in pair if (source := round_.sources.get(slot))}
    came = [_came_by_it(round_, slot) for slot in sources]
    one_link = len(ends) == 1 and not any(_came_by_another(round_, slot) for slot in pair)
    return (bool(came) and all(came)) or one_link


def _is_way_to_registry(round_: ProbedRound, pairs: Sequence[Pair]) -> bool:
    """Whether each of these pairs is one of the registry's machine and a node that came to it so.

    Where sources are known, only those on its machine have none.
    """
    ends = [{_came_by_it(round_, slot): slot for slot in pair} for pair in pairs]
    beside = [round_.sources.get(each[False]) == "" for each in ends if len(each) == 2]
    one_link = all(_subnet(round_, a) == _subnet(round_, b) for a, b in pairs)
    return one_link and len(beside) == len(ends) and all(beside)


def _came_by_it(round_: ProbedRound, slot: int) -> bool:
    """Whether the registry saw the node come from its address in the network of this round."""
    member = round_.members.get(slot)
    return member is not None and round_.sources.get(slot) == member.address


def _came_by_another(round_: ProbedRound, slot: int) -> bool:
    """Whether the node reached the registry from another one of its own addresses."""
    source = round_.sources.get(slot, "")
    own = next((join for join in round_.joins if join.slot == slot), None)
    is_own = own is not None and origin_of(own, source) is Origin.OWN
    return is_own and source != round_.members[slot].address


def _subnet(round_: ProbedRound, slot: int) -> Subnet | None:
    member = round_.members.get(slot)
    return subnet_of(member.address, member.prefix_length) if member else None


def _cause(round_: ProbedRound, pairs: Sequence[Pair], direction: Direction) -> str:
    """What is most likely behind it, as the end of a sentence."""
    kind = _kind(round_, pairs)
    if kind is OUTCOMES["timeout"] and direction != "both":
        way = "incoming" if direction == "in" else "outgoing"
        return f"; the other direction works, so most likely a firewall there drops {way} packets"
    if kind is OUTCOMES["timeout"] and _is_way_to_registry(round_, pairs):
        same = "connections to the registry get through on the same path"
        return f"; {same}, so most likely a firewall drops these packets"
    members = (round_.members[slot] for pair in pairs for slot in pair if slot in round_.members)
    most = max((member.mtu for member in members), default=0)
    sizes = f" (up to {most} bytes)" if most else ""
    return f"; most likely {kind.cause.format(sizes=sizes)}" if kind.cause else ""


def _fix(round_: ProbedRound, pairs: Sequence[Pair], slot: int) -> str:
    """What to try when the pairs fail because of the slot."""
    member = round_.members.get(slot)
    mtus = [mtu for pair in pairs if (mtu := round_.failed[pair].path_mtu)]
    return _kind(round_, pairs).fix.format(
        host=round_.hostnames.get(slot) or f"the node of slot {slot}",
        address=member.address if member else "the address",
        interface=member.interface if member else "the interface",
        mtu=min(mtus, default=1500),
    )


def blame(
    rounds: Sequence[Round],
    joins: Sequence[JoinRequest],
    classes: Iterable[NetworkClass],
    sources: Sources = NO_SOURCES,
) -> Unreachable:
    """Why no network class works, told of the one that came nearest; in each a pair failed."""
    least, every = _how_bad(nearest(rounds)), list(classes)
    near = (one for one in rounds if _how_bad(one) == least)
    first, *more = (ProbedRound.of(one, joins, every, sources) for one in near)
    # Of equal ones, that which something shows to connect the nodes: there it should have worked.
    # Then that over which nodes reached the registry: the others may join nobody at all.
    numbers = {one.number for one in every if one.is_last}
    last = [ProbedRound.of(one, joins, every, sources) for one in rounds if one.number in numbers]
    shown = (one for one in (first, *more, *last) if not _apart(one, list(one.failed)))
    round_ = next(shown, first)
    tried = round_.tried
    guilty, single = guilty_nodes(round_.failed)
    groups = _groups(tried.slots, round_.failed) if len(tried.slots) <= FULL_MESH else []
    nobody = len(tried.slots) > 2 and len(groups) == len(tried.slots)
    if nobody or 2 * len(guilty) >= len(tried.slots):
        told = _of_a_split(round_, groups)
    elif guilty:
        told = _of_nodes(round_, sorted(guilty), single)
    else:
        told = _of_pairs(round_, single)
    of = f" (the nearest of {len(rounds)} networks tried)" if len(rounds) > 1 else ""
    if _how_bad(tried) != least:
        of = f" ({len(rounds)} networks tried; nodes reached the registry over this one)"
    return Unreachable(told.slots, printable(told.reason + of, 1000), told.hint)


def nearest(rounds: Sequence[Round]) -> Round:
    """The round in which the fewest nodes and pairs are in the way; of equal ones the first."""
    return min(rounds, key=_how_bad)


def _how_bad(tried: Round) -> int:
    guilty, single = guilty_nodes(failures(tried))
    return len(guilty) + len(single)


def _of_nodes(round_: ProbedRound, guilty: list[int], single: list[Pair]) -> Unreachable:
    inside = set(guilty)
    others = set(round_.tried.slots) - inside
    into = [pair for pair in round_.failed if pair[0] in others and pair[1] in inside]
    out = [pair for pair in round_.failed if pair[0] in inside and pair[1] in others]
    who, touched = group_name(guilty, round_.hostnames), into + out
    peers, some = {slot for pair in touched for slot in pair} - inside, f"the {len(others)} others"
    if len(peers) < len(others):
        some = f"{len(peers)} of {some} ({slots_text(sorted(peers))})"
    if into and out:
        fact = f"{who} and {some} do not reach each other"
    else:
        fact = f"{who} cannot {'be reached by' if into else 'reach'} {some}"
    besides = f"; also, {_pair_text(round_, single[0])}" if single else ""
    cause, fix = _why(
        round_, touched, guilty[0], "in" if not out else "out" if not into else "both"
    )
    foreign = round_.foreign_addresses() if into else {}
    behind = next((slot for slot in guilty if slot in foreign), None)
    if behind is not None:
        cause = (
            f"; the others see {round_.name(behind)} as {foreign[behind]}, which is not one "
            "of its addresses: it is behind NAT, which lets no connection in"
        )
        fix = OUT_OF_NAT
    return Unreachable(
        tuple(guilty),
        f"{fact} over {round_.tried.network}: {_what(round_, touched)}{cause}{besides}",
        fix,
    )


def _of_pairs(round_: ProbedRound, single: list[Pair]) -> Unreachable:
    texts = listed((_pair_text(round_, pair) for pair in single), 3)
    pairs, rest = list(round_.failed), ""
    if len(round_.tried.slots) > 2 and len(single) == 1:
        rest = "; every other pair works, so neither node itself is the cause"
    cause, fix = _why(round_, pairs, pairs[0][1])
    what = f"{texts} over {round_.tried.network}: {_what(round_, pairs)}"
    return Unreachable((), f"{what}{rest}{cause}", fix)


def _pair_text(round_: ProbedRound, pair: Pair) -> str:
    one, other = pair
    if pair in round_.failed and (other, one) in round_.failed:
        return f"{round_.name(one)} and {round_.name(other)} do not reach each other"
    if pair not in round_.failed:
        one, other = other, one
    return f"{round_.name(one)} does not reach {round_.name(other)}, which reaches it"


def _of_a_split(round_: ProbedRound, groups: list[list[int]]) -> Unreachable:
    slots, pairs = round_.tried.slots, list(round_.failed)
    cause, fix = _why(round_, pairs, pairs[0][1])
    over = f"over {round_.tried.network}: {_what(round_, pairs)}"
    if len(groups) == len(slots):
        fact = f"no node reaches any other {over}"
        if round_.good:
            fact = f"no two nodes reach each other in both directions {over}"
        is_open = cause == _cause(round_, pairs, "both")
        if is_open and _kind(round_, pairs) is OUTCOMES["timeout"]:
            fact += ", though all reach the registry's port"
    elif 1 < len(groups) <= 4:
        sizes = "/".join(str(len(group)) for group in groups)
        names = " and ".join(
            slots_text(group) if len(group) > 1 else round_.name(group[0]) for group in groups
        )
        fact = f"the nodes are split {sizes}: {names} do not reach each other {over}"
    else:
        every = sum(len(round_.tried.reports.get(slot, ())) for slot in slots)
        of = f"{len(pairs)} of {every}" if every > len(pairs) else f"{len(pairs)}"
        fact = f"{of} directed pairs fail, spread across the nodes, {over}"
    return Unreachable((), f"{fact}{cause}", fix)


def _groups(slots: Sequence[int], failed: Mapping[Pair, object]) -> list[list[int]]:
    """Nodes that reach each other in both directions, if over others; the largest group first."""
    left, groups = sorted(slots), []
    while left:
        group, edge = [left[0]], [left[0]]
        left = left[1:]
        while edge:
            one = edge.pop()
            near = {o for o in left if (one, o) not in failed and (o, one) not in failed}
            left = [other for other in left if other not in near]
            group += near
            edge += near
        groups.append(sorted(group))
    return sorted(groups, key=lambda group: (-len(group), group))
