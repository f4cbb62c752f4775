"""What holds of programs that start again: see `rendezvous.run.restarts`, and `promises`."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from rendezvous.run import events
from rendezvous.run.events import Event
from rendezvous.run.state import Run
from rendezvous.wire.reports import AckReport, Report
from rendezvous.wire.run import Phase, RunStatus
from rendezvous.wire.watch import NodeView
from tests.simulation.epochs import FORMING_AGAIN, Over, begins_again
from tests.simulation.history import Facts, History, Wrong
from tests.simulation.promises import LATE, disk_was_bad, is_troubled
from tests.simulation.result_promises import other_was_first

if TYPE_CHECKING:
    from tests.simulation.agents import Process
    from tests.simulation.world import World

_QUICK_SECONDS = 30.0
_SHORT_SECONDS = 60.0
_LONG_SECONDS = 600.0
_LONGEST_SECONDS = 60.0
_CANNOT_BE_STARTED = (126, 127)
_ABORTED = 134
_STARTED_SECONDS = 5.0
_MOST_STALLED = 3
_AT_ONCE_SECONDS = 10.0


# --- of each record, before it is applied ---------------------------------------------------------


def a_late_end_ends_nothing(history: History, run: Run, event: events.Exited) -> Wrong:
    """How a program of an epoch before has ended neither stops nor fails what came after it."""
    facts = history.of(run)
    before = facts.before
    if not facts.epochs.is_late(event) or begins_again(facts, run):
        return None
    if (run.phase, run.epoch, run.stop) != (before.phase, before.epoch, before.stop):
        return f"epoch {event.report.epoch} of slot {event.slot}: {before.phase} -> {run.phase}"
    return None


def a_stop_has_its_cause(history: History, run: Run, event: Event) -> Wrong:
    """Programs are told to stop as one of their epoch failed, a node will go, or on request."""
    before = history.of(run).before
    began = run.stop and not before.stop and run.phase is Phase.RUNNING
    slot = getattr(event, "slot", None)
    if began and slot is not None and slot not in history.of(run).epochs.rows:
        return f"{event.kind} of slot {slot}, on which no program runs"
    causes = events.Lost | events.Left | events.RestartAsked | events.Departs | events.DepartureDue
    if not began or isinstance(event, causes):
        return None
    own = isinstance(event, events.Exited) and event.report.epoch == run.epoch
    return None if own else f"{event.kind} in epoch {run.epoch}"


# --- of each state, after a record ----------------------------------------------------------------


def restarts_are_counted_once(history: History, run: Run, event: Event) -> Wrong:
    """One number counts for the whole run: each restart that nobody asked for, up to the most."""
    facts, most = history.of(run), run.spec.limits.max_restarts
    made = sum(over.is_counted for over in facts.epochs.over)
    used = run.starts.used
    return (
        f"{made} were made, {used} counted, {most} allowed" if used != made or made > most else None
    )


def a_first_warm_start_is_repeated_cold_once(history: History, run: Run, event: Event) -> Wrong:
    """It is when programs failed of themselves, at once, with all nodes there: once in a run."""
    facts = history.of(run)
    over = facts.epochs.over
    repeats = [one for one in over if one.repeated]
    if not begins_again(facts, run) or not repeats:
        return None
    first, *others = repeats
    if others or not facts.launch.warm or first is not over[0]:
        return f"epochs {[one.epoch for one in repeats]} of {[one.epoch for one in over]}"
    wrong = first.asked or first.gone or first.end.code != "program_failed"
    return f"{first.end}" if wrong or first.end.ran_seconds > _AT_ONCE_SECONDS else None


def a_first_warm_start_that_fails_at_once_is_repeated(
    history: History, run: Run, event: Event
) -> Wrong:
    """It neither ends the run nor uses a restart up, unless a node is gone or goes."""
    facts, result = history.of(run), run.result
    if not facts.launch.warm or facts.before.phase is not Phase.RUNNING:
        return None
    epochs = facts.epochs
    if begins_again(facts, run):
        first, *others = epochs.over
        quick = first.end.ran_seconds <= _AT_ONCE_SECONDS and first.end.code == "program_failed"
        return f"{first.end}" if quick and first.is_counted and not others else None
    gone = set(epochs.rows.items()) & (facts.off_at.keys() | epochs.leaving)
    is_own = result is not None and result.exit_code_of == "program"
    if result is None or result.status != "failed" or not is_own or epochs.over or gone:
        return None
    failed_at = min((f.at for f in facts.failures if f.epoch == run.epoch), default=history.now())
    ran = failed_at - epochs.gone.get(run.epoch, failed_at)
    return f"after {ran:.2f} s" if ran < _AT_ONCE_SECONDS - LATE else None


def a_restart_needs_every_node(history: History, run: Run, event: Event) -> Wrong:
    """Programs start again only while no node of their table is lost, or has said that it goes.

    Where the run outlives its nodes, they do so without all of those, and as a replacement.
    """
    facts = history.of(run)
    if not begins_again(facts, run):
        return None
    over = facts.epochs.over[-1]
    gone = over.gone - (set(over.end.replaced) if run.spec.outlives_nodes else set())
    return f"slots {sorted(gone)} are gone" if gone else None


def programs_start_again_where_they_were(history: History, run: Run, event: Event) -> Wrong:
    """The next table is of the same slots, and each keeps its rank.

    Others have those of who was lost, the lowest first; ranks that nobody has are closed up.
    """
    facts, before = history.of(run), history.of(run).epochs.ranks
    if run.table is None or run.table is facts.before.table or not facts.epochs.over:
        return None
    ranks = {row.slot: row.node for row in run.table.rows}
    if not run.spec.outlives_nodes:
        return None if ranks == before else f"{ranks}, before {before}"
    stay = {slot: before[slot] for slot in ranks if slot in before}
    free = [rank for rank in range(len(ranks) + len(before)) if rank not in stay.values()]
    places = sorted([*stay.values(), *free[: len(ranks) - len(stay)]])
    wrong = [slot for slot, rank in stay.items() if places[ranks[slot]] != rank]
    return f"{ranks}, before {before}" if wrong else None


def a_restart_that_is_left_is_made(history: History, run: Run, event: Event) -> Wrong:
    """A program's failure ends a run when no restart is left, none helps, or a node is gone."""
    facts, result = history.of(run), run.result
    if result is None or result.code != "program_failed" or facts.before.phase is not Phase.RUNNING:
        return None
    epochs, limit = facts.epochs, run.spec.limits.max_restarts
    rows = set(epochs.rows.items())
    gone = rows & (facts.off_at.keys() | epochs.leaving)
    by_agent = result.exit_code_of == "rdzv"
    if facts.before.used >= limit or gone or by_agent or _may_be_hopeless(history, facts, run):
        return None
    return f"{facts.before.used} of {limit} are used: {result.message}"


