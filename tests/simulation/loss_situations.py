"""Situations of runs that outlive their nodes: who is lost, when, and who comes in its place."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from tests.simulation.drawing import near, of, one, shaped, situations
from tests.simulation.schedule import Fault, Launch, Schedule

_DIES = "kill, kill, host down, preempted"
_HURT = "kill, kill, host down, preempted, cut, cut, pause, term, cut up, cut down, started anew"
_ON_PATHS = "request lost, answer lost, doubled, late, hung up, echo, cut, forgotten, loss"
_ON_ALL = "registry crash, registry crash, registry pause, disk full, disk lies, disk slow"
_OF_SCHEDULERS = """
scheduler busy, scheduler silent, scheduler lies, list lags, cancel refused, submission fails,
submission lost, submission unsure, submission slow, scheduler hangs
"""
_BY_PEOPLE = "cancelled, restarted by hand, launcher killed, launcher told, launcher paused"
_SECONDS = {"pause": 30.0, "registry pause": 8.0, "registry crash": 5.0, "late": 4.0, "cut": 30.0}
_SECONDS |= {"cut up": 30.0, "cut down": 30.0, "loss": 10.0, "scheduler lies": 10.0}
_COUNTS = {"echo": 30, "doubled": 5, "late": 6, "loss": 60, "scheduler lies": 3}


def with_losses(draw: random.Random, schedule: Schedule) -> Schedule:
    """The schedule as it is, but that its run outlives nodes; or one that is about that."""
    if draw.random() >= 0.25:
        return draw.choice(LOSING)(draw, replace(schedule, keep_finished=3_600.0))
    launches = tuple(_outliving(draw, launch) for launch in schedule.launches)
    faults = list(schedule.faults)
    for _ in range(draw.choice([0, 1, 1, 2])):
        index = draw.randrange(len(launches))
        when = near(draw, 1.0, 9.0)
        faults.append(replace(_hurts(draw, when, launches[index].slots, _HURT), launch=index))
    return replace(schedule, launches=launches, faults=tuple(faults))


def _outliving(draw: random.Random, launch: Launch) -> Launch:
    """The launch, with whatever a person may give with `--on-node-loss`."""
    shrinks = launch.least < launch.nodes and draw.random() < 0.5
    standby = draw.choice([0, 0, 1, 1, 2])
    more = range(standby)
    return replace(
        launch,
        on_node_loss="shrink" if shrinks else "replace",
        standby=standby,
        max_replacements=launch.nodes % 3 if shrinks else draw.choice([0, 1, 2, 3]),
        fence=_fence(draw, launch.lease),
        queue=launch.queue + tuple(near(draw, 0.0, 2.0) for _ in more),
        boot=launch.boot + tuple(near(draw, 0.05, 1.5) for _ in more),
        program=launch.program + launch.program[:1] * standby,
        later=tuple(programs + programs[:1] * standby for programs in launch.later),
        ranks=launch.ranks + (None,) * standby,
    )


def _fence(draw: random.Random, lease: float) -> float:
    """As short as it may be, or longer than the lease, or as long as the orphan time-out."""
    least = 3.0 + 2.0 + 3 * min(2.0, lease / 7)
    return round(draw.choice([least, least + 1.0, lease + 3.0, 20.0, 30.0, 60.0]), 3)


def _run(draw: random.Random, nodes: int, **changes: Any) -> Launch:
    """A run that outlives its nodes, and with which nothing is wrong."""
    changes = {
        "on_node_loss": "replace",
        "standby": draw.choice([0, 0, 1, 1, 2]),
        "max_replacements": draw.choice([0, 1, 1, 2, 3]),
        "seconds": draw.choice([6.0, 10.0, 16.0]),
        "lease": draw.choice([5.0, 15.0, 15.0]),
        "here": draw.random() < 0.25,
        "owns_registry": draw.random() < 0.3,
        **changes,
    }
    launch = shaped(draw, nodes, **changes)
    launch = replace(launch, contagion=draw.choice([0.0, 0.0, 0.5, 3.0]))
    return replace(launch, fence=_fence(draw, launch.lease))


def _hurts(draw: random.Random, when: float | str, slots: int, kinds: str = _DIES) -> Fault:
    what = one(draw, kinds)
    seconds = round(_SECONDS.get(what, 2.0) * draw.uniform(0.1, 1.2), 3)
    slot = draw.randrange(2 if what == "launcher told" else slots)
    count = draw.randint(1, _COUNTS.get(what, 2))
    return Fault(when, what, slot=slot, seconds=seconds, count=count)


def _after_the_go(draw: random.Random) -> float:
    """Some moment while the first programs run."""
    return near(draw, 1.5, 5.0)


def _moment(draw: random.Random, launch: Launch, kinds: str) -> str:
    """An event after a first node was lost: it is counted from the launch's begin."""
    kind = one(draw, kinds)
    first = {"joined": launch.slots + 1, "acked": launch.nodes + 1, "probed": launch.nodes + 1}
    least = first.get(kind, 1)
    most = {"exited": launch.nodes, "acked": 2 * launch.nodes, "joined": launch.slots + 2}
    count = draw.randint(least, max(least, most.get(kind, least)))
    return f"{kind} {count} {one(draw, 'before, after, after')}"


