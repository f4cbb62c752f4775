"""The first cause, among all that the nodes of a run have seen. Pure.

- What failed first by itself is the cause, whoever was heard of first.
- A consequence is none as long as something else failed by itself, up to 30 s after it.
- Where all that failed only lost or awaited another rank, `missed` looks for that one.
- Where nobody is found, nobody is blamed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from rendezvous.cause.collectives import is_of_calls, odd_one
from rendezvous.cause.missed import Ranks
from rendezvous.cause.seen import Judged, NodeSeen, Proof, Suspect
from rendezvous.cause.table import BY_ID, Kind
from rendezvous.cause.telling import CRASHES, OF_SCHEDULERS, suspects_of
from rendezvous.wire.evidence import Clue

__all__ = ["CONSEQUENCE_SECONDS", "Judged", "judge"]

CONSEQUENCE_SECONDS = 30.0
"""By how much something else may fail after what it has caused elsewhere."""

_SCHEDULERS_SECONDS = 5.0
_NUMBER = re.compile(r"\d+")
_THEN = "; then "


def judge(nodes: Sequence[NodeSeen]) -> Judged | None:
    """The first cause; None where nothing has failed."""
    nodes = [node.read() for node in sorted(nodes, key=lambda node: node.slot)]
    suspects = sorted(
        (one for node in nodes for one in suspects_of(node)), key=lambda one: (one.at, one.slot)
    )
    if not suspects:
        return None
    first = suspects[0]
    own = [one for one in suspects if not one.is_consequence]
    own = _stuck_elsewhere(_without_followers(own))
    ranks = Ranks(nodes, suspects)
    if not own or own[0].at - first.at > CONSEQUENCE_SECONDS:
        return ranks.judge(first)
    if _is_of_calls(own[0]):
        return _differing(nodes, own, first)
    cause = own[0]
    if cause.proof is Proof.CODE and cause.row in CRASHES:
        reasons = (one for one in own if one.row not in CRASHES and one.clue is not None)
        cause = next(iter(ranks.failing(cause.at)), next(reasons, cause))
    cause = _as_the_scheduler_says(nodes, cause)
    alike = {one.slot for one in own if one.row == cause.row} - {cause.slot}
    blames = BY_ID[cause.row].kind is not Kind.BETWEEN
    of_row = ranks.of_row(cause.row) if not blames else ()
    return Judged(cause, first, blames, named=of_row, alike=len(alike), others=len(nodes) - 1)


def _as_the_scheduler_says(nodes: Sequence[NodeSeen], cause: Suspect) -> Suspect:
    """Whom somebody outside has ended, with what the scheduler said of the job on any node."""
    if BY_ID[cause.row].kind is not Kind.OUTSIDE or cause.row in OF_SCHEDULERS:
        return cause
    told = {
        clue.id: clue
        for node in nodes
        for clue in node.evidence().clues
        if -CONSEQUENCE_SECONDS < node.at(clue.at) - cause.at < _SCHEDULERS_SECONDS
    }
    of_job = (row for row in OF_SCHEDULERS if BY_ID[row].kind is Kind.OUTSIDE)
    row = next((row for row in of_job if row in told), None)
    if row is None:
        return cause
    return replace(cause, row=row, clue=told[row], proof=Proof.LINE, facts=())


def _without_followers(own: Sequence[Suspect]) -> list[Suspect]:
    """Without those of which another rank says, of a failure alike, what that came of."""
    lines = [one.clue.line for one in own if one.clue is not None and _THEN in one.clue.line]
    ends = {_NUMBER.sub("", line.rpartition(_THEN)[2]) for line in lines}
    return [
        one
        for one in own
        if one.clue is None
        or not one.clue.raised
        or _THEN in one.clue.line
        or _NUMBER.sub("", one.clue.line) not in ends
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
    first = first if ranks else cause
    return Judged(cause, first, blames=bool(ranks), others=len(nodes) - 1)
