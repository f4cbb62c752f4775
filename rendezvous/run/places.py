"""A slot as a place: which worker run is to fill it, since when it is awaited, who stays. Pure."""

from __future__ import annotations

from collections.abc import Collection

from rendezvous.run import fences
from rendezvous.run.state import GONE, Run, Slot
from rendezvous.wire.run import NodeState, SlotState

_OUT = (NodeState.RELEASED, *GONE)


def begin_generation(slot: Slot, generation: int, now: float) -> None:
    """Another worker run is to fill the slot: nothing that was said of the last one holds, but that
    the slot has been awaited since the loss of its node."""
    is_first = not slot.generation
    slot.generation = slot.wanted = generation
    slot.state, slot.since = SlotState.NONE, now
    if not slot.tries:
        slot.waited, slot.waiting_since = 0.0, None
    if is_first:
        return
    slot.name = slot.handle = slot.detail = slot.cause = ""
    slot.given_up, slot.again_at = False, None


def count_waiting(slot: Slot, now: float) -> None:
    """Stop the slot's clock while it is filled, or while the scheduler itself says 'queued'."""
    counts = slot.live_node() is None and slot.state is not SlotState.QUEUED
    if counts and slot.waiting_since is None:
        slot.waiting_since = now
    elif not counts and slot.waiting_since is not None:
        slot.waited += now - slot.waiting_since
        slot.waiting_since = None


def vacate(run: Run, slot: Slot, now: float) -> None:
    """Nobody is in the slot any more, and its clock starts again. A node that was released stays
    known until it has left."""
    if (node := slot.node) is not None:
        if run.spec.outlives_nodes:
            fences.raise_for(run, slot, now)
        if node.state is not NodeState.RELEASED:
            slot.node = None
    if slot.index in run.attempt.left_out:
        others = {s: why for s, why in run.attempt.left_out.items() if s != slot.index}
        run.attempt.left_out = others
    slot.tries, slot.again_at = 0, None
    slot.waited, slot.waiting_since = 0.0, None
    run.missing.add(slot.index)
    count_waiting(slot, now)


def standbys(run: Run) -> list[Slot]:
    """The slots whose nodes stand by."""
    return [slot for slot in run.slots if slot.node and slot.node.state is NodeState.STANDBY]


def is_awaited(slot: Slot) -> bool:
    """Of a run that outlives its nodes: whether a worker run is of use that has no number."""
    if slot.node is not None and slot.node.state is NodeState.STANDBY:
        return True
    return is_empty(slot) and not slot.given_up


def is_empty(slot: Slot) -> bool:
    """Whether no node is in it that takes part in anything."""
    return slot.node is None or slot.node.state in _OUT


def there(run: Run) -> list[Slot]:
    """The slots whose nodes can take part in what follows, also where their program has ended."""
    return [slot for slot in run.slots if not is_empty(slot)]


def may_be_there(run: Run, without: Collection[int]) -> int:
    """How many nodes there are without those of these slots, with those that may still come."""
    nodes = {slot.index for slot in there(run)} | set(filter(run.may_come, run.missing))
    return len(nodes.difference(without))


def has_room(run: Run) -> bool:
    """Whether a run whose programs run has use for another node: in its next table, or as a
    standby."""
    return len(there(run)) < run.spec.max_nodes + run.spec.standby


def settle(run: Run, former: int) -> None:
    """At a go: the first of those that are not needed stay as standbys; the others are released,
    and as many empty places are awaited as there are standbys missing, and of lost nodes as many as
    the table has room for.

    Args:
        run: Its ranks are those of the new table.
        former: How many nodes the table before had; 0: this one is the first.
    """
    left_out, open_places = run.attempt.left_out, run.spec.standby
    released = [s for s in run.slots if s.node and s.node.state is NodeState.RELEASED]
    for slot in (slot for slot in released if slot.index not in run.missing):
        why = left_out.get(slot.index)
        if why is not None and why.cause is None and open_places > 0:
            slot.its_node.state, slot.problem = NodeState.STANDBY, ""
            open_places -= 1
        else:
            run.missing.add(slot.index)
            slot.given_up = True
    if former:
        open_places += run.spec.max_nodes - len(run.starts.numbers)
    for index in sorted(run.missing, key=lambda i: (not run.slots[i].incarnations, i)):
        slot = run.slots[index]
        if not slot.given_up:
            slot.given_up = open_places <= 0
            open_places -= 1
