"""The promises of DESIGN.md section 3 that are about time, counts and choice.

As all invariants they judge by the history. What they read of a node's process and of a launcher,
whoever plays them, is this and no more; recorders around real ones have to provide it:

    process   name, facts, launch, slot, generation, number, incarnation
              machine.alive, machine.paused, path (light, is_late, is_troubled, echoed_at)
              door.traffic (arrived_at, closed_at: what the registry really read of it)
              seq, epoch, acked        what it was told and has acknowledged last
              result, released         what it was told of the end
              started_at, program_code, program_ended_at, failed_at      its program
              gone, ended, fault       when it was gone, its exit code and the code of its error
              troubled, was_paused, was_slow, stuck, signal_told, serves
    launcher  ended, outcome, machine (alive, name), belongs_to(index)
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rendezvous.run import events
from rendezvous.run.events import Event
from rendezvous.run.state import NOT_NEEDED, Run
from rendezvous.wire.errors import ExitCode, RunExists, Unauthorized
from rendezvous.wire.run import DEFAULT_MASTER_PORT, NodeState, Phase, RunStatus, SlotState
from rendezvous.wire.table import TableRow
from rendezvous.wire.watch import NodeView
from tests.simulation.history import Facts, Failure, History, Wrong

if TYPE_CHECKING:
    from tests.simulation.agents import Process
    from tests.simulation.schedule import Launch
    from tests.simulation.world import World

_LATE = 0.75
"""Two sweeps and a commit: so late may come what time brings."""
_SWEEP = 0.3
_DISK = {"disk full", "disk slow", "disk lies"}
_LAST_CALL_SECONDS = 3.0
_PHASE_SECONDS = 12.0
_VERDICT_SECONDS = 2.0
_STALL_SECONDS = 1.5
"""A registry that was stopped for so long has noticed it."""
_LAUNCHER_SECONDS = 120.0
_MOST_PORTS = 32
_BEFORE_GO = (Phase.GATHERING, Phase.VERIFYING, Phase.ARMING)
_DEAD = (SlotState.FAILED, SlotState.ENDED)
_TOLD_TO_END = (129, 130, 143)
_EXIT_CODES = {
    "join_timeout": ExitCode.JOIN_TIMEOUT,
    "verification_failed": ExitCode.VERIFICATION_FAILED,
    "arming_failed": ExitCode.ARMING_FAILED,
    "scheduler_failed": ExitCode.SCHEDULER_FAILED,
    "cancelled": ExitCode.CANCELLED,
    "node_lost": ExitCode.NODE_LOST,
    "preflight_failed": ExitCode.PREFLIGHT_FAILED,
}


def poll(launch: Launch) -> float:
    """How long a poll may last: 2 s, and less where seven have to fit into the lease."""
    return min(2.0, launch.lease / 7)


def dead_after(launch: Launch) -> float:
    """How long a silent node is kept."""
    return max(launch.lease, 7 * poll(launch))


def suspect_after(launch: Launch) -> float:
    """How long a node may be silent before another one may have its slot."""
    return 3 * poll(launch)


def _owner(facts: Facts, slot: int, incarnation: int) -> Process | None:
    return facts.owners.get((slot, incarnation))


def _disk_was_bad(history: History) -> bool:
    return not _DISK.isdisjoint(fault.what for fault in history.world.schedule.faults)


def _is_troubled(process: Process) -> bool:
    return process.troubled or process.path.is_troubled


# --- of each record, before it is applied: leases and who may speak -------------------------------


def a_node_is_given_up_for_a_reason(history: History, run: Run, event: events.Lost) -> Wrong:
    """A lost node said nothing for its lease, or closed its connection, or its worker run ended."""
    facts = history.of(run)
    process = _owner(facts, event.slot, event.incarnation)
    if process is None:
        return None
    launch, traffic, now = facts.launch, process.door.traffic, history.now()
    silent = now - traffic.arrived_at
    over = (process.slot, process.generation) in facts.said_over
    if silent >= (suspect_after(launch) if over else dead_after(launch)) - 0.05:
        return None
    closed = now - traffic.closed_at
    was_heard = 0 <= traffic.closed_at - traffic.arrived_at < suspect_after(launch) + 0.05
    if closed >= 0.95 and was_heard and not _read_after_a_stall(history, traffic.closed_at, launch):
        return None
    return f"{process.name} was silent for {silent:.2f} s, closed for {closed:.2f} s, over: {over}"


def _read_after_a_stall(history: History, closed_at: float, launch: Launch) -> bool:
    """Whether a close may be old: the registry had been stopped, and had just begun to read."""
    world = history.world
    if world.registries.crashes or world.owns_registry:  # a new process reads what is new
        return False
    stalls = [(start, end) for start, end in history.gaps if end - start > _STALL_SECONDS]
    return any(end <= closed_at < end + suspect_after(launch) - 0.5 for _, end in stalls)


def most_nodes_are_not_given_up_together(history: History, run: Run, event: events.Lost) -> Wrong:
    """When most nodes are silent, nobody is given up for a lease more: it may be the registry."""
    facts, now = history.of(run), history.now()
    launch = facts.launch
    process = _owner(facts, event.slot, event.incarnation)
    recently = [at for at in facts.lost_at if now - at < 2 * dead_after(launch) and at < now]
    if process is None or history.gaps or recently or _disk_was_bad(history):
        return None
    if (process.slot, process.generation) in facts.said_over:
        return None
    lost = process.door.traffic
    if lost.closed_at >= lost.arrived_at and now - lost.arrived_at < dead_after(launch):
        return None
    here = [
        owner.door.traffic.arrived_at
        for key, owner in facts.owners.items()
        if facts.off_at.get(key, now) > now - 0.5
    ]
    silent = [at for at in here if now - at >= suspect_after(launch) + 0.1]
    if len(silent) < 3 or 100 * len(silent) < 55 * len(here):
        return None
    held = now - min(silent)
    if held >= 2 * dead_after(launch) - 0.5:
        return None
    return f"{process.name} was given up with {len(silent)} of {len(here)} silent for {held:.2f} s"


def a_holder_is_displaced_only_when_suspect(
    history: History, run: Run, event: events.Joined
) -> Wrong:
    """Within a generation a slot is free after three silent polls, or 0.75 s after a close."""
    facts, slot = history.of(run), run.slots[event.request.slot]
    holder = slot.live_node()
    if holder is None or holder.join.generation < event.request.generation:
        return None
    process = _owner(facts, slot.index, holder.incarnation)
    if process is None:
        return None
    traffic, now = process.door.traffic, history.now()
    silent, closed = now - traffic.arrived_at, now - traffic.closed_at
    is_suspect = silent >= suspect_after(facts.launch) - 0.05
    is_closed = closed >= 0.7 and traffic.closed_at >= traffic.arrived_at
    return None if is_suspect or is_closed else f"{process.name} was heard {silent:.2f} s ago"


def a_node_of_another_job_is_not_taken(history: History, run: Run, event: events.Joined) -> Wrong:
    """Size, framework, COMMAND and version of a node are those of its run."""
    request, spec = event.request, run.spec
    sizes = {str(spec.max_nodes), f"{spec.min_nodes}:{spec.max_nodes}", None}
    digests = {history.of(run).command, request.job.command_digest} - {""}
    wrong = [
        request.job.nnodes not in sizes and request.job.nnodes,
        request.job.framework != history.of(run).launch.framework and request.job.framework,
        len(digests) > 1 and "COMMAND",
        request.facts.rdzv_version.startswith("99.") and request.facts.rdzv_version,
    ]
    return f"slot {request.slot}: {wrong}" if any(wrong) else None


def a_rank_can_be_had(history: History, run: Run, event: events.Joined) -> Wrong:
    """Nobody joins who asks for a rank beyond the run, or for rank 0 without being slot 0."""
    rank, slot = event.request.requested_rank, event.request.slot
    if rank is None or (rank < run.spec.slots and (rank == 0) == (slot == 0)):
        return None
    return f"slot {slot} asks for rank {rank}"


def a_clash_names_both(history: History, run: Run, event: events.Refused) -> Wrong:
    """A node that asks for another one's rank is refused with the names of both."""
    if event.exit_code is not None:
        return None
    launch, mine = history.of(run).launch, history.of(run).launch.ranks[event.slot]
    marks = history.world.marks
    if mine is None or ("other job", history.of(run).index, event.slot) in marks:
        return None
    others = [slot.index for slot in run.members() if launch.ranks[slot.index] == mine]
    others = [slot for slot in others if slot != event.slot]
    if not others or mine >= launch.slots or (mine == 0) != (event.slot == 0):
        return None
    named = {int(found) for found in re.findall(r"slot (\d+)", event.reason)}
    return None if {event.slot, others[0]} <= named else event.reason


