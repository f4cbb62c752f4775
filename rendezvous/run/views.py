"""What the state of a run looks like to its nodes and to people. Pure."""

from __future__ import annotations

import math
import zlib
from collections.abc import Collection, Mapping, Sequence

from rendezvous.run import fences, refusals, worlds
from rendezvous.run.decision import Outcome
from rendezvous.run.departures import notice_of
from rendezvous.run.ends import first_failed, words_of_failure
from rendezvous.run.events import Event, Progressed, SlotChanged
from rendezvous.run.features import Remark
from rendezvous.run.leases import Leases
from rendezvous.run.missing import failed_before
from rendezvous.run.phases import Awaits
from rendezvous.run.places import is_awaited, standbys
from rendezvous.run.records import Departure
from rendezvous.run.replacing import outlives
from rendezvous.run.rounds import plan_of
from rendezvous.run.state import (
    GONE,
    Run,
    Slot,
    all_nodes,
    names_of,
    nodes_text,
    who,
)
from rendezvous.wire.run import (
    EventLine,
    NodeState,
    Phase,
    RestartFacts,
    RunSpec,
    RunStatus,
    SlotState,
    SlotStatus,
)
from rendezvous.wire.watch import NodeView
from rendezvous.wire.words import printable, reason_clause, slots_text, time_text

_WITHOUT = (NodeState.RELEASED, NodeState.STANDBY)
_MOST_GROUPS = 3
_MOST_CAUSES = 256
_LATE_SECONDS = 30.0
_LATE_END_SECONDS = 10.0
_OWN_DOUBT = (
    "most nodes went silent at the same time, so this registry itself may be cut off; it waits"
)


def node_view(run: Run, now: float, poll_seconds: float) -> NodeView:
    """What every node is told, the table included while it is to be acknowledged."""
    words, topic = reason_and_topic(run, now)
    return NodeView(
        seq=run.seq,
        phase=run.phase,
        epoch=run.epoch,
        reason=words,
        topic=topic,
        digest=run.digest,
        plan=plan_of(run) if run.rules.shows == "plan" else None,
        table=run.table if run.rules.shows == "table" else None,
        released=_released(run),
        why_released=_why_released(run),
        retired=_retired(run),
        stop=run.stop,
        result=run.result.model_copy(update={"epochs": []}) if run.result else None,
        poll_seconds=poll_seconds,
        restarts=_restart_facts(run),
        notice=notice_of(run, now),
    )


def _restart_facts(run: Run) -> RestartFacts | None:
    """What programs may know of those before them; None: they start once."""
    starts, most = run.starts, run.spec.limits.max_restarts
    outlives = run.spec.outlives_nodes
    if not most and not starts.ended and not outlives and not run.attempt.mixed:
        return None
    return RestartFacts(
        restarts=starts.used,
        max_restarts=most,
        replacements=starts.replaced,
        last_failure=printable(starts.ended[-1].message, 600) if starts.ended else "",
        outlives_nodes=outlives,
        cold=starts.cold,
        mixed=run.attempt.mixed,
    )


def _released(run: Run) -> list[int]:
    """The slots whose nodes the table goes without; of a run that has ended, those that it went
    without: of one that ended before the go every node was a part. A standby stays until then."""
    if run.phase is not Phase.FINISHED:
        by = {slot.index for slot in standbys(run)} if run.phase is Phase.RUNNING else set()
        return sorted(run.attempt.left_out.keys() - by)
    nodes = {index: run.slots[index].node for index in sorted(run.attempt.left_out)}
    return [i for i, node in nodes.items() if node and node.state in _WITHOUT]


def _why_released(run: Run) -> dict[int, str]:
    """Of the nodes that the table goes without for a cause: what it is."""
    found = [(slot, why.words) for slot, why in run.attempt.left_out.items() if why.cause]
    found += [(slot, run.slots[slot].problem) for slot in _retired(run)]
    return {slot: printable(words, 600) for slot, words in sorted(found)[:_MOST_CAUSES]}


def _retired(run: Run) -> list[int]:
    """The slots whose nodes a run that outlives its nodes needs no more."""
    if not outlives(run):
        return []
    nodes = ((slot.index, slot.node) for slot in run.slots)
    return [i for i, node in nodes if node is not None and node.state is NodeState.RELEASED]


def reason_and_topic(
    run: Run, now: float, trouble: str = "", remark: Remark | None = None
) -> tuple[str, int]:
    """The sentence, and a number that changes with it, but not with the times in it."""
    untimed = reason(run, now, trouble, remark, times=False)
    return reason(run, now, trouble, remark), zlib.crc32(untimed.encode())


