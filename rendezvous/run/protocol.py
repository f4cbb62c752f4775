"""The state machine of one run. Pure: values in, values out; the clock is one of the values.

    gathering -> verifying -> arming -> running -> finished(ok | failed | cancelled)
        ^___________|___________|  ^       |     a node is lost before the go: gather again
        |                          |_ restarting     a program failed: see `rendezvous.run.restarts`
        |____________________________________|     a node was lost: see `rendezvous.run.replacing`

Verifying goes in rounds. Before the first one, what the nodes found on themselves and how they
compare is judged; each round then proves the addresses of one network class, in order of
preference, and is an epoch of its own. The first class is taken in which every directed pair that
was planned has worked. A run without `verify` takes the first class, and arms.

Rules
  - `rendezvous.run.admission` says which event a request is, `due` gives those that time brings,
    and `decide` changes the run by one; it never refuses. A replay decides nothing: it applies what
    was decided then (`rendezvous.run.fold`).
  - A slot is filled by one incarnation at a time. A newer generation displaces an older one at
    once; within a generation a live holder keeps its slot until it is suspect. What an older
    incarnation says is `fenced`.
  - Nobody starts before every node of the table has acknowledged the table's digest. The table of
    an epoch never changes; whatever changes it makes a new epoch.
  - Before the go, a node that is lost or fails is submitted again as often as `submit_retries`
    allows, or spared where min:max allows it, else the run fails with that cause. After the go it
    fails the run, unless that outlives its nodes.
  - A node that refuses to join fails as one that is lost, and is submitted again only where another
    worker run may do better.
  - Before the go, a worker run that is over for its scheduler is lost. After the go its lease says
    so: an agent that is heard of is alive, and only the lease knows since when it is not.
  - A node that fails a check or its peers ends the run, unless enough others are there without it
    (spares, min:max): then it is left out. The best `max_nodes` make the table: those that passed,
    with the lowest slots. Slot 0 is never left out. Whoever is left out stays until the go, as the
    nodes may have to gather again, and is released then.
  - In a led run only node 0 has a program, and the other nodes serve it: the run is over with its
    end. A node that is lost ends the run as ever.
  - Where all have programs and the run ends with node 0, see `rendezvous.run.head`.
  - The first cause is the failure that happened first, by age, not the one that was told first.
  - Each decision has its reason, in words; the reply, the log, the board and the tests use it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rendezvous.run import (
    arming,
    departures,
    events,
    features,
    fences,
    gathering,
    head,
    refusals,
    restarts,
    running,
    verifying,
    worlds,
)
from rendezvous.run.changes import Writer
from rendezvous.run.decision import Decision, Outcome
from rendezvous.run.events import Event
from rendezvous.run.leases import Leases, Silence
from rendezvous.run.moves import failure, finish
from rendezvous.run.phases import RULES, Awaits
from rendezvous.run.replacing import due_again, give_up, outlives, submit_again, why_not
from rendezvous.run.state import GONE, LeftOut, Run, Slot, names_of, nodes_text, who
from rendezvous.run.tracked import Assigned, track
from rendezvous.wire.run import Phase, SlotNews, SlotState
from rendezvous.wire.words import slots_text


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
                closed=silence.closed,
                reason=_words_of_silence(slot, silence),
            )
        )
    if run.phase is Phase.FINISHED or out:
        return out
    if (event := _phase_due(run, now)) is not None:
        out.append(event)
    elif fences.are_over(run, now):
        out.append(events.FenceOver())
    elif slots := due_again(run, now):
        out += [events.SubmitAgain(slot=slot.index) for slot in slots]
    elif _verdict_due(run, now, leases):
        out.append(events.VerdictFell())
    return out


def launcher_gone(run: Run) -> list[Event]:
    """Its launcher is not heard of: what it said of the scheduler's queue holds no longer, and the
    clocks of those slots go on."""
    detail = "it was queued when its launcher last reported"
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
        if gathering.worker_run_is_over(slot)
        and (node := slot.live_node()) is not None
        and (seconds := leases.silent_seconds((slot.index, node.incarnation), now))
        >= leases.suspect_after
    ]


def _verdict_due(run: Run, now: float, leases: Leases) -> bool:
    if run.verdict_at is None or now < run.verdict_at:
        return False
    if run.stopped_at is not None and head.is_awaited(run, now - run.stopped_at):
        return False
    waited = min(now - run.verdict_at, leases.granted_seconds(now))
    waited_enough = waited >= leases.dead_after
    return waited_enough or not running.unheard(run, now, leases)


def _words_of_silence(slot: Slot, silence: Silence) -> str:
    if gathering.worker_run_is_over(slot):
        return gathering.words_of_end(slot.detail)
    if silence.closed:
        return "its agent is gone: its connection was closed and it did not reconnect"
    return f"it was silent for {silence.seconds:.0f} s: host, network or agent is down or paused"


def _phase_due(run: Run, now: float) -> Event | None:
    limits = run.spec.limits
    if run.rules.awaits is Awaits.NODES:
        if gathering.overdue_slots(run, now):
            return events.TimedOut(phase=run.phase)
        if (end := refusals.cannot_complete(run, now)) is not None:
            return end
        since = run.attempt.enough_since
        if since is not None and now - since >= limits.last_call_seconds:
            return events.LastCallOver()
        return None
    if run.rules.awaits is Awaits.TIME:
        due_at = run.starts.due_at
        return events.BackOffOver() if due_at is not None and now >= due_at else None
    if run.rules.awaits is Awaits.PROGRAMS:
        departure = run.departure
        is_due = departure is not None and not run.stop and now >= departure.stop_at
        return events.DepartureDue() if is_due else None
    timeout = run.phase_timeout()
    if timeout is not None and run.waiting_for and now - run.phase_since >= timeout:
        return events.TimedOut(phase=run.phase)
    return None


def decide(run: Run, event: Event, now: float) -> Decision:
    """Decide on one event, which changes the run; `rendezvous.run.fold.apply` does the same again
    by the decision alone. Deterministic."""
    run.version += 1
    assigned: Assigned = {}
    track(assigned)
    try:
        outcome = _MOVES[event.kind](run, event, now)
    finally:
        track(None)
    writer = Writer(run, event, assigned)
    return Decision(outcome, writer.write(), writer.table)


def _created(run: Run, event: events.Created, now: float) -> Outcome:
    return Outcome(f"run '{run.id}' was created for {nodes_text(run.spec)}", usual=True)


def _timed_out(run: Run, event: events.TimedOut, now: float) -> Outcome:
    rules = RULES[event.phase]
    if rules.awaits is Awaits.NODES:
        return gathering.join_timed_out(run, now, event.trouble)
    names, timeout = names_of(run, run.waiting_for), run.phase_timeout()
    words = f"{names} did not {run.task} within {timeout:.0f} s, though still connected"
    late = dict.fromkeys(run.waiting_for, LeftOut(rules.cause, words))
    if event.phase is Phase.VERIFYING and run.can_go_without(late):
        run.attempt.left_out = {**run.attempt.left_out, **late}
        return Outcome(words + verifying.carry_out(run, verifying.plan_checks(run, now), now))
    if event.phase is Phase.ARMING and (left_out := arming.plan_without(run, late)) is not None:
        return Outcome(words + arming.seal_without(run, late, left_out, now))
    if outlives(run) and not why_not(run, late):
        words += f"; {give_up(run, late, now)}"
        return Outcome(words + gathering.check_gathered(run, now))
    slot = run.slots[min(run.waiting_for)]
    finish(run, now, failure(rules.cause, words, slot, f"see the log of {who(slot)}"))
    return Outcome(words)


def _arm_refused(run: Run, event: events.ArmRefused, now: float) -> Outcome:
    outcome = arming.arm_refused(run, event, now)
    then = gathering.check_gathered(run, now)  # others may be there in its place
    return replace(outcome, reason=outcome.reason + then)


def _restarted(run: Run, event: events.Restarted, now: float) -> Outcome:
    return Outcome("the registry restarted from its journal; all leases were renewed")


def _fence_over(run: Run, event: events.FenceOver, now: float) -> Outcome:
    over = sorted({one.slot for one in fences.drop_over(run, now)})
    words = f"{slots_text(over)}: nothing that a lost node had started runs any more"
    return Outcome(words + arming.go_if_ready(run, now))


_MOVES: dict[str, Callable[[Run, Any, float], Outcome]] = {
    "created": _created,
    "slot": gathering.slot_changed,
    "joined": gathering.joined,
    "refused": gathering.refused,
    "join_refused": refusals.join_refused,
    "cannot_complete": refusals.never_completes,
    "probed": verifying.probed,
    "acked": arming.acked,
    "arm_refused": _arm_refused,
    "progressed": running.progressed,
    "exited": running.exited,
    "departs": departures.departs,
    "departure_due": departures.departure_due,
    "worlds": worlds.reported,
    "noted": features.noted,
    "stop_asked": features.stop_asked,
    "left": running.left,
    "lost": running.lost,
    "timed_out": _timed_out,
    "last_call_over": gathering.last_call_over,
    "verdict": running.verdict_fell,
    "restart_asked": restarts.restart_asked,
    "backoff_over": restarts.backoff_over,
    "fence_over": _fence_over,
    "submit_again": submit_again,
    "cancelled": running.cancelled,
    "restarted": _restarted,
}
