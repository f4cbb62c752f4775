"""The state machine of one run. Pure: values in, values out; the clock is one of the values.

    gathering -> verifying -> arming -> running -> finished(ok | failed | cancelled)
        ^___________|___________|     a node is lost before the go: gather again

Verifying goes in rounds. Before the first one, what the nodes found on themselves and how they
compare is judged; each round then proves the addresses of one network class, in order of
preference, and is an epoch of its own. The first class is taken in which every directed pair that
was planned has worked. A run without `verify` takes the first class, and arms.

Rules
  - `rendezvous.admission` decides what a request may change, `due` gives the events that time
    brings, `apply` is the only function that changes a run; it never refuses.
  - A slot is filled by one incarnation at a time. A newer generation displaces an older one at
    once; within a generation a live holder keeps its slot until it is suspect. What an older
    incarnation says is `fenced`.
  - Nobody starts before every node of the table has acknowledged the table's digest. The table of
    an epoch never changes; whatever changes it makes a new epoch.
  - Before the go, a node that is lost or fails is submitted again as often as `submit_retries`
    allows, or spared where min:max allows it, else the run fails with that cause. After the go it
    fails the run.
  - A node that refuses to join fails as one that is lost, and is submitted again only where another
    worker run may do better.
  - Before the go, a worker run that is over for its scheduler is lost. After the go its lease says
    so: an agent that is heard of is alive, and only the lease knows since when it is not.
  - A node that fails a check or its peers ends the run, unless enough others are there without it
    (spares, min:max): then it is left out. The best `max_nodes` make the table: those that passed,
    with the lowest slots. Slot 0 is never left out. Whoever is left out stays until the go, as the
    nodes may have to gather again, and is released then.
  - In a led run only rank 0 has a program, and the other nodes serve it: the run is over with its
    end. A node that is lost ends the run as ever.
  - The first cause is the failure that happened first, by age, not the one that was told first.
  - Each decision has its reason, in words; the reply, the log, the board and the tests use it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rendezvous import events
from rendezvous.classes import NetworkClass, Unreachable, classes_of, given_up
from rendezvous.compare import compare, finding_text, mark_skipped, rdma_of
from rendezvous.errors import Cause, ExitCode
from rendezvous.events import Event
from rendezvous.frozen import frozen
from rendezvous.interfaces import left_out as left_out_by_variables
from rendezvous.interfaces import words_of_odd
from rendezvous.leases import Leases, Silence
from rendezvous.matrix import blame, to_release, why_released
from rendezvous.phases import RULES, Awaits
from rendezvous.rounds import (
    count_pairs,
    failing,
    hint_of,
    joins_of,
    kept_rounds,
    listening,
    measured,
    own_findings,
    planned_pairs,
    words_of_failing,
)
from rendezvous.schema import (
    DEFAULT_MASTER_PORT,
    ExitReport,
    Finding,
    NodeState,
    Phase,
    Result,
    Round,
    SlotNews,
    SlotState,
)
from rendezvous.seal import make_table
from rendezvous.state import (
    DEAD_SUBMISSIONS,
    GONE,
    NOT_NEEDED,
    OVER,
    Attempt,
    LeftOut,
    Node,
    Probing,
    Run,
    Slot,
    first_failed,
    nodes_text,
    overdue_slots,
    what_is_known,
    who,
    words_of_exit,
    words_of_failure,
)
from rendezvous.words import listed

_MAX_PORT_TRIES = 32
_MAX_PORT = 65_535


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an event did, in words, and whose slot it was; `usual` when every node does the like."""

    reason: str
    slot: int | None = None
    usual: bool = False


# --- what time brings


def due(run: Run, now: float, leases: Leases) -> list[Event]:
    """The events that time has brought: leases that ran out, time-outs, last call, the verdict."""
    out: list[Event] = []
    for silence in leases.sweep(now) or _ended_and_suspect(run, now, leases):
        slot = run.slots[silence.key[0]]
        if slot.node is None or slot.node.incarnation != silence.key[1] or slot.node.state in GONE:
            leases.forget(silence.key)
            continue
        out.append(
            events.Lost(
                slot=slot.index,
                incarnation=silence.key[1],
                silent_seconds=silence.seconds,
                reason=_words_of_silence(slot, silence),
            )
        )
    if run.phase is Phase.FINISHED or out:
        return out
    if (event := _phase_due(run, now)) is not None:
        out.append(event)
    elif _verdict_due(run, now, leases):
        out.append(events.VerdictFell())
    return out


def launcher_gone(run: Run) -> list[Event]:
    """Its launcher is not heard of: what it said of the scheduler's queue holds no longer, and the
    clocks of those slots go on."""
    detail = "it was queued when its launcher was last heard of"
    return [
        events.SlotChanged(
            slot=slot.index,
            news=SlotNews(generation=slot.generation, state=SlotState.UNKNOWN, detail=detail),
        )
        for slot in run.slots
        if slot.state is SlotState.QUEUED and run.phase is not Phase.FINISHED
    ]


