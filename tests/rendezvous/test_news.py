"""What all nodes of a run are told, written once; and look-ups that many wait for."""

from __future__ import annotations

import asyncio
import logging

import pytest

from rendezvous.registry.live_run import News
from rendezvous.registry.replica import Owners
from rendezvous.run.views import node_view
from rendezvous.wire.errors import Unavailable
from rendezvous.wire.run import Phase
from rendezvous.wire.watch import NodeView
from tests.support.driver import in_phase, sha


def test_only_who_has_the_former_table_is_told_of_its_port_alone() -> None:
    drive = in_phase(Phase.ARMING)
    view = node_view(drive.run, drive.now, 2.0)
    former = sha("the former one")
    news = News(view, drive.run.attempt.written, former)
    told = {
        has: NodeView.model_validate_json(news.to(has).plain) for has in (former, sha("x"), None)
    }
    assert told[sha("x")] == told[None] == view
    assert (told[former].table, told[former].renewed_port) == (None, 29_500)
    first = News(view, drive.run.attempt.written)
    assert NodeView.model_validate_json(first.to("").plain) == view


async def test_one_look_up_answers_all_who_ask_meanwhile_and_the_next_is_another() -> None:
    asked: list[str] = []
    gate = asyncio.Event()

    async def look(run: str) -> None:
        asked.append(run)
        await gate.wait()

    owners = Owners(look)
    tasks = [asyncio.create_task(owners.of(run)) for run in ("a", "b", "a")]
    await asyncio.sleep(0)
    tasks.pop().cancel()  # the others of the same look-up go on
    gate.set()
    assert await asyncio.gather(*tasks) == [None, None]
    await owners.of("a")
    assert asked == ["a", "b", "a"]


async def test_a_look_up_that_fails_for_nobody_is_not_complained_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def look(_: str) -> None:
        raise Unavailable("the journal is away")

    owners = Owners(look)
    task = asyncio.create_task(owners.of("a"))
    await asyncio.sleep(0)
    task.cancel()
    with caplog.at_level(logging.ERROR, logger="asyncio"):
        for _ in range(5):
            await asyncio.sleep(0)
        with pytest.raises(Unavailable):
            await owners.of("b")
        del task
    assert caplog.text == ""


async def test_look_ups_that_nobody_waits_for_are_cancelled() -> None:
    ended = []

    async def look(run: str) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append(run)

    owners = Owners(look)
    tasks = [asyncio.create_task(owners.of(run)) for run in ("a", "b")]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    owners.cancel()
    await asyncio.wait(tasks, timeout=5)
    assert sorted(ended) == ["a", "b"]
    assert all(task.cancelled() for task in tasks)
