"""A view in a node's machine: it is served once, by who has what it shows; what is held of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from pydantic_core import to_json

from rendezvous.wire.log_view import MAX_PARTS, MAX_POST_LINES, POST_BYTES, ViewOrder, ViewPart
from rendezvous.wire.run import Phase
from rendezvous.wire.table import EndpointTable
from tests.worker.agent.drive import DIGEST, TABLE, Drive, in_words, table, to
from worker.agent.actions import Action, ServeView, Watch
from worker.agent.questions import ANSWERS_A_SECOND
from worker.agent.state import Place
from worker.agent.viewing import LAG_LETTERS, Backlog, place_in, ranks_shown


def order(number: int, **more: Any) -> ViewOrder:
    return ViewOrder(view=number, **more)


def served(drive: Drive, *orders: ViewOrder, **more: Any) -> list[ServeView]:
    """What it does about views that come with the same news as before."""
    values = {"seq": drive.the(Watch).after, "digest": DIGEST, "epoch": 1} | more
    done = drive.view(Phase.RUNNING, views=list(orders) or None, **values)
    return [action for action in done if isinstance(action, ServeView)]


def test_a_view_is_served_once_and_known_from_then_on() -> None:
    drive = to("running")
    assert served(drive, order(7, rank=4)) == [
        ServeView(order(7, rank=4), 1, (4,), (3, 4), 1, 1 / ANSWERS_A_SECOND)
    ]
    assert drive.the(Watch).views == 7
    assert served(drive, order(7, rank=4)) == []
    assert served(drive) == []
    assert drive.the(Watch).views == 7
    assert [one.order.view for one in served(drive, order(7), order(9))] == [9]
    assert drive.the(Watch).views == 9
    assert served(drive, order(7)) == []  # the newer one is over, and the older goes on
    assert drive.the(Watch).views == 7


def test_the_node_watches_on_at_the_same_moment() -> None:
    drive = to("running")
    done = drive.view(Phase.RUNNING, seq=drive.the(Watch).after, epoch=1, views=[order(7)])
    assert in_words(done) == "ServeView Watch"


def test_what_others_have_is_only_known() -> None:
    drive = to("running")
    assert served(drive, order(7, rank=2), order(8, node=0)) == []
    assert drive.the(Watch).views == 8


def come_to_the_go(drive: Drive, given: EndpointTable = TABLE) -> list[ServeView]:
    """What a node does about views on its way to the go of a table."""
    steps: tuple[Callable[[], tuple[Action, ...]], ...] = (
        lambda: drive.verify(given.epoch),
        drive.visited,
        drive.taken,
        lambda: drive.arm(given),
        drive.readied,
        drive.taken,
        lambda: drive.go(given),
    )
    done = [action for step in steps for action in step()]
    return [action for action in done if isinstance(action, ServeView)]


def test_a_node_without_ranks_serves_a_view_once_it_has_them() -> None:
    drive = to("joined")
    done = drive.view(Phase.RESTARTING, views=[order(7, rank=3), order(8, rank=2)])
    assert not any(isinstance(action, ServeView) for action in done)
    assert drive.the(Watch).views == 8
    assert come_to_the_go(drive) == [
        ServeView(order(7, rank=3), 1, (3,), (3, 4), 1, 1 / ANSWERS_A_SECOND)
    ]
    assert served(drive, order(7, rank=3), order(8, rank=2)) == []


def test_a_view_that_is_over_by_then_is_not_served() -> None:
    drive = to("joined")
    drive.view(Phase.RESTARTING, views=[order(7), order(8)])
    drive.view(Phase.RESTARTING, seq=drive.the(Watch).after, views=[order(8)])
    assert [one.order.view for one in come_to_the_go(drive)] == [8]


def again(drive: Drive, epoch: int, processes: int) -> tuple[EndpointTable, list[ServeView]]:
    """The programs start again, and the other node, which has the first ranks, with so many."""
    rows = [replace(TABLE.rows[0], nproc_per_node=processes), TABLE.rows[1]]
    given = table(epoch).model_copy(update={"rows": rows})
    drive.stop()
    drive.ended()
    return given, come_to_the_go(drive, given)


def test_who_has_other_ranks_than_before_serves_what_waits_for_them() -> None:
    drive = to("running")
    assert served(drive, order(7, rank=5), order(8, node=1)) == [
        ServeView(order(8, node=1), 1, (), (3, 4), 1, 1 / ANSWERS_A_SECOND)
    ]
    given, done = again(drive, 2, processes=4)
    assert done == [ServeView(order(7, rank=5), 1, (5,), (4, 5), 2, 1 / ANSWERS_A_SECOND)]
    asked = [order(7, rank=5), *(order(9 + n, rank=3, epoch=n or None) for n in range(3))]
    done = served(drive, *asked, digest=given.digest(), epoch=2)
    assert [(one.order.view, one.ranks, one.siblings) for one in done] == [(10, (3,), (3, 4))]


def test_what_a_node_ran_in_an_epoch() -> None:
    places = [Place(1, 4, range(8, 10)), Place(5, 4, range(9, 11))]
    assert [place_in(places, epoch).ranks[0] for epoch in (None, 1, 4, 5, 9)] == [9, 8, 8, 9, 9]
    assert place_in(places[1:], 2) == places[1]


@pytest.mark.parametrize(
    ("asked", "ranks"),
    [
        ({}, (8, 9)),
        ({"rank": 8}, (8,)),
        ({"rank": 7}, None),
        ({"rank": 10}, None),
        ({"node": 4}, ()),
        ({"node": 3}, None),
        ({"node": 3, "rank": 8}, None),
    ],
)
def test_who_has_what_is_asked_for(asked: dict[str, int], ranks: tuple[int, ...] | None) -> None:
    assert ranks_shown(order(1, **asked), 4, range(8, 10)) == ranks


# --- what was read and not sent


def told(parts: Sequence[ViewPart]) -> list[tuple[int | None, list[str], int]]:
    return [(part.rank, part.lines, part.skipped) for part in parts]


def test_lines_are_sent_in_their_order() -> None:
    held = Backlog()
    assert not held
    held.add(3, ["a", "b"])
    held.add(None, ["c"])
    held.add(3, ["d"])
    assert told(held.take()) == [(3, ["a", "b"], 0), (None, ["c"], 0), (3, ["d"], 0)]
    assert (held.take(), held.letters, bool(held)) == ([], 0, False)


def test_what_comes_too_fast_is_counted() -> None:
    held = Backlog()
    held.add(0, ["x" * 100] * 10, most=350)
    held.skip(1, 5)
    held.skip(1, 0)
    assert told(held.take()) == [(0, [], 7), (1, [], 5), (0, ["x" * 100] * 3, 0)]


def test_a_post_has_so_many_parts_and_no_more() -> None:
    held = Backlog()
    for rank in range(MAX_PARTS + 5):
        held.add(rank, [str(rank)])
    assert len(held.take()) == MAX_PARTS
    assert told(held.take()) == [(rank, [str(rank)], 0) for rank in range(65, 70)]


@given(
    some.lists(some.tuples(some.integers(0, 80), some.integers(0, 16_384)), max_size=80),
    some.sampled_from(["x", '"', "\\", "\u2713", "\U0001f600"]),
    some.booleans(),
)
def test_a_post_is_within_its_bounds_and_nothing_is_lost(
    lines: list[tuple[int, int]], letter: str, drops: bool
) -> None:
    held = Backlog()
    for rank, length in lines:
        held.add(rank, [letter * length], most=LAG_LETTERS if drops else None)
    assert not drops or held.letters <= LAG_LETTERS
    count = 0
    while parts := held.take():
        assert len(parts) <= MAX_PARTS
        found = [line for part in parts for line in part.lines]
        assert len(found) <= MAX_POST_LINES
        assert sum(len(to_json(line)) + 1 for line in found) <= POST_BYTES or len(found) == 1
        count += len(found) + sum(part.skipped for part in parts)
    assert count == len(lines)
    assert held.letters == 0


def test_of_very_many_ranks_what_was_skipped_is_told_once_and_in_its_order() -> None:
    backlog = Backlog()
    for rank in range(MAX_PARTS):
        backlog.skip(rank, rank + 1)
    backlog.add(3, ["last"])
    found = [part for _ in range(3) for part in backlog.take()]
    assert [(part.rank, part.skipped) for part in found if part.skipped] == [
        (rank, rank + 1) for rank in range(MAX_PARTS)
    ]
    assert [line for part in found for line in part.lines] == ["last"]
    assert not backlog