def _ended_and_suspect(run: Run, now: float, leases: Leases) -> list[Silence]:
    """Suspect nodes whose worker run is over, as the scheduler says: both together are enough."""
    return [
        Silence((slot.index, node.incarnation), seconds, closed=False)
        for slot in run.slots
        if _worker_run_is_over(slot)
        and (node := slot.live_node()) is not None
        and (seconds := leases.silent_seconds((slot.index, node.incarnation), now))
        >= leases.suspect_after
    ]


def _worker_run_is_over(slot: Slot) -> bool:
    node = slot.node
    present = node is not None and node.join.generation == slot.generation
    return present and slot.state in DEAD_SUBMISSIONS


def _verdict_due(run: Run, now: float, leases: Leases) -> bool:
    if run.verdict_at is None or now < run.verdict_at:
        return False
    waited = min(now - run.verdict_at, leases.granted_seconds(now))
    waited_enough = waited >= leases.dead_after
    return waited_enough or not unheard(run, now, leases)


def _words_of_silence(slot: Slot, silence: Silence) -> str:
    if _worker_run_is_over(slot):
        return _words_of_end(slot.detail)
    if silence.closed:
        return "its agent is gone: the connection was closed and no new one came"
    return f"it was silent for {silence.seconds:.0f} s: host, network or agent is down"


def _words_of_end(detail: str) -> str:
    return f"its worker run ended: {detail}" if detail else "its worker run ended"


def _phase_due(run: Run, now: float) -> Event | None:
    limits = run.spec.limits
    if run.rules.awaits is Awaits.NODES:
        if overdue_slots(run, now):
            return events.TimedOut(phase=run.phase)
        since = run.attempt.enough_since
        if since is not None and now - since >= limits.last_call_seconds:
            return events.LastCallOver()
        return None
    timeout = run.phase_timeout()
    if timeout is not None and now - run.phase_since >= timeout:
        return events.TimedOut(phase=run.phase)
    return None


def unheard(run: Run, now: float, leases: Leases) -> list[Slot]:
    """The nodes that have said nothing since all were told to stop, which wakes every watch: one
    of them may be the first cause, not yet known."""
    assert run.verdict_at is not None
    since_stop = now - (run.verdict_at - run.spec.limits.verdict_seconds)
    return [
        slot
        for slot in run.members()
        if slot.node is not None
        and (
            leases.is_unheard(key := (slot.index, slot.node.incarnation))
            or leases.silent_seconds(key, now) >= since_stop
        )
    ]


# --- moves


def apply(run: Run, event: Event, now: float) -> Outcome:
    """Change the run by one event. Deterministic; returns what happened, in words."""
    run.version += 1
    return _MOVES[event.kind](run, event, now)


def _created(run: Run, event: events.Created, now: float) -> Outcome:
    return Outcome(f"run '{run.id}' was created for {nodes_text(run.spec)}")


def _slot_changed(run: Run, event: events.SlotChanged, now: float) -> Outcome:
    slot, news = run.slots[event.slot], event.news
    if news.generation > slot.generation:
        _begin_generation(slot, news.generation, now)
        if news.token_sha256 is not None:
            slot.tokens[news.generation] = news.token_sha256
    if news.state is not slot.state:
        slot.since = now
    slot.state, slot.detail = news.state, news.detail
    slot.name, slot.handle = news.name or slot.name, news.handle or slot.handle
    _count_waiting(slot, now)
    said = f" ({news.detail})" if news.detail else ""
    if news.state in DEAD_SUBMISSIONS and run.rules.is_forming:
        died = _submission_died(run, slot, news, now)
        if died is not None:
            return Outcome(died, slot.index)
    reason = f"slot {slot.index}, generation {slot.generation}: {news.state}{said}"
    return Outcome(reason, slot.index, usual=True)


def _begin_generation(slot: Slot, generation: int, now: float) -> None:
    """Another worker run is to fill the slot: nothing that was said of the last one holds."""
    slot.generation = slot.wanted = generation
    slot.state, slot.since = SlotState.NONE, now
    slot.name = slot.handle = slot.detail = ""
    slot.waited, slot.waiting_since = 0.0, None
    slot.given_up = False


def _count_waiting(slot: Slot, now: float) -> None:
    """Stop the slot's clock while it is filled, or while the scheduler itself says 'queued'."""
    counts = slot.live_node() is None and slot.state is not SlotState.QUEUED
    if counts and slot.waiting_since is None:
        slot.waiting_since = now
    elif not counts and slot.waiting_since is not None:
        slot.waited += now - slot.waiting_since
        slot.waiting_since = None


def _submission_died(run: Run, slot: Slot, news: SlotNews, now: float) -> str | None:
    """What follows from it, in words; None when nothing does (any more)."""
    if slot.node is not None:
        if not _worker_run_is_over(slot):
            return None
        return _before_go_failed(run, slot, _words_of_end(news.detail), Cause.NODE_LOST, now)
    if slot.given_up or slot.wanted > news.generation:
        return None
    detail = f": {news.detail}" if news.detail else ""
    how = "worker run ended before it joined" if slot.handle else "submission failed"
    why = f"its {how}{detail}"
    return _before_go_failed(run, slot, why, Cause.SCHEDULER_FAILED, now)


