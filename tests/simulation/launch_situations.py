"""Situations of launchers: killed, told to end, given again, without registry or scheduler."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from tests.simulation.drawing import (
    after,
    late,
    launcher_fault,
    near,
    of,
    one,
    shaped,
    situations,
    some,
)
from tests.simulation.schedule import Fault, Launch, Schedule


def _one_after_the_other(draw: random.Random, schedule: Schedule) -> Schedule:
    """A launcher is killed before the go, and another one takes up what it has left."""
    before, nodes = schedule.launches[0], draw.randint(1, 4)
    launch = shaped(draw, nodes, here=before.here, owns_registry=before.owns_registry)
    launch = replace(launch, boot=some(draw, nodes, 0.2, 3.0, 6.0))
    when: float | str = near(draw, 0, 6)
    if draw.random() < 0.5:
        when = f"slot {draw.randint(1, 4 * nodes)} after"
    faults = [Fault(when, "launcher killed", seconds=near(draw, 0.2, 5.0))]
    if draw.random() < 0.5:
        faults.append(launcher_fault(draw, nodes, faults))
    if draw.random() < 0.3:
        what = one(draw, "kill, preempted, submission lost")
        faults.append(Fault(near(draw, 0.3, 6.0), what, slot=draw.randrange(nodes)))
    return of(schedule, launch, *faults)


def _a_person_ends_it(draw: random.Random, schedule: Schedule) -> Schedule:
    """A launcher gets one signal or two, at any moment."""
    before, nodes = schedule.launches[0], draw.randint(1, 4)
    launch = shaped(draw, nodes, here=before.here, owns_registry=before.owns_registry)
    when = draw.choice([draw.uniform(0.0, 1.5), draw.uniform(0.0, 12.0)])
    seconds = draw.choice([0.3, 3.0, 12.0])
    told = Fault(round(when, 3), "launcher told", slot=draw.randrange(2), seconds=seconds)
    faults = [replace(told, count=draw.randint(1, 2))]
    if draw.random() < 0.6:
        kinds = "scheduler silent, cancel refused, submission lost, scheduler busy, "
        kinds += "registry pause, registry crash, slow stop, launcher paused"
        early = round(max(0.0, when - draw.uniform(0.0, 1.0)), 3)
        seconds = near(draw, 1.0, 15.0)
        slot, count = draw.randrange(nodes), draw.randint(1, 3)
        faults.append(Fault(early, one(draw, kinds), slot=slot, seconds=seconds, count=count))
    return of(schedule, launch, *faults)


def _the_registry_of_a_launch(draw: random.Random, schedule: Schedule) -> Schedule:
    """A launcher's own registry is killed again and again, or its disk is full for long."""
    nodes = draw.randint(1, 3)
    launch = shaped(draw, nodes, here=schedule.launches[0].here, owns_registry=True)
    faults = [
        Fault(near(draw, 0.2, 8.0), "registry crash", seconds=draw.choice([0.1, 1.0]))
        for _ in range(draw.randint(1, 7))
    ]
    if draw.random() < 0.4:
        when = near(draw, 0.0, 4.0)
        faults = [Fault(when, "disk full", seconds=draw.choice([2.0, 10.0, 70.0]))]
    if draw.random() < 0.3:
        when = near(draw, 0.0, 4.0)
        faults.append(Fault(when, "folder full", seconds=draw.choice([2.0, 10.0, 40.0])))
    return of(schedule, launch, *faults)


def _a_slow_end(draw: random.Random, schedule: Schedule) -> Schedule:
    """At the end the scheduler does not answer, ends nothing, or a node does not leave."""
    before, nodes = schedule.launches[0], draw.randint(1, 3)
    launch = shaped(draw, nodes, here=before.here, owns_registry=before.owns_registry)
    launch = replace(launch, program=tuple((2.0 + draw.random(), 0) for _ in range(nodes)))
    if draw.random() < 0.3:
        launch = replace(launch, program=((1.0, 3), *launch.program[1:]))
    kinds = "scheduler silent, cancel refused, pause, slow stop, host down, folder full, "
    kinds += "launcher paused, logs hang, registry pause"
    faults = []
    for _ in range(draw.randint(1, 2)):
        when = one(draw, "exited 1 before, exited 1 after, left 1 after")
        what, slot = one(draw, kinds), draw.randrange(nodes)
        seconds = round(draw.choice([3.0, 30.0, 90.0]) * draw.uniform(0.5, 1.0), 3)
        faults.append(Fault(when, what, slot=slot, seconds=seconds))
    return of(schedule, launch, *faults)


