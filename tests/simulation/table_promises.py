"""The promises about tables, time-outs and the verdict: see `promises`."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from rendezvous.run import events
from rendezvous.run.events import Event
from rendezvous.run.state import NOT_NEEDED, Run
from rendezvous.wire.errors import ExitCode
from rendezvous.wire.run import DEFAULT_MASTER_PORT, Phase
from rendezvous.wire.table import EndpointTable, TableRow
from tests.simulation.epochs import begins_again
from tests.simulation.history import Facts, History, Wrong
from tests.simulation.promises import (
    LATE,
    VERDICT_SECONDS,
    dead_after,
    disk_was_bad,
    has_told_its_end,
)
from tests.simulation.schedule import names

if TYPE_CHECKING:
    from tests.simulation.agents import Process
    from tests.simulation.world import World

_MOST_PORTS = 32
_PHASE_SECONDS = 12.0
_STOPPING_SECONDS = 18.0
"""More, where a program may have to end first: its grace, and 15 s to kill it."""
_BY_ITS_CODE = names("""
join_timeout, verification_failed, arming_failed, scheduler_failed, cancelled, node_lost,
preflight_failed
""")
"""What ends a run with the exit code of that name."""


# --- tables ---------------------------------------------------------------------------------------


def the_master_is_rank_0(history: History, run: Run, event: Event) -> Wrong:
    """Its address is that of the table's first row, its port the one asked for or known free."""
    facts = history.of(run)
    table, launch, former = run.table, facts.launch, facts.before.table
    if table is None or table is former:
        return None
    first = next(row for row in table.rows if row.node == 0)
    if table.master_address != first.address:
        return f"{table.master_address}, and node 0 is at {first.address}"
    expected: int | None = launch.port or launch.free_port or DEFAULT_MASTER_PORT
    if isinstance(event, events.ArmRefused) and former and event.report.code == "port_taken":
        expected = launch.port or event.report.free_port or former.master_port + 1
    elif facts.epochs.over:
        expected = launch.port or facts.epochs.port + 1
    return None if table.master_port == expected else f"{table.master_port}, not {expected}"


def ranks_are_as_asked_for(history: History, run: Run, event: Event) -> Wrong:
    """Requested ranks are honoured, and closed up in order where there are fewer nodes."""
    facts = history.of(run)
    if run.table is None or run.table is facts.before.table or facts.epochs.over:
        return None
    asked = {row.node: facts.launch.ranks[row.slot] for row in run.table.rows if row.slot}
    given = [(rank, wish) for rank, wish in sorted(asked.items()) if wish is not None]
    if all(wish < len(run.table.rows) for _, wish in given):
        return f"{given}" if any(rank != wish for rank, wish in given) else None
    wishes = [wish for _, wish in given]
    return f"{given}" if wishes != sorted(wishes) else None


def other_ranks_follow_subnet_and_name(history: History, run: Run, event: Event) -> Wrong:
    """Of nodes that ask for no number those of a subnet stand together, by the number in a name."""
    facts = history.of(run)
    if run.table is None or run.table is facts.before.table or facts.epochs.over:
        return None
    rows = [row for row in run.table.rows if row.slot and facts.launch.ranks[row.slot] is None]
    home = _subnet(run.table.rows[0])
    groups = [(subnet, [*found]) for subnet, found in itertools.groupby(rows, _subnet)]
    subnets = [subnet for subnet, _ in groups]
    numbers = [[int(x.hostname.removeprefix("host")) for x in found] for _, found in groups]
    apart = len(set(subnets)) < len(subnets) or (home in subnets and subnets[0] != home)
    if apart or any(group != sorted(group) for group in numbers):
        return f"{[(row.address, row.hostname) for row in run.table.rows]}"
    return None


def _subnet(row: TableRow) -> str:
    return row.address.rpartition(".")[0] if row.prefix_length == 24 else ""


def nobody_is_superfluous_while_there_is_room(history: History, run: Run, event: Event) -> Wrong:
    """A spare steps in for a node that the table has to go without."""
    if run.table is None or run.phase is not Phase.ARMING:
        return None
    spare = [slot for slot, why in run.attempt.left_out.items() if why == NOT_NEEDED]
    if spare and len(run.table.rows) < run.spec.max_nodes:
        return f"{len(run.table.rows)} rows, and slots {spare} are not needed"
    return None