def a_report_counts_once(
    history: History, run: Run, event: events.Probed | events.Acked | events.Exited
) -> Wrong:
    """What a node says again of one epoch, or of its end, changes nothing."""
    facts = history.of(run)
    epoch = 0 if isinstance(event, events.Exited) else event.report.epoch
    key = (event.kind, event.slot, event.incarnation, epoch)
    known = key in facts.reported
    facts.reported.add(key)
    return f"{key}" if known else None


def a_worker_run_ends_once(history: History, run: Run, event: events.SlotChanged) -> Wrong:
    """A worker run that has ended is not said to live; none is submitted for a finished run."""
    slot, news = run.slots[event.slot], event.news
    if run.phase is Phase.FINISHED and news.state is SlotState.SUBMITTING:
        return f"slot {slot.index}, generation {news.generation}"
    if news.generation == slot.generation and slot.state in _DEAD and news.state not in _DEAD:
        return f"slot {slot.index}: {news.state} after {slot.state}"
    return None


def a_launcher_that_lives_is_believed(
    history: History, run: Run, event: events.SlotChanged
) -> Wrong:
    """What it said of the queue holds as long as it lives and can be heard."""
    if event.news.state is not SlotState.UNKNOWN or run.slots[event.slot].state is not (
        SlotState.QUEUED
    ):
        return None
    facts, world = history.of(run), history.world
    scheduler = world.schedulers[facts.index]
    lied = scheduler.lie is SlotState.UNKNOWN and scheduler.lie_slot == event.slot
    lied |= scheduler.was_silent
    alive = any(
        x.machine.alive and not x.ended for x in world.launchers if x.belongs_to(facts.index)
    )
    path = world.network.path(facts.index, -1)
    if lied or not alive or path.light or path.is_late or world.registry_was_down:
        return None
    return f"slot {event.slot} was taken out of the queue"


