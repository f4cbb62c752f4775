"""Programs on a virtual clock: when each rank called its collectives, as the nodes tell it.

A call ends when all members have made it and the network has done its work.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from rendezvous.pace import Straggler, Timeline
from rendezvous.pace import judge as judge_groups
from rendezvous.wire.pace import Arrivals, Pace, PaceAnswer, Receives
from rendezvous.wire.question import Answers, NodeAnswer
from tests.rendezvous.pace.programs import (
    ALL,
    Call,
    Doing,
    Job,
    Rank,
    Receive,
    Send,
    Wait,
    copies,
    members_of,
    pipeline,
)


@dataclass
class Group:
    """When each rank made each call, by how many it was made, and when they ended, in order."""

    members: list[int]
    kinds: dict[int, list[str]] = field(default_factory=dict)
    made: dict[int, list[float]] = field(default_factory=dict)
    by: list[int] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)


class World:
    """All ranks of a job until they have done all."""

    def __init__(self, job: Job, seed: int) -> None:
        self.job = job
        self.groups = {name: Group(ranks) for name, ranks in members_of(job).items()}
        for group in self.groups.values():
            group.made = {rank: [] for rank in group.members}
            group.kinds = {rank: [] for rank in group.members}
        self.sent: dict[tuple[int, int], list[float]] = {}
        self.copied: list[float] = []
        self.now = [0.0] * job.ranks
        self.chances = [random.Random(f"{seed} {rank}") for rank in range(job.ranks)]
        self.releases = [random.Random(f"{seed} {rank} release") for rank in range(job.ranks)]
        self._run(seed)

    def _run(self, seed: int) -> None:
        ranks = [
            Rank(self.job, rank, self.chances[rank], random.Random(f"{seed} common"))
            for rank in range(self.job.ranks)
        ]
        doing = [self.job.program(rank) for rank in ranks]
        at: list[Doing | None] = [next(one, None) for one in doing]
        waiting = deque(range(self.job.ranks))
        while waiting:
            rank = waiting.popleft()
            while (one := at[rank]) is not None and self._does(rank, one):
                at[rank] = next(doing[rank], None)
            if at[rank] is not None:
                waiting.append(rank)

    def _does(self, rank: int, one: Doing) -> bool:
        """Whether it could do this."""
        if isinstance(one, float):
            self.now[rank] += one
        elif isinstance(one, Call):
            group = self.groups[one.group]
            group.kinds[rank].append(one.kind)
            group.made[rank].append(self.now[rank])
            self._made(group, len(group.made[rank]) - 1)
        elif isinstance(one, Wait):
            group = self.groups[one.group]
            count = len(group.made[rank]) - one.but
            if len(group.ended) < count:
                return False
            if count > 0:
                self._until(rank, group.ended[count - 1])
        elif isinstance(one, Send):
            self.sent.setdefault((rank, one.to), []).append(self.now[rank])
        elif isinstance(one, Receive):
            got = self.sent.get((one.of, rank))
            if not got:
                return False
            self._until(rank, got.pop(0) + self._network())
        elif rank == 0:
            self.copied.append(self.now[0])
        else:
            if len(self.copied) <= one.number:
                return False
            self._until(rank, self.copied[one.number] + self._network())
        return True

    def _until(self, rank: int, end: float) -> None:
        late = self.releases[rank].expovariate(1.0) * self.job.release * self.job.step
        self.now[rank] = max(self.now[rank], end) + late

    def _network(self) -> float:
        return self.job.network * self.job.step

    def _made(self, group: Group, number: int) -> None:
        if number == len(group.by):
            group.by.append(0)
        group.by[number] += 1
        if group.by[number] == len(group.members):
            last = max(made[number] for made in group.made.values())
            group.ended.append(max([last, *group.ended[-1:]]) + self._network())

    def look(self, part: tuple[float, float] = (0.0, 1.0), *, seed: int = 0) -> Answers:
        """What the nodes tell when this part of all calls has been made, and is remembered."""
        job, chance = self.job, random.Random(f"{seed} clocks")
        nodes = []
        for slot, first in enumerate(range(0, job.ranks, job.per_node)):
            ranks = range(first, min(job.ranks, first + job.per_node))
            ahead = chance.uniform(-job.clocks, job.clocks)
            arrivals = [
                self._arrivals(name, group, own, part, ahead)
                for name, group in self.groups.items()
                if (own := [rank for rank in group.members if rank in ranks]) and group.ended
            ]
            receives = [
                Receives(rank=rank, group="" if job.program is pipeline else ALL)
                for rank in ranks
                if job.program in (pipeline, copies)
            ]
            pace = Pace(clock_error=job.clocks, arrivals=arrivals, receives=receives)
            report = PaceAnswer(number=1, epoch=0, pace=pace)
            nodes.append(NodeAnswer(slot=slot, node=slot, report=report))
        return Answers(number=1, over=True, nodes=nodes)

    def _arrivals(
        self, name: str, group: Group, own: list[int], part: tuple[float, float], ahead: float
    ) -> Arrivals:
        count = len(group.ended)
        end = max(1, round(part[1] * count))
        begin = max(round(part[0] * count), end - self.job.window)
        times = {
            rank: [1_000_000_000 + round((ahead + at) * 1e6) for at in group.made[rank][begin:end]]
            for rank in own
        }
        kinds = "".join(group.kinds[own[0]][begin:end])
        every = 2 if self.job.program is copies else 1  # a copy has a number, too
        return arrivals(name, group.members, times, kinds, every * begin + 1, every)


def arrivals(
    name: str,
    members: list[int] | None,
    times: Mapping[int, list[int]],
    kinds: str,
    number: int = 1,
    every: int = 1,
) -> Arrivals:
    """What a node tells of the times, in microseconds, at which its ranks have made their calls."""
    ranks = list(times)
    rows = list(zip(*times.values(), strict=True))
    firsts = [min(row) for row in rows]
    late, second, last = [], [], []
    if len(ranks) > 1:
        for row in rows:
            order = sorted(range(len(row)), key=row.__getitem__)
            late.append(row[order[-1]] - row[order[0]])
            second.append(row[order[-2]] - row[order[0]])
            last.append(order[-1])
    return Arrivals(
        group=name,
        members=",".join(map(str, members or [])),
        ranks=ranks,
        number=number,
        steps=[every] * (len(rows) - 1),
        kinds=kinds,
        began=firsts[0],
        gaps=[after - before for before, after in pairwise(firsts)],
        late=late,
        second=second,
        last=last,
    )


def looks(job: Job, seed: int) -> list[Answers]:
    """Two of a run, one after the other."""
    world = World(job, seed)
    return [world.look(part, seed=seed + at) for at, part in enumerate(((0.0, 0.5), (0.5, 1.0)))]


def true_cost(job: Job, seed: int) -> float:
    """By how many seconds a step is longer than without who is slow."""
    took = max(World(job, seed).now)
    without = max(World(replace(job, slow=()), seed).now)
    return (took - without) / job.steps


def judge(look: Answers) -> Straggler | None:
    """The straggler, by what the nodes have told, in the order in which they are given."""
    timeline = Timeline()
    for node in look.nodes:
        if node.report is not None and node.report.pace is not None:
            timeline.add(node.slot, node.report.pace)
    return judge_groups(timeline.groups())
