"""Situations that nothing else leads to: a launch of a certain shape, and what goes wrong."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation.drawing import (
    after,
    draw_ranks,
    late,
    near,
    of,
    one,
    shaped,
    situations,
    slower,
    some,
)
from tests.simulation.schedule import Fault, Schedule


def _failures_close_together(draw: random.Random, schedule: Schedule) -> Schedule:
    """Some programs fail within the verdict's time, one takes long to stop, one may be killed."""
    nodes = draw.randint(3, 6)
    launch = shaped(draw, nodes, led=draw.random() < 0.1, seconds=12.0)
    slots = draw.sample(range(nodes), nodes)
    when = draw.uniform(3.5, 5.0)
    faults = [Fault(0.0, "slow stop", slot=slots[-1], seconds=near(draw, 3.0, 8.0))]
    for slot in slots[: draw.randint(1, 2)]:
        if draw.random() < 0.6:
            faults.append(Fault(0.0, "slow exit", slot=slot, seconds=near(draw, 0.2, 2.0)))
        faults.append(Fault(round(when, 3), "program fails", slot=slot, count=draw.randint(1, 3)))
        when += draw.uniform(0.0, 0.3)
    if draw.random() < 0.5:
        then = after(draw, when, 0.2, 1.5)
        faults.append(Fault(then, one(draw, "kill, cancelled"), slot=slots[-2]))
    return of(schedule, launch, *faults)


def _a_silent_first_cause(draw: random.Random, schedule: Schedule) -> Schedule:
    """A host goes without a word, and its peers fail of it."""
    nodes = draw.randint(2, 5)
    launch = shaped(draw, nodes, seconds=draw.choice([8.0, 20.0, 30.0]))
    first, second = draw.sample(range(nodes), 2)
    when = draw.uniform(3.0, 5.0)
    later = after(draw, when, 0.1, 10.0)
    silent = Fault(round(when, 3), one(draw, "host down, pause"), slot=first, seconds=30.0)
    faults = [silent, Fault(later, "program fails", slot=second, count=draw.randint(1, 3))]
    if draw.random() < 0.3:
        faults.append(Fault(after(draw, later, 0.1, 1.5), "registry crash", seconds=1.0))
    return of(schedule, launch, *faults)


def _one_comes_back(draw: random.Random, schedule: Schedule) -> Schedule:
    """A node that was lost comes back with its end while the verdict waits for another one."""
    nodes = draw.randint(2, 5)
    launch = shaped(draw, nodes, seconds=draw.choice([6.0, 12.0]), lease=15.0)
    first, second = draw.sample(range(nodes), 2)
    when = draw.uniform(2.5, 4.0)
    cut = Fault(round(when, 3), "cut", slot=first, seconds=near(draw, 15.0, 18.0))
    pause = Fault(after(draw, when, 1.5, 5.0), "pause", slot=second, seconds=40.0)
    return of(schedule, launch, cut, pause)


def _left_out_and_lost(draw: random.Random, schedule: Schedule) -> Schedule:
    """The nodes gather again, and one that the table went without is lost meanwhile."""
    nodes = draw.randint(2, 4)
    launch = shaped(draw, nodes, spares=1, retries=draw.choice([1, 2]))
    when = draw.uniform(2.5, 4.0)
    kill = Fault(round(when, 3), "kill", slot=draw.randrange(1, nodes))
    then = Fault(after(draw, when, 0.0, 0.8), "kill", slot=nodes)
    return of(schedule, launch, Fault(0.0, "slow arm", seconds=9.0), kill, then)


