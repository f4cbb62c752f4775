"""What holds of nodes that say that they will go: see `departures`, and `promises`."""

from __future__ import annotations

import itertools
import signal
from typing import TYPE_CHECKING

from rendezvous.run import events
from rendezvous.run.events import Event
from rendezvous.run.state import OVER, Run
from rendezvous.wire.run import NodeState, Phase
from rendezvous.wire.watch import FENCE_MARGIN_SECONDS, NodeView
from tests.simulation.agents import GRACE_SECONDS
from tests.simulation.epochs import Life, begins_again
from tests.simulation.history import Facts, History, Wrong
from tests.simulation.leaving import MARGIN_SECONDS, due_at, who_leaves
from tests.simulation.promises import LATE, disk_was_bad, is_troubled, poll

if TYPE_CHECKING:
    from tests.simulation.agents import Process
    from tests.simulation.schedule import Fault

_TELL_SECONDS = 1.0
_MOMENT = 0.02
_TOGETHER_SECONDS = 1.0
"""Within which the news of a stop are everywhere, where the network is in order."""
_SHOWN_SECONDS = 1.5
_SHOWN_LATE_SECONDS = 5.0
_SAME_SECONDS = 1.0
_SOONER_SECONDS = 0.5
"""A notice that says so less than another is no news: what tells of it takes a moment."""
_TRY_SECONDS = 2.5
"""How long a request may be on its way, of which nobody knows."""
_OF_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_NEVER_SHOWN = {"no hostfile", "hangs", "breaks", "forged"}


# --- of each record, before it is applied ---------------------------------------------------------


def a_departure_is_of_the_epoch_that_runs(
    history: History, run: Run, coming: events.Departs
) -> Wrong:
    """Nobody is stopped for what a node said of an epoch before."""
    now = (run.epoch, run.phase)
    told = (coming.report.epoch, Phase.RUNNING)
    return None if told == now else f"slot {coming.slot} leaves epoch {told[0]}, it is {now}"


def a_drain_is_taken_as_it_was_asked_for(
    history: History, run: Run, coming: events.Departs
) -> Wrong:
    """A node that is drained goes when the person has said that it will."""
    faults = history.world.schedule.faults
    asked = {x.seconds for x in faults if (x.what, x.slot) == ("drained", coming.slot)}
    wrong = coming.report.words.startswith("drained") and coming.report.seconds not in asked
    return f"slot {coming.slot} in {coming.report.seconds} s, not {asked}" if wrong else None


def a_departure_counts_once(history: History, run: Run, coming: events.Departs) -> Wrong:
    """What a node says again of its departure changes nothing, but that it goes sooner."""
    told = [
        one
        for one in history.of(run).departures.of(coming.report.epoch)
        if (one.slot, one.incarnation) == (coming.slot, coming.incarnation)
    ]
    if not told:
        return None
    grace = run.spec.limits.grace_seconds
    due = history.at + max(0.0, coming.report.seconds - MARGIN_SECONDS - grace)
    known = min(one.due_at(grace) for one in told)
    is_later = due > known and (run.stop or due > history.at)
    return f"slot {coming.slot}: {due:.2f} after {known:.2f}" if is_later else None


# --- of each state, after a record ----------------------------------------------------------------


def the_earliest_departure_is_heeded(history: History, run: Run, event: Event) -> Wrong:
    """All programs are stopped a grace and 5 s before the first node goes, and not later."""
    facts, due = history.of(run), due_at(history.of(run), run)
    was_running = facts.before.phase is Phase.RUNNING and not facts.before.stop
    if not was_running or due is None or facts.before.epoch != run.epoch or disk_was_bad(history):
        return None
    late = history.at - due
    return f"it was due {late:.2f} s ago" if late > LATE else None


