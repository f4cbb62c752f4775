"""A schedule from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.simulation.schedule import BREAKING, HANGING, OTHER_JOBS, Fault, Launch, Schedule

_LOCAL = {
    # kind: weight, longest seconds, largest count
    "request lost": (6, 0.0, 3),
    "answer lost": (10, 0.0, 3),
    "doubled": (8, 0.0, 5),
    "late": (8, 6.0, 12),
    "cut up": (3, 20.0, 1),
    "cut down": (3, 20.0, 1),
    "cut": (4, 25.0, 1),
    "loss": (4, 20.0, 40),
    "reset": (6, 0.0, 1),
    "forgotten": (3, 0.0, 1),
    "echo": (10, 0.0, 30),
    "kill": (8, 0.0, 1),
    "host down": (5, 0.0, 1),
    "pause": (8, 35.0, 1),
    "term": (3, 0.0, 1),
    "stuck": (2, 0.0, 1),
    "twin": (5, 0.0, 1),
    "slow arm": (3, 11.0, 1),
    "port taken": (5, 1.0, 4),
    "hosts refused": (1, 0.0, 1),
    "unreachable": (1, 0.0, 1),
    "other job": (2, 0.0, len(OTHER_JOBS)),
    "program fails": (6, 0.0, 3),
    "stops unasked": (2, 0.0, 1),
    "slow stop": (3, 8.0, 1),
    "other table": (1, 0.0, 1),
    "slow exit": (4, 6.0, 1),
    "preempted": (4, 0.0, 1),
    "scheduler lies": (3, 10.0, 3),
}
_GLOBAL = {
    "registry crash": (16, 12.0, 1),
    "registry pause": (8, 30.0, 1),
    "disk full": (6, 6.0, 1),
    "disk slow": (3, 6.0, 1),
    "disk lies": (5, 0.0, 2),
    "isolated": (3, 1.0, 1),
    "submission fails": (3, 0.0, 2),
    "submission lost": (3, 0.0, 1),
    "launcher killed": (4, 10.0, 1),
    "cancelled": (3, 0.0, 1),
}
_OF_DOORS = {
    # kind: weight, longest seconds, largest count
    "hurry": (8, 2.0, 3),
    "parent gone": (4, 0.0, 1),
    "start refused": (4, 0.0, 2),
    "program missing": (2, 0.0, 1),
    "address lost": (3, 0.0, 1),
    "no offer": (2, 0.0, 2),
    "no listener": (2, 0.0, 1),
    "no socket": (2, 0.0, 1),
    "no hostfile": (2, 0.0, 1),
    "no shims": (1, 0.0, 1),
    "other word": (3, 0.0, 1),
    "forged": (4, 0.0, 2),
    "hangs": (12, 14.0, len(HANGING)),
    "breaks": (24, 0.0, len(BREAKING)),
    "signal passed": (1, 0.0, 2),
    "slow visits": (1, 6.0, 1),
    "slow start": (1, 2.5, 1),
    "no log folder": (1, 0.0, 1),
    "stale names": (1, 0.0, 2),
    "names kept": (1, 0.0, 1),
    "names unwanted": (1, 0.0, 1),
    "names elsewhere": (1, 0.0, 1),
    "preset variables": (1, 0.0, 1),
    "metrics": (1, 0.0, 1),
}
"""What may be wrong on a node's own machine; the last of them cost it nothing."""
_CHEAP = list(_OF_DOORS)[list(_OF_DOORS).index("signal passed") :]
_SUDDEN = {"hurry", "signal passed", "parent gone", "address lost", "forged"}
"""What of that may begin at any time."""
_ALONE, _ALONE_AT = 40, 7
"""One seed in so many has a registry that is cut off, and mostly nothing else."""
_OF_PATHS = {"request lost", "answer lost", "doubled", "late", "reset", "echo"}
"""What may happen on the way of a launcher as well."""
_OF_LAUNCHERS = {
    "submission unsure": (3, 0.0, 2),
    "scheduler busy": (4, 0.0, 3),
    "scheduler silent": (4, 20.0, 1),
    "list lags": (3, 3.0, 1),
    "cancel refused": (2, 0.0, 1),
    "logs hang": (2, 0.0, 1),
    "launcher paused": (4, 20.0, 1),
    "launcher told": (8, 6.0, 2),
    "launcher killed": (6, 8.0, 1),
    "folder full": (4, 12.0, 1),
}
_ODD_SHARE = 0.25
_KINDS = _LOCAL | _GLOBAL
_NAMES = list(_KINDS)
_WEIGHTS = [weight for weight, _, _ in _KINDS.values()]
_EVENTS = {
    "created": 1,
    "slot": 6,
    "joined": 4,
    "probed": 4,
    "acked": 4,
    "arm_refused": 1,
    "exited": 3,
    "left": 3,
    "lost": 1,
    "timed_out": 1,
    "last_call_over": 1,
    "verdict": 1,
    "restarted": 1,
}


def generate(seed: int) -> Schedule:
    """The schedule of a seed: mostly one launch, a few faults, all of them close together."""
    draw = random.Random(seed)
    launches = [_launch(draw, "r0", 0.0)]
    if draw.random() < 0.12:
        run = "r0" if draw.random() < 0.7 else "r1"
        launches.append(_launch(draw, run, draw.choice([0.3, 4.0, 9.0, 20.0])))
    count = draw.choice([0, 1, 1, 2, 2, 3, 3, 4, 5, 7])
    faults: list[Fault] = []
    for _ in range(count):
        faults.append(_fault(draw, launches, faults))
    if draw.random() < 0.25:
        faults += draw.choice(_THEMES)(draw, launches[0])
    if seed % _ALONE == _ALONE_AT:  # what must be harmless alone is not, beside most other faults
        seconds = _seconds(draw, "isolated", 1.0, launches[0])
        when = f"joined {launches[0].nodes} after"
        faults = [Fault(when, "isolated", seconds=seconds)]
    keep = 2.0 if draw.random() < 0.1 else 3_600.0
    more = random.Random(f"{seed} verifying")
    launches = [_with_networks(more, _with_spares(more, launch)) for launch in launches]
    launches = [_with_places(random.Random(f"{seed} places"), launch) for launch in launches]
    if random.Random(f"{seed} led").random() < 0.1:
        launches = [replace(launch, led=True) for launch in launches]
    for index, launch in enumerate(launches):
        faults += _bad_hosts(more, index, launch)
    faults += _refusals(random.Random(f"{seed} refusing"), launches[0])
    addresses = random.Random(f"{seed} addresses")
    if addresses.random() < 0.15:
        launches = [replace(launch, addresses=2) for launch in launches]
        faults += _address_cut(addresses, launches[0])
    schedule = Schedule(seed, tuple(launches), tuple(faults), keep)
    rare = random.Random(f"{seed} rare")
    situation = random.Random(f"{seed} situation")
    if rare.random() < 0.06:
        schedule = rare.choice(RARE_SITUATIONS)(rare, schedule)
    elif situation.random() < 0.4:
        schedule = situation.choice(SITUATIONS)(situation, schedule)
    schedule = _with_ranks(random.Random(f"{seed} ranks"), schedule)
    schedule = _with_node_doors(random.Random(f"{seed} node doors"), schedule)
    schedule = _with_launchers(random.Random(f"{seed} launchers"), schedule)
    return _with_odd_launches(random.Random(f"{seed} odd launches"), schedule)


def _with_launchers(draw: random.Random, schedule: Schedule) -> Schedule:
    """Whose the registry is, where slot 0 runs, and what goes wrong with launchers."""
    alone = len(schedule.launches) == 1
    owns = alone and draw.random() < 0.4
    launches = tuple(
        replace(launch, owns_registry=owns, here=draw.random() < 0.4)
        for launch in schedule.launches
    )
    schedule = replace(schedule, launches=launches)
    chance = draw.random()
    if alone and chance < 0.12:
        return draw.choice(LAUNCH_SITUATIONS)(draw, schedule)
    if chance > 0.75:
        for _ in range(draw.choice([1, 1, 2])):
            fault = _launcher_fault(draw, launches[0].nodes, list(schedule.faults))
            schedule = replace(schedule, faults=(*schedule.faults, fault))
    return schedule


def _launcher_fault(draw: random.Random, nodes: int, former: list[Fault]) -> Fault:
    names, kinds = list(_OF_LAUNCHERS), list(_OF_LAUNCHERS.values())
    what = draw.choices(names, [weight for weight, _, _ in kinds])[0]
    _, longest, most = _OF_LAUNCHERS[what]
    early = what in ("submission unsure", "scheduler busy", "list lags", "cancel refused")
    return Fault(
        when=0.0 if early else _when(draw, nodes, former),
        what=what,
        slot=draw.randrange(2),
        seconds=round(draw.choice([0.5, 2.0, longest]) * draw.uniform(0.1, 1), 3),
        count=draw.randint(1, most),
    )


