"""A schedule from a seed."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation import launch_situations
from tests.simulation.again_situations import with_restarts
from tests.simulation.departure_situations import with_departures
from tests.simulation.drawing import Kind, draw_ranks, draw_when, launcher_fault, near, one, weighed
from tests.simulation.launch_situations import LATER_LAUNCHES, LAUNCH_SITUATIONS, ODD_LAUNCHES
from tests.simulation.lives import LIVES
from tests.simulation.loss_situations import on_another_network, with_losses
from tests.simulation.node_situations import NODE_SITUATIONS, each_in_turn, one_after_another
from tests.simulation.queue_situations import with_full_queues
from tests.simulation.schedule import BREAKING, HANGING, OTHER_JOBS, Fault, Launch, Schedule, names
from tests.simulation.situations import RARE_SITUATIONS, SITUATIONS

_LOCAL: dict[str, Kind] = {
    "request lost": (6, 0.0, 3),
    "answer lost": (10, 0.0, 3),
    "doubled": (8, 0.0, 5),
    "late": (8, 6.0, 12),
    "cut up": (3, 20.0, 1),
    "cut down": (3, 20.0, 1),
    "cut": (4, 25.0, 1),
    "loss": (4, 20.0, 40),
    "hung up": (6, 0.0, 1),
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
_GLOBAL: dict[str, Kind] = {
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
_OF_DOORS: dict[str, Kind] = {
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
_LATER, _LATER_AT = 37, 20
"""One seed in so many has a launch of those that were thought of later: no seed that is kept."""
_HEADS, _HEADS_AT = 61, 48
"""One seed in so many has runs that end with node 0: no seed that is kept."""
_LIVES, _LIVES_AT = 10, 5
"""One seed in so many has something that outlives what was to replace it; or, every second one of
them, what may be wrong on a node's machine, each in turn."""
_AGAIN = 127
_AGAIN_AT = {
    *map(int, names("4, 15, 17, 26, 28, 32, 34, 46, 50, 59, 61, 68, 71, 76, 78")),
    *map(int, names("80, 81, 84, 86, 101, 103, 107, 109, 119, 121, 125")),
}
"""Seeds whose programs may start again, by what is left of them: of no seed that is kept."""
_WARM = 31
_WARM_AT = {2, 5, 13, 23}
"""Seeds of these whose nodes fork their ranks, as above."""
_MIXED = {3, 8, 17, 29}
"""Seeds of these in which torchrun alone can start the ranks of some nodes."""
_DEPARTING = 151
_DEPARTING_AT = {
    *map(int, names("50, 58, 65, 67, 68, 71, 72, 73, 78, 82, 84, 87, 89")),
    *map(int, names("95, 97, 103, 108, 115, 116, 117, 118, 119, 125, 130")),
}
"""Seeds in which a node may say that it will go, as above."""
_LOSING = 199
_LOSING_AT = {
    *map(int, names("56, 64, 77, 79, 83, 85, 88, 98, 122, 129, 136, 139, 141, 142, 144")),
    *map(int, names("157, 160, 161, 163, 173, 174, 175, 176, 177, 179, 181, 182, 183")),
    *map(int, names("185, 186, 187, 189, 191, 192, 198")),
}
"""Seeds of runs that outlive their nodes, as above."""
_MOVING, _MOVING_AT = 17, {7, 10, 13, 16}
_STARTING, _STARTING_AT = 47, 38
"""Seeds of these whose first network is another one after a loss, and seeds whose launch is ended
while its registry starts, as above."""
_FILLING, _FILLING_AT = 109, {21, 23, 29, 37, 49, 72, 75, 80, 101}
"""Seeds in which queues are full, as above."""
_ARMING, _ARMING_AT = 71, 27
"""One seed in so many has nodes that get ready one after another, as above."""
_OF_PATHS = {"request lost", "answer lost", "doubled", "late", "hung up", "echo"}
"""What may happen on the way of a launcher as well."""
_ODD_SHARE = 0.25
_KINDS = _LOCAL | _GLOBAL