def _an_end_before_the_others(draw: random.Random, schedule: Schedule) -> Schedule:
    """A program ends well and early; then its agent goes, maybe while the registry is away."""
    nodes = draw.randint(2, 4)
    launch = shaped(draw, nodes, seconds=draw.choice([5.0, 25.0]))
    slot = draw.randrange(nodes)
    programs = (*launch.program[:slot], (1.0, 0), *launch.program[slot + 1 :])
    gone = one(draw, "kill, host down, pause")
    faults = [Fault("exited 1 after", gone, slot=slot, seconds=30.0)]
    if draw.random() < 0.5:
        faults.append(Fault("exited 1 after", "registry crash", seconds=1.0))
    elif draw.random() < 0.7:  # what its launcher had said before comes once more
        for _ in range(4):
            faults.append(Fault(near(draw, 3.0, 8.0), "echo", slot=-1, count=draw.randint(1, 15)))
    return of(schedule, replace(launch, program=programs), *faults)


def _spares_step_in(draw: random.Random, schedule: Schedule) -> Schedule:
    """A node of the table cannot start, or is late; there are spares, or fewer are enough."""
    nodes = draw.randint(2, 4)
    least = draw.randint(1, nodes)
    launch = shaped(draw, nodes, spares=draw.choice([0, 1, 1, 2]), least=least)
    faults = []
    for slot in draw.sample(range(launch.slots), draw.randint(1, 2)):
        what = one(draw, "hosts refused, slow arm, sick, network cut, unreachable")
        faults.append(Fault(0.0, what, slot=slot, seconds=14.0))
    if draw.random() < 0.4:
        when = f"joined {launch.slots} after"
        faults.append(Fault(when, "stuck", slot=draw.randrange(launch.slots)))
    if draw.random() < 0.3:
        launch = replace(launch, networks=2)
    if draw.random() < 0.3:
        for slot in draw.sample(range(launch.slots), 2):
            faults.append(Fault(near(draw, 1.0, 8.0), one(draw, "kill, preempted"), slot=slot))
    return of(schedule, launch, *faults)


def _latecomers(draw: random.Random, schedule: Schedule) -> Schedule:
    """Fewer than all are enough, and some come during the last call, while arming, or later."""
    nodes = draw.randint(2, 5)
    launch = shaped(draw, nodes, least=draw.randint(1, nodes), spares=draw.choice([0, 0, 1]))
    boots = some(draw, launch.slots, 0.1, 2.5, 3.2, 4.5, 6.0, 12.0, 40.0)
    if draw.random() < 0.8:
        boots = (0.1, *boots[1:])
    launch = replace(launch, boot=tuple(after(draw, boot, 0, 0.5) for boot in boots))
    faults = []
    if draw.random() < 0.5:
        faults.append(Fault(0.0, "slow arm", slot=0, seconds=near(draw, 2.0, 10.0)))
    if draw.random() < 0.3:
        when, seconds = near(draw, 3.0, 12.0), near(draw, 3.0, 9.0)
        slot = max(range(launch.slots), key=lambda slot: launch.boot[slot])
        faults.append(Fault(when, "scheduler lies", slot=slot, seconds=seconds, count=3))
    for _ in range(draw.choice([0, 0, 1, 2])):
        what = one(draw, "kill, sick, sick, refuses, preempted, term")
        when = near(draw, 0.0, 5.0) if what not in ("sick", "refuses") else 0.0
        faults.append(Fault(when, what, slot=draw.randrange(nodes), count=draw.randint(1, 2)))
    return of(schedule, launch, *faults)


def _failing_before_the_go(draw: random.Random, schedule: Schedule) -> Schedule:
    """Worker runs fail once and again before the go."""
    nodes = draw.randint(2, 4)
    launch = shaped(draw, nodes, least=draw.randint(1, nodes), spares=draw.choice([0, 0, 1]))
    slot = draw.choice([0, draw.randrange(nodes)])
    kinds = "kill, preempted, term, refuses, submission fails, host down"
    faults = [
        Fault(near(draw, 0.3, 6.0), one(draw, kinds), slot=slot, count=draw.randint(1, 2))
        for _ in range(draw.randint(1, 4))
    ]
    if draw.random() < 0.4:
        faults.append(Fault(0.0, "refuses", slot=slot, count=draw.randint(1, 2)))
        faults.append(Fault(0.0, one(draw, "doubled, twin"), slot=slot, count=5))
    if draw.random() < 0.3:
        faults.append(Fault(0.3, "late", slot=-1, seconds=2.0, count=12))
    if draw.random() < 0.2:
        faults.append(Fault(near(draw, 0.5, 7.0), "launcher killed", seconds=0.0))
    return of(schedule, slower(launch, 6.0), *faults)


