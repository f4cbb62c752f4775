"""Completion of a failed run's result by a scheduler's later words. Pure.

The result itself stays as its nodes have learnt it; a status has the completed one. Schedulers say
late that they have taken a machine back, or why a worker run ended: its launcher hears it as it
ends the worker runs.
"""

from __future__ import annotations

from typing import Final

from rendezvous.run.state import Run, Slot
from rendezvous.wire.errors import PREEMPTED_HINT, SIGNALS, Cause
from rendezvous.wire.run import NodeState, Result, SlotNews
from rendezvous.wire.words import printable

_MOST_WORDS = 300
_MAY_BE_PREEMPTED: Final = (
    Cause.NODE_LOST,
    Cause.PROGRAM_FAILED,
    Cause.AGENT_FAILED,
    Cause.SCHEDULER_FAILED,
    Cause.JOIN_TIMEOUT,
)
"""Causes of which a preemption may be the cause. What checks have found it is not."""


def completed(run: Run, slot: Slot, news: SlotNews) -> Result | None:
    """Return the result with a scheduler's last words on a slot's worker run.

    None where they say nothing about it, or others have completed it: of the slot that failed, or
    of one whose node was lost without a word.
    """
    result = run.result
    if result is None or result.status != "failed" or run.explained is not None:
        return None
    if news.generation != slot.generation:
        return None
    is_its, says = slot.index == result.slot, printable(news.detail, _MOST_WORDS)
    if news.cause == Cause.PREEMPTED and result.code in _MAY_BE_PREEMPTED:
        is_lost = slot.node is not None and slot.node.state is NodeState.LOST
        return _preempted(result, slot, says) if is_its or is_lost else None
    if not (is_its and _is_open(result)) or not says or says in result.message:
        return None
    message = f"{result.message}; the scheduler reports: {says}"
    return result.model_copy(update={"message": message})


def _is_open(result: Result) -> bool:
    """Whether a scheduler may know what a signal or a silence leaves open."""
    by_signal = result.code == Cause.PROGRAM_FAILED and result.exit_code > SIGNALS
    return by_signal or result.code in (Cause.NODE_LOST, Cause.PREEMPTED)


def _preempted(result: Result, slot: Slot, says: str) -> Result:
    is_its = slot.index == result.slot
    whose = "its worker run" if is_its else f"the worker run of slot {slot.index}"
    changed = {
        "code": Cause.PREEMPTED,
        "cause": Cause.PREEMPTED,
        "exit_code": int(Cause.PREEMPTED.exit_code),
        "exit_code_of": "rdzv",
        "message": f"{result.message}; the scheduler preempted {whose}: {says}",
        "hint": PREEMPTED_HINT,
    }
    return result.model_copy(update=changed)
