"""What a request may change: the event to journal, or the refusal. Pure.

Each `decide_*` answers with the event, with None when nothing changes (a repeated request gets the
same answer), or raises.
"""

from __future__ import annotations

import re

from rendezvous.proof.compare import first_difference, word_text
from rendezvous.run import departures, events
from rendezvous.run.events import Event
from rendezvous.run.first_cause import first_cause
from rendezvous.run.leases import Leases
from rendezvous.run.phases import Admits
from rendezvous.run.restarts import Again, next_step, why_never
from rendezvous.run.running import unheard
from rendezvous.run.state import (
    DEAD_SUBMISSIONS,
    GONE,
    OVER,
    Run,
    Slot,
    nnodes_text,
    nodes_text,
    says_command,
    who,
)
from rendezvous.wire.errors import Fenced, Mismatch, NotFound, RunOver, SlotTaken, TooLate
from rendezvous.wire.node import JoinRequest, Refusal
from rendezvous.wire.reports import (
    DepartReport,
    ExitReport,
    LeaveReport,
    ProgressReport,
    QuietReport,
    RefuseReport,
    Report,
)
from rendezvous.wire.run import NodeState, Phase, SlotNews, SlotState
from rendezvous.wire.verify import ProbeReport

_MAJOR = re.compile(r"[0-9]+(?=\.)")


def decide_join(run: Run, request: JoinRequest, now: float, leases: Leases) -> Event | None:
    """Whether this node may have its slot; None when this join was accepted before.

    The caller has checked the token, so that slot and generation are the node's own.

    Raises:
        RunOver, TooLate, Fenced, SlotTaken: The slot cannot be had (any more, or yet).
        Mismatch: The node describes another job; see `decide_mismatch`.
    """
    slot = run.slots[request.slot]
    known = slot.joins.get(request.join_id)
    if known is not None:
        if slot.node is not None and slot.node.incarnation == known:
            return None
        now_is = (
            "the slot has been given up since"
            if slot.node is None
            else "a newer node has the slot now"
        )
        raise Fenced(f"slot {slot.index}: this join was accepted as incarnation {known}; {now_is}")
    if request.generation < slot.wanted:
        raise Fenced(
            f"slot {slot.index} belongs to generation {slot.wanted} of its worker run; "
            f"this is generation {request.generation}",
            hint="an older worker run of this launch is still running; it ends now",
        )
    _refuse_when_closed(run, slot)
    _refuse_other_job(run, request)
    _refuse_when_held(slot, request, now, leases)
    if run.spec.limits.max_restarts and not request.restarts:
        raise _cannot_restart(slot, request)
    return events.Joined(request=request)


def refuse_other_version(request: JoinRequest, own: str) -> None:
    """Raise Mismatch for a node whose rdzv speaks otherwise than the registry's, which is `own`.

    Releases of one major version understand each other; what is unknown may join.
    """
    theirs = request.facts.rdzv_version
    majors = {found[0] for version in (own, theirs) if (found := _MAJOR.match(version))}
    if len(majors) < 2:
        return
    raise Mismatch(
        f"slot {request.slot} ({request.hostname}) has rdzv {theirs}, but the registry has "
        f"rdzv {own}",
        hint="install the same version in the images of the launcher and of the workers",
    )


def _cannot_restart(slot: Slot, request: JoinRequest) -> Mismatch:
    version = request.facts.rdzv_version or "an older version"
    return Mismatch(
        f"slot {slot.index} ({request.hostname}) has rdzv {version}, which cannot start a program "
        "again",
        hint="install the launcher's version in the image of the workers, or launch with "
        "--max-restarts 0",
    )


def _refuse_when_held(slot: Slot, request: JoinRequest, now: float, leases: Leases) -> None:
    holder = slot.live_node()
    if holder is None or holder.join.generation < request.generation:
        return
    if not leases.is_suspect((slot.index, holder.incarnation), now):
        raise SlotTaken(
            f"slot {slot.index} is held by {holder.join.hostname} "
            f"({holder.join.candidates[0].address}), which is alive; {request.hostname} "
            f"({request.candidates[0].address}) asks for it with the same token",
            hint="two worker runs were started with the same join string; each needs its own",
        )


