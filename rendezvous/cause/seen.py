"""What a registry has seen of one node's end, on its own clock; and who may be the cause. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from enum import IntEnum

from rendezvous.cause.clues import Line, find_clues
from rendezvous.cause.table import BY_ID, Kind
from rendezvous.frozen import frozen
from rendezvous.wire.evidence import Clue, Evidence, Fact, RankEnd
from rendezvous.wire.reports import ExitReport

TOLD = (128 + 15, 128 + 2)
"""What ranks end with that were told to end."""
_KILLED = 128 + 9
_PATIENCE_SECONDS = 8.0
"""A launcher kills what goes on for longer after its SIGTERM: torchrun after 30 s."""
_NO_EVIDENCE = Evidence()


class Proof(IntEnum):
    """What a cause is told from; the more the better."""

    CODE = 1
    LINE = 2
    FACT = 3


@frozen
class NodeSeen:
    """One node of the table.

    Attributes:
        began_at: When what its report tells of began; 0 without a report.
        report: How its program ended; None: nothing is known.
        failed: Whether it failed by itself, or was lost.
        ranks: The global ranks that it has.
        lost_at: Since when it is silent, if it was lost.
        scheduler: What the scheduler says of its worker run.
    """

    slot: int
    began_at: float = 0.0
    report: ExitReport | None = None
    failed: bool = False
    ranks: range = range(0)
    lost_at: float | None = None
    scheduler: str = ""

    def evidence(self) -> Evidence:
        """Its own; nothing where there is none."""
        return (self.report.evidence if self.report is not None else None) or _NO_EVIDENCE

    def read(self) -> NodeSeen:
        """Itself, with what the last lines of its report tell where that has no evidence."""
        report = self.report
        if report is None or report.evidence is not None or not self.failed:
            return self
        found = find_clues(Line(text, report.rank) for text in report.tail)
        report = report.model_copy(update={"evidence": Evidence(clues=found)})
        return replace(self, report=report)

    def at(self, offset: float | None) -> float:
        """The time of something that it tells."""
        return self.began_at + (offset or 0.0)


@frozen
class Suspect:
    """A rank, or a node, that may be the cause.

    Attributes:
        row: The id of the row that fits.
        at: When it failed, or said so.
        rank: Its global rank; None: the node's program as a whole, or one of its ranks.
        code: What it ended with, if it did, and `ended_at` when.
    """

    slot: int
    row: str
    at: float
    proof: Proof
    rank: int | None = None
    code: int | None = None
    clue: Clue | None = None
    facts: tuple[Fact, ...] = ()
    ended_at: float | None = None

    @property
    def is_consequence(self) -> bool:
        """Return whether another one has to be the cause."""
        return BY_ID[self.row].kind is Kind.CONSEQUENCE


@frozen
class Judged:
    """The verdict: the cause, and what else is known of the ranks.

    Attributes:
        cause: Who, and the row; where nobody is blamed, who failed first.
        first: Who failed first, which may be a consequence.
        blames: Whether `cause` is held to be it.
        together: Ranks of which the same is true.
        alike: How many other nodes have failed of the same, of so many `others`.
        waiting: How many ranks are known to have waited, or lost somebody.
        of: How many ranks there are.
        silent: Slots of nodes that have not told how they ended.
        named: Ranks of which those that waited or lost somebody speak.
        everyone: Of how many ranks, which are all, the cause is the same; 0: not known to be so.
        apart: Ranks that are not known to have waited, and what they said last, newest first; where
            one has raised something, only that.
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
    named: tuple[int, ...] = ()
    everyone: int = 0
    apart: tuple[tuple[int, str], ...] = ()


@frozen
class End:
    """A failure: of a rank, or (None) of a node's program as a whole; `offset` as in evidence."""

    rank: int | None
    code: int
    offset: float = 0.0


def ended_by_itself(ends: Iterable[RankEnd]) -> list[End]:
    """The ranks that have failed, in order, without those that their launcher has then ended; none
    where one ended before them in a way that nobody has read: it may be what they were ended for.
    """
    ends = list(ends)
    failed = [End(end.rank, end.exit_code, end.ended or 0.0) for end in ends if end.exit_code]
    # Both may be found in one look: then who was told to end has not ended first.
    failed.sort(key=lambda end: (end.offset, end.code in TOLD))
    unread = [end.ended for end in ends if end.ended is not None and end.exit_code is None]
    if not failed or min(unread, default=math.inf) <= failed[0].offset:
        return []
    return [end for end in failed if end is failed[0] or not _was_told(end, failed[0])]


def _was_told(end: End, first: End) -> bool:
    later = end.offset - first.offset
    return end.code in TOLD or (end.code == _KILLED and later > _PATIENCE_SECONDS)