def _led(draw: random.Random, schedule: Schedule) -> Schedule:
    """Of a led run a node goes, when its leader is about to end; another takes long to stop."""
    nodes = draw.randint(3, 4)
    launch = shaped(draw, nodes, led=True, seconds=3.0)
    first, second = draw.sample(range(1, nodes), 2)
    slow = [Fault(0.0, "slow stop", slot=slot, seconds=6.0) for slot in (0, second)]
    when = after(draw, launch.leader_ends, -0.5, -2.5)
    return of(schedule, launch, *slow, Fault(when, one(draw, "kill, term"), slot=first))


def _taken_ports(draw: random.Random, schedule: Schedule) -> Schedule:
    """The master port is taken a few times."""
    launch = shaped(draw, draw.randint(1, 3), free_port=draw.choice([None, 29_511]))
    if draw.random() < 0.3:
        launch = replace(launch, port=29_777)
    taken = Fault(0.0, "port taken", seconds=draw.choice([0.0, 1.0]), count=draw.randint(1, 4))
    return of(schedule, launch, taken)


def _most_are_silent(draw: random.Random, schedule: Schedule) -> Schedule:
    """Most nodes are cut off, stopped or gone together; the registry is not."""
    nodes = draw.randint(4, 6)
    launch = shaped(draw, nodes, seconds=40.0, lease=draw.choice([5.0, 15.0]))
    what = one(draw, "cut, host down, pause, cut")
    count, when = draw.randint(2, nodes), draw.uniform(3.0, 8.0)
    seconds = round(launch.lease * draw.choice([draw.uniform(1.2, 2.5), 5.0]), 3)
    faults = [
        Fault(after(draw, when, 0, 0.5), what, slot=slot, seconds=seconds)
        for slot in draw.sample(range(nodes), count)
    ]
    if draw.random() < 0.4:
        later = after(draw, when, 0.5, 4.0)
        faults.append(Fault(later, "program fails", slot=draw.randrange(nodes)))
    return of(schedule, launch, *faults)


def _death_and_cancel(draw: random.Random, schedule: Schedule) -> Schedule:
    """Somebody cancels a run of which a node has just died."""
    nodes = draw.randint(2, 4)
    launch = shaped(draw, nodes, seconds=8.0)
    when = draw.uniform(3.0, 5.0)
    death = Fault(round(when, 3), one(draw, "kill, kill, term"), slot=draw.randrange(nodes))
    return of(schedule, launch, death, Fault(after(draw, when, 0.1, 1.2), "cancelled"))


def _long_queues(draw: random.Random, schedule: Schedule) -> Schedule:
    """Slots wait in the scheduler's queue for minutes, and may lose their launcher."""
    nodes = draw.randint(1, 3)
    launch = shaped(draw, nodes, least=draw.randint(1, nodes), join_timeout=20.0)
    queues = [*some(draw, nodes, 0.3, 15.0, 170.0, 200.0)]
    queues[draw.randrange(nodes)] = 170.0
    launch = replace(launch, queue=tuple(queues), boot=some(draw, nodes, 0.2, 15.0, 25.0))
    if draw.random() >= 0.5:
        return of(schedule, launch)
    killed, when = Fault(10.0, "launcher killed", seconds=0.0), near(draw, 12.0, 100.0)
    return of(schedule, launch, killed, Fault(when, "preempted", slot=queues.index(170.0)))