def _joined(run: Run, event: events.Joined, now: float) -> Outcome:
    request = event.request
    slot = run.slots[request.slot]
    displaced = slot.live_node()
    slot.incarnations += 1
    if request.generation > slot.generation:
        _begin_generation(slot, request.generation, now)
    slot.node = Node(slot.incarnations, request)
    slot.joins[request.join_id] = slot.incarnations
    slot.problem, slot.given_up = "", False
    run.missing.discard(slot.index)
    _count_waiting(slot, now)
    if run.command_digest is None:
        run.command_digest = request.job.command_digest
    if request.job.command_words:
        run.command_slot = (run.other_command(slot.index) or slot).index
    if displaced is not None and run.rules.awaits is Awaits.REPORTS:
        _gather_again(run, now)
    address = request.candidates[0].address
    reason = f"{who(slot)} joined from {address} as incarnation {slot.incarnations}"
    if displaced is not None:
        reason += f", in place of {displaced.join.hostname}"
    reason += f"; {run.present} of {run.spec.slots} nodes are in"
    return Outcome(reason + _check_gathered(run, now), slot.index)


def _check_gathered(run: Run, now: float) -> str:
    """Go on when all are in that may still come; begin the last call when enough are.

    Returns what it did, in words that end a sentence.
    """
    if run.rules.awaits is not Awaits.NODES:
        return ""
    if run.present < run.spec.min_nodes or 0 in run.missing:
        run.attempt.enough_since = None
    elif all(run.slots[index].given_up for index in run.missing):
        return _end_gathering(run, now)
    elif run.attempt.enough_since is None:
        run.attempt.enough_since = now
    return ""


def _refused(run: Run, event: events.Refused, now: float) -> Outcome:
    slot = run.slots[event.slot]
    slot.problem = event.reason
    if event.exit_code is not None:
        return Outcome(_refused_itself(run, slot, event, event.exit_code, now), slot.index)
    if slot.live_node() is None and run.rules.awaits is Awaits.NODES:
        about = slot if event.is_alone else None
        result = _failure(event.code, event.reason, about, event.hint, exit_code=ExitCode.REFUSED)
        _finish(run, now, result.model_copy(update={"command_word": event.command_word}))
    return Outcome(f"refused: {event.reason}", slot.index)


def _refused_itself(run: Run, slot: Slot, event: events.Refused, exit_code: int, now: float) -> str:
    """A node cannot take part: the run goes on without it, or ends with its cause."""
    if event.generation > slot.generation:
        _begin_generation(slot, event.generation, now)
    words = f"slot {slot.index} ({event.hostname}) cannot take part: {event.reason}"
    recovery = recovery_of(run, slot, again=event.retryable and run.spec.managed)
    if recovery is not None:
        return f"{words}; {_recover(run, slot, recovery, now)}"
    result = _failure(Cause.REFUSED, words, slot, event.hint, exit_code=exit_code)
    _finish(run, now, result.model_copy(update={"hostname": event.hostname}))
    return words


def _end_gathering(run: Run, now: float) -> str:
    run.attempt = Attempt()
    return _carry_out(run, plan_checks(run, now), now)


def _enter(run: Run, phase: Phase, now: float) -> None:
    run.phase, run.phase_since = phase, now
    run.waiting_for = {slot.index for slot in run.taking_part()}
    run.seq += 1


def _gather_again(run: Run, now: float, enough_since: float | None = None) -> None:
    """The attempt is dropped: nobody had started on its table."""
    run.attempt = run.attempt.dropped(enough_since)
    for slot in run.members():
        assert slot.node is not None
        slot.node.state, slot.node.rank = NodeState.JOINED, None
    if run.phase is not Phase.GATHERING:
        _enter(run, Phase.GATHERING, now)


# --- checks, rounds, the seal


@frozen
class Verify:
    """Prove these classes, the first one first."""

    classes: list[NetworkClass]


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
class Finish:
    """End the run."""

    result: Result


@frozen
class Plan:
    """What follows once the nodes have said what they were asked.

    Attributes:
        step: What is done next.
        findings: What the attempt has found by then.
        left_out: The nodes that the table goes without for it, told of in groups.
    """

    step: Verify | Probe | Seal | GatherMore | Finish
    findings: list[Finding]
    left_out: tuple[dict[int, LeftOut], ...] = ()


def plan_checks(run: Run, now: float) -> Plan:
    """Judge what the nodes said of themselves: with whom the run goes on, if it does."""
    left_out, findings = run.attempt.left_out, run.findings
    while True:
        then = run.with_left_out(left_out)
        joins = joins_of(then)
        classes = classes_of(joins)
        missed = [] if isinstance(classes, Unreachable) else given_up(joins, classes[0])
        found = [
            *own_findings(joins, run.spec),
            *compare(joins, run.spec),
            *mark_skipped(missed, run.spec),
        ]
        findings = [finding for finding in findings if finding.slot in left_out] + found
        told = () if left_out == run.attempt.left_out else (left_out,)
        if failed := failing(found, run.spec):
            guilty = _guilty(run, failed)
            if not _can_go_without(then, guilty):
                if _others_may_come(then, guilty, now):
                    return Plan(GatherMore(failed), findings)
                return Plan(_failed_checks(run, failed), findings, told)
        elif isinstance(classes, Unreachable):
            why = LeftOut(Cause.VERIFICATION_FAILED, classes.reason)
            guilty = dict.fromkeys(classes.slots, why)
            if not _can_go_without(then, guilty):
                return Plan(_unreachable(run, classes), findings, told)
        else:
            return Plan(Verify(classes), findings, told)
        left_out = left_out | guilty


