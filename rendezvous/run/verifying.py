"""What nodes said of themselves and of their peers is judged: planned, then carried out. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from rendezvous.frozen import frozen
from rendezvous.proof.blame import blame, to_release, why_released
from rendezvous.proof.compare import compare
from rendezvous.proof.findings import finding_text, mark_skipped
from rendezvous.proof.interfaces import left_out as left_out_by_variables
from rendezvous.proof.last_resort import last_networks, used, with_untried
from rendezvous.proof.network_class import NetworkClass
from rendezvous.proof.networks import Unreachable, classes_of, given_up
from rendezvous.run import events
from rendezvous.run.arming import seal_table, with_surplus
from rendezvous.run.decision import Outcome
from rendezvous.run.moves import enter, failure, finish, gather_again
from rendezvous.run.replacing import give_up, outlives, why_not
from rendezvous.run.rounds import (
    count_pairs,
    failing,
    fresh_on,
    joins_of,
    kept_rounds,
    measured,
    planned_pairs,
    proven_on,
    sources_of,
    words_of_failing,
)
from rendezvous.run.state import LeftOut, Probing, Run, names_of, who, words_of_network
from rendezvous.wire.errors import Cause
from rendezvous.wire.node import Finding
from rendezvous.wire.run import NodeState, Phase, Result, Round
from rendezvous.wire.words import listed

_MOST_HINTS = 3


@frozen
class Verify:
    """Prove these classes, the first one first."""

    classes: tuple[NetworkClass, ...]


@frozen
class Probe:
    """Begin a round on the class of this place."""

    number: int


@frozen
class Seal:
    """Seal the table on the class of this place."""

    number: int


@frozen
class GatherMore:
    """Wait for those who may still join in the place of nodes that failed these checks."""

    failed: list[Finding]


@frozen
class Replace:
    """Have others come in the place of these nodes: the run outlives them."""

    guilty: dict[int, LeftOut]


@frozen
class Plan:
    """What follows once the nodes have said what they were asked.

    Attributes:
        step: What is done next; a result ends the run.
        findings: What the attempt has found by then.
        left_out: The nodes that the table goes without for it, told of in groups.
    """

    step: Verify | Probe | Seal | Replace | GatherMore | Result
    findings: tuple[Finding, ...]
    left_out: tuple[Mapping[int, LeftOut], ...] = ()


def plan_checks(run: Run, now: float) -> Plan:
    """Judge what the nodes said of themselves: with whom the run goes on, if it does."""
    left_out, findings = run.attempt.left_out, run.attempt.findings
    while True:
        then = run.with_left_out(left_out)
        joins = joins_of(then)
        sources = sources_of(then)
        classes = classes_of(joins, sources)
        others = [] if isinstance(classes, Unreachable) else classes
        last = last_networks(joins, sources, others) if run.spec.verify else []
        missed = [] if isinstance(classes, Unreachable) else given_up(joins, classes[0])
        # Whatever a node says that it found, it is about that node.
        own = (replace(f, slot=join.slot) for join in joins for f in join.findings)
        compared = compare(joins, require_rdma=run.spec.require_rdma)
        found = mark_skipped([*own, *compared, *missed], run.spec)
        findings = (*[one for one in findings if one.slot in left_out], *found)
        told = () if left_out == run.attempt.left_out else (left_out,)
        if failed := failing(found, run.spec):
            guilty = _guilty(run, failed)
            if not then.can_go_without(guilty):
                if _others_may_come(then, guilty, now):
                    return Plan(GatherMore(failed), findings)
                if _may_replace(then, guilty):
                    return Plan(Replace(guilty), findings, told)
                return Plan(_failed_checks(run, failed), findings, told)
        elif isinstance(classes, Unreachable) and not last:
            why = LeftOut(Cause.VERIFICATION_FAILED, classes.reason)
            guilty = dict.fromkeys(classes.slots, why)
            if not then.can_go_without(guilty) and _may_replace(then, guilty):
                return Plan(Replace(guilty), findings, told)
            if not then.can_go_without(guilty):
                return Plan(_unreachable(run, with_untried(classes, joins, [])), findings, told)
        else:
            return Plan(Verify((*others, *last)), findings, told)
        left_out = {**left_out, **guilty}


def plan_after_round(run: Run, now: float) -> Plan:
    """All have reported: take the class, try the next one, or say why none works."""
    attempt, probing = run.attempt, run.attempt.probing
    assert probing is not None
    number, tried = probing.number, attempt.rounds[-1]
    failed, _ = count_pairs(tried.reports)
    joins, seconds = joins_of(run), now - attempt.verifying_since
    if not failed:
        return plan_table(run, number, tried, known=used(attempt.classes[number], joins, seconds))
    in_time = seconds < run.spec.limits.verify_timeout_seconds
    if number + 1 < len(attempt.classes) and in_time:
        return Plan(Probe(number + 1), attempt.findings)
    rounds = attempt.rounds[-(number + 1) :]
    known = [] if probing.fresh is None else sorted(set(tried.slots).difference(probing.fresh))
    guilty = [to_release(tried, known) for tried in rounds]
    number = _fewest(guilty)
    may_go, may_replace = run.can_go_without(guilty[number]), _may_replace(run, guilty[number])
    if may_go or may_replace:
        why = why_released(rounds[number], joins, attempt.classes, known, sources_of(run))
        told = used(attempt.classes[number], joins, seconds)
        cause = Cause.VERIFICATION_FAILED
        left_out = {slot: LeftOut(cause, words) for slot, words in why.items()}
        if not may_go:
            return Plan(Replace(left_out), attempt.findings)
        return plan_table(run, number, rounds[number], left_out, told)
    blamed = blame(rounds, joins, attempt.classes, sources_of(run))
    blamed = with_untried(blamed, joins, attempt.classes[: len(rounds)])
    findings = (*attempt.findings, *measured(run, rounds[-1]))
    return Plan(_unreachable(run, blamed), findings)


def plan_table(
    run: Run,
    number: int,
    tried: Round | None = None,
    unreached: Mapping[int, LeftOut] | None = None,
    known: Sequence[Finding] = (),
) -> Plan:
    """Seal the table on a class, unless what its round has measured is a failure."""
    attempt, unreached = run.attempt, unreached or {}
    then = run.with_left_out({**attempt.left_out, **unreached})
    found = mark_skipped(known, run.spec) + (measured(then, tried) if tried else [])
    classes = attempt.classes[number:]
    found += left_out_by_variables(joins_of(then), classes, attempt.findings, run.spec)
    findings, told = (*attempt.findings, *found), (unreached,)
    if not (failed := failing(found, run.spec)):
        return Plan(Seal(number), findings, told)
    guilty = _guilty(run, failed)
    if not then.can_go_without(guilty):
        if _may_replace(then, guilty):
            return Plan(Replace(guilty), findings, told)
        return Plan(_failed_checks(run, failed), findings, told)
    return Plan(Seal(number), findings, (*told, guilty))


def _may_replace(run: Run, guilty: Collection[int]) -> bool:
    """Whether programs have started, and the run can go on without these once others have come."""
    return outlives(run) and bool(guilty) and not why_not(run, guilty)


def _guilty(run: Run, failed: Collection[Finding]) -> dict[int, LeftOut]:
    """The nodes that failed checks; none where one of these is nobody's fault."""
    names, cause = run.hostnames(), Cause.PREFLIGHT_FAILED
    found = {f.slot: LeftOut(cause, finding_text(f, names)) for f in reversed(list(failed))}
    return {} if None in found else {slot: why for slot, why in found.items() if slot is not None}


