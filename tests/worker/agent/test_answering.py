"""What a node answers to a question, by whose clock, and when it answers nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rendezvous.channel import Asked
from rendezvous.feature import Lazy
from rendezvous.wire.errors import Unavailable
from rendezvous.wire.pace import PACE, ClockReply, PaceAnswer
from rendezvous.wire.question import Answer, Question
from rendezvous.wire.reports import ReportReply
from tests.worker.agent.drive import at_once, virtually
from tests.worker.agent.ports import Node
from worker.agent import AgentEnvironment
from worker.agent.actions import AnswerQuestion
from worker.agent.answering import NOT_KNOWN, PACES_A_SECOND, Answers
from worker.agent.port import NodePort, RunningRanks
from worker.agent.questions import ANSWERS_A_SECOND
from worker.look.parsing.arrivals import Called, RankCalls

MODEL = Lazy("rendezvous.wire.question:Answer")
WEATHER = Asked("weather", MODEL, MODEL, rate=50)
ASKED = AnswerQuestion(Question(number=7, topic="weather"), 2, 1, node=4, nodes=9)
RANKS = RunningRanks("/run/look", {0: 70}, 4, 69, 4_096, None)
AHEAD = 1_000.0
"""Of this machine's clock is the registry's."""


def pace(before: float = 1_000.0) -> AnswerQuestion:
    return replace(ASKED, question=Question(number=7, topic=PACE, data={"before": before}))


class Registry:
    """A registry that is some milliseconds away, there and back, at each question."""

    def __init__(self, *milliseconds: tuple[int, int]) -> None:
        self._ways = list(milliseconds)
        self.said: list[dict[str, Any]] = []
        self.topics: list[str] = []
        self.at: list[float] = []
        self.node = ""

    async def ask(self, model: Any, method: str, path: str, said: Any = None) -> Any:
        if method == "GET":
            assert path == f"{self.node}/clock"
            there, back = self._ways.pop(0) if self._ways else (5, 5)
            await asyncio.sleep(there / 1000)
            now = wall() + AHEAD
            await asyncio.sleep(back / 1000)
            return ClockReply(now=now)
        before, _, topic = path.rpartition("/")
        assert (method, before) == ("POST", self.node)
        self.topics.append(topic)
        self.said.append(said)
        self.at.append(asyncio.get_running_loop().time())
        return ReportReply(seq=1)


def wall() -> float:
    """The clock of this machine."""
    return asyncio.get_running_loop().time()


async def rains(question: Question, ranks: RunningRanks) -> Answer:
    assert (question, ranks) == (ASKED.question, RANKS)
    return Answer(number=question.number, epoch=3, words="it rains")


def calls(*asked: object) -> dict[int, RankCalls]:
    assert asked == (RANKS.folder, RANKS.pids, RANKS.first_rank)
    return {4: RankCalls({("0", "4"): [Called(9, "a", 500_000_000)]}, set())}


def answered(
    asked: AnswerQuestion,
    ranks: RunningRanks | None = RANKS,
    registry: Registry | None = None,
    make: Callable[..., Any] | None = rains,
    calls: Callable[..., Any] = calls,
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
        environment, join = AgentEnvironment(in_thread=at_once, calls=calls), node.parts.spec.join
        client: Any = registry
        await Answers(environment, client, join, node.parts).answer(asked, ranks)

    virtually(work())
    return registry.said


def paces(*given: Any, **more: Any) -> list[PaceAnswer]:
    return [PaceAnswer.model_validate(said) for said in answered(*given, **more)]


# --- the questions of features --------------------------------------------------------------------


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
        made.append(wall())
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


# --- when ranks called ----------------------------------------------------------------------------


def test_when_its_ranks_called_is_told_more_slowly() -> None:
    registry = Registry(*[(0, 0)] * 5)
    [said] = paces(replace(pace(), node=450), registry=registry)
    assert (said.number, said.epoch, said.words) == (7, 2, "")
    assert (registry.topics, registry.at) == ([PACE], [450 / PACES_A_SECOND])


def test_when_they_called_is_told_by_the_registrys_clock() -> None:
    """The quickest answer says most of it, however uneven the ways of the others are."""
    ways = ((80, 5), (2, 2), (5, 70), (9, 1), (30, 30))
    [said] = paces(pace(1e6), registry=Registry(*ways))
    assert said.pace is not None
    assert said.pace.clock_error == pytest.approx(0.002)
    [arrivals] = said.pace.arrivals
    assert arrivals.began == pytest.approx((AHEAD + 0.5) * 1e6, abs=2_000)
    assert arrivals.ranks == [4]


def test_later_calls_are_not_told() -> None:
    [said] = paces(pace(AHEAD + 0.4))
    assert said.pace is not None
    assert said.pace.arrivals == []


@pytest.mark.parametrize("ranks", [None, RANKS._replace(folder="")])
def test_where_nobody_is_to_look_nothing_is_told(ranks: RunningRanks | None) -> None:
    def looks(*_: object) -> None:
        raise AssertionError

    [said] = paces(
        replace(pace(), why="" if ranks else "its program has ended"), ranks, calls=looks
    )
    assert (said.pace, said.words) == (None, "" if ranks else "its program has ended")


@pytest.mark.parametrize("asked", [ASKED, pace()])
def test_a_registry_that_does_not_answer_is_told_nothing(asked: AnswerQuestion) -> None:
    class Away(Registry):
        async def ask(self, model: Any, method: str, path: str, said: Any = None) -> Any:
            raise Unavailable("nobody listens")

    assert answered(asked, registry=Away()) == []
