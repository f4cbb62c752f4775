"""What a scheduler says of a worker run. Pure."""

from __future__ import annotations

from rendezvous.frozen import frozen
from rendezvous.wire.run import SlotState

OVER = (SlotState.ENDED, SlotState.FAILED)
"""The states after which nothing more becomes of a worker run."""


@frozen
class Description:
    """What a scheduler says of a worker run, in its own words.

    Attributes:
        preempted: It takes the run's machine back, or has done so: neither the program nor the
            machine is at fault.
        host: The machine that it has given the run, by the scheduler's own name; empty: unknown.
    """

    state: SlotState
    detail: str = ""
    preempted: bool = False
    host: str = ""
