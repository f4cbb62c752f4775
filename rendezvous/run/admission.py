"""What a request about a run may change: the event to journal, or the refusal. Pure.

Each `decide_*` answers with the event, with None when nothing changes (a repeated request gets the
same answer), or raises.
"""

from __future__ import annotations

from rendezvous.run import departures, events
from rendezvous.run.events import Event
from rendezvous.run.explaining import completed
from rendezvous.run.fences import is_held
from rendezvous.run.leases import Leases
from rendezvous.run.restarts import Again, next_step, why_never
from rendezvous.run.running import found_cause, unheard
from rendezvous.run.state import (
    DEAD_SUBMISSIONS,
    GONE,
    OVER,
    Run,
    who,
)
from rendezvous.wire.errors import Fenced, Mismatch, NotFound, RunOver
from rendezvous.wire.reports import (
    DepartReport,
    ExitReport,
    LeaveReport,
    ProgressReport,
    RefuseReport,
    Report,
    WorldReport,
)
from rendezvous.wire.run import NodeState, Phase, SlotNews, SlotState
from rendezvous.wire.verify import ProbeReport
from rendezvous.wire.words import reason_clause


def decide_report(
    run: Run,
    slot_index: int,
    incarnation: int,
    report: Report,
    now: float,
) -> Event | None:
    """What a node's report changes; None when it was said before or is about an older epoch.

    Raises Fenced where a newer incarnation has the slot, or this one was given up.
    """
    slot = run.slots[slot_index]
    node = slot.node
    if node is None or node.incarnation != incarnation:
        raise Fenced(f"slot {slot_index}: incarnation {incarnation} has been replaced")
    if isinstance(report, LeaveReport):
        return None if node.state in GONE else events.Left(slot=slot_index, incarnation=incarnation)
    if node.state is NodeState.LOST:
        raise Fenced(f"{who(slot)} was given up: {slot.problem}")
    if isinstance(report, ExitReport):
        told = report.epoch <= node.reported and not report.leaves
        over = node.state in OVER or run.phase is Phase.FINISHED or told
        if over:
            return None
        return events.Exited(slot=slot_index, incarnation=incarnation, report=report)
    if report.epoch != run.epoch:
        return None
    if not isinstance(report, run.rules.reports):
        return None
    if isinstance(report, ProgressReport):
        if node.progress == report.words:
            return None
        return events.Progressed(slot=slot_index, incarnation=incarnation, report=report)
    if isinstance(report, DepartReport):
        if node.state in OVER or departures.is_known(run, slot, report, now):
            return None
        return events.Departs(slot=slot_index, incarnation=incarnation, report=report)
    if isinstance(report, WorldReport):
        if node.state in OVER or tuple(report.worlds) == run.worlds.get(slot_index):
            return None
        return events.WorldsReported(slot=slot_index, incarnation=incarnation, report=report)
    if slot_index not in run.waiting_for:
        return None
    if isinstance(report, ProbeReport):
        return events.Probed(slot=slot_index, incarnation=incarnation, report=report)
    if isinstance(report, RefuseReport):
        return events.ArmRefused(slot=slot_index, incarnation=incarnation, report=report)
    if report.digest != run.digest:
        raise Mismatch(
            f"{who(slot)} acknowledged table {report.digest[:12]}, but the table of epoch "
            f"{run.epoch} is {run.digest[:12]}"
        )
    return events.Acked(slot=slot_index, incarnation=incarnation, report=report)


def decide_slot(run: Run, slot_index: int, news: SlotNews) -> Event | None:
    """What the launcher's news of a slot changes; None when it is old or known.

    Raises RunOver where a worker run is to be submitted for a finished run.
    """
    slot = run.slots[slot_index]
    if news.explains:
        says = completed(run, slot, news) is not None
        return events.SlotChanged(slot=slot_index, news=news) if says else None
    if news.state is SlotState.SUBMITTING and run.phase is Phase.FINISHED:
        raise RunOver(f"run '{run.id}' has ended; the launcher submits no more worker runs")
    if news.generation < slot.generation:
        ends = news.state in DEAD_SUBMISSIONS and is_held(run, slot_index, news.generation)
        return events.SlotChanged(slot=slot_index, news=news) if ends else None
    same = (
        news.generation == slot.generation
        and (news.state, news.detail, news.cause) == (slot.state, slot.detail, slot.cause)
        and (news.name or slot.name, news.handle or slot.handle) == (slot.name, slot.handle)
    )
    known_dead = news.generation == slot.generation and slot.state in DEAD_SUBMISSIONS
    return None if same or known_dead else events.SlotChanged(slot=slot_index, news=news)


def decide_cancel(run: Run, why: str, now: float, leases: Leases) -> Event | None:
    """What a cancel changes: nothing where the run has ended.

    Docker compose and others end all containers when the first has gone: where a node has failed
    the run ends with the cause that is known, after the time that the verdict takes. Who cancels
    again by then waits for no node that is silent.
    """
    if run.phase is Phase.FINISHED:
        return None
    first = found_cause(run) if run.phase is Phase.RUNNING and run.stop else None
    report = first.report if first is not None else None
    told = report is not None and report.exit_code in departures.TOLD_TO_END
    if first is None or told or isinstance(next_step(run, first, now), Again):
        return events.Cancelled(reason=why)
    if run.verdict_at is None or now < run.verdict_at:
        return None
    return events.VerdictFell(unheard=tuple(slot.index for slot in unheard(run, now, leases)))


def decide_drain(run: Run, slot_index: int, seconds: float, why: str, now: float) -> Event | None:
    """What it changes that somebody wants a node to go; None while no program runs, or when it is
    known.

    Raises:
        RunOver: The run has ended.
        NotFound: There is no such node in it, or its program has ended.
    """
    if run.phase is Phase.FINISHED:
        raise RunOver(f"run '{run.id}' has ended; its nodes have left")
    slot = run.slots[slot_index] if 0 <= slot_index < len(run.slots) else None
    if slot is not None and slot.node is not None and slot.node.exit is not None:
        raise NotFound(f"the program of {who(slot)} has ended: the node can go without a drain")
    node = slot.live_node() if slot is not None else None
    if node is None:
        raise NotFound(f"run '{run.id}' has no node in slot {slot_index}")
    words = f"drained{reason_clause(why)}"
    report = DepartReport(epoch=run.epoch, seconds=seconds, words=words, drained=True)
    return decide_report(run, slot_index, node.incarnation, report, now)


_NO_REASON = "asked for"
"""What stands for an empty reason, by which a run could not tell that somebody asked."""


def decide_restart(run: Run, why: str) -> Event | None:
    """What it changes that somebody wants the programs to start again; None while none runs.

    Raises:
        RunOver: The run has ended.
        Mismatch: A node has left or is about to: the run would end in place of a restart.
    """
    if run.phase is Phase.FINISHED:
        raise RunOver(f"run '{run.id}' has ended; its programs cannot be started again")
    if run.rules.is_forming and run.phase is not Phase.RESTARTING:
        return None
    if why_not := why_never(run):
        raise Mismatch(
            f"run '{run.id}': {why_not}",
            hint="let its programs end, or cancel it; then launch it again to resume from your "
            "last checkpoint",
        )
    return None if run.starts.asked else events.RestartAsked(reason=why.strip() or _NO_REASON)