def _with_node_doors(draw: random.Random, schedule: Schedule) -> Schedule:
    """What is wrong on a node's own machine; now and then that alone."""
    if draw.random() >= 0.15 or schedule.seed % _ALONE == _ALONE_AT:
        return schedule
    situation = random.Random(f"{schedule.seed} node situation")
    if situation.random() < 0.4:
        return situation.choice(NODE_SITUATIONS)(situation, schedule)
    launches = schedule.launches
    if draw.random() < 0.3:
        launches = tuple(replace(launch, follows_network=not launch.led) for launch in launches)
    kept = schedule.faults[:1] if draw.random() < 0.5 else schedule.faults
    faults = [_node_fault(draw, launches) for _ in range(draw.choice([1, 1, 2]))]
    for what in _CHEAP:  # they do not hide each other
        if draw.random() < 0.25:
            faults.append(_node_fault(draw, launches, what))
    return replace(schedule, launches=launches, faults=(*kept, *faults))


def _node_fault(draw: random.Random, launches: tuple[Launch, ...], what: str = "") -> Fault:
    weights = [weight for weight, _, _ in _OF_DOORS.values()]
    what = what or draw.choices(list(_OF_DOORS), weights)[0]
    _, seconds, count = _OF_DOORS[what]
    launch = draw.randrange(len(launches))
    nodes = launches[launch].nodes
    return Fault(
        when=_when(draw, nodes, []) if what in _SUDDEN else 0.0,
        what=what,
        launch=launch,
        slot=draw.randrange(nodes),
        seconds=0.0 if what == "hangs" and draw.random() < 0.5 else _some(draw, seconds),
        count=draw.randint(1, count),
    )


def _some(draw: random.Random, longest: float) -> float:
    return round(longest * draw.uniform(0.05, 1.0), 3)


def _with_ranks(draw: random.Random, schedule: Schedule) -> Schedule:
    """How many processes each program has, and whether NCCL's log is read."""
    launches = [replace(x, ranks_each=draw.choice([0, 1, 2, 3])) for x in schedule.launches]
    faults = schedule.faults
    if draw.random() < 0.1:
        launches = [replace(launch, follows_network=not launch.led) for launch in launches]
        slot = draw.randrange(launches[0].nodes)
        faults += (Fault(0.0, "falls back", slot=slot, count=draw.choice([1, 2])),)
    return replace(schedule, launches=tuple(launches), faults=faults)


def _with_spares(draw: random.Random, launch: Launch) -> Launch:
    if draw.random() >= 0.2:
        return launch
    spares = draw.choice([1, 1, 2])
    more = range(spares)
    return replace(
        launch,
        spares=spares,
        queue=launch.queue + tuple(round(draw.uniform(0.0, 2.0), 3) for _ in more),
        boot=launch.boot + tuple(round(draw.uniform(0.05, 1.5), 3) for _ in more),
        program=launch.program + launch.program[:1] * spares,
        ranks=launch.ranks + (None,) * spares,
    )


def _with_networks(draw: random.Random, launch: Launch) -> Launch:
    return replace(launch, networks=2) if draw.random() < 0.3 else launch


def _with_places(draw: random.Random, launch: Launch) -> Launch:
    """Where the nodes stand, and which port the master has."""
    if draw.random() < 0.3:
        launch = replace(launch, subnets=2)
    if draw.random() < 0.25:
        launch = replace(launch, free_port=draw.choice([29_511, 30_123]))
    if draw.random() < 0.15:
        launch = replace(launch, port=29_777)
    return launch


def _bad_hosts(draw: random.Random, index: int, launch: Launch) -> list[Fault]:
    """Hosts that are not fit for the run, or do not reach each other."""
    chance = 0.5 if launch.spares or launch.networks > 1 else 0.06
    if draw.random() >= chance:
        return []
    kinds = draw.choices(["sick", "network cut", "unreachable", "silent probes"], k=2)
    slots = range(launch.slots)
    return [
        Fault(0.0, what, launch=index, slot=draw.choice(slots))
        for what in kinds[: draw.randint(1, 2)]
    ]


def _refusals(draw: random.Random, launch: Launch) -> list[Fault]:
    """A node that cannot take part; or a second one, with the token of one that can."""
    if draw.random() >= 0.08:
        return []
    slot, count = draw.randrange(launch.slots), draw.randint(1, 2)
    if draw.random() < 0.2:
        return [Fault(0.0, "other table", slot=slot)]
    if draw.random() < 0.5:
        return [Fault(0.0, "other job", slot=slot, count=draw.randint(1, len(OTHER_JOBS)))]
    if draw.random() < 0.5:
        return [Fault(0.0, "refuses", slot=slot, count=count)]
    when = f"joined {draw.randint(1, launch.slots)} after"
    return [Fault(when, "refuses", slot=slot, count=count), Fault(when, "twin", slot=slot)]


def _address_cut(draw: random.Random, launch: Launch) -> list[Fault]:
    """One of the registry's two addresses fails for a node; or none does."""
    if draw.random() < 0.3:
        return []
    cut = Fault(
        when=_when(draw, launch.nodes, []),
        what="address cut",
        slot=draw.randrange(launch.nodes),
        seconds=round(draw.uniform(2.0, 30.0), 3),
        count=draw.choice([1, 1, 1, 2]),
    )
    return [cut]


def _launch(draw: random.Random, run: str, at: float) -> Launch:
    nodes = draw.choice([1, 2, 2, 3, 3, 3, 4, 4, 5, 6])
    least = draw.randint(1, nodes) if draw.random() < 0.3 else nodes
    long_queue = draw.random() < 0.1
    ranks = _ranks(draw, nodes) if draw.random() < 0.15 else (None,) * nodes
    seconds = draw.choice([1.0, 3.0, 5.0, 8.0])
    codes = _codes(draw, nodes)
    return Launch(
        run=run,
        at=at,
        nodes=nodes,
        least=least,
        verify=draw.random() < 0.75,
        retries=draw.choice([0, 1, 1, 2]),
        lease=draw.choice([15.0, 15.0, 15.0, 5.0, 24.0]),
        join_timeout=draw.choice([20.0, 30.0]),
        queue=tuple(
            40.0 if long_queue and draw.random() < 0.5 else round(draw.uniform(0.0, 2.0), 3)
            for _ in range(nodes)
        ),
        boot=tuple(round(draw.uniform(0.05, 1.5), 3) for _ in range(nodes)),
        program=tuple(
            (round(seconds + draw.uniform(0, 1), 3), codes[slot]) for slot in range(nodes)
        ),
        ranks=ranks,
        contagion=draw.choice([0.0, 0.4, 1.5]),
    )


def _codes(draw: random.Random, nodes: int) -> list[int]:
    """With what the programs end: mostly well; now and then some fail, each in its own way."""
    if draw.random() >= 0.12:
        return [0] * nodes
    codes = [draw.choice([1, 2, 42, 137]) if draw.random() < 0.5 else 0 for _ in range(nodes)]
    codes[draw.randrange(nodes)] = draw.choice([3, 9])
    return codes


def _ranks(draw: random.Random, nodes: int) -> tuple[int | None, ...]:
    """Ranks that the nodes ask for; now and then two ask for the same."""
    others = list(range(1, nodes))
    draw.shuffle(others)
    ranks = [0, *others]
    if nodes > 2 and draw.random() < 0.3:
        ranks[-1] = ranks[-2]
    if draw.random() < 0.4:
        ranks[draw.randrange(nodes)] = draw.choice([0, 1, nodes, nodes + 2, 99])
    return tuple(rank if draw.random() < 0.8 else None for rank in ranks)


def _fault(draw: random.Random, launches: list[Launch], former: list[Fault]) -> Fault:
    what = draw.choices(_NAMES, _WEIGHTS)[0]
    _, seconds, count = _KINDS[what]
    launch = draw.randrange(len(launches))
    nodes = launches[launch].nodes
    of_launcher = what in _OF_PATHS and draw.random() < 0.1
    return Fault(
        when=_when(draw, nodes, former),
        what=what,
        launch=launch,
        slot=-1 if of_launcher else draw.randrange(nodes),
        seconds=_seconds(draw, what, seconds, launches[launch]),
        count=draw.randint(1, count),
    )


# Faults that are rare together, and hurt together.


def _crash_after_failure(draw: random.Random, launch: Launch) -> list[Fault]:
    slot, seconds = draw.randrange(launch.nodes), round(draw.uniform(0.5, 8.0), 3)
    when = round(draw.uniform(4.0, 7.0), 3)
    return [
        Fault(when, "program fails", slot=slot),
        Fault("exited 1 after", "registry crash", seconds=seconds),
    ]


