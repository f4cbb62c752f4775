"""What is said of slots that nobody has filled in time, those of one reason together. Pure."""

from __future__ import annotations

import re

from rendezvous.run import refusals
from rendezvous.run.state import DEAD_SUBMISSIONS, Run, Slot, nodes_text
from rendezvous.wire.run import RunSpec, SlotState
from rendezvous.wire.words import slots_text

_MOST_GROUPS = 3


def timed_out(run: Run, overdue: list[Slot], trouble: str) -> tuple[str, str]:
    """The sentence and the hint of a run that slots were missing in, these for too long.

    All are named, also those awaited for a moment less. A trouble of the registry itself is why:
    whoever is missing may have called.
    """
    absent = [run.slots[index] for index in sorted(run.missing)]
    known = trouble or _known_of_all(run.spec, absent) + refusals.clause(run)
    words = (
        f"run '{run.id}' expected {nodes_text(run.spec)} and {run.present} joined "
        f"within {run.spec.limits.join_timeout_seconds:.10g} s: {known}"
    )
    hint = "" if trouble else refusals.hint(run) or _hint(run, overdue[0])
    return words, hint


def failed_before(slot: Slot) -> bool:
    """Tell whether its problem is that of a worker run in whose place a newer one is on its way."""
    is_newer = slot.generation > 1 and slot.generation == slot.wanted
    may_come = slot.state not in DEAD_SUBMISSIONS and not slot.given_up and slot.refused is None
    return bool(slot.problem) and slot.node is None and is_newer and may_come


def _known_of_all(spec: RunSpec, slots: list[Slot]) -> str:
    """A clause for each group of slots of which the same is known, but for numbers and names."""
    groups: dict[str, list[Slot]] = {}
    for slot in slots:
        groups.setdefault(_without_own(slot, _known(spec, slot)), []).append(slot)
    found = list(groups.values())
    rest = sum(map(len, found[_MOST_GROUPS:]))
    shown = [_known_of(spec, group) for group in found[:_MOST_GROUPS]]
    return "; ".join([*shown, *([f"and {rest} more"] if rest else [])])


def _known_of(spec: RunSpec, slots: list[Slot]) -> str:
    first = slots[0]
    known, name = _known(spec, first), ""
    if len(slots) > 1:
        known = re.sub("^was ", "were ", known)
    if len(slots) == 1:
        if first.name:
            again = f", generation {first.generation}" if first.generation > 1 else ""
            name = f" (worker run {first.name}{again})"
    elif len({_known(spec, slot) for slot in slots}) > 1:
        name = f", such as slot {first.index},"
    return f"{slots_text([slot.index for slot in slots])}{name} {known}"


def _known(spec: RunSpec, slot: Slot) -> str:
    """What is known of a missing slot and of its worker run."""
    detail = f": {slot.detail}" if slot.detail else ""
    if slot.generation == 0 and spec.managed:
        known = "was never submitted"
    elif slot.state in (SlotState.NONE, SlotState.UNKNOWN):
        known = "never reached the registry"
    elif slot.state is SlotState.SUBMITTING:
        known = f"was still being submitted{detail}"
    else:
        known = f"never reached the registry; the scheduler reports {slot.state}{detail}"
    return f"{known}; before that: {slot.problem}" if slot.problem else known


def _without_own(slot: Slot, words: str) -> str:
    """The words without what is of this slot alone: its worker run's name, and all numbers."""
    for own in (slot.name, slot.handle):
        words = words.replace(own, "#") if own else words
    return re.sub(r"\d+", "#", words)


def _hint(run: Run, slot: Slot) -> str:
    if slot.generation == 0 and run.spec.managed:
        return "see the earlier messages of the launcher for the cause"
    if slot.state is SlotState.SUBMITTING:
        return "the scheduler has not accepted the worker run yet; launch again when it responds"
    if slot.state is SlotState.SUBMITTED:
        return (
            "launch again with a larger --join-timeout; if you start worker runs yourself, "
            "start all of them within that time"
        )
    return "see the log of the missing worker run; it must be able to reach the registry's address"
