"""Where the steps of a program begin, by value."""

from __future__ import annotations

import random
from itertools import accumulate

import pytest

from rendezvous.pace.steps import Steps, spread, steps_in


def evenly(kinds: str, pauses: dict[str, float] | None = None) -> list[float]:
    """When each was called: so long after the one before, by the kind of that."""
    after = [(pauses or {}).get(kind, 1.0) for kind in kinds]
    return [0.0, *accumulate(after[:-1])]


def found(kinds: str, times: list[float] | None = None) -> Steps:
    steps = steps_in(kinds, times or evenly(kinds))
    assert steps is not None
    return steps


def test_one_call_in_each_step() -> None:
    steps = found("a" * 30)
    assert steps == Steps(1, list(range(30)), list(range(30)))
    assert steps.at(0) == [(i, i + 1) for i in range(29)]


def test_several_kinds_in_each_step() -> None:
    steps = found("abc" * 25)
    assert (steps.size, steps.starts) == (3, list(range(0, 75, 3)))
    assert steps.at(1)[:2] == [(1, 2), (4, 5)]
    assert steps.at(2)[-1] == (71, 72)


def test_the_window_may_begin_within_a_step() -> None:
    steps = found("c" + "abc" * 25)
    assert steps.size == 3
    assert len(steps.starts) == 25


def test_calls_that_are_alike_are_told_apart_by_their_rhythm() -> None:
    times = list(accumulate([0.0, *([0.1, 0.1, 0.1, 2.0] * 25)]))
    assert found("a" * 101, times).size == 4
    assert found("a" * 1001, list(accumulate([0.0, *([0.1, 0.1, 0.1, 2.0] * 250)]))).size == 4
    chance = random.Random(1)
    times = list(accumulate([0.0, *(p + chance.gauss(0, 0.01) for p in [0.1, 0.1, 2.0] * 30)]))
    assert found("a" * 91, times).size == 3


@pytest.mark.parametrize("extra", ["x", "xyz", "xx"])
def test_calls_that_come_now_and_then_are_left_out(extra: str) -> None:
    kinds = ("a" * 12 + extra) * 10
    steps = found(kinds)
    assert steps.size == 1
    assert [kinds[i] for i in steps.kept] == ["a"] * 120
    kinds = ("ab" * 12 + extra) * 10
    steps = found(kinds)
    assert steps.size == 2
    assert all((kinds[i], kinds[after]) == ("a", "b") for i, after in steps.at(0))


def test_an_evaluation_is_no_step() -> None:
    kinds = "ab" * 30 + "bbb" + "ab" * 30
    steps = found(kinds)
    assert steps.size == 2
    assert len(steps.starts) == 60
    assert all(kinds[start : start + 2] == "ab" for start in steps.starts)


@pytest.mark.parametrize(
    "kinds",
    ["", "a", "a" * 19, "ab" * 19, "abcdefghij" * 2, "ab" * 9 + "ba" * 9, "a" * 15 + "b" * 15],
)
def test_too_few_or_none_alike(kinds: str) -> None:
    assert steps_in(kinds, evenly(kinds)) is None


def test_kinds_without_an_order() -> None:
    chance = random.Random(3)
    kinds = "".join(chance.choice("abcdefgh") for _ in range(400))
    assert steps_in(kinds, evenly(kinds)) is None


def test_those_that_come_again_but_never_in_the_same_order() -> None:
    """Nine in ten are as one size before, but no sequence of that size is there often enough."""
    kinds = "".join("abcdefghijklmnopqrstuvwxyzABCDEF"[:16] for _ in range(20))
    kinds = "".join("z" if i % 16 == (i // 16) % 16 else kind for i, kind in enumerate(kinds))
    steps = steps_in(kinds, evenly(kinds))
    assert steps is None


def test_the_spread_is_between_the_quartiles() -> None:
    assert spread([]) == 0.0
    assert spread([5.0]) == 0.0
    assert spread(range(9)) == 4
    assert spread([0, 0, 0, 0, 0, 0, 0, 1000]) == 0
