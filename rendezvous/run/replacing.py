"""A node that is lost once programs have started is replaced, or gone without. Pure.

A standby takes its place, or its worker run is submitted again, as often as `max_replacements`
allows. Which of the nodes make the next table is seen when they gather: those that stay first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rendezvous.run import events
from rendezvous.run.decision import Outcome
from rendezvous.run.moves import gather_again
from rendezvous.run.places import may_be_there, standbys, vacate
from rendezvous.run.state import DEAD_SUBMISSIONS, LeftOut, Run, Slot, names_of, nnodes_text, who
from rendezvous.wire.run import NodeState
from rendezvous.wire.words import listed

_LONGEST_PAUSE_SECONDS = 60.0


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
    left = may_be_there(run, lost)
    most = spec.limits.max_replacements
    again = min(len(lost), most - starts.resubmitted) if spec.on_node_loss == "replace" else 0
    if left + again >= spec.min_nodes:
        return ""
    count = f"{left} node{'s' * (left != 1)} would be left of {nnodes_text(spec)}"
    if spec.on_node_loss == "shrink":
        return count
    used = f"replacement {most} of {most} is used up" if most else "--max-replacements is 0"
    return f"{count}, and {used}"


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
    if run.spec.on_node_loss != "replace" or not is_left or run.needs(slot.index):
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
    next one is submitted after a while, as long as a node may take to join. Returns that in words.

    One that is awaited by the next programs ends the run when that time is over.
    """
    is_late = slot.wait_seconds(now) >= run.spec.limits.join_timeout_seconds
    if is_late or run.spec.on_node_loss != "replace":
        slot.given_up = not run.rules.is_forming
        return "it is not awaited any longer"
    seconds = min(_LONGEST_PAUSE_SECONDS, 2.0 ** min(slot.tries, 16))
    slot.tries, slot.again_at = slot.tries + 1, now + seconds
    return f"it is submitted again in {seconds:.0f} s"


def due_again(run: Run, now: float) -> list[Slot]:
    """The slots whose next worker run is submitted now."""
    if not outlives(run):
        return []
    slots = (run.slots[index] for index in sorted(run.missing))
    return [slot for slot in slots if slot.again_at is not None and now >= slot.again_at]


def submit_again(run: Run, event: events.SubmitAgain, now: float) -> Outcome:
    """The pause after a worker run that has failed is over."""
    slot = run.slots[event.slot]
    slot.again_at, slot.wanted = None, slot.generation + 1
    return Outcome(f"slot {slot.index} is submitted again", slot.index)


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
