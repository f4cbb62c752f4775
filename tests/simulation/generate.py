"""A schedule from a seed."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation.schedule import Fault, Launch, Schedule

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
    "other job": (1, 0.0, 1),
    "program fails": (6, 0.0, 1),
    "slow exit": (4, 6.0, 1),
    "preempted": (4, 0.0, 1),
    "scheduler lies": (3, 10.0, 2),
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
    if seed % 40 == 7:  # what must be harmless alone is not, beside most other faults
        seconds = _seconds(draw, "isolated", 1.0, launches[0])
        when = f"joined {launches[0].nodes} after"
        faults = [Fault(when, "isolated", seconds=seconds)]
    keep = 2.0 if draw.random() < 0.1 else 3_600.0
    more = random.Random(f"{seed} verifying")
    launches = [_with_networks(more, _with_spares(more, launch)) for launch in launches]
    if random.Random(f"{seed} led").random() < 0.1:
        launches = [replace(launch, led=True) for launch in launches]
    for index, launch in enumerate(launches):
        faults += _bad_hosts(more, index, launch)
    faults += _refusals(random.Random(f"{seed} refusing"), launches[0])
    addresses = random.Random(f"{seed} addresses")
    if addresses.random() < 0.15:
        launches = [replace(launch, addresses=2) for launch in launches]
        faults += _address_cut(addresses, launches[0])
    ranks = random.Random(f"{seed} ranks")
    launches = [replace(launch, ranks_each=ranks.choice([0, 1, 2, 3])) for launch in launches]
    if ranks.random() < 0.1:
        launches = [replace(launch, follows_network=not launch.led) for launch in launches]
        slot = ranks.randrange(launches[0].nodes)
        faults += [Fault(0.0, "falls back", slot=slot, count=ranks.choice([1, 2]))]
    return Schedule(seed, tuple(launches), tuple(faults), keep)


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
    if draw.random() >= 0.04:
        return []
    slot, count = draw.randrange(launch.slots), draw.randint(1, 2)
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
    fails = draw.randrange(nodes) if draw.random() < 0.08 else -1
    return Launch(
        run=run,
        at=at,
        nodes=nodes,
        least=least,
        verify=draw.random() < 0.75,
        retries=draw.choice([0, 1, 1, 2]),
        lease=draw.choice([15.0, 15.0, 15.0, 5.0]),
        join_timeout=draw.choice([20.0, 30.0]),
        queue=tuple(
            40.0 if long_queue and draw.random() < 0.5 else round(draw.uniform(0.0, 2.0), 3)
            for _ in range(nodes)
        ),
        boot=tuple(round(draw.uniform(0.05, 1.5), 3) for _ in range(nodes)),
        program=tuple(
            (round(seconds + draw.uniform(0, 1), 3), int(slot == fails)) for slot in range(nodes)
        ),
        ranks=ranks,
        contagion=draw.choice([0.0, 0.4, 1.5]),
    )


def _ranks(draw: random.Random, nodes: int) -> tuple[int | None, ...]:
    """Ranks that the nodes ask for; now and then two ask for the same."""
    others = list(range(1, nodes))
    draw.shuffle(others)
    ranks = [0, *others]
    if nodes > 2 and draw.random() < 0.3:
        ranks[-1] = ranks[-2]
    return tuple(rank if draw.random() < 0.8 else None for rank in ranks)


def _fault(draw: random.Random, launches: list[Launch], former: list[Fault]) -> Fault:
    what = draw.choices(_NAMES, _WEIGHTS)[0]
    _, seconds, count = _KINDS[what]
    launch = draw.randrange(len(launches))
    nodes = launches[launch].nodes
    return Fault(
        when=_when(draw, nodes, former),
        what=what,
        launch=launch,
        slot=draw.randrange(nodes),
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
        return round(launch.lease * draw.uniform(1.03, 1.2), 3)
    if what == "registry crash":
        never = draw.random() < 0.04
        return 0.0 if never else round(draw.choice([0.05, 1.0, longest]) * draw.uniform(0.2, 1), 3)
    if what in ("late", "pause", "slow exit"):
        return round(draw.choice([0.3, 2.0, longest]) * draw.uniform(0.2, 1), 3)
    if what == "launcher killed":
        return 0.0 if draw.random() < 0.3 else round(draw.uniform(0.5, longest), 3)
    return round(longest * draw.uniform(0.1, 1), 3)
