"""The directed pairs of a round: who tried to reach whom, and what came of it. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from rendezvous.frozen import frozen
from rendezvous.proof.findings import hostnames_of
from rendezvous.proof.network_class import NetworkClass
from rendezvous.proof.origins import NO_SOURCES, Sources, behind_nat
from rendezvous.wire.node import Candidate, JoinRequest
from rendezvous.wire.run import Round
from rendezvous.wire.verify import PairProbe
from rendezvous.wire.words import bracketed, slot_name

Pair: TypeAlias = tuple[int, int]
"""The reporter, and the peer that it tried to reach."""
_OTHER_NETWORK = "choose another network with --network CIDR"
_OPEN = (
    "let all TCP ports through between the nodes (security group; iptables -L on {host}), or "
    + _OTHER_NETWORK
)


@frozen
class OutcomeKind:
    """An outcome that is not good: its letter, what it says, what it means, what to try."""

    letter: str
    words: str
    cause: str
    fix: str


OUTCOMES = {
    "timeout": OutcomeKind(
        "T",
        "no answer",
        "a firewall drops the packets, or the link or the route between them is cut",
        _OPEN,
    ),
    "refused": OutcomeKind(
        "R",
        "connection refused",
        "the address belongs to a machine on which rdzv does not listen, or a firewall "
        "rejects the connection",
        "check on {host} that {address} is its own (ip -br addr) and what iptables -L shows, "
        "or " + _OTHER_NETWORK,
    ),
    "no_route": OutcomeKind(
        "N",
        "no route",
        "an interface is down or gone, or a host has no route into that network",
        "check {interface} on {host} (ip -br addr), compare `ip route get {address}` on the "
        "nodes, or " + _OTHER_NETWORK,
    ),
    "self": OutcomeKind(
        "S",
        "the node reaches itself",
        "every host has that address (as with docker0)",
        _OTHER_NETWORK + " or --interface",
    ),
    "wrong_node": OutcomeKind(
        "W",
        "another node answers",
        "two machines have the same address, or there is NAT between them",
        "give every machine its own address (`arping -D -I {interface} {address}` shows "
        "which one has it), or " + _OTHER_NETWORK,
    ),
    "stranger": OutcomeKind(
        "X",
        "the answer does not come from a node of this run",
        "a machine outside the run has that address, or a proxy answers for it",
        "find the machine that has it (`arping -D -I {interface} {address}`), or " + _OTHER_NETWORK,
    ),
    "black_hole": OutcomeKind(
        "M",
        "small messages pass and large ones vanish",
        "the path carries smaller packets than the interfaces send{sizes}, and does not report it",
        "set the MTU of {interface} to the size that the path carries, on all nodes (ip link "
        "set dev {interface} mtu {mtu}), or let ICMP 'fragmentation needed' through",
    ),
    "error": OutcomeKind("E", "error", "", "see `rdzv doctor` on {host}, or " + _OTHER_NETWORK),
}
NO_NEIGHBOUR = OutcomeKind(
    "T",
    "no neighbour answers on the way there",
    "the host or its link is down, or separate networks have the same addresses",
    "check {interface} on {host} (ip -br addr), and `ip neigh` on the others, or " + _OTHER_NETWORK,
)
PROHIBITED = OutcomeKind("R", "prohibited", "a firewall rejects the connection", _OPEN)
_BY_ICMP = {
    ("refused", "prohibited"): PROHIBITED,
    ("timeout", "neighbour"): NO_NEIGHBOUR,
    ("timeout", "unreachable"): OutcomeKind(
        "T",
        "a router finds no way to the address",
        "the routers know no way into that network, or the host is down",
        "compare `ip route get {address}` and `traceroute {address}` on the nodes, or "
        + _OTHER_NETWORK,
    ),
}


def kind_of(probe: PairProbe) -> OutcomeKind:
    """What came of a probe that is not good, as exactly as the kernel has told."""
    return _BY_ICMP.get((probe.outcome, probe.icmp)) or OUTCOMES[probe.outcome]


@frozen
class ProbedRound:
    """A round, and the nodes that it is about.

    Attributes:
        joins: May be fewer than have probed, if some were left out since.
        members: Of the class that was probed; empty when it is not known.
        sources: From which address each node joined.
    """

    tried: Round
    joins: Sequence[JoinRequest]
    hostnames: Mapping[int, str]
    members: Mapping[int, Candidate]
    mtus: Mapping[int, int]
    ports: Mapping[int, int | None]
    good: Mapping[Pair, PairProbe]
    failed: Mapping[Pair, PairProbe]
    sources: Sources

    @classmethod
    def of(
        cls,
        tried: Round,
        joins: Sequence[JoinRequest],
        classes: Iterable[NetworkClass],
        sources: Sources = NO_SOURCES,
    ) -> ProbedRound:
        """Of a round about one of these classes."""
        every = next((c.members for c in classes if c.number == tried.number), {})
        members = {slot: every[slot] for slot in tried.slots if slot in every}
        mtus = {slot: member.mtu for slot, member in members.items()}
        names, good, failed = hostnames_of(joins), _pairs(tried, good=True), failures(tried)
        ports = {join.slot: join.probe_port for join in joins}
        return cls(tried, joins, names, members, mtus, ports, good, failed, sources)

    def name(self, slot: int) -> str:
        """How a node is named."""
        return slot_name(slot, self.hostnames)

    def place(self, slot: int) -> str:
        """The address and the port at which the node was to answer; empty if not known."""
        member, port = self.members.get(slot), self.ports.get(slot)
        return f"{bracketed(member.address)}:{port}" if member and port else ""

    def mtu(self, pair: Pair) -> int:
        """The smaller one of its interfaces; 0 when it is not known."""
        return min(self.mtus.get(pair[0], 0), self.mtus.get(pair[1], 0))

    def foreign_addresses(self) -> dict[int, str]:
        """Of each slot that most peers see under an address which is not its own: that one."""
        seen: defaultdict[int, Counter[str]] = defaultdict(Counter)
        for (slot, _), probe in self.good.items():
            if probe.source:
                seen[slot][probe.source] += 1
        found = {}
        for join in self.joins:
            declared = set(join.own_addresses)
            foreign = {a: n for a, n in seen[join.slot].items() if a not in declared}
            # All of 127/8 is this machine, and what it connects to sees 127.0.0.1.
            on_loopback = all(candidate.is_loopback for candidate in join.candidates)
            if 2 * sum(foreign.values()) > seen[join.slot].total() and not on_loopback:
                found[join.slot] = max(foreign, key=lambda a: foreign[a])
        return found

    def hidden_addresses(self) -> dict[int, str]:
        """Of each slot that the registry sees under an address which is not its own: that one.

        Where a peer sees a node's own address, that one is of a proxy in front of the registry.
        """
        found = behind_nat(self.joins, self.sources)
        own = {join.slot: join.own_addresses for join in self.joins if join.slot in found}
        known = {slot for (slot, _), p in self.good.items() if p.source in own.get(slot, ())}
        in_front = {found[slot] for slot in known}
        return {slot: a for slot, a in found.items() if slot not in known and a not in in_front}


def failures(tried: Round) -> dict[Pair, PairProbe]:
    """The pairs of a round that are not good, by reporter and peer."""
    return _pairs(tried, good=False)


def _pairs(tried: Round, *, good: bool) -> dict[Pair, PairProbe]:
    inside = set(tried.slots)
    return {
        (slot, probe.slot): probe
        for slot in sorted(inside & set(tried.reports))
        for probe in tried.reports[slot]
        if (probe.outcome == "ok") == good and probe.slot != slot and probe.slot in inside
    }


def guilty_nodes(pairs: Iterable[Pair]) -> tuple[list[int], list[Pair]]:
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