def _may_be_hopeless(history: History, facts: Facts, run: Run) -> bool:
    """Whether it may fail alike once more, as far as its exit codes say."""
    result, over = run.result, [one for one in facts.epochs.over if not one.repeated]
    assert result is not None
    if not over and result.exit_code in _CANNOT_BE_STARTED:
        return True
    progress = any(fault.what == "gets on" for fault in history.world.schedule.faults)
    moved = facts.epochs.late > 0  # an end that was told late may be the first cause
    return progress or moved or (bool(over) and over[-1].end.exit_code == result.exit_code)


def a_hopeless_program_is_started_twice_at_most(history: History, run: Run, event: Event) -> Wrong:
    """What has failed in the same way twice, soon after its start, is not started once more."""
    facts = history.of(run)
    if not begins_again(facts, run):
        return None
    over = [one for one in facts.epochs.over if not one.repeated]
    if facts.epochs.over[-1].repeated:
        return None
    last, stalled = over[-1], _fold(facts.epochs.over)[1]
    if stalled >= _MOST_STALLED and not facts.epochs.late:
        return f"{stalled} starts in a row did not get beyond step {last.end.progress}"
    if not last.is_counted or not _is_quick(last) or last.end.progress is not None:
        return None
    if len(over) == 1 and last.end.exit_code in _CANNOT_BE_STARTED:
        return f"exit code {last.end.exit_code}"
    moved = facts.epochs.late > 0  # an end that was told late may be the first cause
    if len(over) < 2 or over[-2].end.slot is None or not _is_quick(over[-2]) or moved:
        return None
    return f"twice {last.alike!r}" if over[-2].alike == last.alike else None


def _is_quick(over: Over) -> bool:
    return over.end.ran_seconds <= _QUICK_SECONDS


def a_back_off_is_as_long_as_it_is_to_be(history: History, run: Run, event: Event) -> Wrong:
    """The first restart comes at once; the next ones wait, unless a program had got on."""
    facts = history.of(run)
    if not begins_again(facts, run) or facts.epochs.late:
        return None
    wait = _fold(facts.epochs.over)[0]
    due = run.starts.due_at
    found = 0.0 if due is None else due - history.at
    return f"{found:.2f} s and not {wait:.2f} s" if abs(found - wait) > 0.01 else None


