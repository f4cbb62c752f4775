"""Ranks that are stopped or have ended while others wait. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from features.hang.rules.evidence import Evidence
from features.hang.rules.finding import Finding
from features.hang.rules.seen import Seen
from features.hang.rules.sentences import (
    disk_text,
    gone_text,
    is_at_work,
    of_text,
    ranks_text,
)
from features.hang.rules.verdict import Source
from rendezvous.wire.words import duration_text

SEE_ENDS = "see how it ended: rdzv logs RUN"


def stopped(evidence: Evidence) -> Finding | None:
    """Ranks that cannot continue: a signal, a debugger, their end or a disk holds them."""
    held = [seen for seen in evidence.ranks.values() if seen.look.state in ("T", "t")]
    if held and len(held) == len(evidence.ranks):
        sentence = f"{of_text(evidence.ranks, len(held))} are stopped (SIGSTOP, or a debugger)"
        return Finding("stopped", sentence, ("/proc",), (), True)
    return _held(evidence, held) or _gone(evidence, evidence.gone) or _on_disk(evidence)


def _held(evidence: Evidence, held: Sequence[Seen]) -> Finding | None:
    numbers = [seen.rank for seen in held]
    waiting = evidence.waiting - set(numbers)
    if not held or not waiting:
        return None
    traced = all(seen.look.state == "t" for seen in held)
    if traced and _may_move(evidence, numbers):
        return None
    how = "by a debugger or tracer" if traced else "SIGSTOP, or a debugger"
    verb = "are" if len(held) > 1 else "is"
    sentence = f"{ranks_text(held)} {verb} stopped ({how}); {_waiters(evidence, waiting)}"
    return _finding(evidence, sentence, numbers)


def _gone(evidence: Evidence, gone: Sequence[Seen]) -> Finding | None:
    numbers = [seen.rank for seen in gone]
    waiting = evidence.waiting - set(numbers)
    if not gone or not waiting or evidence.roots or _may_move(evidence, numbers):
        return None
    zombies = all(seen.look.state == "Z" for seen in gone)
    how = " (Z: its parent has not collected it)" if zombies and len(gone) == 1 else ""
    sentence = f"{gone_text(gone)}{how}; {_waiters(evidence, waiting)}"
    if len(gone) >= len(waiting):
        sentence += "; either it ended early, or those that wait call more than the others"
        sources = _sources(evidence, "/proc")
        return Finding("stopped", sentence, sources, (), False, SEE_ENDS)
    missed = _misses(evidence, numbers)
    is_all = len(waiting) + 1 == len(evidence.ranks)  # else they may wait for one that works
    odd = numbers if missed or (not evidence.calls.points and is_all) else ()
    certain = missed and set(evidence.silent) <= set(numbers)
    sources = _sources(evidence, "/proc")
    return Finding("stopped", sentence, sources, odd, certain, SEE_ENDS)


def _misses(evidence: Evidence, numbers: Sequence[int]) -> bool:
    """Whether nothing but this rank's end explains why the others wait: what ended well has called
    all that it had to."""
    if len(numbers) > 1 or evidence.veiled or evidence.idle():
        return False
    inside = [point for point in evidence.calls.inside() if point.unseen]
    return any(evidence.calls.groups[point.key].has(numbers[0]) for point in inside)


def _on_disk(evidence: Evidence) -> Finding | None:
    """A rank that waits for a disk in both looks, or for which exactly all others wait."""
    asleep = [
        seen
        for rank, seen in evidence.ranks.items()
        if seen.awaits_disk and not is_at_work(seen) and rank not in evidence.calls.waiting
    ]
    numbers = [seen.rank for seen in asleep]
    waiting = evidence.waiting - set(numbers)
    if not asleep or not waiting or _may_move(evidence, numbers):
        return None
    was = [evidence.before.get(rank) for rank in numbers]
    in_both = all(seen is not None and seen.awaits_disk for seen in was)
    missed = evidence.roots == numbers and len(numbers) == 1
    others = set(evidence.roots) - set(numbers)
    if not (in_both or missed) or others:
        return None
    verb = "wait" if len(asleep) > 1 else "waits"
    where = f", in {asleep[0].place.words}" if asleep[0].place.words and len(asleep) == 1 else ""
    sentence = (
        f"{ranks_text(asleep)} {verb} for a disk or file system ({disk_text(asleep[0])}){where}; "
        f"{_waiters(evidence, waiting)}"
    )
    next_step = "check the file systems of this node (NFS, Lustre, a full or failing disk)"
    return _finding(evidence, sentence, numbers, next_step)


def _may_move(evidence: Evidence, numbers: Sequence[int]) -> bool:
    """Whether those that wait may only wait for a moment."""
    if evidence.calls.points:
        return evidence.quiet(evidence.calls.points).is_moving
    # Without a recorder only a look before shows that they were as they are.
    same = all(
        rank in evidence.before
        and evidence.before[rank].look.state == evidence.ranks[rank].look.state
        for rank in numbers
    )
    return not same


def _finding(
    evidence: Evidence, sentence: str, numbers: Sequence[int], next_step: str = ""
) -> Finding:
    others = set(evidence.roots) | set(evidence.veiled)
    sources = _sources(evidence, "/proc")
    if late := evidence.roots_but(numbers):
        found = [evidence.ranks[rank] for rank in late]
        sentence += (
            f"; {ranks_text(found)} {'have' if len(late) > 1 else 'has'} not called it either"
        )
        return Finding("stopped", sentence, sources, (), False, next_step)
    lacked = any(
        point.unseen or not set(numbers).isdisjoint(point.lacking)
        for point in evidence.calls.points
    )
    known = others <= set(numbers) and set(evidence.silent) <= set(numbers)
    certain = lacked and known and set(evidence.idle()) <= set(numbers)
    return Finding("stopped", sentence, sources, numbers, certain, next_step)


def _waiters(evidence: Evidence, waiting: set[int]) -> str:
    verb = "wait" if len(waiting) > 1 else "waits"
    sentence = f"{of_text(waiting, evidence.of)} {verb} for others"
    waited = evidence.waited(evidence.calls.points)
    return f"{sentence}, for {duration_text(waited)}" if waited is not None else sentence


def _sources(evidence: Evidence, *more: Source) -> tuple[Source, ...]:
    first: Source = "recorder" if evidence.calls.points else "stacks"
    return (first, *more)
