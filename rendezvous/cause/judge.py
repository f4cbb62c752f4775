"""The first cause, among all that the nodes of a run have seen. Pure.

- What failed first by itself is the cause, whoever was heard of first.
- A consequence is none as long as something else failed by itself, up to 30 s after it.
- Where all that failed only lost or awaited another rank, that one is looked for among those that
  did not: stopped, silent since an exception, ended early with 0, or the few that did not wait.
- Where nobody is found, nobody is blamed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rendezvous.cause.seen import TOLD, NodeSeen, Proof, Suspect
from rendezvous.cause.table import BY_ID, Kind
from rendezvous.cause.telling import suspects_of
from rendezvous.frozen import frozen
from rendezvous.wire.evidence import Clue, RankEnd

CONSEQUENCE_SECONDS = 30.0
"""By how much something else may fail after what it has caused elsewhere."""

_WAITING = ("waited", "watchdog_timeout")
_MISSED = (
    re.compile(r"Ranks? ([\d, ]+) failed to pass monitoredBarrier"),
    re.compile(r"wait timeout after \d+ ?ms, keys: /default_pg/0//\w+//\d+/(\d+)$"),
)
"""Lines that name the ranks that have not come: torch's monitored barrier, and its store, where the
key that is awaited at the start ends with the rank that has to set it."""
_AT_START = re.compile(r"DistStoreError|/default_pg/0|waiting for clients|client socket has|c10d")
_PEER = re.compile(r"(?:\[|\bpeer |<)(\d+\.\d+\.\d+\.\d+|[0-9a-fA-F:]*:[0-9a-fA-F:]+)[\]<:]")


@frozen
class Judged:
    """What is held to be the cause.

    Attributes:
        cause: Who, and the row; where nobody is blamed, who failed first.
        first: Who failed first, which may be a consequence.
        blames: Whether `cause` is held to be it.
        together: Ranks of which the same is true.
        alike: How many other nodes have failed of the same, of so many `others`.
        waiting: How many ranks are known to have waited, or lost somebody.
        of: How many ranks there are.
        silent: Slots of nodes that have not told how they ended.
    """

    cause: Suspect
    first: Suspect
    blames: bool = True
    together: tuple[int, ...] = ()
    alike: int = 0
    others: int = 0
    waiting: int = 0
    of: int = 0
    silent: tuple[int, ...] = ()


def judge(nodes: Sequence[NodeSeen]) -> Judged | None:
    """The first cause; None where nothing has failed."""
    suspects = sorted(
        (one for node in nodes for one in suspects_of(node)), key=lambda one: (one.at, one.slot)
    )
    if not suspects:
        return None
    first = suspects[0]
    own = [one for one in suspects if not one.is_consequence]
    if own and own[0].at - first.at <= CONSEQUENCE_SECONDS:
        cause = own[0]
        alike = {one.slot for one in own if one.row == cause.row} - {cause.slot}
        blames = BY_ID[cause.row].kind is not Kind.BETWEEN
        return Judged(cause, first, blames, alike=len(alike), others=len(nodes) - 1)
    ends = [one.ended_at for one in suspects if one.ended_at is not None]
    return _Ranks(nodes, min(ends, default=first.at)).judge(first)


class _Ranks:
    """All ranks of a run in which nothing but consequences has failed."""

    def __init__(self, nodes: Sequence[NodeSeen], first_end: float) -> None:
        self._nodes = nodes
        self._first_end = first_end
        self._ends: dict[int, RankEnd] = {}
        self._slots: dict[int, NodeSeen] = {}
        self._clues: dict[int, list[Clue]] = {}
        for node in nodes:
            evidence = node.evidence()
            self._slots |= dict.fromkeys(node.ranks, node)
            self._ends |= {end.rank: end for end in evidence.ranks or _implied(node)}
            for clue in evidence.clues:
                rank = node.ranks[0] if len(node.ranks) == 1 else clue.rank
                if rank is not None:
                    self._clues.setdefault(rank, []).append(clue)

    def judge(self, first: Suspect) -> Judged:
        """Look for the rank that the others have missed."""
        waiting = [rank for rank in self._slots if self._suffers(rank)]
        silent = tuple(node.slot for node in self._nodes if node.report is None)
        known = {"waiting": len(waiting), "of": len(self._slots), "silent": silent}
        for found in self._missed(first):
            cause, *others = found
            together = tuple(one.rank for one in others if one.rank is not None)
            return Judged(cause, first, together=together, **known)  # type: ignore[arg-type]
        all_wait = len(waiting) == len(self._slots) > 1
        if all_wait and all(self._waits(rank) for rank in waiting):
            row = Suspect(first.slot, "desync", first.at, Proof.LINE, None, first.code, first.clue)
            return Judged(row, first, blames=False, **known)  # type: ignore[arg-type]
        return Judged(first, first, blames=False, **known)  # type: ignore[arg-type]

    def _suffers(self, rank: int) -> bool:
        rows = [BY_ID[clue.id] for clue in self._clues.get(rank, []) if clue.id in BY_ID]
        return any(row.kind is Kind.CONSEQUENCE for row in rows)

    def _waits(self, rank: int) -> bool:
        return any(clue.id in _WAITING for clue in self._clues.get(rank, []))

    def _missed(self, first: Suspect) -> Iterator[list[Suspect]]:
        """Who may be missed, what is most certain first."""
        others = [rank for rank in self._slots if not self._suffers(rank)]
        alive = [rank for rank in others if self._lives(rank)]
        stopped = [rank for rank in alive if self._ends[rank].state in ("T", "t")]
        if stopped:
            yield [self._named(rank, "stopped_process", first.at, Proof.FACT) for rank in stopped]
        if raised := [one for rank in alive for one in self._raised(rank)]:
            yield [min(raised, key=lambda one: one.at)]
        row = "late_rank" if self._was_starting() else "absent_rank"
        if named := self._named_by_lines():
            yield [self._not_come(rank, row, first) for rank in named]
        early = [rank for rank in others if self._ended_early(rank)]
        if early:
            yield [self._not_come(rank, row, first) for rank in sorted(early, key=self._ended_at)]
        told = all(node.report is not None for node in self._nodes)
        waits = [rank for rank in self._slots if self._waits(rank)]
        few = 0 < len(alive) <= len(self._slots) // 2
        if told and few and len(alive) + len(waits) == len(self._slots):
            yield [self._named(rank, row, first.at, Proof.LINE) for rank in alive]

    def _not_come(self, rank: int, row: str, first: Suspect) -> Suspect:
        """A rank that others have missed: it has ended well before, or it goes on."""
        if self._ended_early(rank):
            return self._named(rank, "early_end", self._ended_at(rank), Proof.FACT)
        return self._named(rank, row, first.at, Proof.LINE)

    def _lives(self, rank: int) -> bool:
        """Whether it went on until its launcher, or the run, told it to end."""
        end = self._ends.get(rank)
        return end is not None and (end.ended is None or end.exit_code in TOLD)

    def _named(self, rank: int, row: str, at: float, proof: Proof) -> Suspect:
        return Suspect(self._slots[rank].slot, row, at, proof, rank)

    def _raised(self, rank: int) -> Iterator[Suspect]:
        """An exception after which a rank has said nothing any more: it may hang at its end."""
        node = self._slots[rank]
        for clue in self._clues.get(rank, []):
            if clue.raised and clue.last and clue.rank == rank and clue.id in BY_ID:
                yield Suspect(node.slot, clue.id, node.at(clue.at), Proof.LINE, rank, None, clue)

    def _ended_early(self, rank: int) -> bool:
        """Whether it ended well, before the first process that failed was over: whoever ends well
        later may have been told to."""
        end = self._ends.get(rank)
        if end is None or end.exit_code != 0 or end.ended is None:
            return False
        return self._ended_at(rank) < self._first_end

    def _ended_at(self, rank: int) -> float:
        return self._slots[rank].at(self._ends[rank].ended)

    def _was_starting(self) -> bool:
        clues = (clue for node in self._nodes for clue in node.evidence().clues)
        return any(clue.id in _WAITING and _AT_START.search(clue.line) for clue in clues)

    def _named_by_lines(self) -> list[int]:
        """The ranks of which others say that they have not come."""
        lines = [clue.line for node in self._nodes for clue in node.evidence().clues]
        tried = (pattern.search(line) for line in lines for pattern in _MISSED)
        found = [match[1] for match in tried if match is not None]
        ranks = {int(word) for words in found for word in words.replace(",", " ").split()}
        return sorted(ranks & self._slots.keys())


def _implied(node: NodeSeen) -> list[RankEnd]:
    """The ranks of a node that tells nothing of them: all ended well, or all were stopped; of one
    that has a single rank, its program's end is the rank's."""
    report = node.report
    if report is None:
        return []
    if report.stopped:
        return [RankEnd(rank=rank) for rank in node.ranks]
    if report.exit_code == 0 or len(node.ranks) == 1:
        return [RankEnd(rank=rank, exit_code=report.exit_code, ended=0.0) for rank in node.ranks]
    return []