def _refuse_when_closed(run: Run, slot: Slot) -> None:
    if _does_without(run, slot):
        raise TooLate(
            f"slot {slot.index} is too late: run '{run.id}' started without it and does not need it"
        )
    if run.result is not None:
        raise RunOver(f"run '{run.id}' has ended: {run.result.message}")
    if run.rules.admits is Admits.NOBODY:
        raise RunOver(
            f"run '{run.id}' is running on its sealed table; slot {slot.index} cannot be filled now"
        )
    if run.rules.admits is Admits.REPLACEMENTS and slot.live_node() is None:
        raise SlotTaken(
            f"run '{run.id}' has ended its last call and is {run.phase} without "
            f"slot {slot.index}; the slot opens again only if a node is lost before the go"
        )


def _does_without(run: Run, slot: Slot) -> bool:
    """Whether the programs run, or went, well on a table that this slot is not in; or start again,
    as far as is known."""
    starts, most = run.starts, run.spec.limits.max_restarts
    is_well = not run.stop or bool(starts.asked) or starts.used < most
    if run.result is not None:
        is_well = run.result.status == "ok"
    return is_well and bool(starts.ranks) and slot.index not in starts.ranks


def _refuse_other_job(run: Run, request: JoinRequest) -> None:
    spec, job = run.spec, request.job
    me = f"slot {request.slot} ({request.hostname})"
    if job.nnodes is not None and _sizes(job.nnodes) != (spec.min_nodes, spec.max_nodes):
        raise Mismatch(
            f"{me} was started with --nnodes {job.nnodes}, but run '{run.id}' has --nnodes "
            f"{nnodes_text(spec)}",
            hint="give every node the same --nnodes (NUM_NODES)",
        )
    if spec.job.framework != job.framework:
        raise Mismatch(
            f"{me} was started with --framework {job.framework}, but run '{run.id}' has "
            f"--framework {spec.job.framework}",
            hint="give every node the same --framework",
        )
    first = run.command_digest
    if spec.same_command and job.command_digest and first and job.command_digest != first:
        raise Mismatch(
            f"{me} would run a different COMMAND (digest {job.command_digest[:12]}) from the "
            f"nodes that joined before it ({first[:12]})",
            hint="give every node the same COMMAND, or allow the difference with --any-command",
        )
    if spec.same_command:
        _refuse_other_command(run, request)
    here = next((c for c in request.candidates if c.is_loopback), None)
    if here is not None and not spec.loopback and spec.slots > 1:
        raise Mismatch(
            f"{me} offers {here.address}, which no other machine can reach",
            hint="loopback addresses are for the local scheduler; remove --loopback",
        )
    if spec.verify and spec.slots > 1 and request.probe_port is None:
        raise Mismatch(
            f"{me} does not listen for its peers' probes, but run '{run.id}' verifies all "
            "addresses",
            hint="give every node the same version of rdzv, or launch with --verify off",
        )
    _refuse_rank_clash(run, request)


def _refuse_other_command(run: Run, request: JoinRequest) -> None:
    """Of two nodes nobody can say which is wrong; of more, the one that is alone."""
    other = run.other_command(request.slot)
    if other is None or not request.job.command_words:
        return
    word = first_difference(other.its_node.join.job.command_words, request.job.command_words)
    if word is None:
        return
    me = f"slot {request.slot} ({request.hostname})"
    same = sum(slot.index != request.slot and says_command(slot) for slot in run.slots)
    if same == 1:
        words = f"{who(other)} and {me} would run different COMMANDs: {word_text(word)} differs"
    else:
        words = (
            f"{me} would run a different COMMAND: {word_text(word)} differs from that of "
            f"{who(other)} and {same - 1} other{'s' * (same > 2)}"
        )
    raise Mismatch(
        words,
        hint="give every node the same COMMAND, or allow the difference with --any-command; each "
        "node's own output shows its word",
        command_word=word,
        is_alone=same > 1,
    )