def plan_after_round(run: Run, now: float) -> Plan:
    """All have reported: take the class, try the next one, or say why none works."""
    attempt, probing = run.attempt, run.attempt.probing
    assert probing is not None
    number, tried = probing.number, attempt.rounds[-1]
    failed, _ = count_pairs(tried)
    if not failed:
        return plan_table(run, number, tried)
    in_time = now - attempt.verifying_since < run.spec.limits.verify_timeout_seconds
    if number + 1 < len(attempt.classes) and in_time:
        return Plan(Probe(number + 1), attempt.findings)
    rounds = attempt.rounds[-(number + 1) :]
    guilty = [to_release(tried) for tried in rounds]
    number = min(range(len(rounds)), key=lambda number: len(guilty[number]))
    if _can_go_without(run, guilty[number]):
        why = why_released(rounds[number], joins_of(run), run.classes)
        cause = Cause.VERIFICATION_FAILED
        left_out = {slot: LeftOut(cause, words) for slot, words in why.items()}
        return plan_table(run, number, rounds[number], left_out)
    blamed = blame(rounds, joins_of(run), run.classes)
    return Plan(_unreachable(run, blamed), attempt.findings + measured(run, rounds[-1]))


def plan_table(
    run: Run, number: int, tried: Round | None = None, unreached: dict[int, LeftOut] | None = None
) -> Plan:
    """Seal the table on a class, unless what its round has measured is a failure."""
    unreached = unreached or {}
    then = run.with_left_out(run.attempt.left_out | unreached)
    found = measured(then, tried) if tried else []
    found += left_out_by_variables(then, run.classes[number:])
    findings, told = run.findings + found, (unreached,)
    if not (failed := failing(found, run.spec)):
        return Plan(Seal(number), findings, told)
    guilty = _guilty(run, failed)
    if not _can_go_without(then, guilty):
        return Plan(_failed_checks(run, failed), findings, told)
    return Plan(Seal(number), findings, (*told, guilty))


def _guilty(run: Run, failed: Collection[Finding]) -> dict[int, LeftOut]:
    """The nodes that failed checks; none where one of these is nobody's fault."""
    names, cause = run.hostnames(), Cause.PREFLIGHT_FAILED
    found = {f.slot: LeftOut(cause, finding_text(f, names)) for f in reversed(list(failed))}
    return {} if None in found else {slot: why for slot, why in found.items() if slot is not None}


def _can_go_without(run: Run, guilty: Collection[int]) -> bool:
    enough = len(run.taking_part()) - len(guilty) >= run.spec.min_nodes
    return bool(guilty) and 0 not in guilty and enough


def _others_may_come(run: Run, guilty: Collection[int], now: float) -> bool:
    """Whether nodes that may still join could take the place of the guilty ones."""
    limit = run.spec.limits.join_timeout_seconds
    missing = [run.slots[index] for index in run.missing]
    awaited = sum(not slot.given_up and slot.wait_seconds(now) < limit for slot in missing)
    left = len(run.taking_part()) - len(guilty)
    return bool(guilty) and 0 not in guilty and left + awaited >= run.spec.min_nodes > left


def _failed_checks(run: Run, failed: list[Finding]) -> Finish:
    words = f"checks before the start failed: {words_of_failing(failed, run.hostnames())}"
    about = next((run.slots[f.slot] for f in failed if f.slot is not None), None)
    return Finish(_failure(Cause.PREFLIGHT_FAILED, words, about, hint_of(failed)))


def _unreachable(run: Run, why: Unreachable) -> Finish:
    about = run.slots[why.slots[0]] if why.slots else None
    return Finish(_failure(Cause.VERIFICATION_FAILED, why.reason, about, why.hint))


def _carry_out(run: Run, plan: Plan, now: float) -> str:
    """Change the run as planned. Returns it in words that end a sentence."""
    run.attempt.findings = plan.findings
    said = ""
    for group in plan.left_out:
        run.attempt.left_out = run.attempt.left_out | group
        said += _without(run, group)
    match plan.step:
        case Verify(classes=classes):
            run.attempt.classes, run.attempt.verifying_since = classes, now
            if run.spec.verify:
                _begin_round(run, now, 0)
                return said
            run.epoch += 1
            return said + _carry_out(run, plan_table(run, 0), now)
        case Probe(number=number):
            tried = run.rounds[-1]
            _begin_round(run, now, number)
            words = f"{tried.network}: {tried.verdict}; next is {run.classes[number].words}"
        case Seal(number=number):
            run.attempt.rounds = kept_rounds(run)
            run.attempt.network, run.attempt.probing = run.classes[number], None
            run.attempt.left_out = _with_surplus(run)
            _seal(run, now, None)
            words = f"the table is sealed on {run.classes[number].words}"
        case GatherMore(failed=failed):
            _gather_again(run, now, enough_since=now)
            told = words_of_failing(failed, run.hostnames())
            words = f"the others are waited for once more: {told}"
        case Finish(result=result):
            _finish(run, now, result)
            words = result.message
    return f"{said}; {words}"


