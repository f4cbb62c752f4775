"""Slots are filled, and filled again as long as no program has started. Pure."""

from __future__ import annotations

from enum import Enum

from rendezvous.proof.origins import Origin, origin_of, words_of_origin
from rendezvous.run import events, fences, missing, refusals
from rendezvous.run.arming import go_if_ready
from rendezvous.run.decision import Outcome
from rendezvous.run.explaining import completed
from rendezvous.run.moves import failure, finish, gather_again
from rendezvous.run.phases import Awaits
from rendezvous.run.places import begin_generation, count_waiting, may_be_there, vacate
from rendezvous.run.replacing import outlives, refill, try_again, why_not
from rendezvous.run.state import (
    DEAD_SUBMISSIONS,
    NOT_NEEDED,
    STANDS_BY,
    Attempt,
    Node,
    Run,
    Slot,
    who,
)
from rendezvous.run.verifying import carry_out, plan_checks
from rendezvous.wire.errors import PREEMPTED_HINT, Cause, ExitCode
from rendezvous.wire.reports import ExitReport
from rendezvous.wire.run import NodeState, SlotNews, SlotState


def worker_run_is_over(slot: Slot) -> bool:
    """Whether the worker run of the node that is in the slot has ended, as its scheduler says."""
    node = slot.node
    present = node is not None and node.join.generation == slot.generation
    return present and slot.state in DEAD_SUBMISSIONS


def cause_of(slot: Slot, other: Cause) -> Cause:
    """Why a slot failed: the preemption of its worker run, where the scheduler says so."""
    return Cause.PREEMPTED if slot.cause == Cause.PREEMPTED else other


def words_of_end(detail: str) -> str:
    """That the worker run of a node has ended."""
    return f"its worker run ended: {detail}" if detail else "its worker run ended"


def slot_changed(run: Run, event: events.SlotChanged, now: float) -> Outcome:
    """Keep what the scheduler says; before the go a dead worker run is replaced or spared."""
    slot, news = run.slots[event.slot], event.news
    if news.explains:
        run.explained = completed(run, slot, news)
        return Outcome(f"slot {slot.index}: its scheduler reports: {news.detail}", slot.index)
    if news.state in DEAD_SUBMISSIONS:
        fences.worker_run_ended(run, slot.index, news.generation)
    if news.generation < slot.generation:
        reason = f"an older worker run of slot {slot.index} has ended"
        return Outcome(reason + go_if_ready(run, now), slot.index)
    if news.generation > slot.generation:
        begin_generation(slot, news.generation, now)
        if news.token_sha256 is not None:
            slot.tokens = {**slot.tokens, news.generation: news.token_sha256}
    if news.state is not slot.state:
        slot.since = now
    slot.state, slot.detail, slot.cause = news.state, news.detail, news.cause
    slot.name, slot.handle = news.name or slot.name, news.handle or slot.handle
    count_waiting(slot, now)
    if news.state in DEAD_SUBMISSIONS and _is_followed(run):
        died = _submission_died(run, slot, news, now)
        if died is not None:
            return Outcome(died, slot.index)
    if news.state is SlotState.SUBMITTING and run.rules.is_forming and _is_untold(slot, news):
        return Outcome(f"slot {slot.index} could not be submitted yet: {news.detail}", slot.index)
    said = f" ({news.detail})" if news.detail else ""
    again = f", generation {slot.generation}" if slot.generation > 1 else ""
    reason = f"slot {slot.index}{again}: {news.state}{said}"
    then = go_if_ready(run, now)
    return Outcome(reason + then, slot.index, usual=not then)


def _is_followed(run: Run) -> bool:
    """Whether the end of a worker run changes anything before its node's lease has run out."""
    return outlives(run) or (run.rules.is_forming and not run.starts.ended)


def _is_untold(slot: Slot, news: SlotNews) -> bool:
    """Whether the scheduler's words are new; from now on they are not."""
    if not news.detail or news.detail in slot.told:
        return False
    slot.told = news.detail
    return True