def _a_twin(draw: random.Random, schedule: Schedule) -> Schedule:
    """A second node has the token of a live one, which is hung up on, or is slow."""
    nodes = draw.randint(2, 4)
    launch = slower(shaped(draw, nodes, lease=draw.choice([5.0, 15.0, 24.0])), 9.0)
    slot, when = draw.randrange(nodes - 1), near(draw, 1.5, 5.0)
    what = one(draw, "hung up, pause, kill, cut, refuses")
    seconds = round(launch.lease * draw.uniform(0.05, 1.1), 3)
    faults = [Fault(after(draw, when, -0.5, 0.5), what, slot=slot, seconds=seconds)]
    faults.append(Fault(when, "twin", slot=slot))
    if draw.random() < 0.4:
        faults.append(Fault(0.0, "slow arm", slot=nodes - 1, seconds=11.0))
        launch = replace(launch, boot=tuple(min(boot, 0.5) for boot in launch.boot))
    return of(schedule, launch, *faults)


def _a_second_generation(draw: random.Random, schedule: Schedule) -> Schedule:
    """A worker run's submission looks refused, or its end is false: two of them live."""
    nodes = draw.randint(2, 4)
    launch = slower(shaped(draw, nodes, retries=draw.choice([1, 2])), 6.0)
    slot = draw.randrange(nodes)
    kinds = [
        Fault(0.0, "submission lost", count=draw.randint(1, nodes)),
        Fault(near(draw, 0.3, 5.0), "scheduler lies", slot=slot, seconds=6.0, count=2),
        Fault(near(draw, 0.3, 5.0), "launcher killed", seconds=1.0),
        Fault(0.0, "submission unsure", count=draw.randint(1, nodes)),
    ]
    faults = [draw.choice(kinds)]
    if draw.random() < 0.4:
        faults.append(Fault(0.0, "slow arm", slot=draw.randrange(nodes), seconds=9.0))
        launch = replace(launch, boot=tuple(min(boot, 0.5) for boot in launch.boot))
    if draw.random() < 0.5:
        what = one(draw, "kill, host down, term, refuses, pause")
        faults.append(Fault(near(draw, 0.5, 6.0), what, slot=slot, seconds=9.0, count=2))
    return of(schedule, launch, *faults)


def _an_outage_ends(draw: random.Random, schedule: Schedule) -> Schedule:
    """A node is not heard of for some polls, or the registry stood still; connections close."""
    nodes = draw.randint(2, 4)
    launch = shaped(draw, nodes, seconds=30.0)
    slot, when = draw.randrange(nodes), near(draw, 3.0, 6.0)
    if draw.random() < 0.5:
        seconds, what = near(draw, 6.5, 11.0), one(draw, "kill, pause, hung up")
        outage = Fault(when, "pause", slot=slot, seconds=seconds)
        end = Fault(after(draw, when + seconds, -0.1, -2.0), what, slot=slot, seconds=15.0)
    else:
        outage = Fault(when, "registry pause", seconds=near(draw, 3.0, 12.0))
        end = Fault(after(draw, when, 0.0, 3.0), "hung up", slot=slot)
    return of(schedule, launch, outage, end)


def _a_former_launch(draw: random.Random, schedule: Schedule) -> Schedule:
    """A run ends while a node of it is not heard of, and another launch takes its name."""
    nodes = draw.randint(2, 3)
    launch = shaped(draw, nodes, seconds=2.0, retries=0)
    second = shaped(draw, nodes, at=draw.choice([8.0, 12.0, 20.0]), retries=0)
    slot, when = draw.randrange(nodes), draw.choice([2.0, 4.0])
    faults = (
        Fault(when, one(draw, "pause, cut"), slot=slot, seconds=near(draw, 8, 30)),
        Fault(when, "launcher killed", seconds=0.0),
        Fault(after(draw, when, 0.5, 3.0), "cancelled"),
    )
    keep = draw.choice([3_600.0, 3_600.0, 2.0])
    return replace(schedule, launches=(launch, second), faults=faults, keep_finished=keep)


