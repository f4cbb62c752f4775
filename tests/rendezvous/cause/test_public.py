"""Failures of public threads: the verdict of each sentence, and how much of the certain is right.

Nothing is run. `python -m tests.causes.score` shows the sentences.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rendezvous.cause.judge import judge
from tests.causes.score import of_old, of_public
from tests.rendezvous.cause.public import NOT_YET, PUBLIC, SEEDS, WAYS, Public, entries_in
from tests.rendezvous.cause.verdicts import INNOCENT, RIGHT, WRONG

ENTRIES = [*entries_in(SEEDS), *entries_in(PUBLIC)]
LEAST_RIGHT = 0.98
"""Of what is told as certain."""
MOST_UNCERTAIN = 0.15
"""Of all, those of which nobody is held to be the cause; some of them may not be known at all."""

each_entry = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)


@each_entry
def test_each_is_told_as_well_as_it_was(entry: Public) -> None:
    found, told = entry.worst()
    assert found == NOT_YET.get(entry.name, RIGHT), told


@each_entry
def test_each_is_told_alike_in_any_order_of_arrival(entry: Public) -> None:
    for way in WAYS:
        nodes = entry.nodes(way)
        assert judge(nodes) == judge(nodes[::-1])


def test_what_is_not_told_right_is_there() -> None:
    assert NOT_YET.keys() <= {entry.name for entry in ENTRIES}


@pytest.mark.xfail(reason="the seeds are not told right yet", strict=True)
def test_what_is_told_as_certain_is_right(record_property: Callable[[str, object], None]) -> None:
    scored = [*of_old(), *of_public(SEEDS), *of_public(PUBLIC)]
    certain = [one for one in scored if one[2] is not None and one[2].certain]
    wrong = [one for one in certain if one[1] in WRONG]
    uncertain = 1 - len(certain) / len(scored)
    words = f"{len(wrong)} of {len(certain)} are wrong, {uncertain:.1%} of all are not certain"
    record_property("certain", words)
    print(words)
    assert [one for one in wrong if one[1] == INNOCENT] == []
    assert len(wrong) <= (1 - LEAST_RIGHT) * len(certain), wrong
    assert uncertain <= MOST_UNCERTAIN
