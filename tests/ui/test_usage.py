"""How busy machines are, how fast processes get on, and how checks are counted."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.ui.paces import Paces
from launcher.ui.samples import tally
from launcher.ui.usage import MOST_POINTS, UsageStore, busy_of
from rendezvous.wire.machine import GpuSample, MachineSample, NodeMachine
from rendezvous.wire.metrics import MetricLine
from rendezvous.wire.node import Facts, Finding


def machine(slot: int = 0, *, cpus: int = 8, age: float = 5.0, **sample: Any) -> NodeMachine:
    told = MachineSample(**sample)
    return NodeMachine(slot=slot, facts=Facts(cpus=cpus), sample=told, age=age)


GPUS = [
    GpuSample(index=0, utilisation=90, memory_used=3, memory_total=4),
    GpuSample(index=1, utilisation=100, memory_used=1, memory_total=4),
    GpuSample(index=2),
]


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (machine(load=2.0, memory_used=3, memory_total=12), [25, 25, None, None]),
        (machine(load=12.0, memory_used=3, memory_limit=4, memory_total=9), [150, 75, None, None]),
        (machine(gpus=GPUS), [0, None, 95, 50]),
        (machine(cpus=0, load=1.0), [None, None, None, None]),
        (machine(load=2.0, age=121.0), [None, None, None, None]),
        (NodeMachine(slot=0), [None, None, None, None]),
    ],
)
def test_a_machine_in_per_cent(one: NodeMachine, expected: list[int | None]) -> None:
    assert busy_of(one) == expected


def test_the_points_are_means_of_an_hour_and_the_slots_are_now() -> None:
    store = UsageStore()
    assert store.since(0) is None
    assert not store.take(1, 0.0, [NodeMachine(slot=0)])
    for n in range(1, MOST_POINTS + 3):
        both = [machine(0, load=2.0), machine(3, load=6.0, gpus=GPUS), NodeMachine(slot=4)]
        assert store.take(n, 30.0 * n + 0.04, both)
    whole, new = store.since(0), store.since(MOST_POINTS + 1)
    assert whole is not None
    assert new is not None
    assert len(whole["points"]) == MOST_POINTS
    assert whole["points"][0] == [90.0, 50, None, 95, 50]
    assert new["points"] == whole["points"][-1:]
    assert new["slots"] == {"0": [25, None, None, None], "3": [75, None, 95, 50]}
    assert store.since(MOST_POINTS + 2) is None


def row(at: float, step: int, rank: int = 0) -> MetricLine:
    return MetricLine(number=1, rank=rank, slot=0, step=step, at_seconds=at, values={})


def paces(*rows: MetricLine) -> float | None:
    counted = Paces()
    for one in rows:
        counted.take(one)
    return counted.pace(rows[-1])


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


@pytest.mark.parametrize(
    ("levels", "words"),
    [
        ([], ""),
        (["skipped"], ""),
        (["ok", "ok", "skipped"], "2 ok"),
        (["ok", "warn"], "1 warning"),
        (["warn", "warn"], "2 warnings"),
        (["ok", "warn", "fail"], "1 failed"),
        (["fail", "fail"], "2 failed"),
    ],
)
def test_only_the_worst_findings_are_counted(levels: list[Any], words: str) -> None:
    assert tally([Finding(check="L01", level=level) for level in levels]) == words
