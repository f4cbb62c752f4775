"""Process groups of a rank as its flight recorders have them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.hang.ranks.process_groups import groups_in, moved
from features.hang.ranks.recorder import Progress, progress_in, recorders_in
from features.hang.wire import MAX_CALLS, Call, ProcessGroup
from tests.features.hang.ranks.test_recorder import ENTRIES, SECOND, VALUES, answer, entry
from tests.worker.look.ranks import recording
from worker.look.answer import Answer, group_name


def groups(found: Answer) -> list[ProcessGroup]:
    return groups_in(found, recorders_in(found))


def test_a_group_has_its_newest_calls_and_its_longest_pause() -> None:
    calls = [entry(n, at, retired=n < 6) for n, at in enumerate((0, 1, 2, 5, 6, 7.5), 1)]
    [group] = groups(answer(recording(*calls, g0=(6, 5)), groups={"0": "0-7"}, now=10 * SECOND))
    assert group == ProcessGroup(
        name="0",
        words="default_pg",
        members="0-7",
        called=6,
        ended=5,
        calls=[
            Call(number=n, operation="all_reduce", what="float32[1024]", age=age, done=n < 6)
            for n, age in ((3, 8.0), (4, 5.0), (5, 4.0), (6, 2.5))
        ],
        usual=3.0,
    )


@pytest.mark.parametrize(
    ("more", "call"),
    [
        (
            {"profiling_name": "nccl:_all_gather_base", "input_dtypes": ["BFloat16"]},
            ("_all_gather_base", "bfloat16[1024]"),
        ),
        ({"input_sizes": [[2, 3], [4]], "input_dtypes": ["Long"]}, ("all_reduce", "int64[2,3]")),
        ({"input_sizes": [], "input_dtypes": []}, ("all_reduce", "")),
        (
            {"input_sizes": [[]], "input_dtypes": ["Float8_e4m3fn"]},
            ("all_reduce", "Float8_e4m3fn[]"),
        ),
        ({"profiling_name": "barrier"}, ("barrier", "float32[1024]")),
        ({"profiling_name": 3, "input_sizes": 7}, ("", "")),
    ],
)
def test_calls_are_told_in_torchs_words(more: dict[str, Any], call: tuple[str, str]) -> None:
    [group] = groups(answer(recording(entry(1, 0, **more), g0=(1, 1))))
    assert [(c.operation, c.what) for c in group.calls] == [call]


@pytest.mark.parametrize(
    ("more", "done"),
    [
        ({"retired": True}, True),
        ({"retired": False}, False),
        ({"retired": False, "state": "completed"}, True),
        ({"retired": None, "state": "started"}, None),
    ],
)
def test_a_call_has_ended_or_not_or_nobody_knows(more: dict[str, Any], done: bool | None) -> None:
    [group] = groups(answer(recording(entry(1, 0, **more))))
    assert [call.done for call in group.calls] == [done]


def test_sends_count_for_themselves() -> None:
    send = entry(2, 1, is_p2p=True, p2p_seq_id=40, profiling_name="nccl:send 0->1")
    [group] = groups(answer(recording(entry(2, 0), send)))
    assert (group.called, [call.number for call in group.calls]) == (2, [2, 40])


def test_what_has_ended_is_known_by_the_entries_too() -> None:
    """gloo's threads end calls in any order, and the last of them has the last word."""
    calls = [entry(n, n, retired=n < 3) for n in range(1, 4)]
    [group] = groups(answer(recording(*calls, g0=(3, 1))))
    assert (group.called, group.ended) == (3, 2)


def test_a_group_that_was_not_called_yet_is_told() -> None:
    found = groups(answer(recording(entry(3, 0), g0=(3, 3)), groups={"0": "0-3", "1": "0,2"}))
    told = [(g.name, g.members, g.called, g.ended) for g in found]
    assert told == [("0", "0-3", 3, 3), ("1", "0,2", 0, 0)]


def test_a_group_without_entries_is_known_by_its_number_where_it_is_the_only_one() -> None:
    names = {"0": "", "7": "", "8": ""}
    one = groups(answer(recording(entry(3, 0), g0=(3, 3), g1=(9, 8)), groups={"0": "", "7": ""}))
    two = groups(answer(recording(entry(3, 0), g0=(3, 3), g1=(9, 8)), groups=names))
    assert [(g.name, g.called, g.ended) for g in one] == [("0", 3, 3), ("7", 9, 8)]
    assert [(g.name, g.called) for g in two] == [("0", 3), ("7", -1), ("8", -1)]


def test_where_there_are_two_recorders_gloo_counts_for_itself() -> None:
    general, nccl = recording(entry(1, 5), g0=(1, 1)), recording(entry(9, 6), g0=(9, 9))
    both = answer(general, nccl, groups={"0": "0-1", "1": "0"}, now=7 * SECOND)
    told = [(group.name, group.called) for group in groups(both)]
    assert told == [("0", 9), ("0/gloo", 1), ("1/gloo", 0), ("1", 0)]


def test_what_was_called_or_has_ended_moved() -> None:
    def progress(**status: tuple[int, int]) -> dict[tuple[int, str], Progress]:
        return progress_in(recorders_in(answer(recording(**status))))

    assert moved(progress(g0=(5, 4)), progress(g0=(5, 4))) == 0
    assert moved(progress(g0=(5, 4)), progress(g0=(5, 5))) == 1
    assert moved(progress(g0=(5, 4), g1=(1, 1)), progress(g0=(7, 5), g1=(2, 2))) == 3
    assert moved({}, progress(g0=(2, 1))) == 2
    assert moved(progress(g0=(5, -1)), progress(g0=(3, -1))) == 0


def test_an_age_is_never_below_zero() -> None:
    [group] = groups(answer(recording(entry(1, 100)), now=5))
    assert group.calls[0].age == 0


@given(
    st.lists(ENTRIES | VALUES, max_size=8),
    st.dictionaries(st.sampled_from(["0", "1", ""]), VALUES) | VALUES,
    st.dictionaries(st.text().map(group_name), st.sampled_from(["", "0-3"]), max_size=3),
)
def test_any_json_is_read(entries: list[Any], status: Any, names: dict[str, str]) -> None:
    data = json.dumps({"entries": entries, "pg_status": status}).encode()
    for group in groups(answer(data, data, groups=names, now=99)):
        assert len(group.calls) <= MAX_CALLS
        assert ProcessGroup.model_validate_json(group.model_dump_json()) == group


@given(st.binary() | VALUES.map(lambda value: json.dumps(value).encode()))
def test_of_what_is_no_recorder_there_are_none(data: bytes) -> None:
    assert groups(answer(data)) == []
