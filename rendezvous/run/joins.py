"""Which nodes may have a slot, and which are refused. Pure.

Each `decide_*` answers with the event, with None when nothing changes, or raises.
"""

from __future__ import annotations

from rendezvous.proof.compare import first_difference, word_text
from rendezvous.run import events, refusals
from rendezvous.run.events import Event
from rendezvous.run.leases import Leases
from rendezvous.run.phases import Admits, Awaits
from rendezvous.run.places import has_room, is_empty
from rendezvous.run.replacing import outlives
from rendezvous.run.state import (
    Run,
    Slot,
    nnodes_text,
    nodes_text,
    says_command,
    who,
)
from rendezvous.wire.errors import Cause, Fenced, Mismatch, RunOver, SlotTaken, TooLate
from rendezvous.wire.node import JoinRequest, Refusal
from rendezvous.wire.protocol import Greeting


def decide_join(
    run: Run,
    request: JoinRequest,
    now: float,
    leases: Leases,
    source: str = "",
    here: bool = False,
) -> Event | None:
    """Whether this node may have its slot; None when this join was accepted before.

    The caller has checked the token, so that slot and generation are the node's own; it was sent
    from the address `source`, where that is known, or `here`, over loopback.

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
            f"slot {slot.index} belongs to a newer worker run (generation {slot.wanted}); "
            f"this is generation {request.generation}",
            hint="an older worker run of this launch is still running; it ends now",
        )
    _refuse_when_closed(run, slot)
    _refuse_other_job(run, request)
    _refuse_when_held(run, slot, request, now, leases, source)
    return events.Joined(request=request, source=source, here=here)


def _refuse_when_held(
    run: Run, slot: Slot, request: JoinRequest, now: float, leases: Leases, source: str
) -> None:
    holder = slot.live_node()
    if holder is None or holder.join.generation < request.generation:
        return
    if not leases.is_suspect((slot.index, holder.incarnation), now):
        raise _slot_taken(run, slot, request, source)


def _slot_taken(run: Run, slot: Slot, request: JoinRequest, source: str) -> SlotTaken:
    how = " with the same token"
    hint = "two worker runs were started with the same join string; each needs its own"
    if not run.spec.managed:  # each node has made its own, from its NODE_RANK
        how, hint = " too", f"two nodes have NODE_RANK {slot.index}: {refusals.numbers_hint(run)}"
    asker = refusals.place(request.hostname, request.candidates[0].address, source)
    return SlotTaken(
        f"slot {slot.index} is held by {refusals.holder_text(slot)}, which is alive; {asker} asks "
        f"for it{how}",
        hint="" if request.any_slot else hint,
    )


def _refuse_when_closed(run: Run, slot: Slot) -> None:
    if outlives(run) and run.result is None:
        _refuse_when_full(run, slot)
        return
    if _does_without(run, slot):
        raise TooLate(
            f"slot {slot.index} is too late: run '{run.id}' started without it and does not need it"
        )
    if run.result is not None:
        raise RunOver(f"run '{run.id}' has ended: {run.result.message}")
    if run.rules.admits is Admits.NOBODY:
        raise RunOver(
            f"run '{run.id}' has started, and no node can join it now (slot {slot.index})"
        )
    if run.rules.admits is Admits.REPLACEMENTS and slot.live_node() is None:
        raise SlotTaken(
            f"the last call of run '{run.id}' has ended, and the run is {run.phase} without "
            f"slot {slot.index}, which can join only if a node is lost before the start"
        )


def _refuse_when_full(run: Run, slot: Slot) -> None:
    """Of a run that outlives its nodes an empty slot can be filled while the programs run: who
    comes stands by, if there is use for it."""
    is_released = run.spec.managed and slot.given_up  # its launcher is ending what it was
    if is_empty(slot) and (is_released or not has_room(run)):
        raise TooLate(
            f"slot {slot.index} is too late: run '{run.id}' has all the nodes that it needs"
        )
    if run.rules.awaits is Awaits.PROGRAMS:
        if slot.index in run.starts.numbers:
            raise _not_missed_yet(run, slot)
    elif run.rules.admits is Admits.REPLACEMENTS and slot.live_node() is None:
        raise SlotTaken(
            f"run '{run.id}' is {run.phase} without slot {slot.index}, which can join once its "
            "programs have started"
        )


def _not_missed_yet(run: Run, slot: Slot) -> SlotTaken:
    """A platform that starts a node again may be faster than the lease of the one before it."""
    holder = slot.its_node
    words = "was lost" if slot.live_node() is None else "has not been missed yet"
    return SlotTaken(
        f"slot {slot.index} is held by {holder.join.hostname} ({holder.address}), which "
        f"{words}; it is free once the programs of run '{run.id}' have been stopped for that",
        hint="if that node is alive, two worker runs were started for its slot; end this one",
    )


def _does_without(run: Run, slot: Slot) -> bool:
    """Whether the programs run, or went, well on a table that this slot is not in; or start again,
    as far as is known."""
    starts, most = run.starts, run.spec.limits.max_restarts
    is_well = not run.stop or bool(starts.asked) or starts.used < most
    if run.result is not None:
        is_well = run.result.status == "ok"
    return is_well and bool(starts.numbers) and slot.index not in starts.numbers


def _refuse_other_job(run: Run, request: JoinRequest) -> None:
    spec, job = run.spec, request.job
    me = f"slot {request.slot} ({request.hostname})"
    if job.nnodes is not None and _sizes(job.nnodes) != (spec.min_nodes, spec.max_nodes):
        raise Mismatch(
            f"{me} was started with {job.nnodes_source or '--nnodes'} {job.nnodes}, but run "
            f"'{run.id}' has {spec.job.nnodes_source or '--nnodes'} {nnodes_text(spec)}",
            hint="give every node the same number of nodes (--nnodes or NUM_NODES)",
        )
    if spec.job.framework and spec.job.framework != job.framework:
        raise Mismatch(
            f"{me} was started with --framework {job.framework}, but run '{run.id}' has "
            f"--framework {spec.job.framework}",
            hint="give every node the same --framework",
        )
    _refuse_other_backend(run, request)
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
            f"{me} does not answer the other nodes' connection checks, but run '{run.id}' makes "
            "them",
            hint="give every node the same version of rdzv, or launch with --verify off",
        )
    _refuse_number_clash(run, request)


def _refuse_other_backend(run: Run, request: JoinRequest) -> None:
    """Refuse a node whose torchrun would wait for others where those do not meet."""
    own = request.job.rdzv_backend
    if not own:
        return
    others = (slot for slot in run.slots if slot.index != request.slot and slot.live_node())
    other = next((slot for slot in others if slot.its_node.join.job.rdzv_backend), None)
    if other is not None and (its := other.its_node.join.job.rdzv_backend) != own:
        raise Mismatch(
            f"slot {request.slot} ({request.hostname}) was started with --rdzv-backend {own}, but "
            f"{who(other)} with --rdzv-backend {its}",
            hint="give every node the same --rdzv-backend",
        )


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


def _refuse_number_clash(run: Run, request: JoinRequest) -> None:
    number = request.requested_node
    if number is None:
        return
    me = f"slot {request.slot} ({request.hostname})"
    if number >= run.spec.slots:
        raise Mismatch(
            f"{me} asks to be node {number} in a run of {nodes_text(run.spec)}",
            hint=f"its nodes are 0 to {run.spec.slots - 1}",
        )
    if (number == 0) != (request.slot == 0):
        raise Mismatch(
            f"{me} asks to be node {number}; slot 0 is always node 0",
            hint="unset NODE_RANK, or give slot 0 NODE_RANK=0",
        )
    for slot in run.members():
        node = slot.its_node
        if slot.index != request.slot and node.join.requested_node == number:
            raise Mismatch(
                f"{me} and {who(slot)} both ask to be node {number}",
                hint="give each node a different NODE_RANK, or set it on none of them",
            )


def decide_refusal(
    run: Run, slot_index: int, generation: int, refusal: Refusal, now: float, source: str = ""
) -> events.Refused | events.JoinRefused | None:
    """What it changes that a node refuses to join; None when nothing does, or not any more.

    The caller has checked the token, so that slot and generation are the node's own, or slot 0's
    where it has none. A container that was started twice by mistake does not speak for the node
    that is there: it is kept that it has asked.
    """
    slot = run.slots[slot_index]
    node = slot.live_node()
    is_second = node is not None and node.join.hostname != refusal.hostname
    if run.rules.is_forming and (is_second or not refusal.of_slot):
        ask = refusals.ask_of_refusal(run, slot_index, refusal, source)
        return refusals.written(run, ask, refusals.Asked(now, 1), now)
    newest = generation >= max(slot.generation, slot.wanted)
    if not run.rules.is_forming or not newest or slot.given_up or slot.live_node() is not None:
        return None
    told = refusal.model_dump(exclude={"of_slot"})
    return events.Refused(slot=slot_index, generation=generation, **told)


def decide_mismatch(run: Run, request: JoinRequest | Greeting, error: Mismatch) -> Event | None:
    """What it changes that a node with a good token is refused for good; None when it is known, or
    when another node has its slot."""
    if run.slots[request.slot].live_node() is not None:
        return None
    refused = events.Refused(
        slot=request.slot,
        generation=request.generation,
        code=Cause.MISMATCH,
        reason=error.message,
        command_word=error.command_word,
        is_alone=error.is_alone,
        hint=error.hint,
    )
    return None if refused == run.slots[request.slot].refused else refused
