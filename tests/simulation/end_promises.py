"""The promises about what nodes see, and how a run ends: see `promises`."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING

from rendezvous.run.state import KILL_SECONDS, Run
from rendezvous.wire.errors import ExitCode, RunExists, Unauthorized
from rendezvous.wire.run import NodeState, Phase, RunStatus
from rendezvous.wire.watch import NodeView
from tests.simulation.agents import GRACE_SECONDS
from tests.simulation.history import Facts, Failure, History, Wrong
from tests.simulation.launch_promises import AWAITED_SECONDS
from tests.simulation.promises import (
    LATE,
    SWEEP,
    VERDICT_SECONDS,
    dead_after,
    disk_was_bad,
    is_marked,
    is_troubled,
    poll,
    suspect_after,
)
from tests.simulation.talking import newest_question, newest_view

_TOLD_SECONDS, _HELD_SECONDS = 0.25, 1.0

if TYPE_CHECKING:
    from tests.simulation.agents import Process
    from tests.simulation.launchers import Launcher
    from tests.simulation.world import World


# --- of what nodes and launchers see --------------------------------------------------------------


def the_newest_worker_run_starts(history: History, process: Process, digest: str) -> Wrong:
    """A newer worker run that asks for a slot has it at once, though an older one lives there."""
    facts, now = process.facts, history.now()
    for other in history.processes:
        mine = other.facts is facts and other.slot == process.slot and not is_marked(other)
        if not mine or other.generation <= process.generation or other.path.is_late:
            continue
        asked = other.door.traffic.arrived_at
        if facts.began_at[other.number] + 1.0 < asked and facts.began_at[other.number] + 2.0 < now:
            return f"{process.name} starts, and {other.name} waits"
    return None


def a_displaced_node_is_told_nothing(history: History, process: Process, view: NodeView) -> Wrong:
    """Once its slot has gone to another, a node gets no more than the poll that was under way."""
    facts, now = process.facts, history.now()
    off = facts.off_at.get((process.slot, process.incarnation))
    if view.digest and view.phase is Phase.GATHERING:
        return f"{process.name} is told of a table while the nodes gather"
    if off is None or now - off < poll(process.launch) + 1.0 or view.result is not None:
        return None
    facts.views_after[process.number] = facts.views_after.get(process.number, 0) + 1
    own = history.runs[process.launch.run].slots[process.slot].node
    if facts.views_after[process.number] < 3 or own is None:  # what was on its way
        return None
    if own.incarnation == process.incarnation:
        return None
    return f"{process.name} watches {now - off:.1f} s after it was replaced"


def an_empty_poll_takes_its_time(history: History, process: Process, view: NodeView) -> Wrong:
    """The registry hands out the poll length that fits the lease, and keeps a poll so long."""
    launch, facts, path = process.launch, process.facts, process.path
    if view.poll_seconds > poll(launch) + 0.01:
        return f"polls of {view.poll_seconds:.2f} s for a lease of {launch.lease} s"
    now, last = history.now(), facts.idle_at.pop(process.number, None)
    if view.seq != process.seq or path.light or path.is_late or process.was_paused:
        return None
    if [x for x in history.facts.values() if x.launch.run == launch.run][-1] is not facts:
        return None  # a later launch may replace it, which ends all polls
    if newest_question(view) not in (0, process.question):
        return None  # somebody asks, which ends a poll once
    if newest_view(view) not in (0, process.newest_view):
        return None  # somebody follows the output, which does as well
    facts.idle_at[process.number] = now
    if last is not None and now - last < poll(launch) / 2 and not history.gaps:
        return f"{process.name} was told nothing twice within {now - last:.3f} s"
    return None


def news_come_at_once(history: History, process: Process, view: NodeView) -> Wrong:
    """Who watches is told in no time; whose program is about to end first waits for that."""
    path, facts = process.path, process.facts
    if history.world.schedule.faults or path.light or path.is_late or view.seq == process.seq:
        return None
    if history.run_of(facts) is None:
        return None
    late = history.now() - facts.news_at.get(view.seq, history.now())
    stops = bool(process.lives) and _has_ended(process, view)
    limit = _TOLD_SECONDS + _HELD_SECONDS * stops
    return f"{process.name}: {late:.2f} s late" if process.seq and late > limit else None


def _has_ended(process: Process, view: NodeView) -> bool:
    """Whether its newest program has ended, or was told to."""
    life = process.lives[-1]
    told = life.program is not None and life.program.told_at is not None
    return told or life.ended_at is not None or life.epoch < view.epoch


def _waits(facts: Facts, owner: Process) -> bool:
    """Whether it wants to know the result, and nobody has said that it is over."""
    waits = owner.machine.alive and owner.result is None and not owner.released
    return waits and (owner.slot, owner.generation) not in facts.said_over


def everyone_left_means_it(history: History, status: RunStatus) -> Wrong:
    """All have left when no node is there that wants to know the result."""
    facts = history.facts[status.launch_id]
    run = history.run_of(facts)
    if not status.everyone_left or status.result is None or run is None:
        return None
    for (slot, incarnation), owner in facts.owners.items():
        mine = run.slots[slot].incarnations == incarnation and run.slots[slot].node is not None
        if mine and _waits(facts, owner) and not is_troubled(owner) and not owner.stuck:
            return f"{owner.name} does not know the result"
    return None


def a_cancel_ends_the_run(history: History, facts: Facts) -> Wrong:
    """Once a cancel is answered, the run is over, or is ending of a failure."""
    run = history.run_of(facts)
    if run is None or run.phase is Phase.FINISHED or run.stop:
        return None
    return f"{run.id} is {run.phase}"


def a_finished_run_is_kept(history: History, run: Run, facts: Facts) -> Wrong:
    """It is forgotten some time after its end, and only when its nodes have been told."""
    keep = history.world.schedule.keep_finished
    now = history.now()
    if facts.finished is None or now - facts.finished < keep - 0.5:  # its disk may be slow
        return f"{run.id} ended at {facts.finished}, and is forgotten after {keep} s"
    for (slot, incarnation), owner in facts.owners.items():
        node = run.slots[slot].node
        mine = node is not None and node.incarnation == incarnation
        if mine and _waits(facts, owner) and (slot, incarnation) not in facts.off_at:
            return f"{owner.name} does not know the result"
    return None


# --- at the end -----------------------------------------------------------------------------------


def _gone(history: History) -> Iterator[tuple[Facts, tuple[int, int], Process, Failure, float]]:
    """The nodes that are gone, with when they were missed, or their run was over."""
    if history.world.registry_was_down or disk_was_bad(history):
        return
    for facts in history.facts.values():
        for key, owner in facts.owners.items():
            if owner.gone is not None and owner.path.echoed_at <= owner.gone.at:
                missed = min(facts.off_at.get(key, history.now()), history.ended(facts))
                yield facts, key, owner, owner.gone, missed


def a_dead_node_is_missed(history: History, world: World) -> Wrong:
    """A node that is gone is given up within its lease, or a second after its connection closed."""
    for facts, _, owner, gone, missed in _gone(history):
        silent = sum(o.gone is not None and o.gone.silent for o in facts.owners.values())
        limit = dead_after(facts.launch) * (2 if silent >= 2 or owner.path.light > 1 else 1)
        light = bool(owner.path.light or owner.path.is_late or owner.was_paused)
        if not gone.silent and not light:
            limit = 1.0
        if missed > gone.at + limit + SWEEP + poll(facts.launch) * light + 0.1:
            return f"{owner.name} was gone at {gone.at:.2f}, missed at {missed:.2f}"
    return None


def the_scheduler_hastens_a_loss(history: History, world: World) -> Wrong:
    """A node whose worker run is over, as its scheduler says, is lost once it is suspect.

    If its program has not ended: nobody waits for it otherwise.
    """
    for facts, key, owner, gone, missed in _gone(history):
        said = facts.said_over.get((key[0], owner.generation))
        others = [o.gone for o in facts.owners.values() if o is not owner and o.gone]
        had_ended = facts.exited_at.get(key, -inf) >= (owner.started_at or 0.0)
        if said is None or had_ended or sum(one.silent for one in others) >= 2:
            continue
        heard = max(gone.at, owner.door.traffic.arrived_at)  # its last message may have come late
        if missed > max(said, heard + suspect_after(facts.launch)) + SWEEP + 0.1:
            return f"{owner.name}: {said:.2f}, gone {gone.at:.2f}, missed {missed:.2f}"
    return None


def the_verdict_is_not_put_off(history: History, world: World) -> Wrong:
    """Once a failure is known the result follows in 2 s, if no node is silent meanwhile."""
    if world.registry_was_down or disk_was_bad(history):
        return None
    for facts in history.facts.values():
        if not facts.starts:
            continue
        stops = [(over.stopped_at, over.decided, over.stop_wait) for over in facts.epochs.over]
        last = (facts.stopped_at, history.ended(facts), facts.stop_wait)
        stops += [] if facts.epochs.is_between else [last]
        for stopped, ended, wait in stops:
            if stopped is not None and ended > _verdict_by(facts, stopped, wait):
                return f"{facts.launch.run} was stopped at {stopped:.2f}, ended at {ended:.2f}"
    return None


def _verdict_by(facts: Facts, stopped_at: float, wait: float) -> float:
    """When a verdict is there at the latest."""
    if facts.launch.heads:  # that of node 0 may come late
        wait = max(wait, GRACE_SECONDS + KILL_SECONDS)
    by = last = stopped_at + max(VERDICT_SECONDS, wait) + LATE
    for owner in facts.owners.values():
        if owner.gone is not None and owner.gone.at < by:
            by = max(by, owner.gone.at + 1.0 + LATE)
        silent = owner.gone is not None and owner.gone.silent
        if silent or owner.was_paused or owner.path.light or owner.path.is_late:
            by = max(by, last + dead_after(facts.launch))
    return by


def who_comes_too_late_is_not_needed(history: History, process: Process) -> Wrong:
    """A node that finds its run going well without it ends well."""
    run = history.run_of(process.facts)
    if run is None or run.table is None or process.facts.forgotten or is_marked(process):
        return None
    alone = sum(other.slot == process.slot for other in history.processes) == 1
    well = run.result is not None and run.result.status == "ok"
    out = run.table.row_of_slot(process.slot) is None and process.incarnation == 0
    asked = process.door.traffic.arrived_at > 0 and not is_troubled(process)
    asked &= process.launch.ranks[process.slot] is None  # it may want what cannot be had
    good = process.ended in (0, int(ExitCode.JOIN_TIMEOUT), int(ExitCode.FENCED))
    wrong = alone and well and out and asked and not good
    return f"{process.name} ended with {process.ended}" if wrong else None


def a_former_launch_is_remembered(history: History, process: Process) -> Wrong:
    """A node that had joined is never a stranger, also not when another launch has its run id."""
    keeps = history.world.schedule.keep_finished > 100
    stranger = process.incarnation and process.fault == Unauthorized.code and keeps
    return f"{process.name} is a stranger" if stranger else None


def a_launch_is_refused_for_another_only(history: History, launcher: Launcher) -> Wrong:
    """A launcher that comes back, or asks again, finds its own run.

    One whose former registry was away for long has begun anew when that is back.
    """
    launches, outcome = history.world.schedule.launches, launcher.outcome
    is_long = history.world.registries.longest_away > AWAITED_SECONDS
    if launcher.known_before is not None and is_long:
        return None
    others = sum(launch.run == launcher.launch.run for launch in launches) > 1
    code = outcome if isinstance(outcome, str) else outcome.code
    refused = code == RunExists.code and not others
    return f"{launcher.machine.name} was refused" if refused else None


def who_dies_right_after_its_join_is_missed(history: History, process: Process) -> Wrong:
    """A node that was taken in, and is gone before it knows that, is given up within its lease."""
    facts, path, gone = process.facts, process.path, process.gone
    incarnation = facts.joined.get(f"join-{process.number:012d}")
    if history.world.registry_was_down or disk_was_bad(history) or gone is None or path.light:
        return None
    if incarnation is None or process.incarnation:
        return None
    dead = sum(other.gone is not None for other in history.processes)
    by = gone.at + dead_after(facts.launch) * (1 + (dead > 1)) + SWEEP + 0.1
    missed = min(facts.off_at.get((process.slot, incarnation), history.now()), history.ended(facts))
    if missed > by and path.echoed_at < gone.at:
        return f"{process.name} was gone at {gone.at:.2f}, missed at {missed:.2f}"
    return None


def a_finished_run_is_forgotten(history: History, world: World) -> Wrong:
    """Where runs are kept for a short time, one is gone by then whose nodes have left."""
    keep = world.schedule.keep_finished
    if world.registry_was_down or world.owns_registry or disk_was_bad(history) or keep > 100:
        return None
    for facts in history.facts.values():
        if facts.finished is None or facts.forgotten or not facts.owners:
            continue
        if len(facts.owners) < len(facts.joined):  # somebody is there who never heard so
            continue
        troubled = any(is_troubled(o) or o.stuck for o in facts.owners.values())
        last = max([facts.finished + keep, *(o.gone.at for o in facts.owners.values() if o.gone)])
        late = not troubled and world.loop.time() > last + 1.5
        if late and history.run_of(facts) is not None:
            return f"{facts.launch.run} ended at {facts.finished:.2f}"
    return None


def who_is_gone_has_left(history: History, world: World) -> Wrong:
    """Of a finished run no node counts as present that was gone for longer than its lease."""
    if disk_was_bad(history) or world.registry_is_gone or history.world.network.registry is None:
        return None
    down = max((end for _, end in history.gaps), default=0.0)
    for facts in history.facts.values():
        run = history.run_of(facts)
        if run is None:
            continue
        for (slot, incarnation), owner in facts.owners.items():
            node = run.slots[slot].node
            if node is None or node.incarnation != incarnation or owner.gone is None:
                continue
            since = max(owner.gone.at, owner.path.echoed_at, down)
            over = world.loop.time() - since > 2 * dead_after(facts.launch) + 2.0
            if over and node.state not in (NodeState.LOST, NodeState.LEFT):
                return f"{owner.name} is {node.state}, and gone since {owner.gone.at:.2f}"
    return None
