"""Situations in which a node, a worker run, a launch or a run outlives what was to replace it."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation.drawing import after, late, near, of, one, shaped, situations
from tests.simulation.schedule import Fault, Schedule


def _two_worker_runs(draw: random.Random, schedule: Schedule) -> Schedule:
    """A launcher comes back before its scheduler lists what it had submitted, and submits anew."""
    nodes = draw.randint(2, 4)
    launch = shaped(draw, nodes, retries=draw.choice([1, 2]))
    launch = late(launch, draw.choice([0.3, 8.0, 14.0]))
    back = draw.uniform(0.5, 4.0)
    faults = [
        Fault(0.0, "list lags", seconds=near(draw, 5.0, 25.0)),
        Fault(0.0, "submission slow", seconds=20.0, count=nodes),
        Fault(0.8, "launcher killed", seconds=round(back, 3)),
    ]
    if draw.random() < 0.4:
        faults.append(Fault(0.0, "slow arm", slot=draw.randrange(nodes), seconds=9.0))
    if draw.random() < 0.4:
        what = one(draw, "submission fails, submission unsure")
        faults.append(Fault(round(0.8 + back, 3), what, count=draw.randint(1, nodes)))
    if draw.random() < 0.4:  # what its launcher had said before comes once more
        for _ in range(4):
            when = after(draw, 0.8, back, 12.0)
            faults.append(Fault(when, "echo", slot=-1, count=draw.randint(1, 30)))
    return of(schedule, launch, *faults)


def _gone_after_its_join(draw: random.Random, schedule: Schedule) -> Schedule:
    """A node is gone, or stopped, just when it has joined; its scheduler may not say so."""
    nodes = draw.randint(1, 4)
    launch = shaped(draw, nodes, lease=draw.choice([5.0, 15.0]), retries=draw.choice([0, 1, 2]))
    launch = late(launch, draw.choice([0.3, 6.0, 14.0]))
    order = sorted(range(nodes), key=lambda slot: launch.queue[slot] + launch.boot[slot])
    place = draw.randrange(nodes)
    what, when = one(draw, "kill, host down, host down, pause"), f"joined {place + 1} after"
    faults = [Fault(when, what, slot=order[place], seconds=30.0)]
    if draw.random() < 0.6:
        faults.append(Fault(when, "scheduler silent", seconds=60.0))
    if draw.random() < 0.3:
        later = near(draw, 0.5, 8.0)
        faults.append(Fault(later, one(draw, "registry crash, disk full"), seconds=1.0))
    return of(schedule, launch, *faults)


def _two_spares(draw: random.Random, schedule: Schedule) -> Schedule:
    """More spares are fit than are needed when a node of the table cannot start."""
    nodes = draw.randint(2, 4)
    launch = shaped(draw, nodes, spares=2, least=draw.randint(1, nodes))
    what = one(draw, "hosts refused, slow arm")
    faults = [Fault(0.0, what, slot=draw.randrange(1, nodes), seconds=14.0)]
    if draw.random() < 0.3:
        later = near(draw, 1.0, 4.0)
        faults.append(Fault(later, one(draw, "kill, term"), slot=draw.randrange(nodes)))
    return of(schedule, launch, *faults)


def _hung_up_while_it_is_stopped(draw: random.Random, schedule: Schedule) -> Schedule:
    """The registry stands still, and a connection is hung up; what its node asks next is lost."""
    nodes = draw.randint(2, 4)
    launch = shaped(draw, nodes, seconds=30.0)
    slot, when = draw.randrange(nodes), draw.uniform(2.0, 6.0)
    seconds = draw.uniform(2.0, 12.0)
    then = after(draw, when + seconds, -0.0, -2.0)
    faults = [
        Fault(round(when, 3), "registry pause", seconds=round(seconds, 3)),
        Fault(then, "request lost", slot=slot, count=1),
        Fault(then, "hung up", slot=slot),
    ]
    return of(schedule, launch, *faults)


def _led_and_ending(draw: random.Random, schedule: Schedule) -> Schedule:
    """Of a led run a node fails, another is not heard of, and the leader ends well by itself."""
    nodes = draw.randint(3, 5)
    launch = shaped(draw, nodes, led=True, seconds=draw.choice([2.0, 4.0]))
    when = launch.leader_ends - draw.uniform(0.0, 2.0)
    failing, silent = draw.sample(range(1, nodes), 2)
    seconds = near(draw, 1.0, 5.0)
    faults = [
        Fault(0.0, "finishes", slot=0, seconds=near(draw, 0.2, 2.5)),
        Fault(round(when, 3), one(draw, "kill, term, host down"), slot=failing),
        Fault(round(when - 0.1, 3), one(draw, "cut, pause"), slot=silent, seconds=seconds),
    ]
    return of(schedule, launch, *faults)


def _ends_unheard(draw: random.Random, schedule: Schedule) -> Schedule:
    """A node is told to end while its host is cut off, and is heard again just as it leaves."""
    nodes = draw.randint(2, 4)
    launch = shaped(draw, nodes, seconds=8.0)
    slot, when = draw.randrange(nodes), draw.uniform(0.5, 6.0)
    what = one(draw, "cut, cut up")
    cut = Fault(round(when, 3), what, slot=slot, seconds=near(draw, 3.0, 6.5))
    return of(schedule, launch, cut, Fault(after(draw, when, 0.0, 0.3), "term", slot=slot))


def _created_unheard(draw: random.Random, schedule: Schedule) -> Schedule:
    """That a run was created is not heard by who has asked for it."""
    nodes = draw.randint(1, 3)
    when = f"created 1 {one(draw, 'before, after')}"
    kinds = [
        Fault(when, "answer lost", slot=-1, count=draw.randint(1, 2)),
        Fault(when, "hung up", slot=-1),
        Fault(when, "registry crash", seconds=0.3),
        Fault(when, "launcher killed", seconds=1.0),
    ]
    lost = draw.choice(kinds)
    return of(schedule, shaped(draw, nodes), lost)


def _a_name_that_is_let_go(draw: random.Random, schedule: Schedule) -> Schedule:
    """A busy registry forgets a run just as its name is taken again."""
    first = shaped(draw, 1, seconds=1.0)
    keep = 2.0
    over = first.queue[0] + first.boot[0] + first.program[0][0] + keep
    at = over + draw.uniform(0.3, 1.6)
    second = shaped(draw, 1, at=round(at, 3))
    other = shaped(draw, 1, at=after(draw, at, -0.02, -0.28), run="r1")
    slow = Fault(round(over - 0.5, 3), "disk slow", seconds=4.0)
    launches = (first, other, second)
    return replace(schedule, launches=launches, faults=(slow,), keep_finished=keep)


def _replaced_while_it_stops(draw: random.Random, schedule: Schedule) -> Schedule:
    """A run is over, another launch has its name, and a node of the former still stops."""
    nodes = draw.randint(1, 3)
    launch = shaped(draw, nodes, seconds=9.0)
    when = draw.uniform(3.0, 5.0)
    second = shaped(draw, draw.randint(1, 2), at=after(draw, when, 0.3, 3.0))
    slow = Fault(0.0, "slow stop", slot=draw.randrange(nodes), seconds=near(draw, 2, 8))
    faults = [slow, Fault(round(when, 3), "cancelled")]
    if draw.random() < 0.3:
        faults.append(Fault(after(draw, when, 0.0, 2.0), "registry crash", seconds=0.5))
    return replace(schedule, launches=(launch, second), faults=tuple(faults))


def _joins_without_a_registry(draw: random.Random, schedule: Schedule) -> Schedule:
    """The registry is away for a while as the nodes come."""
    nodes = draw.randint(1, 4)
    launch = shaped(draw, nodes)
    launch = replace(launch, boot=tuple(near(draw, 0.3, 3.0) for _ in range(nodes)))
    what = one(draw, "registry crash, registry pause, disk full")
    seconds = round(draw.choice([1.0, 4.0, 12.0]) * draw.uniform(0.3, 1.0), 3)
    return of(schedule, launch, Fault(near(draw, 0.4, 2.0), what, seconds=seconds))


LIVES = situations(globals())
