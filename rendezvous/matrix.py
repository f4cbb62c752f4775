"""What the nodes found out about each other: who is to blame, what else it shows, as text. Pure.

A pair is directed: the reporter, and the peer that it tried to reach.

Blame: nodes that stand in failed pairs with several others are guilty, the worst first, until only
single pairs are left. Of a single pair nobody is guilty: both ends and the direction are named. Nor
is anybody when half of the nodes or more would be: then the nodes are split.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rendezvous.checks import Check
from rendezvous.classes import NetworkClass, Unreachable
from rendezvous.compare import (
    Property,
    differences,
    hostnames_of,
    make_finding,
)
from rendezvous.peers import FULL_MESH, PEERS_EACH
from rendezvous.schema import Candidate, Finding, JoinRequest, PairProbe, Round
from rendezvous.words import group_name, listed, node_name, printable, slots_text

SKEW_WARN_SECONDS = 0.5
RTT_TIMES_MEDIAN = 5.0
RTT_LEAST_MS = 1.0
_LARGEST_PACKET = 65_535  # of larger ones (loopback) nobody asks
_MUTE_ENOUGH = 4  # so many mute peers, and a node asks no other
TEXT_NODES = 32
"""Up to so many nodes the text matrix is whole; above, only what fails is in it."""

Pair = tuple[int, int]

_TELLING = ("timeout", "no_route", "wrong_node", "stranger", "error")
"""Outcomes of which the node's own words say more than ours."""

_NO_NAT = (
    "give it an address that the others reach: the host's own network (docker run --network host, "
    "hostNetwork: true), or a network that is routed between the nodes"
)
_OTHER_NETWORK = "choose another network with --network CIDR"


@dataclass(frozen=True, slots=True)
class _Kind:
    """An outcome that is not good: its letter, what it says, what it means, what to try."""

    letter: str
    words: str
    cause: str
    fix: str


_KINDS = {
    "timeout": _Kind(
        "T",
        "no answer",
        "a firewall drops the packets, or the link or the route between them is cut",
        "let all TCP ports through between the nodes (security group; iptables -L on {host}), or "
        + _OTHER_NETWORK,
    ),
    "refused": _Kind(
        "R",
        "connection refused",
        "the address leads to a machine on which no rdzv listens, or a firewall rejects",
        "see on {host} whether {address} is its own (ip -br addr), and iptables -L; or "
        + _OTHER_NETWORK,
    ),
    "no_route": _Kind(
        "N",
        "no route",
        "an interface is down or gone, or a host has no way into that network",
        "look at {interface} on {host} (ip -br addr), compare `ip route get {address}` on the "
        "nodes, or " + _OTHER_NETWORK,
    ),
    "self": _Kind(
        "S",
        "the dialler reaches itself",
        "every host has that address (as with docker0)",
        _OTHER_NETWORK + " or --interface",
    ),
    "wrong_node": _Kind(
        "W",
        "another node answers",
        "two machines have one address, or NAT stands between them",
        "give every machine an address of its own (`arping -D -I {interface} {address}` shows who "
        "has it), or " + _OTHER_NETWORK,
    ),
    "stranger": _Kind(
        "X",
        "something answers that is no node of this run",
        "a machine outside the run has that address, or a proxy answers for it",
        "see who has it (`arping -D -I {interface} {address}`), or " + _OTHER_NETWORK,
    ),
    "black_hole": _Kind(
        "M",
        "small messages pass and large ones vanish",
        "the path carries smaller packets than the interfaces send{sizes}, and does not say so",
        "set the MTU of {interface} to what the path carries, on all nodes "
        "(ip link set dev {interface} mtu {mtu}), or let ICMP 'fragmentation needed' through",
    ),
    "error": _Kind("E", "error", "", "see `rdzv doctor` on {host}, or " + _OTHER_NETWORK),
}


def failures(tried: Round) -> dict[Pair, PairProbe]:
    """The pairs of a round that are not good, by reporter and peer."""
    inside = set(tried.slots)
    return {
        (slot, probe.slot): probe
        for slot in sorted(inside & set(tried.reports))
        for probe in tried.reports[slot]
        if probe.outcome != "ok" and probe.slot != slot and probe.slot in inside
    }


