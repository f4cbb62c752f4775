"""What flight recorders have of a rank."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from features.hang.ranks.recorder import (
    Progress,
    Recorder,
    call_number,
    created_ns,
    progress_in,
    recorder_in,
    recorders_in,
)
from tests.worker.look.ranks import ENTRY, recording
from worker.look.answer import Answer

SECOND = 1_000_000_000


def answer(*recorders: bytes, groups: dict[str, str] | None = None, now: int = 0) -> Answer:
    general, nccl = (*recorders, b"", b"")[:2]
    return Answer("groups", now, groups or {}, "", (general, nccl))


def entry(number: int, at: float, **more: Any) -> dict[str, Any]:
    return {"collective_seq_id": number, "time_created_ns": int(at * SECOND), **more}


def test_a_recorder_has_how_far_each_group_is_and_its_calls_by_name() -> None:
    of_other = entry(9, 3, process_group=["1", "other"])
    found = recorder_in(recording(entry(4, 1), entry(5, 2), of_other, g0=(5, 4), g1=(9, -1)))
    assert found is not None
    assert found.progress == {"0": Progress(5, 4), "1": Progress(9, -1)}
    shown = {
        name: [(call_number(one), created_ns(one)) for one in entries]
        for name, entries in found.entries.items()
    }
    assert shown == {"0": [(4, SECOND), (5, 2 * SECOND)], "1": [(9, 3 * SECOND)]}


def test_sends_have_numbers_of_their_own_and_odd_ones_none() -> None:
    assert call_number(entry(2, 1, is_p2p=True, p2p_seq_id=40)) == 40
    assert [call_number({"collective_seq_id": n}) for n in ("7", "x", None, -1, True)] == [
        7,
        *[-1] * 4,
    ]
    assert created_ns({}) == -1


def test_progress_is_of_each_recorder() -> None:
    found = recorders_in(answer(recording(g0=(5, 4)), recording(g0=(9, 8), g1=(1, 1))))
    assert progress_in(found) == {
        (0, "0"): Progress(5, 4),
        (1, "0"): Progress(9, 8),
        (1, "1"): Progress(1, 1),
    }
    assert progress_in([None, found[0]]) == {(1, "0"): Progress(5, 4)}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
ENTRIES = st.dictionaries(st.sampled_from(sorted(ENTRY)), VALUES).map(
    lambda more: {**ENTRY, **more}
)


@given(
    st.lists(ENTRIES | VALUES, max_size=8),
    st.dictionaries(st.sampled_from(["0", "1", ""]), VALUES) | VALUES,
)
def test_any_json_is_read(entries: list[Any], status: Any) -> None:
    found = recorder_in(json.dumps({"entries": entries, "pg_status": status}).encode())
    assert isinstance(found, Recorder)
    for each in found.entries.values():
        for one in each:
            assert call_number(one) >= -1
            assert created_ns(one) >= -1


@given(st.binary() | VALUES.map(lambda value: json.dumps(value).encode()))
def test_what_is_no_recorder_is_none_or_empty(data: bytes) -> None:
    found = recorder_in(data)
    assert found is None or found.entries == {}


def test_deep_json_is_refused() -> None:
    assert recorder_in(b"[" * 100_000) is None
