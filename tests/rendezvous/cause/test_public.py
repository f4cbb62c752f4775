"""Failures of public threads: the verdict of each sentence, and how much of the certain is right.

Nothing is run. `python -m tests.causes.score` shows the sentences.
"""

from __future__ import annotations

import re

import pytest

from rendezvous.cause.table import BY_ID, CAUSES
from tests.causes.score import of_old
from tests.rendezvous.cause.public import NOT_YET, PUBLIC, SEEDS, Public, entries_in
from tests.rendezvous.cause.verdicts import (
    CLAIM_NO_REASON,
    INNOCENT,
    NO_STEP,
    RIGHT,
    SPECIFIC,
    WRONG,
    Told,
    step_told,
)

LEAST_RIGHT = 0.98
"""Of what is told as certain."""
LEAST_OF_ALL_RIGHT, LEAST_SPECIFIC = 0.90, 0.55
"""Of all in a share: who and why, and so with a step that a row of that failure tells."""
MOST_UNCERTAIN = 0.24
"""Of all in a share, those of which nobody is held to be the cause; some of them may not be known
at all. Of the whole it is a fifth."""
SHARES = 6
"""Each is a case of its own: they take a minute together."""


def test_the_corpus_is_large_and_knows_what_is_not_told_yet() -> None:
    assert len(entries_in(PUBLIC)) >= 500
    assert NOT_YET.keys() <= {one.name for one in (*entries_in(SEEDS), *entries_in(PUBLIC))}


def check_what_is_certain(scored: list[tuple[str, Told | None]]) -> None:
    """It names no innocent, is hardly ever wrong, and is most of all."""
    certain = [found for found, told in scored if told is not None and told.certain]
    wrong = [found for found in certain if found in WRONG]
    assert INNOCENT not in wrong
    assert len(wrong) <= (1 - LEAST_RIGHT) * len(certain), wrong
    assert 1 - len(certain) / len(scored) <= MOST_UNCERTAIN


def known_better(one: Public, told: Told | None) -> list[str]:
    """Later rows that know its line and its step, where the row that took it does not."""
    if told is None or step_told(one.expected, told) != NO_STEP:
        return []
    later = CAUSES[CAUSES.index(BY_ID[told.row]) + 1 :]
    return [
        row.id
        for row in later
        if row.id not in CLAIM_NO_REASON
        and re.search(one.expected.step, row.hint)
        and any(re.search(form, told.line) for form in row.patterns)
    ]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("share", range(SHARES))
def test_each_is_told_as_well_as_it_was_and_what_is_certain_is_right(share: int) -> None:
    own = [*entries_in(SEEDS), *entries_in(PUBLIC)][share::SHARES]
    scored = {one.name: one.worst() for one in own}
    known = {name: found for name, found in NOT_YET.items() if name in scored}
    assert {name: found for name, (found, _) in scored.items() if found != RIGHT} == known
    check_what_is_certain([*scored.values()])
    taken = {one.name: rows for one in own if (rows := known_better(one, scored[one.name][1]))}
    assert not taken
    right = [one for one in own if scored[one.name][0] == RIGHT]
    specific = [one for one in right if step_told(one.expected, scored[one.name][1]) == SPECIFIC]
    assert len(right) >= LEAST_OF_ALL_RIGHT * len(own)
    assert len(specific) >= LEAST_SPECIFIC * len(own)


def test_of_the_older_failures_what_is_certain_is_right() -> None:
    check_what_is_certain([(found, told) for _, found, _, told in of_old()])