_BETWEEN = "lost, exited, exited, joined, joined, probed, acked, acked, fence_over"


def _one_is_lost(draw: random.Random, schedule: Schedule) -> Schedule:
    """A node dies, and that is all."""
    nodes = draw.randint(1, 5)
    launch = _run(draw, nodes, here=draw.random() < 0.15)
    return of(schedule, launch, _hurts(draw, _after_the_go(draw), launch.slots))


def _some_are_lost(draw: random.Random, schedule: Schedule) -> Schedule:
    """Several nodes die, at once or one after the other: as many as may, or one more."""
    nodes = draw.randint(2, 5)
    launch = _run(draw, nodes, seconds=draw.choice([10.0, 20.0]))
    may = launch.standby + launch.max_replacements
    when, faults = _after_the_go(draw), []
    for _ in range(draw.randint(1, max(1, min(may + 1, 4)))):
        faults.append(_hurts(draw, when, launch.slots))
        when = round(when + draw.choice([0.0, 0.1, 1.0, 6.0, 12.0]) * draw.random(), 3)
    return of(schedule, launch, *faults)


def _one_is_cut_off(draw: random.Random, schedule: Schedule) -> Schedule:
    """A host is not heard of, and is back: before its fence, after it, or in a later epoch."""
    nodes = draw.randint(1, 4)
    launch = _run(draw, nodes, seconds=draw.choice([16.0, 30.0]))
    lasts = [launch.lease, launch.fence, launch.fence + 1.0, launch.lease + launch.fence, 70.0]
    seconds = round(draw.choice(lasts) * draw.uniform(0.7, 1.2), 3)
    what, slot = one(draw, "cut, cut, cut, cut up, cut down, pause"), draw.randrange(launch.slots)
    faults = [Fault(_after_the_go(draw), what, slot=slot, seconds=seconds)]
    if draw.random() < 0.3:
        then = round(float(faults[0].when) + launch.lease + draw.uniform(-1.0, 6.0), 3)
        faults.append(_hurts(draw, then, launch.slots, _HURT))
    if draw.random() < 0.4:
        slow = Fault(0.0, "slow stop", slot=slot, seconds=near(draw, 1.0, 8.0))
        faults.append(slow)
    return of(schedule, launch, *faults)


def _lost_between(draw: random.Random, schedule: Schedule) -> Schedule:
    """Another node is lost while all are stopped, gathered, verified or armed after a loss."""
    nodes = draw.randint(2, 5)
    launch = _run(draw, nodes)
    faults = [_hurts(draw, _after_the_go(draw), nodes)]
    for _ in range(draw.choice([1, 1, 2])):
        faults.append(_hurts(draw, _moment(draw, launch, _BETWEEN), launch.slots, _HURT))
    if draw.random() < 0.4:
        taken = one(draw, "slow stop, slow exit, port taken, slow arm")
        seconds, count = near(draw, 1.0, 8.0), draw.randint(1, 3)
        faults.append(Fault(0.0, taken, slot=draw.randrange(nodes), seconds=seconds, count=count))
    return of(schedule, launch, *faults)


def _a_standby_is_lost(draw: random.Random, schedule: Schedule) -> Schedule:
    """Who stands by is lost: for itself, or as it is to take a place."""
    nodes = draw.randint(1, 4)
    launch = _run(draw, nodes, standby=draw.choice([1, 1, 2]))
    slot = draw.randrange(nodes, launch.slots)
    faults = [] if draw.random() < 0.4 else [_hurts(draw, _after_the_go(draw), nodes)]
    kinds = "joined, acked" if not faults else _BETWEEN
    when: float | str = _after_the_go(draw)
    when = _moment(draw, launch, kinds) if draw.random() < 0.6 and faults else when
    return of(schedule, launch, *faults, replace(_hurts(draw, when, 1, _HURT), slot=slot))


