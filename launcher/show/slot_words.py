"""How a slot stands, in a few words: its worker run at the scheduler, and its node. Pure."""

from __future__ import annotations

from rendezvous.wire.run import NodeState, SlotState, SlotStatus
from rendezvous.wire.words import time_text

STOPPED = "stopped by rdzv"


def worker_run_words(slot: SlotStatus, *, times: bool = True) -> str:
    """Its worker run at the scheduler: `queued 2 min: Priority`; without `times` what changes only
    when something happens."""
    if slot.state is SlotState.NONE:
        return "-"
    again = f" (generation {slot.generation})" if slot.generation > 1 else ""
    again += f", {slot.cause}" if slot.cause else ""
    if slot.node_state is not None:
        return f"{slot.state}{again}"
    time = time_text(slot.state_seconds) if times else ""
    detail = f": {slot.detail}" if slot.detail and slot.detail not in slot.problem else ""
    return f"{slot.state}{' ' * bool(time)}{time}{again}{detail}"


def state_words(slot: SlotStatus, mark: str = "") -> str:
    """State of its node: `running`, `ended, exit code 1: out of memory`.

    Args:
        slot: The slot.
        mark: What sets it apart, as `Result.mark_of` has it.
    """
    before = f"{mark}: " if mark else ""
    if slot.node_state is None:
        return f"{before}{slot.problem or 'not joined yet'}"
    text = "ended" if slot.node_state is NodeState.EXITED else str(slot.node_state)
    if slot.stopped:
        text += f", {STOPPED}"
    if slot.exit_code is not None:
        text += f", exit code {slot.exit_code}"
    return f"{before}{text}: {slot.problem}" if slot.problem else f"{before}{text}"
