"""What schedules are drawn with: shapes of launches, moments, ranks, faults of launchers."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from inspect import isfunction, signature
from typing import Any

from tests.simulation.schedule import Fault, Launch, Schedule, names

_EVENTS = names("""
created, slot, joined, probed, acked, arm_refused, exited, left, lost, timed_out, last_call_over,
verdict, restarted
""")
_HOW_OFTEN = (1, 6, 4, 4, 4, 1, 3, 3, 1, 1, 1, 1, 1)
Kind = tuple[int, float, int]
"""Of a fault: its weight, the longest seconds, the largest count."""
OF_LAUNCHERS: dict[str, Kind] = {
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

Situation = Callable[[random.Random, Schedule], Schedule]


def situations(
    module: dict[str, Any], besides: Sequence[Situation] = (), twice: Sequence[Situation] = ()
) -> list[Situation]:
    """The situations of a module so far, in their order; some stand there twice."""
    found: list[Situation] = []
    for each in module.values():
        is_own = isfunction(each) and each.__module__ == module["__name__"]
        if is_own and [*signature(each).parameters] == ["draw", "schedule"] and each not in besides:
            found += [each] * (2 if each in twice else 1)
    return found


def near(draw: random.Random, low: float, high: float) -> float:
    """Some moment between them."""
    return round(draw.uniform(low, high), 3)


def after(draw: random.Random, when: float, low: float, high: float) -> float:
    """Some moment that is so much later."""
    return round(when + draw.uniform(low, high), 3)


def one(draw: random.Random, kinds: str) -> str:
    """One of those that a text lists."""
    return draw.choice(names(kinds))


def some(draw: random.Random, count: int, *values: float) -> tuple[float, ...]:
    """So many, each one of these."""
    return tuple([draw.choice(values) for _ in range(count)])


def slower(launch: Launch, seconds: float) -> Launch:
    """The last slot's node comes so much later."""
    return replace(launch, boot=(*launch.boot[:-1], launch.boot[-1] + seconds))


def late(launch: Launch, seconds: float) -> Launch:
    """The last slot's node comes so late."""
    return replace(launch, boot=(*launch.boot[:-1], seconds))


def shaped(draw: random.Random, nodes: int, **changes: Any) -> Launch:
    """A launch that nothing is wrong with, its programs of about the same length."""
    seconds = changes.pop("seconds", 5.0)
    slots = nodes + changes.get("spares", 0) + changes.get("standby", 0)
    launch = Launch(
        run="r0",
        at=0.0,
        nodes=nodes,
        least=nodes,
        verify=draw.random() < 0.5,
        retries=draw.choice([0, 1, 2]),
        lease=draw.choice([15.0, 24.0]),
        join_timeout=20.0,
        queue=tuple(near(draw, 0.0, 0.5) for _ in range(slots)),
        boot=tuple(near(draw, 0.05, 0.5) for _ in range(slots)),
        program=tuple((round(seconds + draw.uniform(0, 1), 3), 0) for _ in range(slots)),
        ranks=(None,) * slots,
        contagion=0.0,
    )
    return replace(launch, **changes)


def of(schedule: Schedule, launch: Launch, *faults: Fault) -> Schedule:
    return replace(schedule, launches=(launch,), faults=faults)


def draw_when(draw: random.Random, nodes: int, former: list[Fault]) -> float | str:
    if former and draw.random() < 0.3:
        when = former[-1].when
        return when if isinstance(when, str) else round(when + draw.uniform(0, 0.6), 3)
    if draw.random() < 0.5:
        return round(draw.choice([4.0, 8.0, 20.0]) * draw.random(), 3)
    kind = draw.choices(_EVENTS, _HOW_OFTEN)[0]
    return f"{kind} {draw.randint(1, 2 * nodes)} {draw.choice(['before', 'after'])}"


def draw_ranks(draw: random.Random, nodes: int) -> tuple[int | None, ...]:
    """Ranks that the nodes ask for; now and then two ask for the same."""
    others = list(range(1, nodes))
    draw.shuffle(others)
    ranks = [0, *others]
    if nodes > 2 and draw.random() < 0.3:
        ranks[-1] = ranks[-2]
    if draw.random() < 0.4:
        ranks[draw.randrange(nodes)] = draw.choice([0, 1, nodes, nodes + 2, 99])
    return tuple(rank if draw.random() < 0.8 else None for rank in ranks)


def weighed(draw: random.Random, kinds: dict[str, Kind]) -> tuple[str, float, int]:
    """One kind of fault, with its longest seconds and its largest count."""
    what = draw.choices(list(kinds), [weight for weight, _, _ in kinds.values()])[0]
    return what, *kinds[what][1:]


def launcher_fault(draw: random.Random, nodes: int, former: list[Fault]) -> Fault:
    what, longest, most = weighed(draw, OF_LAUNCHERS)
    early = what in ("submission unsure", "scheduler busy", "list lags", "cancel refused")
    return Fault(
        when=0.0 if early else draw_when(draw, nodes, former),
        what=what,
        slot=draw.randrange(2),
        seconds=round(draw.choice([0.5, 2.0, longest]) * draw.uniform(0.1, 1), 3),
        count=draw.randint(1, most),
    )