def a_cancel_does_not_hide_a_failure(history: History, run: Run, event: events.Cancelled) -> Wrong:
    """A run that a node had failed is not 'cancelled', unless the first to end was told to end.

    A registry that ends after its launcher has no time for a verdict.
    """
    if run.phase is not Phase.RUNNING or "launcher was killed" in event.reason:
        return None
    facts, now = history.of(run), history.now()
    for failure in facts.failures:
        owner = _owner(facts, failure.slot, failure.incarnation)
        if owner is None or (failure.slot, failure.incarnation) not in facts.known_at:
            continue
        if facts.known_at[failure.slot, failure.incarnation] >= now - 0.01:
            continue
        told = owner.program_code in _TOLD_TO_END or owner.signal_told
        if not told and not _was_told_before(facts, failure.at):
            return f"{owner.name} had failed with {owner.program_code}"
    return None if _disk_was_bad(history) or history.gaps else _cancel_overlooked(facts, now)


def _was_told_before(facts: Facts, at: float) -> bool:
    """Whether a node of whose end the registry knows had been told to end by then."""
    told = [facts.owners[key] for key, code in facts.exit_codes.items() if code in _TOLD_TO_END]
    return any(owner.signal_told and owner.signalled_at <= at for owner in told)


def _cancel_overlooked(facts: Facts, now: float) -> Wrong:
    """A node that had died before somebody cancelled: its closed connection was to be seen."""
    for (slot, incarnation), owner in facts.owners.items():
        if owner.gone is None or owner.failed_at != owner.gone.at:  # it had not died of this
            continue
        traffic = owner.door.traffic
        was_heard = 0 <= traffic.closed_at - traffic.arrived_at < suspect_after(facts.launch)
        in_time = 0.35 < now - traffic.closed_at < 5.0
        if was_heard and in_time and (slot, incarnation) not in facts.off_at:
            return f"{owner.name} had died {now - traffic.closed_at:.2f} s before"
    return None


# --- of each state, after a record: gathering -----------------------------------------------------


def _missing(facts: Facts, run: Run) -> list[int]:
    return [slot.index for slot in run.slots if slot.index not in facts.before.nodes]


def the_last_call_lasts_its_time(history: History, run: Run, event: Event, at: float) -> Wrong:
    """It begins when enough are in, ends after its time, and not before others who may come."""
    facts = history.of(run)
    if isinstance(event, events.LastCallOver):
        since = facts.last_enough_since
        if since is None or at - since < _LAST_CALL_SECONDS - 0.01:
            return f"it began at {since}, and was over at {at}"
        if facts.before.given_up.issuperset(_missing(facts, run)):
            return "nobody was awaited"
    late = facts.enough_since is not None and at - facts.enough_since > _LAST_CALL_SECONDS + _LATE
    if late and run.phase is Phase.GATHERING and not _disk_was_bad(history):
        return f"enough are in since {facts.enough_since}, it is {at}"
    return None


def nobody_comes_after_the_last_call(
    history: History, run: Run, event: events.Joined, at: float
) -> Wrong:
    """A slot that was empty when the nodes were gathered stays so, unless they gather again."""
    facts = history.of(run)
    if facts.before.phase is Phase.GATHERING:
        return None
    again = run.phase is Phase.GATHERING or run.epoch > facts.before.epoch
    if event.request.slot in facts.before.nodes and again:
        return None
    return f"slot {event.request.slot} was filled in phase {facts.before.phase}, now {run.phase}"


def a_join_time_out_is_in_time(history: History, run: Run, event: Event, at: float) -> Wrong:
    """It ends the run once slots that it cannot spare were awaited for the time, not later."""
    facts = history.of(run)
    if run.phase not in (Phase.GATHERING, Phase.FINISHED) or facts.before.phase is not (
        Phase.GATHERING
    ):
        return None
    limit, missing = run.spec.limits.join_timeout_seconds, _missing(facts, run)
    waits = {slot: facts.waits_before[slot].seconds(at) for slot in missing}

    def ends_it(late: set[int]) -> bool:
        return 0 in late or len(run.slots) - len(late) < run.spec.min_nodes

    if ends_it({s for s in missing if waits[s] > limit + _LATE}) and not _disk_was_bad(history):
        return f"it comes late: waited {waits}"
    if isinstance(event, events.TimedOut):
        late = {s for s in missing if waits[s] >= limit - 0.01}
        late |= facts.before.given_up.intersection(missing)
        return None if ends_it(late) else f"waited {waits}, given up {sorted(late)}"
    return None


