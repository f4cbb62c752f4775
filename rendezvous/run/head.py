"""A run that ends with the program of node 0, its head, while the others have programs too. Pure.

Once the head's program has ended well by itself, the run is over: what the others end with is no
failure. What had failed before, by age, is one; so a verdict waits for the head's own report, which
may come late: what its program has left running is ended first.
"""

from __future__ import annotations

from rendezvous.run.state import KILL_SECONDS, Run, Slot, who
from rendezvous.wire.run import NodeState, Phase
from rendezvous.wire.words import all_of


def has_ended(run: Run, slot: Slot, now: float) -> bool:
    """Whether the run is over with what this node has just reported of its program."""
    node = slot.its_node
    report = node.exit
    if run.spec.ends_with != "node0" or node.number != 0 or run.phase is not Phase.RUNNING:
        return False
    if report is None or report.exit_code or report.stopped or report.fenced:
        return False
    ended_at = now - report.age_seconds
    failed = [one.its_node.failed_at for one in run.of_table()]
    return all(at is None or at >= ended_at for at in failed)


def end_all(run: Run) -> str:
    """Take back what failed after the head's end. Returns how all have ended, in words."""
    stopped, runs = [], True
    for slot in run.of_table():
        node = slot.its_node
        if node.failed_at is not None and node.exit is not None:
            node.exit = node.exit.model_copy(update={"stopped": True})
        node.failed_at = None
        if node.exit is None or node.exit.stopped:
            stopped.append(slot)
            runs &= node.state is NodeState.RUNNING
    count = len(run.table.rows) if run.table else 0
    if not stopped:
        return f"{all_of(count)} ended with exit code 0"
    if not runs:  # a node that has failed, or left, was not stopped
        return "node 0 ended with exit code 0, and with it the run"
    if len(stopped) == 1:
        others = f"{who(stopped[0])} was"
    else:
        running = "" if len(stopped) == count - 1 else " that still ran"
        others = f"the {len(stopped)} others{running} were"
    return f"node 0 ended with exit code 0; {others} stopped"


def is_awaited(run: Run, waited: float) -> bool:
    """Whether a verdict has yet to wait for the head, which may have ended before the others."""
    if run.spec.ends_with != "node0" or waited >= run.spec.limits.grace_seconds + KILL_SECONDS:
        return False
    nodes = (slot.its_node for slot in run.of_table())
    return any(node.number == 0 and node.state is NodeState.RUNNING for node in nodes)
