"""When nothing of a node that is gone runs any more: no program starts beside an older one. Pure.

An agent that has died has closed its connections, and what keeps its program kills that at once.
Of a node that is silent nobody knows: it ends its program itself once it has not heard of its
registry for the fence time-out. The programs of the next epoch wait for that, unless its scheduler
says before that its worker run is over. Its worker run is not submitted again before either.
"""

from __future__ import annotations

from dataclasses import replace

from rendezvous.run.records import Fence
from rendezvous.run.state import DEAD_SUBMISSIONS, KILL_SECONDS, Run, Slot
from rendezvous.wire.run import NodeState


def _seconds(run: Run) -> float:
    seconds = run.spec.fence_seconds
    assert seconds is not None
    return seconds


def raise_for(run: Run, slot: Slot, now: float) -> None:
    """Remember of a node that leaves its slot until when its program may run."""
    node = slot.its_node
    if not run.starts.numbers or node.state is NodeState.LEFT:  # it had ended its program before
        return
    if node.join.generation == slot.generation and slot.state in DEAD_SUBMISSIONS:
        return  # its scheduler has said since that nothing of it is left
    if node.state is NodeState.RELEASED:  # it hears of it, and ends its program in order
        until, holds = now + run.spec.limits.grace_seconds + KILL_SECONDS, True
    elif node.silent_since is not None:
        until, holds = node.silent_since + _seconds(run), True
    else:
        until, holds = now + KILL_SECONDS, False
    newest = run.starts.placements[-1].nodes
    ran = any((one.slot, one.incarnation) == (slot.index, node.incarnation) for one in newest)
    holds &= ran and node.state is not NodeState.ARMED  # who has acknowledged has ended it
    fence = Fence(slot.index, node.incarnation, node.join.generation, until, holds)
    run.starts.fences = (*run.starts.fences, fence)


def has_gone(run: Run, slot: int, incarnation: int) -> None:
    """This node has ended, and its program before it."""
    run.starts.fences = tuple(
        one for one in run.starts.fences if (one.slot, one.incarnation) != (slot, incarnation)
    )


def fell_silent(run: Run, slot: Slot) -> None:
    """A node that was released may not have heard of it: its program ends by its own fence at the
    latest."""
    node = slot.its_node
    assert node.silent_since is not None
    latest = node.silent_since + _seconds(run)
    run.starts.fences = tuple(
        replace(one, until=min(one.until, latest))
        if (one.slot, one.incarnation) == (slot.index, node.incarnation)
        else one
        for one in run.starts.fences
    )


def is_held(run: Run, slot: int, generation: int) -> bool:
    """Whether something of this worker run may be left, as far as is known."""
    return any((one.slot, one.generation) == (slot, generation) for one in run.starts.fences)


def worker_run_ended(run: Run, slot: int, generation: int) -> None:
    """Its scheduler says so: nothing of it is left."""
    run.starts.fences = tuple(
        one for one in run.starts.fences if (one.slot, one.generation) != (slot, generation)
    )


def are_over(run: Run, now: float) -> bool:
    """Whether a time has come by which something has ended."""
    return any(one.until <= now for one in run.starts.fences)


def drop_over(run: Run, now: float) -> list[Fence]:
    """Forget those, and return them."""
    over = [one for one in run.starts.fences if one.until <= now]
    run.starts.fences = tuple(one for one in run.starts.fences if one.until > now)
    return over


def holding(run: Run) -> list[Fence]:
    """What the next programs wait for."""
    return [one for one in run.starts.fences if one.holds]


def is_fenced(run: Run, slot: Slot) -> bool:
    """Whether nothing of the nodes runs that were lost in this place, or left it."""
    is_empty = slot.node is None or slot.node.state is NodeState.LEFT
    return is_empty and all(one.slot != slot.index for one in run.starts.fences)
