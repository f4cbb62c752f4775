"""Series of metrics for Prometheus. Pure.

Their number does not grow with the ranks, but where somebody asks for that, and only little with
what programs make of their metrics' names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from features.metrics.page_ranks import Rank
from features.metrics.wire import spread
from launcher.ui.parts import Family, Sample, Series, State

MOST_NAMES: Final = 64
"""Names of metrics of a run that have series."""
_STATS: Final = ("min", "median", "max")


def _ranks(state: State) -> list[Rank]:
    found: list[Rank] = state["parts"].get("metrics", [])
    return found


def _step(state: State) -> Iterator[Sample]:
    if _ranks(state):
        yield (state["head"]["run"],), min(rank["step"] for rank in _ranks(state))


def _metric(state: State) -> Iterator[Sample]:
    for name in _names(_ranks(state)):
        values = [float(r["values"][name]) for r in _ranks(state) if name in r["values"]]
        for stat, value in zip(_STATS, spread(values), strict=True):
            yield (state["head"]["run"], name, stat), value


def _names(ranks: Sequence[Rank]) -> list[str]:
    """Those that most ranks have: each process may make its own, without end."""
    counted = Counter(chain.from_iterable(rank["values"] for rank in ranks))
    return sorted(sorted(counted, key=lambda name: (-counted[name], name))[:MOST_NAMES])


def _step_of_rank(state: State) -> Iterator[Sample]:
    yield from (((state["head"]["run"], str(r["rank"])), r["step"]) for r in _ranks(state))


def _metric_of_rank(state: State) -> Iterator[Sample]:
    names = set(_names(_ranks(state)))
    for rank in _ranks(state):
        for name in sorted(names & rank["values"].keys()):
            labels = state["head"]["run"], str(rank["rank"]), name
            yield labels, float(rank["values"][name])


OF_RUN: Final[tuple[Series, ...]] = (
    (Family("rdzv_step", "gauge", "The step that all ranks have reached.", ("run",)), _step),
    (
        Family(
            "rdzv_metric",
            "gauge",
            f"A metric over all ranks, for up to {MOST_NAMES} names.",
            ("run", "name", "stat"),
        ),
        _metric,
    ),
)
OF_RANK: Final[tuple[Series, ...]] = (
    (
        Family("rdzv_rank_step", "gauge", "The newest step of a rank.", ("run", "rank")),
        _step_of_rank,
    ),
    (
        Family("rdzv_rank_metric", "gauge", "The newest value of a rank.", ("run", "rank", "name")),
        _metric_of_rank,
    ),
)
