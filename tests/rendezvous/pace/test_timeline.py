"""What nodes tell, merged in any order."""

from __future__ import annotations

import math
from itertools import permutations
from typing import Any

import pytest

from rendezvous.pace import Timeline, timeline
from rendezvous.pace.calls import Call, Group, Groups
from rendezvous.wire.pace import Arrivals, Pace, Receives


def told(number: int, members: str = "0-3", name: str = "0", **more: object) -> Arrivals:
    """Two calls from this number on."""
    values: dict[str, object] = {"ranks": [0], "began": 1_000_000, "gaps": [100_000]}
    given = {"group": name, "members": members, "number": number, "steps": [1], "kinds": "ab"}
    return Arrivals.model_validate(given | values | more)


PAIR = told(5, ranks=[0, 1], late=[3_000, 4_000], second=[0, 0], last=[1, 0])
LATE = told(5, ranks=[2], began=1_005_000, gaps=[96_000])
EARLY = told(5, ranks=[3], began=999_000)


def merged(*nodes: Arrivals, **more: object) -> Groups:
    found = Timeline()
    for slot, arrivals in enumerate(nodes):
        found.add(slot, Pace(clock_error=0.001 * (1 + slot), arrivals=[arrivals], **more))  # type: ignore[arg-type]
    return found.groups()


def test_of_each_call_the_last_ones_are_known_in_any_order() -> None:
    for nodes in permutations((PAIR, LATE, EARLY)):
        [group] = merged(*nodes).whole
        one, two = group.calls
        slots = {rank: slot for slot, node in enumerate(nodes) for rank in node.ranks}
        expected = Call(5, "a", 0.0, 0.006, 2, 0.004, slots[2], 0.004)
        assert one[1] == expected[1]
        assert (one[0], *one[2:]) == pytest.approx((expected[0], *expected[2:]))
        assert (two.rank, two.slot, two.kind) == (0, slots[0], "b")
        assert (two.last, two.others, two.elsewhere) == pytest.approx((0.105, 0.102, 0.102))
        assert group.ranks == {0, 1, 2, 3}


def test_a_group_of_one_node_is_read_only_if_somebody_is_late() -> None:
    [group] = merged(PAIR.model_copy(update={"members": "0-1"})).whole
    assert group.late == pytest.approx(0.07)
    assert [call.elsewhere for call in group.calls] == [-math.inf, -math.inf]
    assert (group.nodes, group.error(0), group.count(0)) == (1, 0.0, 2)


def test_clocks_of_two_nodes_are_both_wrong() -> None:
    [group] = merged(PAIR, LATE, EARLY).whole
    assert [group.error(slot) for slot in range(3)] == pytest.approx([0.004, 0.005, 0.005])
    assert [group.count(slot) for slot in range(3)] == [2, 1, 1]
    assert group.nodes_of([0, 1]) == 1
    assert group.nodes_of([0, 3]) == 2


def test_calls_that_not_all_have_told_of_are_left_out() -> None:
    [group] = merged(PAIR, LATE.model_copy(update={"number": 6}), EARLY).whole
    assert [call.number for call in group.calls] == [6]
    [group] = merged(PAIR, LATE.model_copy(update={"number": 9}), EARLY).whole
    assert (group.calls, group.span, group.breaks) == ([], math.inf, 0)


def test_what_a_rank_waited_for_others_is_at_most_what_these_were_late() -> None:
    [group] = merged(PAIR, LATE, EARLY).whole
    assert group.waited([2]) == pytest.approx(0.005 / group.span)
    assert group.waited([1, 3]) == pytest.approx(0.011 / group.span)


@pytest.mark.parametrize("members", ["0-4", "0-2", "1-4", ""])
def test_ranks_of_a_group_that_is_not_known_whole_are_unknown(members: str) -> None:
    nodes = [one.model_copy(update={"members": members}) for one in (PAIR, LATE, EARLY)]
    found = merged(*nodes)
    assert (found.whole, found.unknown) == ([], {0, 1, 2, 3})


def test_a_group_of_one_rank_is_neither() -> None:
    found = merged(told(1, "0"))
    assert (found.whole, found.unknown, found.of_slot) == ([], set(), {0: {0}})


def test_who_may_have_waited_for_one_is_kept_by_the_group() -> None:
    found = merged(PAIR, LATE, receives=[Receives(rank=2), Receives(rank=1, group="0")])
    assert found.receivers == {"": {2}, "0": {1}}


def test_more_calls_than_there_is_room_for_make_a_group_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timeline, "MOST_CALLS", 3)
    found = merged(PAIR, LATE, EARLY)
    assert (found.whole, found.unknown) == ([], {0, 1, 2, 3})
    monkeypatch.setattr(timeline, "MOST_CALLS", 4)
    assert isinstance(merged(PAIR, LATE, EARLY).whole[0], Group)


@pytest.mark.parametrize(
    "wrong",
    [
        {"gaps": []},
        {"steps": [1, 1]},
        {"late": [1, 1]},
        {"ranks": [0, 1]},
        {"ranks": [0, 1], "late": [1, 1], "second": [0, 0], "last": [0, 2]},
        {"steps": [0]},
    ],
)
def test_what_cannot_be_is_not_taken(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"calls|ranks"):
        told(1, **wrong)
