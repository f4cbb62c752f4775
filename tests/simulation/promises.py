"""The promises of DESIGN.md section 3 that are about time, counts and choice."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rendezvous.run import events
from rendezvous.run.events import Event
from rendezvous.run.state import Run
from rendezvous.wire.protocol import PROTOCOL
from rendezvous.wire.run import NodeState, Phase, SlotState
from tests.simulation.history import Facts, History, Wrong
from tests.simulation.losses import can_outlive, lost_in

if TYPE_CHECKING:
    from tests.simulation.agents import Process
    from tests.simulation.schedule import Launch

LATE = 0.75
"""Two sweeps and a commit: so late may come what time brings."""
SWEEP = 0.3
_DISK = {"disk full", "disk slow", "disk lies"}
_LAST_CALL_SECONDS = 3.0
_INSTANT = 0.01
VERDICT_SECONDS = 2.0
_STALL_SECONDS = 1.5
"""A registry that was stopped for so long has noticed it."""
_LAUNCHER_SECONDS = 120.0
BEFORE_GO = (Phase.GATHERING, Phase.VERIFYING, Phase.ARMING)
FORMING = (*BEFORE_GO, Phase.RESTARTING)
_DEAD = (SlotState.FAILED, SlotState.ENDED)
_TOLD_TO_END = (129, 130, 143)


def poll(launch: Launch) -> float:
    """How long a poll may last: 2 s, and less where seven have to fit into the lease."""
    return min(2.0, launch.lease / 7)


def dead_after(launch: Launch) -> float:
    """How long a silent node is kept."""
    return max(launch.lease, 7 * poll(launch))


def suspect_after(launch: Launch) -> float:
    """How long a node may be silent before another one may have its slot."""
    return 3 * poll(launch)


def disk_was_bad(history: History) -> bool:
    return not _DISK.isdisjoint(fault.what for fault in history.world.schedule.faults)


def is_troubled(process: Process) -> bool:
    return process.troubled or process.path.is_troubled


def is_marked(process: Process) -> bool:
    """Whether something waits for the nodes of its slot."""
    return any(key[1:] == (process.index, process.slot) for key in process.world.marks)


# --- of each record, before it is applied: leases and who may speak -------------------------------


def a_node_is_given_up_for_a_reason(history: History, run: Run, coming: events.Lost) -> Wrong:
    """A lost node said nothing for its lease, or closed its connection, or its worker run ended."""
    facts = history.of(run)
    process = facts.owners.get((coming.slot, coming.incarnation))
    if process is None:
        return None
    launch, traffic, now = facts.launch, process.door.traffic, history.now()
    heard = traffic.known_at(now)
    silent = now - heard
    over = (process.slot, process.generation) in facts.said_over
    if silent >= (suspect_after(launch) if over else dead_after(launch)) - 0.05:
        return None
    closed = now - traffic.closed_at
    was_heard = 0 <= traffic.closed_at - heard < suspect_after(launch) + 0.05
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


def most_nodes_are_not_given_up_together(history: History, run: Run, coming: events.Lost) -> Wrong:
    """When most nodes are silent, nobody is given up for a lease more: it may be the registry."""
    facts, now = history.of(run), history.now()
    launch = facts.launch
    process = facts.owners.get((coming.slot, coming.incarnation))
    recently = [at for at in facts.lost_at if now - at < 2 * dead_after(launch) and at < now]
    if process is None or history.gaps or recently or disk_was_bad(history):
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
    history: History, run: Run, coming: events.Joined
) -> Wrong:
    """Within a generation a slot is free after three silent polls, or 0.75 s after a close."""
    facts, slot = history.of(run), run.slots[coming.request.slot]
    holder = slot.live_node()
    if holder is None or holder.join.generation < coming.request.generation:
        return None
    process = facts.owners.get((slot.index, holder.incarnation))
    if process is None:
        return None
    traffic, now = process.door.traffic, history.now()
    silent, closed = now - traffic.arrived_at, now - traffic.closed_at
    is_suspect = silent >= suspect_after(facts.launch) - 0.05
    is_closed = closed >= 0.7 and traffic.closed_at >= traffic.arrived_at
    return None if is_suspect or is_closed else f"{process.name} was heard {silent:.2f} s ago"


def a_node_of_another_job_is_not_taken(history: History, run: Run, coming: events.Joined) -> Wrong:
    """Size, framework, COMMAND and protocol of a node are those of its run."""
    request, spec = coming.request, run.spec
    sizes = {str(spec.max_nodes), f"{spec.min_nodes}:{spec.max_nodes}", None}
    others = (slot.live_node() for slot in run.slots if slot.index != request.slot)
    commands = [one.join.job.command_words for one in others if one is not None]
    wrong = {
        "size": request.job.nnodes not in sizes,
        "framework": request.job.framework != history.of(run).launch.framework,
        "COMMAND": any(one != request.job.command_words for one in commands),
        "protocol": request.protocol != PROTOCOL,
    }
    return f"slot {request.slot}: {wrong}" if any(wrong.values()) else None


def a_rank_can_be_had(history: History, run: Run, coming: events.Joined) -> Wrong:
    """Nobody joins who asks for a number beyond the run, or to be node 0 without being slot 0."""
    rank, slot = coming.request.requested_node, coming.request.slot
    if rank is None or (rank < run.spec.slots and (rank == 0) == (slot == 0)):
        return None
    return f"slot {slot} asks for rank {rank}"


def a_clash_names_both(history: History, run: Run, coming: events.Refused) -> Wrong:
    """A node that asks for another one's rank is refused with the names of both."""
    if coming.exit_code is not None:
        return None
    launch, mine = history.of(run).launch, history.of(run).launch.ranks[coming.slot]
    index, slots = history.of(run).index, [coming.slot, *(slot.index for slot in run.members())]
    others_job = {(what, index, slot) for what in ("other job", "other word") for slot in slots}
    if mine is None or others_job & history.world.marks.keys():
        return None  # it is refused for that
    others = [slot.index for slot in run.members() if launch.ranks[slot.index] == mine]
    others = [slot for slot in others if slot != coming.slot]
    if not others or mine >= launch.slots or (mine == 0) != (coming.slot == 0):
        return None
    names = re.findall(r"slot (\d+)|node (\d+) \([^(),]+\)", coming.reason)
    named = {int(slot or node) for slot, node in names}
    return None if {coming.slot, others[0]} <= named else coming.reason


