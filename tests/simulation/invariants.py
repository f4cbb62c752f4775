"""What must hold, whatever happens. Each answers with what is wrong, or with nothing.

They judge by the history, not by what the registry believes: who really acknowledged, started,
failed first, was disturbed, and what was durable when something was told.
"""

from __future__ import annotations

import re
import sys
from inspect import isfunction
from typing import TYPE_CHECKING

from rendezvous.run import events
from rendezvous.run.events import Event
from rendezvous.run.state import DEAD_SUBMISSIONS, OVER, Run
from rendezvous.run.views import reason
from rendezvous.wire.reports import AckReport, ExitReport, Report
from rendezvous.wire.run import NodeState, Phase, RunStatus
from rendezvous.wire.watch import NodeView
from tests.simulation import (
    agent_promises,
    departure_promises,
    end_promises,
    launch_promises,
    loss_promises,
    outcome_promises,
    promises,
    queue_promises,
    restart_promises,
    result_promises,
    table_promises,
)
from tests.simulation.disk import FULL, LIE
from tests.simulation.history import History, Judge, Wrong, news, plain
from tests.simulation.promises import FORMING, is_troubled

if TYPE_CHECKING:
    from tests.simulation.agents import Process

# Whom a run waits for, or what keeps its registry from its work.
_SOMEBODY = re.compile(rf"\b(slots?|node|rank) \d+|last call|{FULL}|{LIE}")
_LONG_LEASE_SECONDS = 15.0


# --- of each record, before it is applied ---------------------------------------------------------


def a_live_run_is_never_replaced(history: History, run: Run, coming: Event) -> Wrong:
    """A run id is given to another launch only after the former one is finished."""
    if isinstance(coming, events.Created) and run.phase is not Phase.FINISHED:
        return f"{run.id} was {run.phase}"
    return None


def the_registrys_time_never_goes_back(history: History, run: Run, coming: Event) -> Wrong:
    """The times of a run never fall, also not over a restart."""
    last_at = history.last_at.get(run.id, 0.0)
    # Once a run is forgotten as a whole, one of its name may begin on a clock that begins anew.
    if history.at < last_at and not isinstance(coming, events.Created):
        return f"{history.at} after {last_at}"
    return None


def a_stale_incarnation_changes_nothing(
    history: History, run: Run, coming: events.NodeEvent
) -> Wrong:
    """What an older incarnation, or one that was given up, says is never taken in."""
    node = run.slots[coming.slot].node
    if node is None or node.incarnation != coming.incarnation:
        said = f"{type(coming).__name__} of slot {coming.slot}, incarnation {coming.incarnation}"
        return f"{said}; now {node}"
    if node.state is NodeState.LOST and not isinstance(coming, events.Left):
        return f"{type(coming).__name__} of slot {coming.slot}, which was given up"
    return None


def a_stale_generation_changes_nothing(history: History, run: Run, coming: Event) -> Wrong:
    """Once a newer worker run is wanted or known, an older one cannot have the slot."""
    if isinstance(coming, events.Joined):
        slot = run.slots[coming.request.slot]
        if coming.request.generation < max(slot.wanted, slot.generation):
            return f"{coming.request.join_id} of generation {coming.request.generation}: {slot}"
    if isinstance(coming, events.SlotChanged):
        slot = run.slots[coming.slot]
        if coming.news.generation < slot.generation and not _may_have_run(history, run, coming):
            return f"news of generation {coming.news.generation}: {slot}"
    return None


def _may_have_run(history: History, run: Run, coming: events.SlotChanged) -> bool:
    """Whether it says that a worker run is over whose node was lost: others may wait for that."""
    facts, key = history.of(run), (coming.slot, coming.news.generation)
    began = any(x.facts is facts and (x.slot, x.generation) == key for x in history.processes)
    return run.spec.outlives_nodes and coming.news.state in DEAD_SUBMISSIONS and began


def an_old_epochs_report_changes_nothing(
    history: History, run: Run, coming: events.Probed | events.Acked | events.ArmRefused
) -> Wrong:
    """Probe results, acknowledgements and refusals count for the epoch that they are about."""
    if coming.report.epoch != run.epoch:
        return f"{coming.kind} of epoch {coming.report.epoch} in epoch {run.epoch}"
    if isinstance(coming, events.Acked) and coming.report.digest != run.digest:
        return f"slot {coming.slot} acknowledged {coming.report.digest[:12]}, not {run.digest[:12]}"
    return None