LAUNCH_SITUATIONS = situations(globals(), twice=(_one_after_the_other, _a_person_ends_it))


# --- what is rare, and needs its own preparation --------------------------------------------------

_WITH_SCHEDULERS = """
cancel refused, list lags, scheduler busy, scheduler hangs, scheduler lies, scheduler silent,
submission lost, submission slow, submission unsure, preempted
"""


def _seen_by(draw: random.Random, nodes: int, **changes: Any) -> Launch:
    """A launch of any kind, whose scheduler mostly can look for what it has."""
    here, owns, finds = draw.random() < 0.4, draw.random() < 0.5, draw.random() < 0.8
    kind = {"here": here, "owns_registry": owns, "finds": finds}
    return shaped(draw, nodes, **(kind | changes))


def _one_of(draw: random.Random, *times: float | str) -> float | str:
    return draw.choice(times)


def _of_schedulers(draw: random.Random, nodes: int, when: float) -> Fault:
    """What a scheduler does about that time."""
    early = round(max(0.0, when + draw.uniform(-1.5, 0.5)), 3)
    what, slot = one(draw, _WITH_SCHEDULERS), draw.randrange(nodes)
    seconds = round(draw.choice([1.5, 6.0, 30.0]) * draw.uniform(0.4, 1.0), 3)
    return Fault(early, what, slot=slot, seconds=seconds, count=draw.randint(1, 3))


def _told_to_end(draw: random.Random, when: float | str) -> Fault:
    """A person ends a launcher, and may say so twice, or thrice."""
    seconds = draw.choice([0.3, 1.0, 3.0, 9.0])
    count = draw.choice([1, 1, 2, 3])
    return Fault(when, "launcher told", slot=draw.randrange(2), seconds=seconds, count=count)


def _without_ids(back: float, nodes: int) -> list[Fault]:
    """A launcher is killed before it has heard which ids its worker runs have."""
    slow = Fault(0.0, "submission slow", seconds=20.0, count=nodes)
    return [slow, Fault(0.8, "launcher killed", seconds=back)]


def _launched_again_otherwise(draw: random.Random, schedule: Schedule) -> Schedule:
    """A killed launcher's command is given again, and not quite the same."""
    nodes = draw.randint(1, 3)
    again = draw.choice(("options", "size", "size", "scheduler", "gone", "host", "port", ""))
    launch = _seen_by(draw, nodes, again=again, owns_registry=draw.random() < 0.85)
    launch = replace(launch, boot=some(draw, nodes, 0.2, 6.0, 6.0))
    when = near(draw, 1.0, 5.0)
    back = near(draw, 5.0, 8.0) if again == "host" else near(draw, 0.3, 5.0)
    faults = [Fault(when, "launcher killed", seconds=back)]
    if draw.random() < 0.35:
        faults.append(Fault(when, "port held", seconds=draw.choice([2.0, 16.0])))
    if draw.random() < 0.5:
        faults.append(_of_schedulers(draw, nodes, when + back))
    if draw.random() < 0.35:
        later = round(when + back + draw.choice([draw.uniform(0.3, 0.5), draw.uniform(0, 2)]), 3)
        kind = one(draw, "registry crash, registry pause, registry ill, registry ill")
        early = later if kind != "registry ill" else round(when + 0.1, 3)
        what = Fault(early, kind, seconds=round(back + draw.choice([2.0, 12.0]), 3))
        faults.append(draw.choice([what, what, _told_to_end(draw, later)]))
    if draw.random() < 0.1:
        faults.append(Fault(when, "part breaks", count=draw.choice([3, 4, 5, 6, 7])))
    if draw.random() < 0.1:
        launch = replace(launch, finds=False, here=False, again=one(draw, "options, size"))
        return of(schedule, launch, *_without_ids(back, nodes))
    return of(schedule, launch, *faults)


