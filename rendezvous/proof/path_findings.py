"""What else a round of probes shows: packet sizes, clocks, distances, NAT, wrong hostnames. Pure.

A finding's slot is the node that is the odd one out; None where nobody is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from rendezvous.proof.findings import Property, differences, hostnames_of, make_finding
from rendezvous.proof.network_class import NetworkClass
from rendezvous.proof.origins import NO_SOURCES, Sources
from rendezvous.proof.pairs import Pair, ProbedRound, guilty_nodes
from rendezvous.wire.checks import Check
from rendezvous.wire.hostnames import is_everyones
from rendezvous.wire.node import Finding, JoinRequest
from rendezvous.wire.run import Round
from rendezvous.wire.verify import PairProbe
from rendezvous.wire.words import all_of, group_name, listed, ms_text, seconds_text

SKEW_WARN_SECONDS = 0.5
RTT_TIMES_MEDIAN = 5.0
RTT_LEAST_MS = 1.0
_LARGEST_PACKET = 65_535  # of larger ones (loopback) nobody asks
_MUTE_ENOUGH = 4  # so many mute peers, and a node asks no other
_MOST_NAMES = 16
_REACHED = Property(Check.REACHABILITY, "reachability", level="fail")
_MTU = Property(
    Check.PACKET_SIZES, "MTU", "set the same MTU on all nodes: ip link set dev IF mtu MTU"
)
_PATH_MTU = Property(
    Check.PACKET_SIZES,
    "path MTU",
    "TCP adapts to it, but UDP and RoCE do not: set the MTU of switches and interfaces to "
    "the same value",
)
_UDP = Property(
    Check.PACKET_SIZES,
    "path MTU",
    "let UDP as well as TCP through between the nodes (security group; iptables -L), or "
    f"--skip {Check.PACKET_SIZES.id}",
)
_CLOCK = Property(
    Check.CLOCKS,
    "clock",
    "set the clock there (timedatectl, chrony): the times in the nodes' logs do not match, "
    "and services that check dates may refuse the node",
)
_RTT = Property(
    Check.DISTANCES,
    "round-trip time",
    "it may be in another rack or zone, or busy: check the scheduler's placement",
)
_NAT = Property(
    Check.SEEN_ADDRESSES,
    "address seen by others",
    "NAT or a proxy is in front of it: connections that it opens do not show its own address",
)
_NAMES = Property(
    Check.HOSTNAMES,
    "hostname",
    "fix the line in /etc/hosts there: programs that use hostnames (torchrun with c10d, Gloo "
    "without GLOO_SOCKET_IFNAME, JAX on CPUs, Horovod) would look for the node at the wrong "
    "address",
)

_EVERYONES = replace(
    _NAMES,
    fix="give that node another hostname (hostnamectl set-hostname NAME, or --hostname of its "
    "container) and leave /etc/hosts as it is: programs that use hostnames would look for the "
    "node on their own machine",
)


def findings_of(
    tried: Round,
    joins: Sequence[JoinRequest],
    classes: Iterable[NetworkClass],
    sources: Sources = NO_SOURCES,
) -> list[Finding]:
    """The checks M02 to M04, X07 and X08; and M01 when all pairs are good."""
    round_ = ProbedRound.of(tried, joins, classes, sources)
    return [
        *_reached(round_),
        *_mtus(round_),
        *_unmeasured(round_),
        *_skews(round_),
        *_slow(round_),
        *_behind_nat(round_),
        *_wrong_names(round_),
    ]


def _reached(round_: ProbedRound) -> list[Finding]:
    count = len(round_.good)
    if round_.failed or not count:
        return []
    sentence = f"{all_of(count, 'directed pair')} passed over {round_.tried.network}"
    return [make_finding(_REACHED, sentence, level="ok", value=f"{count} pairs")]


def _mtus(round_: ProbedRound) -> list[Finding]:
    mtu = {slot: str(own or "") for slot, own in round_.mtus.items()}
    found = [
        f if f.slot is None else replace(f, fix=_set_mtu(round_, f.slot, f.expected))
        for f in differences(_MTU, mtu, round_.hostnames)
    ]
    narrow = {
        pair: path
        for pair, probe in round_.good.items()
        if (path := probe.path_mtu or 0) and path < round_.mtu(pair)
    }
    if not narrow:
        return found
    guilty, single = guilty_nodes(narrow)
    where: dict[int | None, str]
    if not guilty and len(single) == 1:
        where = {None: f"between {' and '.join(map(round_.name, single[0]))}"}
    elif not guilty or 2 * len(guilty) >= len(round_.tried.slots):
        where = {None: f"in {len(narrow)} directed pairs of nodes"}
    else:
        where = {slot: f"between {round_.name(slot)} and other nodes" for slot in sorted(guilty)}
    least, widest = str(min(narrow.values())), str(max(round_.mtus.values()))
    passes, takes = f"only packets of up to {least} bytes pass", f"the interfaces take {widest}"
    return found + [
        make_finding(
            _PATH_MTU, f"{passes} {words}, though {takes}", slot=slot, value=least, expected=widest
        )
        for slot, words in where.items()
    ]


def _unmeasured(round_: ProbedRound) -> list[Finding]:
    """Who answers no datagrams, or hears no answer to any, though TCP passes."""
    mute, deaf = _mute_and_deaf(round_)
    joins, names = round_.joins, round_.hostnames
    found = [(slots, f"{_udp_ports(slots, joins)} no answer") for slots in _apart(mute, names)]
    for slots in _apart(deaf, names):
        verb = "gets" if len(slots) == 1 else "get"
        who = group_name(slots, names)
        found.append((slots, f"{who} {verb} no answer from the UDP ports of the others"))
    return [
        make_finding(
            _UDP,
            f"{text}: the path MTU could not be measured",
            slot=slots[0] if 2 * len(slots) < len(joins) else None,
            value="unknown",
        )
        for slots, text in found
    ]


def _mute_and_deaf(round_: ProbedRound) -> tuple[list[int], list[int]]:
    """Slots none of whose peers were answered by UDP, and those that no other peer answers.

    A mute pair among good ones says nothing: a busy node may answer too late.
    """
    to: defaultdict[int, list[bool]] = defaultdict(list)
    of: defaultdict[int, list[bool]] = defaultdict(list)
    asked = {
        pair: probe.path_mtu is None
        for pair, probe in round_.good.items()
        if 0 < round_.mtu(pair) <= _LARGEST_PACKET
    }
    for (_, other), is_mute in asked.items():
        to[other].append(is_mute)
    mute = {slot: None for slot in sorted(to) if all(to[slot])}
    if len(mute) >= _MUTE_ENOUGH:  # who met these first has asked no other node
        return list(mute), []
    for (one, other), is_mute in asked.items():
        if other not in mute:
            of[one].append(is_mute)
    return list(mute), [slot for slot in sorted(of) if all(of[slot])]


def _apart(slots: list[int], every: Collection[int]) -> list[list[int]]:
    """Each by itself, or all together where they are half of the nodes or more."""
    return [[slot] for slot in slots] if 2 * len(slots) < len(every) else [slots]


def _udp_ports(slots: Sequence[int], joins: Sequence[JoinRequest]) -> str:
    """`UDP port 23456 of slot 1 (h1) gets`."""
    names = hostnames_of(joins)
    ports = dict.fromkeys(str(join.probe_port) for join in joins if join.slot in slots)
    who = group_name(slots, names) if len(slots) < len(joins) else "all nodes"
    several = len(ports) > 1
    return f"UDP port{'s' * several} {listed(ports, 3)} of {who} get{'s' * (not several)}"


def _set_mtu(round_: ProbedRound, slot: int, mtu: str) -> str:
    """The command for the one node whose MTU is another."""
    where = round_.hostnames.get(slot) or f"the node of slot {slot}"
    command = f"ip link set dev {round_.members[slot].interface} mtu {mtu}"
    return f"{command} on {where}, if the network carries no more"


def _skews(round_: ProbedRound) -> list[Finding]:
    offsets = _offsets(round_.tried.slots, round_.good)
    if len(offsets) < 2:
        return []
    middle = _median(offsets.values())
    late = {slot: offset - middle for slot, offset in offsets.items()}
    odd = [slot for slot in sorted(late) if abs(late[slot]) > SKEW_WARN_SECONDS]
    apart = max(late.values()) - min(late.values())
    if not odd:
        sentence = f"the clocks of the nodes agree within {seconds_text(apart)}"
        return [make_finding(_CLOCK, sentence, level="ok", value=seconds_text(apart))]
    if 2 * len(odd) >= len(offsets):
        first, last = max(late, key=lambda s: late[s]), min(late, key=lambda s: late[s])
        sentence = (
            f"the clock of {round_.name(first)} is {seconds_text(apart)} ahead of the clock "
            f"of {round_.name(last)}"
        )
        return [make_finding(_CLOCK, sentence, value=seconds_text(apart))]
    return [
        make_finding(
            _CLOCK,
            f"the clock of {round_.name(slot)} is {seconds_text(abs(late[slot]))} "
            f"{'ahead of' if late[slot] > 0 else 'behind'} the others'",
            slot=slot,
            value=f"{late[slot]:+.3f} s",
            expected=f"within {SKEW_WARN_SECONDS} s",
        )
        for slot in odd
    ]


def _offsets(slots: Sequence[int], good: Mapping[Pair, PairProbe]) -> dict[int, float]:
    """How far each clock is ahead of the first node's, along the probed pairs."""
    edges: defaultdict[int, dict[int, float]] = defaultdict(dict)
    for (one, other), probe in good.items():
        if probe.skew_seconds is not None:
            edges[one][other] = probe.skew_seconds
            edges[other].setdefault(one, -probe.skew_seconds)
    start = min((slot for slot in slots if slot in edges), default=None)
    if start is None:
        return {}
    offsets, edge = {start: 0.0}, [start]
    for one in edge:  # grows while it is walked
        for other, skew in edges[one].items():
            if other not in offsets:
                offsets[other] = offsets[one] + skew
                edge.append(other)
    return offsets