def _fewest(guilty: Sequence[Collection[int]]) -> int:
    """The number of the round after which the fewest nodes have to go."""
    return min(range(len(guilty)), key=lambda number: len(guilty[number]))


def _others_may_come(run: Run, guilty: Collection[int], now: float) -> bool:
    """Whether nodes that may still join could take the place of the guilty ones."""
    limit = run.spec.limits.join_timeout_seconds
    missing = [run.slots[index] for index in run.missing]
    awaited = sum(not slot.given_up and slot.wait_seconds(now) < limit for slot in missing)
    left = len(run.taking_part()) - len(guilty)
    return bool(guilty) and 0 not in guilty and left + awaited >= run.spec.min_nodes > left


def _failed_checks(run: Run, failed: list[Finding]) -> Result:
    words = f"checks before the start failed: {words_of_failing(failed, run.hostnames())}"
    about = next((run.slots[f.slot] for f in failed if f.slot is not None), None)
    hints = [*dict.fromkeys(f.fix for f in failed if f.fix)]
    return failure(Cause.PREFLIGHT_FAILED, words, about, "; ".join(hints[:_MOST_HINTS]))


def _unreachable(run: Run, why: Unreachable) -> Result:
    about = run.slots[why.slots[0]] if why.slots else None
    return failure(Cause.VERIFICATION_FAILED, why.reason, about, why.hint)


