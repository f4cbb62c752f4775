"""Runs as a look finds them, made by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from features.hang.wire import (
    Call,
    Frame,
    LookReport,
    NodeLook,
    ProcessGroup,
    ProcessLook,
    RankLook,
    Recorder,
    RunLook,
    Stack,
    Stage,
)

TORCH = "/usr/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
LOGGER = "/usr/lib/python3.11/site-packages/torch/distributed/c10d_logger.py"
MAIN = ("<module>", "/home/u/hang.py", 30)
Frames = tuple[tuple[str, str, int], ...]


def torch(function: str, line: int = 3252) -> Frames:
    return (function, TORCH, line), ("wrapper", LOGGER, 83), MAIN


REDUCE, GATHER = torch("all_reduce"), torch("all_gather_object")
RECV, INIT = torch("recv"), torch("init_process_group")
LOAD: Frames = (("load_batch", "/home/u/hang.py", 3), MAIN)
SAVE: Frames = (("save", "/home/u/ckpt.py", 8), MAIN)
FORWARD: Frames = (("forward", "/home/u/model.py", 10), MAIN)
LINE: Frames = (("exchange", "/home/u/pipe.py", 33), MAIN)
"""A line that waits in C, as `irecv(...).wait()` does."""
IMPORT: Frames = (
    ("_find_and_load", "<frozen importlib._bootstrap>", 1176),
    ("<module>", "/usr/lib/python3.11/site-packages/torch/__init__.py", 20),
    ("<module>", "/home/u/hang.py", 1),
)


JOIN: Frames = (
    ("select", "lib/python3.11/selectors.py", 415),
    ("wait", "lib/python3.11/multiprocessing/connection.py", 947),
    ("join", "torch/multiprocessing/spawn.py", 140),
    ("main", "/home/u/spawn.py", 14),
)
"""Of a rank that has started others, as a node shortens it."""


def group(
    number: int,
    ended: int | None = None,
    *,
    age: float = 240.0,
    name: str = "0",
    words: str = "default_pg",
    members: str = "",
    operation: str = "all_reduce",
    what: str = "float32[1024]",
    usual: float = 0.3,
    done: bool | None = None,
) -> ProcessGroup:
    """A group of which `number` was called so many seconds ago, and the one before has ended."""
    before = Call(number=number - 1, operation="all_reduce", what=what, age=age + 0.2)
    calls = [before] * (number > 1)
    calls += [Call(number=number, operation=operation, what=what, age=age, done=done)] * (
        number > 0
    )
    ended = number - 1 if ended is None else ended
    return ProcessGroup(
        name=name,
        words=words,
        members=members,
        called=number,
        ended=ended,
        calls=calls,
        usual=usual,
    )


@dataclass(frozen=True)
class One:
    """One rank."""

    groups: tuple[ProcessGroup, ...] = ()
    stack: Frames | None = REDUCE
    recorder: Recorder = "read"
    state: str = "S"
    stage: Stage = "groups"
    more: dict[str, object] = field(default_factory=dict)
    children: tuple[Frames | None, ...] = ()

    def but(self, **changes: object) -> One:
        return replace(self, **changes)  # type: ignore[arg-type]


def waits(number: int = 21, *, stack: Frames | None = REDUCE, **more: object) -> One:
    return One((group(number, **more),), stack)  # type: ignore[arg-type]


def late(number: int = 20, *, stack: Frames | None = LOAD, age: float = 240.2) -> One:
    """One that has called, and ended, this number, and no more."""
    return One((group(number, number, age=age),), stack)


def node(index: int, ranks: Sequence[One], first: int) -> NodeLook:
    stacks: list[Frames] = []
    looks = []
    for local, one in enumerate(ranks):
        stacks += [s for s in {one.stack, *one.children} if s is not None and s not in stacks]
        children = [
            ProcessLook(
                pid=10 * (1000 + first + local) + number,
                name="python -c spawn_main",
                state="S",
                waits_in="futex_do_wait",
                stack=None if frames is None else stacks.index(frames),
            )
            for number, frames in enumerate(one.children)
        ]
        values: dict[str, object] = {
            "pid": 1000 + first + local,
            "state": one.state,
            "lives": 600.0,
            "stage": one.stage,
            "recorder": one.recorder,
            "groups": list(one.groups),
            "stack": None if one.stack is None else stacks.index(one.stack),
            "children": children,
        }
        looks.append(RankLook(rank=first + local, **(values | one.more)))  # type: ignore[arg-type]
    report = LookReport(
        number=1,
        epoch=0,
        seconds=0.25,
        ranks=looks,
        stacks=[Stack(frames=[Frame(*frame) for frame in frames]) for frames in stacks],
    )
    return NodeLook(slot=index, node=index, hostname=f"gpu-{15 + index}", report=report)


def run(*ranks: One, per_node: int = 2) -> RunLook:
    """These ranks, so many on a node."""
    firsts = range(0, len(ranks), per_node)
    nodes = [node(i, ranks[first : first + per_node], first) for i, first in enumerate(firsts)]
    return RunLook(number=1, over=True, nodes=nodes)


def later(seconds: float, *ranks: One, per_node: int = 2) -> RunLook:
    """The same at a second look, so much later."""
    return run(
        *(one.but(more={"lives": 600.0 + seconds, **one.more}) for one in ranks), per_node=per_node
    )


def without(run_look: RunLook, slots: Iterable[int]) -> RunLook:
    """The same without the answers of these nodes."""
    lost = set(slots)
    nodes = [
        each.model_copy(update={"report": None}) if each.slot in lost else each
        for each in run_look.nodes
    ]
    return run_look.model_copy(update={"nodes": nodes})


def with_one(ranks: Sequence[One], rank: int, one: One) -> list[One]:
    return [*ranks[:rank], one, *ranks[rank + 1 :]]