def report_key(
    facts: Facts, coming: events.Probed | events.Acked | events.Exited
) -> tuple[object, ...]:
    """What a report can be told once of: of its end a node that starts once, of one in each epoch
    one that starts again, and that it leaves."""
    if not isinstance(coming, events.Exited):
        return (coming.kind, coming.slot, coming.incarnation, coming.report.epoch)
    report = coming.report
    again = facts.launch.max_restarts or facts.epochs.over
    of = (report.epoch, report.leaves) if again and facts.epochs.gone else (0, False)
    return (coming.kind, coming.slot, coming.incarnation, *of)


def has_told_its_end(facts: Facts, event: events.Lost | events.Left) -> bool:
    """Whether a node has said how its program of the newest epoch has ended."""
    return (event.slot, event.incarnation) in facts.exit_codes


def a_report_counts_once(
    history: History, run: Run, coming: events.Probed | events.Acked | events.Exited
) -> Wrong:
    """What a node says again of one epoch, or of its end, changes nothing."""
    facts = history.of(run)
    key = report_key(facts, coming)
    known = key in facts.reported
    facts.reported.add(key)
    return f"{key}" if known else None


def a_worker_run_ends_once(history: History, run: Run, coming: events.SlotChanged) -> Wrong:
    """A worker run that has ended is not said to live; none is submitted for a finished run."""
    slot, news = run.slots[coming.slot], coming.news
    if run.phase is Phase.FINISHED and news.state is SlotState.SUBMITTING:
        return f"slot {slot.index}, generation {news.generation}"
    if news.generation == slot.generation and slot.state in _DEAD and news.state not in _DEAD:
        return f"slot {slot.index}: {news.state} after {slot.state}"
    return None