def generate(seed: int) -> Schedule:
    """The schedule of a seed: mostly one launch, a few faults, all of them close together."""
    schedule = _once(seed)
    if starts_again(seed):
        schedule = with_restarts(random.Random(f"{seed} restarts"), schedule)
    if seed % _DEPARTING in _DEPARTING_AT:
        schedule = with_departures(random.Random(f"{seed} departures"), schedule)
    if outlives_nodes(seed):
        schedule = with_losses(random.Random(f"{seed} losses"), schedule)
        if seed % _MOVING in _MOVING_AT:
            schedule = on_another_network(random.Random(f"{seed} networks"), schedule)
    if seed % _STARTING == _STARTING_AT:
        draw = random.Random(f"{seed} starting")
        schedule = launch_situations.while_the_registry_starts(draw, schedule)
    if seed % _FILLING in _FILLING_AT:
        schedule = with_full_queues(random.Random(f"{seed} queues"), schedule)
    if seed % _ARMING == _ARMING_AT:
        schedule = one_after_another(random.Random(f"{seed} arming"), schedule)
    if starts_again(seed) and seed % _WARM in _WARM_AT:
        launches = [replace(launch, warm=not launch.led) for launch in schedule.launches]
        schedule = replace(schedule, launches=tuple(launches))
    if seed % _WARM in _MIXED:
        draw = random.Random(f"{seed} mixed")
        launches = [
            replace(launch, torchruns=tuple(s for s in range(launch.slots) if draw.random() < 0.4))
            for launch in schedule.launches
        ]
        schedule = replace(schedule, launches=tuple(launches))
    if seed % _HEADS == _HEADS_AT:
        heads = [replace(x, heads=True, led=False, ranks_each=0) for x in schedule.launches]
        schedule = replace(schedule, launches=tuple(heads))
    return schedule


def starts_again(seed: int) -> bool:
    """Whether the programs of this seed may start again."""
    return seed % _AGAIN in _AGAIN_AT


def outlives_nodes(seed: int) -> bool:
    """Whether the run of this seed goes on after a node's loss."""
    return seed % _LOSING in _LOSING_AT


def _once(seed: int) -> Schedule:
    """The same, with programs that start once."""
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
        faults = [Fault(f"joined {launches[0].nodes} after", "isolated", seconds=seconds)]
    keep = 2.0 if draw.random() < 0.1 else 3_600.0
    more = random.Random(f"{seed} verifying")
    launches = [_with_spares(more, launch) for launch in launches]
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
    if seed % _LIVES == _LIVES_AT:
        lives = random.Random(f"{seed} lives")
        schedule = lives.choice(LIVES)(lives, schedule)
    schedule = _with_ranks(random.Random(f"{seed} ranks"), schedule)
    schedule = _with_node_doors(random.Random(f"{seed} node doors"), schedule)
    schedule = _with_launchers(random.Random(f"{seed} launchers"), schedule)
    if seed % (2 * _LIVES) == _LIVES + _LIVES_AT:
        return each_in_turn(random.Random(f"{seed} in turn"), schedule, seed // (2 * _LIVES))
    odd, later = random.Random(f"{seed} odd launches"), random.Random(f"{seed} later launches")
    if odd.random() < _ODD_SHARE:  # another schedule altogether
        schedule = odd.choice(ODD_LAUNCHES)(odd, replace(schedule, keep_finished=3_600.0))
    if seed % _LATER == _LATER_AT:
        schedule = later.choice(LATER_LAUNCHES)(later, replace(schedule, keep_finished=3_600.0))
    return schedule


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
            fault = launcher_fault(draw, launches[0].nodes, list(schedule.faults))
            schedule = replace(schedule, faults=(*schedule.faults, fault))
    return schedule


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
    what = what or weighed(draw, _OF_DOORS)[0]
    _, seconds, count = _OF_DOORS[what]
    launch = draw.randrange(len(launches))
    nodes = launches[launch].nodes
    return Fault(
        when=draw_when(draw, nodes, []) if what in _SUDDEN else 0.0,
        what=what,
        launch=launch,
        slot=draw.randrange(nodes),
        seconds=0.0 if what == "hangs" and draw.random() < 0.5 else _part(draw, seconds, 0.05),
        count=draw.randint(1, count),
    )


def _part(draw: random.Random, longest: float, least: float) -> float:
    return round(longest * draw.uniform(least, 1), 3)


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
    """Whether there are spare slots, and a second network."""
    if draw.random() < 0.2:
        spares = draw.choice([1, 1, 2])
        more = range(spares)
        launch = replace(
            launch,
            spares=spares,
            queue=launch.queue + tuple(near(draw, 0.0, 2.0) for _ in more),
            boot=launch.boot + tuple(near(draw, 0.05, 1.5) for _ in more),
            program=launch.program + launch.program[:1] * spares,
            ranks=launch.ranks + (None,) * spares,
        )
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
    kinds, slots = kinds[: draw.randint(1, 2)], range(launch.slots)
    return [Fault(0.0, what, launch=index, slot=draw.choice(slots)) for what in kinds]


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
    when, slot = draw_when(draw, launch.nodes, []), draw.randrange(launch.nodes)
    seconds, count = near(draw, 2.0, 30.0), draw.choice([1, 1, 1, 2])
    return [Fault(when, "address cut", slot=slot, seconds=seconds, count=count)]


def _launch(draw: random.Random, run: str, at: float) -> Launch:
    nodes = draw.choice([1, 2, 2, 3, 3, 3, 4, 4, 5, 6])
    least = draw.randint(1, nodes) if draw.random() < 0.3 else nodes
    long_queue = draw.random() < 0.1
    ranks = draw_ranks(draw, nodes) if draw.random() < 0.15 else (None,) * nodes
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
            40.0 if long_queue and draw.random() < 0.5 else near(draw, 0.0, 2.0)
            for _ in range(nodes)
        ),
        boot=tuple(near(draw, 0.05, 1.5) for _ in range(nodes)),
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