def checks_wait_for_others(history: History, run: Run, event: Event, at: float) -> Wrong:
    """Sick nodes end a run only when too few others are there and too few may still come."""
    facts = history.of(run)
    sick = [
        slot.index
        for slot in run.slots
        if slot.node and any(f.level == "fail" for f in slot.node.join.findings)
    ]
    if facts.before.phase is not Phase.GATHERING or not sick or 0 in sick:
        return None
    limit = run.spec.limits.join_timeout_seconds
    there = {slot.index for slot in run.slots if slot.node is not None}
    awaited = [
        slot.index
        for slot in run.slots
        if slot.index not in there
        and not slot.given_up
        and facts.waits[slot.index].seconds(at) < limit - 0.01
    ]
    may_be = len(there - set(sick)) + len(awaited)
    failed = run.result is not None and run.result.code == "preflight_failed"
    if failed and may_be >= run.spec.min_nodes:
        return f"sick {sick}, there {sorted(there)}, awaited {awaited}: {run.result}"
    went_on = isinstance(event, events.LastCallOver) and run.phase is Phase.GATHERING
    if went_on and may_be < run.spec.min_nodes:
        return f"sick {sick}, there {sorted(there)}, awaited {awaited}: it waits once more"
    return None


# --- retries and who is spared --------------------------------------------------------------------


def _failing(event: Event) -> int | None:
    """The slot whose worker run or node fails by this event."""
    if isinstance(event, events.Lost | events.Exited | events.Left):
        return event.slot
    if isinstance(event, events.SlotChanged) and event.news.state in _DEAD:
        return event.slot
    return event.slot if isinstance(event, events.Refused) and event.exit_code is not None else None


def a_slot_has_its_retries(history: History, run: Run, event: Event, at: float) -> Wrong:
    """Before the go a failed node ends the run only when it may not be tried again, nor spared."""
    facts, slot = history.of(run), _failing(event)
    if not run.spec.managed:  # nobody submits: whoever comes again comes by itself
        return None
    if slot is None or facts.before.phase not in _BEFORE_GO or run.phase is Phase.RUNNING:
        return None
    failed = len(facts.failed_generations.get(slot, ()))
    lasting = isinstance(event, events.Refused) and not event.retryable
    again = failed <= run.spec.limits.submit_retries and not lasting
    others = run.spec.slots - len(facts.before.given_up | {slot})
    spared = slot != 0 and others >= run.spec.min_nodes
    if run.result is not None and run.result.slot != slot:
        return None
    if facts.before.phase is not Phase.FINISHED and run.phase is Phase.FINISHED:
        return f"slot {slot} failed {failed} times: {run.result}" if again or spared else None
    return _goes_on_without_it(facts, run, event, slot, again=again, spared=spared)


def _goes_on_without_it(
    facts: Facts, run: Run, event: Event, slot: int, *, again: bool, spared: bool
) -> Wrong:
    emptied = slot in facts.before.nodes and run.slots[slot].node is None
    refused = isinstance(event, events.Refused)
    if not emptied and not refused:
        return None
    wanted, left_out = facts.before.wanted[slot], slot in facts.before.left_out
    if facts.before.phase is Phase.GATHERING:
        left_out = False
    generation = facts.before.nodes.get(slot, (0, wanted))[1]
    on_the_way = generation < wanted
    more = run.slots[slot].wanted > wanted
    if again and not left_out and not more and not on_the_way:
        return f"slot {slot}, generation {generation}, is not submitted again"
    if refused and more and not again:
        return f"slot {slot} is submitted again, though it refuses for good"
    if not (again or spared or left_out or on_the_way):
        return f"slot {slot} cannot be spared, and the run goes on without it"
    return None


def who_is_out_already_does_not_fail(
    history: History, run: Run, event: events.SlotChanged, at: float
) -> Wrong:
    """The end of a worker run that is replaced already, or given up, changes nothing."""
    facts = history.of(run)
    before = facts.before
    if event.news.state not in _DEAD:
        return None
    slot, generation = event.slot, event.news.generation
    newer = generation > facts.generation_before
    if slot in before.nodes or newer or before.phase not in _BEFORE_GO:
        return None
    if slot not in before.given_up and before.wanted[slot] <= generation:
        return None
    changed = run.slots[slot].wanted > before.wanted[slot] or run.phase is Phase.FINISHED
    return f"the end of slot {slot}, generation {generation}" if changed else None


