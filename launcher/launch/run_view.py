"""A run as its launch sees it: which of its slots it goes without. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from rendezvous.frozen import frozen
from rendezvous.wire.run import NodeState, Phase, RunStatus, SlotState, SlotStatus

STARTED: Final = (Phase.RUNNING, Phase.FINISHED)
GONE: Final = (None, NodeState.LEFT, NodeState.LOST)
"""The run's node of a slot has gone, or none has come yet."""
_GATHERS_AGAIN: Final = (Phase.GATHERING, Phase.VERIFYING)
_RELEASED: Final = (NodeState.RELEASED, NodeState.LEFT)
_NOT_ON_ITS_WAY: Final = (SlotState.NONE, SlotState.FAILED, SlotState.ENDED)


@frozen
class RunView:
    """View of the newest status.

    Attributes:
        phase: The run's; None before its first status.
        started: Programs have started, also where they are about to start again; or it is over.
        outlives: The run may go on after the loss of a node.
        slots: The state of each slot at the registry.
    """

    phase: Phase | None = None
    started: bool = False
    outlives: bool = False
    slots: Mapping[int, SlotStatus] = field(default_factory=dict)

    @staticmethod
    def of(status: RunStatus) -> RunView:
        """Return the view of a status."""
        return RunView(
            status.phase,
            status.phase in STARTED or bool(status.ended),
            status.on_node_loss != "fail",
            {slot.slot: slot for slot in status.slots},
        )

    def goes_without(self, slot: SlotStatus) -> bool:
        """Whether the run has started without this slot.

        Where the nodes gather again between two epochs, no node has a number: those of the run are
        there then, or on their way.
        """
        if slot.node is not None or slot.awaited or not self.started:
            return False
        if self.phase is Phase.RUNNING or slot.node_state in _RELEASED:
            return True
        awaited = self.phase in _GATHERS_AGAIN and slot.state not in _NOT_ON_ITS_WAY
        return slot.node_state is None and not awaited

    def is_given_up(self, slot: SlotStatus) -> bool:
        """Whether a run that outlives its nodes has lost this slot's, and nobody comes for it."""
        is_lost = slot.node is None and slot.node_state in (None, NodeState.LOST)
        return self.outlives and self.started and is_lost and not slot.awaited

    def is_to_end(self, slot: SlotStatus) -> bool:
        """Whether the worker runs of a slot are to end, as the run goes without them.

        From the go on, the table's nodes are the run's: nobody else can join any more. What was
        lost for good is ended at any time, as the next programs may wait for its end.
        """
        unneeded = slot.node is None and not slot.awaited
        return unneeded and (self.phase is Phase.RUNNING or self.is_given_up(slot))