def _fold(over: list[Over]) -> tuple[float, int]:
    """The back-off after these epochs, and how many of the last have not got beyond their step."""
    short, stalled, progress, wait = 0, 0, -1, 0.0
    for one in over:
        reached = -1 if one.end.progress is None else one.end.progress
        got_on = reached > progress or one.end.ran_seconds >= _LONG_SECONDS
        is_short = one.end.ran_seconds < _SHORT_SECONDS
        at_once = not one.is_counted or got_on or not is_short or not short
        wait = 0.0 if at_once else min(_LONGEST_SECONDS, 2.0 ** (short - 1))
        short = 0 if got_on else short + (is_short and one.is_counted)
        stalled = 0 if got_on or progress < 0 else stalled + one.is_counted
        progress = max(progress, reached)
    return wait, stalled


def a_back_off_is_kept(history: History, run: Run, event: Event) -> Wrong:
    """Programs start again when their time has come: not before, nor much later."""
    facts = history.of(run)
    if facts.before.phase is not Phase.RESTARTING:
        return None
    over = facts.epochs.over[-1]
    lasted, wait = history.at - over.decided_at, _fold(facts.epochs.over)[0]
    if facts.epochs.late:
        return None
    if isinstance(event, events.BackOffOver) and lasted < wait - 0.01:
        return f"{lasted:.2f} s and not {wait:.2f} s"
    late = lasted > wait + LATE and not disk_was_bad(history)
    return f"{lasted:.2f} s, and it was to be {wait:.2f} s" if late else None


def a_person_does_not_wait(history: History, run: Run, event: events.RestartAsked) -> Wrong:
    """Who asks for a restart has the programs stopped, or the back-off ended, at once."""
    waits = run.phase is Phase.RESTARTING or (run.phase is Phase.RUNNING and not run.stop)
    return f"it is {run.phase}" if waits else None


def the_first_cause_of_an_epoch_is_the_first(history: History, run: Run, event: Event) -> Wrong:
    """Of an epoch that is over that node is named whose failure was the first, as it was known."""
    facts = history.of(run)
    if not begins_again(facts, run):
        return None
    over = facts.epochs.over[-1]
    failures = [failure for failure in facts.failures if failure.epoch == over.epoch]
    return other_was_first(history, facts, over.end.slot, failures, history.now())


def what_was_decided_stays(history: History, run: Run, event: Event) -> Wrong:
    """A late report may move the first cause of an epoch, and nothing of what followed it."""
    over, ended = history.of(run).epochs.over, run.starts.ended
    decided = [(one.epoch, one.end.then) for one in over][-len(ended) :] if ended else []
    kept = [(one.epoch, one.then) for one in ended]
    return f"{kept}, and it was {decided}" if kept != decided else None


def no_verdict_waits_once_all_have_ended(history: History, run: Run, event: Event) -> Wrong:
    """Once each node of the table has told its end, or is lost, it is decided what follows."""
    facts = history.of(run)
    if run.phase is not Phase.RUNNING or not facts.epochs.rows:
        return None
    rows = facts.epochs.rows.items()
    known = facts.exit_codes.keys() | facts.off_at.keys()
    return f"all of {sorted(rows)} have ended" if all(row in known for row in rows) else None


def nobody_is_submitted_for_a_restart(history: History, run: Run, event: Event) -> Wrong:
    """Once programs have started, no slot wants another worker run, unless they outlive a node."""
    facts = history.of(run)
    if run.spec.outlives_nodes:
        return None  # see `loss_promises`
    wanted = {slot.index: slot.wanted for slot in run.slots}
    told = isinstance(event, events.SlotChanged | events.Joined | events.Refused)
    grown = [slot for slot, before in facts.before.wanted.items() if wanted[slot] > before]
    return f"slots {grown}" if grown and facts.epochs.gone and not told else None


def a_node_that_is_lost_ends_a_restart(
    history: History, run: Run, event: events.Lost | events.Left
) -> Wrong:
    """Where a node is lost after its programs were to start again, they do not.

    Unless they outlive it.
    """
    facts = history.of(run)
    if run.spec.outlives_nodes:
        return None  # see `loss_promises`
    between = facts.epochs.is_between and facts.before.phase in FORMING_AGAIN
    held = facts.before.nodes.get(event.slot, (0, 0))[0] == event.incarnation
    needed = event.slot in facts.epochs.ranks and held
    on = between and needed and run.phase is not Phase.FINISHED
    replaced = facts.before.wanted[event.slot] > facts.before.nodes.get(event.slot, (0, 0))[1]
    return f"slot {event.slot} is lost, and it goes on" if on and not replaced else None