def _ended_by_hand(draw: random.Random, schedule: Schedule) -> Schedule:
    """A launcher is killed and nobody launches again: a person ends what it has left."""
    nodes = draw.randint(1, 3)
    launch = _seen_by(draw, nodes)
    when = _one_of(draw, 0.2, 1.0, 3.0, f"slot {draw.randint(1, 2 * nodes)} after")
    by_hand = near(draw, 3.0, 8.0)
    faults = [Fault(when, "launcher killed", seconds=0.0), Fault(by_hand, "cleared", seconds=30.0)]
    if draw.random() < 0.7:
        faults.append(_of_schedulers(draw, nodes, draw.choice([0.5, by_hand])))
    if draw.random() < 0.3:
        faults.append(Fault(by_hand - 1.0, "part breaks", count=draw.choice([4, 5])))
    if draw.random() < 0.3:
        return of(schedule, replace(launch, finds=False), *_without_ids(0.0, nodes), faults[1])
    return of(schedule, launch, *faults)


def _ended_in_a_hurry(draw: random.Random, schedule: Schedule) -> Schedule:
    """A person has no patience with a scheduler that has none either."""
    nodes = draw.randint(1, 4)
    launch = _seen_by(draw, nodes, retries=1)
    if draw.random() < 0.6:
        launch = replace(launch, boot=some(draw, nodes, 0.3, 30.0))
    when = round(draw.choice([0.5, 2.0, 6.0, 9.0]) * draw.uniform(0.5, 1.0), 3)
    faults = [_told_to_end(draw, when)]
    if draw.random() < 0.4:
        faults.append(Fault(round(when + 0.1, 3), "scheduler hangs", seconds=30.0))
    for _ in range(draw.randint(1, 2)):
        faults.append(_of_schedulers(draw, nodes, draw.choice([0.4, when + 0.5])))
    if draw.random() < 0.3:
        faults.append(Fault(round(when - 0.1, 3), "registry pause", seconds=20.0))
    if draw.random() < 0.25:  # what was submitted has no id, and is not listed yet
        early = near(draw, 0.2, 0.8)
        slow = Fault(0.0, one(draw, "submission lost, submission slow"), seconds=30.0, count=nodes)
        faults = [Fault(0.0, "list lags", seconds=0.8), slow, _told_to_end(draw, early)]
    elif draw.random() < 0.15:  # what is queued for long cannot be ended
        launch = replace(launch, queue=(200.0,) * nodes, here=False)
        told = Fault(2.0, "launcher told", seconds=1.0)
        faults = [Fault(0.0, "cancel refused", count=draw.randint(1, 2)), told]
    return of(schedule, launch, *faults)


def _many_slots(draw: random.Random, schedule: Schedule) -> Schedule:
    """More slots than are submitted at once, most of which wait in a queue."""
    nodes = draw.randint(18, 21)
    launch = _seen_by(draw, nodes, verify=False, here=draw.random() < 0.5, join_timeout=20.0)
    launch = replace(launch, queue=(60.0,) * nodes, owns_registry=True)
    slow = Fault(0.0, one(draw, "submission slow, scheduler busy"), seconds=8.0, count=24)
    when = near(draw, 0.5, 12.0)
    faults = [slow, draw.choice([_told_to_end(draw, when), Fault(when, "cancelled")])]
    if draw.random() < 0.3:
        kill = Fault(round(when * 0.7, 3), "launcher killed", seconds=1.0)
        faults = [slow, kill, Fault(when + 4.0, "cancelled")]
    if draw.random() < 0.4:
        faults.append(_of_schedulers(draw, nodes, when))
    if draw.random() < 0.4:
        faults.append(Fault(0.1, "folder full", seconds=near(draw, 0.5, 6.0)))
    if draw.random() < 0.3:  # nobody answers a cancel
        faults = [slow, _told_to_end(draw, when)]
        faults.append(Fault(round(when - 0.1, 3), "registry pause", seconds=near(draw, 5.0, 15.0)))
    elif launch.here and draw.random() < 0.6:  # slot 0's node keeps its launcher after the end
        faults.append(Fault(round(when - 0.2, 3), "pause", seconds=20.0))
    return of(schedule, launch, *faults)


def _a_part_breaks(draw: random.Random, schedule: Schedule) -> Schedule:
    """Something fails of a launcher that nobody expected to fail."""
    launch = _seen_by(draw, draw.randint(1, 3))
    when = _one_of(draw, 0.0, near(draw, 0.2, 9.0), "exited 1 after", "left 1 after")
    faults = [Fault(when, "part breaks", count=draw.randint(1, 8))]
    if draw.random() < 0.3:
        faults.append(Fault(0.0, "port held", seconds=draw.choice([1.0, 16.0])))
    if draw.random() < 0.3:
        faults.append(_told_to_end(draw, near(draw, 0.3, 9.0)))
    if draw.random() < 0.3:
        killed = near(draw, 1.0, 4.0)
        faults.append(Fault(killed, "launcher killed", seconds=draw.choice([0.5, 2.0])))
    return of(schedule, launch, *faults)