def _none_comes(draw: random.Random, schedule: Schedule) -> Schedule:
    """Who is to replace a node waits in a queue, dies at once, comes twice, or comes too late."""
    nodes = draw.randint(1, 4)
    launch = _run(draw, nodes, max_replacements=draw.choice([1, 2, 3]), standby=0)
    loss = _hurts(draw, _after_the_go(draw), nodes)
    how = draw.randrange(4)
    if how == 0:
        queued = Fault(0.0, "queued again", slot=loss.slot, seconds=near(draw, 3.0, 90.0))
        faults = [loss, queued]
        if draw.random() < 0.5:
            faults.append(_hurts(draw, near(draw, 8.0, 50.0), nodes, _HURT + ", cancelled"))
    elif how == 1:
        faults = [loss, Fault(0.0, "dies at once", count=draw.randint(1, 3))]
    elif how == 2:
        twin = f"joined {launch.slots + 1} {one(draw, 'before, after')}"
        faults = [loss, Fault(twin, "twin", slot=loss.slot)]
    else:
        late = tuple(near(draw, 10.0, 26.0) if n == loss.slot else 0.2 for n in range(nodes))
        launch = replace(launch, boot=late, join_timeout=20.0)
        faults = [replace(loss, when=f"acked {nodes} after")]
    return of(schedule, launch, *faults)


def _fewer_go_on(draw: random.Random, schedule: Schedule) -> Schedule:
    """The run shrinks, as far as it may."""
    nodes = draw.randint(2, 5)
    least = draw.randint(1, nodes - 1)
    loss, standby = "shrink", draw.choice([0, 0, 0, 1])
    more = {"least": least, "standby": standby, "max_replacements": nodes % 3}
    launch = _run(draw, nodes, on_node_loss=loss, **more)
    when, faults = _after_the_go(draw), []
    for _ in range(draw.randint(1, nodes - least + 1)):
        faults.append(_hurts(draw, when, launch.slots, draw.choice([_DIES, _HURT])))
        when = round(when + draw.choice([0.0, 1.0, 8.0]) * draw.random(), 3)
    return of(schedule, launch, *faults)


def _with_places_to_spare(draw: random.Random, schedule: Schedule) -> Schedule:
    """With min:max, spares, or who comes late: who stands by, and who is released."""
    nodes = draw.randint(2, 4)
    least, spares = draw.randint(1, nodes), draw.choice([0, 1, 2])
    launch = _run(draw, nodes, least=least, spares=spares, seconds=draw.choice([10.0, 20.0]))
    launch = replace(launch, boot=(*launch.boot[:-1], draw.choice([0.3, 5.0, 9.0])))
    faults = [_hurts(draw, near(draw, 1.5, 9.0), launch.slots) for _ in range(draw.randint(1, 3))]
    if draw.random() < 0.5:  # some hosts are no use, and are left out for that
        unfit = one(draw, "sick, sick, unreachable, hosts refused, silent probes")
        faults.append(Fault(0.0, unfit, slot=draw.randrange(1, launch.slots)))
    return of(schedule, launch, *faults)


def _words_are_lost(draw: random.Random, schedule: Schedule) -> Schedule:
    """What is said around a loss comes lost, late, doubled, or once more."""
    nodes = draw.randint(2, 4)
    launch = _run(draw, nodes)
    loss = _hurts(draw, _after_the_go(draw), launch.slots)
    faults = [loss]
    for _ in range(draw.randint(1, 3)):
        when: float | str = _moment(draw, launch, _BETWEEN)
        when = round(float(loss.when) + near(draw, 0.0, 2.0), 3) if draw.random() < 0.4 else when
        faults.append(_hurts(draw, when, launch.slots, _ON_PATHS))
    if draw.random() < 0.3:
        slow = draw.randrange(nodes)
        faults.append(Fault(0.0, "slow exit", slot=slow, seconds=near(draw, 0.5, 4.0)))
    return of(schedule, launch, *faults)


def _the_registry_fails(draw: random.Random, schedule: Schedule) -> Schedule:
    """The registry, or its disk, fails as it decides what follows a loss, or tells it."""
    nodes = draw.randint(1, 4)
    launch = _run(draw, nodes)
    faults = [_hurts(draw, _after_the_go(draw), launch.slots, _HURT)]
    faults.append(_hurts(draw, _moment(draw, launch, _BETWEEN + ", slot, verdict"), 1, _ON_ALL))
    if draw.random() < 0.3:
        faults.append(_hurts(draw, _moment(draw, launch, _BETWEEN), launch.slots))
    return of(schedule, launch, *faults)