def _nothing_wrong(draw: random.Random, schedule: Schedule) -> Schedule:
    """Only where and how the nodes stand is odd."""
    nodes = draw.randint(3, 6)
    launch = shaped(draw, nodes, subnets=draw.choice([1, 2]), least=draw.randint(1, nodes))
    launch = replace(launch, ranks=draw_ranks(draw, nodes), led=draw.random() < 0.2)
    if draw.random() < 0.5:
        slot = draw.randrange(1, nodes)
        launch = replace(launch, boot=(*launch.boot[:slot], 30.0, *launch.boot[slot + 1 :]))
    return replace(of(schedule, launch), keep_finished=draw.choice([3_600.0, 2.0]))


SITUATIONS = situations(globals())


def _cancelled_early(draw: random.Random, schedule: Schedule) -> Schedule:
    """Somebody cancels while what the launcher says is on its way."""
    launch = shaped(draw, draw.randint(1, 4))
    slow = Fault(0.0, "late", slot=-1, seconds=near(draw, 1.0, 4.0), count=12)
    return of(schedule, launch, slow, Fault(near(draw, 0.3, 3.0), "cancelled"))


def _nobody_submits(draw: random.Random, schedule: Schedule) -> Schedule:
    """A node is lost while the others are awaited, and its launcher is gone."""
    nodes = draw.randint(2, 3)
    launch = late(shaped(draw, nodes, retries=2), 14.0)
    killed, when = Fault(1.5, "launcher killed", seconds=0.0), near(draw, 2.0, 8.0)
    lost = Fault(when, one(draw, "kill, term"), slot=draw.randrange(nodes - 1))
    return of(schedule, launch, killed, lost)


def _back_in_the_queue(draw: random.Random, schedule: Schedule) -> Schedule:
    """A worker run is queued again that was said to run, and never comes."""
    nodes = draw.randint(1, 3)
    launch = late(shaped(draw, nodes), 60.0)
    when, seconds = near(draw, 3.0, 12.0), near(draw, 3.0, 9.0)
    lie = Fault(when, "scheduler lies", slot=nodes - 1, seconds=seconds, count=3)
    return of(schedule, launch, lie)


def _sick_and_refusing(draw: random.Random, schedule: Schedule) -> Schedule:
    """One node is sick and another one refuses for good; just enough others are there, or not."""
    nodes = draw.randint(3, 5)
    launch = shaped(draw, nodes, least=nodes - draw.randint(1, 2))
    sick, refusing = draw.sample(range(1, nodes), 2)
    faults = [Fault(0.0, "sick", slot=sick), Fault(0.0, "refuses", slot=refusing)]
    if draw.random() < 0.3:  # it says so twice, before its launcher has submitted it again
        faults = [
            Fault(0.0, "refuses", slot=refusing, count=2),
            Fault(0.0, "doubled", slot=refusing, count=5),
            Fault(0.0, "late", slot=refusing, seconds=0.3, count=8),
            Fault(0.4, "late", slot=-1, seconds=1.0, count=12),
        ]
    return of(schedule, launch, *faults)


def _two_networks(draw: random.Random, schedule: Schedule) -> Schedule:
    """Nodes do not reach each other on the first network, and maybe some not on the other."""
    nodes = draw.randint(3, 5)
    launch = shaped(draw, nodes, least=draw.randint(1, nodes), networks=2, verify=True)
    kinds = draw.choice([["network cut"], ["network cut", "unreachable"], ["unreachable"]])
    slots = draw.sample(range(nodes), len(kinds))
    faults = [Fault(0.0, what, slot=slot) for what, slot in zip(kinds, slots, strict=True)]
    return of(schedule, launch, *faults)


def _another_table(draw: random.Random, schedule: Schedule) -> Schedule:
    """A node acknowledges a table that is not the run's."""
    nodes = draw.randint(1, 4)
    return of(schedule, shaped(draw, nodes), Fault(0.0, "other table", slot=draw.randrange(nodes)))


RARE_SITUATIONS = situations(globals(), besides=SITUATIONS)
