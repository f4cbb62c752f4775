"""Situations in which something is wrong on one node's own machine."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation.drawing import near, of, one, shaped, situations
from tests.simulation.schedule import BREAKING, HANGING, Fault, Schedule, names


def _hurried(draw: random.Random, schedule: Schedule) -> Schedule:
    """A node is told to end, and not to wait; its program is slow to start, or to stop."""
    nodes = draw.randint(1, 4)
    launch = shaped(draw, nodes, seconds=9.0, led=draw.random() < 0.15)
    launch = replace(launch, ranks_each=draw.choice([0, 2]))
    slot = draw.randrange(nodes)
    faults = [Fault(0.0, "slow stop", slot=slot, seconds=near(draw, 2.0, 8.0))]
    if draw.random() < 0.6:
        faults.append(Fault(0.0, "slow start", slot=slot, seconds=near(draw, 0.5, 2.5)))
    if draw.random() < 0.3:
        faults.append(Fault(0.0, "start refused", slot=slot, count=draw.randint(1, 2)))
    when = f"acked {nodes} after" if draw.random() < 0.5 else near(draw, 1.0, 5.0)
    seconds, count = near(draw, 0.01, 2.0), draw.randint(1, 3)
    faults.append(Fault(when, "hurry", slot=slot, seconds=seconds, count=count))
    return of(schedule, launch, *faults)


def _slow_to_start(draw: random.Random, schedule: Schedule) -> Schedule:
    """While a program is being started another one fails, somebody cancels, or a signal comes."""
    nodes = draw.randint(2, 4)
    launch = shaped(draw, nodes, seconds=12.0, led=draw.random() < 0.15)
    first, second = draw.sample(range(nodes), 2)
    faults = [Fault(0.0, "slow start", slot=first, seconds=near(draw, 0.8, 2.5))]
    if draw.random() < 0.5:
        faults.append(Fault(0.0, "start refused", slot=first, count=draw.randint(1, 2)))
    what = one(draw, "program fails, cancelled, hurry, kill, signal passed")
    slot = second if what in ("program fails", "kill") else first
    faults.append(Fault(f"acked {nodes} after", what, slot=slot, seconds=0.2))
    return of(schedule, launch, *faults)


def _a_disk_hangs(draw: random.Random, schedule: Schedule) -> Schedule:
    """A node's disk hangs, and nobody is there who would kill it."""
    nodes = draw.randint(1, 3)
    launch = shaped(draw, nodes, seconds=3.0)
    slot = draw.randrange(nodes)
    door = one(draw, "restore_stale, make_offer, arm, remove, remove")
    seconds = draw.choice([0.0, 0.0, near(draw, 3.0, 14.0)])
    faults = [Fault(0.0, "hangs", slot=slot, seconds=seconds, count=HANGING.index(door) + 1)]
    if draw.random() < 0.7:
        faults.append(Fault(near(draw, 1.0, 3.0), "launcher killed", seconds=0.0))
    if draw.random() < 0.5:
        what = one(draw, "term, hurry, parent gone")
        faults.append(Fault(near(draw, 1.0, 8.0), what, slot=slot, seconds=0.5))
    return of(schedule, launch, *faults)


def _a_network_log(draw: random.Random, schedule: Schedule) -> Schedule:
    """NCCL's log is read of a program that fails, or cannot be."""
    nodes = draw.randint(1, 3)
    launch = shaped(draw, nodes, seconds=4.0, follows_network=True)
    slot = draw.randrange(nodes)
    doors = "nccl_log, verdicts, trouble"
    kinds = [
        Fault(0.0, "breaks", slot=slot, count=BREAKING.index(one(draw, doors)) + 1),
        Fault(0.0, "hangs", slot=slot, count=HANGING.index("trouble") + 1),
        Fault(0.0, "hangs", slot=slot, count=HANGING.index("open_nccl_log") + 1),
        Fault(0.0, "no log folder", slot=slot),
    ]
    faults = [draw.choice(kinds), Fault(0.0, "slow stop", slot=slot, seconds=2.5)]
    if draw.random() < 0.8:
        faults.append(Fault(near(draw, 1.5, 4.0), "program fails", slot=slot))
    if draw.random() < 0.4:
        faults.append(Fault(near(draw, 2.0, 4.0), "cancelled"))
    return of(schedule, launch, *faults)


def _led_with_faults(draw: random.Random, schedule: Schedule) -> Schedule:
    """Remote commands lack what they need, or break."""
    nodes = draw.randint(2, 3)
    launch = shaped(draw, nodes, seconds=3.0, led=True)
    slot = draw.randrange(nodes)
    breaks = Fault(0.0, "breaks", slot=slot, count=BREAKING.index("relay_take") + 1)
    kinds = [Fault(0.0, what, slot=slot) for what in ("no socket", "no hostfile", "no shims")]
    faults = [draw.choice([breaks, breaks, *kinds])]
    if draw.random() < 0.4:
        when, count = near(draw, 1.5, 4.0), draw.randint(1, 3)
        faults.append(Fault(when, "hurry", slot=draw.randrange(nodes), seconds=0.5, count=count))
    return of(schedule, launch, *faults)


_OTHERS = names("""
address lost, forged, hosts refused, hurry, names kept, no hostfile, no listener, no log folder,
no offer, no shims, no socket, other word, parent gone, program missing, signal passed,
slow visits, stale names, start refused
""")
_ALL = [
    *(("hangs", number + 1) for number in range(len(HANGING))),
    *(("breaks", number + 1) for number in range(len(BREAKING))),
    *((what, 1) for what in _OTHERS),
]
_AT: dict[str, float | str] = {"address lost": "joined 3 after"}
_AT |= dict.fromkeys(("hurry", "parent gone", "signal passed"), 3.0)
_OF_LED = ("no hostfile", "no shims", "no socket", "relay_take")
_OF_LOGS = ("no log folder", "nccl_log", "open_nccl_log", "trouble", "verdicts")


def each_in_turn(draw: random.Random, schedule: Schedule, turn: int) -> Schedule:
    """All that may be wrong on a node's machine, two of it at a time, on two nodes."""
    found = [_ALL[(turn + place * len(_ALL) // 2) % len(_ALL)] for place in range(2)]
    doors = {"hangs": HANGING, "breaks": BREAKING}
    names = {doors[what][count - 1] if what in doors else what for what, count in found}
    launch = shaped(draw, 3, least=1, verify=True, seconds=4.0, retries=0)
    launch = replace(
        launch,
        led=not names.isdisjoint(_OF_LED),
        follows_network=not names.isdisjoint(_OF_LOGS),
        ranks_each=draw.choice([0, 2]),
    )
    faults = [
        Fault(_AT.get(what, 0.0), what, slot=slot + 1, count=count)
        for slot, (what, count) in enumerate(found)
    ]
    if draw.random() < 0.4:
        faults.append(Fault(near(draw, 2.0, 4.0), "program fails", slot=1))
    return of(schedule, launch, *faults)


def one_after_another(draw: random.Random, schedule: Schedule) -> Schedule:
    """The registry ends while its nodes acknowledge: for some it takes longer, but none is late."""
    nodes = draw.randint(2, 5)
    launch = shaped(draw, nodes, seconds=4.0)
    slow = [
        Fault(0.0, "slow arm", slot=slot, seconds=near(draw, 0.005, 0.15)) for slot in range(nodes)
    ]
    when = f"acked {draw.randint(1, nodes - 1)} after"
    return of(schedule, launch, *slow, Fault(when, "registry crash", seconds=near(draw, 0.02, 3.0)))


NODE_SITUATIONS = situations(globals(), besides=(one_after_another,))
