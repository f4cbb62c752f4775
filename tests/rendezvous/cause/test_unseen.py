"""What is said of words that nobody has seen: the corpus without a row, or without the guilty.

Rules that hold by the kind of what is said do not need the row that knows its words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from rendezvous.cause import clues, tracebacks
from rendezvous.cause.table import BY_ID, CAUSES, Kind
from tests.rendezvous.cause.public import PUBLIC, SEEDS, WAYS, Public, entries_in
from tests.rendezvous.cause.verdicts import WRONG, Told, told_of

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]

ENTRIES = [*entries_in(SEEDS), *entries_in(PUBLIC)]
MOST_WRONG = 0.05
"""Of what a row had told, so much may be told wrongly, as certain, without it."""
MOST_INNOCENTS = 0.02
_FIRST_SECONDS = 1.5
"""What the guilty say until then, before anything fails, may stay."""


def _without(row: str) -> tracebacks.Patterns:
    others = [one for one in CAUSES if one.patterns and one.id != row]
    return tuple((one.id, re.compile("|".join(one.patterns), re.MULTILINE)) for one in others)


def _text(entry: Public) -> str:
    return "\n".join(one["text"] for one in entry.table["said"])


def test_without_a_row_hardly_anything_is_told_wrongly_as_certain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = [one for one in ENTRIES if one.worst()[0] not in WRONG]
    tried, wrong = 0, []
    for row in CAUSES:
        known = re.compile("|".join(row.patterns), re.MULTILINE) if row.patterns else None
        told_by_it = [one for one in right if known is not None and known.search(_text(one))]
        for module in (clues, tracebacks):
            monkeypatch.setattr(module, "PATTERNS", _without(row.id))
        monkeypatch.setattr(tracebacks.row_of, "__defaults__", (_without(row.id),))
        scored = [(row.id, one.name, one.worst()) for one in told_by_it]
        tried += len(scored)
        wrong += [one for one in scored if one[2][0] in WRONG]
        monkeypatch.undo()
    assert tried > 0.9 * len(right)
    assert len(wrong) <= MOST_WRONG * tried, wrong


def _silenced(entry: Public, *, ends: bool) -> Public | None:
    """Take away what the guilty say, and with `ends` how they end; None: nobody else failed."""
    guilty, table = entry.table["blamed"], dict(entry.table)
    table.pop("kernel", None)
    table.pop("scheduler", None)
    said = table["said"]
    table["said"] = [one for one in said if one["rank"] not in guilty or one["at"] < _FIRST_SECONDS]
    if ends:
        table["ended"] = [one for one in table.get("ended", []) if one["rank"] not in guilty]
    return Public(entry.name, entry.expected, table) if table.get("ended") else None


def _told_without_the_guilty() -> Iterator[tuple[str, Told, set[int], int]]:
    for entry in ENTRIES:
        guilty, each = {*entry.table["blamed"]}, entry.table["each"]
        if not guilty or len(guilty) == each * entry.table["nodes"]:
            continue
        for one in (_silenced(entry, ends=False), _silenced(entry, ends=True)):
            for way in WAYS if one is not None else ():
                assert one is not None
                if (told := told_of(one.nodes(way))) is not None:
                    yield f"{entry.name}, {way.name}", told, guilty, each


def test_where_the_guilty_say_nothing_hardly_an_innocent_is_blamed() -> None:
    tried, innocents = 0, []
    for name, told, guilty, each in _told_without_the_guilty():
        tried += 1
        # Whom something outside has ended is told, and not blamed.
        outside = BY_ID[told.row].kind is Kind.OUTSIDE
        of_guilty = told.ranks <= guilty and told.slot in {rank // each for rank in guilty}
        if told.certain and not outside and not of_guilty:
            innocents.append((name, str(told)))
    assert tried > len(ENTRIES)
    assert len(innocents) <= MOST_INNOCENTS * tried, innocents
