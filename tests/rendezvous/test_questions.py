"""The questions to the nodes of a run, of any topic: who is asked, and which answers are kept."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from rendezvous.channel import Asked
from rendezvous.registry.questions import Questions
from rendezvous.run.state import Run
from rendezvous.wire.errors import Forbidden, NotFound, RunOver, TooLarge, TooManyRequests
from rendezvous.wire.question import Answer, Answers, NodeAnswer, Question
from rendezvous.wire.run import Phase
from rendezvous.wire.watch import NodeView
from tests.support.driver import in_phase
from tests.support.registry import Launch
from tests.support.served import Served, serving
from tests.support.topics import WEATHER

DEMO = Launch("demo")
REST, LASTS = WEATHER.rest, WEATHER.seconds

served = pytest.fixture(serving)


def said(number: int, words: str) -> Answer:
    """What a node answers."""
    return Answer(number=number, epoch=1, words=words)


async def running(served: Served, nodes: int = 2) -> Run:
    """A run that goes."""
    await served.bring_to(Phase.RUNNING, DEMO, nodes)
    return served.host(DEMO).run


def asked(served: Served, topic: Asked = WEATHER) -> Questions:
    """The questions of this topic."""
    return served.host(DEMO).questions(topic)


def begin(served: Served) -> int:
    """Somebody asks."""
    host = served.host(DEMO)
    return asked(served).ask(host.run, host.now()).number


def answer(served: Served, slot: int, answer: Answer) -> None:
    """A node answers."""
    asked(served).take(slot, answer, served.service.now())


def found(served: Served, number: int = 0) -> Answers:
    """What has been answered until now."""
    body = asked(served).written(number, served.service.now())
    read = Answers.model_validate_json(body.plain)
    nodes = [NodeAnswer.model_validate(one) for one in read.nodes]
    return read.model_copy(update={"nodes": nodes})


def answered(served: Served, number: int = 0) -> dict[int, Any]:
    """By slot what has been answered, in the order in which it came."""
    return {one.slot: one.report for one in found(served, number).nodes if one.report is not None}


async def watched(served: Served, number: int) -> NodeView:
    """What a node is told that knows all news, and this question."""
    host = served.host(DEMO)
    body = await served.service.watch(host, host.news_seq, None, number)
    return NodeView.model_validate_json(body.plain)


async def test_every_node_is_asked_and_what_they_answer_is_kept(served: Served) -> None:
    await running(served)
    number = begin(served)
    first = found(served, number)
    assert [(node.slot, node.node, node.hostname) for node in first.nodes] == [
        (0, 0, "host0"),
        (1, 1, "host1"),
    ]
    assert (first.number, first.epoch, first.over) == (number, 1, False)
    answer(served, 1, said(number, "sun"))
    answer(served, 1, said(number, "snow"))  # again: the first counts
    answer(served, 2, said(number, "fog"))  # it was not asked
    answer(served, 0, said(number - 1, "fog"))  # another question
    answer(served, 0, said(number, "rain"))
    assert found(served).over
    assert answered(served) == {
        1: {"number": number, "epoch": 1, "words": "sun"},
        0: {"number": number, "epoch": 1, "words": "rain"},
    }


async def test_a_watch_is_answered_early_and_once(served: Served) -> None:
    await running(served)
    served.poll_long(DEMO)
    waits = asyncio.create_task(watched(served, 0))
    await asyncio.sleep(0.01)
    number = begin(served)
    question = Question(number=number, topic="weather")
    assert (await asyncio.wait_for(waits, 5)).question == question
    assert (await asyncio.wait_for(watched(served, number - 1), 5)).question == question
    knows = asyncio.create_task(watched(served, number))
    await asyncio.sleep(0.01)
    assert not knows.done()
    for slot in (0, 1):
        answer(served, slot, said(number, "rain"))
    late = asyncio.create_task(watched(served, 0))  # it is over: no node is asked any more
    await asyncio.sleep(0.01)
    assert not late.done()
    for task in (knows, late):
        task.cancel()


async def test_nodes_are_asked_one_topic_after_the_other(served: Served) -> None:
    await running(served)
    served.poll_long(DEMO)
    number, host = begin(served), served.host(DEMO)
    other = host.questions(replace(WEATHER, name="tides")).ask(host.run, host.now()).number
    view = await asyncio.wait_for(watched(served, 0), 5)
    assert view.question == Question(number=number, topic="weather")
    for slot in (0, 1):
        answer(served, slot, said(number, "rain"))
    view = await asyncio.wait_for(watched(served, number), 5)
    assert view.question == Question(number=other, topic="tides")


async def test_who_asks_while_a_question_is_open_gets_that_one(served: Served) -> None:
    await running(served)
    number = begin(served)
    assert begin(served) == number
    for slot in (0, 1):
        answer(served, slot, said(number, "rain"))
    with pytest.raises(TooManyRequests, match="run 'demo' is 0 s old"):
        begin(served)
    served.let_pass(REST)
    assert begin(served) != number


async def test_a_node_that_does_not_answer_is_not_waited_for_for_long(served: Served) -> None:
    await running(served)
    number = begin(served)
    answer(served, 0, said(number, "rain"))
    assert not found(served).over
    served.let_pass(LASTS + 0.1)
    answer(served, 1, said(number, "rain"))  # too late
    assert found(served).over
    assert [*answered(served)] == [0]


def test_each_of_many_nodes_has_a_moment_more() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    questions = Questions(replace(WEATHER, each=2.0), lambda: None)
    number = questions.ask(drive.run, 100.0).number
    assert not questions.is_over(number, 100.0 + LASTS + 5.9)
    assert questions.is_over(number, 100.0 + LASTS + 6.0)
    assert questions.open(100.0 + LASTS + 6.0) is None


async def test_who_waits_is_answered_with_the_last_node(served: Served) -> None:
    await running(served)
    number = begin(served)
    waits = asyncio.create_task(asked(served).wait(number, 20.0, served.service.now()))
    for slot in (0, 1):
        await asyncio.sleep(0.01)
        assert not waits.done()
        answer(served, slot, said(number, "rain"))
    await asyncio.wait_for(waits, 5)


async def test_the_newest_three_are_kept(served: Served) -> None:
    await running(served)
    numbers = []
    for _ in range(4):
        numbers.append(begin(served))
        served.let_pass(LASTS + REST)
    assert [found(served, number).number for number in numbers[1:]] == numbers[1:]
    with pytest.raises(NotFound, match=f"no question {numbers[0]} any more"):
        found(served, numbers[0])


async def test_the_pause_is_counted_from_the_newest_question(served: Served) -> None:
    await running(served)
    for _ in range(3):
        begin(served)
        served.let_pass(max(LASTS + 0.5, REST))
    number = begin(served)
    for slot in (0, 1):
        answer(served, slot, said(number, "rain"))
    with pytest.raises(TooManyRequests, match="is 0 s old"):
        begin(served)


def test_the_answers_of_all_nodes_together_are_bounded_and_one_more_is_not_kept() -> None:
    drive = in_phase(Phase.RUNNING, 4)
    run, now, long = drive.run, drive.now, "x" * 400
    size = len(NodeAnswer(slot=2, node=2, hostname="host2", report=said(1, long)).model_dump_json())
    questions = Questions(replace(WEATHER, run_bytes=int(2.5 * size)), lambda: None)
    number = questions.ask(run, now).number
    questions.take(2, said(number, long), now)
    questions.take(3, said(number, long), now)
    with pytest.raises(TooLarge):
        questions.take(1, said(number, long), now)
    questions.take(0, said(number, "rain"), now)
    read = Answers.model_validate_json(questions.written(number, now).plain)
    assert [node["slot"] for node in read.nodes if "report" in node] == [2, 3, 0]


async def test_nobody_has_asked(served: Served) -> None:
    await running(served)
    assert found(served) == Answers(number=0)
    assert asked(served).open(served.service.now()) is None


def test_nobody_is_asked_while_no_program_runs() -> None:
    questions = Questions(WEATHER, lambda: None)
    drive = in_phase(Phase.VERIFYING, 2)
    with pytest.raises(Forbidden, match="no program runs"):
        questions.ask(drive.run, drive.now)
    over = in_phase(Phase.RUNNING, 2)
    for slot in (0, 1):
        over.exit(slot, 0)
    with pytest.raises(RunOver, match="has ended"):
        questions.ask(over.run, over.now)


async def test_the_answers_to_each_of_several_questions_are_its_own(served: Served) -> None:
    await running(served)
    numbers = []
    for words in ("sun", "rain"):
        numbers.append(number := begin(served))
        answer(served, 0, said(number, words))
        await served.clock.move(REST + LASTS)
    for number, words in zip(numbers, ("sun", "rain"), strict=True):
        assert answered(served, number) == {0: {"number": number, "epoch": 1, "words": words}}
