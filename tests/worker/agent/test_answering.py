"""What a node answers to a question, when, and why it answers nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rendezvous.channel import Asked
from rendezvous.feature import Lazy
from rendezvous.wire.errors import Unavailable
from rendezvous.wire.question import Answer, Question
from rendezvous.wire.reports import ReportReply
from tests.worker.agent.drive import virtually
from tests.worker.agent.ports import Node
from worker.agent.actions import AnswerQuestion
from worker.agent.answering import NOT_KNOWN, Answers
from worker.agent.port import NodePort, RunningRanks
from worker.agent.questions import ANSWERS_A_SECOND

MODEL = Lazy("rendezvous.wire.question:Answer")
WEATHER = Asked("weather", MODEL, MODEL, rate=50)
ASKED = AnswerQuestion(Question(number=7, topic="weather"), 2, 1, node=4)
RANKS = RunningRanks("/run/look", {0: 70}, 4, 69, 4_096, None)


class Registry:
    """A registry that keeps what it is sent, of which topic, and when."""

    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []
        self.topics: list[str] = []
        self.at: list[float] = []
        self.node = ""

    async def ask(self, model: Any, method: str, path: str, said: Any = None) -> Any:
        before, _, topic = path.rpartition("/")
        assert (method, before) == ("POST", self.node)
        self.topics.append(topic)
        self.said.append(said)
        self.at.append(asyncio.get_running_loop().time())
        return ReportReply(seq=1)


async def rains(question: Question, ranks: RunningRanks) -> Answer:
    assert (question, ranks) == (ASKED.question, RANKS)
    return Answer(number=question.number, epoch=3, words="it rains")


def answered(
    asked: AnswerQuestion,
    ranks: RunningRanks | None = RANKS,
    registry: Registry | None = None,
    make: Callable[..., Any] | None = rains,
) -> list[dict[str, Any]]:
    """What the node has answered, where a part of a feature knows of the weather."""
    registry = registry or Registry()

    async def part(port: NodePort) -> None:
        if make is not None:
            port.answer(WEATHER, make)

    async def work() -> None:
        node = Node(part, client=registry)
        node.starts()
        registry.node = f"/v1/runs/{node.parts.spec.join.run}/nodes/{node.parts.spec.join.slot}"
        await asyncio.gather(*node.begun)
        client: Any = registry
        await Answers(client, node.parts.spec.join, node.parts).answer(asked, ranks)

    virtually(work())
    return registry.said


def test_a_part_answers_its_question_when_it_is_the_nodes_turn() -> None:
    registry = Registry()
    assert answered(ASKED, registry=registry) == [{"number": 7, "epoch": 3, "words": "it rains"}]
    assert (registry.topics, registry.at) == (["weather"], [4 / WEATHER.rate])
    registry = Registry()
    answered(replace(ASKED, node=150), registry=registry)
    assert registry.at == [3.0]


def test_the_answer_is_made_at_once_and_a_long_one_is_sent_when_it_is_there() -> None:
    made: list[float] = []

    async def slowly(question: Question, ranks: RunningRanks) -> Answer:
        made.append(asyncio.get_running_loop().time())
        await asyncio.sleep(1.5)
        return await rains(question, ranks)

    registry = Registry()
    answered(ASKED, registry=registry, make=slowly)
    assert (made, registry.at) == ([0.0], [1.5])


def test_why_there_is_nothing_to_see() -> None:
    [said] = answered(ASKED, None)
    assert said == {"number": 7, "epoch": 2, "words": "its program has not been started yet"}
    [said] = answered(replace(ASKED, program=None, why="its program has ended"), None)
    assert said["words"] == "its program has ended"


def test_a_question_that_no_part_knows_is_answered_with_that() -> None:
    registry = Registry()
    [said] = answered(ASKED, registry=registry, make=None)
    assert said == {"number": 7, "epoch": 2, "words": NOT_KNOWN}
    assert registry.at == [4 / ANSWERS_A_SECOND]


def test_a_part_that_fails_answers_with_that() -> None:
    async def breaks(*_: object) -> Answer:
        raise ValueError("not this way")

    words = "the feature 'f0' failed: ValueError"
    assert answered(ASKED, make=breaks) == [{"number": 7, "epoch": 1, "words": words}]


def test_a_registry_that_does_not_answer_is_told_nothing() -> None:
    class Away(Registry):
        async def ask(self, model: Any, method: str, path: str, said: Any = None) -> Any:
            raise Unavailable("nobody listens")

    assert answered(ASKED, registry=Away()) == []