def _late_report(draw: random.Random, launch: Launch) -> list[Fault]:
    slot, when = draw.randrange(launch.nodes), round(draw.uniform(4.0, 7.0), 3)
    return [
        Fault(0.0, "slow exit", slot=slot, seconds=round(draw.uniform(0.5, 2.0), 3)),
        Fault(when, "program fails", slot=slot),
    ]


def _pause_before_the_go(draw: random.Random, launch: Launch) -> list[Fault]:
    kind = draw.choice(["joined", "probed", "acked"])
    when = f"{kind} {draw.randint(1, launch.nodes)} after"
    return [Fault(when, "registry pause", seconds=round(draw.uniform(12.0, 40.0), 3))]


def _late_acknowledgements(draw: random.Random, launch: Launch) -> list[Fault]:
    taken = Fault(0.0, "port taken", slot=0, seconds=1.0, count=draw.randint(1, 3))
    late = [
        Fault("probed 1 after", "late", slot=slot, seconds=0.3, count=8)
        for slot in range(1, launch.nodes)
    ]
    return [taken, *late]


def _death_on_a_full_disk(draw: random.Random, launch: Launch) -> list[Fault]:
    when, slot = round(draw.uniform(3.5, 6.0), 3), draw.randrange(launch.nodes)
    return [
        Fault(when, "kill", slot=slot),
        Fault(round(when - 0.2, 3), "disk full", seconds=round(draw.uniform(0.5, 3.0), 3)),
    ]


_THEMES = [
    _crash_after_failure,
    _late_report,
    _pause_before_the_go,
    _late_acknowledgements,
    _death_on_a_full_disk,
]


def _when(draw: random.Random, nodes: int, former: list[Fault]) -> float | str:
    if former and draw.random() < 0.3:
        when = former[-1].when
        return when if isinstance(when, str) else round(when + draw.uniform(0, 0.6), 3)
    if draw.random() < 0.5:
        return round(draw.choice([4.0, 8.0, 20.0]) * draw.random(), 3)
    kind = draw.choices(list(_EVENTS), list(_EVENTS.values()))[0]
    return f"{kind} {draw.randint(1, 2 * nodes)} {draw.choice(['before', 'after'])}"


def _seconds(draw: random.Random, what: str, longest: float, launch: Launch) -> float:
    if what == "isolated":
        return round(launch.lease * draw.uniform(1.03, 1.2 if launch.lease < 15 else 1.6), 3)
    if what == "registry crash":
        never = draw.random() < 0.04
        return 0.0 if never else round(draw.choice([0.05, 1.0, longest]) * draw.uniform(0.2, 1), 3)
    if what in ("late", "pause", "slow exit", "slow stop"):
        return round(draw.choice([0.3, 2.0, longest]) * draw.uniform(0.2, 1), 3)
    if what == "launcher killed":
        return 0.0 if draw.random() < 0.3 else round(draw.uniform(0.5, longest), 3)
    return round(longest * draw.uniform(0.1, 1), 3)


# Situations that nothing else leads to: a launch of a certain shape, and what goes wrong with it.

Situation = Callable[[random.Random, Schedule], Schedule]


def _shaped(draw: random.Random, nodes: int, **changes: Any) -> Launch:
    """A launch that nothing is wrong with, its programs of about the same length."""
    seconds = changes.pop("seconds", 5.0)
    slots = nodes + changes.get("spares", 0)
    launch = Launch(
        run="r0",
        at=0.0,
        nodes=nodes,
        least=nodes,
        verify=draw.random() < 0.5,
        retries=draw.choice([0, 1, 2]),
        lease=draw.choice([15.0, 24.0]),
        join_timeout=20.0,
        queue=tuple(round(draw.uniform(0.0, 0.5), 3) for _ in range(slots)),
        boot=tuple(round(draw.uniform(0.05, 0.5), 3) for _ in range(slots)),
        program=tuple((round(seconds + draw.uniform(0, 1), 3), 0) for _ in range(slots)),
        ranks=(None,) * slots,
        contagion=0.0,
    )
    return replace(launch, **changes)


def _of(schedule: Schedule, launch: Launch, *faults: Fault) -> Schedule:
    return replace(schedule, launches=(launch,), faults=faults)


def _failures_close_together(draw: random.Random, schedule: Schedule) -> Schedule:
    """Some programs fail within the verdict's time, one takes long to stop, one may be killed."""
    nodes = draw.randint(3, 6)
    launch = _shaped(draw, nodes, led=draw.random() < 0.1, seconds=12.0)
    slots = draw.sample(range(nodes), nodes)
    when = draw.uniform(3.5, 5.0)
    faults = [Fault(0.0, "slow stop", slot=slots[-1], seconds=round(draw.uniform(3.0, 8.0), 3))]
    for slot in slots[: draw.randint(1, 2)]:
        if draw.random() < 0.6:
            lag = round(draw.uniform(0.2, 2.0), 3)
            faults.append(Fault(0.0, "slow exit", slot=slot, seconds=lag))
        faults.append(Fault(round(when, 3), "program fails", slot=slot, count=draw.randint(1, 3)))
        when += draw.uniform(0.0, 0.3)
    if draw.random() < 0.5:
        after = round(when + draw.uniform(0.2, 1.5), 3)
        faults.append(Fault(after, draw.choice(["kill", "cancelled"]), slot=slots[-2]))
    return _of(schedule, launch, *faults)


def _a_silent_first_cause(draw: random.Random, schedule: Schedule) -> Schedule:
    """A host goes without a word, and its peers fail of it."""
    nodes = draw.randint(2, 5)
    launch = _shaped(draw, nodes, seconds=draw.choice([8.0, 20.0, 30.0]))
    first, second = draw.sample(range(nodes), 2)
    when = draw.uniform(3.0, 5.0)
    later = round(when + draw.uniform(0.1, 10.0), 3)
    faults = [
        Fault(round(when, 3), draw.choice(["host down", "pause"]), slot=first, seconds=30.0),
        Fault(later, "program fails", slot=second, count=draw.randint(1, 3)),
    ]
    if draw.random() < 0.3:
        crash = Fault(round(later + draw.uniform(0.1, 1.5), 3), "registry crash", seconds=1.0)
        faults.append(crash)
    return _of(schedule, launch, *faults)


def _one_comes_back(draw: random.Random, schedule: Schedule) -> Schedule:
    """A node that was lost comes back with its end while the verdict waits for another one."""
    nodes = draw.randint(2, 5)
    launch = _shaped(draw, nodes, seconds=draw.choice([6.0, 12.0]), lease=15.0)
    first, second = draw.sample(range(nodes), 2)
    when = draw.uniform(2.5, 4.0)
    faults = (
        Fault(round(when, 3), "cut", slot=first, seconds=round(draw.uniform(15.0, 18.0), 3)),
        Fault(round(when + draw.uniform(1.5, 5.0), 3), "pause", slot=second, seconds=40.0),
    )
    return _of(schedule, launch, *faults)


def _left_out_and_lost(draw: random.Random, schedule: Schedule) -> Schedule:
    """The nodes gather again, and one that the table went without is lost meanwhile."""
    nodes = draw.randint(2, 4)
    launch = _shaped(draw, nodes, spares=1, retries=draw.choice([1, 2]))
    when = draw.uniform(2.5, 4.0)
    faults = (
        Fault(0.0, "slow arm", seconds=9.0),
        Fault(round(when, 3), "kill", slot=draw.randrange(1, nodes)),
        Fault(round(when + draw.uniform(0.0, 0.8), 3), "kill", slot=nodes),
    )
    return _of(schedule, launch, *faults)


def _an_end_before_the_others(draw: random.Random, schedule: Schedule) -> Schedule:
    """A program ends well and early; then its agent goes, maybe while the registry is away."""
    nodes = draw.randint(2, 4)
    launch = _shaped(draw, nodes, seconds=draw.choice([5.0, 25.0]))
    slot = draw.randrange(nodes)
    programs = list(launch.program)
    programs[slot] = (1.0, 0)
    launch = replace(launch, program=tuple(programs))
    gone = draw.choice(["kill", "host down", "pause"])
    faults = [Fault("exited 1 after", gone, slot=slot, seconds=30.0)]
    if draw.random() < 0.5:
        faults.append(Fault("exited 1 after", "registry crash", seconds=1.0))
    elif draw.random() < 0.7:  # what its launcher had said before comes once more
        faults += [
            Fault(round(draw.uniform(3.0, 8.0), 3), "echo", slot=-1, count=draw.randint(1, 15))
            for _ in range(4)
        ]
    return _of(schedule, launch, *faults)