def reason(
    run: Run, now: float, trouble: str = "", remark: Remark | None = None, *, times: bool = True
) -> str:
    """One sentence that says what the run is waiting for, or how it ended.

    Before the go a trouble of the registry itself is what it waits for: nodes that are missing may
    have called, and been refused. Without `times` it says what changes only when something happens.
    """
    if run.result is not None:
        return run.result.message
    if trouble and run.rules.is_forming:
        return trouble
    match run.rules.awaits:
        case Awaits.NODES:
            return _reason_gathering(run, now, times)
        case Awaits.REPORTS:
            return _reason_reporting(run, now, times)
        case Awaits.TIME:
            last = run.starts.ended[-1]
            return f"{last.message}; {last.then}{_left(run, now, times)}"
        case _:
            return _reason_running(run, now, times, remark or Remark())


def _reason_reporting(run: Run, now: float, times: bool) -> str:
    if not run.waiting_for:
        return _reason_fenced(run, now, times)
    task = run.task
    probing = run.attempt.probing
    if probing is not None and probing.number > 0:
        classes, number = run.attempt.classes, probing.number
        task += f" ({classes[number].words}: network {number + 1} of {len(classes)})"
    return f"waiting for {names_of(run, run.waiting_for, 3)} to {task}{_left(run, now, times)}"


def _reason_fenced(run: Run, now: float, times: bool) -> str:
    """All nodes are ready, and something may run that a lost one had started."""
    slots = slots_text(sorted({one.slot for one in fences.holding(run)}))
    seconds = f", {_fence_seconds(run, now):.0f} s left" if times else ""
    return (
        f"{all_nodes(run)} ready; waiting until nothing runs any more on the lost node of {slots}"
        f"{seconds}"
    )


def _fence_seconds(run: Run, now: float) -> float:
    return max(0.0, max((one.until for one in fences.holding(run)), default=now) - now)


def _reason_running(run: Run, now: float, times: bool, remark: Remark) -> str:
    failed = first_failed(run) if run.stop else None
    if failed is not None:
        return f"{words_of_failure(failed)}; the others are being stopped"
    if run.stop and run.stop_asked is not None:
        return f"{run.stop_asked.then.message}; the programs are being stopped"
    if run.stop and run.starts.asked:
        return f"restart requested{reason_clause(run.starts.asked)}; stopping the programs"
    if run.departure is not None:
        return _reason_departing(run, run.departure, now, times)
    count = len(run.table.rows) if run.table else 0
    late = late_to_end(run, now)
    if not late:
        more = remark.words(times=times) and f"; {remark.words(times=times)}"
        if run.world is not None:
            more = f"; {worlds.words_of(run.world, over=False)}{more}"
        return f"running on {count} node{'s' * (count != 1)}{more}"
    return (
        f"{count - len(late)} of {count} nodes ended with exit code 0; waiting for "
        f"{names_of(run, late, 3)} to end{_passed(now - _last_end(run), ' for {}', times)}"
    )


def _reason_departing(run: Run, departure: Departure, now: float, times: bool) -> str:
    words = f"{who(run.slots[departure.slot])} will leave: {departure.words}"
    if run.stop:
        return f"{words}; all programs are being stopped, so that they can save their state"
    left = f" in {departure.stop_at - now:.0f} s" if times else ""
    return f"{words}; all programs are stopped{left}, so that they can save their state"


def late_to_end(run: Run, now: float) -> set[int]:
    """The slots whose program goes on while others have ended well: none for the first 10 s."""
    is_running = run.rules.awaits is Awaits.PROGRAMS
    if not is_running or run.stop or now - _last_end(run) < _LATE_END_SECONDS:
        return set()
    return {slot.index for slot in run.taking_part()}


def _last_end(run: Run) -> float:
    """When the newest end of a program was reported; infinite where none was."""
    ends = [s.node.ended_at for s in run.slots if s.node and s.node.ended_at is not None]
    return max(ends, default=math.inf)


