"""Programs run, end, and fail; the first cause is the verdict. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rendezvous.proof.interfaces import words_of_odd
from rendezvous.run import departures, events, features, fences, head, restarts, worlds
from rendezvous.run.arming import go_if_ready
from rendezvous.run.decision import Outcome
from rendezvous.run.ends import first_failed, last_output, words_of_exit
from rendezvous.run.gathering import before_go_failed, worker_run_is_over
from rendezvous.run.leases import Leases
from rendezvous.run.missing import failed_before
from rendezvous.run.moves import begin_stop, failure, finish
from rendezvous.run.phases import Awaits
from rendezvous.run.replacing import refill
from rendezvous.run.state import OVER, Run, Slot, who
from rendezvous.wire.errors import PREEMPTED_HINT, Cause, ExitCode
from rendezvous.wire.run import NodeState, Phase, Result
from rendezvous.wire.words import all_of, listed, reason_clause

if TYPE_CHECKING:
    from rendezvous.run.first_cause import FirstCause


def unheard(run: Run, now: float, leases: Leases) -> list[Slot]:
    """The nodes that have said nothing since all were told to stop, which wakes every watch: one
    of them may be the first cause, not yet known."""
    assert run.stopped_at is not None
    since_stop = now - run.stopped_at
    return [
        slot
        for slot in run.members()
        if slot.its_node.state is not NodeState.STANDBY
        if leases.is_unheard(key := (slot.index, slot.its_node.incarnation))
        or leases.silent_seconds(key, now) >= since_stop
    ]


def progressed(run: Run, event: events.Progressed, now: float) -> Outcome:
    """Keep the newest words."""
    slot = run.slots[event.slot]
    slot.its_node.progress = event.report.words
    slot.its_node.progress_is_over = event.report.over
    usual = not event.report.warning
    return Outcome(f"{who(slot)}: {event.report.words}", slot.index, usual=usual)


def exited(run: Run, event: events.Exited, now: float) -> Outcome:
    """Note how the program ended; the first failure stops the others."""
    slot, report = run.slots[event.slot], event.report
    node = slot.its_node
    if restarts.is_history(run, report):
        return restarts.told_late(run, event, now)
    node.reported = report.epoch
    if run.rules.is_forming:
        words = report.message or f"its agent ended with code {report.exit_code}"
        why = before_go_failed(run, slot, words, Cause.AGENT_FAILED, now, report)
        return Outcome(why, slot.index)
    if node.state is NodeState.STANDBY:
        why = report.message or f"its agent ended with code {report.exit_code}"
        return Outcome(_standby_lost(run, slot, why, now), slot.index)
    node.state, node.exit, node.ended_at = NodeState.EXITED, report, now
    run.waiting_for.discard(slot.index)
    reason = f"{who(slot)} {words_of_exit(report)}"
    world = ""
    if report.epoch == run.epoch:
        world = worlds.take(run, slot.index, report.worlds)
    failed = report.exit_code != 0 and not (report.stopped and run.stop)
    failed |= report.fenced and not run.stop
    if failed:
        node.failed_at = now - report.age_seconds
        begin_stop(run, now)
    else:
        departures.ended_well(run, slot)
    leader_ended = run.spec.led and node.number == 0 and report.exit_code == 0
    if leader_ended and not run.stop:
        _give_verdict(run, now)
    elif head.has_ended(run, slot, now):
        finish(run, now, _ok(run, head.end_all(run)))
    then = _check_all_over(run, now)
    reason += f"; {world}" if world else ""
    return Outcome(reason + then, slot.index, usual=not (failed or then or world))


def _check_all_over(run: Run, now: float) -> str:
    """Decide once nothing runs any more. Returns a clause describing a restart."""
    if run.rules.awaits is Awaits.PROGRAMS and not run.waiting_for:
        return _give_verdict(run, now)
    return ""


def found_cause(run: Run) -> FirstCause | None:
    """The first cause of what has failed since the go; where nothing has, nothing is imported."""
    if first_failed(run) is None:
        return None
    from rendezvous.run.first_cause import first_cause

    return first_cause(run)


def _give_verdict(run: Run, now: float, silent: Sequence[int] = ()) -> str:
    """Start again, or end the run. Returns a clause describing a restart."""
    found = found_cause(run)
    step = restarts.next_step(run, found, now)
    if isinstance(step, restarts.Again):
        return f"; {restarts.begin_again(run, step, found, now)}"
    if step.gone is not None:
        from rendezvous.run.first_cause import hint_of

        finish(run, now, failure(Cause.NODE_LOST, step.why, step.gone, hint_of("node_lost")))
    elif found is None:
        _end_unfailed(run, now, step.why)
    else:
        _end(run, now, found, silent, step.why)
    return ""


def _end_unfailed(run: Run, now: float, why: str) -> None:
    """End a run in which no program has failed; `why` no restart follows a stall."""
    is_told = run.stop or run.departure is not None
    if (stalled := features.result_of(run, why)) is not None:
        finish(run, now, stalled)
        return
    if is_told and restarts.was_stopped(run):
        finish(run, now, _result_of_stopped(run))
        return
    count = len(run.table.rows) if run.table else 0
    who_ended = all_of(count)
    if run.spec.led and count > 1:
        who_ended = f"the program of node 0, which led {count} nodes,"
    words = f"{who_ended} ended with exit code 0"
    finish(run, now, _ok(run, words))


def _ok(run: Run, words: str) -> Result:
    """The result of a run whose programs have all ended well, in whichever world."""
    result = Result(status="ok", exit_code=0, exit_code_of="program", message=words)
    if run.world is None:
        return result
    words, hint = f"{worlds.words_of(run.world, over=True)}; {words}", run.world.next_step
    if run.spec.strict:
        words += ", and '--strict' makes this a failure"
        return failure(Cause.WRONG_WORLD, words, None, hint)
    about = {"warning": Cause.WRONG_WORLD, "message": words, "hint": hint}
    return result.model_copy(update=about)


def _end(run: Run, now: float, found: FirstCause, silent: Sequence[int], why: str) -> None:
    """End the run with its first cause; `why` no restart follows it."""
    failed, report = found.failed, found.report
    preempted = _is_preempted(failed)
    more = _early_ends(run) * (found.row != "early_end") + _also_lost(run, failed)
    if silent:
        names = listed([who(run.slots[index]) for index in silent])
        more += f"; no report since then from {names}, which may have failed earlier"
    words = found.words(more + departures.clause_of(run, failed) + (f"; {why}" if why else ""))
    if preempted:
        result = failure(Cause.PREEMPTED, words, failed, PREEMPTED_HINT, report=report)
    elif report is None or report.fenced:
        result = failure(Cause.NODE_LOST, words, failed, found.said.hint)
    else:
        odd = words_of_odd(run.attempt.findings, run.hostnames())
        hint = "; ".join(filter(None, [departures.hint_of(report) or found.said.hint, odd]))
        code = found.exit_code
        result = failure(Cause.PROGRAM_FAILED, words, failed, hint, exit_code=code, report=report)
        tail = last_output(found.slot.its_node.exit or report)
        result = result.model_copy(update={"tail": tail})
    stood = None if found.judged.blames else features.standing(run, now)
    finish(run, now, result.model_copy(update={**found.fields(), "finding": stood}))


def _result_of_stopped(run: Run) -> Result:
    """Of a run whose programs were stopped, and did not fail: never ok, whatever stopped them.

    For a departure, else by hand.
    """
    if run.departure is not None:
        return departures.result_of(run, run.departure)
    return _cancelled(run, Cause.CANCELLED, "all programs were stopped, and are not started again")


def _cancelled(run: Run, code: str, why: str, before: str = "") -> Result:
    return Result(
        status="cancelled",
        exit_code=int(ExitCode.CANCELLED),
        code=code,
        message=f"run '{run.id}' was cancelled{reason_clause(why)}{before}",
    )


def _is_preempted(slot: Slot) -> bool:
    """Whether the scheduler has said in time that it preempted the worker run of the node."""
    return slot.cause == Cause.PREEMPTED and slot.its_node.join.generation == slot.generation


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


def left(run: Run, event: events.Left, now: float) -> Outcome:
    """A node that leaves before the end is lost."""
    slot = run.slots[event.slot]
    node, name = slot.its_node, who(slot)
    over = run.phase is Phase.FINISHED or node.state in OVER
    if over:
        node.state = NodeState.LEFT
        fences.has_gone(run, slot.index, event.incarnation)
        then = go_if_ready(run, now)
        return Outcome(f"{name} has left{then}", slot.index, usual=not then)
    reason = _node_lost(run, slot, "its agent left before the end", now)
    return Outcome(reason, slot.index)


def lost(run: Run, event: events.Lost, now: float) -> Outcome:
    """Before the go the node is replaced or spared; after it the run ends."""
    slot = run.slots[event.slot]
    if not event.closed and not worker_run_is_over(slot):
        slot.its_node.silent_since = now - event.silent_seconds
    return Outcome(_node_lost(run, slot, event.reason, now, event.silent_seconds), slot.index)


def _standby_lost(run: Run, slot: Slot, why: str, now: float) -> str:
    """No program ran on it: those of the others go on."""
    name, slot.problem = who(slot), why
    how = refill(run, slot, now)
    return f"{name}, a standby, was lost: {why}" + (f"; {how}" if how else "")


def _node_lost(run: Run, slot: Slot, why: str, now: float, silent: float = 0.0) -> str:
    node = slot.its_node
    if node.state is NodeState.RELEASED:
        node.state = NodeState.LEFT
        if node.silent_since is None:
            fences.has_gone(run, slot.index, node.incarnation)
        elif run.starts.fences:
            fences.fell_silent(run, slot)
        return f"{who(slot)}, which was released, has left: {why}{go_if_ready(run, now)}"
    if node.state is NodeState.STANDBY and run.phase is Phase.RUNNING:
        return _standby_lost(run, slot, why, now)
    ended = node.state is NodeState.EXITED
    if run.rules.is_forming:
        return before_go_failed(run, slot, why, Cause.NODE_LOST, now)
    node.state = NodeState.LOST
    run.waiting_for.discard(slot.index)
    if not ended:
        slot.problem = why
    if run.phase is not Phase.FINISHED:
        if not ended:
            node.failed_at = now - silent
            begin_stop(run, now)
        why += _check_all_over(run, now)
    return f"{who(slot)} was lost: {why}"


def verdict_fell(run: Run, event: events.VerdictFell, now: float) -> Outcome:
    """End the run with the first cause."""
    then = _give_verdict(run, now, event.unheard)
    if run.result is None:
        return Outcome(f"{run.starts.ended[-1].message}{then}")
    return Outcome(run.result.message)


def cancelled(run: Run, event: events.Cancelled, now: float) -> Outcome:
    """End the run, and say what had failed before."""
    empty = next((slot for slot in run.slots if slot.problem and slot.node is None), None)
    before = ""
    if empty is not None:
        whose = "an earlier worker run of slot" if failed_before(empty) else "slot"
        before = f"; before that, {whose} {empty.index} failed: {empty.problem}"
    result, found = _cancelled(run, event.code, event.reason, before), features.standing(run, now)
    if found is not None:
        result = result.model_copy(update={"finding": found, "hint": found.next_step})
    finish(run, now, result)
    assert run.result is not None
    return Outcome(run.result.message)
