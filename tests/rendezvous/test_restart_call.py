"""The calls that have the programs of a run start again, and a node leave."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rendezvous.registry.bereft import launcher_ended
from rendezvous.wire.asked import DrainRequest
from rendezvous.wire.errors import NotFound, RunExists
from rendezvous.wire.reports import AckReport, ExitReport
from rendezvous.wire.run import Phase, SlotNews, SlotState
from rendezvous.wire.watch import read_view
from tests.support.driver import make_probe
from tests.support.registry import Launch
from tests.support.served import Served, serving

DEMO = Launch("demo")

served = pytest.fixture(serving)


async def end_as_told(served: Served) -> None:
    """Both programs of the first epoch end, because they were stopped."""
    for slot in (0, 1):
        end = ExitReport(epoch=1, exit_code=143, age_seconds=0.0, stopped=True)
        await served.report(DEMO, slot, end)


async def acknowledge(served: Served) -> None:
    """Both nodes are ready for the newest table."""
    run = served.host(DEMO).run
    ack = AckReport(epoch=run.epoch, digest=run.digest)
    await asyncio.gather(*(served.report(DEMO, slot, ack) for slot in (0, 1)))
    assert run.phase is Phase.RUNNING


async def test_the_programs_are_stopped_and_start_again_uncounted(served: Served) -> None:
    await served.bring_to(Phase.RUNNING, DEMO)
    live = served.host(DEMO)
    for _ in range(2):  # who asks again is told the same, and nothing more is written down
        status = await served.service.restart(live, "new data")
        assert (status.phase, status.reason) == (
            Phase.RUNNING,
            "restart requested: new data; stopping the programs",
        )
    assert [line.kind for line in live.lines_after(0)].count("restart_asked") == 1
    await end_as_told(served)
    status = await served.service.status(live)
    (end_of_1,) = status.ended
    assert (status.phase, status.epoch, status.restarts) == (Phase.ARMING, 2, 0)
    assert (end_of_1.message, end_of_1.then) == (
        "its programs were stopped",
        "restart requested: new data",
    )
    await acknowledge(served)
    assert await served.is_what_the_journal_says(DEMO)


async def test_a_table_that_renews_another_is_told_in_short_to_who_has_that(
    served: Served,
) -> None:
    await served.bring_to(Phase.RUNNING, DEMO)
    live = served.host(DEMO)
    former = live.run.table
    assert former is not None
    await served.service.restart(live, "new data")
    await end_as_told(served)

    async def told(has: str | None) -> bytes:
        return (await served.service.watch(served.host(DEMO), 0, has)).plain

    short = await told(former.digest())
    assert b"rows" not in short
    assert read_view(short, former).table == live.run.table != former
    for has in (None, "", "0" * 64, live.run.digest):
        assert read_view(await told(has)) == read_view(short, former)
    await served.restart()
    assert read_view(await told(former.digest()), former).table == live.run.table
    await acknowledge(served)
    assert read_view(await told(former.digest())).table is None


async def test_a_node_that_ended_with_its_launcher_comes_again_between_two_epochs(
    served: Served,
) -> None:
    """The same launch, started again, submits it as its next generation."""
    await served.bring_to(Phase.RUNNING, DEMO)
    live = served.host(DEMO)
    before = live.run.table
    await served.service.restart(live, "new data")
    await end_as_told(served)
    await launcher_ended(served.service.sequencer, 0.0)
    await served.restart(away=5.0)
    live = served.host(DEMO)
    assert live.run.phase is Phase.ARMING
    digest = DEMO.token(0, 2).sha256()
    news = SlotNews(generation=2, state=SlotState.SUBMITTING, token_sha256=digest)
    await served.service.slot_news(live, 0, news)
    again: dict[str, Any] = {"generation": 2, "join_id": "join-0-of-generation-2"}
    await served.join(DEMO, 0, **again)
    assert (live.run.phase, live.run.result) == (Phase.VERIFYING, None)
    incarnations = {0: 2, 1: 1}
    epoch = live.run.epoch
    for slot, incarnation in incarnations.items():
        await served.report(DEMO, slot, make_probe(epoch, slot, [0, 1]), incarnation)
    ack = AckReport(epoch=live.run.epoch, digest=live.run.digest)
    for slot, incarnation in incarnations.items():
        await served.report(DEMO, slot, ack, incarnation)
    after = live.run.table
    assert (await served.service.status(live)).phase is Phase.RUNNING
    assert before is not None
    assert after is not None
    assert after.epoch > before.epoch
    assert [(row.slot, row.node) for row in after.rows] == [
        (row.slot, row.node) for row in before.rows
    ]


async def test_a_node_that_is_to_leave_is_shown_to_all(served: Served) -> None:
    await served.bring_to(Phase.RUNNING, DEMO)
    live, asked = served.host(DEMO), DrainRequest(seconds=120.0, reason="repair")
    for _ in range(2):
        status = await served.service.drain(live, 1, asked)
        assert status.reason.startswith("node 1 (host1) will leave: drained: repair; all")
    assert [line.kind for line in live.lines_after(0)].count("departs") == 1
    with pytest.raises(NotFound):
        await served.service.drain(live, 5, asked)


async def test_a_launch_with_another_number_of_restarts_is_another_run(served: Served) -> None:
    await served.create(DEMO, 2, max_restarts=3)
    await served.create(DEMO, 2, max_restarts=3)
    with pytest.raises(RunExists):
        await served.create(DEMO, 2, max_restarts=2)
