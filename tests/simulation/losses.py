"""Runs that outlive their nodes: what may follow from a loss, by the rules alone."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from rendezvous.run.state import Run
from rendezvous.wire.run import NodeState

if TYPE_CHECKING:
    from tests.simulation.agents import Process
    from tests.simulation.history import Facts, History

_GONE = (NodeState.RELEASED, NodeState.LOST, NodeState.LEFT)


def lost_in(facts: Facts, run: Run) -> set[int]:
    """The slots of the newest epoch whose node is lost, or has said that it goes."""
    off = facts.off_at.keys() | facts.epochs.leaving
    return {slot for slot, _ in facts.epochs.rows.items() & off}


def can_outlive(run: Run, lost: Collection[int] = ()) -> bool:
    """Whether enough nodes are there without these, with those that may come in their places."""
    spec, limits = run.spec, run.spec.limits
    if not spec.outlives_nodes or (spec.local_node and 0 in lost):
        return False
    there = [s.index for s in run.slots if s.node is not None and s.node.state not in _GONE]
    awaited = [s.index for s in run.slots if s.index not in there and s.index in run.missing]
    may_come = [index for index in awaited if not run.slots[index].given_up and index not in lost]
    left = limits.max_replacements - run.starts.resubmitted
    again = min(len(lost), left)
    if spec.on_node_loss == "shrink":  # it waits for nobody
        may_come, again = [], 0
    return len(set(there) - set(lost)) + len(may_come) + again >= spec.min_nodes


def may_run(history: History, process: Process | None, fence: float) -> bool:
    """Whether a program of a worker run lives that need not have ended by now: of one that has not
    joined, or was given up, none can begin."""
    if process is None or process.ended is not None or process.was_paused:
        return False
    lives = any(life.ended_at is None for life in process.lives)
    return lives and history.now() < process.door.traffic.arrived_at + fence - 0.05
