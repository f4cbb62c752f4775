"""Situations in which queues are full, of a registry that has too much to do, or of what is said
beside the course of a run."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation.drawing import near, of, one, shaped, situations
from tests.simulation.schedule import QUEUES, Fault, Schedule

_OF_ALL = "requests, requests, few requests, connections"
_BESIDE = "lines, lines, lines of a run, views, frames, frames, rows"
_ON_PATHS = "request lost, answer lost, answer lost, doubled, late"


def with_full_queues(draw: random.Random, schedule: Schedule) -> Schedule:
    """The schedule as it is, with a queue that is full; or one that is about that."""
    if draw.random() < 0.7:
        return draw.choice(FULL)(draw, replace(schedule, keep_finished=3_600.0))
    what = one(draw, f"{_OF_ALL}, {_BESIDE}")
    fault = _full(draw, near(draw, 0.0, 9.0), what, 6.0)
    return replace(schedule, faults=(*schedule.faults, fault))


def _full(draw: random.Random, when: float | str, what: str, longest: float) -> Fault:
    seconds = near(draw, 0.2, longest)
    return Fault(when, "queue full", seconds=seconds, count=QUEUES.index(what) + 1)


def _too_many_requests(draw: random.Random, schedule: Schedule) -> Schedule:
    """The registry takes no more requests, or few, while much is told."""
    nodes = draw.randint(2, 5)
    launch = shaped(draw, nodes, ranks_each=draw.choice([0, 2]), here=draw.random() < 0.3)
    count, side = draw.randint(1, nodes), one(draw, "before, after")
    event = one(draw, "created, slot, joined, joined, probed, acked, acked, exited, exited")
    when = f"{event} {1 if event == 'created' else count} {side}"
    what = one(draw, _OF_ALL)
    faults = [_full(draw, when, what, 8.0)]
    if what == "few requests":
        faults.append(Fault(when, "disk slow", seconds=faults[0].seconds))
    if draw.random() < 0.5:
        beside = one(draw, "program fails, kill, cancelled, term, registry crash, launcher told")
        seconds = near(draw, 0.1, 2.0)
        faults.append(Fault(when, beside, slot=draw.randrange(nodes), seconds=seconds))
    return of(schedule, launch, *faults)


def _too_much_is_said(draw: random.Random, schedule: Schedule) -> Schedule:
    """What is said beside the course of the run finds no room for a while."""
    nodes, seconds = draw.randint(2, 3), draw.choice([12.0, 25.0])
    launch = shaped(draw, nodes, seconds=seconds, talks=True, here=draw.random() < 0.3)
    faults = []
    for _ in range(draw.choice([1, 2, 2, 3])):
        when = near(draw, 1.0, seconds - 2.0)
        faults.append(_full(draw, when, one(draw, _BESIDE), 8.0))
        if draw.random() < 0.4:
            way = one(draw, _ON_PATHS)
            slot, late = draw.choice([*range(nodes), -2]), 4.0 * (way == "late")
            when, much = near(draw, 1.0, seconds), draw.randint(1, 6)
            faults.append(Fault(when, way, slot=slot, seconds=late, count=much))
    return of(schedule, launch, *faults)


def _programs_start_again(draw: random.Random, schedule: Schedule) -> Schedule:
    """The same in programs that start again, whose nodes have said something before."""
    schedule = _too_much_is_said(draw, schedule)
    launch = schedule.launches[0]
    fails = Fault(near(draw, 4.0, 9.0), "fails once", slot=draw.randrange(launch.nodes))
    launch = replace(launch, max_restarts=2, later=(launch.program,))
    return of(schedule, launch, *schedule.faults, fails)


FULL = situations(globals(), besides=(with_full_queues,), twice=(_too_much_is_said,))
