"""Situations in which programs fail and start again, with all that goes wrong meanwhile."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from tests.simulation.drawing import near, of, one, shaped, situations
from tests.simulation.schedule import Fault, Launch, Schedule

Programs = tuple[tuple[float, int], ...]
_CODES = (1, 1, 3, 42, 77, 134)
_ON_NODES = "kill, term, host down, pause, fails once, stops unasked, started anew"
_ON_ALL = "registry crash, registry pause, disk full, disk lies, disk slow"
_BY_PEOPLE = "cancelled, restarted by hand, launcher killed, launcher told"
_ON_PATHS = "request lost, answer lost, doubled, late, hung up, echo, cut, forgotten"
_SECONDS = {"pause": 25.0, "registry pause": 12.0, "cut": 8.0, "late": 4.0, "launcher killed": 2.0}


def with_restarts(draw: random.Random, schedule: Schedule) -> Schedule:
    """The schedule as it is, but that its programs may start again; or one that is about that."""
    if draw.random() >= 0.35:
        return draw.choice(AGAIN)(draw, replace(schedule, keep_finished=3_600.0))
    launches = tuple(
        _failing(draw, replace(launch, max_restarts=draw.choice([1, 1, 2, 3])))
        for launch in schedule.launches
    )
    return replace(schedule, launches=launches)


def _failing(draw: random.Random, launch: Launch, starts: int | None = None) -> Launch:
    """Some program fails at each of the first starts, and all end well at the one after them."""
    count = draw.randint(1, 3) if starts is None else starts
    programs = [_programs(draw, launch, fails=True) for _ in range(count)]
    programs.append(_programs(draw, launch, fails=draw.random() < 0.1))
    return replace(launch, program=programs[0], later=tuple(programs[1:]))


def _programs(draw: random.Random, launch: Launch, *, fails: bool) -> Programs:
    seconds = draw.choice([0.6, 2.0, 5.0])
    found = [(near(draw, seconds, seconds + 1.5), 0) for _ in range(launch.slots)]
    if fails:
        slot = 0 if launch.led else draw.randrange(launch.slots)
        found[slot] = (near(draw, 0.3, seconds), draw.choice(_CODES))
        if draw.random() < 0.3:  # and another one, at about the same time
            other = draw.randrange(launch.slots)
            found[other] = (round(found[slot][0] + draw.uniform(0.0, 0.4), 3), draw.choice(_CODES))
    return tuple(found)


def _again(draw: random.Random, nodes: int, starts: int | None = None, **changes: Any) -> Launch:
    changes = {"max_restarts": draw.choice([1, 2, 2, 3, 3]), **changes}
    launch = replace(shaped(draw, nodes, **changes), contagion=draw.choice([0.0, 0.0, 0.5]))
    return _failing(draw, launch, starts)


def _fault(draw: random.Random, kinds: str, when: float | str, nodes: int) -> Fault:
    what = one(draw, kinds)
    seconds = round(_SECONDS.get(what, 1.0) * draw.uniform(0.2, 1.2), 3)
    slot = -1 if what in ("launcher killed",) else draw.randrange(nodes)
    slot = draw.randrange(2) if what == "launcher told" else max(slot, 0)
    most = {"echo": 30, "doubled": 5, "late": 6, "fails once": 3}.get(what, 2)
    return Fault(when, what, slot=slot, seconds=seconds, count=draw.randint(1, most))


def _moment(draw: random.Random, kind: str, least: int, most: int) -> str:
    return f"{kind} {draw.randint(least, most)} {one(draw, 'before, after, after')}"


def _nothing_but_failures(draw: random.Random, schedule: Schedule) -> Schedule:
    """Programs fail, by themselves alone: as often as they may, or once more."""
    nodes = draw.randint(1, 5)
    return of(schedule, _again(draw, nodes, draw.randint(1, 4), max_restarts=draw.randint(0, 3)))


def _hopeless(draw: random.Random, schedule: Schedule) -> Schedule:
    """The programs end in the same way each time, on the same node or on another one."""
    nodes, code = draw.randint(1, 4), draw.choice([*_CODES, 126, 126, 127])
    launch = _again(draw, nodes, max_restarts=3)
    programs = []
    for _ in range(4):
        found = [(near(draw, 6.0, 8.0), 0) for _ in range(nodes)]
        found[draw.randrange(nodes)] = (near(draw, 0.3, 2.0), code)
        programs.append(tuple(found))
    launch = replace(launch, program=programs[0], later=tuple(programs[1:]), contagion=0.0)
    return of(schedule, launch)


def _long_epochs(draw: random.Random, schedule: Schedule) -> Schedule:
    """Some epochs last so long, or come so far, that the next start comes at once."""
    nodes = draw.randint(1, 3)
    launch = replace(_again(draw, nodes, 4, max_restarts=4), contagion=0.0)
    programs, code = [], 1
    for _ in range(4):
        code += draw.choice([0, 1, 1])
        seconds = draw.choice([0.5, 0.5, 3.0, 33.0, 61.0, 70.0])
        found = [(seconds + 30.0, 0) for _ in range(nodes)]
        found[draw.randrange(nodes)] = (near(draw, seconds, seconds + 1.0), code)
        programs.append(tuple(found))
    launch = replace(launch, program=programs[0], later=tuple(programs[1:]))
    gets_on = Fault(0.0, "gets on", slot=draw.randrange(nodes), count=draw.choice([1, 1, 2]))
    return of(schedule, launch, *([gets_on] if draw.random() < 0.6 else []))


def _two_at_once(draw: random.Random, schedule: Schedule) -> Schedule:
    """Two fail at about the same time; one of them is late to say so."""
    nodes = draw.randint(2, 5)
    launch = _again(draw, nodes, seconds=9.0)
    first, second = draw.sample(range(nodes), 2)
    when = draw.uniform(2.0, 4.0)
    faults = [Fault(0.0, "slow exit", slot=first, seconds=near(draw, 0.5, 6.0))]
    for slot in (first, second):
        then = round(when + draw.uniform(0.0, 0.5), 3)
        faults.append(Fault(then, "fails once", slot=slot, count=draw.randint(1, 3)))
    return of(schedule, launch, *faults)


def _while_it_stops(draw: random.Random, schedule: Schedule) -> Schedule:
    """Something happens while programs are told to stop, of which one takes its time."""
    nodes = draw.randint(2, 5)
    launch = _again(draw, nodes)
    slow = one(draw, "slow stop, slow exit, finishes")
    faults = [Fault(0.0, slow, slot=draw.randrange(nodes), seconds=near(draw, 1.0, 8.0))]
    when = _moment(draw, "exited", 1, nodes)
    for _ in range(draw.choice([1, 1, 2])):
        kinds = draw.choice([_ON_NODES, _ON_NODES, _ON_ALL, _BY_PEOPLE, _ON_PATHS])
        faults.append(_fault(draw, kinds, when, nodes))
    return of(schedule, launch, *faults)


def _while_it_arms(draw: random.Random, schedule: Schedule) -> Schedule:
    """Something happens while the nodes acknowledge the table of the next epoch."""
    nodes = draw.randint(2, 5)
    launch = _again(draw, nodes)
    faults = []
    if draw.random() < 0.5:
        taken = one(draw, "slow stop, port taken, hosts refused, slow exit")
        seconds, count = near(draw, 1.0, 8.0), draw.randint(1, 3)
        faults.append(Fault(0.0, taken, slot=draw.randrange(nodes), seconds=seconds, count=count))
    if draw.random() < 0.3:
        when = _moment(draw, "exited", 1, nodes)
        faults.append(Fault(when, "slow arm", slot=draw.randrange(nodes), seconds=9.0))
    when = _moment(draw, "acked", nodes + 1, 2 * nodes)
    for _ in range(draw.choice([1, 1, 2])):
        kinds = draw.choice([_ON_NODES, _ON_NODES, _ON_ALL, _BY_PEOPLE, _ON_PATHS])
        faults.append(_fault(draw, kinds, when, nodes))
    return of(schedule, launch, *faults)


def _late_words(draw: random.Random, schedule: Schedule) -> Schedule:
    """What was said in an epoch comes lost, doubled, late, or once more in a later epoch."""
    nodes = draw.randint(1, 4)
    launch = _again(draw, nodes, draw.randint(2, 3), max_restarts=3)
    faults = []
    if draw.random() < 0.4:
        slow, seconds = draw.randrange(nodes), near(draw, 1.5, 6.0)
        faults.append(Fault(0.0, "slow exit", slot=slow, seconds=seconds))
    for _ in range(draw.randint(1, 3)):
        kind = one(draw, "exited, acked")
        when = _moment(draw, kind, 1 if kind == "exited" else nodes, 3 * nodes)
        faults.append(_fault(draw, _ON_PATHS, when, nodes))
    for _ in range(draw.choice([0, 4, 8])):
        then, count = near(draw, 2.0, 15.0), draw.randint(1, 25)
        faults.append(Fault(then, "echo", slot=draw.randrange(nodes), count=count))
    return of(schedule, launch, *faults)


def _the_registry_fails(draw: random.Random, schedule: Schedule) -> Schedule:
    """The registry, or its disk, fails just when it decides, or when a table is acknowledged."""
    nodes = draw.randint(1, 4)
    launch = _again(draw, nodes, owns_registry=draw.random() < 0.3)
    kind = one(draw, "exited, exited, acked, verdict, backoff_over, restart_asked")
    rare = kind in ("verdict", "backoff_over", "restart_asked")
    least, most = (1, 1) if rare else (1 if kind == "exited" else nodes + 1, 2 * nodes)
    faults = [_fault(draw, _ON_ALL, _moment(draw, kind, least, most), nodes)]
    if kind == "restart_asked":
        faults.append(Fault(near(draw, 1.5, 5.0), "restarted by hand"))
    if draw.random() < 0.3:
        faults.append(_fault(draw, _ON_NODES, _moment(draw, "exited", 1, 2 * nodes), nodes))
    return of(schedule, launch, *faults)


def _while_it_waits(draw: random.Random, schedule: Schedule) -> Schedule:
    """Something happens during the back-off before a second restart, or a third one."""
    nodes = draw.randint(1, 4)
    launch, faults = _soon_over(draw, nodes), []
    for _ in range(draw.choice([1, 1, 2])):
        when = _moment(draw, "exited", 2 * nodes, 3 * nodes)
        when = _moment(draw, "backoff_over", 1, 2) if draw.random() < 0.2 else when
        kinds = draw.choice([_ON_NODES, _ON_ALL, _BY_PEOPLE, _BY_PEOPLE, _ON_PATHS])
        faults.append(_fault(draw, kinds, when, nodes))
    return of(schedule, launch, *faults)


def _soon_over(draw: random.Random, nodes: int) -> Launch:
    """Three epochs end soon, each in its own way: the third start comes a second later."""
    launch = replace(_again(draw, nodes, 3, max_restarts=3), contagion=0.0)
    programs = []
    for number in range(4):
        found = [(near(draw, 4.0, 6.0), 0) for _ in range(nodes)]
        if number < 3:
            found[draw.randrange(nodes)] = (near(draw, 0.3, 2.0), (3, 42, 77)[number])
        programs.append(tuple(found))
    return replace(launch, program=programs[0], later=tuple(programs[1:]))


def newcomers(draw: random.Random, schedule: Schedule) -> Schedule:
    """A container is started anew while the programs are to start again, or wait for it."""
    nodes = draw.randint(2, 5)
    launch = _soon_over(draw, nodes) if draw.random() < 0.7 else _again(draw, nodes)
    if draw.random() < 0.6:
        when = f"exited {draw.choice([nodes, 2 * nodes, 2 * nodes])} after"
    else:
        when = _moment(draw, "acked", nodes + 1, 2 * nodes)
    anew = Fault(when, "started anew", slot=draw.randrange(nodes))
    slow = Fault(0.0, "slow stop", slot=draw.randrange(nodes), seconds=near(draw, 1.0, 3.0))
    return of(schedule, launch, anew, *([slow] if draw.random() < 0.4 else []))


def _leaves_last(draw: random.Random, schedule: Schedule) -> Schedule:
    """A node is told to end while its program is stopped, and is the last one to end it."""
    nodes = draw.randint(2, 4)
    launch, slot = _again(draw, nodes), draw.randrange(nodes)
    slow = Fault(0.0, "slow stop", slot=slot, seconds=near(draw, 0.8, 3.0))
    return of(schedule, launch, slow, Fault("exited 1 after", "term", slot=slot))


def _cannot_arm_again(draw: random.Random, schedule: Schedule) -> Schedule:
    """A node cannot start on the next table; there are others, and none can take its place."""
    nodes = draw.randint(2, 4)
    launch = _again(draw, nodes, spares=draw.randint(0, 1), least=draw.randint(1, nodes))
    what, slot = one(draw, "address lost, program missing, stuck, no shims"), draw.randrange(nodes)
    return of(schedule, launch, Fault(f"exited {draw.randint(1, nodes)} after", what, slot=slot))


def _by_hand(draw: random.Random, schedule: Schedule) -> Schedule:
    """A person has the programs start again, at any time, and maybe more than once."""
    nodes = draw.randint(1, 4)
    launch = _again(draw, nodes, max_restarts=draw.choice([0, 1, 3]))
    if draw.random() < 0.5:
        launch = replace(launch, program=tuple((near(draw, 4.0, 9.0), 0) for _ in range(nodes)))
    faults = [Fault(near(draw, 0.5, 9.0), "restarted by hand") for _ in range(draw.randint(1, 3))]
    if draw.random() < 0.4:
        when = f"restart_asked 1 {one(draw, 'before, after')}"
        kinds = draw.choice([_ON_NODES, _ON_ALL, _BY_PEOPLE])
        faults.append(_fault(draw, kinds, when, nodes))
    return of(schedule, launch, *faults)


def _most_are_silent(draw: random.Random, schedule: Schedule) -> Schedule:
    """Most nodes are not heard of while the programs are to start again."""
    nodes = draw.randint(3, 5)
    launch = _again(draw, nodes, lease=15.0)
    if draw.random() < 0.4:
        launch = replace(launch, program=tuple((near(draw, 9.0, 12.0), 0) for _ in range(nodes)))
    kind = one(draw, "exited, acked")
    when = _moment(draw, kind, 1 if kind == "exited" else nodes + 1, 2 * nodes - 1)
    if draw.random() < 0.4:
        return of(schedule, launch, Fault(when, "isolated", seconds=near(draw, 5.0, 24.0)))
    what, seconds = one(draw, "cut, pause, host down, cut up"), near(draw, 3.0, 24.0)
    some = draw.sample(range(nodes), draw.randint(2, nodes))
    return of(schedule, launch, *(Fault(when, what, slot=slot, seconds=seconds) for slot in some))


def _led_again(draw: random.Random, schedule: Schedule) -> Schedule:
    """Only slot 0 has a program, which starts again; the others serve it again."""
    nodes = draw.randint(1, 4)
    launch = _again(draw, nodes, led=True)
    faults = []
    if draw.random() < 0.5:
        when = _moment(draw, one(draw, "exited, acked"), 1, 2 * nodes)
        kinds = draw.choice([_ON_NODES, _ON_ALL, _BY_PEOPLE, _ON_PATHS])
        faults.append(_fault(draw, kinds, when, nodes))
    return of(schedule, launch, *faults)


def _launched_again(draw: random.Random, schedule: Schedule) -> Schedule:
    """The launcher dies or is told to end while the programs are to start again."""
    nodes = draw.randint(1, 4)
    owns = draw.random() < 0.4
    launch = _again(draw, nodes, here=draw.random() < 0.4, owns_registry=owns)
    kind = one(draw, "exited, exited, acked, backoff_over")
    when = _moment(draw, kind, 1, 1 if kind == "backoff_over" else 2 * nodes)
    what = one(draw, "launcher killed, launcher told, launcher paused")
    faults = [Fault(when, what, slot=draw.randrange(2), seconds=near(draw, 0.5, 6.0))]
    return of(schedule, launch, *faults)


def _bystanders(draw: random.Random, schedule: Schedule) -> Schedule:
    """With spares, or fewer nodes than there may be: who was not in the table stays out."""
    nodes = draw.randint(2, 4)
    launch = _again(draw, nodes, spares=draw.randint(0, 2), least=draw.randint(1, nodes))
    late = draw.choice([0.4, 6.0, 12.0])
    launch = replace(launch, boot=(*launch.boot[:-1], late))
    faults = []
    if draw.random() < 0.5:
        kind = one(draw, "exited, acked")
        when = _moment(draw, kind, 1 if kind == "exited" else nodes + 1, 2 * nodes)
        faults.append(_fault(draw, _ON_NODES, when, launch.slots))
    return of(schedule, launch, *faults)


AGAIN = situations(globals(), besides=[with_restarts])
