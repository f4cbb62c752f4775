"""A run in its registry, whose nodes are asked when their ranks called."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from rendezvous.registry.live_run import LiveRun
from rendezvous.wire.pace import Arrivals, Pace, PaceAnswer
from rendezvous.wire.question import Question
from rendezvous.wire.run import Phase
from rendezvous.wire.watch import NodeView
from tests.support.registry import Launch
from tests.support.served import Served, serving
from tests.support.topics import WEATHER

DEMO = Launch("demo")

served = pytest.fixture(serving)


async def running(served: Served) -> LiveRun:
    """A run of two nodes that goes, and whose nodes can answer."""
    await served.bring_to(Phase.RUNNING, DEMO, 2)
    host = served.host(DEMO)
    for slot in (0, 1):
        can(host, slot)
    return host


def can(host: LiveRun, slot: int, answer: bool = True) -> None:
    """A node can answer, or cannot."""
    node = host.run.slots[slot].its_node
    node.join = replace(node.join, reports_pace=answer)


async def asked(served: Served, most: float) -> float | None:
    """In how many seconds the nodes are asked; both are heard of meanwhile."""
    host, began = served.host(DEMO), served.clock.seconds
    while served.clock.seconds < began + most:
        await served.clock.move(1.0)
        for slot in (0, 1):
            served.service.heard(host, slot, 1, None)
        await asyncio.sleep(0)
        if host.pacing.open(served.service.now()):
            return float(served.clock.seconds - began)
    return None


def called(slot: int, late: float) -> Pace:
    """100 calls, in steps of 0.5 s, of the one rank of a node that is late by up to so much."""
    times, at = [], 0.0
    for number in range(100):
        waits = (number * number * 7919 % 101) / 100
        times.append(at + (late * waits if slot else 0.0))
        at += late * waits + 0.5
    began, *rest = [round(time * 1e6) for time in times]
    gaps = [after - before for before, after in zip([began, *rest], rest, strict=False)]
    arrivals = Arrivals(
        group="0",
        members="0-1",
        ranks=[slot],
        number=1,
        steps=[1] * 99,
        kinds="a" * 100,
        began=began,
        gaps=gaps,
    )
    return Pace(clock_error=0.0005, arrivals=[arrivals])


async def answer(served: Served, host: LiveRun, late: float, most: float) -> bool:
    """The nodes answer, if they are asked in time; one of them twice, which counts once."""
    if await asked(served, most) is None:
        return False
    now = served.service.now()
    question = host.pacing.open(now)
    assert question is not None
    for slot in (1, 1, 0):
        assert host.pacing.open(now) == question
        report = PaceAnswer(number=question.number, epoch=1, pace=called(slot, late))
        host.pacing.take(slot, report, now)
    assert host.pacing.open(now) is None  # all have answered
    await served.clock.move(1.0)
    await asyncio.sleep(0.01)
    return True


def said(served: Served) -> list[str]:
    """What was said of stragglers."""
    return [words for words in served.reasons(DEMO) if "makes the others wait" in words]


async def test_who_is_found_twice_is_told(served: Served) -> None:
    host = await running(served)
    assert await answer(served, host, 0.2, 65.0)
    assert said(served) == []
    assert await answer(served, host, 0.2, 20.0)
    (words,) = said(served)
    assert words.startswith("rank 1 on node 1 ")
    assert "stragglers" in host.run.notes


async def test_who_is_no_longer_found_is_told_as_well(served: Served) -> None:
    host = await running(served)
    for most, late in ((65.0, 0.2), (20.0, 0.2), (125.0, 0.0), (20.0, 0.0)):
        assert await answer(served, host, late, most)
    assert served.reasons(DEMO)[-1].endswith("no longer makes the others wait")
    assert "stragglers" not in host.run.notes


async def test_what_is_found_once_is_not_told(served: Served) -> None:
    host = await running(served)
    for most, late in ((65.0, 0.2), (20.0, 0.0), (125.0, 0.2), (20.0, 0.0)):
        assert await answer(served, host, late, most)
    assert said(served) == []


async def test_who_asks_himself_does_not_wait_for_it(served: Served) -> None:
    """A person's question is another one, told first, and the nodes answer both."""
    host = await running(served)
    assert await asked(served, 65.0)
    now = served.service.now()
    pace = host.pacing.open(now)
    assert pace is not None
    assert (pace.topic, [*pace.data]) == ("pace", ["before"])
    assert view(host, now).question == pace
    number = host.questions(WEATHER).ask(host.run, now).number
    assert view(host, now).question == Question(number=number, topic="weather")
    assert host.pacing.open(now) == pace


def view(host: LiveRun, now: float) -> NodeView:
    """What a poll without news answers."""
    return NodeView.model_validate_json(host.idle(now).plain)


async def test_nodes_that_cannot_answer_are_not_asked(served: Served) -> None:
    host = await running(served)
    can(host, 1, False)
    assert await asked(served, 120.0) is None


async def test_the_nodes_hear_at_once_that_they_are_asked_and_each_time_by_another_number(
    served: Served,
) -> None:
    host = await running(served)
    served.poll_long(DEMO)
    numbers = []
    for most in (65.0, 125.0):
        poll = served.watch(DEMO, host.news_seq)
        await asyncio.sleep(0)
        assert await answer(served, host, 0.0, most)
        numbers.append((await asyncio.wait_for(poll, 5)).question)
    assert len({one.number for one in numbers if one is not None}) == 2