# --- of what is told ------------------------------------------------------------------------------


def what_is_told_of_restarts_is_durable(history: History, said: NodeView | RunStatus) -> Wrong:
    """Nobody hears of a restart that is not in the journal by then."""
    if not isinstance(said, RunStatus):
        return None
    facts = history.facts[said.launch_id]
    if (run := history.run_of(facts)) is None:
        return None
    told = (said.restarts, len(said.ended))
    durable = (run.starts.used, len(run.starts.ended))
    return f"{told}, and written was {durable}" if told > durable else None


# --- of what nodes do -----------------------------------------------------------------------------


def an_acknowledgement_comes_after_the_end(
    history: History, process: Process, told: Report
) -> Wrong:
    """A node acknowledges a table once its last program has left nothing, and its end is told."""
    if not isinstance(told, AckReport):
        return None
    for life in process.lives:
        if life.epoch < told.epoch and not (life.is_over and life.is_told):
            what = "its end is not told" if life.is_over else "it is there"
            return f"{process.name}, program of epoch {life.epoch}: {what}"
    return None


def programs_of_two_epochs_never_meet(history: History, process: Process, digest: str) -> Wrong:
    """No program starts while one of an epoch before is there, but on a node that is cut off."""
    facts = process.facts
    epoch = facts.sealed[digest].epoch if digest in facts.sealed else 0
    if facts.launch.outlives_nodes:
        return None  # see `loss_promises`
    for other in history.processes:
        if other.facts is not facts or is_troubled(other):
            continue
        if (other.slot, other.incarnation) in facts.off_at:  # another node has its slot
            continue
        for life in other.lives:
            if life.epoch < epoch and not life.is_over and other.ended is None:
                return f"{process.name} starts in epoch {epoch}, {other.name} is in {life.epoch}"
    return None


def who_was_lost_does_not_start_again(history: History, process: Process, digest: str) -> Wrong:
    """A node that was given up, or replaced, before the go starts nothing on its table."""
    facts, key = process.facts, (process.slot, process.incarnation)
    went = facts.epochs.gone.get(facts.sealed[digest].epoch) if digest in facts.sealed else None
    lost = facts.off_at.get(key)
    return f"{process.name}" if went is not None and lost is not None and lost < went else None


def torchrun_starts_the_ranks_of_all_nodes_or_of_none(
    history: History, process: Process, digest: str
) -> Wrong:
    """It waits for the torchrun of every other node of its table."""
    table = process.facts.sealed.get(digest)
    if table is None:
        return None
    owners = [o for o in history.processes if o.facts is process.facts and digest in o.by_torchrun]
    kinds = {owner.by_torchrun[digest] for owner in owners if table.row_of_slot(owner.slot)}
    return f"{process.name} and others, epoch {table.epoch}" if len(kinds) > 1 else None


def a_go_of_the_next_epoch_is_followed(history: History, process: Process) -> Wrong:
    """A node that was not disturbed has started in each epoch that went, unless it was stopped."""
    epochs, began = process.facts.epochs, {life.epoch for life in process.lives}
    if is_troubled(process) or process.unready or process.fault or history.world.registry_was_down:
        return None
    for over in epochs.over:
        mine = over.rows.get(process.slot) == process.incarnation
        ran = over.over_at - epochs.gone[over.epoch]
        if mine and ran > _STARTED_SECONDS and over.epoch not in began:
            return f"{process.name} did not start in epoch {over.epoch}"
    return None


# --- at the end -----------------------------------------------------------------------------------


def programs_that_end_well_at_last_are_a_good_end(history: History, world: World) -> Wrong:
    """Without faults, a run ends well whose programs do so within its restarts."""
    run = history.runs.get("r0")
    if world.schedule.faults or run is None or run.result is None:
        return None
    launch = history.of(run).launch
    if not launch.max_restarts or launch.spares or launch.least < launch.nodes or launch.led:
        return None
    codes = [{code for _, code in one} - {0} for one in (launch.program, *launch.later)]
    if launch.contagion:  # what its victims end with may be told before its own end
        codes = [found and {*found, _ABORTED} for found in codes]
    good = next((number for number, found in enumerate(codes) if not found), 99)
    alike = any(one & other for one, other in itertools.pairwise(codes[:good]))
    cannot = good > 0 and not codes[0].isdisjoint((*_CANNOT_BE_STARTED, 2))
    late = max(launch.boot) >= launch.join_timeout
    asks = any(rank is not None for rank in launch.ranks)
    if good > launch.max_restarts or alike or cannot or late or asks:
        return None
    return None if run.result.status == "ok" else f"{run.result.message}"
