"""The dry run: what would be submitted for each slot, with every secret hidden. Pure.

In full, what starts a slot is shown whole the first time; of the slots after it, what differs. In
short, slots that are submitted alike are told once.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from launcher.plan.dry_run import given_lines, short_command_lines
from launcher.plan.plan import HIDDEN, LOCAL, Plan, Submission
from launcher.plan.template import Value
from launcher.schedulers.contract import Scheduler
from rendezvous.wire.words import listed, printable

_MOST_OF_A_LINE = 400


def preview(plan: Plan, starters: Sequence[Scheduler]) -> Iterator[str]:
    """The lines of the dry run in full.

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


def short_preview(
    plan: Plan, starters: Sequence[Scheduler], losses: str = "", *, symmetric: bool = False
) -> Iterator[str]:
    """The lines of the dry run in short: what is submitted, where, how often, and what runs there.

    Args:
        plan: The plan.
        starters: What starts slot 0, and what starts the others.
        losses: What follows a node's loss; empty where the run then fails.
        symmetric: Whether the other nodes come by themselves.

    Raises:
        TemplateError, UsageError: Something cannot be submitted like this.
    """
    yield f"Run '{plan.run}' would start {_nodes(plan)}. Nothing was submitted."
    yield ""
    groups: dict[tuple[str, str], list[Submission]] = {}
    for slot in range(1 if symmetric else plan.slots):
        run, starter = plan.submission(slot, 1), starters[slot > 0]
        starter.prepare(run, HIDDEN)
        groups.setdefault((starter.name, run.source), []).append(run)
    for runs in groups.values():
        yield from _group_lines(runs, starters[runs[0].slot > 0], plan)
    if symmetric and plan.slots > 1:
        yield f"{_count(plan.slots - 1)} started elsewhere, with this same command."
    yield "Each node then starts:"
    for line in short_command_lines(plan):
        yield printable(line, _MOST_OF_A_LINE)
    yield from given_lines(plan)
    yield ""
    if losses:
        yield f"{losses[0].upper()}{losses[1:]}."
    yield "'--dry-run full' shows every script, and every variable that the program gets;"
    yield "'--dry-run file' prints the launch as a run file."


def _nodes(plan: Plan) -> str:
    """`4 nodes and 1 spare, with 8 processes each`."""
    settings = plan.settings
    size = f"{plan.max_nodes} node{'s' * (plan.max_nodes != 1)}"
    if plan.min_nodes != plan.max_nodes:
        size = f"{plan.min_nodes} to {size}"
    extra = [
        f"{count} {word}{'s' * (count != 1)}"
        for count, word in ((settings.spares, "spare"), (settings.standby, "standby"))
        if count
    ]
    counts = {plan.processes.of(slot) for slot in range(plan.slots)}
    if len(counts) > 1:
        return f"{' and '.join([size, *extra])}, with {plan.processes} processes"
    one = counts.pop()
    each = f"{one} process{'es' * (one != 1)}{' each' * (plan.slots > 1)}"
    return f"{' and '.join([size, *extra])}, with {each if isinstance(one, int) else _asked(one)}"


def _asked(count: object) -> str:
    return f"--nproc-per-node {count}"


def _count(nodes: int) -> str:
    return "1 node is" if nodes == 1 else f"{nodes} nodes are"


def _group_lines(runs: Sequence[Submission], starter: Scheduler, plan: Plan) -> Iterator[str]:
    """Tell of slots that one scheduler starts from one spec."""
    count = _count(len(runs))
    if starter.name == LOCAL:
        yield f"{count} started on this machine, in this folder."
        yield ""
        return
    if starter.by_hand:
        yield f"{count} started by you: rdzv writes a script for each, and shows where."
    else:
        hosts = [str(run.variables["HOST"]) for run in runs if "HOST" in run.variables]
        where = f", on {listed(hosts, 8)}" if hosts else ""
        times = "" if len(runs) == 1 else ", one by one"
        yield f"{count} submitted with --scheduler {starter.name}{times}{where}:"
    if words := starter.submit_words(runs[0]):
        shown = words.replace(plan.launch_id, "<launch>")
        yield f"  {printable(shown, _MOST_OF_A_LINE)}"
    yield f"  from the worker spec {runs[0].source}"
    yield ""


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