def as_few_as_can_be_are_left_out(history: History, run: Run, event: events.Probed) -> Wrong:
    """The network is taken on which most nodes really reach each other; if enough do, one is."""
    facts = history.of(run)
    before = facts.before
    silent = any(what == "silent probes" for what, _, _ in history.world.marks)
    if before.phase is not Phase.VERIFYING or silent or facts.epochs.over:
        return None
    nodes = {slot.index: slot.node for slot in run.slots if slot.index in before.taking_part}
    owners = [facts.owners.get((slot, node.incarnation)) for slot, node in nodes.items() if node]
    there = [owner for owner in owners if owner is not None]
    best = max(_largest(history.world, there, net) for net in range(facts.launch.networks))
    if run.phase is Phase.ARMING and run.table is not None:
        few = len(run.table.rows) < min(best, run.spec.max_nodes)
        return f"{len(run.table.rows)} rows, and {best} nodes reach each other" if few else None
    failed = run.result is not None and run.result.code == "verification_failed"
    if failed and best >= run.spec.min_nodes:
        return f"{best} nodes reach each other: {run.result}"
    return None


def _largest(world: World, there: list[Process], network: int) -> int:
    """How many nodes, slot 0 among them, all reach each other on a network."""
    for size in range(len(there), 0, -1):
        for some in itertools.combinations(there, size):
            if some[0].slot == 0 and all(
                world.reaches(a, b.slot, f"eth{network}")
                for a, b in itertools.permutations(some, 2)
            ):
                return size
    return 0


def a_node_that_cannot_arm_is_left_out(history: History, run: Run, event: Event) -> Wrong:
    """Who is late to verify or to arm, or refuses, ends the run only when it cannot be spared."""
    facts = history.of(run)
    before = facts.before
    if run.phase is not Phase.FINISHED or before.phase not in (Phase.VERIFYING, Phase.ARMING):
        return None
    if isinstance(event, events.TimedOut) and not facts.epochs.over:
        guilty = set(before.waiting_for)
    elif isinstance(event, events.ArmRefused) and event.report.code == "port_taken":
        may_move = facts.launch.port is None and facts.ports_taken <= _MOST_PORTS
        return f"{facts.ports_taken} ports were tried" if may_move else None
    elif facts.epochs.over:
        return None  # nobody can be spared once programs have started
    elif isinstance(event, events.ArmRefused) and event.report.code == "hosts":
        guilty = {event.slot}
    else:
        return None
    spare = {slot for slot, why in before.left_out.items() if why == NOT_NEEDED}
    others = (before.taking_part | spare) - guilty
    if 0 in guilty or len(others) < run.spec.min_nodes:
        return None
    return f"slots {sorted(others)} are there without {sorted(guilty)}"


# --- time-outs and the verdict --------------------------------------------------------------------


def a_phase_has_its_time(history: History, run: Run, event: Event) -> Wrong:
    """Verifying a network and arming a table take as long as they may, neither less nor more."""
    facts = history.of(run)
    if facts.before.phase not in (Phase.VERIFYING, Phase.ARMING):
        return None
    lasted, limit = history.at - facts.phase_before_at, _PHASE_SECONDS
    if facts.epochs.over and facts.before.phase is Phase.ARMING:
        limit += _STOPPING_SECONDS
        limit += facts.launch.fence * (run.spec.outlives_nodes and not facts.before.waiting_for)
    if isinstance(event, events.TimedOut) and lasted < limit - 0.01:
        return f"{facts.before.phase} was over after {lasted:.2f} s"
    if lasted > limit + LATE and not disk_was_bad(history):
        return f"{facts.before.phase} has lasted {lasted:.2f} s"
    return None


def the_verdict_is_in_its_time(history: History, run: Run, event: Event) -> Wrong:
    """It falls 2 s after the first failure is known, or when every program has ended."""
    facts, again = history.of(run), begins_again(history.of(run), run)
    if facts.stop_at is None or facts.before.table is None or not facts.starts:
        return None
    if run.result is None and not again:
        return None
    ended_now = facts.before.phase is Phase.RUNNING and facts.before.stop
    lasted, still = history.at - facts.stop_at, _still_runs(facts, facts.before.table)
    cancelled = run.result is not None and run.result.code == "cancelled"
    early = lasted < VERDICT_SECONDS - 0.01 and not cancelled
    if ended_now and early and still is not None:
        return f"it fell after {lasted:.2f} s, and {still.name} has not ended"
    return None