def nobody_is_stopped_before_a_departure_is_due(
    history: History, run: Run, event: events.Departs | events.DepartureDue
) -> Wrong:
    """Programs have all the time that there is, but for their grace and 5 s."""
    facts, due = history.of(run), due_at(history.of(run), run)
    if not run.stop or facts.before.stop:
        return None
    if due is None:
        return "nobody leaves"
    return f"it is due in {due - history.at:.2f} s" if history.at < due - 0.01 else None


def a_notice_is_measured_from_where_it_was_found(
    history: History, run: Run, event: events.Departs | events.DepartureDue
) -> Wrong:
    """What it takes to tell of a notice is taken off the time that programs have."""
    facts, now = history.of(run), history.now()
    if not run.stop or facts.before.stop or disk_was_bad(history):
        return None
    for told in who_leaves(facts, run):
        owner = facts.owners.get((told.slot, told.incarnation))
        if owner is None or owner.going.near is None or "notice file" not in told.words:
            continue
        found, seconds = owner.going.near
        due = found + seconds - run.spec.limits.grace_seconds - MARGIN_SECONDS
        paused = any(fault.what == "registry pause" for fault in history.world.schedule.faults)
        since = (
            found if paused else told.now
        )  # who was stopped does not know how long it has waited
        away = owner.was_paused or any(end > since for _, end in history.gaps)
        slow = _TRY_SECONDS if owner.path.is_late or owner.path.light else 0.0
        if not away and now > max(due, told.now) + LATE + slow:
            return f"{owner.name}: it was due {now - due:.2f} s ago"
        is_first = told is who_leaves(facts, run)[0]
        if is_first and now < due - LATE:
            return f"{owner.name}: it is due in {due - now:.2f} s"
    return None


def no_restart_answers_a_departure(history: History, run: Run, event: Event) -> Wrong:
    """No programs start again once a node of theirs has said that it will go, but without it."""
    facts = history.of(run)
    told = facts.departures.of(facts.before.epoch)
    if not told or not begins_again(facts, run):
        return None
    replaced = facts.epochs.over[-1].end.replaced if run.spec.outlives_nodes else []
    return None if {one.slot for one in told} <= {*replaced} else f"{told}"


def a_run_that_was_stopped_for_a_departure_is_not_ok(
    history: History, run: Run, event: Event
) -> Wrong:
    """It ends well only if each program had ended with 0 before it was told to stop."""
    facts = history.of(run)
    stopped = facts.departures.stops.get(run.epoch)
    if stopped is None or run.result is None or run.result.status != "ok":
        return None
    for key, owner in facts.owners.items():
        life = _life(owner, run.epoch)
        if life is None or life.program is None or facts.epochs.rows.get(key[0]) != key[1]:
            continue
        told, ended = life.program.told_at, life.program.main_ended
        if ended is None or (told is not None and ended[1] > told):
            return f"{owner.name} was stopped at {told}, and ended: {ended}"
    return None


def who_left_is_named(history: History, run: Run, event: Event) -> Wrong:
    """Where all were stopped for a departure, and nothing failed, the run names who left."""
    facts, result = history.of(run), run.result
    stopped = run.epoch in facts.departures.stops and facts.before.phase is Phase.RUNNING
    if (
        result is None
        or not stopped
        or result.code != "node_lost"
        or "left the run" not in result.message
    ):
        return None
    named = run.slots[result.slot].node if result.slot is not None else None
    if named is not None and named.state is NodeState.LOST:  # before it could be told of that
        return None
    told, grace = who_leaves(facts, run), run.spec.limits.grace_seconds
    first = told[0].due_at(grace) if told else 0.0
    good = {one.slot for one in told if one.due_at(grace) <= first + _MOMENT}
    return None if result.slot in good else f"{result.message}; {told}"


# --- of what is asked and told --------------------------------------------------------------------


