"""What is looked at before the go: findings that fail a run, and what a round of probes has shown.

Pure. `rendezvous.run.protocol` acts on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rendezvous.proof.findings import mark_skipped, told_once
from rendezvous.proof.network_class import NetworkClass
from rendezvous.proof.path_findings import findings_of
from rendezvous.run.state import Probing, Run
from rendezvous.wire.node import Finding, JoinRequest
from rendezvous.wire.peers import FULL_MESH, peers_of
from rendezvous.wire.run import Round, RunReport, RunSpec
from rendezvous.wire.verify import PairProbe, ProbePeer, ProbePlan

_MOST_CLAUSES = 16


def joins_of(run: Run) -> list[JoinRequest]:
    """How the nodes joined that the table is to have, in order of their slots."""
    return [slot.its_node.join for slot in run.taking_part()]


def sources_of(run: Run) -> dict[int, str]:
    """From which address each of them joined, as far as that says something of its networks."""
    nodes = ((slot.index, slot.its_node) for slot in run.taking_part())
    return {slot: "" if node.here else node.source for slot, node in nodes}


def failing(findings: Iterable[Finding], spec: RunSpec) -> list[Finding]:
    """Those that end a run."""
    levels = ("fail", "warn") if spec.strict else ("fail",)
    return [finding for finding in findings if finding.level in levels]


def words_of_failing(findings: Sequence[Finding], hostnames: Mapping[int, str]) -> str:
    """All of them, in one sentence; of very many only the first."""
    told = [f"{text} ({finding.check})" for finding, text in told_once(findings, hostnames)]
    more = [f"and {len(told) - _MOST_CLAUSES} more"] if len(told) > _MOST_CLAUSES else []
    return "; ".join(told[:_MOST_CLAUSES] + more)


def plan_of(run: Run) -> ProbePlan:
    """Where the nodes are to reach each other in the round that is on."""
    assert run.network is not None
    peers = []
    for join in joins_of(run):
        if join.probe_port is not None:
            candidate = run.network.members[join.slot]
            peers.append(
                ProbePeer(
                    slot=join.slot,
                    hostname=join.hostname,
                    address=candidate.address,
                    interface=candidate.interface,
                    mtu=candidate.mtu,
                    probe_port=join.probe_port,
                )
            )
    fresh = run.attempt.probing.fresh if run.attempt.probing is not None else None
    listed = None if fresh is None else list(fresh)
    return ProbePlan(network=run.network.words, peers=peers, fresh=listed)


def fresh_on(run: Run, network: NetworkClass) -> tuple[int, ...] | None:
    """The slots of which pairs have to be proven on these addresses; None: of all."""
    proven = run.starts.proven
    if not proven:
        return None
    fresh = [
        slot.index
        for slot in run.taking_part()
        if proven.get(slot.index)
        != (slot.its_node.incarnation, network.members[slot.index].address)
    ]
    return tuple(fresh) if len(fresh) < len(run.taking_part()) else None


def proven_on(run: Run, network: NetworkClass) -> dict[int, tuple[int, str]]:
    """That those which take part have all proven each other on these addresses."""
    return {
        slot.index: (slot.its_node.incarnation, network.members[slot.index].address)
        for slot in run.taking_part()
    }


def planned_pairs(
    probing: Probing, slot: int, epoch: int, said: list[PairProbe]
) -> list[PairProbe]:
    """What a node says of the peers that it was to probe; what it leaves away is not proven."""
    if slot not in probing.listening:
        return []
    peers = peers_of(probing.listening, slot, epoch, probing.fresh)
    if [pair.slot for pair in said] == peers:
        return said
    found = {pair.slot: pair for pair in said}
    return [
        found.get(peer) or PairProbe(slot=peer, outcome="error", detail="it was not probed")
        for peer in peers
    ]


def count_pairs(reports: Mapping[int, Sequence[PairProbe]]) -> tuple[int, int]:
    """How many directed pairs failed, and how many were probed."""
    outcomes = [pair.outcome for pairs in reports.values() for pair in pairs]
    return sum(outcome != "ok" for outcome in outcomes), len(outcomes)


def measured(run: Run, round_: Round) -> list[Finding]:
    """What a round has shown of those that still take part, beside who reaches whom."""
    joins = joins_of(run)
    tried = _among(round_, [join.slot for join in joins])
    found = findings_of(tried, joins, run.attempt.classes, sources_of(run))
    return mark_skipped(found, run.spec)


def _among(round_: Round, slots: Sequence[int]) -> Round:
    """The round as if only these slots had taken part."""
    if round_.slots == slots:
        return round_
    kept = set(slots)
    reports = {
        slot: [pair for pair in pairs if pair.slot in kept]
        for slot, pairs in round_.reports.items()
        if slot in kept
    }
    return round_.model_copy(update={"slots": slots, "reports": reports})


def run_report(run: Run) -> RunReport:
    """What was checked, for people; the good pairs of the newest round alone, if it was small."""
    rounds, findings = list(kept_rounds(run)), list(run.attempt.findings)
    return RunReport(run=run.id, hostnames=run.hostnames(), rounds=rounds, findings=findings)


def kept_rounds(run: Run) -> tuple[Round, ...]:
    """The rounds; their good pairs only of the newest one, and if it was small."""
    rounds = run.attempt.rounds
    older = len(rounds) - (len(run.slots) <= FULL_MESH)
    return (*map(without_good, rounds[:older]), *rounds[older:])


def without_good(round_: Round) -> Round:
    """As a round is kept that is not the newest."""
    bad = {
        slot: failed
        for slot, pairs in round_.reports.items()
        if (failed := [pair for pair in pairs if pair.outcome != "ok"])
    }
    return round_.model_copy(update={"reports": bad})