def _without(run: Run, left_out: Mapping[int, LeftOut]) -> str:
    if not left_out:
        return ""
    why = dict.fromkeys(left_out[index].words for index in sorted(left_out))
    return f"; {listed(why, 3)}; it goes without {_names(run, left_out)}"


def _names(run: Run, indices: Collection[int]) -> str:
    return listed(who(run.slots[index]) for index in sorted(indices))


def _begin_round(run: Run, now: float, number: int) -> None:
    """Have the addresses of a class probed: an epoch of its own."""
    run.epoch += 1
    run.attempt.probing = Probing(number, listening(run))
    for slot in run.taking_part():
        assert slot.node is not None
        slot.node.state = NodeState.JOINED
    _enter(run, Phase.VERIFYING, now)


def _probed(run: Run, event: events.Probed, now: float) -> Outcome:
    slot = run.slots[event.slot]
    assert slot.node is not None
    slot.node.state = NodeState.VERIFIED
    run.waiting_for.discard(slot.index)
    assert run.attempt.probing is not None
    pairs = run.attempt.probing.reports[slot.index] = planned_pairs(
        run, slot.index, event.report.pairs
    )
    failed = [pair for pair in pairs if pair.outcome != "ok"]
    reason = f"{who(slot)} verified its peers"
    if failed:
        peers = (f"{who(run.slots[p.slot])}: {p.outcome.replace('_', ' ')}" for p in failed)
        reason = f"{who(slot)} cannot reach {listed(peers)}"
    over = not run.waiting_for
    if over:
        reason += _end_round(run, now)
    return Outcome(reason, slot.index, usual=not failed and not over)


def _end_round(run: Run, now: float) -> str:
    attempt, probing = run.attempt, run.attempt.probing
    assert probing is not None
    number, words = probing.number, attempt.classes[probing.number].words
    slots = [slot.index for slot in run.taking_part()]
    tried = Round(network=words, number=number, verdict="", slots=slots, reports=probing.reports)
    failed, probed = count_pairs(tried)
    verdict = f"{failed} of {probed} directed pairs failed" if failed else "every pair works"
    attempt.rounds.append(tried.model_copy(update={"verdict": verdict}))
    return _carry_out(run, plan_after_round(run, now), now)


# --- arming


def _with_surplus(run: Run) -> dict[int, LeftOut]:
    """Those that the table goes without, with those for whom it has no room."""
    surplus = run.taking_part()[run.spec.max_nodes :]
    return run.attempt.left_out | {slot.index: NOT_NEEDED for slot in surplus}


def plan_without(run: Run, guilty: dict[int, LeftOut]) -> dict[int, LeftOut] | None:
    """Without whom a table goes on without nodes that cannot start: a spare steps in for each.

    None when too few others are there.
    """
    for_cause = {slot: why for slot, why in run.attempt.left_out.items() if why.cause}
    if not _can_go_without(run.with_left_out(for_cause), guilty):
        return None
    return _with_surplus(run.with_left_out(for_cause | guilty))


def _seal_without(
    run: Run, guilty: Collection[int], left_out: dict[int, LeftOut], now: float
) -> str:
    """Seal anew on the network that is proven. Returns it in words that end a sentence."""
    run.attempt.left_out = left_out
    for index in guilty:
        if (node := run.slots[index].node) is not None:
            node.state, node.rank = NodeState.JOINED, None
    run.epoch += 1
    _seal(run, now, None)
    return f"; a new table goes without {'it' if len(guilty) == 1 else 'them'}"


def _seal(run: Run, now: float, port: int | None) -> None:
    """Choose ranks, make the table, and ask every node to arm."""
    assert run.network is not None
    joins = joins_of(run)
    port = port or run.spec.master_port or joins[0].master_port or DEFAULT_MASTER_PORT
    table = make_table(
        run.id, run.spec.launch_id, run.epoch, joins, run.network, rdma_of(joins), port
    )
    run.attempt.table, run.attempt.digest = table, table.digest()
    ranks = {row.slot: row.rank for row in table.rows}
    for slot in run.taking_part():
        assert slot.node is not None
        slot.node.rank = ranks[slot.index]
        slot.node.state = NodeState.VERIFIED
    _enter(run, Phase.ARMING, now)


def _acked(run: Run, event: events.Acked, now: float) -> Outcome:
    slot = run.slots[event.slot]
    assert slot.node is not None
    slot.node.state = NodeState.ARMED
    run.waiting_for.discard(slot.index)
    reason = f"{who(slot)} is ready on table {run.digest[:12]}"
    if not run.waiting_for:
        for member in run.members():
            assert member.node is not None
            spare = member.index in run.attempt.left_out
            member.node.state = NodeState.RELEASED if spare else NodeState.RUNNING
            if spare:
                member.problem = run.attempt.left_out[member.index].words
        _enter(run, Phase.RUNNING, now)
        reason += "; all are: go"
        if run.attempt.left_out:
            reason += f", without {_names(run, run.attempt.left_out)}"
    return Outcome(reason, slot.index, usual=run.phase is not Phase.RUNNING)


_OF_THE_RUN = ("port_taken", "bad_table")  # refusals that another node would not mend


