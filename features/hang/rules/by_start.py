"""Ranks that have not been started, or have not begun, while others wait. Pure."""

from __future__ import annotations

from features.hang.rules.evidence import Evidence
from features.hang.rules.finding import Finding
from features.hang.rules.seen import Seen
from features.hang.rules.sentences import (
    is_at_work,
    launcher_text,
    of_text,
    place_text,
    places_text,
    ranks_text,
    work_text,
)
from features.hang.rules.stacks import Kind
from features.hang.rules.verdict import Source
from rendezvous.wire.words import duration_text, listed

_LONG_START_SECONDS = 60.0
"""Longest time that a healthy rank may take to begin."""
_MOST_NODES = 3
_SEE_LAUNCHERS = (
    "see what the launchers of the nodes printed, and whether one waits for another: rdzv logs RUN"
)
_SEE_RANK = "see what this rank does there, and what it printed last: rdzv logs RUN"


def unstarted(evidence: Evidence) -> Finding | None:
    """Ranks of which their launcher has started no process."""
    late = [seen for seen in evidence.ranks.values() if seen.is_unstarted]
    if not late:
        return None
    numbers = [seen.rank for seen in late]
    places = _launchers(late)
    begun = len(evidence.ranks) - len(late)
    if not begun:
        sentence = f"no rank has a process yet: {places}"
        return Finding("starting", sentence, ("stacks", "/proc"), (), False, _SEE_LAUNCHERS)
    have = "has" if len(late) == 1 else "have"
    sentence = f"{ranks_text(late)} {have} no process yet: {places}"
    waiting = evidence.waiting
    if waiting:
        verb = "waits" if len(waiting) == 1 else "wait"
        sentence += f"; {of_text(waiting, evidence.of)} {verb} for others"
    at_work = any(seen.launcher is not None and is_at_work(seen.launcher) for seen in late)
    lives = [seen.launcher.look.lives if seen.launcher is not None else 0.0 for seen in late]
    odd = numbers if min(lives) >= _LONG_START_SECONDS and len(waiting) == begun else ()
    certain = bool(odd) and not at_work
    sources: tuple[Source, ...] = ("stacks", "/proc")
    return Finding("starting", sentence, sources, odd, certain, _SEE_LAUNCHERS, numbers)


def _launchers(late: list[Seen]) -> str:
    """Nodes of the launchers of these ranks, each once."""
    by_node = {seen.node.slot: seen for seen in late}
    if len(by_node) == 1:
        return launcher_text(late[0], "its" if len(late) == 1 else "their")
    words = [f"on node {seen.node.node} {launcher_text(seen)}" for seen in by_node.values()]
    return listed(words, _MOST_NODES)


def starting(evidence: Evidence) -> Finding | None:
    """Ranks that are not as far as a process group, for which others wait."""
    late = [evidence.ranks[rank] for rank in evidence.starting]
    waiting = evidence.waiting - set(evidence.starting)
    if not late:
        return None
    if not waiting:
        # Where no rank has imported torch the program may have none, and be anywhere.
        has_torch = any(seen.look.stage != "starting" for seen in late)
        if len(late) < len(evidence.ranks) or not has_torch:
            return None
        if all(map(_is_in_its_own_code, late)):
            sentence = f"no rank has a process group yet: {places_text(late)}"
            return Finding("starting", sentence, ("stacks",), next_step=_SEE_RANK)
        sentence = f"{of_text(evidence.ranks, len(late))} are starting: none has a process group"
        return Finding("starting", sentence, ("stacks",))
    if not _are_missed(evidence):
        return None
    since = max(seen.look.lives for seen in late)
    age = f"{duration_text(since)} after its start" if len(late) == 1 else ""
    does = _does(late[0]) if len({_does(seen) for seen in late}) == 1 else "not yet begun"
    verb = "are" if len(late) > 1 else "is"
    what = f"{verb} {does}" if does != "not yet begun" else f"{verb} at the beginning"
    work = work_text(late[0]) if len(late) == 1 else ""
    where = f": {place_text(late[0])}" if len(late) == 1 and _shows_place(late[0]) else work
    sentence = f"{ranks_text(late)} {what}" + (f", {age}" if age else "") + where
    begun = "has begun and waits" if len(waiting) == 1 else "have begun and wait"
    sentence += f"; {of_text(waiting, evidence.of)} {begun} for others"
    known = since >= _LONG_START_SECONDS and len(late) < len(waiting)
    certain = known and not evidence.roots_but(evidence.starting)
    odd = evidence.starting if known else ()
    next_step = _SEE_RANK if all(map(_is_in_its_own_code, late)) else ""
    sources = _sources(evidence)
    return Finding("starting", sentence, sources, odd, certain, next_step, evidence.starting)


def _are_missed(evidence: Evidence) -> bool:
    """Return whether others may wait for those that start: some make their first process group, or
    a call lacks one of these, or a rank that was not seen in it."""
    if any(seen.place.kind is Kind.INIT for seen in evidence.ranks.values()):
        return True
    starting = set(evidence.starting)
    return any(
        point.unseen or not starting.isdisjoint(point.lacking) for point in evidence.calls.points
    )


def _is_in_its_own_code(seen: Seen) -> bool:
    """Return whether it is past the start of Python, and imports nothing."""
    return seen.place.kind in (Kind.OTHER, Kind.CHILDREN)


def _does(seen: Seen) -> str:
    if _is_in_its_own_code(seen):
        return "before its first process group"
    if seen.look.stage == "starting":
        return "still starting Python"
    if seen.look.stage == "importing":
        return "still importing torch"
    return "before its first process group"


def _sources(evidence: Evidence) -> tuple[Source, ...]:
    return ("recorder",) if evidence.calls.points else ("stacks",)


def _shows_place(seen: Seen) -> bool:
    return seen.place.kind not in (Kind.UNKNOWN, Kind.IMPORTING)
