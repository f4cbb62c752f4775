"""Training programs: what each rank does, one thing after the other. `world` runs them.

What a rank draws by chance is its own: a program runs the same with and without its straggler.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

ALL = "0"


class Call(NamedTuple):
    """Call a collective, and go on."""

    group: str
    kind: str


class Wait(NamedTuple):
    """For one's own calls of a group, but for the newest `but`."""

    group: str
    but: int = 0


class Send(NamedTuple):
    """Give a message."""

    to: int


class Receive(NamedTuple):
    """Wait for a message."""

    of: int


class Copy(NamedTuple):
    """Get a value of the group's first rank: a broadcast."""

    number: int


Doing = Call | Wait | Send | Receive | Copy | float
"""A number: compute for so many seconds."""
Doings = Iterator[Doing]


@dataclass(frozen=True)
class Slow:
    """Who is slow: by a share of the step, in its work or besides it, in a part of all steps."""

    ranks: tuple[int, ...]
    share: float
    where: str = "work"
    part: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True)
class Job:
    """A program, and how it runs; what is left out is moderate.

    Attributes:
        program: What a rank does.
        slow: Who makes the others wait.
        step: Seconds of work in each.
        noise: Of the work: the standard deviation of its logarithm.
        network: Of a step: what a collective takes.
        release: Of a step: by how much ranks leave a collective at different times, in the mean.
        clocks: Seconds: by how much the nodes' clocks are wrong at most, as they say.
        window: How many calls of a group a node tells of.
        ordinary: A rank's usual trouble, by its name in `_trouble`.
        tensor: How many neighbours share their work, or are the stages of a pipeline.
    """

    program: Callable[[Rank], Doings]
    slow: tuple[Slow, ...] = ()
    ranks: int = 4
    per_node: int = 2
    steps: int = 100
    step: float = 0.1
    noise: float = 0.03
    network: float = 0.1
    release: float = 0.005
    clocks: float = 0.0005
    window: int = 2000
    ordinary: str = ""
    tensor: int = 2


@dataclass
class Rank:
    """What a program knows of its rank."""

    job: Job
    rank: int
    chance: random.Random
    common: random.Random
    drift: float = 0.0

    def work(self, step: int, share: float = 1.0) -> float:
        """So much of a step's work."""
        job = self.job
        seconds = job.step * share * math.exp(self.chance.gauss(0.0, job.noise))
        seconds *= self._trouble(step)
        for slow in self._slow(step, "work"):
            seconds += job.step * share * slow.share * math.exp(self.chance.gauss(0.0, job.noise))
        return seconds

    def load(self, step: int, where: str = "load") -> float:
        """What it does besides its work: to load the data, which takes next to nothing."""
        job, seconds = self.job, self.job.step * 0.01 * self.chance.random()
        for slow in self._slow(step, where):
            seconds += job.step * slow.share * math.exp(self.chance.gauss(0.0, job.noise))
        return seconds

    def _slow(self, step: int, where: str) -> list[Slow]:
        at = step / self.job.steps
        return [
            one
            for one in self.job.slow
            if self.rank in one.ranks and one.where == where and one.part[0] <= at < one.part[1]
        ]

    def _trouble(self, step: int) -> float:
        """What any rank meets now and then: by how much its work is longer."""
        kind, job = self.job.ordinary, self.job
        draw = self.chance.random()
        if kind == "pauses" and draw < 0.02:
            return 1.5 + self.chance.random()
        if kind == "drift":
            self.drift = max(-0.01, min(0.01, self.drift + self.chance.gauss(0.0, 0.002)))
            return 1.2 + 0.2 * math.sin(9.0 * step / job.steps) + self.drift
        if kind == "warm" and step < job.steps // 10:
            return 1.0 + 3.0 * draw
        if kind == "batches":  # of the same length everywhere, and of another one each time
            return math.exp(self.common.gauss(0.0, 0.4))
        return 1.0


# ---- programs -----------------------------------------------------------------------------------


def plain(me: Rank) -> Doings:
    """One all_reduce in each step."""
    for step in range(me.job.steps):
        yield me.load(step)
        yield me.work(step)
        yield Call(ALL, "a")
        yield Wait(ALL)


def buckets(me: Rank) -> Doings:
    """Buckets are given away during the backward pass; it waits for all of them at its end."""
    for step in range(me.job.steps):
        yield me.load(step)
        yield me.work(step, 0.4)
        for kind in "abcde":
            yield me.work(step, 0.1)
            yield Call(ALL, kind)
        yield Wait(ALL)
        yield me.work(step, 0.1)


def other_order(me: Rank) -> Doings:
    """As `buckets`; the last rank has the first of them late, and makes up for it."""
    for step in range(me.job.steps):
        early = 0.3 if me.rank == me.job.ranks - 1 else 0.0
        yield me.work(step, 0.4 + early)
        yield Call(ALL, "a")
        yield me.work(step, 0.5 - early)
        yield Call(ALL, "b")
        yield Wait(ALL)
        yield me.work(step, 0.1)