def _spares_step_in(draw: random.Random, schedule: Schedule) -> Schedule:
    """A node of the table cannot start, or is late; there are spares, or fewer are enough."""
    nodes = draw.randint(2, 4)
    least = draw.randint(1, nodes)
    launch = _shaped(draw, nodes, spares=draw.choice([0, 1, 1, 2]), least=least)
    faults = []
    for slot in draw.sample(range(launch.slots), draw.randint(1, 2)):
        what = draw.choice(["hosts refused", "slow arm", "sick", "network cut", "unreachable"])
        faults.append(Fault(0.0, what, slot=slot, seconds=14.0))
    if draw.random() < 0.4:
        when = f"joined {launch.slots} after"
        faults.append(Fault(when, "stuck", slot=draw.randrange(launch.slots)))
    if draw.random() < 0.3:
        launch = replace(launch, networks=2)
    if draw.random() < 0.3:
        for slot in draw.sample(range(launch.slots), 2):
            later = round(draw.uniform(1.0, 8.0), 3)
            faults.append(Fault(later, draw.choice(["kill", "preempted"]), slot=slot))
    return _of(schedule, launch, *faults)


def _latecomers(draw: random.Random, schedule: Schedule) -> Schedule:
    """Fewer than all are enough, and some come during the last call, while arming, or later."""
    nodes = draw.randint(2, 5)
    launch = _shaped(draw, nodes, least=draw.randint(1, nodes), spares=draw.choice([0, 0, 1]))
    boots = [draw.choice([0.1, 2.5, 3.2, 4.5, 6.0, 12.0, 40.0]) for _ in range(launch.slots)]
    if draw.random() < 0.8:
        boots[0] = 0.1
    launch = replace(launch, boot=tuple(round(x + draw.uniform(0, 0.5), 3) for x in boots))
    faults = []
    if draw.random() < 0.5:
        faults.append(Fault(0.0, "slow arm", slot=0, seconds=round(draw.uniform(2.0, 10.0), 3)))
    if draw.random() < 0.3:
        when, seconds = round(draw.uniform(3.0, 12.0), 3), round(draw.uniform(3.0, 9.0), 3)
        slot = max(range(launch.slots), key=lambda slot: launch.boot[slot])
        faults.append(Fault(when, "scheduler lies", slot=slot, seconds=seconds, count=3))
    for _ in range(draw.choice([0, 0, 1, 2])):
        what = draw.choice(["kill", "sick", "sick", "refuses", "preempted", "term"])
        when = round(draw.uniform(0.0, 5.0), 3) if what not in ("sick", "refuses") else 0.0
        faults.append(Fault(when, what, slot=draw.randrange(nodes), count=draw.randint(1, 2)))
    return _of(schedule, launch, *faults)


def _failing_before_the_go(draw: random.Random, schedule: Schedule) -> Schedule:
    """Worker runs fail once and again before the go."""
    nodes = draw.randint(2, 4)
    launch = _shaped(draw, nodes, least=draw.randint(1, nodes), spares=draw.choice([0, 0, 1]))
    slot = draw.choice([0, draw.randrange(nodes)])
    boots = list(launch.boot)
    boots[-1] += 6.0
    launch = replace(launch, boot=tuple(boots))
    kinds = ["kill", "preempted", "term", "refuses", "submission fails", "host down"]
    faults = [
        Fault(
            round(draw.uniform(0.3, 6.0), 3),
            draw.choice(kinds),
            slot=slot,
            count=draw.randint(1, 2),
        )
        for _ in range(draw.randint(1, 4))
    ]
    if draw.random() < 0.4:
        faults.append(Fault(0.0, "refuses", slot=slot, count=draw.randint(1, 2)))
        faults.append(Fault(0.0, draw.choice(["doubled", "twin"]), slot=slot, count=5))
    if draw.random() < 0.3:
        faults.append(Fault(0.3, "late", slot=-1, seconds=2.0, count=12))
    if draw.random() < 0.2:
        faults.append(Fault(round(draw.uniform(0.5, 7.0), 3), "launcher killed", seconds=0.0))
    return _of(schedule, launch, *faults)


def _led(draw: random.Random, schedule: Schedule) -> Schedule:
    """Of a led run a node goes, when its leader is about to end; another takes long to stop."""
    nodes = draw.randint(3, 4)
    launch = _shaped(draw, nodes, led=True, seconds=3.0)
    ends = max(q + b for q, b in zip(launch.queue, launch.boot, strict=True))
    ends += launch.program[0][0]
    first, second = draw.sample(range(1, nodes), 2)
    faults = [
        Fault(0.0, "slow stop", slot=0, seconds=6.0),
        Fault(0.0, "slow stop", slot=second, seconds=6.0),
        Fault(round(ends - draw.uniform(0.5, 2.5), 3), draw.choice(["kill", "term"]), slot=first),
    ]
    return _of(schedule, launch, *faults)


def _taken_ports(draw: random.Random, schedule: Schedule) -> Schedule:
    """The master port is taken a few times."""
    launch = _shaped(draw, draw.randint(1, 3), free_port=draw.choice([None, 29_511]))
    if draw.random() < 0.3:
        launch = replace(launch, port=29_777)
    taken = Fault(0.0, "port taken", seconds=draw.choice([0.0, 1.0]), count=draw.randint(1, 4))
    return _of(schedule, launch, taken)


def _most_are_silent(draw: random.Random, schedule: Schedule) -> Schedule:
    """Most nodes are cut off, stopped or gone together; the registry is not."""
    nodes = draw.randint(4, 6)
    launch = _shaped(draw, nodes, seconds=40.0, lease=draw.choice([5.0, 15.0]))
    what = draw.choice(["cut", "host down", "pause", "cut"])
    count = draw.randint(2, nodes)
    when = draw.uniform(3.0, 8.0)
    seconds = round(launch.lease * draw.choice([draw.uniform(1.2, 2.5), 5.0]), 3)
    faults = [
        Fault(round(when + draw.uniform(0, 0.5), 3), what, slot=slot, seconds=seconds)
        for slot in draw.sample(range(nodes), count)
    ]
    if draw.random() < 0.4:
        later = round(when + draw.uniform(0.5, 4.0), 3)
        faults.append(Fault(later, "program fails", slot=draw.randrange(nodes)))
    return _of(schedule, launch, *faults)


def _death_and_cancel(draw: random.Random, schedule: Schedule) -> Schedule:
    """Somebody cancels a run of which a node has just died."""
    nodes = draw.randint(2, 4)
    launch = _shaped(draw, nodes, seconds=8.0)
    when = draw.uniform(3.0, 5.0)
    faults = (
        Fault(round(when, 3), draw.choice(["kill", "kill", "term"]), slot=draw.randrange(nodes)),
        Fault(round(when + draw.uniform(0.1, 1.2), 3), "cancelled"),
    )
    return _of(schedule, launch, *faults)


def _long_queues(draw: random.Random, schedule: Schedule) -> Schedule:
    """Slots wait in the scheduler's queue for minutes, and may lose their launcher."""
    nodes = draw.randint(1, 3)
    launch = _shaped(draw, nodes, least=draw.randint(1, nodes), join_timeout=20.0)
    queues = [draw.choice([0.3, 15.0, 170.0, 200.0]) for _ in range(nodes)]
    queues[draw.randrange(nodes)] = 170.0
    boots = [draw.choice([0.2, 15.0, 25.0]) for _ in range(nodes)]
    launch = replace(launch, queue=tuple(queues), boot=tuple(boots))
    faults = []
    if draw.random() < 0.5:
        slot = queues.index(170.0)
        faults = [
            Fault(10.0, "launcher killed", seconds=0.0),
            Fault(round(draw.uniform(12.0, 100.0), 3), "preempted", slot=slot),
        ]
    return _of(schedule, launch, *faults)


def _a_twin(draw: random.Random, schedule: Schedule) -> Schedule:
    """A second node has the token of a live one, whose connections are reset, or which is slow."""
    nodes = draw.randint(2, 4)
    launch = _shaped(draw, nodes, lease=draw.choice([5.0, 15.0, 24.0]))
    boots = list(launch.boot)
    boots[-1] += 9.0
    launch = replace(launch, boot=tuple(boots))
    slot, when = draw.randrange(nodes - 1), round(draw.uniform(1.5, 5.0), 3)
    what = draw.choice(["reset", "pause", "kill", "cut", "refuses"])
    seconds = round(launch.lease * draw.uniform(0.05, 1.1), 3)
    faults = [
        Fault(round(when + draw.uniform(-0.5, 0.5), 3), what, slot=slot, seconds=seconds),
        Fault(when, "twin", slot=slot),
    ]
    if draw.random() < 0.4:
        faults.append(Fault(0.0, "slow arm", slot=nodes - 1, seconds=11.0))
        launch = replace(launch, boot=tuple(min(boot, 0.5) for boot in boots))
    return _of(schedule, launch, *faults)


