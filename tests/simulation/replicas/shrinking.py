"""The shortest schedule of replicas that still fails: what can be left out is, and clocks agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.simulation.replicas.schedule import HOSTS, Schedule

Fails = Callable[[Schedule], bool]


def shrink(schedule: Schedule, fails: Fails) -> Schedule:
    """Make it plainer, one thing at a time, as long as `fails` says so of the rest."""
    while True:
        plainer = next((plain for plain in _plainer(schedule) if fails(plain)), None)
        if plainer is None:
            return schedule
        schedule = plainer


def _plainer(schedule: Schedule) -> Iterator[Schedule]:
    """The schedule with one thing left out."""
    faults, launches = schedule.faults, schedule.launches
    for at in range(len(faults)):
        yield schedule.without((*faults[:at], *faults[at + 1 :]))
    for at in range(len(launches)):
        if len(launches) > 1:
            yield replace(schedule, launches=(*launches[:at], *launches[at + 1 :]))
    still = (0.0,) * len(HOSTS)
    if schedule.offsets != still:
        yield replace(schedule, offsets=still)
    if set(schedule.rates) != {1.0}:
        yield replace(schedule, rates=(1.0,) * len(HOSTS))
    if schedule.keep_finished < 3_600.0:
        yield replace(schedule, keep_finished=3_600.0)
    for at, launch in enumerate(launches):
        fewer = max(2, launch.nodes - 1)
        plain = replace(
            launch,
            boot=launch.boot[:fewer],
            program=launch.program[:fewer],
            cancel=0.0,
            max_restarts=0,
            verify=False,
        )
        if plain != launch:
            yield replace(schedule, launches=(*launches[:at], plain, *launches[at + 1 :]))
