"""Who waits for whom, by value."""

from __future__ import annotations

import pytest

from features.hang.rules import look_at
from features.hang.rules.calls import Calls, is_message, waits_in
from features.hang.rules.seen import see
from features.hang.wire import Call, ProcessGroup
from rendezvous.wire.words import spans_of
from tests.features.hang.runs import LINE, LOAD, REDUCE, One, group, late, run, waits


def made(called: int, ended: int = -1, *done: bool | None) -> ProcessGroup:
    """A group whose newest calls have ended, or not."""
    first = called - len(done) + 1
    calls = [
        Call(number=first + n, operation="all_reduce", age=9.0 + len(done) - n, done=one)
        for n, one in enumerate(done)
    ]
    return ProcessGroup(name="0", words="default_pg", called=called, ended=ended, calls=calls)


def calls_of(*ranks: One) -> Calls:
    return Calls(see(run(*ranks)).by_number)


@pytest.mark.parametrize(
    ("one", "plain", "guessed"),
    [
        (made(21, 20), 21, 21),
        (made(21, 18), 19, 19),
        (made(21, 21), None, None),
        (made(21, -1, True, False, False), 20, 20),
        (made(21, -1, True, True), None, None),
        (made(21, -1, None, None), None, 21),
        (made(21), None, 21),
        (made(0), None, None),
    ],
)
def test_a_rank_waits_in_its_oldest_unfinished_call(
    one: ProcessGroup, plain: int | None, guessed: int | None
) -> None:
    assert waits_in(one) == plain
    assert waits_in(one, guess=True) == guessed


def test_a_message_is_no_collective() -> None:
    calls = [Call(number=7, operation="nccl:recv 1<-0", age=1.0, done=False)]
    one = ProcessGroup(name="0", called=7, calls=calls)
    assert waits_in(one) is None
    assert [is_message(word) for word in ("send", "irecv", "gloo:send 0->1", "recv 1<-0")] == [
        True
    ] * 4
    assert not any(is_message(word) for word in ("all_reduce", "sender", "recv 1", "nccl:recvx"))


def test_what_a_stack_shows_counts_in_the_group_that_was_called_last() -> None:
    older = made(21, -1, None)
    newer = ProcessGroup(
        name="1",
        words="tp",
        called=5,
        calls=[Call(number=5, operation="all_reduce", age=8.0)],
    )
    found = calls_of(One((older, newer), REDUCE))
    assert [(point.key, point.number) for point in found.points] == [(("1", ""), 5)]
    assert calls_of(One((older, newer), LOAD)).points == []
    assert calls_of(One((), REDUCE)).points == []


def test_later_calls_lack_what_earlier_ones_lack() -> None:
    found = calls_of(waits(21), waits(22), waits(23), late(20))
    assert [point.lacking for point in found.points] == [(3,), (0,), (1,)]
    assert [found.lacking(n) for n in range(3)] == [[3], [0, 3], [0, 1, 3]]
    assert found.inside() == []
    assert found.trapped() == set()
    assert look_at(run(waits(21), waits(22), waits(23), late(20))).odd == (3,)


def test_a_rank_that_runs_ahead_waits_in_the_oldest_call() -> None:
    ahead = One((made(30, 20, None, None, None, None),), REDUCE)
    found = look_at(run(ahead, One((group(23, 20),), REDUCE), waits(21), late(20)))
    assert (found.rule, found.odd) == ("behind", (3,))
    assert "3 of 4 ranks have waited" in found.sentence
    assert "all_reduce #21 of default_pg" in found.sentence or "#21 (float32" in found.sentence


def test_the_age_of_a_call_that_the_recorder_has_lost_is_at_least_that_of_the_next() -> None:
    ahead = One((made(30, 20, None, None),), REDUCE)
    found = look_at(run(*[ahead] * 3, late(20)))
    assert (found.rule, found.odd) == ("behind", (3,))
    assert "3 of 4 ranks have waited 11 s in all_reduce #21 of default_pg" in found.sentence


@pytest.mark.parametrize(
    ("members", "spans"),
    [
        ("", []),
        ("0-3,8", [range(4), range(8, 9)]),
        ("5", [range(5, 6)]),
        ("0-3, 8", [range(4), range(8, 9)]),
        ("3-0", [range(3, 1)]),
        ("0-3,", []),
        ("all", []),
        ("-1", []),
    ],
)
def test_members_are_read_as_spans(members: str, spans: list[range]) -> None:
    assert spans_of(members) == spans


def test_of_two_groups_that_look_like_all_ranks_the_larger_one_is() -> None:
    found = calls_of(*[waits(21)] * 3, waits(5, members="2-3", name="0"))
    assert [one.is_default for one in found.groups.values()] == [True, False]


def test_a_peer_is_numbered_within_its_group() -> None:
    def pipe(text: str) -> One:
        call = Call(number=3, operation=text, age=60.0, done=False)
        mine = ProcessGroup(name="p", words="pp", members="4-5,8", called=0, calls=[call])
        return One((mine,), LINE)

    idle = late(9, age=80.0)
    ranks = [idle] * 8
    points = calls_of(*ranks, pipe("recv 2<-1")).points
    assert [(point.waiting, point.lacking) for point in points] == [((8,), (5,))]
    points = calls_of(*ranks, pipe("recv 2<-7")).points
    assert [(point.lacking, point.open) for point in points] == [((), True)]
    points = calls_of(*ranks, pipe("recv 2<-2")).points
    assert [point.lacking for point in points] == [()]
