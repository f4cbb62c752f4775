"""What a node tells of its ranks' worlds while they run: only what cannot be the table's."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rendezvous.wire.reports import Report, WorldReport
from rendezvous.wire.world import RankWorld
from tests.worker.agent.drive import TERM, Drive, to, told, virtually
from worker.agent import actions as do
from worker.agent import inputs
from worker.agent.sampling import follow_worlds


def world(size: int, *places: int, whole: bool = False) -> RankWorld:
    """Of a rank of this node; the table has five, of which this node has the last two."""
    return RankWorld(rank=3, library="torch", size=size, places=list(places), whole=whole)


ALONE, ALL = world(1, 0, whole=True), world(5, 3)


def running() -> Drive:
    """A node whose program runs."""
    return to("running")


def seen(drive: Drive, *worlds: RankWorld) -> list[Report]:
    """What is told when these are seen."""
    return told(drive.feed(inputs.WorldsSeen(drive.program, worlds)))


def reported(*worlds: RankWorld) -> list[Any]:
    """What is told of these."""
    return [WorldReport(epoch=1, worlds=list(worlds))]


@pytest.mark.parametrize("small", [ALONE, world(2, 0, 1, whole=True), world(4, 2, 3)])
def test_what_cannot_be_the_tables_is_told_once(small: RankWorld) -> None:
    drive = running()
    assert seen(drive, small) == reported(small)
    assert seen(drive, small) == []


@pytest.mark.parametrize("large", [(ALL,), (ALONE, ALL), (world(6, 2, 3),), ()])
def test_what_may_be_the_tables_is_told_with_the_end(large: tuple[RankWorld, ...]) -> None:
    drive = running()
    assert seen(drive, *large) == []


def test_how_it_went_on_is_told_and_what_is_no_longer_so_is_not() -> None:
    """The registry may be away meanwhile: of two reports the older one must not come last."""
    drive = running()
    assert seen(drive, ALONE) == reported(ALONE)
    done = drive.feed(inputs.WorldsSeen(drive.program, (ALONE, ALL)))
    assert [type(one) for one in done] == [do.Drop, do.Tell]
    assert told(done) == reported(ALONE, ALL)


def test_a_program_that_is_being_stopped_tells_nothing_more() -> None:
    drive = running()
    TERM(drive)
    drive.taken()
    assert seen(drive, ALONE) == []


def test_the_worlds_of_a_program_that_is_gone_are_told_by_its_end() -> None:
    drive = running()
    number = drive.program
    drive.ended()
    assert drive.feed(inputs.WorldsSeen(number, (ALONE,))) == ()


# --- the looks ------------------------------------------------------------------------------------


def followed(*looks: tuple[RankWorld, ...]) -> list[tuple[float, tuple[RankWorld, ...]]]:
    """When what was fed, by what is noted at each look; the last of it stays."""
    found = []

    async def follow() -> None:
        loop, left = asyncio.get_running_loop(), list(looks)
        began = loop.time()

        async def read() -> tuple[RankWorld, ...]:
            return left.pop(0) if len(left) > 1 else left[0]

        def feed(said: inputs.Input) -> None:
            assert isinstance(said, inputs.WorldsSeen)
            found.append((loop.time() - began, said.worlds))

        following = asyncio.create_task(follow_worlds(1, read, feed))
        await asyncio.sleep(600.0)
        following.cancel()

    virtually(follow())
    return found


def test_what_stands_for_two_looks_is_fed_once() -> None:
    assert followed(()) == []
    assert followed((ALONE,)) == [(2.0, (ALONE,))]
    assert followed((), (ALONE,), (ALL,), (ALL,)) == [(4.0, (ALL,))]
    assert followed((ALONE,), (ALONE,), (ALONE, ALL)) == [(2.0, (ALONE,)), (4.0, (ALONE, ALL))]


def test_the_looks_become_rarer() -> None:
    late = followed(*[()] * 60, (ALONE,))
    assert len(late) == 1
    assert 300.0 < late[0][0] < 600.0