def _slow(round_: ProbedRound) -> list[Finding]:
    own: defaultdict[int, list[float]] = defaultdict(list)
    for pair, probe in round_.good.items():
        for slot in pair:
            own[slot] += [] if probe.rtt_ms is None else [probe.rtt_ms]
    medians = {slot: _median(own[slot]) for slot in round_.tried.slots if own[slot]}
    if not medians:
        return []
    usual = _median(medians.values())
    limit = max(RTT_TIMES_MEDIAN * usual, RTT_LEAST_MS)
    odd = [slot for slot in sorted(medians) if medians[slot] > limit]
    if not odd or 2 * len(odd) >= len(medians):
        sentence = f"the median round-trip time is {ms_text(usual)}"
        return [make_finding(_RTT, sentence, level="ok", value=ms_text(usual))]
    return [
        make_finding(
            _RTT,
            f"{round_.name(slot)} answers in {ms_text(medians[slot])}, "
            f"the other nodes in {ms_text(usual)}",
            slot=slot,
            value=ms_text(medians[slot]),
            expected=ms_text(usual),
        )
        for slot in odd
    ]


def _median(values: Iterable[float]) -> float:
    """The lower one of two in the middle."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2]


def _behind_nat(round_: ProbedRound) -> list[Finding]:
    declared = {join.slot: sorted(join.own_addresses) for join in round_.joins}
    return [
        make_finding(
            _NAT,
            f"{round_.name(slot)} is seen by the others as {address}, which is not one of "
            "its addresses",
            slot=slot,
            value=address,
            expected=listed(declared[slot]),
        )
        for slot, address in round_.foreign_addresses().items()
    ]


def _wrong_names(round_: ProbedRound) -> list[Finding]:
    """Hostnames that some nodes' hosts files lead to an address which is not the node's.

    An address that it does not offer may be its own all the same, where all nodes agree on it.
    """
    offered = {join.slot: {one.address for one in join.candidates} for join in round_.joins}
    owners = defaultdict(set)
    for slot, own in offered.items():
        for address in own:
            owners[address].add(slot)
    reports = round_.tried.reports
    asked = Counter(pair.slot for pairs in reports.values() for pair in pairs)
    wrong: dict[tuple[int, str], list[int]] = defaultdict(list)
    for slot, pairs in sorted(reports.items()):
        for pair in pairs:
            if pair.resolved and pair.slot in offered:
                wrong[pair.slot, pair.resolved].append(slot)
    found: list[Finding] = []
    for (peer, words), slots in sorted(wrong.items()):
        addresses = words.split(", ")
        whose = {slot for address in addresses for slot in owners.get(address, ())}
        is_local = any(a == "::1" or a.startswith("127.") for a in addresses)
        is_agreed = len(slots) == asked[peer] and not whose and not is_local
        if peer not in whose and not is_agreed and len(found) < _MOST_NAMES:
            found.append(_wrong_name(round_, peer, words, slots, sorted(whose)))
    return found


def _wrong_name(
    round_: ProbedRound, peer: int, words: str, slots: Sequence[int], others: Sequence[int]
) -> Finding:
    names = round_.hostnames
    if is_everyones(names[peer]):
        return make_finding(
            _EVERYONES,
            f"the hostname of slot {peer} is {names[peer]}, which every machine has for itself "
            f"({words} on {group_name(slots, names)})",
            slot=peer,
            value=names[peer],
            expected="another hostname",
        )
    own = next(join.candidates[0].address for join in round_.joins if join.slot == peer)
    whose = f", which is {group_name(others, names)}" if others else ""
    return make_finding(
        _NAMES,
        f"on {group_name(slots, names)}, /etc/hosts maps {names[peer]} to {words}{whose}; the "
        f"address of {round_.name(peer)} is {own}",
        slot=slots[0] if len(slots) == 1 else None,
        value=words,
        expected=own,
    )