def sharded(me: Rank) -> Doings:
    """Parameters are gathered one layer ahead, gradients scattered behind."""
    for step in range(me.job.steps):
        yield me.load(step)
        yield Call(ALL, "a")
        for layer in range(4):
            if layer < 3:
                yield Call(ALL, "a")
            yield Wait(ALL, but=int(layer < 3))
            yield me.work(step, 0.1)
        for layer in range(4):
            yield me.work(step, 0.15)
            yield Call(ALL, "b")
            yield Wait(ALL, but=int(layer < 3))


def gathered(me: Rank) -> Doings:
    """The same without looking ahead."""
    for step in range(me.job.steps):
        yield me.load(step)
        for kind in "aaaabbbb":
            yield Call(ALL, kind)
            yield Wait(ALL)
            yield me.work(step, 0.125)


def grid(me: Rank) -> Doings:
    """Tensor parallel in a node, data parallel across: of neighbours, `tensor` share a group."""
    tensor, data = f"tp{me.rank // me.job.tensor}", f"dp{me.rank % me.job.tensor}"
    for step in range(me.job.steps):
        yield me.load(step)
        for _ in range(4):
            yield me.work(step, 0.2)
            yield Call(tensor, "a")
            yield Wait(tensor)
        yield me.work(step, 0.2)
        yield me.load(step, "end")
        yield Call(data, "g")
        yield Wait(data)


def pipeline(me: Rank) -> Doings:
    """Each stage waits for the one before; gradients are shared with the same stage's copy."""
    stages = me.job.tensor
    stage, data = me.rank % stages, f"dp{me.rank % stages}"
    for step in range(me.job.steps):
        for _ in range(2):
            if stage:
                yield Receive(me.rank - 1)
            yield me.work(step, 0.4 / stages)
            if stage < stages - 1:
                yield Send(me.rank + 1)
        yield Call(data, "g")
        yield Wait(data)


def never_waits(me: Rank) -> Doings:
    """It looks at no result: ranks drift apart."""
    for step in range(me.job.steps):
        yield me.work(step)
        yield Call(ALL, "a")


def waits_later(me: Rank) -> Doings:
    """It waits for the call of the step before."""
    for step in range(me.job.steps):
        yield me.load(step)
        yield me.work(step)
        yield Call(ALL, "a")
        yield Wait(ALL, but=1)


def local(me: Rank) -> Doings:
    """Parameters are averaged every eight steps of its own."""
    for step in range(me.job.steps):
        yield me.load(step)
        yield me.work(step)
        if step % 8 == 7:
            yield Call(ALL, "a")
            yield Wait(ALL)


def logs(me: Rank) -> Doings:
    """Rank 0 writes a line each step, evaluates now and then, and saves more rarely."""
    for step in range(me.job.steps):
        yield me.work(step)
        yield Call(ALL, "a")
        yield Wait(ALL)
        if me.rank == 0:
            busy = 0.01 + 0.8 * (step % 8 == 7) + 4.0 * (step % 25 == 24)
            yield me.job.step * busy


def extra(me: Rank) -> Doings:
    """One more all_reduce every ten steps."""
    for step in range(me.job.steps):
        yield me.load(step)
        yield me.work(step, 0.5)
        yield Call(ALL, "a")
        yield Wait(ALL)
        yield me.work(step, 0.5)
        yield Call(ALL, "b")
        yield Wait(ALL)
        if step % 10 == 9:
            yield Call(ALL, "x")
            yield Wait(ALL)


def single_extra(me: Rank) -> Doings:
    """The same, where a step has but one."""
    for step in range(me.job.steps):
        yield me.load(step)
        yield me.work(step)
        yield Call(ALL, "a")
        yield Wait(ALL)
        if step % 10 == 9:
            yield Call(ALL, "x")
            yield Wait(ALL)


def copies(me: Rank) -> Doings:
    """Rank 0 gives its buffers to all others at the begin of each step."""
    for step in range(me.job.steps):
        yield me.load(step)
        yield Copy(step)
        yield me.work(step)
        yield Call(ALL, "a")
        yield Wait(ALL)


def evaluates(me: Rank) -> Doings:
    """All evaluate together now and then, with other calls."""
    for step in range(me.job.steps):
        yield me.load(step)
        yield me.work(step)
        yield Call(ALL, "a")
        yield Wait(ALL)
        if step % 40 == 39:
            for _ in range(6):
                yield me.work(step, 0.3)
                yield Call(ALL, "e")
                yield Wait(ALL)


def members_of(job: Job) -> dict[str, list[int]]:
    """The process groups."""
    size, tensor = job.ranks, job.tensor
    members = {ALL: list(range(size))}
    if job.program in (grid, pipeline):
        members |= {f"dp{t}": list(range(t, size, tensor)) for t in range(tensor)}
        members |= {
            f"tp{d}": list(range(d * tensor, (d + 1) * tensor)) for d in range(size // tensor)
        }
    return members