def carry_out(run: Run, plan: Plan, now: float) -> str:
    """Change the run as planned. Returns a clause describing what was done."""
    attempt, said = run.attempt, ""
    attempt.findings = plan.findings
    for group in plan.left_out:
        attempt.left_out = {**attempt.left_out, **group}
        said += _without(run, group)
    match plan.step:
        case Verify(classes=classes):
            attempt.classes, attempt.verifying_since = classes, now
            if run.spec.verify and fresh_on(run, classes[0]) != ():
                _begin_round(run, now, 0)
                return said
            run.epoch += 1
            return said + carry_out(run, plan_table(run, 0), now)
        case Probe(number=number):
            tried = attempt.rounds[-1]
            _begin_round(run, now, number)
            words = f"{tried.network}: {tried.verdict}; next: {attempt.classes[number].words}"
        case Seal(number=number):
            attempt.rounds = kept_rounds(run)
            attempt.network, attempt.probing = attempt.classes[number], None
            if run.spec.outlives_nodes and run.spec.verify:
                run.starts.proven = proven_on(run, attempt.network)
            attempt.left_out = with_surplus(run)
            seal_table(run, now, None)
            words = words_of_network(run)
        case Replace(guilty=guilty):
            words = give_up(run, guilty, now)
        case GatherMore(failed=failed):
            gather_again(run, now, enough_since=now)
            told = words_of_failing(failed, run.hostnames())
            words = f"the run waits again for other nodes: {told}"
        case Result(message=words):
            finish(run, now, plan.step)
    return f"{said}; {words}"


def _without(run: Run, left_out: Mapping[int, LeftOut]) -> str:
    if not left_out:
        return ""
    why = dict.fromkeys(left_out[index].words for index in sorted(left_out))
    return f"; {listed(why, 3)}; the run continues without {names_of(run, left_out)}"


def _begin_round(run: Run, now: float, number: int) -> None:
    """Have the addresses of a class probed: an epoch of its own."""
    listening = tuple([join.slot for join in joins_of(run) if join.probe_port is not None])
    run.epoch += 1
    run.attempt.probing = Probing(number, listening, fresh_on(run, run.attempt.classes[number]))
    for slot in run.taking_part():
        slot.its_node.state = NodeState.JOINED
    enter(run, Phase.VERIFYING, now)


def probed(run: Run, event: events.Probed, now: float) -> Outcome:
    """One node has visited its peers; with the last one the round is over."""
    slot = run.slots[event.slot]
    slot.its_node.state = NodeState.VERIFIED
    run.waiting_for.discard(slot.index)
    probing = run.attempt.probing
    assert probing is not None
    pairs = planned_pairs(probing, slot.index, run.epoch, event.report.pairs)
    probing.reports[slot.index] = pairs
    failed = [pair for pair in pairs if pair.outcome != "ok"]
    reason = f"{who(slot)} {'verified its peers' if run.spec.slots > 1 else 'is verified'}"
    if failed:
        peers = (f"{who(run.slots[p.slot])}: {p.outcome.replace('_', ' ')}" for p in failed)
        reason = f"{who(slot)} cannot reach {listed(peers)}"
    is_usual = not failed
    if not run.waiting_for:
        outcome = _end_round(run, now).removeprefix("; ")
        is_usual &= run.phase is Phase.ARMING and outcome == words_of_network(run)  # the go says it
        if not is_usual:
            reason = f"{reason}; {outcome}" if failed else outcome
    return Outcome(reason, slot.index, usual=is_usual)


def _end_round(run: Run, now: float) -> str:
    attempt, probing = run.attempt, run.attempt.probing
    assert probing is not None
    failed, probed = count_pairs(probing.reports)
    tried = Round(
        network=attempt.classes[probing.number].words,
        number=probing.number,
        verdict=f"{failed} of {probed} directed pairs failed" if failed else "every pair works",
        slots=[slot.index for slot in run.taking_part()],
        reports={slot: list(pairs) for slot, pairs in probing.reports.items()},
    )
    attempt.rounds = (*attempt.rounds, tried)
    return carry_out(run, plan_after_round(run, now), now)
