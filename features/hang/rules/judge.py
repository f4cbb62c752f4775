"""Where every rank of a run is, which is odd, and what to say of it. Pure.

The first rule that fits is the verdict. A wrong name costs more than none: where something that was
seen, or was not, leaves room for another explanation, it is not certain; where that other one is
as likely, no rank is odd.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from features.hang.rules.by_calls import all_inside, behind, cycle, different, moving
from features.hang.rules.by_children import children
from features.hang.rules.by_places import nothing, odd_stack, unclear
from features.hang.rules.by_start import starting, unstarted
from features.hang.rules.by_state import stopped
from features.hang.rules.evidence import Brief, Evidence
from features.hang.rules.finding import Finding
from features.hang.rules.seen import see
from features.hang.rules.sentences import NEXT_STEPS, held_back_text, tail_text
from features.hang.rules.stacks import frame_words
from features.hang.rules.verdict import MOST_ODD, Verdict
from features.hang.wire import RunLook, Stack
from rendezvous.wire.words import numbers_text

_MOST_PLACES = 4
_MOST_FRAMES = 8
_RULES: Sequence[Callable[[Evidence], Finding | None]] = (
    nothing,
    stopped,
    moving,
    children,
    unstarted,
    starting,
    cycle,
    behind,
    different,
    all_inside,
    odd_stack,
)


def look_at(run_look: RunLook, before: RunLook | None = None, *, brief: Brief = "") -> Verdict:
    """Judge a look; `before` is an earlier look at the same ranks, and a `brief` sentence
    has no sizes, and not what it was made from."""
    found = _judged(Evidence(see(run_look), see(before) if before is not None else None, brief))
    held = held_back_text(run_look.nodes)
    return replace(found, sentence=f"{found.sentence}; {held}") if held else found


def _judged(evidence: Evidence) -> Verdict:
    for rule in _RULES:
        found = rule(evidence)
        if found is not None:
            return _verdict(evidence, found)
    return _verdict(evidence, unclear(evidence))


def _verdict(evidence: Evidence, found: Finding) -> Verdict:
    of = evidence.of
    silent_nodes = tuple(node.slot for node in evidence.seen.silent_nodes)
    tail = tail_text(found.made_from, of, evidence.silent, silent_nodes)
    answered = not silent_nodes and set(evidence.silent) <= set(found.odd)
    return Verdict(
        found.rule,
        found.sentence + tail * (evidence.brief == ""),
        _next_step(found),
        tuple(sorted(found.odd)[:MOST_ODD]),
        len(found.odd),
        len(evidence.waiting),
        of,
        found.certain and answered,
        found.made_from,
        evidence.silent,
        silent_nodes,
        tuple(sorted(found.awaited)),
    )


def _next_step(found: Finding) -> str:
    """What to try; of one rank, with its own log."""
    step = found.next_step or NEXT_STEPS[found.rule]
    if len(found.odd) != 1:
        return step
    (rank,) = found.odd
    return step.replace("rdzv logs RUN", f"rdzv logs RUN --rank {rank}")


def groups_of(run_look: RunLook) -> list[tuple[tuple[int, ...], Stack | None]]:
    """The ranks whose main threads have equal stacks, the odd ones first; None: without a stack.

    After the ranks that the verdict names come those that do not wait, then the smaller groups.
    """
    evidence = Evidence(see(run_look), None)
    odd = set(_judged(evidence).odd)
    groups: dict[tuple[object, ...], tuple[list[int], Stack | None]] = {}
    keys: dict[int, tuple[object, ...]] = {id(None): ()}
    for rank, seen in evidence.ranks.items():
        stack = seen.stack
        key = keys.get(id(stack))
        if key is None:
            assert stack is not None
            key = keys[id(stack)] = (*stack.frames, stack.cut)
        groups.setdefault(key, ([], stack))[0].append(rank)

    def order(group: tuple[list[int], Stack | None]) -> tuple[bool, bool, int, int]:
        ranks, stack = group
        waits = evidence.waiting.issuperset(ranks) or stack is None
        return odd.isdisjoint(ranks), waits, len(ranks), ranks[0]

    return [(tuple(ranks), stack) for ranks, stack in sorted(groups.values(), key=order)]


def stacks_of(run_look: RunLook) -> list[str]:
    """`rank 5: load_batch (data.py:3), main (train.py:9)`, in the order of `groups_of`: the first
    few ranks and calls."""
    return [
        f"{numbers_text(ranks)}: {', '.join(map(frame_words, stack.frames[:_MOST_FRAMES]))}"
        for ranks, stack in groups_of(run_look)[:_MOST_PLACES]
        if stack is not None
    ]