def a_launcher_that_lives_is_believed(
    history: History, run: Run, coming: events.SlotChanged
) -> Wrong:
    """What it said of the queue holds as long as it lives and can be heard."""
    former = run.slots[coming.slot].state
    if (former, coming.news.state) != (SlotState.QUEUED, SlotState.UNKNOWN):
        return None
    facts, world = history.of(run), history.world
    scheduler = world.schedulers[facts.index]
    lied = scheduler.lie is SlotState.UNKNOWN and scheduler.lie_slot == coming.slot
    lied |= scheduler.was_silent
    alive = any(x.machine.alive for x in world.live_launchers(facts.index))
    path = world.network.path(facts.index, -1)
    if lied or not alive or path.light or path.is_late or world.registry_was_down:
        return None
    return f"slot {coming.slot} was taken out of the queue"


def a_cancel_does_not_hide_a_failure(history: History, run: Run, coming: events.Cancelled) -> Wrong:
    """A run that a node had failed is not 'cancelled', unless the first to end was told to end.

    A registry that ends after its launcher has no time for a verdict.
    """
    if run.phase is not Phase.RUNNING or "launcher was killed" in coming.reason:
        return None
    facts, now = history.of(run), history.now()
    if run.starts.asked or run.starts.used < run.spec.limits.max_restarts:
        return None  # it would have gone on, but for the cancel
    if facts.launch.warm and not facts.epochs.over:
        return None  # so may a first warm start
    if facts.epochs.cut_off or (lost_in(facts, run) and can_outlive(run, lost_in(facts, run))):
        return None
    for failure in facts.failures:
        owner = facts.owners.get((failure.slot, failure.incarnation))
        if failure.epoch < run.epoch:
            continue
        if owner is None or (failure.slot, failure.incarnation) not in facts.known_at:
            continue
        if facts.known_at[failure.slot, failure.incarnation] >= now - 0.01:
            continue
        ended_with = {owner.program_code, owner.rank_code}  # its node tells that of the rank
        if owner.program_code is None and can_outlive(run, {failure.slot}):
            continue  # a failure of the node itself: another one would take its place
        told = owner.signal_told or not ended_with.isdisjoint(_TOLD_TO_END)
        if not told and not _was_told_before(facts, failure.at):
            return f"{owner.name} had failed with {owner.program_code}"
    return None if disk_was_bad(history) or history.gaps else _cancel_overlooked(facts, now)


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


def the_last_call_lasts_its_time(history: History, run: Run, event: Event) -> Wrong:
    """It begins when enough are in, ends after its time, and not before others who may come."""
    facts = history.of(run)
    if isinstance(event, events.LastCallOver):
        since = facts.last_enough_since
        if since is None or history.at - since < _LAST_CALL_SECONDS - 0.01:
            return f"it began at {since}, and was over at {history.at}"
        if facts.before.given_up.issuperset(_missing(facts, run)):
            return "nobody was awaited"
    late = (
        facts.enough_since is not None
        and history.at - facts.enough_since > _LAST_CALL_SECONDS + LATE
    )
    if late and run.phase is Phase.GATHERING and not disk_was_bad(history):
        return f"enough are in since {facts.enough_since}, it is {history.at}"
    return None


def nobody_comes_after_the_last_call(history: History, run: Run, event: events.Joined) -> Wrong:
    """A slot that was empty when the nodes were gathered stays so, unless they gather again."""
    facts = history.of(run)
    if facts.before.phase is Phase.GATHERING:
        return None
    if facts.before.phase is Phase.RESTARTING and event.request.slot in facts.before.nodes:
        return None  # the nodes gather again when the programs are to start
    if run.spec.outlives_nodes and facts.before.phase is run.phase is Phase.RUNNING:
        here = event.request.slot in facts.epochs.ranks
        stands_by = run.slots[event.request.slot].its_node.state is NodeState.STANDBY
        return f"slot {event.request.slot} is no standby" if here or not stands_by else None
    again = run.phase is Phase.GATHERING or run.epoch > facts.before.epoch
    if event.request.slot in facts.before.nodes and again:
        return None
    return f"slot {event.request.slot} was filled in phase {facts.before.phase}, now {run.phase}"


