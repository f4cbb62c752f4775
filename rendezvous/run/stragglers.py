"""Who makes the others wait while the programs run: what is known of it, in words. Pure."""

from __future__ import annotations

from rendezvous.pace import Straggler
from rendezvous.run import events
from rendezvous.run.moves import Outcome
from rendezvous.run.state import Run, who
from rendezvous.wire.run import Phase
from rendezvous.wire.words import seconds_text

_TRY = (
    "see where it is and what it prints with 'rdzv look {run}' and 'rdzv logs {run} {option}'; it "
    "may have more data than the others, or a slower disk, CPU or GPU"
)


def watched_epoch(run: Run) -> int:
    """The epoch whose programs run, and whose nodes can all tell when they called; -1: none."""
    if run.phase is not Phase.RUNNING or run.stop or run.departure is not None:
        return -1
    nodes = [slot.its_node for slot in run.taking_part()]
    return run.epoch if nodes and all(node.join.reports_pace for node in nodes) else -1


def found_event(straggler: Straggler | None) -> events.StragglerFound | events.StragglerGone:
    """What was found, as it is kept; None: that there is none any more."""
    if straggler is None:
        return events.StragglerGone()
    return events.StragglerFound(
        slot=straggler.slot,
        rank=straggler.rank,
        cost_seconds=straggler.cost,
        step_seconds=straggler.step,
        last=straggler.last,
        of=straggler.of,
    )


def found(run: Run, event: events.StragglerFound, now: float) -> Outcome:
    """Keep who makes the others wait."""
    run.straggler = event
    rank = event.rank
    node = run.starts.numbers.get(event.slot)  # also of one that has just been lost
    option = f"--node {node}" if rank is None else f"--rank {rank}"
    words = f"{_sentence(run, event)}; try: {_TRY.format(run=run.id, option=option)}"
    return Outcome(words, event.slot)


def gone(run: Run, event: events.StragglerGone, now: float) -> Outcome:
    """Forget it."""
    before, run.straggler = run.straggler, None
    if before is None:
        return Outcome("no rank makes the others wait", usual=True)
    return Outcome(f"{_name(run, before)} no longer makes the others wait", before.slot)


def words_of(run: Run) -> str:
    """What `status` adds; empty: nothing."""
    return f"; {_sentence(run, run.straggler)}" if run.straggler is not None else ""


def _name(run: Run, event: events.StragglerFound) -> str:
    node = who(run.slots[event.slot])
    return node if event.rank is None else f"rank {event.rank} on {node}"


def _sentence(run: Run, event: events.StragglerFound) -> str:
    cost, step = seconds_text(event.cost_seconds), seconds_text(event.step_seconds)
    share = 100 * event.cost_seconds / event.step_seconds
    return (
        f"{_name(run, event)} makes the others wait, up to {cost} of each step of {step} "
        f"({share:.0f} %): the last in {event.last} of {event.of} collectives"
    )
