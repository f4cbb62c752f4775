"""Situations in which a node will go, and says so, with all that goes wrong meanwhile."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from tests.simulation.drawing import draw_when, near, of, one, shaped, situations
from tests.simulation.schedule import Fault, Launch, Schedule

_ENDS = "kill, host down, term, pause, cut, cut up, cut down, hurry, parent gone, started anew"
_ON_ALL = (
    "registry crash, registry crash, registry pause, disk full, disk slow, disk lies, isolated"
)
_BY_PEOPLE = "cancelled, restarted by hand, launcher killed, launcher told, launcher paused"
_ON_PATHS = "request lost, answer lost, doubled, late, hung up, echo, cut, forgotten, loss"
_SECONDS = {"pause": 12.0, "registry pause": 8.0, "registry crash": 4.0, "cut": 8.0, "late": 4.0}
_COUNTS = {"echo": 30, "doubled": 5, "late": 6, "fails once": 3, "hurry": 3, "loss": 40}
_NOTICES = (0.0, 5.0, 8.0, 8.5, 10.0, 12.0, 15.0, 20.0, 30.0, 120.0)
_LEAVES = "drained, drained, notice, notice, term"


def with_departures(draw: random.Random, schedule: Schedule) -> Schedule:
    """The schedule as it is, but that some nodes will go; or one that is about that."""
    if draw.random() >= 0.3:
        return draw.choice(DEPARTING)(draw, replace(schedule, keep_finished=3_600.0))
    index = draw.randrange(len(schedule.launches))
    slots, faults = schedule.launches[index].slots, list(schedule.faults)
    for _ in range(draw.choice([1, 1, 2])):
        when = draw_when(draw, slots, faults)
        fault = _leaves(draw, when, draw.randrange(slots), "drained, drained, notice")
        faults.append(replace(fault, launch=index))
    if draw.random() < 0.3:
        faults.append(replace(_heeds(draw, slots), launch=index))
    return replace(schedule, faults=tuple(faults))


def _leaves(
    draw: random.Random, when: float | str, slot: int, kinds: str = _LEAVES, least: float = 0.0
) -> Fault:
    """Somebody says that this node will go."""
    seconds = draw.choice([seconds for seconds in _NOTICES if seconds >= least])
    return Fault(when, one(draw, kinds), slot=slot, seconds=seconds)


def _heeds(draw: random.Random, nodes: int) -> Fault:
    """A program ends of the notice by itself: well, or not."""
    seconds, count = near(draw, 0.1, 6.0), draw.choice([1, 1, 2])
    return Fault(0.0, "heeds notice", slot=draw.randrange(nodes), seconds=seconds, count=count)


def _all_heed(draw: random.Random, nodes: int, chance: float = 1.0) -> list[Fault]:
    """Programs end well of the notice, each in its time; some of them, by chance, only when they
    are stopped."""
    heeds = [Fault(0.0, "heeds notice", slot=n, seconds=near(draw, 0.1, 4.0)) for n in range(nodes)]
    return [fault for fault in heeds if draw.random() < chance]


def _saves(draw: random.Random, nodes: int) -> Fault:
    """A program takes its time to save: all of its grace, or more than that."""
    what, seconds = one(draw, "slow stop, slow stop, finishes"), draw.choice([0.8, 2.9, 9.0])
    return Fault(0.0, what, slot=draw.randrange(nodes), seconds=seconds)


def _long(draw: random.Random, nodes: int, seconds: float = 40.0, **changes: Any) -> Launch:
    """Programs that would run on for long."""
    changes = {"max_restarts": draw.choice([0, 0, 0, 1, 3]), **changes}
    return shaped(draw, nodes, seconds=seconds, **changes)


def _fault(draw: random.Random, kinds: str, when: float | str, nodes: int) -> Fault:
    what = one(draw, kinds)
    seconds = round(_SECONDS.get(what, 2.0) * draw.uniform(0.1, 1.2), 3)
    seconds = near(draw, 16.0, 24.0) if what == "isolated" else seconds
    slot = draw.randrange(2 if what == "launcher told" else nodes)
    return Fault(
        when, what, slot=slot, seconds=seconds, count=draw.randint(1, _COUNTS.get(what, 2))
    )


def _moment(draw: random.Random, kinds: str = "departs, departure_due") -> str:
    return f"{one(draw, kinds)} 1 {one(draw, 'before, after, after')}"


def _one_leaves(draw: random.Random, schedule: Schedule) -> Schedule:
    """A node will go, and that is all."""
    nodes = draw.randint(1, 5)
    slot, when = draw.randrange(nodes), draw.choice([near(draw, 0.1, 3.0), near(draw, 3.0, 15.0)])
    leaves = _leaves(draw, when, slot)
    seconds = leaves.seconds + draw.choice([-10.0, 5.0, 15.0])
    launch = _long(draw, nodes, max(4.0, seconds))
    return of(schedule, launch, leaves, *([_saves(draw, nodes)] if draw.random() < 0.5 else []))


def _two_leave(draw: random.Random, schedule: Schedule) -> Schedule:
    """Several nodes will go, at about the same time, or the second one sooner than the first."""
    nodes = draw.randint(2, 5)
    when, faults = near(draw, 1.0, 6.0), []
    for slot in draw.sample(range(nodes), draw.randint(2, nodes)):
        faults.append(_leaves(draw, when, slot, "drained, notice, drained, notice, term"))
        when = round(when + draw.choice([0.0, 0.1, 1.0, 5.0]) * draw.random(), 3)
    return of(schedule, _long(draw, nodes), *faults)


def _told_twice(draw: random.Random, schedule: Schedule) -> Schedule:
    """The same node is said to go more than once: by a person, its platform, and a signal."""
    nodes = draw.randint(1, 4)
    slot, when, faults = draw.randrange(nodes), near(draw, 1.0, 5.0), []
    for _ in range(draw.randint(2, 3)):
        faults.append(_leaves(draw, when, slot, "drained, notice, term"))
        when = round(when + draw.choice([0.1, 2.0, 8.0]) * draw.random(), 3)
    return of(schedule, _long(draw, nodes), *faults)


def _programs_end_meanwhile(draw: random.Random, schedule: Schedule) -> Schedule:
    """Some programs end of the notice, or fail, or are lost, before all are stopped."""
    nodes = draw.randint(1, 4)
    leaves = _leaves(draw, near(draw, 1.0, 4.0), draw.randrange(nodes), "drained, notice", 10.0)
    faults = [leaves, *_all_heed(draw, nodes, draw.choice([1.0, 0.5, 0.3]))]
    if draw.random() < 0.4:
        faults = [leaves, _heeds(draw, nodes)]
    if draw.random() < 0.4:
        when = round(float(leaves.when) + near(draw, 0.1, 6.0), 3)
        faults.append(_fault(draw, "fails once, kill, stops unasked, term, host down", when, nodes))
    launch = replace(_long(draw, nodes), contagion=draw.choice([0.0, 0.0, 0.5]))
    return of(schedule, launch, *faults)


def _who_leaves_has_ended(draw: random.Random, schedule: Schedule) -> Schedule:
    """The program of a node that will go ends well, and others run on; one of them may go later."""
    nodes = draw.randint(2, 4)
    first, second = draw.sample(range(nodes), 2)
    leaves = _leaves(draw, near(draw, 1.0, 3.0), first, "drained, notice", 12.0)
    faults = [leaves, Fault(0.0, "heeds notice", slot=first, seconds=near(draw, 0.1, 4.0))]
    if draw.random() < 0.6:
        later = replace(leaves, slot=second, when=round(float(leaves.when) + 0.2, 3))
        faults.append(replace(later, seconds=leaves.seconds + draw.choice([0.5, 3.0, 8.0])))
    if draw.random() < 0.3:
        when = round(float(leaves.when) + near(draw, 0.1, 6.0), 3)
        faults.append(_fault(draw, "fails once, kill, term, registry crash", when, nodes))
    return of(schedule, _long(draw, nodes), *faults)


def _told_too_late(draw: random.Random, schedule: Schedule) -> Schedule:
    """What is said of a departure comes when the programs have started again."""
    nodes = draw.randint(1, 3)
    launch = _long(draw, nodes, 30.0, max_restarts=draw.choice([1, 2, 3]))
    slot, fails = draw.randrange(nodes), [(9.0, 0) for _ in range(nodes)]
    fails[draw.randrange(nodes)] = (near(draw, 0.1, 0.6), draw.choice([1, 3]))
    launch = replace(launch, later=(launch.program,), program=tuple(fails))
    seconds, count = near(draw, 0.5, 3.0), draw.randint(1, 3)
    late = Fault(f"acked {nodes} after", "late", slot=slot, seconds=seconds, count=count)
    return of(schedule, launch, late, Fault(0.0, "notice", slot=slot, seconds=30.0))


def _hears_late_of_the_go(draw: random.Random, schedule: Schedule) -> Schedule:
    """A node hears of the go only after another one has said that it will go."""
    nodes = draw.randint(2, 4)
    first, second = draw.sample(range(nodes), 2)
    faults = [
        Fault(0.0, "notice", slot=first, seconds=30.0),
        Fault(0.0, "slow arm", slot=first, seconds=near(draw, 2.0, 6.0)),
        Fault(f"acked {nodes - 1} after", "request lost", slot=second, count=1),
    ]
    return of(schedule, _long(draw, nodes), *faults)


def _told_to_nobody(draw: random.Random, schedule: Schedule) -> Schedule:
    """The registry is away as a node says that it will go, and is back soon."""
    nodes = draw.randint(1, 4)
    slot, when = draw.randrange(nodes), near(draw, 1.5, 5.0)
    leaves = _leaves(draw, when, slot, "notice, term", 20.0)
    away = one(draw, "registry crash, registry crash, cut, cut up, registry pause")
    begins = round(when - near(draw, 0.0, 0.4), 3)
    fault = Fault(begins, away, slot=slot, seconds=near(draw, 1.0, 8.0))
    return of(schedule, _long(draw, nodes), leaves, fault)


def _while_they_start_again(draw: random.Random, schedule: Schedule) -> Schedule:
    """A node will go while programs are stopped, armed for, or wait to start again."""
    nodes = draw.randint(1, 4)
    launch = _long(draw, nodes, 30.0, max_restarts=draw.choice([1, 2, 3]))
    fails = [(3.0 + draw.random(), 0) for _ in range(nodes)]
    fails[draw.randrange(nodes)] = (near(draw, 0.5, 2.0), draw.choice([1, 3]))
    launch = replace(launch, later=(launch.program,), program=tuple(fails))
    kind = one(draw, "exited, exited, acked, acked")
    count = draw.randint(1, nodes) if kind == "exited" else draw.randint(nodes, 2 * nodes)
    when = f"{kind} {count} {one(draw, 'before, after, after')}"
    faults = [_leaves(draw, when, draw.randrange(nodes))]
    if draw.random() < 0.5:
        faults.append(_saves(draw, nodes))
    if draw.random() < 0.3:
        faults.append(_leaves(draw, near(draw, 0.5, 12.0), draw.randrange(nodes)))
    if draw.random() < 0.3:
        faults.append(_fault(draw, _ON_PATHS, when, nodes))
    return of(schedule, launch, *faults)


def _before_the_go(draw: random.Random, schedule: Schedule) -> Schedule:
    """A notice file is there, or somebody drains a node, before any program runs."""
    nodes = draw.randint(1, 4)
    kind = one(draw, "created, joined, joined, acked, acked")
    count = 1 if kind == "created" else draw.randint(1, nodes)
    when: float | str = f"{kind} {count} after"
    when = 0.0 if draw.random() < 0.2 else when
    faults = [_leaves(draw, when, draw.randrange(nodes), "notice, notice, drained", 5.0)]
    if draw.random() < 0.6:
        slow = one(draw, "late, late, slow start, slow exit")
        last = f"acked {nodes} {one(draw, 'before, after')}"
        then = 0.0 if slow != "late" else last
        seconds = near(draw, 0.3, 2.5)
        faults.append(Fault(then, slow, slot=draw.randrange(nodes), seconds=seconds, count=4))
    return of(schedule, _long(draw, nodes), *faults)


def _the_registry_is_away(draw: random.Random, schedule: Schedule) -> Schedule:
    """The registry, or its disk, fails as a departure is told, as it is due, or in between."""
    nodes = draw.randint(1, 4)
    leave_at = near(draw, 1.0, 4.0)
    leaves = _leaves(draw, leave_at, draw.randrange(nodes), least=5.0)
    when: float | str = _moment(draw)
    if draw.random() < 0.4:
        when = round(leave_at + draw.uniform(-1.0, leaves.seconds), 3)
    launch = _long(draw, nodes, owns_registry=draw.random() < 0.3)
    faults = [
        leaves,
        _fault(draw, _ON_ALL, when if isinstance(when, str) else max(0.5, when), nodes),
    ]
    if draw.random() < 0.3:
        faults.append(_saves(draw, nodes))
    return of(schedule, launch, *faults)


def _the_node_is_gone(draw: random.Random, schedule: Schedule) -> Schedule:
    """Who will go dies, or is not heard of, before or after its time, or as it says so."""
    nodes = draw.randint(1, 4)
    slot, when = draw.randrange(nodes), near(draw, 1.0, 4.0)
    leaves = _leaves(draw, when, slot)
    then: float | str = _moment(draw)
    if draw.random() < 0.5:
        then = round(when + leaves.seconds * draw.uniform(0.0, 1.1), 3)
    gone = replace(_fault(draw, _ENDS, then, nodes), slot=slot)
    if draw.random() < 0.3:
        gone = replace(gone, slot=draw.randrange(nodes))
    return of(schedule, _long(draw, nodes), leaves, gone, _saves(draw, nodes))


def _people_act_meanwhile(draw: random.Random, schedule: Schedule) -> Schedule:
    """Somebody cancels, starts again, or ends the launcher, while a node is about to go."""
    nodes = draw.randint(1, 4)
    when = near(draw, 1.0, 4.0)
    leaves = _leaves(draw, when, draw.randrange(nodes))
    then: float | str = _moment(draw)
    if draw.random() < 0.5:
        then = round(max(0.5, when + draw.uniform(-1.0, leaves.seconds)), 3)
    owns, here = draw.random() < 0.3, draw.random() < 0.3
    launch = _long(draw, nodes, owns_registry=owns, here=here)
    faults = [leaves, _fault(draw, _BY_PEOPLE, then, nodes)]
    return of(schedule, launch, *faults, *([_saves(draw, nodes)] if draw.random() < 0.4 else []))


def _told_over_a_bad_path(draw: random.Random, schedule: Schedule) -> Schedule:
    """What a node says of its departure is lost, late, or comes more than once."""
    nodes = draw.randint(1, 4)
    slot, when = draw.randrange(nodes), near(draw, 1.0, 6.0)
    leaves = _leaves(draw, when, slot)
    faults = [leaves]
    for _ in range(draw.randint(1, 3)):
        then = _moment(draw) if draw.random() < 0.3 else round(when + draw.uniform(-0.3, 1.5), 3)
        where = slot if draw.random() < 0.7 else draw.randrange(nodes)
        faults.append(replace(_fault(draw, _ON_PATHS, then, nodes), slot=where))
    return of(schedule, _long(draw, nodes), *faults)


def _led_and_leaving(draw: random.Random, schedule: Schedule) -> Schedule:
    """Only slot 0 has a program; any of the nodes will go."""
    nodes = draw.randint(1, 4)
    leaves = _leaves(draw, near(draw, 1.0, 6.0), draw.randrange(nodes))
    faults = [leaves, *([_heeds(draw, 1)] if draw.random() < 0.4 else [])]
    return of(schedule, _long(draw, nodes, led=True), *faults)


def _bystanders_leave(draw: random.Random, schedule: Schedule) -> Schedule:
    """A spare, or who comes too late, will go: that is no matter to those who run."""
    nodes = draw.randint(2, 4)
    spares = draw.randint(0, 2)
    launch = _long(draw, nodes, 20.0, spares=spares, least=draw.randint(1, nodes))
    launch = replace(launch, boot=(*launch.boot[:-1], draw.choice([0.4, 6.0])))
    faults = [_leaves(draw, near(draw, 0.1, 9.0), draw.choice([launch.slots - 1, 0]))]
    if draw.random() < 0.5:
        faults.append(_leaves(draw, near(draw, 0.1, 9.0), draw.randrange(launch.slots)))
    return of(schedule, launch, *faults)


DEPARTING = situations(
    globals(), besides=[with_departures], twice=[_two_leave, _told_twice, _who_leaves_has_ended]
)