def _the_launcher_is_away(draw: random.Random, schedule: Schedule) -> Schedule:
    """Nobody is there, for a while or for good, who would submit what is wanted."""
    nodes = draw.randint(1, 4)
    launch = _run(draw, nodes, max_replacements=draw.choice([1, 2, 3]), here=False)
    loss = _hurts(draw, _after_the_go(draw), nodes)
    when: float | str = _moment(draw, launch, "lost, lost, exited, joined, slot")
    when = max(1.0, round(float(loss.when) - 0.5, 3)) if draw.random() < 0.3 else when
    what, seconds = one(draw, "launcher killed, launcher paused, launcher told"), near(draw, 0.5, 9)
    seconds = 0.0 if what == "launcher killed" and draw.random() < 0.2 else seconds
    return of(schedule, launch, loss, Fault(when, what, slot=draw.randrange(2), seconds=seconds))


def _one_will_go(draw: random.Random, schedule: Schedule) -> Schedule:
    """A node says that it will go: somebody stands by, is submitted, or nobody comes."""
    nodes = draw.randint(1, 4)
    launch = _run(draw, nodes, seconds=draw.choice([12.0, 25.0]))
    when, faults = _after_the_go(draw), []
    for _ in range(draw.choice([1, 1, 2])):
        slot, seconds = draw.randrange(launch.slots), draw.choice([0.0, 8.5, 10.0, 12.0, 20.0])
        faults.append(Fault(when, one(draw, "drained, notice, term"), slot=slot, seconds=seconds))
        when = round(when + near(draw, 0.0, 9.0), 3)
    if draw.random() < 0.3:
        faults.append(_hurts(draw, round(when + near(draw, 0.0, 4.0), 3), launch.slots, _HURT))
    if draw.random() < 0.4:
        slow = draw.randrange(nodes)
        faults.append(Fault(0.0, "slow stop", slot=slow, seconds=draw.choice([0.8, 2.9, 9.0])))
    return of(schedule, launch, *faults)


def _people_act(draw: random.Random, schedule: Schedule) -> Schedule:
    """Somebody starts the programs again, cancels, or ends the launcher, beside a loss."""
    nodes = draw.randint(1, 4)
    launch = _run(draw, nodes, max_restarts=draw.choice([0, 0, 2]))
    loss = _hurts(draw, _after_the_go(draw), launch.slots)
    when: float | str = _moment(draw, launch, _BETWEEN)
    when = (
        max(1.0, round(float(loss.when) + near(draw, -1.0, 3.0), 3))
        if draw.random() < 0.5
        else when
    )
    return of(schedule, launch, loss, _hurts(draw, when, nodes, _BY_PEOPLE))


def _most_are_silent(draw: random.Random, schedule: Schedule) -> Schedule:
    """Most nodes are not heard of; it may be the registry."""
    nodes = draw.randint(3, 5)
    launch = _run(draw, nodes, seconds=draw.choice([16.0, 30.0]), lease=15.0)
    when: float | str = _after_the_go(draw)
    faults = [] if draw.random() < 0.6 else [_hurts(draw, when, nodes)]
    when = _moment(draw, launch, _BETWEEN) if faults and draw.random() < 0.5 else when
    seconds = near(draw, 10.0, 45.0)
    if draw.random() < 0.5:
        faults.append(Fault(when, "isolated", seconds=seconds))
    else:
        some = draw.sample(range(nodes), draw.randint(2, nodes))
        faults += [Fault(when, "cut", slot=slot, seconds=seconds) for slot in some]
    return of(schedule, launch, *faults)


def _programs_fail_as_well(draw: random.Random, schedule: Schedule) -> Schedule:
    """Programs fail by themselves, and nodes are lost: in one epoch, or during a back-off."""
    nodes = draw.randint(1, 4)
    launch = _run(draw, nodes, max_restarts=draw.choice([0, 1, 2, 3]))
    programs = []
    for code in (3, 42, 77):
        found = [(near(draw, 9.0, 12.0), 0) for _ in range(launch.slots)]
        found[draw.randrange(nodes)] = (near(draw, 0.5, 4.0), code)
        programs.append(tuple(found))
    programs = programs[: draw.randint(1, 3)]
    launch = replace(launch, program=programs[0], later=(*programs[1:], launch.program))
    when: float | str = near(draw, 1.0, 6.0)
    if draw.random() < 0.6:
        when = _moment(draw, launch, "exited, exited, exited, acked, backoff_over")
    loss = _hurts(draw, when, launch.slots, draw.choice([_DIES, _HURT]))
    return of(schedule, launch, loss)