def _submission_died(run: Run, slot: Slot, news: SlotNews, now: float) -> str | None:
    """What follows from it, in words; None when nothing does (any more)."""
    if slot.wanted > news.generation:  # its node may be there still, or have left
        return None
    if slot.node is not None and slot.node.state is not NodeState.RELEASED:
        if not (run.rules.is_forming and worker_run_is_over(slot)):
            return None
        why, code = words_of_end(news.detail), cause_of(slot, Cause.NODE_LOST)
        return before_go_failed(run, slot, why, code, now)
    if slot.given_up:
        return None
    how = "worker run ended before it joined" if slot.handle else "submission failed"
    why = f"its {how}: {news.detail}" if news.detail else f"its {how}"
    said = why if _is_untold(slot, news) else f"its {how}"
    code = cause_of(slot, Cause.SCHEDULER_FAILED)
    if not outlives(run):
        return before_go_failed(run, slot, why, code, now, said=said, hint=news.hint)
    slot.problem = why
    words = f"slot {slot.index} failed: {said}"
    if slot.cause == Cause.SCHEDULER_FAILED:
        return f"{words}; {_never_comes(run, slot, why, news.hint, now)}"
    return f"{words}; {try_again(run, slot, now)}"


def _never_comes(run: Run, slot: Slot, why: str, hint: str, now: float) -> str:
    """Another worker run would end as this one: go on without the slot, or end the run. Returns
    what follows, in words."""
    is_spared = not run.needs(slot.index) and may_be_there(run, [slot.index]) >= run.spec.min_nodes
    if not is_spared:
        reason = f"slot {slot.index} failed before the restart: {why}"
        finish(run, now, failure(Cause.SCHEDULER_FAILED, reason, slot, hint))
        return "no other one would do better"
    slot.given_up, slot.again_at = True, None
    return f"it is not submitted again{check_gathered(run, now)}"


def joined(run: Run, event: events.Joined, now: float) -> Outcome:
    """Give the slot to the node, in the place of an older one."""
    request = event.request
    slot = run.slots[request.slot]
    displaced = slot.live_node()
    slot.incarnations += 1
    if request.generation > slot.generation:
        begin_generation(slot, request.generation, now)
    slot.node = Node(slot.incarnations, request, event.source, event.here)
    slot.joins = {**slot.joins, request.join_id: slot.incarnations}
    slot.problem, slot.told, slot.refused, slot.given_up = "", "", None, False
    slot.tries, slot.again_at = 0, None
    refusals.has_joined(run, request)
    run.missing.discard(slot.index)
    count_waiting(slot, now)
    if request.job.command_words:
        run.command_slot = (run.other_command(slot.index) or slot).index
    if outlives(run):  # the news may still tell whoever is in this slot to leave it
        run.seq += 1
    stands_by = run.rules.awaits is Awaits.PROGRAMS
    if stands_by:
        slot.node.state = NodeState.STANDBY
    if stands_by or run.attempt.left_out.get(slot.index) == NOT_NEEDED:
        # It has not gathered with the others.
        run.attempt.left_out = {**run.attempt.left_out, slot.index: STANDS_BY}
    if displaced is not None and run.rules.awaits is Awaits.REPORTS:
        gather_again(run, now)
    reason = _who_joined(run, slot, stands_by=stands_by)
    if displaced is not None:
        reason += f", replacing {displaced.join.hostname}"
    is_usual = slot.incarnations == 1 and not stands_by
    went_on = check_gathered(run, now)
    return Outcome(reason + went_on, slot.index, usual=is_usual and not went_on)


def _who_joined(run: Run, slot: Slot, *, stands_by: bool) -> str:
    """Return `h1 joined (1 of 3), from 10.0.0.5`; of a slot that had a node before, also which."""
    name, again = slot.its_node.join.hostname, slot.incarnations > 1
    how = f"joined in slot {slot.index}" if again or stands_by else "joined"
    if stands_by:
        how += " as a standby"
    elif run.spec.slots > 1:
        how += f" ({run.present} of {run.spec.slots})"
    which = f", as incarnation {slot.incarnations}" if again else ""
    return f"{name} {how}{_from_where(slot)}{which}"