def a_join_time_out_is_in_time(history: History, run: Run, event: Event) -> Wrong:
    """It ends the run once slots that it cannot spare were awaited for the time, not later."""
    facts = history.of(run)
    over = run.phase not in (Phase.GATHERING, Phase.FINISHED)
    if over or facts.before.phase is not Phase.GATHERING:
        return None
    limit, missing = run.spec.limits.join_timeout_seconds, _missing(facts, run)
    waits = {slot: facts.waits_before[slot].seconds(history.at) for slot in missing}

    def ends_it(late: set[int]) -> bool:
        needs_0 = not facts.epochs.gone or not run.spec.outlives_nodes or run.spec.local_node
        return (needs_0 and 0 in late) or len(run.slots) - len(late) < run.spec.min_nodes

    if ends_it({s for s in missing if waits[s] > limit + LATE}) and not disk_was_bad(history):
        return f"it comes late: waited {waits}"
    if isinstance(event, events.TimedOut):
        late = {s for s in missing if waits[s] >= limit - 0.01}
        given_up = facts.before.given_up.intersection(missing)
        return (
            None
            if late and ends_it(late | given_up)
            else f"waited {waits}, given up {sorted(given_up)}"
        )
    return None


def checks_wait_for_others(history: History, run: Run, event: Event) -> Wrong:
    """Sick nodes end a run only when too few others are there and too few may still come."""
    facts = history.of(run)
    nodes = {slot.index: slot.node for slot in run.slots if slot.node is not None}
    sick = [i for i, x in nodes.items() if any(f.level == "fail" for f in x.join.findings)]
    if facts.before.phase is not Phase.GATHERING or not sick or 0 in sick:
        return None
    limit = run.spec.limits.join_timeout_seconds
    others = [x.index for x in run.slots if x.index not in nodes and not x.given_up]
    waited = {i: facts.waits[i].seconds(history.at) for i in others}
    awaited, at_most = (
        [i for i, seconds in waited.items() if seconds < until]
        for until in (limit - _INSTANT, limit + _INSTANT)
    )
    well = len(nodes) - len(sick)
    if facts.epochs.over:
        return None  # the programs start on the same nodes, or not at all
    failed = run.result is not None and run.result.code == "preflight_failed"
    if failed and well + len(awaited) >= run.spec.min_nodes:
        return f"sick {sick}, there {[*nodes]}, awaited {awaited}: {run.result}"
    went_on = isinstance(event, events.LastCallOver) and run.phase is Phase.GATHERING
    if went_on and well + len(at_most) < run.spec.min_nodes:
        return f"sick {sick}, there {[*nodes]}, awaited {awaited}: it waits once more"
    return None


# --- retries and who is spared --------------------------------------------------------------------


def _failing(event: Event) -> int | None:
    """The slot whose worker run or node fails by this event."""
    if isinstance(event, events.Lost | events.Exited | events.Left):
        return event.slot
    if isinstance(event, events.SlotChanged) and event.news.state in _DEAD:
        return event.slot
    return event.slot if isinstance(event, events.Refused) and event.exit_code is not None else None


def a_slot_has_its_retries(history: History, run: Run, event: Event) -> Wrong:
    """Before the go a failed node ends the run only when it may not be tried again, nor spared."""
    facts, slot = history.of(run), _failing(event)
    if facts.epochs.over:
        return None  # a program has started: see `restart_promises`
    if not run.spec.managed:  # nobody submits: whoever comes again comes by itself
        return None
    if slot is None or facts.before.phase not in BEFORE_GO or run.phase is Phase.RUNNING:
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
    history: History, run: Run, event: events.SlotChanged
) -> Wrong:
    """The end of a worker run that is replaced already, or given up, changes nothing."""
    facts = history.of(run)
    before = facts.before
    if event.news.state not in _DEAD:
        return None
    slot, generation = event.slot, event.news.generation
    newer = generation > facts.waits_before[slot].generation
    if slot in before.nodes or newer or before.phase not in BEFORE_GO:
        return None
    if slot not in before.given_up and before.wanted[slot] <= generation:
        return None
    changed = run.slots[slot].wanted > before.wanted[slot] or run.phase is Phase.FINISHED
    return f"the end of slot {slot}, generation {generation}" if changed else None


def the_schedulers_word_is_not_enough(
    history: History, run: Run, event: events.SlotChanged
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
