"""What the nodes of a training that hangs answer to a look: all ranks but one wait."""

from __future__ import annotations

from features.hang.wire import Call, Frame, LookReport, ProcessGroup, RankLook, Stack

RANKS = 8
"""Of each node."""
ODD = 5
"""The rank that has not called what all others wait in."""
_WAITS = (
    ("wait", "torch/_jit_internal.py"),
    ("all_reduce", "torch/distributed/distributed_c10d.py"),
    ("wrapper", "torch/distributed/c10d_logger.py"),
    *((f"forward_{n}", f"site/model/layers_{n}.py") for n in range(15)),
    ("main", "/home/user/train.py"),
)
_LOADS = (("load_batch", "/home/user/data.py"), ("main", "/home/user/train.py"))


def answer_of(slot: int, nodes: int) -> bytes:
    """What a node of a training that hangs answers to a look; its number is to be put in.

    All ranks but one wait in a collective of the default group.
    """
    ranks = [_rank(slot * RANKS + local, nodes * RANKS) for local in range(RANKS)]
    stacks = [
        Stack(frames=[Frame(*call, line) for line, call in enumerate(calls, 100)])
        for calls in (_WAITS, _LOADS)
    ]
    report = LookReport(number=1, epoch=1, seconds=0.25, ranks=ranks, stacks=stacks)
    said = report.model_dump_json(exclude_defaults=True).encode()
    return said.replace(b'"number":1', b'"number":%d', 1)


def _rank(rank: int, world: int) -> RankLook:
    newest = 20 if rank == ODD else 21
    calls = [
        Call(
            number=number,
            operation="all_reduce",
            what="float32[1024]",
            age=30.5 - number,
            done=number < 21,
        )
        for number in range(newest - 3, newest + 1)
    ]
    group = ProcessGroup(
        name="0",
        words="default_pg",
        members=f"0-{world - 1}",
        called=newest,
        ended=20,
        calls=calls,
        usual=0.25,
    )
    return RankLook(
        rank=rank,
        pid=10_000 + rank,
        state="S",
        waits_in="futex_do_wait",
        lives=100.0,
        stage="groups",
        recorder="read",
        stack=int(rank == ODD),
        groups=[group],
    )
