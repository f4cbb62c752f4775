"""How busy machines are."""

from __future__ import annotations

from typing import Any

import pytest

from features.machines.page_usage import MOST_POINTS, UsageStore, busy_of
from features.machines.wire import GpuSample, MachineSample, NodeMachine
from rendezvous.wire.node import Facts


def machine(slot: int = 0, *, cpus: int = 8, age: float = 5.0, **sample: Any) -> NodeMachine:
    told = MachineSample(**sample)
    return NodeMachine(slot=slot, facts=Facts(cpus=cpus), sample=told, age=age)


GPUS = [
    GpuSample(index=0, utilisation=90, memory_used=3, memory_total=4),
    GpuSample(index=1, utilisation=100, memory_used=1, memory_total=4),
    GpuSample(index=2),
    GpuSample(index=3, utilisation=20, memory_used=4, memory_total=4),
]


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (machine(load=2.0, memory_used=3, memory_total=12), [25, 25, None, None]),
        (machine(load=12.0, memory_used=3, memory_limit=4, memory_total=9), [150, 75, None, None]),
        (machine(gpus=GPUS), [0, None, 70, 67]),
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
    assert not store.take(pytest.fail, 0.0, [NodeMachine(slot=0)])
    for n in range(1, MOST_POINTS + 3):
        both = [machine(0, load=2.0), machine(3, load=6.0, gpus=GPUS), NodeMachine(slot=4)]
        assert store.take(iter([n]).__next__, 30.0 * n + 0.04, both)
    whole, new = store.since(0), store.since(MOST_POINTS + 1)
    assert whole is not None
    assert new is not None
    assert len(whole["points"]) == MOST_POINTS
    assert whole["points"][0] == [90.0, 50, None, 70, 67]
    assert new["points"] == whole["points"][-1:]
    assert new["slots"] == {"0": [25, None, None, None], "3": [75, None, 70, 67]}
    assert store.since(MOST_POINTS + 2) is None
