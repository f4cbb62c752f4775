"""What Prometheus is told of metrics."""

from __future__ import annotations

import math
from typing import cast

import pytest
from prometheus_client import Metric

from features.metrics.page_ranks import Rank
from features.metrics.page_series import MOST_NAMES, OF_RANK, OF_RUN
from launcher.ui.shapes import State
from tests.support.exposition import parsed, value


def rank_of(rank: int, step: int, **values: float | str) -> Rank:
    where = {"rank": rank, "slot": rank // 8, "step": step}
    return cast(Rank, where | {"at": 80.0, "pace": None, "values": values})


def state_of(*ranks: Rank) -> State:
    parts = {"metrics": list(ranks)} if ranks else {}
    return cast(State, {"head": {"run": "llama"}, "parts": parts})


WHOLE = state_of(rank_of(0, 44, loss=0.5), rank_of(8, 43, loss=1.5), rank_of(9, 46, loss=1.0))


def told(state: State, *, by_rank: bool = False) -> dict[str, Metric]:
    series = (*OF_RUN, *(OF_RANK if by_rank else ()))
    text = "".join(family.text(samples(state)) for family, samples in series)
    return parsed(text, [family for family, _ in series])


def labels(found: dict[str, Metric], name: str, label: str) -> list[str]:
    return [sample.labels[label] for sample in found[name].samples]


def test_every_series_is_there_and_those_of_ranks_where_they_are_asked_for() -> None:
    assert [*told(WHOLE)] == [family.name for family, _ in OF_RUN]
    found = told(WHOLE, by_rank=True)
    assert [*found] == [family.name for family, _ in (*OF_RUN, *OF_RANK)]
    assert value(found, "rdzv_rank_step", run="llama", rank="8") == 43
    assert value(found, "rdzv_rank_metric", run="llama", rank="8", name="loss") == 1.5


def test_few_names_of_metrics_have_series_those_of_most_ranks_first() -> None:
    ranks = [rank_of(i, 1, zeta=1.0, **{f"own{i}-{k}": 1.0 for k in range(32)}) for i in range(64)]
    found = told(state_of(*ranks))
    assert "zeta" in labels(found, "rdzv_metric", "name")
    assert len({*labels(found, "rdzv_metric", "name")}) == MOST_NAMES
    assert len(found["rdzv_metric"].samples) == 3 * MOST_NAMES


@pytest.mark.parametrize(
    ("values", "spread"),
    [
        ([3.0], (3, 3, 3)),
        ([4.0, 1.0], (1, 2.5, 4)),
        ([2.0, 5.0, 1.0, 4.0], (1, 3, 5)),
        (["NaN", 1.0, 2.0], (1, 2, math.nan)),
        (["Infinity", "-Infinity", 2.0], (-math.inf, 2, math.inf)),
        (["NaN"], (math.nan, math.nan, math.nan)),
        (["Infinity", "-Infinity"], (-math.inf, math.nan, math.inf)),
    ],
)
def test_a_metric_is_told_over_all_ranks(
    values: list[float | str], spread: tuple[float, float, float]
) -> None:
    ranks = [rank_of(i, 1, loss=seen) for i, seen in enumerate(values)]
    found = told(state_of(*ranks, rank_of(99, 1, other=7.0)))
    for stat, expected in zip(("min", "median", "max"), spread, strict=True):
        seen = value(found, "rdzv_metric", run="llama", name="loss", stat=stat)
        assert seen == pytest.approx(expected, nan_ok=True)


def test_the_step_is_that_of_the_last_rank() -> None:
    assert value(told(WHOLE), "rdzv_step", run="llama") == 43
    assert [[*samples(state_of())] for _, samples in (*OF_RUN, *OF_RANK)] == [[]] * 4