def _sizes(nnodes: str) -> tuple[int, int]:
    """`4` and `4:4` are the same job."""
    least, _, most = nnodes.partition(":")
    return int(least), int(most or least)


def _refuse_rank_clash(run: Run, request: JoinRequest) -> None:
    rank = request.requested_rank
    if rank is None:
        return
    me = f"slot {request.slot} ({request.hostname})"
    if rank >= run.spec.slots:
        raise Mismatch(
            f"{me} asks for node rank {rank} in a run of {nodes_text(run.spec)}",
            hint=f"node ranks are 0 to {run.spec.slots - 1}",
        )
    if (rank == 0) != (request.slot == 0):
        raise Mismatch(
            f"{me} asks for node rank {rank}; slot 0 is always rank 0",
            hint="unset NODE_RANK, or give slot 0 rank 0",
        )
    for slot in run.members():
        node = slot.its_node
        if slot.index != request.slot and node.join.requested_rank == rank:
            raise Mismatch(
                f"{me} and {who(slot)} both ask for node rank {rank}",
                hint="give each node a different NODE_RANK, or set it on none of them",
            )


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
        return (
            None if over else events.Exited(slot=slot_index, incarnation=incarnation, report=report)
        )
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
    if isinstance(report, QuietReport):
        if node.state in OVER or (report.seconds is None) == (node.quiet_since is None):
            return None
        return events.Quieted(slot=slot_index, incarnation=incarnation, report=report)
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
    if news.state is SlotState.SUBMITTING and run.phase is Phase.FINISHED:
        raise RunOver(f"run '{run.id}' has ended; the launcher submits no more worker runs")
    if news.generation < slot.generation:
        return None
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
    first = first_cause(run) if run.phase is Phase.RUNNING and run.stop else None
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
    words = f"drained: {why}" if why else "drained"
    report = DepartReport(epoch=run.epoch, seconds=seconds, words=words)
    return decide_report(run, slot_index, node.incarnation, report, now)


_NO_REASON = "asked for"
"""What stands for an empty reason, by which a run could not tell that somebody asked."""


def decide_restart(run: Run, why: str) -> Event | None:
    """What it changes that somebody wants the programs to start again; None while none runs.

    Raises:
        RunOver: The run has ended.
        Mismatch: A node cannot start its program again, or has left or is about to: the run would
            end in place of a restart.
    """
    if run.phase is Phase.FINISHED:
        raise RunOver(f"run '{run.id}' has ended; its programs cannot be started again")
    if run.rules.is_forming and run.phase is not Phase.RESTARTING:
        return None
    for slot in run.of_table():
        if not slot.its_node.join.restarts:
            raise _cannot_restart(slot, slot.its_node.join)
    if why_not := why_never(run):
        raise Mismatch(
            f"run '{run.id}': {why_not}",
            hint="let its programs end, or cancel it; then launch again from the state that was "
            "saved last",
        )
    return None if run.starts.asked else events.RestartAsked(reason=why.strip() or _NO_REASON)


def decide_refusal(
    run: Run, slot_index: int, generation: int, refusal: Refusal
) -> events.Refused | None:
    """What it changes that a node refuses to join; None when nothing does, or not any more.

    The caller has checked the token, so that slot and generation are the node's own. A container
    that was started twice by mistake does not speak for the node that is there.
    """
    slot = run.slots[slot_index]
    newest = generation >= max(slot.generation, slot.wanted)
    if not run.rules.is_forming or not newest or slot.given_up or slot.live_node() is not None:
        return None
    return events.Refused(slot=slot_index, generation=generation, **refusal.model_dump())


def decide_mismatch(run: Run, request: JoinRequest, error: Mismatch) -> Event | None:
    """What it changes that a node with a good token is refused for good; None when it is known."""
    refused = events.Refused(
        slot=request.slot,
        generation=request.generation,
        code=error.code,
        reason=error.message,
        command_word=error.command_word,
        is_alone=error.is_alone,
        hint=error.hint,
    )
    return None if refused == run.slots[request.slot].refused else refused
