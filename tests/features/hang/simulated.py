"""Programs of many ranks that run until each waits or is at its end: what a look then finds.

A program is a list of steps for each rank. Collectives end when all members have called them, and
the same one; a receive when its send was made. At its end a rank is gone.
A rank that is planted stays at one of its steps, or takes other ones.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from features.hang.wire import Call, ProcessGroup
from tests.features.hang.runs import FORWARD, LOAD, RECV, Frames, One, torch


@dataclass(frozen=True)
class Collective:
    group: str
    operation: str = "all_reduce"
    what: str = "float32[8]"


@dataclass(frozen=True)
class Send:
    to: int


@dataclass(frozen=True)
class Receive:
    of: int


@dataclass(frozen=True)
class Stuck:
    """Where the planted rank stays."""


Step = Collective | Send | Receive | Stuck


@dataclass
class Member:
    """One rank while it runs."""

    steps: Sequence[Step]
    at: int = 0
    called: dict[str, list[Collective]] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    inside: bool = False
    received: dict[int, int] = field(default_factory=dict)


class Program:
    """All ranks, and the members of their groups."""

    def __init__(self, steps: Sequence[Sequence[Step]], members: dict[str, list[int]]) -> None:
        self.ranks = [Member(each) for each in steps]
        self.members = members
        self.path: dict[tuple[int, int], int] = {}

    def run(self) -> None:
        """Until nothing moves any more."""
        moves = True
        while moves:
            moves = sum(map(self._advance, range(len(self.ranks)))) > 0

    def run_for(self, moves: int, chance: random.Random) -> None:
        """For so many tries of ranks to move: it is well, and seen in the midst of it."""
        for _ in range(moves):
            self._advance(chance.randrange(len(self.ranks)))

    def _advance(self, number: int) -> bool:
        """Let a rank do its next step, or leave it."""
        one = self.ranks[number]
        if one.at == len(one.steps):
            return False
        step = one.steps[one.at]
        if isinstance(step, Stuck):
            return False
        if isinstance(step, Send):
            self.path[number, step.to] = self.path.get((number, step.to), 0) + 1
        elif isinstance(step, Receive):
            had = one.received.get(step.of, 0)
            if self.path.get((step.of, number), 0) <= had:
                return False
            one.received[step.of] = had + 1
        else:
            return self._collective(one, step)
        one.at += 1
        return True

    def _collective(self, one: Member, step: Collective) -> bool:
        called = one.called.setdefault(step.group, [])
        if not one.inside:
            called.append(step)
            one.inside = True
            return True
        count = len(called)
        if any(len(self.ranks[r].called.get(step.group, [])) < count for r in self._of(step)):
            return False
        if len({self.ranks[r].called[step.group][count - 1] for r in self._of(step)}) > 1:
            return False
        one.ended[step.group] = count
        one.inside = False
        one.at += 1
        return True

    def _of(self, step: Collective) -> list[int]:
        return self.members[step.group]

    def seen(self, *, with_members: bool, age: float = 300.0, receive: Frames = RECV) -> list[One]:
        """What a look finds; `receive`: the stack of one that waits for a message."""
        found = [self._seen(one, with_members, age) for one in self.ranks]
        return [one.but(stack=receive) if one.stack is RECV else one for one in found]

    def _seen(self, one: Member, with_members: bool, age: float) -> One:
        if one.at == len(one.steps):
            return One((), None, "absent", "")
        groups = []
        for name, called in one.called.items():
            number, ended = len(called), one.ended.get(name, 0)
            calls = [
                Call(
                    number=n + 1,
                    operation=called[n].operation,
                    what=called[n].what,
                    age=age + (number - n) * 0.1,
                )
                for n in range(max(0, number - 4), number)
            ]
            members = ",".join(map(str, self.members[name])) if with_members else ""
            words = "default_pg" if name == "0" else name[:2]
            groups.append(
                ProcessGroup(
                    name=name,
                    words=words,
                    members=members,
                    called=number,
                    ended=ended,
                    calls=calls,
                    usual=0.1,
                )
            )
        step = one.steps[one.at]
        stack = FORWARD
        if isinstance(step, Stuck):
            stack = LOAD
        elif isinstance(step, Receive):
            stack = RECV
        elif isinstance(step, Collective) and one.inside:
            stack = torch(step.operation)
        return One(tuple(groups), stack)


def grid(tp: int, dp: int, steps: int) -> tuple[list[list[Step]], dict[str, list[int]]]:
    """A training of tensor and data parallel ranks."""
    size = tp * dp
    members = {"0": list(range(size))}
    for d in range(dp):
        members[f"tp{d}"] = list(range(d * tp, (d + 1) * tp))
    for t in range(tp):
        members[f"dp{t}"] = list(range(t, size, tp))
    program: list[list[Step]] = []
    for rank in range(size):
        one: list[Step] = [Collective("0", "barrier", "")]
        for _ in range(steps):
            one += [Collective(f"tp{rank // tp}"), Collective(f"tp{rank // tp}", "all_gather")]
            one += [Collective(f"dp{rank % tp}"), Collective("0")]
        program.append(one)
    return program, members


def pipeline(stages: int, copies: int, steps: int) -> tuple[list[list[Step]], dict[str, list[int]]]:
    """Copies of a pipeline: activations by send and receive, gradients by all_reduce."""
    size = stages * copies
    members = {"0": list(range(size))}
    for s in range(stages):
        members[f"dp{s}"] = list(range(s, size, stages))
    program: list[list[Step]] = []
    for rank in range(size):
        stage = rank % stages
        one: list[Step] = [Collective("0", "barrier", "")]
        for _ in range(steps):
            one += [Receive(rank - 1)] * (stage > 0) + [Send(rank + 1)] * (stage < stages - 1)
            one += [Receive(rank + 1)] * (stage < stages - 1) + [Send(rank - 1)] * (stage > 0)
            one += [Collective(f"dp{stage}")]
        program.append(one)
    return program, members
