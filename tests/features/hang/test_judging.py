"""A silent run in its registry: it is looked at, and what is found becomes events."""

from __future__ import annotations

import pytest

from features.hang import LOOKS, QUIET
from features.hang.registry import Quiet
from features.hang.wire import QuietReport
from rendezvous.registry.live_run import LiveRun
from rendezvous.registry.topics import Received
from rendezvous.wire.run import Phase
from tests.features.hang.driving import report_of, running, timeout
from tests.features.hang.runs import One, late, waits
from tests.support.registry import Launch
from tests.support.served import Served, serving

DEMO = Launch("demo")

served = pytest.fixture(serving)

WAITS, LATE = [waits(), waits()], [waits(), late()]


async def goes(served: Served, ends: float | None = None) -> LiveRun:
    """A run of two nodes that goes."""
    await served.bring_to(Phase.RUNNING, DEMO, 2, **timeout(ends))
    return served.host(DEMO)


async def quiet(served: Served, seconds: float = 120.0) -> None:
    """Nothing moves on any node."""
    host = served.host(DEMO)
    for slot in (0, 1):
        report = QuietReport(epoch=1, seconds=seconds)
        host.store(QUIET).receive(Received(host.run, slot, 1, report, host.now()))
    await sweeps(served)


async def sweeps(served: Served) -> None:
    """Some of the registry's, however long they take; no time passes."""
    for _ in range(10):
        await served.clock.jump(0.0)


async def passes(served: Served, seconds: float) -> None:
    """So much time, in which both nodes are heard of, and say again that nothing moves."""
    for _ in range(round(seconds / 5.0)):
        await served.clock.move(5.0)
        host = served.host(DEMO)
        for slot in (0, 1):
            served.service.heard(host, slot, 1, None)
        silences: Quiet = host.store(QUIET)  # type: ignore[assignment]
        for slot, one in silences.of(host.run, host.now()).items():
            report = QuietReport(epoch=1, seconds=host.now() - one.since, number=one.number)
            silences.receive(Received(host.run, slot, 1, report, host.now()))


async def answer(served: Served, host: LiveRun, *ranks: list[One]) -> bool:
    """The nodes answer the look that is under way, if there is one."""
    looks, now = host.questions(LOOKS), host.now()
    question = looks.open(now)
    for slot, found in enumerate(ranks if question is not None else ()):
        assert question is not None
        looks.take(slot, report_of(slot, found, question.number), now)
    await sweeps(served)
    return question is not None


async def two_looks(served: Served, host: LiveRun) -> None:
    """Both are answered, 10 s apart."""
    assert await answer(served, host, WAITS, LATE)
    assert not await answer(served, host, WAITS, LATE)
    await passes(served, 10.0)
    assert await answer(served, host, WAITS, LATE)


def found(served: Served) -> list[str]:
    """What was said of it."""
    return [words for words in served.reasons(DEMO) if "nothing has moved" in words]


async def test_two_looks_name_the_rank_that_all_wait_for(served: Served) -> None:
    host = await goes(served)
    await quiet(served)
    await two_looks(served, host)
    *_, last = found(served)
    assert "rank 3" in last
    assert "load_batch" in last
    status = await served.service.status(host)
    assert "nothing has moved for 2 min: 3 of 4 ranks" in status.reason
    assert await served.is_what_the_journal_says(DEMO)


async def test_another_rank_is_said_as_well_and_the_first_one_again(served: Served) -> None:
    host = await goes(served)
    await quiet(served)
    await two_looks(served, host)
    for ranks, rank in (((LATE, WAITS), "rank 1"), ((WAITS, LATE), "rank 3")):
        before = len(found(served))
        for _ in range(2):
            await passes(served, 60.0)
            assert await answer(served, host, *ranks)
        *_, last = new = found(served)[before:]
        assert f"; {rank} " in last or f" {rank} " in last
        assert len(new) == len({*new})  # and each sentence once


async def test_a_stall_that_lasts_ends_the_programs(served: Served) -> None:
    host = await goes(served, ends=125.0)
    await quiet(served)
    await two_looks(served, host)
    assert host.run.stop
    assert host.run.stop_asked is not None
    assert host.run.stop_asked.feature == "hang"


async def test_a_registry_that_comes_back_looks_anew(served: Served) -> None:
    """Once the nodes have sent anew that nothing moves; what was found is shown until then."""
    host = await goes(served)
    await quiet(served)
    await two_looks(served, host)
    said = len(found(served))
    await served.restart()
    await sweeps(served)
    host = served.host(DEMO)
    assert not await answer(served, host, WAITS, LATE)
    assert "hang" in host.run.notes
    assert (await served.service.status(host)).reason == "running on 2 nodes"
    await passes(served, 25.0)
    await quiet(served, 155.0)
    assert "; nothing has moved for 2 min: 3 of 4" in (await served.service.status(host)).reason
    await two_looks(served, host)
    assert "rank 3" in found(served)[said:][-1]
    assert not any("move again" in words for words in served.reasons(DEMO))


def test_where_people_have_looked_meanwhile_both_looks_are_made_anew() -> None:
    """The one before is no longer kept by then: three others are."""
    run = running()
    began = run.drive.now
    run.quiet(0, 1)
    run.answer(WAITS, LATE)
    asked, told = dict[int, int](), list[tuple[int, str]]()
    for second in range(160):
        if second in (20, 30, 40):
            run.looks.ask(run.drive.run, run.drive.now)
        told += [(second, event.kind) for event in run.sweep()]
        if number := run.answer(WAITS, LATE):
            asked[number] = second
        run.wait(1.0)
    assert run.drive.now == began + 160
    assert [0, *asked.values()] == [
        *(0, 10),
        *(20, 30, 40),  # people's
        *(70, 75, 85),
        145,
    ]
    assert told == [(11, "noted")]  # the others found the same


async def test_nodes_that_do_not_answer_make_no_stall(served: Served) -> None:
    host = await goes(served, ends=125.0)
    await quiet(served)
    for _ in range(6):
        await passes(served, 5.0)
    assert host.run.stop is False
