"""The first cause, among all that the nodes of a run have seen. Pure.

- What failed first by itself is the cause, whoever was heard of first.
- A consequence is none as long as something else failed by itself, up to 30 s after it.
- Where all that failed only lost or awaited another rank, `missed` looks for that one.
- Where nobody is found, nobody is blamed.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from rendezvous.cause.clues import LAST_LINE, LOGGED
from rendezvous.cause.collectives import is_of_calls, odd_one
from rendezvous.cause.lines import Tells, is_warning, tells, without_numbers
from rendezvous.cause.missed import Ranks
from rendezvous.cause.others import is_of_itself
from rendezvous.cause.seen import Judged, NodeSeen, Proof, Suspect
from rendezvous.cause.table import BY_ID, CAUSES, Kind
from rendezvous.cause.telling import CRASHES, OF_SCHEDULERS, by_facts, suspects_of
from rendezvous.cause.tracebacks import CONSEQUENCES
from rendezvous.wire.evidence import Clue

__all__ = ["CONSEQUENCE_SECONDS", "ENDS_JOBS", "Judged", "judge"]

CONSEQUENCE_SECONDS = 30.0
"""By how much something else may fail after what it has caused elsewhere."""

_TOLD_TO_END = ("terminated", "interrupted")
"""Ends of ranks that a launcher, or a person, ends for another one, too."""
_WRITES = ("quota", "inodes", "disk_full", "file_limit")
"""Reasons of a write that was cut off."""
ENDS_JOBS = ["time_limit", "preempted", "evicted", "requeued", "node_failure"]
"""Rows of a scheduler that ends a whole job: they explain all that follows."""
_GENERAL = ("exception", "assertion", "abort", "exit_code")
"""Rows that claim no reason: the words that they quote may."""
_BY_WORDS = [(row.id, re.compile("|".join(row.words))) for row in CAUSES if row.words]
_UNKNOWN = (("exception", "exception"), ("exit_code", LOGGED))
"""Rows, with the clues, of words that no other row knows."""
_SEEN_SECONDS = 1.0
"""By how much later an end may be seen than what others say of it."""
_SCHEDULERS_SECONDS = 5.0
_THEN = "; then "


def judge(nodes: Sequence[NodeSeen]) -> Judged | None:
    """The first cause; None where nothing has failed."""
    found = _judge(nodes)
    if found is None:
        return None
    cause = _as_others_say(nodes, found.cause, blames=found.blames)
    if found.blames and cause.row in _GENERAL and cause.clue is not None:
        reason = cause.clue.line.partition(_THEN)[0]
        row = next((name for name, words in _BY_WORDS if words.search(reason)), cause.row)
        facts = next(node for node in nodes if node.slot == cause.slot).evidence().facts
        row, shown = by_facts(row, cause.clue, facts, cause.rank)
        cause = replace(cause, row=row, facts=shown)
    first = cause if found.first is found.cause else found.first
    return replace(found, cause=cause, first=first, blames=found.blames or cause.row in ENDS_JOBS)


def _judge(nodes: Sequence[NodeSeen]) -> Judged | None:
    nodes = [node.read() for node in sorted(nodes, key=lambda node: node.slot)]
    suspects = sorted(
        (one for node in nodes for one in suspects_of(node)), key=lambda one: (one.at, one.slot)
    )
    if not suspects:
        return None
    first = suspects[0]
    own = [one for one in suspects if not one.is_consequence]
    own = _stuck_elsewhere(_without_followers(_without_alike(own, suspects)))
    own = [one for one in own if not _lost_another_later(nodes, one)] or own
    ranks = Ranks(nodes, suspects)
    lost = [one for one in own if one.row == "node_lost"]
    if not own or own[0].at - first.at > CONSEQUENCE_SECONDS or 1 < len(lost) == len(nodes):
        return ranks.judge(first)
    if own[0].row in _TOLD_TO_END and own[0].proof is Proof.CODE and _had_failed(nodes, own[0].at):
        return ranks.judge(first)
    if _is_of_calls(own[0]):
        return _differing(nodes, own, first)
    cause = own[0]
    by_code = cause.proof is Proof.CODE and (cause.row in CRASHES or _says_nothing(cause))
    if by_code or BY_ID[cause.row].kind is Kind.BETWEEN:
        says = (one for one in own if by_code and one.clue is not None and not _says_nothing(one))
        less = (*CRASHES, "exit_code") if cause.row in CRASHES else CRASHES
        reasons = (one for one in says if one.row not in less)
        cause = next(iter(ranks.failing(cause.at)), next(reasons, cause))
    ended_alike = any(one.code == cause.code for one in suspects if one is not cause)
    if (_says_nothing(cause) and ended_alike) or _of_some(cause, ranks):
        return ranks.judge(first)
    alike = {one.slot for one in own if one.row == cause.row}
    told = ((node.slot, clue) for node in nodes for clue in node.evidence().clues)
    alike |= {slot for slot, clue in told if clue.id == cause.row and clue.raised}
    alike -= {cause.slot}
    # Who was stopped before it ended may have failed of the same a moment later.
    known = all(node.slot in {cause.slot, *alike} or _is_over(node) for node in nodes)
    blames = BY_ID[cause.row].kind is not Kind.BETWEEN
    of_row = ranks.of_row(cause.row) if not blames else ()
    is_end = cause.clue is not None and (cause.clue.raised or cause.row == "arguments")
    said = ranks.saying(cause.clue.line) if cause.clue is not None and is_end else 0
    every = ranks.count if said == ranks.count > 1 else 0
    others = len(nodes) - 1 if known else 0
    return Judged(cause, first, blames, (), len(alike), others, named=of_row, everyone=every)


def _is_over(node: NodeSeen) -> bool:
    """Return whether its program has ended by itself."""
    return node.report is not None and not node.report.stopped


def _lost_another_later(nodes: Sequence[NodeSeen], one: Suspect) -> bool:
    """Return whether it went on after what it raised until it lost another rank."""
    if one.clue is None or one.clue.last or not one.clue.raised or one.clue.at is None:
        return False
    node = next(node for node in nodes if node.slot == one.slot)
    own = [each for each in node.evidence().clues if each.rank == one.rank]
    lost = (each.at for each in own if each.id in CONSEQUENCES and each.at is not None)
    return max(lost, default=-math.inf) - one.clue.at > _SEEN_SECONDS


def _of_some(cause: Suspect, ranks: Ranks) -> bool:
    """Return whether some ranks, but not all, have failed of the same, and nothing tells that it is
    their own: it may be of one of the others."""
    clue = cause.clue
    if clue is None or (cause.row, clue.id) not in _UNKNOWN or is_of_itself(clue.line):
        return False
    return 1 < ranks.saying(clue.line) < ranks.count


def _says_nothing(one: Suspect) -> bool:
    """Return whether it ended by itself, and has told of no error."""
    return one.row == "exit_code" and (one.clue is None or one.clue.id == LAST_LINE)


def _had_failed(nodes: Sequence[NodeSeen], at: float) -> bool:
    """Return whether a rank had told of an error by then."""
    clues = ((at - node.at(clue.at), clue) for node in nodes for clue in node.evidence().clues)
    recent = ((ago, clue) for ago, clue in clues if clue.raised or ago <= CONSEQUENCE_SECONDS)
    return any(ago > _seconds_to_follow(clue) for ago, clue in recent)


def _seconds_to_follow(clue: Clue) -> float:
    """Seconds by which what follows of an end may be said before it; infinite: no failure."""
    if (is_warning(clue.line) and clue.id != "waited") or clue.line.startswith("KeyboardInterrupt"):
        return math.inf
    if (row := BY_ID.get(clue.id)) is None:
        return 0.0 if clue.id == LOGGED and tells(clue.line) is Tells.ERROR else math.inf
    return {Kind.OUTSIDE: math.inf, Kind.OWN: 0.0}.get(row.kind, _SEEN_SECONDS)


def _as_others_say(nodes: Sequence[NodeSeen], cause: Suspect, *, blames: bool) -> Suspect:
    """With the reason that others have heard of: of a write that was cut off, or what the scheduler
    said of the job that it ended."""
    of_job = [row for row in OF_SCHEDULERS if BY_ID[row].kind is Kind.OUTSIDE]
    is_outside = BY_ID[cause.row].kind is Kind.OUTSIDE and cause.row not in OF_SCHEDULERS
    own = of_job if is_outside else _WRITES if cause.row == "write_failed" else []
    reasons = own if blames else ENDS_JOBS
    told = {
        clue.id: clue
        for node in nodes
        for clue in node.evidence().clues
        if clue.id in reasons
        and -CONSEQUENCE_SECONDS < node.at(clue.at) - cause.at < _SCHEDULERS_SECONDS
    }
    row = next((row for row in reasons if row in told), None)
    if row is None:
        return cause
    return replace(cause, row=row, clue=told[row], proof=Proof.LINE, facts=())


def _without_alike(own: Sequence[Suspect], suspects: Sequence[Suspect]) -> list[Suspect]:
    """Without those that say nothing, and ended as one did before them that lost another rank."""
    lost = [one for one in suspects if one.is_consequence]
    return [
        one
        for one in own
        if one.proof is not Proof.CODE
        or one.clue is not None
        or all(other.code != one.code or other.at > one.at for other in lost)
    ]


def _without_followers(own: Sequence[Suspect]) -> list[Suspect]:
    """Without those of which another rank says, of a failure alike, what that came of."""
    lines = [one.clue.line for one in own if one.clue is not None and _THEN in one.clue.line]
    ends = {without_numbers(line.rpartition(_THEN)[2]) for line in lines}
    return [
        one
        for one in own
        if not (one.clue and one.clue.raised and without_numbers(one.clue.line) in ends)
    ]


def _stuck_elsewhere(own: list[Suspect]) -> list[Suspect]:
    """Without the ranks whose watchdogs have ended them where most others were: they waited."""
    dogs = [one for one in own if one.row == "own_watchdog" and one.clue is not None]
    places = Counter(one.clue.where for one in dogs if one.clue is not None)
    usual, count = places.most_common(1)[0] if places else ("", 0)
    if len(places) < 2 or count * 2 <= len(dogs):
        return own
    return [one for one in own if one not in dogs or (one.clue and one.clue.where != usual)]


def _is_of_calls(one: Suspect) -> bool:
    return one.clue is not None and is_of_calls(one.clue.line)


def _differing(nodes: Sequence[NodeSeen], own: Sequence[Suspect], first: Suspect) -> Judged:
    """The rank that calls another collective than most."""
    slots = {rank: node.slot for node in nodes for rank in node.ranks}
    lines = [clue.line for node in nodes for clue in node.evidence().clues]
    odd = odd_one(filter(is_of_calls, lines))
    ranks = [rank for rank in odd.ranks if rank in slots]
    cause = next((one for one in own if one.rank in ranks and _is_of_calls(one)), own[0])
    if ranks and cause.rank not in ranks:
        cause = Suspect(slots[ranks[0]], cause.row, cause.at, Proof.LINE, ranks[0])
    where = cause.clue.where if cause.clue is not None and cause.rank in ranks else ""
    line = odd.words or (cause.clue.line if cause.clue is not None else "")
    clue = Clue(id="collectives_differ", line=line, rank=cause.rank, where=where)
    cause = replace(cause, row="collectives_differ", clue=clue)
    return Judged(cause, first if ranks else cause, blames=bool(ranks), others=len(nodes) - 1)