def a_drain_that_is_answered_counts(history: History, facts: Facts, drained: Fault) -> Wrong:
    """Who is told that a node will be drained while programs run has it in the journal by then."""
    run = history.run_of(facts)
    if run is None or run.phase is not Phase.RUNNING or drained.slot >= len(run.slots):
        return None
    node = run.slots[drained.slot].node
    if node is None or node.state in OVER:
        return None
    told = [one for one in facts.departures.of(run.epoch) if one.slot == drained.slot]
    grace, away = run.spec.limits.grace_seconds, bool(history.gaps)
    due = history.now() + max(0.0, drained.seconds - grace - MARGIN_SECONDS) + _SAME_SECONDS
    heeded = run.stop or away or any(one.due_at(grace) + one.now - one.at <= due for one in told)
    return None if told and heeded else f"slot {drained.slot} in {drained.seconds} s: {told}"


def a_notice_is_of_a_node_that_leaves(history: History, process: Process, view: NodeView) -> Wrong:
    """Who is told that a node will go is told of one that has said so, and no later than it is."""
    run = history.run_of(process.facts)
    if view.notice is None or run is None:
        return None
    told = [one for one in process.facts.departures.told if one.slot == view.notice.slot]
    grace = run.spec.limits.grace_seconds
    left = max((one.due_at(grace) - one.at for one in told), default=-1.0)
    return f"{view.notice}: {told}" if view.notice.seconds > left + 0.1 else None


# --- of what nodes do -----------------------------------------------------------------------------


def _life(process: Process, epoch: int) -> Life | None:
    return next((life for life in process.lives if life.epoch == epoch), None)


def all_programs_are_stopped_together(history: History, process: Process) -> Wrong:
    """Once it is time, each program that runs is told to stop, all at the same moment."""
    path = process.path
    if is_troubled(process) or path.light or path.is_late or history.world.registry_was_down:
        return None
    if disk_was_bad(history):
        return None
    for epoch, stopped in process.facts.departures.stops.items():
        life = _life(process, epoch)
        if life is None or life.program is None or life.started_at > stopped:
            continue
        told, ended = life.program.told_at, life.ended_at
        if told is not None and told < stopped - _MOMENT:
            return f"{process.name} was stopped at {told:.2f}, all at {stopped:.2f}"
        late = (history.now() if told is None else told) - stopped > _TOGETHER_SECONDS
        if late and (ended is None or ended > stopped + _TOGETHER_SECONDS):
            return f"{process.name} was stopped at {told}, all at {stopped:.2f}"
    return None


def _stopped_by_signal(process: Process) -> tuple[Life, float] | None:
    """The program that ran when its node was told to end, and was told to stop for that."""
    at, facts = process.signalled_at, process.facts
    heeds = process.signal_told and process.signal in _OF_SIGNALS and process.hurried_at is None
    excused = process.parent_is_gone or process.was_paused or process.serves or process.fault
    if not heeds or excused or not process.incarnation or not process.lives:
        return None
    life = process.lives[-1]
    told = life.program.told_at if life.program is not None else None
    if told is None or told < at or life.started_at > at - _MOMENT:
        return None
    if life.program is not None and life.program.main_ended and life.program.main_ended[1] < told:
        return None
    over = [one.stopped_at for one in facts.epochs.over if one.epoch == life.epoch]
    stopped = over[0] if over else facts.stopped_at
    return None if stopped is not None and stopped <= at else (life, told)


def a_node_tells_that_it_goes_before_it_stops_its_program(
    history: History, process: Process
) -> Wrong:
    """A node that is told to end says so first; for 1 s, or while its registry is there."""
    found = _stopped_by_signal(process)
    if found is None:
        return None
    at, told = process.signalled_at, found[1]
    sayings = [one for one in process.going.sayings if one.began >= at]
    if process.launch.outlives_nodes and _may_be_fenced(history, process, told):
        return None
    if not sayings:
        return f"{process.name} said nothing"
    over = [one.over for one in sayings if one.over is not None]
    until = min([*over, at + _TELL_SECONDS - _MOMENT])
    return f"{process.name} stopped it {until - told:.3f} s before" if told < until else None


