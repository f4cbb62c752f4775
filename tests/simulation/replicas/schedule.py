"""A schedule of replicas from a seed: runs, clocks and faults, as plain values."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass, replace
from typing import Any

HOSTS = "abc"
OWNER = -1
"""As a fault's host: the one that the fault's moment is about, or that has most runs."""


@dataclass(frozen=True)
class Launch:
    """One launch of a run; one of the same name comes after the end of the one before it.

    Attributes:
        at: Seconds from the start, or from that end.
        boot: By slot, seconds from the run's making to the node's join.
        program: By slot, how long it runs and its exit code.
        cancel: So many seconds after its making; 0: never.
    """

    run: str
    at: float
    lease: float
    verify: bool
    boot: tuple[float, ...]
    program: tuple[tuple[float, int], ...]
    cancel: float = 0.0
    max_restarts: int = 0

    @property
    def nodes(self) -> int:
        return len(self.boot)


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong: after so many seconds, or at a call of the engine, as in
    `append 12 before` or `claim 3 after`.

    Attributes:
        seconds: How long it lasts, or until the next process is there.
        amount: How slow each commit is.
    """

    when: float | str
    what: str
    host: int = 0
    seconds: float = 0.0
    amount: float = 0.0


@dataclass(frozen=True)
class Schedule:
    """All that a simulation starts from; the seed gives delays and jitter.

    Attributes:
        offsets: Of the hosts' monotonic clocks.
        rates: How fast they go.
        keep_finished: Seconds after which a run that ended is forgotten.
    """

    seed: int
    launches: tuple[Launch, ...]
    faults: tuple[Fault, ...]
    offsets: tuple[float, ...]
    rates: tuple[float, ...]
    keep_finished: float = 3_600.0

    def without(self, faults: tuple[Fault, ...]) -> Schedule:
        return replace(self, faults=faults)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)


def from_json(text: str) -> Schedule:
    value = json.loads(text)
    return Schedule(
        value["seed"],
        tuple(_launch(launch) for launch in value["launches"]),
        tuple(Fault(**fault) for fault in value["faults"]),
        tuple(value["offsets"]),
        tuple(value["rates"]),
        value["keep_finished"],
    )


def _launch(value: dict[str, Any]) -> Launch:
    program = tuple((seconds, code) for seconds, code in value["program"])
    return Launch(**(value | {"boot": tuple(value["boot"]), "program": program}))


_KINDS: dict[str, tuple[int, float, float]] = {
    "kill": (6, 0.2, 6.0),
    "die": (3, 1.0, 8.0),
    "stop": (7, 1.0, 15.0),
    "cut": (4, 0.3, 12.0),
    "cut up": (2, 0.3, 8.0),
    "cut down": (3, 0.3, 8.0),
    "isolated": (2, 0.5, 6.0),
    "away": (4, 0.5, 15.0),
    "restart": (4, 0.0, 0.0),
    "slow": (3, 1.0, 8.0),
    "full": (2, 0.3, 5.0),
    "drain": (4, 0.5, 4.0),
    "roll": (1, 0.5, 3.0),
    "all die": (1, 0.5, 4.0),
    "lost answer": (5, 0.0, 0.0),
    "node dies": (1, 0.0, 0.0),
}
"""By fault: its weight, and the least and the most seconds."""


def generate(seed: int) -> Schedule:
    """The schedule of a seed."""
    draw = random.Random(seed)
    runs = draw.choice([1, 1, 2, 2, 3])
    launches = [launch for run in range(runs) for launch in _launches(draw, f"r{run}")]
    faults: list[Fault] = []
    for _ in range(draw.choice([1, 2, 2, 3, 3, 4, 5])):
        faults.append(_fault(draw, faults))
    return Schedule(
        seed,
        tuple(launches),
        tuple(faults),
        tuple(round(draw.uniform(-3_600, 3_600), 3) for _ in HOSTS),
        tuple(round(1 + draw.uniform(-0.01, 0.01), 5) for _ in HOSTS),
        draw.choice([1.0, 3.0, 3_600.0, 3_600.0]),
    )


def _launches(draw: random.Random, run: str) -> list[Launch]:
    count = draw.choice([1, 1, 1, 2, 3])
    return [_one(draw, run, draw.uniform(0.0, 4.0) if first else draw.choice([0.0, 0.3, 2.0]))
            for first in [True] + [False] * (count - 1)]  # fmt: skip


def _one(draw: random.Random, run: str, at: float) -> Launch:
    nodes = draw.choice([2, 2, 2, 3, 3, 4])
    seconds, fails = draw.uniform(0.5, 7.0), draw.random() < 0.12
    spread = draw.choice([0.2, 1.0, 3.0])
    seconds += 12.0 if draw.random() < 0.1 else 0.0
    return Launch(
        run=run,
        at=round(at, 3),
        lease=draw.choice([4.0, 10.0, 15.0]),
        verify=draw.random() < 0.4,
        boot=tuple(round(draw.uniform(0.0, 2.0), 3) for _ in range(nodes)),
        program=tuple(
            (round(seconds + draw.uniform(0, spread), 3), 3 if fails and slot == nodes - 1 else 0)
            for slot in range(nodes)
        ),
        cancel=round(draw.uniform(0.2, 9.0), 3) if draw.random() < 0.15 else 0.0,
        max_restarts=1 if draw.random() < 0.2 else 0,
    )


def _fault(draw: random.Random, former: list[Fault]) -> Fault:
    kinds = list(_KINDS)
    [what] = draw.choices(kinds, [_KINDS[kind][0] for kind in kinds])
    _, least, most = _KINDS[what]
    seconds = draw.uniform(least, most)
    if what == "away" and draw.random() < 0.1:
        seconds = 60.0
    host = OWNER if draw.random() < 0.6 else draw.randrange(len(HOSTS))
    amount = draw.choice([0.3, 1.0, 2.5, 4.0]) if what == "slow" else 0.0
    return Fault(_when(draw, former), what, host, round(seconds, 3), amount)


def _when(draw: random.Random, former: list[Fault]) -> float | str:
    if former and draw.random() < 0.3:
        when = former[-1].when
        return when if isinstance(when, str) else round(when + draw.uniform(0, 4.0), 3)
    if draw.random() < 0.5:
        return round(draw.uniform(0.0, 14.0), 3)
    side = draw.choice(["before", "after"])
    call, most = draw.choice(
        [("append", 40), ("append", 40), ("claim", 5), ("claim", 5), ("hand_over", 3)]
    )
    return f"{call} {draw.randint(1, most)} {side}"