def _reason_gathering(run: Run, now: float, times: bool) -> str:
    if run.attempt.enough_since is not None:
        joined = f"{run.present} of {_all_text(run.spec)} joined"
        return f"{joined}; last call{_left(run, now, times)}"
    awaited = [run.slots[i] for i in sorted(run.missing) if not run.slots[i].given_up]
    # Queue time does not count.
    queued = all(slot.state is SlotState.QUEUED for slot in awaited)
    left = "" if queued else _left(run, now, times)
    groups: dict[tuple[str, str], list[Slot]] = {}
    for slot in awaited:
        detail = "" if slot.state is SlotState.RUNNING else slot.detail
        groups.setdefault((slot.state, detail), []).append(slot)
    first = list(groups.values())[:_MOST_GROUPS]
    shown = [_why_not_here(run, slots, now, times) for slots in first]
    more = sum(len(slots) for slots in list(groups.values())[_MOST_GROUPS:])
    shown += [f"and {more} more"] if more else []
    alone = run.spec.slots == 1
    who = "the node" if alone else f"{len(awaited)} of {_all_text(run.spec)}"
    return f"waiting for {who}{left}: {'; '.join(shown)}{refusals.clause(run)}"


def _all_text(spec: RunSpec) -> str:
    """All nodes that may come: `3 nodes`, or `4 nodes (3 nodes and 1 spare)`."""
    every = nodes_text(spec)
    return f"{spec.slots} nodes ({every})" if spec.slots > spec.max_nodes else every


def _why_not_here(run: Run, slots: list[Slot], now: float, times: bool) -> str:
    """What is known of slots that are awaited, which share a state and its words."""
    first = slots[0]
    since = min(slot.since for slot in slots)
    late = now - since >= _LATE_SECONDS
    place = run.spec.registry or "the registry's address"
    they, have = ("it", "has") if len(slots) == 1 else ("they", "have")
    absent = f"{have} not contacted the registry; check that {they} can reach {place}"
    detail = f" ({first.detail})" if first.detail and first.detail not in first.told else ""
    match first.state:
        case SlotState.NONE if run.spec.managed:
            words = "not submitted yet"
        case SlotState.NONE:
            words = absent if late else f"{have} not joined yet"
        case SlotState.SUBMITTING:
            again = " again" * bool(first.told)
            words = f"being submitted{again}{_passed(now - since, ' for {}', times)}{detail}"
        case SlotState.SUBMITTED:
            words = f"submitted{_passed(now - since, ' {} ago', times)}{detail}"
        case SlotState.QUEUED:
            words = f"queued{_passed(now - since, ' {}', times)}{detail}"
        case SlotState.RUNNING if late:
            words = f"{have} been running{_passed(now - since, ' for {}', times)} but {absent}"
        case SlotState.RUNNING:
            words = f"running{_passed(now - since, ' for {}', times)}, not joined yet"
        case SlotState.UNKNOWN:
            words = f"in an unknown state{_passed(now - since, ' for {}', times)}{detail}"
        case _:
            words = f"waiting to be submitted again{detail}"
    return f"{slots_text([slot.index for slot in slots])} {words}"


def _passed(seconds: float, words: str, times: bool) -> str:
    time = time_text(seconds) if times else ""
    return words.format(time) if time else ""


def remaining_seconds(run: Run, now: float) -> float | None:
    """Seconds until the present phase times out; None when nothing does."""
    timeout = run.phase_timeout()
    if timeout is not None and not run.waiting_for:
        return _fence_seconds(run, now)
    if timeout is not None:
        return max(0.0, timeout - (now - run.phase_since))
    if run.starts.due_at is not None:
        return max(0.0, run.starts.due_at - now)
    if run.rules.awaits is not Awaits.NODES:
        return None
    limits = run.spec.limits
    if run.attempt.enough_since is not None:
        return max(0.0, limits.last_call_seconds - (now - run.attempt.enough_since))
    return max(0.0, limits.join_timeout_seconds - _critical_wait(run, now))


def _critical_wait(run: Run, now: float) -> float:
    """How long the slot has been awaited whose time-out will end the run: with min:max or spares,
    the first beyond those that can be spared."""
    missing = [run.slots[index] for index in run.missing]
    waits = sorted((slot.wait_seconds(now) for slot in missing if not slot.given_up), reverse=True)
    spare = run.spec.slots - run.spec.min_nodes - (len(missing) - len(waits))
    first = run.slots[0].wait_seconds(now) if 0 in run.missing else 0.0
    return max(first, waits[spare] if spare < len(waits) else 0.0)


def _left(run: Run, now: float, times: bool) -> str:
    left = remaining_seconds(run, now) if times else None
    return "" if left is None else f", {left:.0f} s left"


def event_line(run: Run, number: int, event: Event, outcome: Outcome, now: float) -> EventLine:
    """What an event of this number has just done to the run."""
    return EventLine(
        number=number,
        at_seconds=round(now - run.created_at, 3),
        kind=event.kind,
        reason=outcome.reason,
        phase=run.phase,
        epoch=run.epoch,
        slot=outcome.slot,
        usual=outcome.usual,
        state=event.news.state if isinstance(event, SlotChanged) else None,
        progress=event.report.words if isinstance(event, Progressed) else "",
    )


