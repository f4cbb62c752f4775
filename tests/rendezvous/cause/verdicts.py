"""How right a sentence is: one verdict of six on who and why, and one of four on what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from rendezvous.cause.judge import Judged, judge
from rendezvous.cause.seen import NodeSeen
from rendezvous.cause.sentences import sentence_of
from rendezvous.cause.table import BY_CODE, BY_ID, Kind
from rendezvous.frozen import frozen
from rendezvous.run.ends import words_of_end

RIGHT = "right"
"""Who and why are; whether what to do helps is another question."""
NO_REASON = "no reason"
"""Nothing wrong is told, but the reason is missing."""
UNKNOWN = "unknown"
"""Nobody is blamed, though it could be known."""
WRONG_REASON = "wrong reason"
ONE_OF_TWO = "one of two"
INNOCENT = "innocent"

BEST_FIRST = (RIGHT, NO_REASON, UNKNOWN, WRONG_REASON, ONE_OF_TWO, INNOCENT)
WRONG = (WRONG_REASON, ONE_OF_TWO, INNOCENT)

SPECIFIC, GENERIC, NOT_CERTAIN, NO_STEP = "specific", "generic", "not certain", "none"
STEPS = (SPECIFIC, GENERIC, NOT_CERTAIN, NO_STEP)
"""What to do, where who and why are right: told by a row of that failure, by one that claims no
reason, where nobody is blamed, or not at all."""
CLAIM_NO_REASON = frozenset({"exception", "exit_code", "abort", "assertion"})

_BY_END = frozenset({*BY_CODE.values(), "exit_code", "not_started"})
"""Rows that claim no reason: how a rank ended, with its last words."""
_RANKS = re.compile(r"(?i)\branks? ((?:\d+(?:, | and |,)?)+)")
_NUMBER = re.compile(r"\d+")


def judged_of(nodes: Sequence[NodeSeen]) -> Judged:
    """What is held to be the cause, where something has failed."""
    judged = judge(nodes)
    assert judged is not None
    return judged


@frozen
class Expected:
    """What a right sentence has.

    Attributes:
        each: Ranks on a node.
        blamed: The ranks that are the cause, any of which may be named; none: nobody can be blamed.
        between: It is between these: none of them alone may be blamed.
        certain: The output shows it; else nobody may be held to be the cause.
        says: Regular expressions, each of which finds something in it.
        step: One of what to do; empty where the reason is all that helps.
        never: One of what must not be claimed.
        row: Of the table; empty: any.
        ranks_known: Ranks can be known, and not only nodes.
    """

    each: int
    blamed: tuple[int, ...]
    says: tuple[str, ...] = ()
    between: bool = False
    certain: bool = True
    step: str = ""
    never: str = ""
    row: str = ""
    ranks_known: bool = True


@frozen
class Told:
    """A sentence, and whom it holds to be the cause."""

    certain: bool
    row: str
    slot: int
    ranks: frozenset[int]
    words: str
    hint: str = ""
    line: str = ""

    def __str__(self) -> str:
        """The sentence, for people."""
        words = f"{'' if self.certain else 'not certain: '}{self.words}"
        return f"[{self.row}] {words}" + (f"; {self.hint}" if self.hint else "")


def told_of(nodes: Iterable[NodeSeen]) -> Told | None:
    """What is said of these nodes; None where nothing has failed."""
    judged = judge([*nodes])
    return None if judged is None else _told(judged)


def _told(judged: Judged) -> Told:
    cause, sentence = judged.cause, sentence_of(judged)
    shown = cause if cause.code is not None else judged.first
    end = f"rank {cause.rank}" if cause.code is None else words_of_end(cause.code, cause.rank)
    if not judged.blames and shown.code is not None:
        end = words_of_end(shown.code, shown.rank)
    ranks = frozenset({cause.rank, *judged.together} - {None})
    words = f"{end}: {sentence.clause}"
    line = cause.clue.line if cause.clue is not None else ""
    return Told(judged.blames, cause.row, cause.slot, ranks, words, sentence.hint, line)  # type: ignore[arg-type]


def told_in(result: dict[str, Any]) -> Told:
    """What a run's `result.json` says."""
    rank = result["rank"]
    ranks = frozenset() if rank is None else frozenset({int(rank)})
    told = {name: result[name] for name in ("certain", "slot", "hint")}
    return Told(row=result["cause"], ranks=ranks, words=result["message"], **told)


def verdict(expected: Expected, told: Told | None) -> str:
    """How right it is."""
    if told is None:
        return UNKNOWN
    if not told.certain:
        return _of_uncertain(expected, told)
    blamed = {*expected.blamed}
    is_outside = told.row in BY_ID and BY_ID[told.row].kind is Kind.OUTSIDE
    if is_outside and not told.ranks <= blamed:  # it says who was ended, and blames nobody
        return _of_outside(expected, told)
    if not blamed and not told.ranks:
        return _of_reason(expected, told) if expected.certain else WRONG_REASON
    slots = {rank // expected.each for rank in blamed}
    if not told.ranks <= blamed or told.slot not in slots:
        return INNOCENT
    if expected.between and (len(told.ranks) < 2 or told.ranks != blamed):
        return ONE_OF_TWO
    if not expected.certain:  # it is surer than was expected, which is wrong only where it errs
        return RIGHT if _has_reason(expected, told) else WRONG_REASON
    of_node = {*range(told.slot * expected.each, (told.slot + 1) * expected.each)}
    if not told.ranks and expected.ranks_known and blamed != of_node:  # a node names all of its own
        return NO_REASON
    return _of_reason(expected, told)


def _of_outside(expected: Expected, told: Told) -> str:
    if expected.blamed or not _has_reason(expected, told):
        return WRONG_REASON
    return _of_reason(expected, told) if expected.certain else RIGHT


def _of_uncertain(expected: Expected, told: Told) -> str:
    could_know = expected.certain and bool(expected.blamed)
    if could_know and not (expected.between and {*expected.blamed} <= _named(told.words)):
        return UNKNOWN
    return RIGHT if _has_reason(expected, told) else NO_REASON


def _of_reason(expected: Expected, told: Told) -> str:
    if not _has_reason(expected, told):
        claims = told.row not in _BY_END or _claims_wrong(expected, told)
        return WRONG_REASON if claims else NO_REASON
    return RIGHT


def step_told(expected: Expected, told: Told | None) -> str:
    """Whether what to do is in the hint: a quoted error is none."""
    if told is None or not told.certain:
        return NOT_CERTAIN
    if not re.search(expected.step, told.hint):
        return NO_STEP
    return GENERIC if told.row in CLAIM_NO_REASON else SPECIFIC


def _has_reason(expected: Expected, told: Told) -> bool:
    said = all(re.search(one, told.words) for one in expected.says)
    return said and told.row == (expected.row or told.row) and not _claims_wrong(expected, told)


def _claims_wrong(expected: Expected, told: Told) -> bool:
    return bool(expected.never) and bool(re.search(expected.never, f"{told.words}; {told.hint}"))


def _named(words: str) -> set[int]:
    """The ranks that a sentence names."""
    found = [number for ranks in _RANKS.findall(words) for number in _NUMBER.findall(ranks)]
    return {int(number) for number in found}