def _arm_refused(run: Run, event: events.ArmRefused, now: float) -> Outcome:
    slot, report = run.slots[event.slot], event.report
    assert run.table is not None
    reason = f"{who(slot)} cannot start: {report.reason}"
    may_move = report.code == "port_taken" and run.spec.master_port is None
    run.port_tries += 1
    if may_move and run.port_tries <= _MAX_PORT_TRIES:
        port = report.free_port or _next_port(run.table.master_port)
        run.epoch += 1
        _seal(run, now, port)
        return Outcome(f"{reason}; new table with master port {port}", slot.index)
    guilty = {slot.index: LeftOut(Cause.ARMING_FAILED, reason)}
    left_out = None if report.code in _OF_THE_RUN else plan_without(run, guilty)
    if left_out is not None:
        return Outcome(reason + _seal_without(run, guilty, left_out, now), slot.index)
    hint = "choose another with --master-port" if report.code == "port_taken" else ""
    _finish(run, now, _failure(Cause.ARMING_FAILED, reason, slot, hint))
    return Outcome(reason, slot.index)


def _next_port(port: int) -> int:
    return port + 1 if port < _MAX_PORT else DEFAULT_MASTER_PORT


def _progressed(run: Run, event: events.Progressed, now: float) -> Outcome:
    slot = run.slots[event.slot]
    assert slot.node is not None
    slot.node.progress = event.report.words
    usual = not event.report.warning
    return Outcome(f"{who(slot)}: {event.report.words}", slot.index, usual=usual)


def _exited(run: Run, event: events.Exited, now: float) -> Outcome:
    slot, report = run.slots[event.slot], event.report
    node = slot.node
    assert node is not None
    if run.rules.is_forming:
        words = report.message or f"its agent ended with code {report.exit_code}"
        why = _before_go_failed(run, slot, words, Cause.AGENT_FAILED, now, report)
        return Outcome(why, slot.index)
    node.state, node.exit, node.ended_at = NodeState.EXITED, report, now
    reason = f"{who(slot)} {words_of_exit(report)}"
    failed = report.exit_code != 0 and not (report.stopped and run.stop)
    if failed:
        node.failed_at = now - report.age_seconds
        _begin_stop(run, now)
    leader_ended = run.spec.led and node.rank == 0 and report.exit_code == 0
    if leader_ended and not run.stop:
        _give_verdict(run, now)
    _check_all_over(run, now)
    return Outcome(reason, slot.index, usual=not failed)


def _begin_stop(run: Run, now: float) -> None:
    """Tell everyone to stop; the verdict waits for other reports of earlier failures."""
    if run.stop:
        return
    run.stop = True
    run.verdict_at = now + run.spec.limits.verdict_seconds
    run.seq += 1


def _check_all_over(run: Run, now: float) -> None:
    if run.rules.awaits is Awaits.PROGRAMS and not run.members():
        _give_verdict(run, now)


def _give_verdict(run: Run, now: float, silent: Sequence[int] = ()) -> None:
    first = first_failed(run)
    if first is None:
        count = len(run.table.rows) if run.table else 0
        who_ended = f"all {count} nodes"
        if run.spec.led:
            who_ended = f"the program of node 0, which led {count} nodes,"
        words = f"{who_ended} ended with exit code 0{_ran(run)}"
        _finish(run, now, Result(status="ok", exit_code=0, message=words))
        return
    assert first.node is not None
    report = first.node.exit
    words = words_of_failure(first) + _early_ends(run) + _also_lost(run, first)
    if silent:
        names = listed([who(run.slots[index]) for index in silent])
        words += f"; nothing was heard since of {names}, which may have failed before"
    if report is None:
        hint = "look at its worker run's log; out of memory and preemption are the usual causes"
        _finish(run, now, _failure(Cause.NODE_LOST, words, first, hint))
        return
    hint = "; ".join(filter(None, [_HINTS.get(report.exit_code), words_of_odd(run)]))
    result = _failure(
        Cause.PROGRAM_FAILED, words, first, hint, exit_code=report.exit_code, report=report
    )
    _finish(run, now, result)


def _ran(run: Run) -> str:
    """How long the longest program ran, by its node's clock; the registry's may have stood still.

    Nothing where no node has said it.
    """
    exits = [slot.node.exit for slot in run.slots if slot.node and slot.node.exit]
    times = [report.ran_seconds for report in exits if report.ran_seconds is not None]
    return f" after {max(times):.0f} s" if times else ""


_HINTS = {
    134: "a gloo job may abort like this after it has finished well: end the script with os._exit",
    137: "SIGKILL is often the kernel's, out of memory, or the scheduler's",
}


def _early_ends(run: Run) -> str:
    """The nodes whose program had ended well by itself: what the others then failed of."""
    exits = [(slot, slot.node.exit) for slot in run.slots if slot.node and slot.node.exit]
    ended = [slot for slot, report in exits if report.exit_code == 0 and not report.stopped]
    if not ended:
        return ""
    return f"; {listed([who(slot) for slot in ended])} had ended with exit code 0"


