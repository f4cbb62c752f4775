"""Which place a node asks for that was given none."""

from __future__ import annotations

from launcher.torchrun.slots import first_slot, free_slots, is_surplus
from rendezvous.wire.run import NodeState, Phase, RunStatus, SlotState, SlotStatus


def status(phase: Phase, *states: NodeState | None) -> RunStatus:
    """A run whose nodes are in these states; None: nobody was there."""
    slots = [
        SlotStatus(slot=n, generation=1, wanted_generation=1, state=SlotState.NONE, node_state=s)
        for n, s in enumerate(states)
    ]
    return RunStatus(
        run="r",
        launch_id="l" * 8,
        version=1,
        phase=phase,
        epoch=1,
        reason="",
        min_nodes=1,
        max_nodes=len(states),
        elapsed_seconds=0.0,
        slots=slots,
    )


def test_slot_0_is_tried_first_or_the_rank_that_is_wanted() -> None:
    assert first_slot(None, 4) == 0
    assert first_slot(3, 4) == 3
    assert first_slot(4, 4) == 0


def test_the_place_of_a_node_that_is_gone_is_free() -> None:
    found = status(
        Phase.GATHERING, NodeState.JOINED, None, NodeState.LOST, NodeState.LEFT, NodeState.STANDBY
    )
    assert free_slots(found) == [1, 2, 3]


def test_a_node_is_surplus_once_the_programs_of_all_run() -> None:
    taken = NodeState.JOINED, NodeState.RUNNING
    assert not is_surplus(status(Phase.GATHERING, *taken))
    assert is_surplus(status(Phase.RUNNING, *taken))
    assert not is_surplus(status(Phase.RUNNING, NodeState.LOST, *taken))