def the_schedulers_word_is_not_enough(
    history: History, run: Run, event: events.SlotChanged, at: float
) -> Wrong:
    """It ends no node after the go, and before the go only one of the worker run that ended."""
    facts = history.of(run)
    before = facts.before
    if before.phase is Phase.RUNNING and (run.phase is not Phase.RUNNING or run.stop > before.stop):
        return f"{event.news.state} of slot {event.slot} ends a running run"
    held = before.nodes.get(event.slot)
    gone = held is not None and run.slots[event.slot].live_node() is None
    if gone and held is not None and held[1] != event.news.generation:
        return f"slot {event.slot}, generation {held[1]}, goes with {event.news.generation}"
    return None


# --- tables ---------------------------------------------------------------------------------------


def the_master_is_rank_0(history: History, run: Run, event: Event, at: float) -> Wrong:
    """Its address is that of the table's first row, its port the one asked for or known free."""
    facts = history.of(run)
    table, launch = run.table, history.of(run).launch
    if table is None or table is facts.before.table:
        return None
    first = next(row for row in table.rows if row.rank == 0)
    if table.master_address != first.address:
        return f"{table.master_address}, and rank 0 is at {first.address}"
    expected: int | None = launch.port or launch.free_port or DEFAULT_MASTER_PORT
    if isinstance(event, events.ArmRefused) and event.report.code == "port_taken":
        expected = launch.port or event.report.free_port or facts.port_before + 1
    return None if table.master_port == expected else f"{table.master_port}, not {expected}"


def ranks_are_as_asked_for(history: History, run: Run, event: Event, at: float) -> Wrong:
    """Requested ranks are honoured, and closed up in order where there are fewer nodes."""
    facts = history.of(run)
    if run.table is None or run.table is facts.before.table:
        return None
    asked = {row.rank: facts.launch.ranks[row.slot] for row in run.table.rows if row.slot}
    given = [(rank, wish) for rank, wish in sorted(asked.items()) if wish is not None]
    if all(wish < len(run.table.rows) for _, wish in given):
        return f"{given}" if any(rank != wish for rank, wish in given) else None
    wishes = [wish for _, wish in given]
    return f"{given}" if wishes != sorted(wishes) else None


def other_ranks_follow_subnet_and_name(
    history: History, run: Run, event: Event, at: float
) -> Wrong:
    """Of nodes that ask for no rank those of a subnet stand together, by the number in a name."""
    facts = history.of(run)
    if run.table is None or run.table is facts.before.table:
        return None
    rows = [row for row in run.table.rows if row.slot and facts.launch.ranks[row.slot] is None]
    home = _subnet(run.table.rows[0])
    subnets = [subnet for subnet, _ in itertools.groupby(rows, _subnet)]
    numbers = [
        [int(row.hostname.removeprefix("host")) for row in group]
        for _, group in itertools.groupby(rows, _subnet)
    ]
    apart = len(set(subnets)) < len(subnets) or (home in subnets and subnets[0] != home)
    if apart or any(group != sorted(group) for group in numbers):
        return f"{[(row.address, row.hostname) for row in run.table.rows]}"
    return None


def _subnet(row: TableRow) -> str:
    return row.address.rpartition(".")[0] if row.prefix_length == 24 else ""


def nobody_is_superfluous_while_there_is_room(
    history: History, run: Run, event: Event, at: float
) -> Wrong:
    """A spare steps in for a node that the table has to go without."""
    if run.table is None or run.phase is not Phase.ARMING:
        return None
    spare = [slot for slot, why in run.attempt.left_out.items() if why == NOT_NEEDED]
    if spare and len(run.table.rows) < run.spec.max_nodes:
        return f"{len(run.table.rows)} rows, and slots {spare} are not needed"
    return None


def as_few_as_can_be_are_left_out(
    history: History, run: Run, event: events.Probed, at: float
) -> Wrong:
    """The network is taken on which most nodes really reach each other; if enough do, one is."""
    facts = history.of(run)
    before = facts.before
    silent = any(what == "silent probes" for what, _, _ in history.world.marks)
    if before.phase is not Phase.VERIFYING or silent:
        return None
    there = []
    for slot in run.slots:
        owner = None if slot.node is None else _owner(facts, slot.index, slot.node.incarnation)
        if slot.node is not None and owner is not None and slot.index in before.taking_part:
            there.append(owner)
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


def a_node_that_cannot_arm_is_left_out(
    history: History, run: Run, event: Event, at: float
) -> Wrong:
    """Who is late to verify or to arm, or refuses, ends the run only when it cannot be spared."""
    facts = history.of(run)
    before = facts.before
    if run.phase is not Phase.FINISHED or before.phase not in (Phase.VERIFYING, Phase.ARMING):
        return None
    if isinstance(event, events.TimedOut):
        guilty = set(before.waiting_for)
    elif isinstance(event, events.ArmRefused) and event.report.code == "hosts":
        guilty = {event.slot}
    elif isinstance(event, events.ArmRefused) and event.report.code == "port_taken":
        may_move = facts.launch.port is None and facts.ports_taken <= _MOST_PORTS
        return f"{facts.ports_taken} ports were tried" if may_move else None
    else:
        return None
    spare = {slot for slot, why in before.left_out.items() if why == NOT_NEEDED}
    others = (before.taking_part | spare) - guilty
    if 0 in guilty or len(others) < run.spec.min_nodes:
        return None
    return f"slots {sorted(others)} are there without {sorted(guilty)}"


