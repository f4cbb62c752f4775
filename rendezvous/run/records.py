"""Small records in the state of a run: who leaves, what may still run, who was refused. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from rendezvous.frozen import frozen
from rendezvous.wire.refused import RefusedAsk


@frozen
class Departure:
    """A node that will go, and when the programs of all are stopped for it."""

    slot: int
    stop_at: float
    words: str
    drained: bool = False


@dataclass(frozen=True, slots=True)
class Fence:
    """When the program of a node that is gone has ended for certain.

    Attributes:
        generation: Of its worker run: once its scheduler says that it is over, nothing is left.
        until: By then it has ended itself.
        holds: The next programs wait for it: nothing else shows that it has ended.
    """

    slot: int
    incarnation: int
    generation: int
    until: float
    holds: bool


@frozen
class RefusedJoin:
    """A node that has asked to join and was refused, the run going on.

    Attributes:
        ask: What it asked for last, and why it does not get it.
        held_by: Incarnation of the node that holds its slot; 0: no node does.
        times: How often it has asked.
        first_at: When it asked first.
        last_at: When it was last written down that it asked.
    """

    ask: RefusedAsk
    held_by: int
    times: int
    first_at: float
    last_at: float