def _may_be_fenced(history: History, process: Process, told: float) -> bool:
    """Whether it may be its fence that has stopped a program: that counts from when the watch was
    sent that was answered last."""
    launch = process.launch
    heard = max((at for at in process.views_at if at <= told), default=0.0) - poll(launch)
    begins = launch.fence - GRACE_SECONDS - FENCE_MARGIN_SECONDS
    return told - heard >= begins or any(start <= told <= end for start, end in history.gaps)


def who_is_told_to_end_has_all_stopped_with_it(history: History, process: Process) -> Wrong:
    """Where the registry has heard of a node's end in time, all programs are stopped by then."""
    found = _stopped_by_signal(process)
    if found is None:
        return None
    (life, told), at = found, process.signalled_at
    heard = [one for one in process.going.sayings if one.began >= at and one.is_heard]
    if not heard or heard[0].over is None or heard[0].over > told:
        return None
    facts = process.facts
    stops: list[float | None] = [
        one.over_at for one in facts.epochs.over if one.epoch == life.epoch
    ]
    stops += [] if facts.epochs.is_between else [facts.stopped_at, facts.finished]
    stopped = min((at for at in stops if at is not None), default=None)
    late = stopped is None or stopped > told
    return f"{process.name} was stopped at {told:.2f}, all at {stopped}" if late else None


def nobody_waits_for_long_to_tell_that_it_goes(history: History, process: Process) -> Wrong:
    """A registry that does not answer takes 1 s of the time that a signal leaves."""
    found = _stopped_by_signal(process)
    if found is None:
        return None
    waited = found[1] - process.signalled_at
    return f"{process.name}: {waited:.2f} s" if waited > _TELL_SECONDS + 0.1 else None


def a_notice_file_is_told_of(history: History, process: Process) -> Wrong:
    """The registry knows of a notice file that is there while a program runs, or before."""
    near, path, world = process.going.near, process.path, history.world
    if near is None or is_troubled(process) or path.light or path.is_late:
        return None
    if process.serves or world.registry_was_down or disk_was_bad(history):
        return None
    for life in process.lives:
        told = [one.slot for one in process.facts.departures.of(life.epoch)]
        ran = (life.ended_at or history.now()) - max(near[0], life.started_at)
        stopped = life.program is not None and life.program.told_at is not None
        if ran > _SHOWN_SECONDS and not stopped and process.slot not in told:
            return f"{process.name}, epoch {life.epoch}: {near}"
    return None


def a_notice_is_shown_once(history: History, process: Process) -> Wrong:
    """A program is shown once that a node will go, and again where all are stopped sooner."""
    for epoch, stops in process.going.stops.items():
        if any(after > before - _SOONER_SECONDS for before, after in itertools.pairwise(stops)):
            return f"{process.name}, epoch {epoch}: {stops}"
    return None


def every_program_is_shown_a_notice(history: History, process: Process) -> Wrong:
    """Each program that runs while a node is about to go is shown it, until it is stopped."""
    path, world = process.path, history.world
    if is_troubled(process) or world.registry_was_down:
        return None
    late = max((f.seconds for f in world.schedule.faults if f.what == "late"), default=0.0)
    limit = _SHOWN_SECONDS + (_SHOWN_LATE_SECONDS + 2 * late) * bool(path.light or path.is_late)
    if process.serves or disk_was_bad(history) or _cannot_be_shown(process):
        return None
    for life in process.lives:
        told = process.facts.departures.of(life.epoch)
        if not told or life.program is None:
            continue
        since = max(told[0].now, life.started_at)
        ends = [life.ended_at or history.now(), life.program.told_at or history.now()]
        until = min([*ends, *process.going.shown.get(life.epoch, [])])
        if until - since > limit:
            return f"{process.name} in epoch {life.epoch}: {told[0]}"
    return None


def _cannot_be_shown(process: Process) -> bool:
    return any(process.world.marked(what, process) for what in _NEVER_SHOWN)