# --- time-outs and the verdict --------------------------------------------------------------------


def a_phase_has_its_time(history: History, run: Run, event: Event, at: float) -> Wrong:
    """Verifying a network and arming a table take as long as they may, neither less nor more."""
    facts = history.of(run)
    if facts.before.phase not in (Phase.VERIFYING, Phase.ARMING):
        return None
    lasted = at - facts.phase_before_at
    if isinstance(event, events.TimedOut) and lasted < _PHASE_SECONDS - 0.01:
        return f"{facts.before.phase} was over after {lasted:.2f} s"
    if lasted > _PHASE_SECONDS + _LATE and not _disk_was_bad(history):
        return f"{facts.before.phase} has lasted {lasted:.2f} s"
    return None


def the_verdict_is_in_its_time(history: History, run: Run, event: Event, at: float) -> Wrong:
    """It falls 2 s after the first failure is known, or when every program has ended."""
    facts = history.of(run)
    before = facts.before
    if facts.stop_at is None or run.table is None or not facts.starts:
        return None
    ended_now = run.phase is Phase.FINISHED and before.phase is Phase.RUNNING
    if ended_now and before.stop and run.result and run.result.code != "cancelled":
        early = at - facts.stop_at < _VERDICT_SECONDS - 0.01
        still = _still_runs(facts, run)
        if early and still is not None:
            return f"it fell after {at - facts.stop_at:.2f} s, and {still.name} has not ended"
    return None


def _still_runs(facts: Facts, run: Run) -> Process | None:
    """A node of the table of which the registry had neither an end nor a loss."""
    assert run.table is not None
    for row in run.table.rows:
        for (slot, incarnation), owner in facts.owners.items():
            known = (slot, incarnation) in facts.known_at or (slot, incarnation) in facts.off_at
            started = (row.slot, incarnation, run.digest) in facts.starts
            if slot == row.slot and started and not known:
                return owner
    return None


def the_verdict_waits_for_the_silent(
    history: History, run: Run, event: events.VerdictFell, at: float
) -> Wrong:
    """A node that was silent since before the others were stopped may be the first cause."""
    facts = history.of(run)
    if facts.stopped_at is None or run.table is None or event.unheard:
        return None
    now, lease = history.now(), dead_after(facts.launch)
    due = facts.stopped_at + _VERDICT_SECONDS  # a gap after that is over before anybody is asked
    back = max((end for start, end in history.gaps if end <= now and start <= due), default=0.0)
    if now - max(due, back) > lease - 0.5:
        return None
    for (slot, incarnation), owner in facts.owners.items():
        known = (slot, incarnation) in facts.known_at or (slot, incarnation) in facts.off_at
        heard = owner.door.traffic.arrived_at
        since = facts.stopped_at
        told = not known and run.table.row_of_slot(slot) is not None
        mine = run.slots[slot].incarnations == incarnation
        if told and mine and heard < since - 0.05 and owner.path.echoed_at < heard:
            return f"{owner.name} was heard of at {heard:.2f}, the stop was at {since:.2f}"
    return None


def nobody_is_waited_for_for_ever(history: History, run: Run, event: Event, at: float) -> Wrong:
    """However many are silent, a node of which nothing is heard for three leases is given up."""
    facts, now = history.of(run), history.now()
    if run.phase is Phase.FINISHED or history.gaps or _disk_was_bad(history):
        return None
    for (slot, incarnation), owner in facts.owners.items():
        node = run.slots[slot].live_node()
        silent = now - max(owner.door.traffic.arrived_at, owner.path.echoed_at)
        mine = node is not None and node.incarnation == incarnation
        if mine and silent > 3 * dead_after(facts.launch) + _LATE:
            return f"{owner.name} was silent for {silent:.1f} s"
    return None


def the_exit_code_is_the_causes(history: History, run: Run, event: Event, at: float) -> Wrong:
    """The result's exit code is that of the program it names, or the one of its kind of cause."""
    facts, result = history.of(run), run.result
    if result is None or facts.before.phase is Phase.FINISHED:
        return None
    if (result.status == "ok") != (result.exit_code == 0):
        return f"{result}"
    if result.code in _EXIT_CODES and result.exit_code != _EXIT_CODES[result.code]:
        return f"{result.code} with exit code {result.exit_code}"
    if result.code != "program_failed" or result.slot is None:
        return None
    code = facts.exit_codes.get((result.slot, run.slots[result.slot].incarnations))
    if result.exit_code == code:
        return None
    return f"slot {result.slot} ended with {code}, the run with {result.exit_code}"