def _from_where(slot: Slot) -> str:
    """`, from 10.0.0.5`; where that is none of the node's own addresses, with what it means."""
    node = slot.its_node
    origin = origin_of(node.join, node.source)
    if origin is Origin.UNKNOWN:
        return f" (offering {node.address})"
    if origin is Origin.OWN:
        return f", from {node.source}"
    if node.here:
        return f", from the registry's own machine ({node.address})"
    return f", from {node.source} ({words_of_origin(origin, node.join)})"


def check_gathered(run: Run, now: float) -> str:
    """Go on when all are in that may still come; begin the last call when enough are.

    Returns a clause describing what it did.
    """
    if run.rules.awaits is not Awaits.NODES:
        return ""
    if run.present < run.spec.min_nodes or (0 in run.missing and run.needs(0)):
        run.attempt.enough_since = None
    elif _is_full_again(run) or not any(map(run.may_come, run.missing)):
        return _end_gathering(run, now)
    elif run.attempt.enough_since is None:
        run.attempt.enough_since = now
    return ""


def _is_full_again(run: Run) -> bool:
    """Whether as many are there as the programs have run on; of a run that may shrink, enough."""
    if not outlives(run):
        return False
    before = min(len(run.starts.numbers), run.spec.max_nodes)
    return run.present >= (run.spec.min_nodes if run.spec.on_node_loss == "shrink" else before)


def refused(run: Run, event: events.Refused, now: float) -> Outcome:
    """Keep why a node does not join; the run ends if it is needed and may not come again."""
    slot = run.slots[event.slot]
    slot.problem, slot.refused = event.reason, event
    if event.exit_code is not None:
        return Outcome(_refused_itself(run, slot, event, event.exit_code, now), slot.index)
    if slot.live_node() is None and run.rules.awaits is Awaits.NODES:
        about = slot if event.is_alone else None
        result = failure(event.code, event.reason, about, event.hint, exit_code=ExitCode.REFUSED)
        finish(run, now, result.model_copy(update={"command_word": event.command_word}))
    return Outcome(f"refused: {event.reason}", slot.index)


def _refused_itself(run: Run, slot: Slot, event: events.Refused, exit_code: int, now: float) -> str:
    """A node cannot take part: the run goes on without it, or ends with its cause."""
    if event.generation > slot.generation:
        begin_generation(slot, event.generation, now)
    words = f"slot {slot.index} ({event.hostname}) cannot take part: {event.reason}"
    recovery = recovery_of(run, slot, again=event.retryable and run.spec.managed)
    if recovery is not None:
        return f"{words}; {_recover(run, slot, recovery, now)}"
    result = failure(Cause.REFUSED, words, slot, event.hint, exit_code=exit_code)
    finish(run, now, result.model_copy(update={"hostname": event.hostname}))
    return words


def _end_gathering(run: Run, now: float) -> str:
    run.attempt = Attempt()
    return carry_out(run, plan_checks(run, now), now)


def before_go_failed(
    run: Run,
    slot: Slot,
    why: str,
    cause: Cause,
    now: float,
    report: ExitReport | None = None,
    *,
    said: str = "",
    hint: str = "",
) -> str:
    """Nobody has started yet: fill the slot again, spare it, or end the run with this cause.

    What comes back has `said` in place of the cause, where that has been told already; a result has
    the hint.
    """
    what = "restart" if run.starts.ended else "start"
    failed = f"{who(slot)} failed before the {what}"
    words = f"{failed}: {said or why}"
    slot.problem = why
    cannot = why_not(run, [slot.index]) if outlives(run) else ""
    if outlives(run) and not cannot:
        return f"{words}; {_go_on_without(run, slot, now)}"
    again = run.spec.managed or _was_taken_away(slot, report)
    # The launcher says so of a worker run that no other one of its spec would do better than.
    again = again and slot.cause != Cause.SCHEDULER_FAILED
    recovery = recovery_of(run, slot, again=again)
    if recovery is not None:
        return f"{words}; {_recover(run, slot, recovery, now)}"
    exit_code = report.exit_code or None if report else None
    hint = PREEMPTED_HINT if cause is Cause.PREEMPTED else hint
    why = f"{why}; {cannot}" if cannot else why
    result = failure(cause, f"{failed}: {why}", slot, hint, exit_code=exit_code, report=report)
    if slot.node is not None:
        slot.node.state, slot.node.exit = NodeState.LOST, report
    finish(run, now, result)
    return words


