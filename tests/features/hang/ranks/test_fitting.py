"""A report that fits, whatever was seen."""

from __future__ import annotations

from features.hang.ranks.fitting import MOST_BYTES, Beside, Part, Seen, fitted
from features.hang.wire import Frame, LookReport, ProcessGroup, ProcessLook, RankLook, Stack


def stack(name: str, frames: int = 1, width: int = 1) -> Stack:
    calls = [Frame(f"{name}{n}" + "x" * width, "f" * width, n) for n in range(frames)]
    return Stack(frames=calls)


def rank(number: int, groups: int = 0) -> RankLook:
    made = [ProcessGroup(name=f"{n}" * 40, called=n) for n in range(groups)]
    return RankLook(rank=number, groups=made)


def size(seen: Seen) -> int:
    report = LookReport(number=1, epoch=0, ranks=seen.ranks, stacks=seen.stacks)
    return len(report.model_dump_json())


def test_each_stack_is_told_once() -> None:
    waits, odd, pool = stack("all_reduce"), stack("load"), stack("pool")
    parts = [
        Part(rank(0), waits, [pool]),
        Part(rank(1), odd, [pool, pool]),
        Part(rank(2), waits),
        Part(rank(3)),
    ]
    seen = fitted(parts)
    assert seen.stacks == [waits, odd, pool]
    assert [each.stack for each in seen.ranks] == [0, 1, 0, None]
    assert [each.threads for each in seen.ranks] == [[2], [2, 2], [], []]
    assert seen.left_out == 0


def test_other_threads_are_left_out_first() -> None:
    parts = [
        Part(rank(n), stack(f"m{n}-"), [stack(f"o{n}-{k}-", 40, 20) for k in range(9)])
        for n in range(8)
    ]
    seen = fitted(parts)
    assert [each.threads for each in seen.ranks] == [[]] * 8
    assert (len(seen.stacks), seen.left_out) == (8, 72)
    assert not any(each.cut for each in seen.stacks)


def test_then_old_frames_and_then_groups() -> None:
    long = [Part(rank(n, 2), stack(f"m{n}-", 100, 8)) for n in range(16)]
    seen = fitted(long)
    assert {len(each.frames) for each in seen.stacks} == {40}
    assert all(each.cut for each in seen.stacks)
    assert [len(each.groups) for each in seen.ranks] == [2] * 16
    idle = fitted([Part(rank(n, 64), stack("m")) for n in range(8)])
    assert [[group.called for group in each.groups] for each in idle.ranks] == [list(range(16))] * 8
    assert idle.left_out == 48 * 8


def test_children_are_left_out_before_old_frames_of_ranks() -> None:
    few = [Beside(ProcessLook(pid=n + 1, name="loader"), stack("get")) for n in range(16)]
    seen = fitted([Part(rank(0), stack("main"), children=few)], Beside(ProcessLook(pid=9)))
    assert [child.pid for child in seen.ranks[0].children] == list(range(1, 17))
    assert {child.stack for child in seen.ranks[0].children} == {1}
    assert (seen.launcher is not None, seen.left_out) == (True, 0)
    parts = [Part(rank(n), stack(f"m{n}-"), children=few) for n in range(64)]
    full = fitted(parts)
    assert size(full) <= MOST_BYTES + 1024
    assert 0 < len(full.ranks[0].children) < 16


def test_the_largest_report_fits() -> None:
    parts = [
        Part(
            rank(n, 64),
            stack(f"{n}-", 128, 180),
            [stack(f"{n}-{k}-", 128, 180) for k in range(9)],
        )
        for n in range(64)
    ]
    seen = fitted(parts, left_out=3)
    assert size(seen) < MOST_BYTES + 1024
    assert len(seen.ranks) == 64
    assert seen.left_out > 64 * 9


def test_at_last_there_are_the_ranks_alone() -> None:
    seen = fitted([Part(rank(0, 3), stack("a"), [stack("b")])], most=0)
    assert seen == Seen([RankLook(rank=0)], [], 5)