def who_has_ended_well_is_not_lost(
    history: History, run: Run, event: events.Lost | events.Left, at: float
) -> Wrong:
    """A node that goes after its program has ended well, and that was told, fails nothing."""
    facts = history.of(run)
    if facts.before.stop or not run.stop:
        return None
    owner = _owner(facts, event.slot, event.incarnation)
    told = ("exited", event.slot, event.incarnation, 0) in facts.reported
    well = owner is not None and owner.program_code == 0
    return f"slot {event.slot} had ended" if told and well else None


def a_loss_after_the_go_stops_all(
    history: History, run: Run, event: events.Lost | events.Left, at: float
) -> Wrong:
    """A node of the table that goes before its program has ended ends the run."""
    facts = history.of(run)
    if facts.before.phase is not Phase.RUNNING:
        return None
    in_table = run.table is not None and run.table.row_of_slot(event.slot) is not None
    told = ("exited", event.slot, event.incarnation, 0) in facts.reported
    here = facts.before.nodes.get(event.slot, (0, 0))[0] == event.incarnation
    return f"slot {event.slot}" if in_table and here and not told and not run.stop else None


# --- of what nodes and launchers see --------------------------------------------------------------


def the_newest_worker_run_starts(history: History, process: Process, digest: str) -> Wrong:
    """A newer worker run that asks for a slot has it at once, though an older one lives there."""
    facts, now = process.facts, history.now()
    for other in history.processes:
        mine = other.facts is facts and other.slot == process.slot
        marked = any(key[1:] == (facts.index, process.slot) for key in history.world.marks)
        if not mine or marked or other.generation <= process.generation or other.path.is_late:
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
    facts.idle_at[process.number] = now
    if last is not None and now - last < poll(launch) / 2 and not history.gaps:
        return f"{process.name} was told nothing twice within {now - last:.3f} s"
    return None


def news_come_at_once(history: History, process: Process, view: NodeView) -> Wrong:
    """Who watches is told in no time."""
    path, facts = process.path, process.facts
    if history.world.schedule.faults or path.light or path.is_late or view.seq == process.seq:
        return None
    if history.runs[process.launch.run].spec.launch_id != facts.launch_id:
        return None
    late = history.now() - facts.news_at.get(view.seq, history.now())
    return f"{process.name}: {late:.2f} s late" if process.seq and late > 0.25 else None


def _waits(facts: Facts, owner: Process) -> bool:
    """Whether it wants to know the result, and nobody has said that it is over."""
    waits = owner.machine.alive and owner.result is None and not owner.released
    return waits and (owner.slot, owner.generation) not in facts.said_over


def everyone_left_means_it(history: History, status: RunStatus) -> Wrong:
    """All have left when no node is there that wants to know the result."""
    run = history.runs.get(status.run)
    if not status.everyone_left or status.result is None or run is None:
        return None
    if run.spec.launch_id != status.launch_id:
        return None
    facts = history.of(run)
    for (slot, incarnation), owner in facts.owners.items():
        mine = run.slots[slot].incarnations == incarnation and run.slots[slot].node is not None
        if mine and _waits(facts, owner) and not _is_troubled(owner) and not owner.stuck:
            return f"{owner.name} does not know the result"
    return None


def a_cancel_ends_the_run(history: History, facts: Facts) -> Wrong:
    """Once a cancel is answered, the run is over, or is ending of a failure."""
    run = history.runs[facts.launch.run]
    if run.spec.launch_id != facts.launch_id or run.phase is Phase.FINISHED or run.stop:
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
    if history.world.registry_was_down or _disk_was_bad(history):
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
        if missed > gone.at + limit + _SWEEP + poll(facts.launch) * light + 0.1:
            return f"{owner.name} was gone at {gone.at:.2f}, missed at {missed:.2f}"
    return None


def the_scheduler_hastens_a_loss(history: History, world: World) -> Wrong:
    """A node whose worker run is over, as its scheduler says, is lost once it is suspect."""
    for facts, key, owner, gone, missed in _gone(history):
        said = facts.said_over.get((key[0], owner.generation))
        others = [o.gone for o in facts.owners.values() if o is not owner and o.gone]
        if said is None or key in facts.exit_codes or sum(one.silent for one in others) >= 2:
            continue
        if missed > max(said, gone.at + suspect_after(facts.launch)) + _SWEEP + 0.1:
            return f"{owner.name}: {said:.2f}, gone {gone.at:.2f}, missed {missed:.2f}"
    return None


def the_verdict_is_not_put_off(history: History, world: World) -> Wrong:
    """Once a failure is known the result follows in 2 s, if no node is silent meanwhile."""
    if world.registry_was_down or _disk_was_bad(history):
        return None
    for facts in history.facts.values():
        if facts.stopped_at is None or not facts.starts:
            continue
        ended = history.ended(facts)
        by = facts.stopped_at + _VERDICT_SECONDS + _LATE
        for owner in facts.owners.values():
            if owner.gone is not None and owner.gone.at < by:
                by = max(by, owner.gone.at + 1.0 + _LATE)
            silent = owner.gone is not None and owner.gone.silent
            if silent or owner.was_paused or owner.path.light or owner.path.is_late:
                lease = dead_after(facts.launch)
                by = max(by, facts.stopped_at + _VERDICT_SECONDS + lease + _LATE)
        if ended > by:
            return f"{facts.launch.run} was stopped at {facts.stopped_at:.2f}, ended at {ended:.2f}"
    return None


