"""The first cause of an epoch's end: who, why, and what is said of it. Pure.

`rendezvous.cause` judges by what the nodes have seen; here it is asked about a run. Both are
imported with the first failure: a registry without one starts sooner, and is smaller by 1 MB.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rendezvous.cause.clues import LAST_LINE
from rendezvous.cause.judge import ENDS_JOBS, Judged, judge
from rendezvous.cause.seen import NodeSeen
from rendezvous.cause.sentences import Sentence, sentence_of
from rendezvous.cause.table import BY_ID, Kind, Then
from rendezvous.frozen import frozen
from rendezvous.run.ends import words_of_end, words_of_failure
from rendezvous.run.state import GONE, Run, Slot, who
from rendezvous.wire.reports import ExitReport
from rendezvous.wire.words import all_of

_GOES = frozenset({*ENDS_JOBS, "job_cancelled"})
"""Rows after which the node is, or will be, taken away."""


@frozen
class FirstCause:
    """The first cause, and whose failure the run's is.

    Attributes:
        slot: Of the cause; where nobody is blamed, of what failed first.
        failed: Whose exit code is the run's: the cause itself may have none.
        report: Of its program; None: its node was lost.
        judged: How it was judged.
        said: What is said of it.
    """

    slot: Slot
    failed: Slot
    report: ExitReport | None
    judged: Judged
    said: Sentence

    @property
    def row(self) -> str:
        """The id of the cause."""
        return self.judged.cause.row

    @property
    def then(self) -> Then:
        """What another start may change."""
        return BY_ID[self.row].then

    @property
    def line(self) -> str | None:
        """The line that shows it; None where that is only the last one."""
        clue = self.judged.cause.clue
        return clue.line if clue is not None and clue.id != LAST_LINE else None

    @property
    def node_goes(self) -> bool:
        """Whether its node is taken away."""
        return self.row in _GOES and self.judged.blames

    @property
    def exit_code(self) -> int:
        """Of the rank that failed."""
        judged, report = self.judged, self.report
        code = judged.cause.code or judged.first.code
        return code or (report.exit_code if report is not None else 0)

    @property
    def rank(self) -> int | None:
        """Whose fault it is, or was first; None where nobody is blamed, or no rank is known."""
        return self.judged.cause.rank if self.judged.blames else None

    def words(self, more: str = "") -> str:
        """Say who failed, how, and why, as the last line begins; `more` goes before a quote."""
        judged, report, said = self.judged, self.report, self.said
        joint = ": "
        if report is None or report.by_agent or report.fenced:
            start, joint = words_of_failure(self.failed), "; "
        elif judged.blames and judged.cause.code is None:
            rank = "its program" if judged.cause.rank is None else f"rank {judged.cause.rank}"
            start, more = f"{who(self.slot)}: {rank}", f"; then {self._words_of_failed()}{more}"
        else:
            start, more = self._words_of_failed(), (report.message and f"; {report.message}") + more
        why, quote = (said.brief, said.quote) if said.brief else (said.clause, "")
        return f"{start}{why and f'{joint}{why}'}{more}{quote and f'; {quote}'}"

    def _words_of_failed(self) -> str:
        one = self.judged.first if self.judged.cause.code is None else self.judged.cause
        rank = one.rank if one.code is not None else None
        report = self.report
        if rank is None and report is not None:
            rank = report.rank
        if self.judged.everyone:
            of = "" if rank is None else f"rank {rank} of "
            every = all_of(self.judged.everyone, "rank")
            return f"{every} failed alike, {of}{who(self.failed)} first"
        first = " first" * (not self.judged.blames)
        return f"{who(self.failed)} failed{first}: {words_of_end(one.code or self.exit_code, rank)}"

    def fields(self) -> dict[str, Any]:
        """What a result, or the end of an epoch, says of it."""
        node = self.slot.its_node
        report = self.report if self.slot is self.failed else node.exit
        return {
            "cause": self.row,
            "certain": self.judged.blames,
            "evidence": list(self.said.evidence),
            "slot": self.slot.index,
            "node": node.number,
            "hostname": node.join.hostname,
            "rank": self.rank,
            "log": report.log if report is not None else "",
        }


def first_cause(run: Run) -> FirstCause | None:
    """The first cause of what has failed since the go; None where nothing has."""
    judged = judge(_seen(run))
    if judged is None:
        return None
    slot, first = run.slots[judged.cause.slot], run.slots[judged.first.slot]
    is_lost = slot.its_node.exit is None
    failed = slot if judged.cause.code is not None or is_lost else first
    return FirstCause(slot, failed, failed.its_node.exit, judged, sentence_of(judged))


def cause_of_late(run: Run, slot: Slot, report: ExitReport, failed_at: float) -> FirstCause | None:
    """What a report alone tells, which comes when its epoch is over."""
    ranks = next((ranks for one, ranks in _rows(run) if one is slot), range(0))
    judged = judge([NodeSeen(slot.index, failed_at, report, failed=True, ranks=ranks)])
    if judged is None:
        return None
    return FirstCause(slot, slot, report, judged, sentence_of(judged))


def is_consequence(row: str) -> bool:
    """Whether this cause follows from another node's."""
    return row in BY_ID and BY_ID[row].kind is Kind.CONSEQUENCE


def hint_of(row: str) -> str:
    """What to do about this cause."""
    return BY_ID[row].hint


def _rows(run: Run) -> Iterator[tuple[Slot, range]]:
    """The slots of the table, with their global ranks."""
    for row, ranks in run.table.processes() if run.table is not None else ():
        yield run.slots[row.slot], ranks


def _seen(run: Run) -> list[NodeSeen]:
    rows = [row for row in _rows(run) if row[0].node is not None]
    known = {slot.index for slot, _ in rows}
    failed = (s for s in run.slots if s.node is not None and s.node.failed_at is not None)
    rows += [(slot, range(0)) for slot in failed if slot.index not in known]
    return [_node_seen(slot, ranks) for slot, ranks in rows]


def _node_seen(slot: Slot, ranks: range) -> NodeSeen:
    node = slot.its_node
    report, failed_at = node.exit, node.failed_at
    began_at = failed_at
    if report is not None and began_at is None:
        began_at = (node.ended_at or 0.0) - report.age_seconds
    # Of who was cut off nothing else is to blame: its program ended as it was told to.
    cut_off = report is not None and report.fenced and report.stopped
    lost = cut_off or (report is None and node.state in GONE)
    return NodeSeen(
        slot=slot.index,
        began_at=began_at or 0.0,
        report=None if cut_off else report,
        failed=failed_at is not None,
        ranks=ranks,
        lost_at=failed_at if lost else None,
        scheduler=f"{slot.cause} {slot.detail}",
    )
