"""Failures of public threads: the verdict of each sentence, and how much of the certain is right.

Nothing is run. `python -m tests.causes.score` shows the sentences.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.causes.score import of_old, of_public
from tests.rendezvous.cause.public import NOT_YET, PUBLIC, SEEDS, entries_in
from tests.rendezvous.cause.verdicts import INNOCENT, RIGHT, WRONG

LEAST_RIGHT = 0.98
"""Of what is told as certain."""
MOST_UNCERTAIN = 0.2
"""Of all, those of which nobody is held to be the cause; some of them may not be known at all."""


def test_the_corpus_is_large() -> None:
    assert len(entries_in(PUBLIC)) >= 500


@pytest.mark.timeout(240)
def test_each_is_told_as_well_as_it_was_and_what_is_certain_is_right(
    record_property: Callable[[str, object], None],
) -> None:
    public = [*of_public(SEEDS), *of_public(PUBLIC)]
    assert {name: found for name, found, _ in public if found != RIGHT} == NOT_YET
    scored = [*of_old(), *public]
    certain = [one for one in scored if one[2] is not None and one[2].certain]
    wrong = [one for one in certain if one[1] in WRONG]
    uncertain = 1 - len(certain) / len(scored)
    words = f"{len(wrong)} of {len(certain)} are wrong, {uncertain:.1%} of all are not certain"
    record_property("certain", words)
    print(words)
    assert [one for one in wrong if one[1] == INNOCENT] == []
    assert len(wrong) <= (1 - LEAST_RIGHT) * len(certain), wrong
    assert uncertain <= MOST_UNCERTAIN