def _equal_nodes(draw: random.Random, schedule: Schedule) -> Schedule:
    """All nodes come by themselves, at their own time; slot 0's has the registry."""
    nodes = draw.randint(2, 4)
    launch = shaped(draw, nodes, here=True, owns_registry=True, symmetric=True)
    boots = some(draw, nodes, 0.1, 1.0, 5.0, 15.0)
    programs = [(2.0 + draw.random(), draw.choice([0, 0, 0, 3])) for _ in range(nodes)]
    launch = replace(launch, boot=boots, program=tuple(programs))
    faults = []
    if draw.random() < 0.7:
        kinds = "kill, host down, refuses, sick, program fails, registry crash, sick, refuses"
        slot, what = draw.randrange(nodes), one(draw, kinds)
        when = 0.0 if what in ("sick", "refuses") else near(draw, 0.0, 8.0)
        faults = [Fault(when, what, slot=slot, seconds=1.0)]
    if draw.random() < 0.3:
        faults.append(_told_to_end(draw, near(draw, 0.3, 9.0)))
    return of(schedule, launch, *faults)


def _a_full_folder(draw: random.Random, schedule: Schedule) -> Schedule:
    """What a launch keeps in its folder cannot be written for a while."""
    nodes = draw.randint(2, 3)
    launch = _seen_by(draw, nodes, verify=draw.random() < 0.7)
    when = _one_of(draw, f"acked {nodes} before", "probed 1 after", "left 1 before", 0.0, 0.1)
    faults = [Fault(when, "folder full", seconds=draw.choice([1.5, 4.0, 30.0]))]
    if draw.random() < 0.5:
        faults.append(Fault(0.0, one(draw, "sick, unreachable"), slot=nodes - 1))
    return of(schedule, launch, *faults)


def _without_a_registry(draw: random.Random, schedule: Schedule) -> Schedule:
    """A launcher's registry is away: at the creation, at the end, or for good."""
    nodes = draw.randint(1, 3)
    launch = _seen_by(draw, nodes, retries=1)
    launch = replace(launch, owns_registry=draw.random() < 0.5)
    when = _one_of(draw, 0.0, near(draw, 0.0, 8.0), "exited 1 after", "left 1 before")
    what = one(draw, "registry crash, registry crash, registry pause, disk full")
    seconds = draw.choice([0.0 if what == "registry crash" else 90.0, 6.0, 25.0, 80.0])
    faults = [Fault(when, what, seconds=seconds)]
    if draw.random() < 0.15:
        full = Fault(near(draw, 0.35, 1.5), "disk full", seconds=90.0)
        return of(schedule, replace(launch, boot=(2.0,) * nodes), full)
    if draw.random() < 0.2:  # no node asks for the run until it is forgotten
        paused = Fault("exited 1 after", "launcher paused", seconds=40.0)
        forgotten = of(schedule, replace(launch, owns_registry=False), paused)
        return replace(forgotten, keep_finished=2.0)
    if what == "registry crash" and draw.random() < 0.4:
        faults += [Fault(at, what, seconds=0.1) for at in [near(draw, 0.5, 12.0) for _ in range(5)]]
    if draw.random() < 0.5:
        then = when if isinstance(when, str) else after(draw, when, 0.0, 5.0)
        faults.append(_told_to_end(draw, then))
    if draw.random() < 0.25:  # it goes when the result is known, and a node has not left
        program = ((2.0, 3), (20.0, 0), (20.0, 0))
        launch = replace(shaped(draw, 3, here=launch.here, owns_registry=True), program=program)
        faults = [
            Fault("left 1 after", "pause", slot=1, seconds=20.0),
            Fault("left 1 after", "registry ill", seconds=30.0),
            Fault("left 1 after", "registry crash", seconds=0.1),
            Fault(0.0, "slow stop", slot=1, seconds=8.0),
        ]
    return of(schedule, launch, *faults)


