"""What must hold in the end: of results, and of what is durable."""

from __future__ import annotations

import math
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from rendezvous.run.state import Run
from rendezvous.run.views import reason
from rendezvous.wire.run import Phase
from tests.simulation.history import Facts, Failure, History, Wrong
from tests.simulation.promises import is_troubled, suspect_after

if TYPE_CHECKING:
    from tests.simulation.agents import Process
    from tests.simulation.schedule import Launch
    from tests.simulation.world import World

_STOP_SECONDS = 8.0
_CLOSED_SECONDS = 1.0
"""So long a node whose connection is closed may come back, before that counts."""


# --- at the end -----------------------------------------------------------------------------------


def every_run_ends(history: History, world: World) -> Wrong:
    """Some time after the last fault every run that was made is finished."""
    gone = world.owns_registry and world.network.registry is None
    if world.registry_is_gone or gone:
        return None
    for run in history.runs.values():
        if run.phase is not Phase.FINISHED:
            return f"{run.id} is {run.phase}: {reason(run, history.last_at[run.id])}"
    return None


def every_process_ends(history: History, world: World) -> Wrong:
    """Some time after the last fault no agent and no launcher is left."""
    left = [process.name for process in history.processes if process.ended is None]
    left += [launcher.machine.name for launcher in world.launchers if not launcher.ended]
    return f"{left}" if left else None


def the_journal_gives_the_live_state(history: History, world: World) -> Wrong:
    """What the registry holds is what the journal gives when it is read again from its bytes."""
    registry = world.network.registry
    if registry is None or registry.machine.paused:
        return None
    for name, host in registry.service.sequencer.runs.items():
        if not host.is_durable:
            return f"{name} has events that are not durable"
        if host.run != history.runs[name]:
            return f"{name}: {host.run}\nthe journal: {history.runs[name]}"
    return None


def submissions_are_bounded(history: History, world: World) -> Wrong:
    """A slot is submitted once, and again at most as often as the person allowed."""
    for facts in history.facts.values():
        again = sum(launcher.index == facts.index for launcher in world.launchers) - 1
        for slot, count in facts.submissions.items():
            most = 1 + facts.launch.retries + again + facts.launch.max_replacements
            if count > most + _tries(facts.launch):
                return f"slot {slot} of {facts.launch.run} was submitted {count} times"
    return None


def _tries(launch: Launch) -> int:
    """How often those are submitted again that end before they join, once programs have started:
    after 1, 2, 4 ... 60 s where the others wait, and ever more seldom beside the programs."""
    if launch.on_node_loss == "fail":
        return 0
    programs = (launch.program, *launch.later)
    seconds = launch.join_timeout + sum(max(s for s, _ in one) for one in programs)
    each = math.ceil(seconds).bit_length() + int(seconds / 60) + 1
    return (1 + launch.max_replacements) * each


def an_undisturbed_run_ends_well(history: History, world: World) -> Wrong:
    """Without faults, and with programs that end well, the result is good."""
    run = history.runs.get("r0")
    if world.schedule.faults or run is None or run.result is None:
        return None
    launch = history.of(run).launch
    ranks = {slot: rank for slot, rank in enumerate(launch.ranks) if rank is not None}
    can_be_had = all(
        rank < launch.slots and (rank == 0) == (slot == 0) for slot, rank in ranks.items()
    )
    programs = launch.program[:1] if launch.led else launch.program
    is_sound = len(set(ranks.values())) == len(ranks) and can_be_had
    is_sound = is_sound and all(code == 0 for _, code in programs)
    is_sound = is_sound and max(launch.boot) < launch.join_timeout
    return f"{run.result}" if is_sound and run.result.status != "ok" else None


def a_good_end_means_that_every_program_ended_well(history: History, world: World) -> Wrong:
    """'ok' is said only when each program, or that which ends the run, came to a good end."""
    for run in history.runs.values():
        if run.result is None or run.result.status != "ok" or run.table is None:
            continue
        facts = history.of(run)
        for row in run.table.rows:
            owner = facts.owners.get((row.slot, run.slots[row.slot].incarnations))
            if facts.launch.heads and row.node != 0:
                continue
            if owner is not None and owner.program_code != 0 and not owner.serves:
                return f"{owner.name} ended with {owner.program_code}: {run.result.message}"
    return None


def the_first_cause_is_the_first(history: History, world: World) -> Wrong:
    """The node that is named failed first of all whose failure is known, by the real time."""
    for run in history.runs.values():
        result, facts = run.result, history.of(run)
        if result is None or result.code not in ("program_failed", "node_lost"):
            continue
        if not facts.starts or facts.epochs.is_between:  # nothing ran that could have failed
            continue
        ended, last = facts.finished or history.now(), facts.epochs.last
        failures = [failure for failure in facts.failures if failure.epoch > last]
        wrong = other_was_first(history, facts, result.slot, failures, ended)
        if wrong is not None:
            return wrong
    return None


def other_was_first(
    history: History, facts: Facts, named_slot: int | None, of_epoch: list[Failure], ended: float
) -> Wrong:
    """Whether another one of an epoch's failures that was known by its end came before this."""
    run = history.runs[facts.launch.run]
    if facts.launch.outlives_nodes:  # others take the places of those that said that they go
        going = {one.slot for one in facts.departures.of(of_epoch[0].epoch)} if of_epoch else set()
        of_epoch = [one for one in of_epoch if one.slot not in going or one.slot == named_slot]
    failures = [
        _as_it_is_known(history, run, facts, failure)
        for failure in of_epoch
        if (
            facts.known_at.get((failure.slot, failure.incarnation), inf) <= ended
            and not _says_that_it_was_told(facts, failure)
            and not _ended_well_at_last(run, failure)
        )
        or failure.slot == named_slot
    ]
    named = next((f for f in failures if f.slot == named_slot), None)
    if named is None or not failures:
        return None
    first = min(failures, key=lambda failure: failure.at)
    if named.silent or any(_is_doubtful(facts, failure) for failure in (named, first)):
        return None
    if named.at - first.at > 0.2 and not _was_told_over_a_gap(history, facts, first):
        return f"slot {named.slot} failed {named.at - first.at:.2f} s after slot {first.slot}"
    return None