def _a_second_generation(draw: random.Random, schedule: Schedule) -> Schedule:
    """A worker run's submission looks refused, or its end is false: two of them live."""
    nodes = draw.randint(2, 4)
    launch = _shaped(draw, nodes, retries=draw.choice([1, 2]))
    boots = list(launch.boot)
    boots[-1] += 6.0
    launch = replace(launch, boot=tuple(boots))
    slot = draw.randrange(nodes)
    faults = [
        draw.choice(
            [
                Fault(0.0, "submission lost", count=draw.randint(1, nodes)),
                Fault(
                    round(draw.uniform(0.3, 5.0), 3),
                    "scheduler lies",
                    slot=slot,
                    seconds=6.0,
                    count=2,
                ),
                Fault(round(draw.uniform(0.3, 5.0), 3), "launcher killed", seconds=1.0),
                Fault(0.0, "submission unsure", count=draw.randint(1, nodes)),
            ]
        )
    ]
    if draw.random() < 0.4:
        faults.append(Fault(0.0, "slow arm", slot=draw.randrange(nodes), seconds=9.0))
        launch = replace(launch, boot=tuple(min(boot, 0.5) for boot in boots))
    if draw.random() < 0.5:
        what = draw.choice(["kill", "host down", "term", "refuses", "pause"])
        later = round(draw.uniform(0.5, 6.0), 3)
        faults.append(Fault(later, what, slot=slot, seconds=9.0, count=2))
    return _of(schedule, launch, *faults)


def _an_outage_ends(draw: random.Random, schedule: Schedule) -> Schedule:
    """A node is not heard of for some polls, or the registry stood still; connections close."""
    nodes = draw.randint(2, 4)
    launch = _shaped(draw, nodes, seconds=30.0)
    slot, when = draw.randrange(nodes), round(draw.uniform(3.0, 6.0), 3)
    if draw.random() < 0.5:
        seconds = round(draw.uniform(6.5, 11.0), 3)
        end = draw.choice(["kill", "pause", "reset"])
        faults = [
            Fault(when, "pause", slot=slot, seconds=seconds),
            Fault(round(when + seconds - draw.uniform(0.1, 2.0), 3), end, slot=slot, seconds=15.0),
        ]
    else:
        faults = [
            Fault(when, "registry pause", seconds=round(draw.uniform(3.0, 12.0), 3)),
            Fault(round(when + draw.uniform(0.0, 3.0), 3), "reset", slot=slot),
        ]
    return _of(schedule, launch, *faults)


def _a_former_launch(draw: random.Random, schedule: Schedule) -> Schedule:
    """A run ends while a node of it is not heard of, and another launch takes its name."""
    nodes = draw.randint(2, 3)
    launch = _shaped(draw, nodes, seconds=2.0, retries=0)
    second = _shaped(draw, nodes, at=draw.choice([8.0, 12.0, 20.0]), retries=0)
    slot, when = draw.randrange(nodes), draw.choice([2.0, 4.0])
    faults = (
        Fault(
            when, draw.choice(["pause", "cut"]), slot=slot, seconds=round(draw.uniform(8, 30), 3)
        ),
        Fault(when, "launcher killed", seconds=0.0),
        Fault(round(when + draw.uniform(0.5, 3.0), 3), "cancelled"),
    )
    keep = draw.choice([3_600.0, 3_600.0, 2.0])
    return replace(schedule, launches=(launch, second), faults=faults, keep_finished=keep)


def _nothing_wrong(draw: random.Random, schedule: Schedule) -> Schedule:
    """Only where and how the nodes stand is odd."""
    nodes = draw.randint(3, 6)
    launch = _shaped(draw, nodes, subnets=draw.choice([1, 2]), least=draw.randint(1, nodes))
    launch = replace(launch, ranks=_ranks(draw, nodes), led=draw.random() < 0.2)
    if draw.random() < 0.5:
        boots = list(launch.boot)
        boots[draw.randrange(1, nodes)] = 30.0
        launch = replace(launch, boot=tuple(boots))
    keep = draw.choice([3_600.0, 2.0])
    return replace(_of(schedule, launch), keep_finished=keep)


def _nobody_submits(draw: random.Random, schedule: Schedule) -> Schedule:
    """A node is lost while the others are awaited, and its launcher is gone."""
    nodes = draw.randint(2, 3)
    launch = _shaped(draw, nodes, retries=2)
    launch = replace(launch, boot=(*launch.boot[:-1], 14.0))
    when = draw.uniform(2.0, 8.0)
    faults = (
        Fault(1.5, "launcher killed", seconds=0.0),
        Fault(round(when, 3), draw.choice(["kill", "term"]), slot=draw.randrange(nodes - 1)),
    )
    return _of(schedule, launch, *faults)


def _back_in_the_queue(draw: random.Random, schedule: Schedule) -> Schedule:
    """A worker run is queued again that was said to run, and never comes."""
    nodes = draw.randint(1, 3)
    launch = _shaped(draw, nodes)
    launch = replace(launch, boot=(*launch.boot[:-1], 60.0))
    when, seconds = round(draw.uniform(3.0, 12.0), 3), round(draw.uniform(3.0, 9.0), 3)
    lie = Fault(when, "scheduler lies", slot=nodes - 1, seconds=seconds, count=3)
    return _of(schedule, launch, lie)


def _sick_and_refusing(draw: random.Random, schedule: Schedule) -> Schedule:
    """One node is sick and another one refuses for good; just enough others are there, or not."""
    nodes = draw.randint(3, 5)
    launch = _shaped(draw, nodes, least=nodes - draw.randint(1, 2))
    sick, refusing = draw.sample(range(1, nodes), 2)
    faults = [Fault(0.0, "sick", slot=sick), Fault(0.0, "refuses", slot=refusing)]
    if draw.random() < 0.3:  # it says so twice, before its launcher has submitted it again
        faults = [
            Fault(0.0, "refuses", slot=refusing, count=2),
            Fault(0.0, "doubled", slot=refusing, count=5),
            Fault(0.0, "late", slot=refusing, seconds=0.3, count=8),
            Fault(0.4, "late", slot=-1, seconds=1.0, count=12),
        ]
    return _of(schedule, launch, *faults)


def _two_networks(draw: random.Random, schedule: Schedule) -> Schedule:
    """Nodes do not reach each other on the first network, and maybe some not on the other."""
    nodes = draw.randint(3, 5)
    launch = _shaped(draw, nodes, least=draw.randint(1, nodes), networks=2, verify=True)
    kinds = draw.choice([["network cut"], ["network cut", "unreachable"], ["unreachable"]])
    slots = draw.sample(range(nodes), len(kinds))
    faults = [Fault(0.0, what, slot=slot) for what, slot in zip(kinds, slots, strict=True)]
    return _of(schedule, launch, *faults)


def _another_table(draw: random.Random, schedule: Schedule) -> Schedule:
    """A node acknowledges a table that is not the run's."""
    nodes = draw.randint(1, 4)
    launch = _shaped(draw, nodes)
    return _of(schedule, launch, Fault(0.0, "other table", slot=draw.randrange(nodes)))


def _cancelled_early(draw: random.Random, schedule: Schedule) -> Schedule:
    """Somebody cancels while what the launcher says is on its way."""
    launch = _shaped(draw, draw.randint(1, 4))
    faults = (
        Fault(0.0, "late", slot=-1, seconds=round(draw.uniform(1.0, 4.0), 3), count=12),
        Fault(round(draw.uniform(0.3, 3.0), 3), "cancelled"),
    )
    return _of(schedule, launch, *faults)


RARE_SITUATIONS: list[Situation] = [
    _cancelled_early,
    _nobody_submits,
    _back_in_the_queue,
    _sick_and_refusing,
    _two_networks,
    _another_table,
]
SITUATIONS: list[Situation] = [
    _failures_close_together,
    _a_silent_first_cause,
    _one_comes_back,
    _left_out_and_lost,
    _an_end_before_the_others,
    _spares_step_in,
    _latecomers,
    _failing_before_the_go,
    _led,
    _taken_ports,
    _most_are_silent,
    _death_and_cancel,
    _long_queues,
    _a_twin,
    _a_second_generation,
    _an_outage_ends,
    _a_former_launch,
    _nothing_wrong,
]


# What happens to launchers alone: how the registry stands to them is drawn before.


