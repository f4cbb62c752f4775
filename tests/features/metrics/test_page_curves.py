"""Curves: bounded however long a run lasts, also through restarts and what is no number."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from features.metrics.page_curves import (
    MOST_NAMES,
    MOST_POINTS,
    MOST_RANKS,
    Curve,
    CurveStore,
)
from features.metrics.wire import MetricLine, encoded
from tests.support.nightly import examples

Told = tuple[int, int, float]
"""Rank, step, loss."""


def line(rank: int, step: int, **values: float) -> MetricLine:
    row = {"rank": rank, "step": step, "values": encoded(values)}
    return MetricLine.model_validate(row | {"number": 1, "slot": 0, "at_seconds": 0.0})


def store_of(told: Iterable[Told]) -> CurveStore:
    store = CurveStore()
    for rank, step, value in told:
        store.take(line(rank, step, loss=value))
    return store


def curves_of(told: Iterable[Told]) -> list[Curve]:
    return store_of(told).curves()["curves"]["loss"]


def points(curve: Curve) -> list[tuple[int, float | None]]:
    return list(zip(curve["steps"], curve["values"], strict=True))


def all_tell(steps: Iterable[int], ranks: int = MOST_RANKS + 1, more: float = 0.0) -> list[Told]:
    """Each rank its own number, 0 to 8 in no order, and in step with the others."""
    return [(rank, step, (4 * rank + 2) % 9 + more) for step in steps for rank in range(ranks)]


def test_few_ranks_have_a_curve_each() -> None:
    found = curves_of([(1, 0, 0.5), (0, 0, 0.25), (0, 1, 0.125)])
    assert [curve["label"] for curve in found] == ["rank 0", "rank 1"]
    assert points(found[0]) == [(0, 0.25), (1, 0.125)]
    assert found[0]["low"] is found[0]["high"] is None


def test_of_many_ranks_the_median_and_the_range_are_shown() -> None:
    [found] = curves_of(all_tell([0, 1]))
    assert found["label"] == "median of 9 ranks"
    assert (found["values"], found["low"], found["high"]) == ([4, 4], [0, 0], [8, 8])


def test_what_is_not_finite_is_a_gap_and_no_part_of_a_range() -> None:
    [one] = curves_of([(0, 0, 1.0), (0, 1, 2.0)])
    assert points(one) == [(0, 1.0), (1, 2.0)]
    store = CurveStore()
    for rank in range(9):
        values = {"loss": math.nan if rank < 8 else 3.0}
        store.take(line(rank, 0, **values))
        store.take(line(rank, 1, loss=math.inf))
    [found] = store.curves()["curves"]["loss"]
    assert (found["values"], found["low"], found["high"]) == ([3.0, None], [3.0, None], [3, None])


def test_rows_are_counted_and_names_are_bounded() -> None:
    store = CurveStore()
    for number in range(MOST_NAMES + 5):
        store.take(line(0, 0, **{f"v{number}": 1.0}))
    found = store.curves()
    assert (found["rows"], len(found["curves"])) == (MOST_NAMES + 5, MOST_NAMES)


def test_a_rank_that_begins_again_draws_over_what_it_had_drawn() -> None:
    [found] = curves_of([(0, step, 1.0) for step in range(10)] + [(0, 5, 2.0), (0, 6, 2.0)])
    assert points(found) == [*((step, 1.0) for step in range(5)), (5, 2.0), (6, 2.0)]


def test_a_step_that_is_told_again_counts_as_it_was_told_last() -> None:
    [found] = curves_of([(0, 0, 1.0), (0, 1, 1.0), (0, 1, 7.0)])
    assert points(found) == [(0, 1.0), (1, 7.0)]


def test_the_median_after_a_restart_is_of_all_ranks_and_of_the_newest_program() -> None:
    told = [*all_tell(range(1_000)), *all_tell(range(500, 900), more=100.0)]
    [found] = curves_of(told)
    assert found["steps"] == list(range(900))
    assert found["values"] == [4.0] * 500 + [104.0] * 400
    assert found["high"] == [8.0] * 500 + [108.0] * 400


def test_restarts_one_after_another() -> None:
    told = all_tell(range(100))
    for number in range(1, 4):
        told += all_tell(range(50, 60 + number), more=100.0 * number)
    [found] = curves_of(told)
    assert found["steps"] == list(range(63))
    assert found["values"] == [4.0] * 50 + [304.0] * 13


def test_a_rank_that_is_far_behind_takes_nothing_from_the_others() -> None:
    fast = all_tell(range(1_000))
    [found] = curves_of([*fast, *((99, step, 0.0) for step in range(10))])
    assert found["steps"] == list(range(1_000))
    assert found["values"] == [4.0] * 1_000


def test_nodes_that_tell_a_whole_batch_before_the_others_count_alike() -> None:
    told: list[Told] = []
    for batch in range(4):
        for rank in range(9):
            told += [(rank, step, float(rank)) for step in range(batch * 256, batch * 256 + 256)]
    [found] = curves_of(told)
    assert found["steps"] == list(range(1_024))
    assert found["values"] == [4.0] * 1_024


def test_a_long_run_has_no_more_points_than_a_screen_has_columns() -> None:
    [found] = curves_of((0, step, float(step)) for step in range(10 * MOST_POINTS))
    steps = found["steps"]
    assert MOST_POINTS / 4 < len(steps) <= MOST_POINTS
    assert steps[0] == 0
    assert steps[-1] >= 10 * MOST_POINTS * 0.98
    gaps = {later - step for step, later in itertools.pairwise(steps)}
    assert max(gaps) <= 2 * min(gaps)
    assert found["values"] == steps


STEPS = st.integers(0, 40) | st.integers(0, 2**53 - 1)
VALUES = st.floats() | st.just(math.nan)
ROWS = st.lists(st.tuples(st.integers(0, 11), STEPS, VALUES), max_size=300)


@given(ROWS, st.integers(1, 400))
@settings(max_examples=examples(60))
def test_whatever_is_told_in_whatever_order_every_curves_steps_increase(
    told: list[Told], repeated: int
) -> None:
    long = [(0, step * 7, 1.0) for step in range(repeated)]
    for curve in curves_of([*told, *long, *told, (0, 0, 1.0)]):
        steps = curve["steps"]
        assert all(step < later for step, later in itertools.pairwise(steps))
        assert all(value is None or math.isfinite(value) for value in curve["values"])
        assert len(curve["values"]) == len(steps)
