"""What is said of recorded failures: the cause that was planted, and never an innocent rank."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rendezvous.cause.judge import Judged, judge
from rendezvous.cause.table import BY_ID, Kind
from tests.rendezvous.cause.corpus import (
    BLAMES_NOBODY,
    ENTRIES,
    UNKNOWN,
    Entry,
    Seeing,
    seen,
)
from tests.support.nightly import examples

NOBODYS_RANK = frozenset({"torchrun-killed"})
SEEINGS = [
    Seeing(words, told, early)
    for words in ("printed", "own", "bare")
    for told in (False, True)
    for early in (0.0, 1.0)
]


def blames_an_innocent(entry: Entry, judged: Judged | None) -> bool:
    """Whether a rank is blamed for what it has not done; -1 is guilty where somebody outside is."""
    if judged is None or not judged.blames:
        return False
    cause = judged.cause
    named = {cause.rank, *judged.together} - {None}
    if entry.guilty < 0:
        return BY_ID[cause.row].kind is not Kind.OUTSIDE
    return cause.slot != entry.guilty_slot or not named <= {entry.guilty}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_the_cause_is_named_in_any_order_of_arrival(entry: Entry) -> None:
    for how in SEEINGS:
        nodes = seen(entry, how)
        judged = judge(nodes)
        assert judged == judge(nodes[::-1])
        assert judged is not None, how
        assert not blames_an_innocent(entry, judged), how
        if entry.id in UNKNOWN or (how.words == "bare" and not judged.blames):
            # Words of many ranks, of which nobody knows whose they are, tell no more.
            assert judged.cause.is_consequence or entry.cause in BLAMES_NOBODY, how
            continue
        assert judged.cause.row == entry.cause, how
        assert judged.blames == (entry.cause not in BLAMES_NOBODY), how
        if judged.blames and entry.guilty >= 0 and entry.name not in NOBODYS_RANK:
            assert judged.cause.rank == entry.guilty or how.words == "bare", how


def test_words_without_a_rank_blame_less_only_where_several_ranks_wrote() -> None:
    nobody = {
        entry.id
        for entry in ENTRIES
        if entry.cause not in BLAMES_NOBODY
        and (judged := judge(seen(entry, Seeing("bare")))) is not None
        and not judged.blames
    }
    assert not [name for name in nobody if "2x1" in name]
    several = {entry.id for entry in ENTRIES if entry.others or entry.id in UNKNOWN}
    assert nobody <= several


@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_lost_reports_never_turn_the_blame(data: st.DataObject) -> None:
    entry = data.draw(st.sampled_from(ENTRIES))
    nodes = seen(entry, data.draw(st.sampled_from(SEEINGS)))
    lost = data.draw(st.sets(st.sampled_from([node.slot for node in nodes])))
    gone_at = data.draw(st.none() | st.floats(900, 1100))
    kept = [
        replace(node, report=None, failed=gone_at is not None, lost_at=gone_at)
        if node.slot in lost
        else node
        for node in data.draw(st.permutations(nodes))
    ]
    judged = judge(kept)
    if judged is not None and judged.cause.slot in lost and judged.cause.row == "node_lost":
        return  # that it was lost is true
    assert not blames_an_innocent(entry, judged)