def to_release(tried: Round) -> list[int]:
    """The smallest set of slots (as far as greed finds it) without which every pair is good.

    Never slot 0, which cannot be released: where it is the guilty one, it is all of the others.
    """
    pairs = set(failures(tried))
    out = {a or b for a, b in pairs if 0 in (a, b)}
    guilty, single = _guilty(pair for pair in pairs if not out & set(pair))
    return sorted(out.union(guilty, (max(pair) for pair in single)))


def why_released(
    tried: Round, joins: Sequence[JoinRequest], classes: Iterable[NetworkClass]
) -> dict[int, str]:
    """Of each slot of `to_release`: whom it does not reach, or who not it, and the likeliest cause.

    Those that fail alike with the nodes that stay are told of together.

    Args:
        tried: A round in which a pair failed.
        joins: Of the nodes that took part.
        classes: What the round was about is one of them.
    """
    story, out = _Story.of(tried, joins, classes), to_release(tried)
    failed: defaultdict[int, dict[Pair, PairProbe]] = defaultdict(dict)
    for pair, probe in story.failed.items():
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
        told |= dict.fromkeys(slots, _of_nodes(replace(story, failed=pairs), slots, []).reason)
    return told


def _others(slot: int, pairs: Iterable[Pair]) -> Iterator[tuple[int, bool]]:
    """The other end of each pair, and whether it is the slot that does not reach it."""
    return ((b, True) if a == slot else (a, False) for a, b in pairs)


def _guilty(pairs: Iterable[Pair]) -> tuple[list[int], list[Pair]]:
    """The nodes that fail with several others, worst first; and the single pairs that are left."""
    peers: defaultdict[int, set[int]] = defaultdict(set)
    for one, other in pairs:
        peers[one].add(other)
        peers[other].add(one)
    # Nodes by how many others they fail with; that number only falls, so one way down is enough.
    stairs: defaultdict[int, dict[int, None]] = defaultdict(dict)
    for slot in sorted(peers):
        stairs[len(peers[slot])][slot] = None
    guilty = []
    for step in range(max(stairs, default=0), 1, -1):
        while stairs[step]:
            worst, _ = stairs[step].popitem()
            guilty.append(worst)
            for other in peers.pop(worst):
                del stairs[len(peers[other])][other]
                peers[other].discard(worst)
                stairs[len(peers[other])][other] = None
    return guilty, sorted({(min(a, b), max(a, b)) for a, others in peers.items() for b in others})


# --- blame ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Story:
    """A failed round, and what is needed to tell of it."""

    tried: Round
    failed: dict[Pair, PairProbe]
    hostnames: Mapping[int, str]
    members: Mapping[int, Candidate]
    foreign: Mapping[int, str]

    @classmethod
    def of(
        cls, tried: Round, joins: Sequence[JoinRequest], classes: Iterable[NetworkClass]
    ) -> _Story:
        seen = _foreign_addresses(joins, _good(tried))
        return cls(tried, failures(tried), hostnames_of(joins), members_of(tried, classes), seen)

    def name(self, slot: int) -> str:
        return node_name(slot, self.hostnames)

    def what(self, pairs: Iterable[Pair]) -> str:
        """`no answer`: what happened to these pairs, the most frequent first."""
        count = Counter(self._words(pair) for pair in pairs)
        return listed((words for words, _ in count.most_common()), 3)

    def _words(self, pair: Pair) -> str:
        probe, member = self.failed[pair], self.members.get(pair[1])
        words = _KINDS[probe.outcome].words
        if probe.outcome == "self" and member is not None:
            return f"{member.address} is an address of {self.name(pair[0])} itself"
        if probe.outcome == "black_hole" and probe.path_mtu:
            return f"{words} (packets of up to {probe.path_mtu} bytes pass)"
        return probe.detail or words if probe.outcome in _TELLING else words

    def kind(self, pairs: Iterable[Pair]) -> _Kind:
        count = Counter(self.failed[pair].outcome for pair in pairs)
        # Who has no way there knows it for sure; the others' time-outs only follow from it.
        likeliest = "no_route" if "no_route" in count else count.most_common(1)[0][0]
        return _KINDS[likeliest]

    def behind_nat(self, slot: int) -> str:
        """Why it cannot be reached, if others see it under an address that it has not."""
        if slot not in self.foreign:
            return ""
        return (
            f"the others see {self.name(slot)} as {self.foreign[slot]}, which is none of its "
            "addresses: it stands behind NAT, which lets nothing in"
        )

    def cause(self, pairs: Sequence[Pair], direction: str = "both") -> str:
        """What is most likely behind it, as the end of a sentence."""
        kind = self.kind(pairs)
        if kind is _KINDS["timeout"] and direction != "both":
            way = "comes in" if direction == "in" else "goes out"
            return f"; the other direction works, so most likely a firewall there drops what {way}"
        mtus = (self.members[slot].mtu for pair in pairs for slot in pair if slot in self.members)
        sizes = f" (up to {most} bytes)" if (most := max(mtus, default=0)) else ""
        return f"; most likely {kind.cause.format(sizes=sizes)}" if kind.cause else ""

    def fix(self, pairs: Sequence[Pair], slot: int) -> str:
        """What to try when the pairs fail because of the slot."""
        member = self.members.get(slot)
        mtus = [mtu for pair in pairs if (mtu := self.failed[pair].path_mtu)]
        return self.kind(pairs).fix.format(
            host=self.hostnames.get(slot) or f"the node of slot {slot}",
            address=member.address if member else "the address",
            interface=member.interface if member else "the interface",
            mtu=min(mtus, default=1500),
        )