def a_join_is_taken_once(history: History, run: Run, coming: events.Joined) -> Wrong:
    """The same join again is the same incarnation, however often and late it comes."""
    if coming.request.join_id in history.of(run).joined:
        return f"{coming.request.join_id} became a second incarnation"
    return None


def a_live_holder_keeps_its_slot(history: History, run: Run, coming: events.Joined) -> Wrong:
    """Within a generation nobody displaces a node that is alive and was not disturbed.

    A lost message may be enough: with a short lease three polls are over before the next try.
    """
    slot = run.slots[coming.request.slot]
    holder = slot.live_node()
    if holder is None or holder.join.generation < coming.request.generation:
        return None
    process = history.of(run).owners.get((slot.index, holder.incarnation))
    if process is None or not process.machine.alive or is_troubled(process):
        return None
    path = process.path
    if path.light and (path.is_late or process.launch.lease < _LONG_LEASE_SECONDS):
        return None
    return f"{process.name} was displaced by {coming.request.join_id}"


def no_live_node_is_given_up(history: History, run: Run, coming: events.Lost) -> Wrong:
    """A node that runs and whose network works (a lost message is no matter) is never lost."""
    process = history.of(run).owners.get((coming.slot, coming.incarnation))
    if process is None or not process.machine.alive or is_troubled(process):
        return None
    if process.result is not None and process.path.light:
        return None  # it has its result and goes; its good-bye was lost
    return f"{process.name} was given up in phase {run.phase}: {coming.reason}"


def a_refusal_displaces_nobody(history: History, run: Run, coming: events.Refused) -> Wrong:
    """A node that refuses to join speaks for no other: not for a live one, nor for a newer one."""
    if coming.exit_code is None:
        return None
    slot = run.slots[coming.slot]
    stale = coming.generation < max(slot.wanted, slot.generation)
    return f"{coming} of {slot}" if stale or slot.live_node() is not None else None


# --- of each state, after a record ----------------------------------------------------------------


def ranks_are_0_to_n_minus_1(history: History, run: Run, event: Event) -> Wrong:
    """A table has every node once, in order, and slot 0 is node 0.

    It may be replaced, where it is no node of the launcher's own.
    """
    if run.table is None:
        return None
    rows = run.table.rows
    may_be_lost = run.spec.outlives_nodes and not run.spec.local_node
    is_0 = rows[0].slot == 0 or (may_be_lost and bool(history.of(run).epochs.over))
    if [row.node for row in rows] != list(range(len(rows))) or not is_0:
        return f"{[(row.node, row.slot) for row in rows]}"
    return None


def nobody_is_twice_in_a_table(history: History, run: Run, event: Event) -> Wrong:
    """No slot, no host and no address stands in a table twice."""
    if run.table is None:
        return None
    stand = [(row.slot, row.hostname, row.address) for row in run.table.rows]
    twice = any(len(set(values)) < len(stand) for values in zip(*stand, strict=True))
    return f"{stand}" if twice else None


def a_table_never_changes_within_its_epoch(history: History, run: Run, event: Event) -> Wrong:
    """An epoch has one table, named by its digest, and each table has an epoch of its own."""
    facts = history.of(run)
    if run.table is None or facts.sealed.get(run.digest) is run.table:
        return None
    facts.sealed[run.digest] = run.table
    if run.table.digest() != run.digest or run.table.epoch != run.epoch:
        return f"table of epoch {run.table.epoch} in epoch {run.epoch}, digest {run.digest[:12]}"
    known = facts.tables.setdefault(run.epoch, run.digest)
    return None if known == run.digest else f"epoch {run.epoch}: {known[:12]}, {run.digest[:12]}"


def a_table_holds_those_who_are_there(history: History, run: Run, event: Event) -> Wrong:
    """Until the go, the table is of exactly the nodes that take part, and of as many as may be."""
    if run.table is None or run.phase is not Phase.ARMING:
        return None
    there = {slot.index: slot.node.join.hostname for slot in run.taking_part() if slot.node}
    rows = {row.slot: row.hostname for row in run.table.rows}
    if rows != there or not run.spec.min_nodes <= len(rows) <= run.spec.max_nodes:
        return f"rows {rows}, nodes {there}"
    return None


def a_row_is_of_the_node_that_is_there(history: History, run: Run, event: Event) -> Wrong:
    """Until the go, each row has an address that its present node has offered."""
    for row in run.table.rows if run.table is not None and run.phase is Phase.ARMING else []:
        node = run.slots[row.slot].node
        offered = {one.address for one in node.join.candidates} if node is not None else set()
        if row.address not in offered:
            return f"slot {row.slot}: {row.address} is none of {sorted(offered)}"
    return None


