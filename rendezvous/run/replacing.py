"""A node that is lost once programs have started is replaced, or gone without. Pure.

A standby takes its place, or its worker run is submitted again, as often as `max_replacements`
allows: each loss of a node counts once, however often its place has to be asked for until the next
node is in it. Which of the nodes make the next table is seen when they gather: those that stay
first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rendezvous.run import events
from rendezvous.run.decision import Outcome
from rendezvous.run.moves import gather_again
from rendezvous.run.phases import Awaits
from rendezvous.run.places import count_waiting, may_be_there, standbys, there, vacate
from rendezvous.run.state import DEAD_SUBMISSIONS, LeftOut, Run, Slot, names_of, nnodes_text, who
from rendezvous.wire.run import NodeState, SlotState
from rendezvous.wire.words import listed

_PAUSES_SECONDS = (1, 2, 4, 8, 16, 32, 60, 120, 300, 600, 900)
"""Between a worker run that came to nothing and the next one; the last one stays."""
_LONGEST_PAUSE_SECONDS = 60.0
"""Where nodes are idle until it comes."""


def outlives(run: Run) -> bool:
    """Whether programs have started in a run that may go on after a node's loss."""
    return run.spec.outlives_nodes and bool(run.starts.numbers)


def is_given_up(run: Run, slot: Slot) -> bool:
    """Whether the node in the slot was lost, and the run is about to go on without it."""
    lost = slot.node is not None and slot.node.state is NodeState.LOST
    return lost and run.result is None and outlives(run)


def why_not(run: Run, lost: Collection[int]) -> str:
    """Why the run cannot go on without the nodes of these slots; empty where it can."""
    spec, starts = run.spec, run.starts
    if any(map(run.needs, lost)):
        return "the node of slot 0 is the launcher's own, which no other node can replace"
    shrinks = spec.on_node_loss == "shrink"  # it waits for nobody
    left = _left(run, lost) if shrinks else may_be_there(run, lost)
    most = spec.limits.max_replacements
    again = 0 if shrinks else min(len(lost), most - starts.resubmitted)
    if left + again >= spec.min_nodes:
        return ""
    count = f"{left} node{'s' * (left != 1)} would be left of {nnodes_text(spec)}"
    if spec.on_node_loss == "shrink":
        return count
    used = f"replacement {most} of {most} is used up" if most else "--max-replacements is 0"
    return f"{count}, and {used}"


def _left(run: Run, lost: Collection[int]) -> int:
    return len({slot.index for slot in there(run)}.difference(lost))


def refill(run: Run, slot: Slot, now: float) -> str:
    """Vacate the slot of a node that is lost. Returns how it is filled again, in words; empty where
    it is not."""
    limits, node = run.spec.limits, slot.node
    newer = node is not None and node.join.generation < slot.generation
    on_its_way = slot.wanted > slot.generation or (newer and slot.state not in DEAD_SUBMISSIONS)
    vacate(run, slot, now)
    if on_its_way:
        return "its next worker run is on its way"
    is_left = run.starts.resubmitted < limits.max_replacements
    waits_in_vain = run.spec.on_node_loss == "shrink" and not run.spec.managed
    if waits_in_vain or not is_left or run.needs(slot.index):
        slot.given_up = True
        return ""
    slot.given_up = False
    run.starts.resubmitted += 1
    count = f"replacement {run.starts.resubmitted} of {limits.max_replacements}"
    if not run.spec.managed:
        return f"the run waits for slot {slot.index}, which its platform may start again ({count})"
    slot.wanted = slot.generation + 1
    return f"slot {slot.index} is submitted again ({count})"


def try_again(run: Run, slot: Slot, now: float) -> str:
    """A worker run that was to take a lost node's place has ended before its node had joined: the
    next one is submitted after a while, as long as the run lives. Returns that in words.

    One that is awaited by the next programs ends the run when it has had the join time-out.
    """
    seconds = _pause_seconds(slot)
    if run.rules.is_forming:
        seconds = min(seconds, _LONGEST_PAUSE_SECONDS)
    slot.tries, slot.again_at = slot.tries + 1, now + seconds
    return f"it is submitted again in {_time(seconds)}"


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds <= 60 else f"{seconds / 60:.0f} min"


def hurry(run: Run, now: float) -> None:
    """The programs have stopped, and may wait for places from now on: none is asked for as seldom
    as beside them, and how long it was empty beside them does not count."""
    if not run.spec.outlives_nodes:
        return
    for slot in (run.slots[index] for index in run.missing):
        if slot.again_at is not None:
            slot.again_at = min(slot.again_at, now + _LONGEST_PAUSE_SECONDS)
        slot.waited, slot.waiting_since = 0.0, None
        count_waiting(slot, now)


def _pause_seconds(slot: Slot) -> float:
    return float(_PAUSES_SECONDS[min(slot.tries, len(_PAUSES_SECONDS) - 1)])


def due_again(run: Run, now: float) -> list[Slot]:
    """The slots whose next worker run is submitted now."""
    if not outlives(run):
        return []
    slots = [run.slots[index] for index in sorted(run.missing)]
    return [slot for slot in slots if _is_due_again(run, slot, now)]


def _is_due_again(run: Run, slot: Slot, now: float) -> bool:
    """Whether the pause after its failed worker run is over; or, beside the programs, whether one
    has been running for long, and its node has not come."""
    if slot.again_at is not None:
        return now >= slot.again_at
    is_awaited = not slot.given_up and slot.state is SlotState.RUNNING
    if run.rules.awaits is not Awaits.PROGRAMS or slot.wanted > slot.generation or not is_awaited:
        return False
    limit = max(run.spec.limits.join_timeout_seconds, _pause_seconds(slot))
    return run.spec.managed and now - slot.since >= limit


def submit_again(run: Run, event: events.SubmitAgain, now: float) -> Outcome:
    """Another worker run is wanted in the place of one that has failed, or does not come."""
    slot, why = run.slots[event.slot], ""
    if slot.again_at is None:
        slot.tries += 1
        why = f": its node has not joined within {_time(now - slot.since)}"
    slot.again_at, slot.wanted = None, slot.generation + 1
    return Outcome(f"slot {slot.index} is submitted again{why}", slot.index)


def retire(run: Run, slot: Slot, why: str, now: float) -> str:
    """Release a node that is there: it ends by itself. Returns how its slot is filled again, as
    `refill` does."""
    slot.its_node.state, slot.problem = NodeState.RELEASED, why
    return refill(run, slot, now)


def give_up(run: Run, guilty: Mapping[int, LeftOut], now: float) -> str:
    """Release nodes that cannot take part, have others come in their places, and gather again."""
    said = [retire(run, run.slots[index], why.words, now) for index, why in guilty.items()]
    gather_again(run, now)
    return "; ".join(filter(None, said)) or f"the run continues without {names_of(run, guilty)}"


def plan_words(run: Run, lost: Sequence[Slot]) -> str:
    """How the run goes on without these nodes, as a sentence says it."""
    names = listed([who(slot) for slot in lost])
    ready = [slot for slot in standbys(run) if slot not in lost][: len(lost)]
    if ready:
        words = f"{listed([who(slot) for slot in ready])}, a standby, "
        return f"{words}take{'s' * (len(ready) == 1)} the place of {names}"
    if run.spec.on_node_loss == "shrink":
        return f"the run continues without {names}"
    return f"{names} {'is' if len(lost) == 1 else 'are'} replaced"