def _one_after_the_other(draw: random.Random, schedule: Schedule) -> Schedule:
    """A launcher is killed before the go, and another one takes up what it has left."""
    before, nodes = schedule.launches[0], draw.randint(1, 4)
    launch = _shaped(draw, nodes, here=before.here, owns_registry=before.owns_registry)
    boots = [draw.choice([0.2, 3.0, 6.0]) for _ in range(nodes)]
    launch = replace(launch, boot=tuple(boots))
    when: float | str = round(draw.uniform(0, 6), 3)
    if draw.random() < 0.5:
        when = f"slot {draw.randint(1, 4 * nodes)} after"
    faults = [Fault(when, "launcher killed", seconds=round(draw.uniform(0.2, 5.0), 3))]
    if draw.random() < 0.5:
        faults.append(_launcher_fault(draw, nodes, faults))
    if draw.random() < 0.3:
        what = draw.choice(["kill", "preempted", "submission lost"])
        faults.append(Fault(round(draw.uniform(0.3, 6.0), 3), what, slot=draw.randrange(nodes)))
    return _of(schedule, launch, *faults)


def _a_person_ends_it(draw: random.Random, schedule: Schedule) -> Schedule:
    """A launcher gets one signal or two, at any moment."""
    before, nodes = schedule.launches[0], draw.randint(1, 4)
    launch = _shaped(draw, nodes, here=before.here, owns_registry=before.owns_registry)
    when = draw.choice([draw.uniform(0.0, 1.5), draw.uniform(0.0, 12.0)])
    seconds = draw.choice([0.3, 3.0, 12.0])
    told = Fault(round(when, 3), "launcher told", slot=draw.randrange(2), seconds=seconds)
    faults = [replace(told, count=draw.randint(1, 2))]
    if draw.random() < 0.6:
        kinds = ["scheduler silent", "cancel refused", "submission lost", "scheduler busy"]
        kinds += ["registry pause", "registry crash", "slow stop", "launcher paused"]
        early = round(max(0.0, when - draw.uniform(0.0, 1.0)), 3)
        seconds = round(draw.uniform(1.0, 15.0), 3)
        slot, count = draw.randrange(nodes), draw.randint(1, 3)
        faults.append(Fault(early, draw.choice(kinds), slot=slot, seconds=seconds, count=count))
    return _of(schedule, launch, *faults)


def _the_registry_of_a_launch(draw: random.Random, schedule: Schedule) -> Schedule:
    """A launcher's own registry is killed again and again, or its disk is full for long."""
    nodes = draw.randint(1, 3)
    launch = _shaped(draw, nodes, here=schedule.launches[0].here, owns_registry=True)
    faults = [
        Fault(round(draw.uniform(0.2, 8.0), 3), "registry crash", seconds=draw.choice([0.1, 1.0]))
        for _ in range(draw.randint(1, 7))
    ]
    if draw.random() < 0.4:
        when = round(draw.uniform(0.0, 4.0), 3)
        faults = [Fault(when, "disk full", seconds=draw.choice([2.0, 10.0, 70.0]))]
    if draw.random() < 0.3:
        when = round(draw.uniform(0.0, 4.0), 3)
        faults.append(Fault(when, "folder full", seconds=draw.choice([2.0, 10.0, 40.0])))
    return _of(schedule, launch, *faults)


def _a_slow_end(draw: random.Random, schedule: Schedule) -> Schedule:
    """At the end the scheduler does not answer, ends nothing, or a node does not leave."""
    before, nodes = schedule.launches[0], draw.randint(1, 3)
    launch = _shaped(draw, nodes, here=before.here, owns_registry=before.owns_registry)
    launch = replace(launch, program=tuple((2.0 + draw.random(), 0) for _ in range(nodes)))
    if draw.random() < 0.3:
        launch = replace(launch, program=((1.0, 3), *launch.program[1:]))
    kinds = ["scheduler silent", "cancel refused", "pause", "slow stop", "host down", "folder full"]
    kinds += ["launcher paused", "logs hang", "registry pause"]
    faults = [
        Fault(
            draw.choice(["exited 1 before", "exited 1 after", "left 1 after"]),
            draw.choice(kinds),
            slot=draw.randrange(nodes),
            seconds=round(draw.choice([3.0, 30.0, 90.0]) * draw.uniform(0.5, 1.0), 3),
        )
        for _ in range(draw.randint(1, 2))
    ]
    return _of(schedule, launch, *faults)


LAUNCH_SITUATIONS: list[Situation] = [
    _one_after_the_other,
    _one_after_the_other,
    _a_person_ends_it,
    _a_person_ends_it,
    _the_registry_of_a_launch,
    _a_slow_end,
]


# --- what is wrong on one node's own machine ------------------------------------------------------


def _hurried(draw: random.Random, schedule: Schedule) -> Schedule:
    """A node is told to end, and not to wait; its program is slow to start, or to stop."""
    nodes = draw.randint(1, 4)
    launch = _shaped(draw, nodes, seconds=9.0, led=draw.random() < 0.15)
    launch = replace(launch, ranks_each=draw.choice([0, 2]))
    slot = draw.randrange(nodes)
    faults = [Fault(0.0, "slow stop", slot=slot, seconds=round(draw.uniform(2.0, 8.0), 3))]
    if draw.random() < 0.6:
        late = round(draw.uniform(0.5, 2.5), 3)
        faults.append(Fault(0.0, "slow start", slot=slot, seconds=late))
    if draw.random() < 0.3:
        faults.append(Fault(0.0, "start refused", slot=slot, count=draw.randint(1, 2)))
    when = f"acked {nodes} after" if draw.random() < 0.5 else round(draw.uniform(1.0, 5.0), 3)
    seconds, count = round(draw.uniform(0.01, 2.0), 3), draw.randint(1, 3)
    faults.append(Fault(when, "hurry", slot=slot, seconds=seconds, count=count))
    return _of(schedule, launch, *faults)


def _slow_to_start(draw: random.Random, schedule: Schedule) -> Schedule:
    """While a program is being started another one fails, somebody cancels, or a signal comes."""
    nodes = draw.randint(2, 4)
    launch = _shaped(draw, nodes, seconds=12.0, led=draw.random() < 0.15)
    first, second = draw.sample(range(nodes), 2)
    faults = [Fault(0.0, "slow start", slot=first, seconds=round(draw.uniform(0.8, 2.5), 3))]
    if draw.random() < 0.5:
        faults.append(Fault(0.0, "start refused", slot=first, count=draw.randint(1, 2)))
    what = draw.choice(["program fails", "cancelled", "hurry", "kill", "signal passed"])
    slot = second if what in ("program fails", "kill") else first
    faults.append(Fault(f"acked {nodes} after", what, slot=slot, seconds=0.2))
    return _of(schedule, launch, *faults)


def _a_disk_hangs(draw: random.Random, schedule: Schedule) -> Schedule:
    """A node's disk hangs, and nobody is there who would kill it."""
    nodes = draw.randint(1, 3)
    launch = _shaped(draw, nodes, seconds=3.0)
    slot = draw.randrange(nodes)
    door = draw.choice(["restore_stale", "make_offer", "arm", "remove", "remove"])
    seconds = draw.choice([0.0, 0.0, round(draw.uniform(3.0, 14.0), 3)])
    faults = [Fault(0.0, "hangs", slot=slot, seconds=seconds, count=HANGING.index(door) + 1)]
    if draw.random() < 0.7:
        faults.append(Fault(round(draw.uniform(1.0, 3.0), 3), "launcher killed", seconds=0.0))
    if draw.random() < 0.5:
        what = draw.choice(["term", "hurry", "parent gone"])
        faults.append(Fault(round(draw.uniform(1.0, 8.0), 3), what, slot=slot, seconds=0.5))
    return _of(schedule, launch, *faults)


def _a_network_log(draw: random.Random, schedule: Schedule) -> Schedule:
    """NCCL's log is read of a program that fails, or cannot be."""
    nodes = draw.randint(1, 3)
    launch = _shaped(draw, nodes, seconds=4.0, follows_network=True)
    slot = draw.randrange(nodes)
    doors = ["nccl_log", "verdicts", "trouble"]
    wrong = draw.choice(
        [
            Fault(0.0, "breaks", slot=slot, count=BREAKING.index(draw.choice(doors)) + 1),
            Fault(0.0, "hangs", slot=slot, count=HANGING.index("trouble") + 1),
            Fault(0.0, "hangs", slot=slot, count=HANGING.index("open_nccl_log") + 1),
            Fault(0.0, "no log folder", slot=slot),
        ]
    )
    faults = [wrong, Fault(0.0, "slow stop", slot=slot, seconds=2.5)]
    if draw.random() < 0.8:
        faults.append(Fault(round(draw.uniform(1.5, 4.0), 3), "program fails", slot=slot))
    if draw.random() < 0.4:
        faults.append(Fault(round(draw.uniform(2.0, 4.0), 3), "cancelled"))
    return _of(schedule, launch, *faults)