def a_table_stands_on_proven_pairs(history: History, run: Run, event: Event) -> Wrong:
    """Every node of a table has really reached every other one at the address of its row."""
    if run.table is None or run.phase is not Phase.ARMING or not run.spec.verify:
        return None
    proven = history.of(run).proven
    nodes = {row.slot: run.slots[row.slot].incarnations for row in run.table.rows}
    for row in run.table.rows:
        for slot, incarnation in nodes.items():
            if slot != row.slot and (slot, incarnation, row.slot, row.address) not in proven:
                return f"slot {slot} never reached slot {row.slot} at {row.address}"
    return None


def a_sick_node_is_in_no_table(history: History, run: Run, event: Event) -> Wrong:
    """A node that failed a check of its own is in no table."""
    rows = run.table.rows if run.table is not None and run.phase is Phase.ARMING else []
    for row in rows:
        node = run.slots[row.slot].node
        if node is not None and any(f.level == "fail" for f in node.join.findings):
            return f"slot {row.slot}"
    return None


def the_epoch_never_goes_back(history: History, run: Run, event: Event) -> Wrong:
    """A new table has a higher epoch than all before it."""
    newest = max(history.of(run).tables, default=0)
    return f"epoch {run.epoch} after {newest}" if run.epoch < newest else None


def the_go_needs_every_acknowledgement(history: History, run: Run, event: Event) -> Wrong:
    """The run goes only when each node of the table has really acknowledged this table."""
    if run.phase is not Phase.RUNNING or history.of(run).before.phase is Phase.RUNNING:
        return None
    assert run.table is not None
    acks = history.of(run).acks
    for row in run.table.rows:
        node = run.slots[row.slot].node
        if node is None or (row.slot, node.incarnation, run.digest) not in acks:
            return f"slot {row.slot} has not acknowledged {run.digest[:12]}"
    return None


def the_result_never_changes(history: History, run: Run, event: Event) -> Wrong:
    """A finished run has one result, for ever."""
    if (run.result is None) != (run.phase is not Phase.FINISHED):
        return f"{run.phase} with {run.result}"
    results = {repr(told[-1]) for told in history.of(run).news.values() if told[-1]}
    return f"{results}" if len(results) > 1 else None


def every_wait_has_a_reason(history: History, run: Run, event: Event) -> Wrong:
    """At every moment there are words for whom or what is waited for, whether asked for or not."""
    return _no_reason(run.phase, reason(run, history.at))


def _no_reason(phase: Phase, words: str) -> Wrong:
    wrong = not words.strip() or (phase in FORMING and not _SOMEBODY.search(words))
    return f"{phase}: {words!r}" if wrong else None


def a_led_run_is_over_with_its_leader(history: History, run: Run, event: Event) -> Wrong:
    """Once node 0 of a led run, or of one that ends with node 0, has ended well, it is over."""
    ends_with_head = run.spec.led or run.spec.ends_with == "node0"
    if not ends_with_head or run.phase is not Phase.RUNNING or run.stop:
        return None
    leads = next((slot for slot, rank in history.of(run).epochs.ranks.items() if not rank), 0)
    leader = run.slots[leads].node
    ended = leader is not None and leader.exit is not None and leader.exit.exit_code == 0
    return f"{run.id} goes on without its leader" if ended else None


def a_time_out_has_somebody_who_is_late(
    history: History, run: Run, event: events.TimedOut
) -> Wrong:
    """Before the go a time-out names a node that was slow, or was disturbed."""
    if event.phase is Phase.GATHERING:
        return None
    owners, waited_for = history.of(run).owners, run.waiting_for | set(run.attempt.left_out)
    if run.spec.outlives_nodes:
        waited_for |= history.of(run).before.waiting_for  # it gathers again, without these
    for index in waited_for:
        process = owners.get((index, run.slots[index].incarnations))
        if process is None or process.stuck or process.was_slow or process.troubled:
            return None
        if process.path.light or process.ended is not None:  # or its registry was away for long
            return None
    return f"{run.result}"


# --- of what the registry answers -----------------------------------------------------------------


def nothing_is_told_that_a_crash_could_take_back(
    history: History, said: NodeView | RunStatus
) -> Wrong:
    """Whatever leaves the registry is in the journal by then."""
    if isinstance(said, NodeView):
        known = any(facts.news.get(said.seq) == news(said) for facts in history.facts.values())
        return None if known else f"news {said.seq}: {news(said)}"
    facts = history.facts[said.launch_id]
    if (run := history.run_of(facts)) is None:
        return None if facts.created else f"{said.run} was never made"
    return None if said.version <= run.version else f"version {said.version} > {run.version}"