def _go_on_without(run: Run, slot: Slot, now: float) -> str:
    """Between two epochs a node is lost. Returns how the run goes on, in words."""
    was_in = slot.node is not None and slot.index not in run.attempt.left_out
    how = refill(run, slot, now)
    if was_in and run.rules.awaits is Awaits.REPORTS:
        gather_again(run, now)
    then = check_gathered(run, now)
    return (how or Recovery.LEFT_OUT.value) + then


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

    LEFT_OUT = "the run continues without it"
    ON_ITS_WAY = "its next worker run has already been submitted"
    RESTARTED = "the run waits for it, because its platform may start it again"
    RESUBMITTED = "it is submitted again"
    SPARED = "the run does not need it"


def recovery_of(run: Run, slot: Slot, *, again: bool) -> Recovery | None:
    """How the run goes on without the slot's node; None when it cannot.

    One that the table goes without anyway is not waited for again; `again` says whether another
    worker run, or another start of its platform, may do better.
    """
    node = slot.node
    if slot.index in run.attempt.left_out:
        return Recovery.LEFT_OUT
    replaced = node is not None and node.join.generation < slot.generation
    if replaced and slot.state not in DEAD_SUBMISSIONS:
        return Recovery.ON_ITS_WAY
    if run.starts.ended:
        return None  # the programs start again on the same nodes, or not at all
    if again and slot.retries < run.spec.limits.submit_retries:
        return Recovery.RESUBMITTED if run.spec.managed else Recovery.RESTARTED
    return Recovery.SPARED if _can_spare(run, slot) else None


def _can_spare(run: Run, slot: Slot) -> bool:
    """With min:max or spares: whether the others are enough without this slot."""
    others = [s for s in run.slots if s is not slot and not s.given_up]
    return slot.index != 0 and len(others) >= run.spec.min_nodes


def _recover(run: Run, slot: Slot, recovery: Recovery, now: float) -> str:
    """Go on without the slot's node. Returns how, in words.

    The slot's clock starts again; a table that the node is in is dropped.
    """
    if recovery in (Recovery.RESTARTED, Recovery.RESUBMITTED):
        slot.retries += 1
    if recovery is Recovery.RESUBMITTED:
        slot.wanted = slot.generation + 1
    if recovery in (Recovery.LEFT_OUT, Recovery.SPARED):
        slot.given_up = True
    was_in = slot.node is not None and slot.index not in run.attempt.left_out
    vacate(run, slot, now)
    if was_in and run.rules.awaits is not Awaits.NODES:
        gather_again(run, now)
    check_gathered(run, now)
    return recovery.value


def join_timed_out(run: Run, now: float, trouble: str) -> Outcome:
    """End the run with what is known of those that are missing."""
    overdue = overdue_slots(run, now)
    words, hint = missing.timed_out(run, overdue, trouble)
    result = failure(Cause.JOIN_TIMEOUT, words, overdue[0], hint)
    finish(run, now, result.model_copy(update={"evidence": refusals.evidence(run, now)}))
    return Outcome(words, overdue[0].index)


def last_call_over(run: Run, event: events.LastCallOver, now: float) -> Outcome:
    """Go on with those that are in."""
    words = f"the last call ended with {run.present} nodes"
    return Outcome(words + _end_gathering(run, now))


def overdue_slots(run: Run, now: float) -> list[Slot]:
    """The slots without which the run cannot be, once they have had the join time-out; else none.

    With min:max or spares a slot above the minimum is nobody's fault: the run waits as long as
    enough others may still come.
    """
    limit = run.spec.limits.join_timeout_seconds
    missing = [run.slots[index] for index in sorted(run.missing)]
    lost = [slot for slot in missing if slot.given_up or slot.wait_seconds(now) >= limit]
    may_be_there = run.spec.slots - len(lost)
    needed = may_be_there < run.spec.min_nodes or any(run.needs(slot.index) for slot in lost)
    return lost if needed else []