def _also_lost(run: Run, first: Slot) -> str:
    """The nodes that were lost besides: since when, is known no better than to a lease."""
    failed = [slot for slot in run.slots if slot.node and slot.node.failed_at is not None]
    lost = [slot for slot in failed if slot is not first and slot.node and not slot.node.exit]
    return f"; also lost: {listed([who(slot) for slot in lost])}" if lost else ""


def _failure(
    code: str,
    message: str,
    slot: Slot | None,
    hint: str = "",
    *,
    exit_code: int | None = None,
    report: ExitReport | None = None,
) -> Result:
    """The result of a run that failed, with its cause's own exit code if no other one is given."""
    if exit_code is None:
        assert isinstance(code, Cause)
        exit_code = code.exit_code
    node = slot.node if slot else None
    return Result(
        status="failed",
        exit_code=int(exit_code),
        code=code,
        message=message,
        hint=hint,
        slot=slot.index if slot else None,
        rank=node.rank if node else None,
        hostname=node.join.hostname if node else "",
        worker_rank=report.worker_rank if report else None,
        tail=list(report.tail) if report else [],
        log=report.log if report else "",
    )


def _finish(run: Run, now: float, result: Result) -> None:
    if run.phase is Phase.FINISHED:
        return
    run.result = result
    run.finished_at = now
    run.stop = True
    _enter(run, Phase.FINISHED, now)


def _left(run: Run, event: events.Left, now: float) -> Outcome:
    slot = run.slots[event.slot]
    assert slot.node is not None
    over = run.phase is Phase.FINISHED or slot.node.state in OVER
    name = who(slot)
    if over:
        slot.node.state = NodeState.LEFT
        return Outcome(f"{name} has left", slot.index, usual=True)
    reason = _node_lost(run, slot, "its agent left before the end", 0.0, now)
    return Outcome(reason, slot.index)


def _lost(run: Run, event: events.Lost, now: float) -> Outcome:
    slot = run.slots[event.slot]
    return Outcome(_node_lost(run, slot, event.reason, event.silent_seconds, now), slot.index)


def _node_lost(run: Run, slot: Slot, why: str, silent: float, now: float) -> str:
    node = slot.node
    assert node is not None
    if node.state is NodeState.RELEASED:
        node.state = NodeState.LEFT
        return f"{who(slot)}, which was released, has gone: {why}"
    ended = node.state is NodeState.EXITED
    if run.rules.is_forming:
        return _before_go_failed(run, slot, why, Cause.NODE_LOST, now)
    node.state = NodeState.LOST
    if not ended:
        slot.problem = why
    if run.phase is not Phase.FINISHED:
        if not ended:
            node.failed_at = now - silent
            _begin_stop(run, now)
        _check_all_over(run, now)
    return f"{who(slot)} was lost: {why}"


def _before_go_failed(
    run: Run, slot: Slot, why: str, cause: Cause, now: float, report: ExitReport | None = None
) -> str:
    """Nobody has started yet: fill the slot again, spare it, or end the run with this cause."""
    words = f"{who(slot)} failed before the go: {why}"
    slot.problem = why
    recovery = recovery_of(run, slot, again=run.spec.managed or _was_taken_away(slot, report))
    if recovery is not None:
        return f"{words}; {_recover(run, slot, recovery, now)}"
    exit_code = report.exit_code or None if report else None
    result = _failure(cause, words, slot, exit_code=exit_code, report=report)
    if slot.node is not None:
        slot.node.state, slot.node.exit = NodeState.LOST, report
    _finish(run, now, result)
    return words


_ENDED_BY_TERM = 128 + 15


def _was_taken_away(slot: Slot, report: ExitReport | None) -> bool:
    """Whether the platform that has started the node may do so again, where no launcher does.

    Kubernetes replaces a pod that it has evicted. A node that failed by itself would fail again,
    and one whose end the launcher has seen is its own child, which nobody else starts.
    """
    if report is None:
        return slot.state not in DEAD_SUBMISSIONS
    return report.exit_code == _ENDED_BY_TERM


class Recovery(Enum):
    """How a run that forms goes on without a slot's node, as a sentence says it."""

    LEFT_OUT = "the run goes without it"
    ON_ITS_WAY = "its generation {generation} is on the way"
    RESTARTED = "it is waited for, as its platform may start it again"
    RESUBMITTED = "it is submitted again as generation {generation}"
    SPARED = "the run can spare it"


def recovery_of(run: Run, slot: Slot, *, again: bool) -> Recovery | None:
    """How the run goes on without the slot's node; None when it cannot.

    One that the table goes without anyway is not waited for again.

    Args:
        run: The run.
        slot: The slot.
        again: Whether another worker run, or another start of its platform, may do better.
    """
    node = slot.node
    if slot.index in run.attempt.left_out:
        return Recovery.LEFT_OUT
    replaced = node is not None and node.join.generation < slot.generation
    if replaced and slot.state not in DEAD_SUBMISSIONS:
        return Recovery.ON_ITS_WAY
    if again and slot.retries < run.spec.limits.submit_retries:
        return Recovery.RESUBMITTED if run.spec.managed else Recovery.RESTARTED
    return Recovery.SPARED if _can_spare(run, slot) else None