def what_is_told_has_a_reason(history: History, said: NodeView | RunStatus) -> Wrong:
    """Whoever waits is told for whom or for what; a launcher, how long that may take as well."""
    words, waits = said.reason, said.phase in FORMING
    if waits and isinstance(said, RunStatus) and said.remaining_seconds is None:
        return f"{said.phase} with no end: {words}"
    return _no_reason(said.phase, words)


# --- of what nodes and launchers see --------------------------------------------------------------


def an_incarnation_is_one_node(history: History, process: Process, join_id: str) -> Wrong:
    """Two nodes never get the same incarnation of a slot; what is answered is durable."""
    durable = process.facts.joined.get(join_id)
    if durable != process.incarnation:
        return f"{process.name}: the journal says incarnation {durable}"
    return None


def news_never_go_back(history: History, process: Process, view: NodeView) -> Wrong:
    """Neither the number of the news nor the epoch that a node sees ever falls."""
    if view.seq < process.seq or view.epoch < process.epoch:
        return f"{process.name}: {view.seq}/{view.epoch} after {process.seq}/{process.epoch}"
    return None


def a_table_is_what_its_digest_says(history: History, process: Process, view: NodeView) -> Wrong:
    """The table that a node is given has the digest that it is to acknowledge."""
    if view.table is not None and view.table.digest() != view.digest:
        return f"{process.name}: {view.table.digest()[:12]} is not {view.digest[:12]}"
    return None


def all_are_told_one_result(history: History, process: Process, view: NodeView) -> Wrong:
    """Every node, and the launcher, is told the same result."""
    told = process.facts.told
    if view.result is not None and told and plain(told[0]) != view.result:
        return f"{process.name} was told {view.result}, others {told[0]}"
    return None


def nobody_starts_before_all_acknowledged(history: History, process: Process, digest: str) -> Wrong:
    """When a program starts, each node of its table has acknowledged that table."""
    table = process.facts.sealed.get(digest)
    if table is None:
        return f"{process.name} starts on {digest[:12]}"
    acked = {(slot, acked) for slot, _, acked in process.facts.acks}
    missing = [row.slot for row in table.rows if (row.slot, digest) not in acked]
    return f"slots {missing} had not acknowledged {digest[:12]}" if missing else None


def all_start_on_one_table_and_each_slot_once(
    history: History, process: Process, digest: str
) -> Wrong:
    """In an epoch every program starts on one table, and no slot has two that start."""
    sealed = process.facts.sealed
    for slot, incarnation, other in process.facts.starts:
        if process.facts.epochs.over and sealed[other].epoch < sealed[digest].epoch:
            continue
        if other != digest:
            return f"{process.name} starts on {digest[:12]}, slot {slot} on {other[:12]}"
        if slot == process.slot:
            return f"{process.name} starts, as incarnation {incarnation} did before"
    return None


def no_acknowledged_fact_is_lost(history: History, process: Process, report: Report) -> Wrong:
    """A report that was answered is in the journal, or the run had gone on without it."""
    run = history.run_of(process.facts)
    node = None if run is None else run.slots[process.slot].node
    if run is None or node is None or node.incarnation != process.incarnation:
        return None
    if isinstance(report, AckReport):
        awaited = run.phase is Phase.ARMING and report.epoch == run.epoch
        if awaited and process.slot in run.waiting_for:
            return f"{process.name}: its acknowledgement"
    unknown = run.phase is not Phase.FINISHED and node.state not in OVER
    if isinstance(report, ExitReport) and process.facts.epochs.over:
        unknown &= node.reported < report.epoch
    return f"{process.name}: its exit" if isinstance(report, ExitReport) and unknown else None


_MODULES = [sys.modules[__name__], result_promises, promises, table_promises, end_promises]
_MODULES += [agent_promises, launch_promises, outcome_promises, restart_promises]
_MODULES += [departure_promises, loss_promises, queue_promises]
ALL: list[Judge] = [
    judge
    for module in _MODULES
    for judge in vars(module).values()
    if isfunction(judge) and judge.__module__ == module.__name__
    if judge.__annotations__["return"] == "Wrong" and judge.__name__[0] != "_"
]
"""Every invariant; its name and its first line are what a person reads, its parameters say when it
is asked."""
