"""The shortest schedule that still fails: faults are dropped, and what is left is made plainer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

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
            if len(rest) < len(faults) and fails(schedule.without(rest)):
                faults = rest
                break
        else:
            size //= 2
        size = min(size, len(faults))
    return faults


def _plainer(schedule: Schedule) -> Iterator[Schedule]:
    """The schedule with one thing made plainer."""
    if schedule.keep_finished != 3_600.0:
        yield replace(schedule, keep_finished=3_600.0)
    for index, launch in enumerate(schedule.launches):
        if index > 0 and index == len(schedule.launches) - 1:
            kept = tuple(fault for fault in schedule.faults if fault.launch != index)
            yield replace(schedule, launches=schedule.launches[:-1], faults=kept)
        for plain in _plainer_launches(launch):
            launches = (*schedule.launches[:index], plain, *schedule.launches[index + 1 :])
            kept = tuple(f for f in schedule.faults if f.launch != index or f.slot < plain.slots)
            yield replace(schedule, launches=launches, faults=kept)


def _cut(launch: Launch) -> Launch:
    """What is given by slot, for the slots that are left."""
    slots = launch.slots
    return replace(
        launch,
        queue=launch.queue[:slots],
        boot=launch.boot[:slots],
        program=launch.program[:slots],
        ranks=launch.ranks[:slots],
    )


def _plainer_launches(launch: Launch) -> Iterator[Launch]:
    if launch.nodes > 1:
        fewer = launch.nodes - 1
        yield _cut(replace(launch, nodes=fewer, least=min(launch.least, fewer)))
    if launch.spares:
        yield _cut(replace(launch, spares=launch.spares - 1))
    if launch.networks > 1:
        yield replace(launch, networks=1)
    if launch.least < launch.nodes:
        yield replace(launch, least=launch.nodes)
    if any(launch.ranks):
        yield replace(launch, ranks=(None,) * launch.slots)
    if launch.contagion:
        yield replace(launch, contagion=0.0)
    if launch.verify:
        yield replace(launch, verify=False)
    if any(code for _, code in launch.program):
        yield replace(launch, program=tuple((seconds, 0) for seconds, _ in launch.program))
