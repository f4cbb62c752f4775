"""One verdict of seven."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.rendezvous.cause.verdicts import Expected, Told, told_in, verdict

FULL = Expected(2, (2,), ("out of memory",), step="batch", never="cable")
TOLD = Told(True, "cuda_memory", 1, frozenset({2}), "rank 2: CUDA out of memory", "a smaller batch")
BETWEEN = replace(FULL, blamed=(1, 2), between=True)


@pytest.mark.parametrize(
    ("expected", "told", "found"),
    [
        (FULL, TOLD, "right"),
        (FULL, None, "unknown"),
        (FULL, replace(TOLD, certain=False), "unknown"),
        (FULL, replace(TOLD, hint=""), "no step"),
        (FULL, replace(TOLD, hint="batch, or a cable"), "wrong reason"),
        (FULL, replace(TOLD, words="rank 2: lost"), "wrong reason"),
        (FULL, replace(TOLD, words="rank 2: ended", row="exit_code"), "no reason"),
        (FULL, replace(TOLD, ranks=frozenset()), "no reason"),
        (replace(FULL, ranks_known=False), replace(TOLD, ranks=frozenset()), "right"),
        (replace(FULL, blamed=(2, 3)), replace(TOLD, ranks=frozenset()), "right"),
        (FULL, replace(TOLD, ranks=frozenset({3})), "innocent"),
        (FULL, replace(TOLD, ranks=frozenset({2, 3})), "innocent"),
        (FULL, replace(TOLD, ranks=frozenset(), slot=0), "innocent"),
        (replace(FULL, row="killed"), TOLD, "wrong reason"),
        (replace(FULL, certain=False), TOLD, "right"),
        (replace(FULL, certain=False), replace(TOLD, words=""), "wrong reason"),
        (replace(FULL, certain=False), replace(TOLD, certain=False), "right"),
        (replace(FULL, certain=False), replace(TOLD, certain=False, words=""), "no reason"),
        (replace(FULL, blamed=()), TOLD, "innocent"),
        (replace(FULL, blamed=()), replace(TOLD, certain=False), "right"),
        (replace(FULL, blamed=()), replace(TOLD, row="evicted"), "right"),
        (replace(FULL, blamed=(), certain=False), replace(TOLD, row="evicted"), "right"),
        (FULL, replace(TOLD, row="evicted", slot=0, ranks=frozenset({0})), "wrong reason"),
        (replace(FULL, blamed=()), replace(TOLD, row="node_lost", ranks=frozenset()), "right"),
        (BETWEEN, TOLD, "one of two"),
        (replace(BETWEEN, certain=False), TOLD, "one of two"),
        (BETWEEN, replace(TOLD, ranks=frozenset({1, 2})), "right"),
        (replace(BETWEEN, blamed=(2,)), TOLD, "one of two"),
        (BETWEEN, replace(TOLD, certain=False), "unknown"),
        (
            BETWEEN,
            replace(TOLD, certain=False, words="ranks 1 and 2: out of memory"),
            "right",
        ),
    ],
)
def test_a_sentence_has_one_verdict(expected: Expected, told: Told | None, found: str) -> None:
    assert verdict(expected, told) == found


def test_a_result_tells_what_its_run_was_told() -> None:
    result = {"certain": True, "cause": "killed", "slot": 1, "rank": 2, "hint": ""}
    told = told_in({**result, "message": "rank 2 was killed"})
    assert told == Told(True, "killed", 1, frozenset({2}), "rank 2 was killed")
    assert str(replace(told, certain=False)) == "[killed] not certain: rank 2 was killed"
    assert told_in({**result, "rank": None, "message": ""}).ranks == frozenset()
