"""When ranks have called their collectives, as a node tells it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rendezvous.wire.pace import Arrivals, Pace, Receives
from tests.worker.look.ranks import recording
from worker.look.parsing.answer import Answer
from worker.look.parsing.arrivals import (
    BYTES_ALONE,
    BYTES_OF_SEVERAL,
    Called,
    Clock,
    RankCalls,
    calls_in,
    pace_of,
)

MILLISECOND = 1_000_000
SAME = Clock(0.0, 0.0)
WORLD = ("0", "0-1")


def answer(*entries: dict[str, Any], nccl: bytes = b"") -> Answer:
    return Answer("groups", 0, {"0": "0-1"}, "", (recording(*entries), nccl))


def entry(number: int, at: int = 0, **more: Any) -> dict[str, Any]:
    return {"collective_seq_id": number, "time_created_ns": at, **more}


def at(*milliseconds: float, first: int = 1) -> RankCalls:
    """Calls at these times, one after the other."""
    calls = [
        Called(first + n, "a", round(each * MILLISECOND)) for n, each in enumerate(milliseconds)
    ]
    return RankCalls({WORLD: calls}, set())


def told(*ranks: RankCalls, clock: Clock = SAME, before: float = 1e6, most: int = 48 << 10) -> Pace:
    return pace_of(dict(enumerate(ranks)), clock, before, most)


@pytest.mark.parametrize(
    "operation",
    [
        *("all_reduce", "all_gather", "_all_gather_base", "allgather", "barrier"),
        *("reduce_scatter", "_reduce_scatter_base", "all_to_all", "alltoall_base"),
    ],
)
def test_what_all_wait_in_is_a_call(operation: str) -> None:
    found = calls_in(answer(entry(7, 5, profiling_name=f"gloo:{operation}")))
    [(key, [called])] = found.calls.items()
    assert (key, called.number, called.at, found.receives) == (WORLD, 7, 5, set())


@pytest.mark.parametrize("operation", ["broadcast", "gather", "scatter", "reduce"])
def test_in_these_a_rank_may_wait_for_one_other(operation: str) -> None:
    found = calls_in(answer(entry(7, profiling_name=f"gloo:{operation}")))
    assert (found.calls[WORLD], found.receives) == ([], {"0"})


def test_a_message_is_no_call() -> None:
    found = calls_in(answer(entry(0, is_p2p=True, p2p_seq_id=3, profiling_name="gloo:recv 0<-1")))
    assert (found.calls[WORLD], found.receives) == ([], {""})


def test_the_same_operation_on_other_sizes_is_of_another_kind() -> None:
    found = calls_in(answer(entry(1), entry(2), entry(3, input_sizes=[[9]])))
    one, same, other = (called.kind for called in found.calls[WORLD])
    assert one == same != other


def test_where_there_is_nccl_nothing_is_told() -> None:
    """Its calls are put into a queue, and what a rank waits for there is not known."""
    assert calls_in(answer(entry(1), nccl=recording(g0=(5, 5)))) == RankCalls({}, set())
    assert calls_in(answer(entry(1), nccl=recording())).calls[WORLD]


@pytest.mark.parametrize("found", [None, Answer("imported", 0, {}, "", (b"", b""))])
def test_without_a_recorder_nothing_is_told(found: Answer | None) -> None:
    assert calls_in(found) == RankCalls({}, set())


def test_what_is_not_as_expected_is_left_out() -> None:
    found = calls_in(answer(entry(-1), entry(1, -5), entry(2, profiling_name=7)))
    assert found.calls[WORLD] == []


def test_of_several_ranks_the_first_and_the_last_two_are_told() -> None:
    pace = told(at(10, 20), at(12, 29), at(11, 20.5))
    assert pace.arrivals == [
        Arrivals(
            group="0",
            members="0-1",
            ranks=[0, 1, 2],
            number=1,
            steps=[1],
            kinds="aa",
            began=10_000,
            gaps=[10_000],
            late=[2_000, 9_000],
            second=[1_000, 500],
            last=[1, 1],
        )
    ]


def test_a_lone_rank_tells_its_own_times() -> None:
    [arrivals] = told(at(10, 20)).arrivals
    assert (arrivals.ranks, arrivals.late, arrivals.gaps) == ([0], [], [10_000])


def test_times_are_those_of_the_registry() -> None:
    pace = told(at(10), clock=Clock(-0.004, 0.0005))
    assert (pace.arrivals[0].began, pace.clock_error) == (6_000, 0.0005)


def test_only_calls_that_all_ranks_of_the_node_have_made_are_told() -> None:
    [arrivals] = told(at(10, 20, 30), at(20, 30, 40, first=2)).arrivals
    assert (arrivals.number, len(arrivals.kinds)) == (2, 2)
    assert told(at(10), at(20, first=2)).arrivals == []


def test_what_was_called_later_than_asked_for_is_left_out() -> None:
    [arrivals] = told(at(10, 20, 30), before=0.020).arrivals
    assert len(arrivals.kinds) == 2
    [arrivals] = told(at(10, 20, 30), clock=Clock(0.005, 0.0), before=0.020).arrivals
    assert len(arrivals.kinds) == 1
    assert told(at(10), before=0.001).arrivals == []


def test_of_many_calls_the_newest_are_told() -> None:
    calls = [float(n) for n in range(100)]
    [arrivals] = told(at(*calls), most=30 * BYTES_ALONE).arrivals
    assert (arrivals.number, len(arrivals.kinds)) == (71, 30)
    [arrivals] = told(at(*calls), at(*calls), most=20 * BYTES_OF_SEVERAL).arrivals
    assert len(arrivals.kinds) == 20
    assert told(at(*calls), most=0).arrivals == []


def test_what_is_told_of_many_groups_fits_into_a_request() -> None:
    """8 ranks together in one, and each in one with ranks of other nodes."""
    times = [1e6 + 12_345.678 * n for n in range(2_000)]
    own = [Called(1_000_000 + n, "a", round(at * MILLISECOND)) for n, at in enumerate(times)]
    late = [Called(1_000_000 + n, "a", one.at + 9_876_543_210) for n, one in enumerate(own)]
    ranks = {
        8 + n: RankCalls(
            {("1", "8-15"): late if n == 5 else own, (f"{2 + n}", "3,9,17"): own}, set()
        )
        for n in range(8)
    }
    pace = pace_of(ranks, SAME, 1e6, 48 << 10)
    assert len(pace.arrivals) == 9
    assert 32_000 < len(pace.model_dump_json(exclude_defaults=True)) < 60_000


def test_who_may_have_waited_for_one_is_told_by_its_number() -> None:
    pace = told(RankCalls({}, {"", "0"}), at(1))
    assert pace.receives == [Receives(rank=0), Receives(rank=0, group="0")]


@given(
    st.lists(
        st.lists(st.integers(0, 1 << 40), min_size=1, max_size=6).map(sorted),
        min_size=1,
        max_size=4,
    ),
    st.floats(-1e9, 1e9),
)
def test_whatever_was_called_can_be_told(times: list[list[int]], ahead: float) -> None:
    ranks = [at(*(one / MILLISECOND for one in each)) for each in times]
    pace = told(*ranks, clock=Clock(ahead, 0.0), before=1e12)
    assert Pace.model_validate_json(pace.model_dump_json()) == pace