def _still_runs(facts: Facts, table: EndpointTable) -> Process | None:
    """A node of the table of which the registry had neither an end nor a loss."""
    digest = table.digest()
    for row in table.rows:
        for (slot, incarnation), owner in facts.owners.items():
            known = (slot, incarnation) in facts.known_at or (slot, incarnation) in facts.off_at
            started = (row.slot, incarnation, digest) in facts.starts
            if slot == row.slot and started and not known:
                return owner
    return None


def the_verdict_waits_for_the_silent(
    history: History, run: Run, event: events.VerdictFell
) -> Wrong:
    """A node that was silent since before the others were stopped may be the first cause."""
    facts = history.of(run)
    table = facts.before.table
    if facts.stopped_at is None or table is None or event.unheard:
        return None
    now, lease = history.now(), dead_after(facts.launch)
    due = facts.stopped_at + VERDICT_SECONDS  # a gap after that is over before anybody is asked
    back = max((end for start, end in history.gaps if end <= now and start <= due), default=0.0)
    if now - max(due, back) > lease - 0.5:
        return None
    since = facts.stopped_at - history.world.disk.slow_seconds  # decided before it was written
    for (slot, incarnation), owner in facts.owners.items():
        known = (slot, incarnation) in facts.known_at or (slot, incarnation) in facts.off_at
        heard = max(owner.door.traffic.arrived_at, owner.path.echoed_at)
        told = not known and table.row_of_slot(slot) is not None
        mine = run.slots[slot].incarnations == incarnation
        if told and mine and heard < since - 0.05:
            return f"{owner.name} was heard of at {heard:.2f}, the stop was at {since:.2f}"
    return None


def nobody_is_waited_for_for_ever(history: History, run: Run, event: Event) -> Wrong:
    """However many are silent, a node of which nothing is heard for three leases is given up."""
    facts, now = history.of(run), history.now()
    if run.phase is Phase.FINISHED or history.gaps or disk_was_bad(history):
        return None
    for (slot, incarnation), owner in facts.owners.items():
        node = run.slots[slot].live_node()
        silent = now - max(owner.door.traffic.arrived_at, owner.path.echoed_at)
        mine = node is not None and node.incarnation == incarnation
        if mine and silent > 3 * dead_after(facts.launch) + LATE:
            return f"{owner.name} was silent for {silent:.1f} s"
    return None


def the_exit_code_is_the_causes(history: History, run: Run, event: Event) -> Wrong:
    """The result's exit code is that of the program it names, or the one of its kind of cause."""
    facts, result = history.of(run), run.result
    if result is None or facts.before.phase is Phase.FINISHED:
        return None
    if (result.status == "ok") != (result.exit_code == 0):
        return f"{result}"
    if result.code in _BY_ITS_CODE and result.exit_code != ExitCode[result.code.upper()]:
        return f"{result.code} with exit code {result.exit_code}"
    if result.code != "program_failed" or result.slot is None:
        return None
    code = facts.exit_codes.get((result.slot, run.slots[result.slot].incarnations))
    wrong = f"slot {result.slot} ended with {code}, the run with {result.exit_code}"
    return None if result.exit_code == code else wrong


def who_has_ended_well_is_not_lost(
    history: History, run: Run, event: events.Lost | events.Left
) -> Wrong:
    """A node that goes after its program has ended well, and that was told, fails nothing."""
    facts = history.of(run)
    if facts.before.stop or not run.stop or facts.epochs.is_between:
        return None
    owner = facts.owners.get((event.slot, event.incarnation))
    told = has_told_its_end(facts, event)
    well = owner is not None and owner.program_code == 0
    return f"slot {event.slot} had ended" if told and well else None


def a_loss_after_the_go_stops_all(
    history: History, run: Run, event: events.Lost | events.Left
) -> Wrong:
    """A node of the table that goes before its program has ended ends the run."""
    facts = history.of(run)
    if facts.before.phase is not Phase.RUNNING:
        return None
    in_table = run.table is not None and run.table.row_of_slot(event.slot) is not None
    told = has_told_its_end(facts, event)
    here = facts.before.nodes.get(event.slot, (0, 0))[0] == event.incarnation
    return f"slot {event.slot}" if in_table and here and not told and not run.stop else None
