"""The newest row of each rank, and how fast ranks get on."""

from __future__ import annotations

import pytest

from features.metrics.page_ranks import RankStore
from features.metrics.wire import MetricLine, encoded


def row(at: float, step: int, rank: int = 0) -> MetricLine:
    return MetricLine(number=1, rank=rank, slot=0, step=step, at_seconds=at, values={})


def paces(*rows: MetricLine) -> float | None:
    store = RankStore()
    for n, one in enumerate(rows):
        store.take(n, [one])
    ranks = {one["rank"]: one["pace"] for one in store.since(-1) or ()}
    return ranks[rows[-1].rank]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([row(5.0, 10)], None),
        ([row(5.0, 10), row(5.0, 20)], None),
        ([row(5.0, 10), row(9.0, 10)], None),
        ([row(5.0, 10), row(15.0, 40)], 3.0),
        ([row(0.0, 0), row(3.0, 1)], 0.333),
        ([row(0.0, 0), row(10.0, 900, 1), row(10.0, 20)], 2.0),
        ([row(0.0, 0), row(10.0, 100), row(11.0, 40)], None),  # it has begun again
        ([row(0.0, 0), row(10.0, 100), row(11.0, 40), row(13.0, 50)], 5.0),
        ([row(0.0, 0), row(60.0, 600), row(90.0, 630)], 7.0),
        ([row(0.0, 0), row(60.0, 600), row(120.0, 660), row(130.0, 670)], 1.0),
    ],
)
def test_a_pace_is_of_the_last_minute_or_two(rows: list[MetricLine], expected: float) -> None:
    assert paces(*rows) == expected


def told(rank: int, step: int, **values: float) -> MetricLine:
    numbers = {"number": step + 1, "slot": 0, "at_seconds": 0.5}
    return MetricLine.model_validate(
        numbers | {"rank": rank, "step": step, "values": encoded(values)}
    )


def test_each_number_of_a_row_stands_under_its_name() -> None:
    store = RankStore()
    numbers = {"number": 9, "slot": 2, "rank": 5, "step": 7, "at_seconds": 1.5}
    store.take(1, [MetricLine.model_validate(numbers | {"values": {"loss": 0.5}})])
    assert store.since(0) == [
        {"rank": 5, "slot": 2, "step": 7, "at": 1.5, "pace": None, "values": {"loss": 0.5}}
    ]


def test_a_rank_is_as_it_was_told_last_and_what_is_not_finite_is_a_word() -> None:
    store = RankStore()
    assert store.since(0) is None
    rows = [told(1, 0, loss=9.0), told(0, 4, loss=float("nan"), lr=float("inf"))]
    store.take(1, [*rows, told(1, 5, loss=float("-inf"))])
    first, second = store.since(0) or []
    assert (first["rank"], first["step"]) == (0, 4)
    assert first["values"] == {"loss": "NaN", "lr": "Infinity"}
    assert (second["step"], second["values"]) == (5, {"loss": "-Infinity"})
    store.take(2, [told(1, 6)])
    assert [one["step"] for one in store.since(1) or ()] == [6]
    assert [one["step"] for one in store.since(0) or ()] == [4, 6]
    assert store.since(2) is None