def members_of(tried: Round, classes: Iterable[NetworkClass]) -> dict[int, Candidate]:
    """The candidates that a round was about; none when it was of none of these classes."""
    return next((c.members for c in classes if c.number == tried.number), {})


def blame(
    rounds: Sequence[Round], joins: Sequence[JoinRequest], classes: Iterable[NetworkClass]
) -> Unreachable:
    """Why no network class works, told of the one that came nearest.

    Args:
        rounds: All that were tried; at least one, and in each of them a pair failed.
        joins: Of the nodes that took part.
        classes: What the rounds were about.
    """
    tried = nearest(rounds)
    story = _Story.of(tried, joins, classes)
    guilty, single = _guilty(story.failed)
    groups = _groups(tried.slots, story.failed) if len(tried.slots) <= FULL_MESH else []
    nobody = len(tried.slots) > 2 and len(groups) == len(tried.slots)
    if nobody or 2 * len(guilty) >= len(tried.slots):
        told = _of_a_split(story, groups)
    elif guilty:
        told = _of_nodes(story, sorted(guilty), single)
    else:
        told = _of_pairs(story, single)
    of = f" (the nearest of {len(rounds)} networks tried)" if len(rounds) > 1 else ""
    return Unreachable(told.slots, printable(told.reason + of, 1000), told.hint)


def nearest(rounds: Sequence[Round]) -> Round:
    """The round in which the fewest nodes and pairs are in the way; of equal ones the first."""
    return min(rounds, key=_how_bad)


def _how_bad(tried: Round) -> int:
    guilty, single = _guilty(failures(tried))
    return len(guilty) + len(single)


def _of_nodes(story: _Story, guilty: list[int], single: list[Pair]) -> Unreachable:
    inside = set(guilty)
    others = set(story.tried.slots) - inside
    into = [pair for pair in story.failed if pair[0] in others and pair[1] in inside]
    out = [pair for pair in story.failed if pair[0] in inside and pair[1] in others]
    who, touched = group_name(guilty, story.hostnames), into + out
    peers = {slot for pair in touched for slot in pair} - inside
    if len(peers) == len(others):
        some = f"the {len(others)} others"
    else:
        some = f"{len(peers)} of the {len(others)} others ({slots_text(sorted(peers))})"
    if into and out:
        fact = f"{who} and {some} do not reach each other"
    else:
        fact = f"{who} cannot {'be reached by' if into else 'reach'} {some}"
    besides = f"; besides, {_pair_text(story, single[0])}" if single else ""
    cause = story.cause(touched, "in" if not out else "out" if not into else "both")
    fix = story.fix(touched, guilty[0])
    if into and (behind := [text for slot in guilty if (text := story.behind_nat(slot))]):
        cause, fix = f"; {behind[0]}", _NO_NAT
    return Unreachable(
        tuple(guilty),
        f"{fact} over {story.tried.network}: {story.what(touched)}{cause}{besides}",
        fix,
    )


def _of_pairs(story: _Story, single: list[Pair]) -> Unreachable:
    texts = listed((_pair_text(story, pair) for pair in single), 3)
    pairs, rest = list(story.failed), ""
    if len(story.tried.slots) > 2 and len(single) == 1:
        rest = "; every other pair works, so neither end is to blame"
    return Unreachable(
        (),
        f"{texts} over {story.tried.network}: {story.what(pairs)}{rest}{story.cause(pairs)}",
        story.fix(pairs, pairs[0][1]),
    )