def who_comes_too_late_is_not_needed(history: History, world: World) -> Wrong:
    """A node that finds its run going well without it ends well."""
    for process in history.processes:
        run = history.runs.get(process.launch.run)
        if run is None or run.spec.launch_id != process.facts.launch_id or run.table is None:
            continue
        marked = any(key[1:] == (process.facts.index, process.slot) for key in world.marks)
        alone = sum(other.slot == process.slot for other in history.processes) == 1
        well = run.result is not None and run.result.status == "ok" and not process.facts.forgotten
        out = run.table.row_of_slot(process.slot) is None and process.incarnation == 0
        asked = process.door.traffic.arrived_at > 0 and not _is_troubled(process)
        if marked or not alone or not well or not out or not asked:
            continue
        if process.ended not in (0, int(ExitCode.JOIN_TIMEOUT), int(ExitCode.FENCED)):
            return f"{process.name} ended with {process.ended}"
    return None


def a_former_launch_is_remembered(history: History, world: World) -> Wrong:
    """A node that had joined is never a stranger, also not when another launch has its run id."""
    keeps = world.schedule.keep_finished > 100
    for process in history.processes:
        if process.incarnation and process.fault == Unauthorized.code and keeps:
            return f"{process.name} is a stranger"
    return None


def a_launch_is_refused_for_another_only(history: History, world: World) -> Wrong:
    """A launcher that comes back, or asks again, finds its own run."""
    for launcher in world.launchers:
        index = next(i for i in range(len(world.schedule.launches)) if launcher.belongs_to(i))
        name = world.schedule.launches[index].run
        others = sum(launch.run == name for launch in world.schedule.launches) > 1
        outcome = launcher.outcome
        code = outcome if isinstance(outcome, str) else outcome.code
        if code == RunExists.code and not others:
            return f"{launcher.machine.name} was refused"
    return None


def who_dies_right_after_its_join_is_missed(history: History, world: World) -> Wrong:
    """A node that was taken in, and is gone before it knows that, is given up within its lease."""
    if world.registry_was_down or _disk_was_bad(history):
        return None
    for process in history.processes:
        facts = process.facts
        incarnation = facts.joined.get(f"join-{process.number:012d}")
        path = process.path
        if incarnation is None or process.incarnation or process.gone is None or path.light:
            continue
        dead = sum(other.gone is not None for other in history.processes)
        by = process.gone.at + dead_after(facts.launch) * (1 + (dead > 1)) + _SWEEP + 0.1
        ended = history.ended(facts)
        off = facts.off_at.get((process.slot, incarnation), world.loop.time())
        if off > by and ended > by and path.echoed_at < process.gone.at:
            return f"{process.name} was gone at {process.gone.at:.2f}, missed at {off:.2f}"
    return None


def a_finished_run_is_forgotten(history: History, world: World) -> Wrong:
    """Where runs are kept for a short time, one is gone by then whose nodes have left."""
    keep = world.schedule.keep_finished
    if world.registry_was_down or world.owns_registry or _disk_was_bad(history) or keep > 100:
        return None
    for facts in history.facts.values():
        if facts.finished is None or facts.forgotten or not facts.owners:
            continue
        run = history.runs.get(facts.launch.run)
        troubled = any(_is_troubled(o) or o.stuck for o in facts.owners.values())
        last = max([facts.finished + keep, *(o.gone.at for o in facts.owners.values() if o.gone)])
        mine = run is not None and run.spec.launch_id == facts.launch_id
        if mine and not troubled and world.loop.time() > last + 1.5:
            return f"{facts.launch.run} ended at {facts.finished:.2f}"
    return None


def who_is_gone_has_left(history: History, world: World) -> Wrong:
    """Of a finished run no node counts as present that was gone for longer than its lease."""
    if _disk_was_bad(history) or world.registry_is_gone or history.world.network.registry is None:
        return None
    down = max((end for _, end in history.gaps), default=0.0)
    for facts in history.facts.values():
        run = history.runs.get(facts.launch.run)
        if run is None or run.spec.launch_id != facts.launch_id:
            continue
        for (slot, incarnation), owner in facts.owners.items():
            node = run.slots[slot].node
            mine = node is not None and node.incarnation == incarnation
            if not mine or owner.gone is None or node is None:
                continue
            since = max(owner.gone.at, owner.path.echoed_at, down)
            over = world.loop.time() - since > 2 * dead_after(facts.launch) + 2.0
            if over and node.state not in (NodeState.LOST, NodeState.LEFT):
                return f"{owner.name} is {node.state}, and gone since {owner.gone.at:.2f}"
    return None
