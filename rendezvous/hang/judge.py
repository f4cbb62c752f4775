"""Where every rank of a run is, which is odd, and what to say of it. Pure."""

from __future__ import annotations

from rendezvous.hang.verdict import Verdict
from rendezvous.wire.look import RunLook, Stack


def look_at(run_look: RunLook, before: RunLook | None = None) -> Verdict:
    """What a look has found; `before` is an earlier look at the same ranks."""
    answered = [node for node in run_look.nodes if node.report is not None]
    silent = tuple(node.slot for node in run_look.nodes if node.report is None)
    if not answered:
        return Verdict("nothing", "no node has answered", silent_nodes=silent)
    ranks = sum(len(node.report.ranks) for node in answered if node.report)
    return Verdict("unclear", f"{ranks} ranks were seen", of=ranks, silent_nodes=silent)


def groups_of(run_look: RunLook) -> list[tuple[tuple[int, ...], Stack | None]]:
    """The ranks whose main threads have equal stacks, the odd ones first; None: without a stack."""
    groups: dict[tuple[object, ...] | None, tuple[list[int], Stack | None]] = {}
    for node in run_look.nodes:
        if node.report is None:
            continue
        stacks = node.report.stacks
        for one in node.report.ranks:
            known = one.stack is not None and one.stack < len(stacks)
            stack = stacks[one.stack or 0] if known else None
            key = tuple(stack.frames) if stack is not None else None
            groups.setdefault(key, ([], stack))[0].append(one.rank)
    found = [(tuple(sorted(ranks)), stack) for ranks, stack in groups.values()]
    return sorted(found, key=lambda group: (len(group[0]), group[0]))
