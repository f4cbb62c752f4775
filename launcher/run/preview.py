"""The dry run: what would be submitted for each slot, with every secret hidden.

What starts a slot is shown in full the first time; of the slots after it, what differs.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from launcher.plan.plan import HIDDEN, Plan, Submission
from launcher.plan.template import Value
from launcher.schedulers.contract import Scheduler


def preview(plan: Plan, starters: Sequence[Scheduler]) -> Iterator[str]:
    """The lines of the dry run.

    Args:
        plan: The plan.
        starters: What starts slot 0, and what starts the others.
    """
    shown: dict[tuple[str, str], Submission] = {}
    for slot in range(plan.slots):
        run, starter = plan.submission(slot, 1), starters[slot > 0]
        text = starter.prepare(run, HIDDEN).rstrip()
        first = shown.setdefault((starter.name, run.source), run)
        head = f"# slot {slot}, by {starter.name}: {run.name}"
        if first is run:
            yield f"{head}\n{text}\n"
        else:
            yield f"{head}, as slot {first.slot} but for {_differences(first, run)}"


def _differences(first: Submission, run: Submission) -> str:
    return ", ".join(
        f"{name} {_difference(first.variables[name], value)}"
        for name, value in run.variables.items()
        if value != first.variables[name] and value != run.name
    )


def _difference(first: Value, value: Value) -> str:
    """The value; of a list as long as the first, the words that differ, behind their option."""
    if not isinstance(value, list):
        return shlex.quote(str(value))
    if not isinstance(first, list) or len(first) != len(value):
        return shlex.join(value)
    words: list[str] = []
    for number, (old, new) in enumerate(zip(first, value, strict=True)):
        if new != old:
            words += [word for word in value[max(0, number - 1) : number] if word[:1] == "-"]
            words.append(new)
    return f"({shlex.join(words)})"