def _led_with_faults(draw: random.Random, schedule: Schedule) -> Schedule:
    """Remote commands lack what they need, or break."""
    nodes = draw.randint(2, 3)
    launch = _shaped(draw, nodes, seconds=3.0, led=True)
    slot = draw.randrange(nodes)
    breaks = Fault(0.0, "breaks", slot=slot, count=BREAKING.index("relay_take") + 1)
    kinds = [Fault(0.0, what, slot=slot) for what in ("no socket", "no hostfile", "no shims")]
    faults = [draw.choice([breaks, breaks, *kinds])]
    if draw.random() < 0.4:
        when, count = round(draw.uniform(1.5, 4.0), 3), draw.randint(1, 3)
        faults.append(Fault(when, "hurry", slot=draw.randrange(nodes), seconds=0.5, count=count))
    return _of(schedule, launch, *faults)


NODE_SITUATIONS: list[Situation] = [
    _hurried,
    _slow_to_start,
    _a_disk_hangs,
    _a_network_log,
    _led_with_faults,
]


# What is rare with launchers, and needs its own preparation. Drawn after all else, from a stream of
# their own.

_AGAIN = ("options", "size", "size", "scheduler", "gone", "host", "port", "")
_WITH_SCHEDULERS = (
    "cancel refused",
    "list lags",
    "scheduler busy",
    "scheduler hangs",
    "scheduler lies",
    "scheduler silent",
    "submission lost",
    "submission slow",
    "submission unsure",
    "preempted",
)


def _seen_by(draw: random.Random, nodes: int, **changes: Any) -> Launch:
    """A launch of any kind, whose scheduler mostly can look for what it has."""
    kind = {
        "here": draw.random() < 0.4,
        "owns_registry": draw.random() < 0.5,
        "finds": draw.random() < 0.8,
    }
    return _shaped(draw, nodes, **(kind | changes))


def _one_of(draw: random.Random, *times: float | str) -> float | str:
    return draw.choice(times)


def _of_schedulers(draw: random.Random, nodes: int, when: float) -> Fault:
    """What a scheduler does about that time."""
    return Fault(
        round(max(0.0, when + draw.uniform(-1.5, 0.5)), 3),
        draw.choice(_WITH_SCHEDULERS),
        slot=draw.randrange(nodes),
        seconds=round(draw.choice([1.5, 6.0, 30.0]) * draw.uniform(0.4, 1.0), 3),
        count=draw.randint(1, 3),
    )


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
    nodes, again = draw.randint(1, 3), draw.choice(_AGAIN)
    launch = _seen_by(draw, nodes, again=again, owns_registry=draw.random() < 0.85)
    boots = [draw.choice([0.2, 6.0, 6.0]) for _ in range(nodes)]
    launch = replace(launch, boot=tuple(boots))
    when = round(draw.uniform(1.0, 5.0), 3)
    back = round(draw.uniform(5.0, 8.0) if again == "host" else draw.uniform(0.3, 5.0), 3)
    faults = [Fault(when, "launcher killed", seconds=back)]
    if draw.random() < 0.35:
        faults.append(Fault(when, "port held", seconds=draw.choice([2.0, 16.0])))
    if draw.random() < 0.5:
        faults.append(_of_schedulers(draw, nodes, when + back))
    if draw.random() < 0.35:
        later = round(when + back + draw.choice([draw.uniform(0.3, 0.5), draw.uniform(0, 2)]), 3)
        kinds = ["registry crash", "registry pause", "registry ill", "registry ill"]
        kind = draw.choice(kinds)
        early = later if kind != "registry ill" else round(when + 0.1, 3)
        what = Fault(early, kind, seconds=round(back + draw.choice([2.0, 12.0]), 3))
        faults.append(draw.choice([what, what, _told_to_end(draw, later)]))
    if draw.random() < 0.1:
        faults.append(Fault(when, "part breaks", count=draw.choice([3, 4, 5, 6, 7])))
    if draw.random() < 0.1:
        launch = replace(launch, finds=False, here=False, again=draw.choice(["options", "size"]))
        return _of(schedule, launch, *_without_ids(back, nodes))
    return _of(schedule, launch, *faults)


def _ended_by_hand(draw: random.Random, schedule: Schedule) -> Schedule:
    """A launcher is killed and nobody launches again: a person ends what it has left."""
    nodes = draw.randint(1, 3)
    launch = _seen_by(draw, nodes)
    when = _one_of(draw, 0.2, 1.0, 3.0, f"slot {draw.randint(1, 2 * nodes)} after")
    by_hand = round(draw.uniform(3.0, 8.0), 3)
    faults = [
        Fault(when, "launcher killed", seconds=0.0),
        Fault(by_hand, "cleared", seconds=30.0),
    ]
    if draw.random() < 0.7:
        faults.append(_of_schedulers(draw, nodes, draw.choice([0.5, by_hand])))
    if draw.random() < 0.3:
        faults.append(Fault(by_hand - 1.0, "part breaks", count=draw.choice([4, 5])))
    if draw.random() < 0.3:
        return _of(schedule, replace(launch, finds=False), *_without_ids(0.0, nodes), faults[1])
    return _of(schedule, launch, *faults)


def _ended_in_a_hurry(draw: random.Random, schedule: Schedule) -> Schedule:
    """A person has no patience with a scheduler that has none either."""
    nodes = draw.randint(1, 4)
    launch = _seen_by(draw, nodes, retries=1)
    if draw.random() < 0.6:
        launch = replace(launch, boot=tuple(draw.choice([0.3, 30.0]) for _ in range(nodes)))
    when = round(draw.choice([0.5, 2.0, 6.0, 9.0]) * draw.uniform(0.5, 1.0), 3)
    faults = [_told_to_end(draw, when)]
    if draw.random() < 0.4:
        faults.append(Fault(round(when + 0.1, 3), "scheduler hangs", seconds=30.0))
    for _ in range(draw.randint(1, 2)):
        faults.append(_of_schedulers(draw, nodes, draw.choice([0.4, when + 0.5])))
    if draw.random() < 0.3:
        faults.append(Fault(round(when - 0.1, 3), "registry pause", seconds=20.0))
    if draw.random() < 0.25:  # what was submitted has no id, and is not listed yet
        early = round(draw.uniform(0.2, 0.8), 3)
        what = draw.choice(["submission lost", "submission slow"])
        faults = [
            Fault(0.0, "list lags", seconds=0.8),
            Fault(0.0, what, seconds=30.0, count=nodes),
            _told_to_end(draw, early),
        ]
    elif draw.random() < 0.15:  # what is queued for long cannot be ended
        launch = replace(launch, queue=(200.0,) * nodes, here=False)
        told = Fault(2.0, "launcher told", seconds=1.0)
        faults = [Fault(0.0, "cancel refused", count=draw.randint(1, 2)), told]
    return _of(schedule, launch, *faults)


def _many_slots(draw: random.Random, schedule: Schedule) -> Schedule:
    """More slots than are submitted at once, most of which wait in a queue."""
    nodes = draw.randint(18, 21)
    launch = _seen_by(draw, nodes, verify=False, here=draw.random() < 0.5, join_timeout=20.0)
    queues = [60.0] * nodes
    launch = replace(launch, queue=tuple(queues), owns_registry=True)
    slow = Fault(0.0, draw.choice(["submission slow", "scheduler busy"]), seconds=8.0, count=24)
    when = round(draw.uniform(0.5, 12.0), 3)
    end = draw.choice([_told_to_end(draw, when), Fault(when, "cancelled")])
    faults = [slow, end]
    if draw.random() < 0.3:
        kill = Fault(round(when * 0.7, 3), "launcher killed", seconds=1.0)
        faults = [slow, kill, Fault(when + 4.0, "cancelled")]
    if draw.random() < 0.4:
        faults.append(_of_schedulers(draw, nodes, when))
    if draw.random() < 0.4:
        faults.append(Fault(0.1, "folder full", seconds=round(draw.uniform(0.5, 6.0), 3)))
    if draw.random() < 0.3:  # nobody answers a cancel
        faults = [slow, _told_to_end(draw, when)]
        pause = round(draw.uniform(5.0, 15.0), 3)
        faults.append(Fault(round(when - 0.1, 3), "registry pause", seconds=pause))
    elif launch.here and draw.random() < 0.6:  # slot 0's node keeps its launcher after the end
        faults.append(Fault(round(when - 0.2, 3), "pause", seconds=20.0))
    return _of(schedule, launch, *faults)