def _pair_text(story: _Story, pair: Pair) -> str:
    one, other = pair
    if pair in story.failed and (other, one) in story.failed:
        return f"{story.name(one)} and {story.name(other)} do not reach each other"
    if pair not in story.failed:
        one, other = other, one
    return f"{story.name(one)} does not reach {story.name(other)}, which reaches it"


def _of_a_split(story: _Story, groups: list[list[int]]) -> Unreachable:
    slots, pairs = story.tried.slots, list(story.failed)
    over = f"over {story.tried.network}: {story.what(pairs)}"
    if len(groups) == len(slots):
        fact = f"no node reaches any other {over}"
        if story.kind(pairs) is _KINDS["timeout"]:
            fact += ", though all reach the registry's port"
    elif 1 < len(groups) <= 4:
        sizes = "/".join(str(len(group)) for group in groups)
        names = " and ".join(
            slots_text(group) if len(group) > 1 else story.name(group[0]) for group in groups
        )
        fact = f"the nodes are split {sizes}: {names} do not reach each other {over}"
    else:
        every = sum(len(story.tried.reports.get(slot, ())) for slot in slots)
        of = f"{len(pairs)} of {every}" if every > len(pairs) else f"{len(pairs)}"
        fact = f"{of} directed pairs fail, all over the nodes, {over}"
    return Unreachable((), f"{fact}{story.cause(pairs)}", story.fix(pairs, pairs[0][1]))


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


# --- what else the mesh shows -----------------------------------------------------------------


_REACHED = Property(Check.REACHABILITY, "reachability", level="fail")
_MTU = Property(Check.PACKET_SIZES, "MTU", "set the same on all nodes: ip link set dev IF mtu MTU")
_PATH_MTU = Property(
    Check.PACKET_SIZES,
    "path MTU",
    "TCP finds its way around it, UDP and RoCE do not: set the MTU of switches and interfaces to "
    "the same value",
)
_UDP = Property(
    Check.PACKET_SIZES,
    "path MTU",
    "let UDP through between the nodes as well as TCP (security group; iptables -L), or "
    f"--skip {Check.PACKET_SIZES.id}",
)
_CLOCK = Property(
    Check.CLOCKS,
    "clock",
    "set the clock there (timedatectl, chrony): the nodes' logs cannot be laid side by side, and "
    "services that check dates may refuse it",
)
_RTT = Property(
    Check.DISTANCES,
    "round-trip time",
    "it may stand in another rack or zone, or be busy: see the scheduler's placement",
)
_NAT = Property(
    Check.SEEN_ADDRESSES,
    "address seen by others",
    "NAT or a proxy stands before it: connections that it opens do not show its own address",
)


def findings_of(
    tried: Round, joins: Sequence[JoinRequest], classes: Iterable[NetworkClass]
) -> list[Finding]:
    """What a round shows beside reachability: M02 to M04 and X07, and M01 when all pairs are good.

    A finding's slot is the node that is the odd one out; None where nobody is.

    Args:
        tried: The round.
        joins: Of the nodes that it is about: fewer than have probed, if some were left out since.
        classes: What the nodes have probed, as they were called then.
    """
    names, good = hostnames_of(joins), _good(tried)
    members = {slot: c for slot, c in members_of(tried, classes).items() if slot in tried.slots}
    return [
        *_reached(tried, good),
        *_mtus(tried, names, members, good),
        *_unmeasured(joins, members, good),
        *_skews(tried.slots, good, names),
        *_slow(tried.slots, good, names),
        *_behind_nat(joins, good, names),
    ]


def _good(tried: Round) -> dict[Pair, PairProbe]:
    return {
        (slot, probe.slot): probe
        for slot in tried.slots
        for probe in tried.reports.get(slot, ())
        if probe.outcome == "ok"
    }


def _reached(tried: Round, good: Mapping[Pair, PairProbe]) -> list[Finding]:
    if failures(tried) or not good:
        return []
    sentence = f"all {len(good)} directed pairs proved themselves over {tried.network}"
    return [make_finding(_REACHED, sentence, level="ok", value=f"{len(good)} pairs")]


