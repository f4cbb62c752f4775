"""The shortest schedule that still fails: faults are dropped, and what is left is made plainer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tests.simulation.schedule import Fault, Launch, Schedule

Fails = Callable[[Schedule], bool]


def shrink(schedule: Schedule, fails: Fails) -> Schedule:
    """Drop and simplify as long as `fails` says so of the rest."""
    while True:
        schedule = schedule.without(_fewest(schedule, fails))
        plainer = next((plain for plain in _plainer(schedule) if fails(plain)), None)
        if plainer is None:
            return schedule
        schedule = plainer


def _fewest(schedule: Schedule, fails: Fails) -> tuple[Fault, ...]:
    """Delta debugging: faults of which none can be left out."""
    faults = schedule.faults
    size = len(faults)
    while size:
        for start in range(0, len(faults), size):
            rest = faults[:start] + faults[start + size :]
            if fails(schedule.without(rest)):
                faults = rest
                break
        else:
            size //= 2
        size = min(size, len(faults))
    return faults


def _plainer(schedule: Schedule) -> Iterator[Schedule]:
    """The schedule with one thing made plainer."""
    yield from [replace(schedule, keep_finished=3_600.0)] if schedule.keep_finished < 100 else []
    last = len(schedule.launches) - 1
    if last:
        kept = tuple(fault for fault in schedule.faults if fault.launch != last)
        yield replace(schedule, launches=schedule.launches[:-1], faults=kept)
    for index, launch in enumerate(schedule.launches):
        for plain in _plainer_launches(launch):
            launches = (*schedule.launches[:index], plain, *schedule.launches[index + 1 :])
            kept = tuple(f for f in schedule.faults if f.launch != index or f.slot < plain.slots)
            yield replace(schedule, launches=launches, faults=kept)


def _plainer_launches(launch: Launch) -> Iterator[Launch]:
    fewer = launch.nodes - 1
    well = tuple((seconds, 0) for seconds, _ in launch.program)
    plain: list[dict[str, Any]] = (
        [{"nodes": fewer, "least": min(launch.least, fewer)}] if fewer else []
    )
    plain += [{"spares": launch.spares - 1}] if launch.spares else []
    plain += [{"max_restarts": launch.max_restarts - 1}] if launch.max_restarts else []
    plain += [{"later": launch.later[:-1]}] if launch.later else []
    plain += [{"networks": 1}, {"least": launch.nodes}, {"contagion": 0.0}, {"verify": False}]
    plain += [{"ranks": (None,) * launch.slots}, {"program": well}]
    for changes in plain:
        made = replace(launch, **changes)
        for by_slot in ("queue", "boot", "program", "ranks"):
            made = replace(made, **{by_slot: getattr(made, by_slot)[: made.slots]})
        if made != launch:
            yield made
