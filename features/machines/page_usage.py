"""How busy the nodes' machines are: now, each of them, and in the last hour, all together. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TypedDict

from features.machines.wire import MachineSample, NodeMachine
from rendezvous.wire.node import Facts

EACH_SECONDS = 30.0
"""Interval of a node's samples."""
MOST_POINTS = 120
"""An hour of them."""
_OLD_SECONDS = 120.0
"""Age after which a sample counts no more."""
Busy = list[int | None]
"""Of CPUs, memory, GPUs and their memory: how many per cent are used; None: not told."""
_NOTHING: Busy = [None, None, None, None]


class Usage(TypedDict):
    """How busy the machines are.

    Attributes:
        points: When, and the mean of all as in Busy; each half a minute of the last hour, or new.
        slots: Each machine now.
    """

    points: list[list[float | None]]
    slots: dict[str, Busy]


class UsageStore:
    """The usage of one run's machines."""

    def __init__(self) -> None:
        self._points: deque[tuple[int, list[float | None]]] = deque(maxlen=MOST_POINTS)
        self._slots: dict[str, Busy] = {}

    def take(self, change: Callable[[], int], at: float, machines: Iterable[NodeMachine]) -> bool:
        """Receive their state at a time of the run; a change if any is known, which it returns."""
        found = {str(one.slot): busy_of(one) for one in machines}
        found = {slot: busy for slot, busy in found.items() if busy != _NOTHING}
        if found:
            self._slots = found
            self._points.append((change(), [round(at, 1), *_means(list(found.values()))]))
        return bool(found)

    def since(self, after: int) -> Usage | None:
        """What a viewer has to know who was told all up to a number; None: nothing."""
        points = [point for n, point in self._points if n > after]
        return {"points": points, "slots": self._slots} if points else None


def busy_of(one: NodeMachine) -> Busy:
    """How busy a machine is, in per cent of what it has."""
    sample = one.sample
    if sample is None or one.age > _OLD_SECONDS:
        return _NOTHING
    gpus = [gpu.utilisation for gpu in sample.gpus if gpu.utilisation is not None]
    full = [100 * gpu.memory_used / gpu.memory_total for gpu in sample.gpus if gpu.memory_total]
    return [_load(one.facts, sample), _memory(sample), _mean(gpus), _mean(full)]


def _load(facts: Facts, sample: MachineSample) -> int | None:
    return round(100 * sample.load / facts.cpus) if facts.cpus else None


def _memory(sample: MachineSample) -> int | None:
    whole = sample.memory_limit or sample.memory_total
    return round(100 * sample.memory_used / whole) if whole else None


def _means(machines: Sequence[Busy]) -> list[float | None]:
    columns = zip(*machines, strict=True)
    return [_mean([value for value in column if value is not None]) for column in columns]


def _mean(values: Sequence[float]) -> int | None:
    return round(sum(values) / len(values)) if values else None