def _replaced_at_the_go(draw: random.Random, schedule: Schedule) -> Schedule:
    """A worker run is given up, and the run goes on without its slot, as it is submitted again."""
    nodes = draw.randint(2, 4)
    launch = _seen_by(draw, nodes, least=draw.randint(1, nodes - 1), verify=False, retries=2)
    launch = late(replace(launch, owns_registry=False), draw.choice([0.3, 4.0, 9.0]))
    slot = nodes - 1
    if draw.random() < 0.4:  # it is lost before its submission is answered
        slow = Fault(0.0, "submission slow", seconds=draw.choice([6.0, 12.0, 30.0]), count=nodes)
        faults = [slow, Fault(near(draw, 1.0, 5.0), one(draw, "kill, term"), slot=slot)]
        if draw.random() < 0.5:
            faults.append(_told_to_end(draw, near(draw, 2.0, 12.0)))
        return of(schedule, replace(launch, owns_registry=draw.random() < 0.5), *faults)
    kinds = [
        Fault(0.0, "submission lost", count=nodes),
        Fault(0.0, "submission unsure", count=nodes),
        Fault(3.0, "scheduler lies", slot=slot, seconds=6.0, count=2),
        Fault(near(draw, 1.0, 5.0), "kill", slot=slot),
    ]
    faults, when, seconds = [draw.choice(kinds)], near(draw, 0.2, 5.0), near(draw, 1.0, 5.0)
    faults.append(Fault(when, "late", slot=-1, seconds=seconds, count=draw.randint(4, 30)))
    if draw.random() < 0.5:
        faults.append(_of_schedulers(draw, nodes, draw.uniform(0.5, 6.0)))
    return of(schedule, launch, *faults)


def _taken_up_late(draw: random.Random, schedule: Schedule) -> Schedule:
    """A launcher comes back, and what it is to take up is not found, or not yet, or is over."""
    nodes = draw.randint(1, 3)
    launch = _seen_by(draw, nodes, retries=draw.choice([1, 2]))
    launch = replace(launch, boot=some(draw, nodes, 0.3, 5.0, 9.0))
    when: float | str = f"slot {draw.randint(1, 3 * nodes)} {one(draw, 'before, after')}"
    if draw.random() < 0.4:
        when = near(draw, 0.3, 4.0)
    faults = [Fault(when, "launcher killed", seconds=near(draw, 0.3, 3.0))]
    if draw.random() < 0.3:
        faults.append(Fault(0.0, "list lags", seconds=near(draw, 2.0, 8.0)))
    if draw.random() < 0.3:
        faults.append(Fault(0.1, "folder full", seconds=near(draw, 0.5, 3.0)))
    for _ in range(draw.randint(1, 2)):
        faults.append(_of_schedulers(draw, nodes, draw.choice([0.3, 2.0, 4.0])))
    if draw.random() < 0.4:
        faults.append(Fault(near(draw, 1.0, 9.0), "kill", slot=draw.randrange(nodes)))
    if draw.random() < 0.3:
        faults.append(_told_to_end(draw, near(draw, 2.0, 9.0)))
    return of(schedule, launch, *faults)


ODD_LAUNCHES = situations(globals(), besides=LAUNCH_SITUATIONS, twice=(_launched_again_otherwise,))


# --- of later seeds -------------------------------------------------------------------------------


def _created_late(draw: random.Random, schedule: Schedule) -> Schedule:
    """The registry is away for long before it creates the run."""
    launch = _seen_by(draw, draw.randint(1, 3))
    kinds = "disk full" if launch.owns_registry else "disk full, registry crash"
    seconds = round(draw.choice([8.0, 15.0, 55.0, 80.0]) * draw.uniform(0.9, 1.1), 3)
    return of(schedule, launch, Fault(0.0, one(draw, kinds), seconds=seconds))


def _queued_for_long(draw: random.Random, schedule: Schedule) -> Schedule:
    """The queue is longer than the join time-out; what is queued may have no id."""
    nodes = draw.randint(1, 4)
    launch = _seen_by(draw, nodes, retries=draw.choice([1, 2]))
    launch = replace(launch, queue=some(draw, nodes, 0.5, 30.0, 45.0, 70.0))
    if draw.random() < 0.3:
        return of(schedule, launch)
    kind = one(draw, "submission lost, submission lost, submission slow, preempted")
    when = 0.0 if kind != "preempted" else near(draw, 1.0, 20.0)
    slot, seconds = draw.randrange(nodes), draw.choice([3.0, 15.0])
    return of(schedule, launch, Fault(when, kind, slot=slot, seconds=seconds))