def _running_seconds(run: Run, now: float) -> float:
    went_at = run.starts.went_at if run.phase is Phase.RUNNING else None
    return 0.0 if went_at is None else now - went_at


def _importing(run: Run, slots: Collection[int]) -> list[int]:
    """The numbers of those nodes, while programs run."""
    nodes = run.starts.numbers if run.phase is Phase.RUNNING else {}
    return sorted(nodes[slot] for slot in slots if slot in nodes)


def everyone_left(run: Run) -> bool:
    """Whether no node is there any more that could want to know the result."""
    return all(slot.node is None or slot.node.state in GONE for slot in run.slots)


def run_status(
    run: Run,
    now: float,
    leases: Leases,
    *,
    slots: bool = True,
    trouble: str = "",
    remark: Remark | None = None,
    unwritten_seconds: float = 0.0,
    untold: Sequence[int] = (),
    importing: Collection[int] = (),
    wants_secrets: bool = False,
) -> RunStatus:
    """Everything that a person wants to see; `trouble` is what the registry itself has, `remark`
    what a feature has shown, `importing` the slots whose ranks import torch."""
    sealed = {row.slot: row.address for row in run.table.rows} if run.table and slots else {}
    words, topic = reason_and_topic(run, now, trouble, remark)
    found = remark or Remark()
    hint = f"; try: {found.next_step}" if found.next_step else ""
    if leases.is_holding(now):
        words = f"{_OWN_DOUBT}; {words}"
    return RunStatus(
        run=run.id,
        launch_id=run.spec.launch_id,
        version=run.version,
        phase=run.phase,
        epoch=run.epoch,
        reason=words,
        topic=topic,
        trouble=trouble,
        unwritten_seconds=unwritten_seconds,
        wants_secrets=wants_secrets,
        min_nodes=run.spec.min_nodes,
        max_nodes=run.spec.max_nodes,
        spares=run.spec.spares,
        standby=run.spec.standby,
        on_node_loss=run.spec.on_node_loss,
        elapsed_seconds=(now if run.finished_at is None else run.finished_at) - run.created_at,
        running_seconds=_running_seconds(run, now),
        remaining_seconds=remaining_seconds(run, now),
        digest=run.digest,
        slots=[_slot_status(run, slot, now, leases, sealed) for slot in run.slots] if slots else [],
        result=run.explained or run.result,
        everyone_left=everyone_left(run),
        ending=bool(late_to_end(run, now)),
        finding=f"{found.finding}{hint}",
        suspect=found.suspect,
        silence=found.silence,
        restarts=run.starts.used,
        max_restarts=run.spec.limits.max_restarts,
        replacements=run.starts.replaced,
        resubmitted=run.starts.resubmitted,
        max_replacements=run.spec.limits.max_replacements,
        ended=list(run.starts.ended),
        refused=refusals.told(run, now),
        untold=list(untold),
        importing=_importing(run, importing),
        features={name: note.data for name, note in run.notes.items()},
    )


def _slot_status(
    run: Run, slot: Slot, now: float, leases: Leases, sealed: Mapping[int, str]
) -> SlotStatus:
    node, silent = slot.node, None
    if (alive := slot.live_node()) is not None:
        silent = round(leases.silent_seconds((slot.index, alive.incarnation), now), 1)
    return SlotStatus(
        slot=slot.index,
        generation=slot.generation,
        wanted_generation=slot.wanted,
        state=slot.state,
        state_seconds=round(now - slot.since, 1),
        detail=slot.detail,
        cause=slot.cause,
        name=slot.name,
        handle=slot.handle,
        node_state=node.state if node else None,
        incarnation=node.incarnation if node else 0,
        node=node.number if node else None,
        hostname=node.join.hostname if node else "",
        address=sealed.get(slot.index, node.address) if node else "",
        source=node.source if node else "",
        nproc_per_node=node.join.nproc_per_node if node else 0,
        exit_code=node.exit.exit_code if node and node.exit else None,
        stopped=bool(node and node.exit and node.exit.stopped and node.failed_at is None),
        problem=f"before that: {slot.problem}" if failed_before(slot) else slot.problem,
        progress=node.progress if node and not node.progress_is_over else "",
        silent_seconds=silent,
        awaited=outlives(run) and run.result is None and is_awaited(slot),
        fenced=outlives(run) and fences.is_fenced(run, slot),
    )