def _slot_0_is_lost(draw: random.Random, schedule: Schedule) -> Schedule:
    """The node of slot 0 is lost: the launcher's own, or one like any other."""
    nodes = draw.randint(1, 4)
    launch = _run(draw, nodes, here=draw.random() < 0.4, owns_registry=draw.random() < 0.3)
    faults = [replace(_hurts(draw, _after_the_go(draw), 1, _HURT), slot=0)]
    if draw.random() < 0.4:
        faults.append(_hurts(draw, _moment(draw, launch, _BETWEEN), launch.slots))
    if draw.random() < 0.3:
        faults.append(_hurts(draw, near(draw, 8.0, 20.0), launch.slots))
    return of(schedule, launch, *faults)


def _nobody_submits(draw: random.Random, schedule: Schedule) -> Schedule:
    """The nodes come by themselves, and their platform starts who is lost again, or does not."""
    nodes = draw.randint(2, 4)
    launch = _run(draw, nodes, symmetric=True, here=True, owns_registry=True)
    loss = _hurts(draw, _after_the_go(draw), nodes, _HURT)
    loss = replace(loss, slot=max(1, loss.slot))
    then = round(float(loss.when) + near(draw, 0.5, 12.0), 3)
    faults = [loss, Fault(then, "comes back", slot=loss.slot, seconds=near(draw, 0.1, 3.0))]
    return of(schedule, launch, *faults[: draw.choice([1, 2, 2, 2])])


def _led(draw: random.Random, schedule: Schedule) -> Schedule:
    """Only rank 0 has a program; any node is lost."""
    nodes = draw.randint(1, 4)
    launch = _run(draw, nodes, led=True)
    faults = [_hurts(draw, _after_the_go(draw), launch.slots, _HURT)]
    if draw.random() < 0.4:
        faults.append(_hurts(draw, _moment(draw, launch, _BETWEEN), launch.slots))
    return of(schedule, launch, *faults)


def _some_cannot_take_part(draw: random.Random, schedule: Schedule) -> Schedule:
    """Between two epochs a node cannot verify, or not arm."""
    nodes = draw.randint(2, 4)
    launch = _run(draw, nodes)
    what = one(draw, "address lost, stuck, hosts refused, no shims, port taken, slow arm")
    slot, when = draw.randrange(launch.slots), _moment(draw, launch, "lost, exited, joined")
    then: float | str = when if what in ("address lost", "stuck") else 0.0
    fault = Fault(then, what, slot=slot, seconds=near(draw, 5.0, 20.0), count=draw.randint(1, 4))
    return of(schedule, launch, _hurts(draw, _after_the_go(draw), nodes), fault)


def _the_scheduler_is_no_help(draw: random.Random, schedule: Schedule) -> Schedule:
    """The scheduler lies, lags, is silent, or ends nothing, while a node is to be replaced."""
    nodes = draw.randint(1, 4)
    launch = _run(draw, nodes, max_replacements=draw.choice([1, 2]), here=False)
    when = _after_the_go(draw)
    loss = _hurts(draw, when, nodes, _HURT)
    fault = _hurts(draw, round(when - near(draw, 0.0, 1.0), 3), nodes, _OF_SCHEDULERS)
    if draw.random() < 0.3:  # the older one can neither be heard of nor ended
        loss = replace(loss, what="cut", seconds=near(draw, 40.0, 90.0))
        fault = replace(fault, what="cancel refused", count=1)
    return of(schedule, launch, loss, replace(fault, slot=loss.slot))


LOSING = situations(
    globals(), besides=[with_losses], twice=[_some_are_lost, _one_is_cut_off, _lost_between]
)


def on_another_network(draw: random.Random, schedule: Schedule) -> Schedule:
    """After a loss the first network is another one: who comes cannot be reached on the former."""
    launches = tuple(replace(one, networks=2, verify=True) for one in schedule.launches)
    lost = [f.slot for f in schedule.faults if f.what in _HURT and f.slot >= 0] or [0]
    faults = []
    for count in range(1, draw.choice([2, 2, 3])):
        when = f"{one(draw, 'lost, exited')} {count} {one(draw, 'before, after')}"
        faults.append(Fault(when, "network cut", slot=draw.choice(lost)))
    return replace(schedule, launches=launches, faults=(*schedule.faults, *faults))
