"""Ranks that all wait for processes that they have started: where those are. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from features.hang.rules.evidence import Evidence
from features.hang.rules.finding import Finding
from features.hang.rules.seen import Other, Seen
from features.hang.rules.sentences import of_text, others_text, rank_text, work_text
from features.hang.rules.stacks import Kind
from features.hang.rules.verdict import Source

_SEE_CHILD = "see what this process does there, and what its rank printed last: rdzv logs RUN"


class _Child(NamedTuple):
    """A process that a rank has started, and that rank."""

    rank: Seen
    other: Other

    @property
    def waits(self) -> bool:
        return self.other.place.kind.waits

    @property
    def is_known(self) -> bool:
        return self.other.place.kind is not Kind.UNKNOWN


def children(evidence: Evidence) -> Finding | None:
    """All ranks wait for processes of their own; which one is not where the others wait."""
    waiters = [seen for seen in evidence.ranks.values() if seen.awaits_children]
    if not waiters or len(waiters) < len(evidence.ranks):
        return None
    if (moved := _moved(evidence, waiters)) is not None:
        return moved
    found = [_Child(seen, other) for seen in waiters for other in seen.children]
    who = of_text(waiters_of(waiters), evidence.of)
    verb = "waits" if len(waiters) == 1 else "wait"
    does = f"{who} {verb} for processes that {'it' if len(waiters) == 1 else 'they'} started"
    if (where := waiters[0].place.words) and len({seen.place.words for seen in waiters}) == 1:
        does += f", in {where}"
    sources: tuple[Source, ...] = ("stacks", "/proc")
    odd = _odd(found)
    if odd is None:
        return Finding("children", f"{does}: {others_text([one.other for one in found])}", sources)
    inside = [one for one in found if one.waits]
    functions = sorted({one.other.place.function for one in inside})
    sentence = (
        f"{does}: {len(inside)} of these {len(found)} are in {' or '.join(functions[:2])}; "
        f"process {odd.other.number} of {rank_text(odd.rank)} is not: it is in "
        f"{odd.other.place.words}{work_text(odd.other)}"
    )
    return Finding("children", sentence, sources, (odd.rank.rank,), False, _SEE_CHILD)


def waiters_of(waiters: Sequence[Seen]) -> list[int]:
    """Ranks of these processes."""
    return [seen.rank for seen in waiters]


def _odd(found: Sequence[_Child]) -> _Child | None:
    """The one process that is elsewhere while most wait for others; every one was seen."""
    others = [one for one in found if not one.waits]
    if len(others) != 1 or len(found) < 3 or not others[0].is_known:
        return None
    return others[0]


def _moved(evidence: Evidence, waiters: Sequence[Seen]) -> Finding | None:
    """One of them is at another place than in the look before."""
    before = {
        other.number: other.stack
        for seen in evidence.before.values()
        for other in seen.children
        if other.stack is not None
    }
    moved = [
        other.number
        for seen in waiters
        for other in seen.children
        if other.stack is not None
        and (was := before.get(other.number)) is not None
        and was.frames != other.stack.frames
    ]
    if not moved:
        return None
    who = (
        f"process {moved[0]} that a rank started has"
        if len(moved) == 1
        else (f"{len(moved)} processes that ranks started have")
    )
    return Finding("moving", f"not stuck: {who} moved since the look before", ("stacks",))