def _mtus(
    tried: Round,
    names: Mapping[int, str],
    members: Mapping[int, Candidate],
    good: Mapping[Pair, PairProbe],
) -> list[Finding]:
    mtu = {slot: c.mtu for slot, c in members.items()}
    found = [
        f if f.slot is None else f.model_copy(update={"fix": _set_mtu(f, members[f.slot], names)})
        for f in differences(_MTU, {slot: str(own or "") for slot, own in mtu.items()}, names)
    ]
    narrow = {
        pair: path
        for pair, probe in good.items()
        if (path := probe.path_mtu or 0) and path < min(mtu.get(slot, 0) for slot in pair)
    }
    if not narrow:
        return found
    guilty, single = _guilty(narrow)
    least, widest = min(narrow.values()), max(mtu.values())
    value, expected = str(least), str(widest)
    passes = f"only packets of up to {least} bytes pass"
    takes = f"though the interfaces take {widest}"
    if 2 * len(guilty) >= len(tried.slots) or not guilty:
        where = f"in {len(narrow)} directed pairs of nodes"
        if len(single) == 1 and not guilty:
            where = f"between {' and '.join(node_name(slot, names) for slot in single[0])}"
        sentence = f"{passes} {where}, {takes}"
        return [*found, make_finding(_PATH_MTU, sentence, value=value, expected=expected)]
    return found + [
        make_finding(
            _PATH_MTU,
            f"{passes} between {node_name(slot, names)} and other nodes, {takes}",
            slot=slot,
            value=value,
            expected=expected,
        )
        for slot in sorted(guilty)
    ]


def _unmeasured(
    joins: Sequence[JoinRequest],
    members: Mapping[int, Candidate],
    good: Mapping[Pair, PairProbe],
) -> list[Finding]:
    """Who answers no datagrams, or hears no answer to any: most likely a firewall is behind it."""
    mute, deaf = _mute_and_deaf(members, good)
    names = hostnames_of(joins)
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


def _mute_and_deaf(
    members: Mapping[int, Candidate], good: Mapping[Pair, PairProbe]
) -> tuple[list[int], list[int]]:
    """Slots none of whose peers were answered by UDP, and those that no other peer answers.

    A mute pair among good ones says nothing: a busy node may answer too late.
    """
    mtu = {slot: candidate.mtu for slot, candidate in members.items()}
    to: defaultdict[int, list[bool]] = defaultdict(list)
    of: defaultdict[int, list[bool]] = defaultdict(list)
    asked = {
        pair: probe.path_mtu is None
        for pair, probe in good.items()
        if 0 < min(mtu.get(slot, 0) for slot in pair) <= _LARGEST_PACKET
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


def _set_mtu(found: Finding, odd: Candidate, names: Mapping[int, str]) -> str:
    """The command for the one node whose MTU is another."""
    where = names.get(found.slot or 0) or f"the node of slot {found.slot}"
    command = f"ip link set dev {odd.interface} mtu {found.expected}"
    return f"{command} on {where}, if the network takes no more"


def _skews(
    slots: Sequence[int], good: Mapping[Pair, PairProbe], names: Mapping[int, str]
) -> list[Finding]:
    offsets = _offsets(slots, good)
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
            f"the clock of {node_name(first, names)} is {seconds_text(apart)} ahead of that of "
            f"{node_name(last, names)}"
        )
        return [make_finding(_CLOCK, sentence, value=seconds_text(apart))]
    return [
        make_finding(
            _CLOCK,
            f"the clock of {node_name(slot, names)} is {seconds_text(abs(late[slot]))} "
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


def seconds_text(seconds: float) -> str:
    """`12 ms`, `1.5 s`, `40 min`."""
    if seconds < 1:
        return f"{seconds * 1000:.1f} ms"
    return f"{seconds:.1f} s" if seconds < 600 else f"{seconds / 60:.0f} min"


def ms_text(milliseconds: float) -> str:
    """`0.12 ms`, `230 ms`."""
    return f"{milliseconds:.0f} ms" if milliseconds >= 10 else f"{milliseconds:.2g} ms"


def _slow(
    slots: Sequence[int], good: Mapping[Pair, PairProbe], names: Mapping[int, str]
) -> list[Finding]:
    own: defaultdict[int, list[float]] = defaultdict(list)
    for pair, probe in good.items():
        for slot in pair:
            own[slot] += [] if probe.rtt_ms is None else [probe.rtt_ms]
    medians = {slot: _median(own[slot]) for slot in slots if own[slot]}
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
            f"{node_name(slot, names)} answers in {ms_text(medians[slot])}, "
            f"the other nodes in {ms_text(usual)}",
            slot=slot,
            value=ms_text(medians[slot]),
            expected=ms_text(usual),
        )
        for slot in odd
    ]


