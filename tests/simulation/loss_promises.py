"""What holds of runs that outlive their nodes: see `losses`, and `restart_promises`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rendezvous.run import events
from rendezvous.run.events import Event
from rendezvous.run.state import DEAD_SUBMISSIONS, NOT_NEEDED, STANDS_BY, Run
from rendezvous.wire.run import NodeState, Phase, RunStatus, SlotState
from tests.simulation.epochs import FORMING_AGAIN, begins_again
from tests.simulation.history import Facts, History, Wrong
from tests.simulation.launch_promises import OF_SCHEDULERS, is_cut_off
from tests.simulation.losses import can_outlive
from tests.simulation.promises import LATE, dead_after, disk_was_bad, is_troubled

if TYPE_CHECKING:
    from tests.simulation.agents import Process
    from tests.simulation.launchers import Launcher
    from tests.simulation.scheduler import Submitted
    from tests.simulation.world import World

_MOMENT = 0.25
_SWEEP = 0.05
_SETTLED_SECONDS = 1.0
_SUBMITTED_SECONDS = 5.0
_ENDED_SECONDS = 6.0
"""A scheduler is asked each second, and the registry told at once."""
_HARMLESS = {"kill", "host down", "preempted"}


# --- of each state, after a record ----------------------------------------------------------------


def who_is_gone_is_replaced_or_gone_without(history: History, run: Run, event: Event) -> Wrong:
    """A run goes on without who is gone, and who has failed by itself, not by its program."""
    facts = history.of(run)
    if not run.spec.outlives_nodes or not begins_again(facts, run):
        return None
    over = facts.epochs.over[-1]
    for slot in set(over.end.replaced) - over.gone:
        incarnation = over.rows.get(slot, 0)
        owner = facts.owners.get((slot, incarnation))
        failed = owner is not None and (owner.unfit or owner.fault or owner.launch.follows_network)
        # Its scheduler may have said so, before anybody missed it.
        is_gone = owner is not None and owner.gone is not None
        if not failed and not is_gone:
            return f"slot {slot} is there: {over.end.message}"
    return None


def _as_node(run: Run, slot: int) -> str:
    """How a slot is named whose node had the same number in the table."""
    return f"node {slot} (" if run.starts.numbers.get(slot) == slot else "no such node"


def a_loss_is_told_with_its_cause(history: History, run: Run, event: Event) -> Wrong:
    """How an epoch ended by a loss names a slot that is lost, why, and what follows from it."""
    facts = history.of(run)
    if not run.spec.outlives_nodes or not begins_again(facts, run):
        return None
    end = facts.epochs.over[-1].end
    if not end.replaced:
        return None
    words = end.message + end.then
    named = any(f"slot {slot}" in words or _as_node(run, slot) in words for slot in end.replaced)
    return None if named and end.then.strip() and end.code else f"{end}"


def replacements_are_bounded(history: History, run: Run, event: Event) -> Wrong:
    """After the go no more worker runs are wanted than may be, and none where none is lost."""
    facts = history.of(run)
    if not run.spec.outlives_nodes or not facts.epochs.gone:
        return None
    most, used = run.spec.limits.max_replacements, run.starts.resubmitted
    if used > most:
        return f"{used} of {most}"
    grown = [s for s, before in facts.before.wanted.items() if run.slots[s].wanted > before]
    told = isinstance(event, events.SlotChanged | events.Joined | events.Refused)
    if not grown or (told and not isinstance(event, events.SlotChanged)):
        return None
    if isinstance(event, events.SlotChanged):
        grown = [slot for slot in grown if slot != event.slot or _is_dead(event)]
    if grown and not run.spec.managed:
        return f"slots {grown} of a run whose nodes nobody submits"
    for slot in grown:
        node = run.slots[slot].live_node()
        if node is not None or (slot == 0 and run.spec.local_node):
            return f"slot {slot} is wanted again, and is there: {node}"
    return None


def _is_dead(event: events.SlotChanged) -> bool:
    return event.news.state in DEAD_SUBMISSIONS


def what_is_wanted_again_is_counted(history: History, run: Run, event: Event) -> Wrong:
    """Each worker run that is wanted again after the go is one of `max_replacements`."""
    facts = history.of(run)
    if not run.spec.outlives_nodes or not run.spec.managed:
        return None
    if not facts.epochs.gone or facts.before.phase is Phase.FINISHED:
        return None
    grown = [s for s, before in facts.before.wanted.items() if run.slots[s].wanted > before]
    by_itself = getattr(event, "slot", None) in grown and not _fails(event)
    if isinstance(event, events.SubmitAgain):  # its submission had failed, which is no loss
        failed = all(
            run.slots[slot].state in DEAD_SUBMISSIONS or _does_not_come(history, run, slot)
            for slot in grown
        )
        return None if failed else f"slots {grown} are there"
    if isinstance(event, events.Joined) or (by_itself and isinstance(event, events.SlotChanged)):
        return None
    counted = run.starts.resubmitted - facts.epochs.resubmitted
    return None if counted >= len(grown) else f"slots {grown}, and {counted} are counted"


def _does_not_come(history: History, run: Run, index: int) -> bool:
    """Whether its worker run has been running beside the programs for as long as a node may take to
    join."""
    slot = run.slots[index]
    limit = run.spec.limits.join_timeout_seconds
    there = slot.node is not None and slot.node.state is not NodeState.RELEASED
    late = slot.state is SlotState.RUNNING and history.at - slot.since >= limit - 0.01
    return run.phase is Phase.RUNNING and late and not there


def _fails(event: Event) -> bool:
    return not isinstance(event, events.SlotChanged) or _is_dead(event)


def it_goes_on_only_with_enough(
    history: History, run: Run, event: events.Lost | events.Left | events.Exited
) -> Wrong:
    """Between two epochs a run goes on after a loss only with enough nodes, there or to come."""
    facts = history.of(run)
    on = facts.epochs.is_between and facts.before.phase in FORMING_AGAIN
    if not run.spec.outlives_nodes or not on or run.phase is Phase.FINISHED:
        return None
    if run.phase is Phase.RUNNING or facts.epochs.is_late(event):
        return None
    return None if can_outlive(run) else f"{event.kind} of slot {event.slot}, and it goes on"


def a_run_that_may_go_on_does(history: History, run: Run, event: Event) -> Wrong:
    """The loss of a node ends a run only when too few are left, and too few may come."""
    facts, result = history.of(run), run.result
    if not run.spec.outlives_nodes or result is None or facts.before.phase is Phase.FINISHED:
        return None
    if result.code != "node_lost" or not facts.epochs.gone:
        return None
    rows = facts.epochs.rows.items()
    off = {s.index for s in run.slots if s.node is not None and s.node.state is NodeState.LOST}
    lost = off | {slot for slot, _ in rows & (facts.epochs.leaving | facts.off_at.keys())}
    return f"without {sorted(lost)}: {result.message}" if can_outlive(run, lost) else None


def a_shrunk_table_is_large_enough(history: History, run: Run, event: Event) -> Wrong:
    """No table is smaller than the least, nor larger than the most, and standbys have room."""
    if not run.spec.outlives_nodes or run.table is None:
        return None
    rows = len(run.table.rows)
    by = [s for s in run.slots if s.node is not None and s.node.state is NodeState.STANDBY]
    if not run.spec.min_nodes <= rows <= run.spec.max_nodes:
        return f"{rows} rows"
    in_table = [slot.index for slot in by if run.table.row_of_slot(slot.index) is not None]
    if run.phase is Phase.RUNNING and in_table:
        return f"slots {in_table} stand by, and are in the table"
    most = run.spec.max_nodes + run.spec.standby
    went = run.phase is Phase.RUNNING and history.of(run).before.phase is Phase.ARMING
    awaited = [index for index in run.missing if not run.slots[index].given_up] if went else []
    words = f"{rows} rows, {len(by)} standbys, and slots {awaited} are awaited"
    return words if rows + len(by) + len(awaited) > most else None


def nobody_is_overtaken(history: History, run: Run, event: Event) -> Wrong:
    """No node of the former table that is there is left out for another one."""
    facts, table = history.of(run), run.table
    if not run.spec.outlives_nodes or not facts.epochs.over or run.phase is not Phase.ARMING:
        return None
    assert table is not None
    former, rows = facts.epochs.ranks, {row.slot for row in table.rows}
    out = run.attempt.left_out
    surplus = [slot for slot, why in out.items() if why in (NOT_NEEDED, STANDS_BY)]
    behind = [slot for slot in surplus if slot in former and run.slots[slot].live_node()]
    if behind and rows - former.keys():
        return f"slots {behind} are left out for {sorted(rows - former.keys())}"
    if surplus and len(rows) < run.spec.max_nodes:
        return f"slots {surplus} stand by, and the table has {len(rows)} rows"
    return None


def a_table_has_the_newest_generations(history: History, run: Run, event: Event) -> Wrong:
    """Each row is of the worker run that is there, and of none older than one in a table before."""
    facts, table = history.of(run), run.table
    if not run.spec.outlives_nodes or table is None or table is facts.before.table:
        return None
    if table.generations is None or run.phase is not Phase.ARMING:
        return None if table.generations else f"epoch {table.epoch} has no generations"
    for row, generation in zip(table.rows, table.generations, strict=True):
        node = run.slots[row.slot].node
        if node is None or node.join.generation != generation:
            return f"slot {row.slot}: generation {generation}, and there is {node}"
        if generation < facts.epochs.generations.get(row.slot, 0):
            return f"slot {row.slot}: generation {generation} after a newer one"
        facts.epochs.generations[row.slot] = generation
    return None


def who_is_left_out_for_a_cause_does_not_stand_by(
    history: History, run: Run, event: Event
) -> Wrong:
    """Nobody stands by who has failed a check, or could not start: it is released."""
    if not run.spec.outlives_nodes or run.phase is not Phase.RUNNING:
        return None
    for slot, why in run.attempt.left_out.items():
        node = run.slots[slot].node
        if why.cause is not None and node is not None and node.state is NodeState.STANDBY:
            return f"slot {slot}: {why.words}"
    return None


def who_is_full_again_waits_for_nobody(history: History, run: Run, event: Event) -> Wrong:
    """Once as many nodes are there as the programs have run on, or enough, the run goes on."""
    facts, spec = history.of(run), run.spec
    if not spec.outlives_nodes or run.phase is not Phase.GATHERING or not facts.epochs.gone:
        return None
    nodes = [node for slot in run.slots if (node := slot.live_node()) is not None]
    is_sick = any(found.level == "fail" for node in nodes for found in node.join.findings)
    before = min(len(facts.epochs.ranks), spec.max_nodes)
    enough = spec.min_nodes if spec.on_node_loss == "shrink" else before
    waits_for_0 = spec.local_node and run.slots[0].live_node() is None
    if len(nodes) < enough or waits_for_0 or is_sick:
        return None
    return f"{len(nodes)} nodes are there, and {before} were before"


def a_lost_standby_stops_nobody(
    history: History, run: Run, event: events.Lost | events.Left | events.Exited
) -> Wrong:
    """Who stands by is no matter to the programs that run."""
    facts = history.of(run)
    runs = facts.before.phase is Phase.RUNNING and not facts.before.stop
    if not run.spec.outlives_nodes or not runs or event.slot in facts.epochs.rows:
        return None
    return f"slot {event.slot}" if run.phase is not Phase.RUNNING or run.stop else None


def the_go_waits_for_each_fence_and_no_longer(history: History, run: Run, event: Event) -> Wrong:
    """Programs start again once each silent node has had its fence time-out, and at once then.

    It counts since the node was heard of; what is over for its scheduler need not be waited for.
    That one is silent which was released is known once its lease is over.
    """
    facts, before, epochs = history.of(run), history.of(run).before, history.of(run).epochs
    if before.phase is not Phase.ARMING or run.phase is not Phase.RUNNING:
        return None
    if not run.spec.outlives_nodes or not epochs.over:
        return None
    last, until, known = epochs.over[-1], 0.0, 0.0
    for key in last.rows.items() & epochs.heard.keys():
        owner = facts.owners.get(key)
        over = owner is None or (owner.slot, owner.generation) in facts.said_over
        if owner is None or over or _has_armed_since(facts, key, last.epoch):
            continue
        until = max(until, epochs.heard[key] + facts.launch.fence)
        if history.now() < until - _SWEEP:
            return f"{owner.name}: {until - history.now():.2f} s too soon"
        known = max(known, epochs.heard[key] + dead_after(facts.launch))
    due = max(until, known, epochs.ready)
    late = isinstance(event, events.FenceOver) and history.now() > due + LATE
    if not late or history.gaps or disk_was_bad(history):
        return None
    if until:
        return f"{history.now() - until:.2f} s too late"
    gone = {slot for slot, _ in last.rows.items() & facts.off_at.keys()}
    leaves = last.rows.items() & epochs.leaving or gone - set(last.end.replaced)
    return None if leaves or set(last.end.replaced) - gone else "nobody was silent"


def _has_armed_since(facts: Facts, key: tuple[int, int], epoch: int) -> bool:
    """Whether it has acknowledged a later table: by then its program had ended."""
    acked = {digest for slot, incarnation, digest in facts.acks if (slot, incarnation) == key}
    return any(digest in acked for after, digest in facts.tables.items() if after > epoch)


def nobody_waits_for_the_fence_of_who_has_ended(
    history: History, run: Run, event: events.FenceOver
) -> Wrong:
    """Where a scheduler says that a worker run is over, the next programs do not wait for it."""
    facts, before = history.of(run), history.of(run).before
    waited = before.phase is Phase.ARMING and not before.waiting_for and run.phase is Phase.RUNNING
    if not run.spec.outlives_nodes or not waited or not run.spec.managed:
        return None
    launchers = history.world.live_launchers(facts.index)
    what = {fault.what for fault in history.world.schedule.faults}
    if not launchers or what & OF_SCHEDULERS - _HARMLESS:
        return None
    if any(is_cut_off(history, launcher) or launcher.signalled_at for launcher in launchers):
        return None
    epochs, now = facts.epochs, history.now()
    held = [facts.owners[key] for key in epochs.over[-1].rows.items() & epochs.heard.keys()]
    held = [x for x in held if (x.slot, x.generation) not in facts.said_over]
    since = [now - owner.gone.at if owner.gone is not None else 0.0 for owner in held]
    if min(since, default=0.0) > _ENDED_SECONDS:
        return f"{held[0].name} had ended {since[0]:.1f} s before"
    return None


# --- of what nodes do -----------------------------------------------------------------------------


def no_program_of_an_epoch_before_is_there(
    history: History, process: Process, digest: str
) -> Wrong:
    """When a program starts, none of an epoch before runs: also none of a node that was lost."""
    facts, now = process.facts, history.now()
    if not facts.launch.outlives_nodes:
        return None
    epoch = facts.sealed[digest].epoch if digest in facts.sealed else 0
    for other in history.processes:
        if other.facts is not facts or other.ended is not None or other.was_paused:
            continue
        if _is_believed_gone(history, other):
            continue
        for life in other.lives:
            if life.epoch < epoch and life.ended_at is None and not other.serves:
                silent = now - other.door.traffic.arrived_at
                words = f"{process.name} starts in epoch {epoch}, {other.name} is in {life.epoch}"
                return f"{words}, silent for {silent:.2f} s"
    return None


def _is_believed_gone(history: History, other: Process) -> bool:
    """Whether its scheduler had said so, or its connection was seen to close: then its program has
    its grace, and is not waited for."""
    scheduler = history.world.schedulers[other.index]
    lied = any(scheduler.called_over) or scheduler.lie_slot == other.slot
    closed = other.door.traffic.closed_at >= other.door.traffic.arrived_at
    return lied or (closed and is_troubled(other))


def who_was_lost_starts_nothing(history: History, process: Process, digest: str) -> Wrong:
    """A node that was given up, released or fenced starts no program on any later table."""
    facts, launch = process.facts, process.launch
    if not launch.outlives_nodes or process.was_paused:
        return None
    silent = history.now() - process.door.traffic.arrived_at
    if silent > launch.fence:
        return f"{process.name} starts, silent for {silent:.2f} s"
    if process.released:
        return f"{process.name} was released"
    lost = facts.off_at.get((process.slot, process.incarnation))
    went = facts.epochs.gone.get(facts.sealed[digest].epoch) if digest in facts.sealed else None
    return f"{process.name}" if went is not None and lost is not None and lost < went else None


def a_program_ends_by_its_fence(history: History, process: Process) -> Wrong:
    """A node of which its registry has not heard for the fence time-out has no program."""
    if not process.launch.outlives_nodes or process.was_paused or process.serves:
        return None
    for life in process.lives:
        ended = life.unheard if life.ended_at is not None else 0.0
        if ended > process.launch.fence + _MOMENT:
            return f"{process.name}, epoch {life.epoch}: it ended unheard for {ended:.2f} s"
    return None


def who_stood_by_ends_well(history: History, process: Process) -> Wrong:
    """A standby that was not disturbed ends with 0, and is told the result, or its release."""
    world = history.world
    if not process.launch.outlives_nodes or not process.stood_by or process.lives:
        return None
    if is_troubled(process) or process.stuck or process.fault or world.registry_was_down:
        return None
    if any(launcher.hurried_at is not None for launcher in world.launchers):
        return None
    told = process.result is not None or process.released
    wrong = f"{process.name} ended with {process.ended}, told {told}"
    return None if process.ended == 0 and told else wrong


# --- of what launchers do -------------------------------------------------------------------------


def only_what_replaces_is_submitted_after_the_go(
    history: History, launcher: Launcher, run: Submitted, *, is_child: bool
) -> Wrong:
    """After the go a worker run is submitted only where one is wanted in an empty place."""
    known, ran = history.run_of(history.facts[run.join.launch_id]), launcher.ran_at
    if not launcher.launch.outlives_nodes or ran is None or known is None:
        return None
    if history.now() - ran < _SETTLED_SECONDS:
        return None
    slot = known.slots[run.slot]
    there = slot.live_node()
    if there is not None and there.join.generation >= run.generation:
        return f"{run.name}, and slot {run.slot} has {there.join.hostname}"
    return None if slot.wanted <= run.generation else f"{run.name}, and {slot.wanted} is wanted"


def who_is_fenced_is_waited_for_no_longer(
    history: History, launcher: Launcher, status: RunStatus
) -> Wrong:
    """Once nothing of the older ones runs any more a worker run is submitted.

    Whatever the scheduler says of those.
    """
    scheduler = history.world.schedulers[launcher.index]
    if not launcher.launch.outlives_nodes or status.phase is Phase.FINISHED:
        return None
    what = {fault.what for fault in history.world.schedule.faults} - {"cancel refused"}
    if is_cut_off(history, launcher) or what & OF_SCHEDULERS - _HARMLESS or launcher.signalled_at:
        return None
    for slot in status.slots:
        since = launcher.fenced_at.get((slot.slot, slot.wanted_generation))
        since = since if slot.awaited or slot.node is not None else None
        if since is None or history.now() - since < _SUBMITTED_SECONDS or launcher.launch.symmetric:
            continue
        known = {(run.slot, run.generation) for run in scheduler.runs}
        is_local = slot.slot == 0 and launcher.launch.here
        if (slot.slot, slot.wanted_generation) not in known and not is_local:
            return f"slot {slot.slot}, generation {slot.wanted_generation}, fenced at {since:.2f}"
    return None


# --- at the end -----------------------------------------------------------------------------------


def a_run_outlives_as_many_nodes_as_it_may(history: History, world: World) -> Wrong:
    """With s standbys and m replacements a run ends well after s + m losses.

    If nothing else is wrong; and one that shrinks, as long as the least are left.
    """
    run = history.runs.get("r0")
    if (
        run is None
        or run.result is None
        or not run.spec.outlives_nodes
        or run.result.status == "ok"
    ):
        return None
    facts, launch = history.of(run), history.of(run).launch
    what = {fault.what for fault in world.schedule.faults}
    programs = [code for programs in (launch.program, *launch.later) for _, code in programs]
    if len(world.schedule.launches) > 1 or what - _HARMLESS or any(programs):
        return None
    lost = [owner for owner in history.processes if owner.was_killed]
    first = min(facts.epochs.gone.values(), default=None)
    if first is None or any(owner.gone is None or owner.gone.at < first for owner in lost):
        return None
    if any(owner.slot == 0 for owner in lost) and run.spec.local_node:
        return None
    if not run.spec.managed or max(launch.boot) > launch.join_timeout / 2:
        return None
    # As the first programs began: who came later was not needed.
    tables = [t for t in facts.sealed.values() if t.epoch == min(facts.epochs.gone)]
    began_with = max((len(table.rows) for table in tables), default=launch.nodes)
    more = launch.standby + launch.max_replacements + began_with - launch.least
    if launch.on_node_loss == "shrink":
        more -= launch.max_replacements
    return f"{len(lost)} were lost: {run.result.message}" if len(lost) <= more else None