def _ended_well_at_last(run: Run, failure: Failure) -> bool:
    """Whether a rank failed whose program was then stopped, and ended with 0."""
    node = run.slots[failure.slot].node
    if node is None or node.incarnation != failure.incarnation or node.exit is None:
        return False
    return node.exit.exit_code == 0


def _as_it_is_known(history: History, run: Run, facts: Facts, failure: Failure) -> Failure:
    """Of a node that was gone before its failure was taken in, only its end can be known, or since
    when it was to go; and of one that ended while the registry was away, or so soon before or after
    that it goes by no closed connection, that it is silent."""
    node = run.slots[failure.slot].node
    owner = facts.owners.get((failure.slot, failure.incarnation))
    told = node is not None and node.exit is not None
    told |= bool(facts.epochs.over) and (failure.slot, failure.incarnation) in facts.exit_codes
    if told or owner is None or owner.gone is None:
        return failure
    late = suspect_after(facts.launch)
    gone = owner.gone.at
    unseen = any(start - _CLOSED_SECONDS <= gone <= end + late for start, end in history.gaps)
    mine = [one for one in facts.departures.of(failure.epoch) if one.slot == failure.slot]
    at = min([gone, *(one.now + one.seconds for one in mine)])
    return replace(owner.gone, at=at, silent=owner.gone.silent or unseen)


def _says_that_it_was_told(facts: Facts, failure: Failure) -> bool:
    """Whether it lies: where the others are stopped by then, it is believed that this one was."""
    key = failure.slot, failure.incarnation
    owner, known_at = facts.owners.get(key), facts.known_at.get(key, inf)
    lies = owner is not None and owner.stops_unasked
    return lies and facts.stopped_at is not None and facts.stopped_at < known_at


def _is_doubtful(facts: Facts, failure: Failure) -> bool:
    """Its messages came late. (A silent one counts from when it was heard of last, or earlier.)"""
    owner = facts.owners.get((failure.slot, failure.incarnation))
    if owner is None or owner.was_paused:
        return True
    if owner.gone is not None and owner.path.echoed_at > owner.gone.at:
        return True
    if owner.gone is not None and owner.door.traffic.closed_at > owner.gone.at + _CLOSED_SECONDS:
        return True  # something between the two hung up later: then it is dated by that
    return owner.path.is_late or owner.path.is_troubled


def _was_told_over_a_gap(history: History, facts: Facts, failure: Failure) -> bool:
    """Whether the registry was away or stopped between a failure and the news of it.

    How long it was away it cannot know: the failure then counts from when it came back.
    """
    known_at = facts.known_at[failure.slot, failure.incarnation]
    return any(start < known_at and failure.at <= end for start, end in history.gaps)


def a_failure_stops_everybody_soon(history: History, process: Process) -> Wrong:
    """Once a failure is known, no program of a node that was not disturbed runs on.

    A node that serves rank 0 has none, and does so until the run is over.
    """
    epochs, stopped_at = process.facts.epochs, process.facts.stopped_at
    if process.serves or history.world.registry_was_down or is_troubled(process):
        return None
    stops = {over.epoch: over.stopped_at for over in epochs.over}
    for life in process.lives:
        stopped = stops.get(life.epoch, None if epochs.is_between else stopped_at)
        more = 0.0 if stopped is None or life.ended_at is None else life.ended_at - stopped
        if more > _STOP_SECONDS:
            return f"{process.name} ran on for {more:.1f} s"
    return None


def everybody_is_told_the_result(history: History, process: Process) -> Wrong:
    """A node that was in the run at its end, and was not disturbed, learns the result.

    Unless a person was in a hurry, and its launcher ended before it could.
    """
    run = history.run_of(process.facts)
    if history.world.registry_was_down or run is None or run.result is None:
        return None
    node = run.slots[process.slot].node
    mine = node is not None and node.incarnation == process.incarnation
    told = process.result is not None or process.released or is_troubled(process)
    told |= any(launcher.hurried_at is not None for launcher in history.world.launchers)
    return f"{process.name} ended with {process.ended}" if mine and not told else None


def nobody_who_was_released_is_to_blame(history: History, world: World) -> Wrong:
    """After the go only a node of the table can be the first cause of a failure."""
    for run in history.runs.values():
        after_go = run.result is not None and run.result.code in ("program_failed", "node_lost")
        if run.result is None or not after_go or not history.of(run).starts or run.table is None:
            continue
        if run.result.slot not in {row.slot for row in run.table.rows}:
            return run.result.message
    return None


def a_released_node_ends_well(history: History, process: Process) -> Wrong:
    """A node that the run goes without starts nothing, and ends with 0, or as it was told to."""
    told = (128 + process.signal,) if process.signal_told else ()
    started, released = process.started_at, process.released_at
    if process.launch.outlives_nodes and started is not None and released is not None:
        started = started if started > released else None  # it ran before it was released
    wrong = started is not None or process.ended not in (0, 137, *told)
    return f"{process.name} ended with {process.ended}" if process.released and wrong else None