def _a_part_breaks(draw: random.Random, schedule: Schedule) -> Schedule:
    """Something fails of a launcher that nobody expected to fail."""
    nodes = draw.randint(1, 3)
    launch = _seen_by(draw, nodes)
    any_time = round(draw.uniform(0.2, 9.0), 3)
    when = _one_of(draw, 0.0, any_time, "exited 1 after", "left 1 after")
    faults = [Fault(when, "part breaks", count=draw.randint(1, 8))]
    if draw.random() < 0.3:
        faults.append(Fault(0.0, "port held", seconds=draw.choice([1.0, 16.0])))
    if draw.random() < 0.3:
        faults.append(_told_to_end(draw, round(draw.uniform(0.3, 9.0), 3)))
    if draw.random() < 0.3:
        killed = round(draw.uniform(1.0, 4.0), 3)
        faults.append(Fault(killed, "launcher killed", seconds=draw.choice([0.5, 2.0])))
    return _of(schedule, launch, *faults)


def _equal_nodes(draw: random.Random, schedule: Schedule) -> Schedule:
    """All nodes come by themselves, at their own time; slot 0's has the registry."""
    nodes = draw.randint(2, 4)
    launch = _shaped(draw, nodes, here=True, owns_registry=True, symmetric=True)
    boots = [draw.choice([0.1, 1.0, 5.0, 15.0]) for _ in range(nodes)]
    programs = [(2.0 + draw.random(), draw.choice([0, 0, 0, 3])) for _ in range(nodes)]
    launch = replace(launch, boot=tuple(boots), program=tuple(programs))
    faults = []
    if draw.random() < 0.7:
        kinds = ["kill", "host down", "refuses", "sick", "program fails", "registry crash"]
        kinds += ["sick", "refuses"]
        slot, what = draw.randrange(nodes), draw.choice(kinds)
        when = 0.0 if what in ("sick", "refuses") else round(draw.uniform(0.0, 8.0), 3)
        faults = [Fault(when, what, slot=slot, seconds=1.0)]
    if draw.random() < 0.3:
        faults.append(_told_to_end(draw, round(draw.uniform(0.3, 9.0), 3)))
    return _of(schedule, launch, *faults)


def _a_full_folder(draw: random.Random, schedule: Schedule) -> Schedule:
    """What a launch keeps in its folder cannot be written for a while."""
    nodes = draw.randint(2, 3)
    launch = _seen_by(draw, nodes, verify=draw.random() < 0.7)
    acked = f"acked {nodes} before"
    when = _one_of(draw, acked, "probed 1 after", "left 1 before", 0.0, 0.1)
    seconds = draw.choice([1.5, 4.0, 30.0])
    faults = [Fault(when, "folder full", seconds=seconds)]
    if draw.random() < 0.5:
        faults.append(Fault(0.0, draw.choice(["sick", "unreachable"]), slot=nodes - 1))
    return _of(schedule, launch, *faults)


def _without_a_registry(draw: random.Random, schedule: Schedule) -> Schedule:
    """A launcher's registry is away: at the creation, at the end, or for good."""
    nodes = draw.randint(1, 3)
    launch = _seen_by(draw, nodes, retries=1)
    launch = replace(launch, owns_registry=draw.random() < 0.5)
    any_time = round(draw.uniform(0.0, 8.0), 3)
    when = _one_of(draw, 0.0, any_time, "exited 1 after", "left 1 before")
    what = draw.choice(["registry crash", "registry crash", "registry pause", "disk full"])
    seconds = draw.choice([0.0 if what == "registry crash" else 90.0, 6.0, 25.0, 80.0])
    faults = [Fault(when, what, seconds=seconds)]
    if draw.random() < 0.15:
        faults = [Fault(round(draw.uniform(0.35, 1.5), 3), "disk full", seconds=90.0)]
        return _of(schedule, replace(launch, boot=(2.0,) * nodes), *faults)
    if draw.random() < 0.2:  # nobody asks for the run until it is forgotten
        launch = replace(launch, owns_registry=False)
        faults = [Fault("exited 1 after", "launcher paused", seconds=40.0)]
        return replace(_of(schedule, launch, *faults), keep_finished=2.0)
    if what == "registry crash" and draw.random() < 0.4:
        again = [round(draw.uniform(0.5, 12.0), 3) for _ in range(5)]
        faults += [Fault(at, what, seconds=0.1) for at in again]
    if draw.random() < 0.5:
        then = when if isinstance(when, str) else round(when + draw.uniform(0.0, 5.0), 3)
        faults.append(_told_to_end(draw, then))
    if draw.random() < 0.25:  # it goes when the result is known, and a node has not left
        program = ((2.0, 3), (20.0, 0), (20.0, 0))
        launch = replace(_shaped(draw, 3, here=launch.here, owns_registry=True), program=program)
        faults = [
            Fault("left 1 after", "pause", slot=1, seconds=20.0),
            Fault("left 1 after", "registry ill", seconds=30.0),
            Fault("left 1 after", "registry crash", seconds=0.1),
            Fault(0.0, "slow stop", slot=1, seconds=8.0),
        ]
    return _of(schedule, launch, *faults)


def _replaced_at_the_go(draw: random.Random, schedule: Schedule) -> Schedule:
    """A worker run is given up, and the run goes on without its slot, as it is submitted again."""
    nodes = draw.randint(2, 4)
    launch = _seen_by(draw, nodes, least=draw.randint(1, nodes - 1), verify=False, retries=2)
    launch = replace(launch, owns_registry=False)
    boots = [*launch.boot[:-1], draw.choice([0.3, 4.0, 9.0])]
    launch = replace(launch, boot=tuple(boots))
    slot = nodes - 1
    if draw.random() < 0.4:  # it is lost before its submission is answered
        slow = Fault(0.0, "submission slow", seconds=draw.choice([6.0, 12.0, 30.0]), count=nodes)
        lost = Fault(round(draw.uniform(1.0, 5.0), 3), draw.choice(["kill", "term"]), slot=slot)
        faults = [slow, lost]
        if draw.random() < 0.5:
            faults.append(_told_to_end(draw, round(draw.uniform(2.0, 12.0), 3)))
        return _of(schedule, replace(launch, owns_registry=draw.random() < 0.5), *faults)
    faults = [
        draw.choice(
            [
                Fault(0.0, "submission lost", count=nodes),
                Fault(0.0, "submission unsure", count=nodes),
                Fault(3.0, "scheduler lies", slot=slot, seconds=6.0, count=2),
                Fault(round(draw.uniform(1.0, 5.0), 3), "kill", slot=slot),
            ]
        ),
        Fault(
            round(draw.uniform(0.2, 5.0), 3),
            "late",
            slot=-1,
            seconds=round(draw.uniform(1.0, 5.0), 3),
            count=draw.randint(4, 30),
        ),
    ]
    if draw.random() < 0.5:
        faults.append(_of_schedulers(draw, nodes, draw.uniform(0.5, 6.0)))
    return _of(schedule, launch, *faults)


def _taken_up_late(draw: random.Random, schedule: Schedule) -> Schedule:
    """A launcher comes back, and what it is to take up is not found, or not yet, or is over."""
    nodes = draw.randint(1, 3)
    launch = _seen_by(draw, nodes, retries=draw.choice([1, 2]))
    launch = replace(launch, boot=tuple(draw.choice([0.3, 5.0, 9.0]) for _ in range(nodes)))
    when: float | str = f"slot {draw.randint(1, 3 * nodes)} {draw.choice(['before', 'after'])}"
    if draw.random() < 0.4:
        when = round(draw.uniform(0.3, 4.0), 3)
    faults = [Fault(when, "launcher killed", seconds=round(draw.uniform(0.3, 3.0), 3))]
    if draw.random() < 0.3:
        faults.append(Fault(0.0, "list lags", seconds=round(draw.uniform(2.0, 8.0), 3)))
    if draw.random() < 0.3:
        faults.append(Fault(0.1, "folder full", seconds=round(draw.uniform(0.5, 3.0), 3)))
    for _ in range(draw.randint(1, 2)):
        faults.append(_of_schedulers(draw, nodes, draw.choice([0.3, 2.0, 4.0])))
    if draw.random() < 0.4:
        later = round(draw.uniform(1.0, 9.0), 3)
        faults.append(Fault(later, "kill", slot=draw.randrange(nodes)))
    if draw.random() < 0.3:
        faults.append(_told_to_end(draw, round(draw.uniform(2.0, 9.0), 3)))
    return _of(schedule, launch, *faults)


ODD_LAUNCHES: list[Situation] = [
    _launched_again_otherwise,
    _launched_again_otherwise,
    _ended_by_hand,
    _ended_in_a_hurry,
    _many_slots,
    _a_part_breaks,
    _equal_nodes,
    _a_full_folder,
    _without_a_registry,
    _replaced_at_the_go,
    _taken_up_late,
]


def _with_odd_launches(draw: random.Random, schedule: Schedule) -> Schedule:
    """Now and then another schedule altogether."""
    if draw.random() >= _ODD_SHARE:
        return schedule
    return draw.choice(ODD_LAUNCHES)(draw, replace(schedule, keep_finished=3_600.0))
