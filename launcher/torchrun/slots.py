"""Which place of its run a node asks for that was given none. Pure."""

from __future__ import annotations

from rendezvous.wire.run import NodeState, Phase, RunStatus

EMPTY = (None, NodeState.LOST, NodeState.LEFT, NodeState.RELEASED)
"""How a node is that has its place no more; None: there was none."""


def first_slot(node: int | None, slots: int) -> int:
    """What is tried first: the number that is asked for; else slot 0, which no start is without."""
    return node if node is not None and node < slots else 0


def free_slots(status: RunStatus) -> list[int]:
    """The places that nobody has."""
    return [slot.slot for slot in status.slots if slot.node_state in EMPTY]


def is_surplus(status: RunStatus) -> bool:
    """Whether the run has all nodes that it wants, and its programs run."""
    return status.phase is Phase.RUNNING and not free_slots(status)