def _killed_with_its_registry(draw: random.Random, schedule: Schedule) -> Schedule:
    """The machine of launcher and registry fails: neither can tell anybody before the next one."""
    nodes, again = draw.randint(1, 3), draw.choice(["", "", "port", "options", "size", "scheduler"])
    launch = _seen_by(draw, nodes, owns_registry=True, again=again, seconds=20.0, retries=1)
    launch = replace(launch, boot=some(draw, nodes, 0.3, 0.3, 9.0))
    when = round(draw.choice([draw.uniform(1.0, 4.0), draw.uniform(4.0, 18.0)]), 3)
    killed = Fault(when, "launcher killed", seconds=near(draw, 0.3, 6.0))
    return of(schedule, launch, Fault(when, "registry crash", seconds=0.1), killed)


def _its_port_is_held(draw: random.Random, schedule: Schedule) -> Schedule:
    """A launcher comes back while its former registry, or another program, has its port."""
    nodes = draw.randint(1, 3)
    launch = _seen_by(draw, nodes, owns_registry=True, again=draw.choice(["", "", "port"]))
    launch = replace(launch, boot=some(draw, nodes, 0.3, 8.0, 8.0))
    when = near(draw, 0.8, 4.0)
    kind, seconds = one(draw, "port held, registry pause"), near(draw, 1.0, 6.0)
    killed = Fault(when, "launcher killed", seconds=near(draw, 0.05, 2.0))
    return of(schedule, launch, Fault(when - 0.1, kind, seconds=seconds), killed)


def _full_while_forming(draw: random.Random, schedule: Schedule) -> Schedule:
    """The journal's disk is full for long, once all worker runs run whose nodes are to come."""
    nodes = draw.randint(1, 3)
    launch = _seen_by(draw, nodes, retries=1, verify=False)
    launch = replace(launch, boot=(6.0,) * nodes, join_timeout=draw.choice([20.0, 300.0]))
    full = Fault(near(draw, 3.0, 5.5), "disk full", seconds=draw.choice([20.0, 150.0]))
    return of(schedule, launch, full)


def _called_over_and_hangs(draw: random.Random, schedule: Schedule) -> Schedule:
    """A scheduler is wrong of a node that is there, and that later has to be ended."""
    nodes = draw.randint(2, 3)
    launch = _seen_by(draw, nodes, here=False, verify=False, seconds=15.0)
    slot = draw.randrange(1, nodes)
    lie = Fault(8.0, "scheduler lies", slot=slot, seconds=4.0, count=draw.choice([2, 2, 1]))
    kind = one(draw, "pause, slow stop, host down")
    return of(schedule, launch, lie, Fault(near(draw, 13.0, 16.0), kind, slot=slot, seconds=90.0))


def _many_slots_end_well(draw: random.Random, schedule: Schedule) -> Schedule:
    """More slots than are submitted at once, none of which is disturbed."""
    launch = _seen_by(draw, draw.randint(17, 20), verify=False, finds=True)
    return of(schedule, replace(launch, join_timeout=30.0))


_BEFORE = [*LAUNCH_SITUATIONS, *ODD_LAUNCHES]
LATER_LAUNCHES = situations(globals(), besides=_BEFORE, twice=(_killed_with_its_registry,))


def while_the_registry_starts(draw: random.Random, schedule: Schedule) -> Schedule:
    """A person ends the launch while its registry starts, for the first time or again."""
    nodes, takes = draw.randint(1, 3), near(draw, 0.3, 4.0)
    launch = shaped(draw, nodes, owns_registry=True, registry_takes=takes)
    launch = replace(launch, here=draw.random() < 0.5)
    when, faults = near(draw, 0.0, takes + 0.5), list[Fault]()
    if draw.random() < 0.5:
        crash = near(draw, takes, takes + 6.0)
        faults.append(Fault(crash, "registry crash", seconds=near(draw, 0.05, 1.0)))
        when = round(crash + when, 3)
    ends = Fault(when, one(draw, "launcher told, launcher told, launcher killed, cancelled"))
    seconds = near(draw, 0.1, 6.0)
    ends = replace(ends, slot=draw.randrange(2), seconds=seconds, count=draw.randint(1, 2))
    return of(schedule, launch, *faults, ends)