def _fault(draw: random.Random, launches: list[Launch], former: list[Fault]) -> Fault:
    what, seconds, count = weighed(draw, _KINDS)
    launch = draw.randrange(len(launches))
    nodes = launches[launch].nodes
    of_launcher = what in _OF_PATHS and draw.random() < 0.1
    return Fault(
        when=draw_when(draw, nodes, former),
        what=what,
        launch=launch,
        slot=-1 if of_launcher else draw.randrange(nodes),
        seconds=_seconds(draw, what, seconds, launches[launch]),
        count=draw.randint(1, count),
    )


# Faults that are rare together, and hurt together.


def _crash_after_failure(draw: random.Random, launch: Launch) -> list[Fault]:
    slot, seconds = draw.randrange(launch.nodes), near(draw, 0.5, 8.0)
    fails = Fault(near(draw, 4.0, 7.0), "program fails", slot=slot)
    return [fails, Fault("exited 1 after", "registry crash", seconds=seconds)]


def _late_report(draw: random.Random, launch: Launch) -> list[Fault]:
    slot, when = draw.randrange(launch.nodes), near(draw, 4.0, 7.0)
    slow = Fault(0.0, "slow exit", slot=slot, seconds=near(draw, 0.5, 2.0))
    return [slow, Fault(when, "program fails", slot=slot)]


def _pause_before_the_go(draw: random.Random, launch: Launch) -> list[Fault]:
    when = f"{one(draw, 'joined, probed, acked')} {draw.randint(1, launch.nodes)} after"
    return [Fault(when, "registry pause", seconds=near(draw, 12.0, 40.0))]


def _late_acknowledgements(draw: random.Random, launch: Launch) -> list[Fault]:
    taken = Fault(0.0, "port taken", slot=0, seconds=1.0, count=draw.randint(1, 3))
    late = Fault("probed 1 after", "late", seconds=0.3, count=8)
    return [taken, *(replace(late, slot=slot) for slot in range(1, launch.nodes))]


def _death_on_a_full_disk(draw: random.Random, launch: Launch) -> list[Fault]:
    when, slot = near(draw, 3.5, 6.0), draw.randrange(launch.nodes)
    full = Fault(round(when - 0.2, 3), "disk full", seconds=near(draw, 0.5, 3.0))
    return [Fault(when, "kill", slot=slot), full]


_THEMES = [_crash_after_failure, _late_report, _pause_before_the_go]
_THEMES += [_late_acknowledgements, _death_on_a_full_disk]


def _seconds(draw: random.Random, what: str, longest: float, launch: Launch) -> float:
    if what == "isolated":
        return round(launch.lease * draw.uniform(1.03, 1.2 if launch.lease < 15 else 1.6), 3)
    if what == "registry crash":
        never = draw.random() < 0.04
        return 0.0 if never else _part(draw, draw.choice([0.05, 1.0, longest]), 0.2)
    if what in ("late", "pause", "slow exit", "slow stop"):
        return _part(draw, draw.choice([0.3, 2.0, longest]), 0.2)
    if what == "launcher killed":
        return 0.0 if draw.random() < 0.3 else near(draw, 0.5, longest)
    return _part(draw, longest, 0.1)