def _recover(run: Run, slot: Slot, recovery: Recovery, now: float) -> str:
    """Go on without the slot's node. Returns how, in words."""
    if recovery in (Recovery.RESTARTED, Recovery.RESUBMITTED):
        slot.retries += 1
    if recovery is Recovery.RESUBMITTED:
        slot.wanted = slot.generation + 1
    slot.given_up = slot.given_up or recovery in (Recovery.LEFT_OUT, Recovery.SPARED)
    _empty(run, slot, now)
    return recovery.value.format(generation=slot.wanted)


def _can_spare(run: Run, slot: Slot) -> bool:
    """With min:max or spares: whether the others are enough without this slot."""
    others = [s for s in run.slots if s is not slot and not s.given_up]
    return slot.index != 0 and len(others) >= run.spec.min_nodes


def _empty(run: Run, slot: Slot, now: float) -> None:
    """Take the node out of its slot, whose clock starts again; a table that it is in is dropped."""
    was_in = slot.node is not None and slot.index not in run.attempt.left_out
    slot.node = None
    run.attempt.left_out.pop(slot.index, None)
    slot.waited, slot.waiting_since = 0.0, None
    run.missing.add(slot.index)
    _count_waiting(slot, now)
    if was_in and run.rules.awaits is Awaits.REPORTS:
        _gather_again(run, now)
    _check_gathered(run, now)


def _timed_out(run: Run, event: events.TimedOut, now: float) -> Outcome:
    rules = RULES[event.phase]
    if rules.awaits is Awaits.NODES:
        return _join_timed_out(run, now, event.trouble)
    names, timeout = _names(run, run.waiting_for), run.phase_timeout()
    words = f"{names} did not {rules.task} within {timeout:.0f} s, though still connected"
    late = dict.fromkeys(run.waiting_for, LeftOut(rules.cause, words))
    if event.phase is Phase.VERIFYING and _can_go_without(run, late):
        run.attempt.left_out = run.attempt.left_out | late
        return Outcome(words + _carry_out(run, plan_checks(run, now), now))
    if event.phase is Phase.ARMING and (left_out := plan_without(run, late)) is not None:
        return Outcome(words + _seal_without(run, late, left_out, now))
    slot = run.slots[min(run.waiting_for)]
    _finish(run, now, _failure(rules.cause, words, slot, f"look at the log of {who(slot)}"))
    return Outcome(words)


def _join_timed_out(run: Run, now: float, trouble: str) -> Outcome:
    # `apply` takes what the journal says, also from a version that judged otherwise.
    overdue = overdue_slots(run, now) or [run.slots[min(run.missing)]]
    limit = run.spec.limits.join_timeout_seconds
    known = trouble or "; ".join(what_is_known(run.spec, slot) for slot in overdue[:5])
    more = f"; and {len(overdue) - 5} more" if len(overdue) > 5 and not trouble else ""
    words = (
        f"run '{run.id}' expected {nodes_text(run.spec)} and {run.present} joined "
        f"within {limit:.10g} s: {known}{more}"
    )
    hint = "" if trouble else _hint_for_missing(run, overdue[0])
    _finish(run, now, _failure(Cause.JOIN_TIMEOUT, words, overdue[0], hint))
    return Outcome(words, overdue[0].index)


def _hint_for_missing(run: Run, slot: Slot) -> str:
    if slot.generation == 0 and run.spec.managed:
        return "what its launcher has said before tells why"
    if slot.state is SlotState.SUBMITTING:
        return "its scheduler has not taken the worker run yet: launch again when it answers"
    if slot.state is SlotState.SUBMITTED:
        return (
            "launch again with a larger --join-timeout; where you start worker runs yourself, "
            "start all of them within it"
        )
    return "see the log of the missing worker run; it must be able to open the registry's address"


def _last_call_over(run: Run, event: events.LastCallOver, now: float) -> Outcome:
    words = f"last call is over: {run.present} nodes are in"
    return Outcome(words + _end_gathering(run, now))


def _verdict_fell(run: Run, event: events.VerdictFell, now: float) -> Outcome:
    _give_verdict(run, now, event.unheard)
    assert run.result is not None
    return Outcome(run.result.message)


def _cancelled(run: Run, event: events.Cancelled, now: float) -> Outcome:
    empty = [slot for slot in run.slots if slot.problem and slot.node is None]
    before = f"; before that, slot {empty[0].index} failed: {empty[0].problem}" if empty else ""
    result = Result(
        status="cancelled",
        exit_code=int(ExitCode.CANCELLED),
        code=event.code,
        message=f"run '{run.id}' was cancelled: {event.reason}{before}",
    )
    _finish(run, now, result)
    assert run.result is not None
    return Outcome(run.result.message)


def _restarted(run: Run, event: events.Restarted, now: float) -> Outcome:
    return Outcome("the registry came back on its journal; every node has a full lease again")


_MOVES: dict[str, Callable[[Run, Any, float], Outcome]] = {
    "created": _created,
    "slot": _slot_changed,
    "joined": _joined,
    "refused": _refused,
    "probed": _probed,
    "acked": _acked,
    "arm_refused": _arm_refused,
    "progressed": _progressed,
    "exited": _exited,
    "left": _left,
    "lost": _lost,
    "timed_out": _timed_out,
    "last_call_over": _last_call_over,
    "verdict": _verdict_fell,
    "cancelled": _cancelled,
    "restarted": _restarted,
}