def _behind_nat(
    joins: Sequence[JoinRequest], good: Mapping[Pair, PairProbe], names: Mapping[int, str]
) -> list[Finding]:
    declared = {join.slot: sorted(c.address for c in join.candidates) for join in joins}
    return [
        make_finding(
            _NAT,
            f"{node_name(slot, names)} is seen by the others as {address}, "
            "which is none of the addresses that it offers",
            slot=slot,
            value=address,
            expected=listed(declared[slot]),
        )
        for slot, address in _foreign_addresses(joins, good).items()
    ]


def _foreign_addresses(
    joins: Sequence[JoinRequest], good: Mapping[Pair, PairProbe]
) -> dict[int, str]:
    """Of each slot that most peers see under an address which it does not offer: that address."""
    seen: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for (slot, _), probe in good.items():
        if probe.source:
            seen[slot][probe.source] += 1
    found = {}
    for join in joins:
        declared = {candidate.address for candidate in join.candidates}
        foreign = {a: n for a, n in seen[join.slot].items() if a not in declared}
        if 2 * sum(foreign.values()) > seen[join.slot].total() and not _on_loopback(join):
            found[join.slot] = max(foreign, key=lambda a: foreign[a])
    return found


def _on_loopback(join: JoinRequest) -> bool:
    """All of 127/8 is this machine, and what it connects to sees 127.0.0.1."""
    return all(candidate.is_loopback for candidate in join.candidates)


def _median(values: Iterable[float]) -> float:
    """The lower one of two in the middle."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2]


# --- as text ----------------------------------------------------------------------------------


def text_matrix(tried: Round, hostnames: Mapping[int, str]) -> list[str]:
    """A round as lines: who probes in rows, who is probed in columns, and what the letters mean.

    Whole up to `TEXT_NODES` nodes; above, only rows and columns in which something fails, and not
    more than so many of each.
    """
    failed = failures(tried)
    size = len(tried.slots)
    every = size * (size - 1 if size <= FULL_MESH else PEERS_EACH)
    lines = [f"{tried.network}: {len(failed)} of {every} directed pairs fail"]
    rows = columns = sorted(tried.slots)
    if len(rows) > TEXT_NODES:
        rows, columns = sorted({one for one, _ in failed}), sorted({other for _, other in failed})
    if failed:
        lines += _grid(tried, rows[:TEXT_NODES], columns[:TEXT_NODES], hostnames)
        lines += _left_out(rows, columns)
        lines.append(f"  . good, {legend_of(failed.values())}")
    return lines


def _grid(
    tried: Round, rows: Sequence[int], columns: Sequence[int], hostnames: Mapping[int, str]
) -> list[str]:
    names = {slot: f"{slot} {printable(hostnames.get(slot, ''), 24)}" for slot in rows}
    width = max(len("from \\ to"), *map(len, names.values()))
    digits = len(str(max(columns)))
    lines = []
    for digit in range(digits):
        head = "from \\ to" if digit == digits - 1 else ""
        numbers = " ".join(str(slot).rjust(digits)[digit] for slot in columns)
        lines.append(f"  {head:{width}}  {numbers}".rstrip())
    for slot in rows:
        letters = {probe.slot: letter_of(probe) for probe in tried.reports.get(slot, ())}
        # Good pairs of older rounds are left away; in a full mesh they are known all the same.
        missing = "." if len(tried.slots) <= FULL_MESH else " "
        cells = ("-" if other == slot else letters.get(other, missing) for other in columns)
        lines.append(f"  {names[slot]:{width}}  {' '.join(cells)}".rstrip())
    return lines


def letter_of(probe: PairProbe) -> str:
    """How a pair stands in a matrix."""
    return "." if probe.outcome == "ok" else _KINDS[probe.outcome].letter


def _left_out(rows: Sequence[int], columns: Sequence[int]) -> list[str]:
    more = [
        f"{len(slots) - TEXT_NODES} more {what}"
        for slots, what in ((rows, "rows"), (columns, "columns"))
        if len(slots) > TEXT_NODES
    ]
    return [f"  and {' and '.join(more)}"] if more else []


def legend_of(failed: Iterable[PairProbe]) -> str:
    """What the letters mean that stand for these pairs."""
    outcomes = {probe.outcome for probe in failed}
    letters = [f"{kind.letter} {kind.words}" for key, kind in _KINDS.items() if key in outcomes]
    return ", ".join(letters)
