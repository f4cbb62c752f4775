"""Who makes the others wait while the programs run: what is known of it, in words. Pure."""

from __future__ import annotations

from rendezvous.feature import locating_command
from rendezvous.pace import Straggler
from rendezvous.run import events, features
from rendezvous.run.state import Run, who
from rendezvous.wire.run import Phase, Suspect
from rendezvous.wire.types import Wire
from rendezvous.wire.words import seconds_text

FEATURE = "stragglers"
_TRY = (
    "see {first}'rdzv logs {run} {option}'; it may have more data than the others, or a slower "
    "disk, CPU or GPU"
)


def watched_epoch(run: Run) -> int:
    """The epoch whose programs run, and whose nodes can all tell when they called; -1: none."""
    if run.phase is not Phase.RUNNING or run.stop or run.departure is not None:
        return -1
    nodes = [slot.its_node for slot in run.taking_part()]
    return run.epoch if nodes and all(node.join.reports_pace for node in nodes) else -1


class Slow(Wire):
    """A rank makes the others wait, or all ranks of a node do.

    Attributes:
        slot: Of its node.
        rank: None: all ranks of the node.
        cost_seconds: For how long in each step, at most.
        step_seconds: How long a step takes.
        last: In how many collectives it was the last one.
        of: Of how many.
    """

    slot: int
    rank: int | None
    cost_seconds: float
    step_seconds: float
    last: int
    of: int


def found_in(run: Run) -> Slow | None:
    """Return who makes the others wait; None: nobody does."""
    return features.data_of(run, FEATURE, Slow)


def noted(run: Run, straggler: Straggler | None) -> events.Noted:
    """Make the event by which a straggler is kept and told; None: there is none any more."""
    before = found_in(run)
    if straggler is None:
        if before is None:
            words = "no rank makes the others wait"
            return events.Noted(feature=FEATURE, words=words, usual=True)
        words = f"{_name(run, before)} no longer makes the others wait"
        return events.Noted(feature=FEATURE, words=words, slot=before.slot)
    slow = Slow(
        slot=straggler.slot,
        rank=straggler.rank,
        cost_seconds=straggler.cost,
        step_seconds=straggler.step,
        last=straggler.last,
        of=straggler.of,
    )
    node = run.starts.numbers.get(slow.slot)  # also of one that has just been lost
    option = f"--node {node}" if slow.rank is None else f"--rank {slow.rank}"
    where = locating_command(run.id)
    first = (
        f"where it is and what it prints with '{where}' and " if where else "what it prints with "
    )
    words = f"{_sentence(run, slow)}; try: {_TRY.format(first=first, run=run.id, option=option)}"
    data = slow.model_dump(mode="json")
    return events.Noted(feature=FEATURE, words=words, slot=slow.slot, data=data)


def remark_of(run: Run) -> features.Remark | None:
    """Observation for the status; None: no rank makes the others wait."""
    if (slow := found_in(run)) is None:
        return None
    words = _sentence(run, slow)
    suspect = Suspect(slot=slow.slot, rank=slow.rank, slow=True)
    return features.Remark(finding=words, lasting=words, suspect=suspect)


def _name(run: Run, slow: Slow) -> str:
    node = who(run.slots[slow.slot])
    return node if slow.rank is None else f"rank {slow.rank} on {node}"


def _sentence(run: Run, slow: Slow) -> str:
    cost, step = seconds_text(slow.cost_seconds), seconds_text(slow.step_seconds)
    share = 100 * slow.cost_seconds / slow.step_seconds
    return (
        f"{_name(run, slow)} makes the others wait, up to {cost} of each step of {step} "
        f"({share:.0f} %): the last in {slow.last} of {slow.of} collectives"
    )
