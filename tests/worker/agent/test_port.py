"""What features have of a node: its programs, its connections, and one line where they fail."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from rendezvous.channel import Asked, Published
from rendezvous.feature import Feature, Lazy
from rendezvous.wire.errors import Unavailable
from rendezvous.wire.question import Answer, Question
from tests.support.virtual_time import forever
from tests.worker.agent.drive import virtually
from tests.worker.agent.ports import Node, Part, of_nodes
from worker.agent import inputs, port
from worker.agent.port import _FLUSH_SECONDS, NodePort, RunningRanks

MODEL = Lazy("tests.worker.agent.test_port:Message")
ALONE = Published("alone", "alone", MODEL, MODEL, MODEL)
RANKS = RunningRanks("/run/look", {0: 70}, 8, 69, 4_096, 7)
WEATHER = Asked("weather", MODEL, MODEL)
BETWEEN = replace(ALONE, name="between", between_watches=True)


class Message(BaseModel):
    """A number."""

    number: int


def lasts(seconds: float, node: Node, *steps: Any) -> None:
    """Let a program run, and then take these steps, each after so many seconds."""

    async def work() -> None:
        node.starts()
        for step in steps:
            await asyncio.sleep(seconds)
            step()
        await asyncio.sleep(seconds)
        for task in node.begun:
            task.cancel()

    virtually(work())


def fails_with(error: Exception) -> Part:
    async def part(port: NodePort) -> None:
        port.activity = "trying"
        raise error

    return part


def test_a_part_sees_what_is_known_of_its_node() -> None:
    seen = list[Any]()

    async def part(port: NodePort) -> None:
        seen.append((port.node, port.nodes, str(port.log_folder)))
        seen.append((port.settings.framework, dict(port.environ)))
        seen.append((port.epoch, port.ranks()))
        await asyncio.sleep(2.5)
        seen.append((port.nodes, port.epoch, port.ranks()))

    node = Node(part)
    later = of_nodes(7).model_copy(update={"epoch": 5})
    steps = lambda: node.starts(2, later), lambda: setattr(node, "ranks", RANKS), lambda: None
    lasts(1.0, node, *steps)
    assert seen[:3] == [(1, 2, "/logs"), ("command", {"PATH": "/bin"}), (1, None)]
    assert seen[3:] == [(7, 5, RANKS)]
    assert (node.parts.node, node.parts.nodes) == (1, 7)


def test_a_part_answers_what_is_asked_on_its_topic() -> None:
    rains = Answer(number=7, epoch=3, words="it rains")
    question = Question(number=7, topic="weather")

    async def made(*asked: object) -> Answer:
        assert asked == (question, RANKS)
        return rains

    answers = answers_of(made, lambda make: make(question, RANKS))
    assert answers == ([rains], [])


def answers_of(made: Any, *asks: Callable[[Any], Any]) -> tuple[list[Answer], list[Any]]:
    """The answers to what is asked, each a second after the other, and what is said of the part."""

    async def part(port: NodePort) -> None:
        port.activity = "seeing the weather"
        port.answer(WEATHER, made)

    answers: list[Answer] = []

    async def work() -> None:
        node.starts()
        await asyncio.gather(*node.begun)
        assert [*node.parts.answers] == ["weather"]
        topic, make = node.parts.answers["weather"]
        assert topic is WEATHER
        tasks = []
        for ask in asks:
            tasks.append(asyncio.ensure_future(ask(make)))
            await asyncio.sleep(1.0)
        answers.extend(task.result() for task in tasks if task.done())
        for task in tasks:
            task.cancel()

    node = Node(part)
    virtually(work())
    return answers, node.fed


def test_a_part_that_cannot_answer_says_so_and_costs_one_line() -> None:
    error = ValueError("not this way")

    async def made(question: Question, ranks: RunningRanks) -> Any:
        if question.number != 8:
            raise error

    asks = [lambda make, n=n: make(Question(number=n, topic="weather"), RANKS) for n in (7, 8, 9)]
    answers, fed = answers_of(made, *asks)
    assert answers == [
        Answer(number=n, epoch=1, words=f"seeing the weather failed: {kind}")
        for n, kind in ((7, "ValueError"), (8, "ValidationError"), (9, "ValueError"))
    ]
    assert fed == [inputs.PartBroken("seeing the weather", error)]


def test_while_an_answer_is_made_no_other_one_is() -> None:
    async def made(question: Question, ranks: RunningRanks) -> Answer:
        await asyncio.sleep(1.5 if question.number == 7 else 1_000.0)
        return Answer(number=question.number, epoch=1)

    asks = [
        lambda make, n=n: make(Question(number=n, topic="weather"), RANKS)
        for n in (7, 8, 9, 10, 11)
    ]
    busy = "it still makes the answer to the question before"
    answers, fed = answers_of(made, *asks)
    assert [(one.number, one.words) for one in answers] == [
        (7, ""),
        (8, busy),
        (10, busy),
        (11, busy),
    ]
    assert fed == []


def makes(seconds: float, error: Exception | None = None) -> Part:
    """Publish the time at which the making of a message has begun, after so long."""

    async def part(port: NodePort) -> None:
        port.activity = "making"

        async def make() -> Message:
            began = int(asyncio.get_running_loop().time())
            await asyncio.sleep(seconds)
            if error is not None:
                raise error
            return Message(number=began)

        await port.every(replace(ALONE, interval=100.0), make)

    return part


def test_what_was_made_for_the_program_before_is_not_published() -> None:
    node = Node(makes(25.0))
    lasts(10.0, node, node.gone, lambda: node.starts(2), *[lambda: None] * 4)
    assert [(at, one) for at, _, one in node.received] == [(50.002, Message(number=25))]
    node = Node(makes(15.0))
    lasts(10.0, node, node.gone, lambda: node.starts(2), *[lambda: None] * 4)
    assert [(at, one) for at, _, one in node.received] == [(35.002, Message(number=20))]


@pytest.mark.parametrize("again", [False, True])
def test_what_fails_after_its_program_is_said_once_and_not_begun_again(again: bool) -> None:
    error = ValueError("not this way")
    node = Node(makes(15.0, error))
    next_ones = [lambda: node.starts(2), lambda: node.starts(3)] if again else [lambda: None]
    lasts(10.0, node, node.gone, *next_ones, *[lambda: None] * 2)
    assert node.fed == [inputs.PartBroken("making", error)]


def test_no_part_is_loaded_before_a_program_starts() -> None:
    loaded = "tests.worker.agent.no_such_module"
    node = Node()
    broken = Feature("broken", node=Lazy(f"{loaded}:run"))
    object.__setattr__(node.parts.environment, "features", lambda: (broken, Feature("none")))
    assert loaded not in sys.modules
    assert node.fed == []
    lasts(1.0, node)
    [said] = node.fed
    assert isinstance(said, inputs.PartBroken)
    assert (said.what, type(said.error)) == ("the feature 'broken'", ModuleNotFoundError)


# --- its programs ---------------------------------------------------------------------------------


def works(seen: list[Any], seconds: float = 100.0) -> Part:
    """Note when the work beside a program begins and ends."""

    async def part(port: NodePort) -> None:
        clock = asyncio.get_running_loop().time

        async def work() -> None:
            seen.append(("begins", clock()))
            try:
                await asyncio.sleep(seconds)
                seen.append(("done", clock()))
            except asyncio.CancelledError:
                seen.append(("cancelled", clock()))
                raise

        await port.beside_programs(work)

    return part


def test_the_work_beside_a_program_ends_with_it_and_begins_with_the_next() -> None:
    seen: list[Any] = []
    node = Node(works(seen))
    lasts(10.0, node, node.gone, lambda: node.starts(2), lambda: node.starts(3), node.gone)
    times = [("begins", 0.0), ("cancelled", 10.0), ("begins", 20.0), ("cancelled", 30.0)]
    assert seen == [*times, ("begins", 30.0), ("cancelled", 40.0)]
    assert len(node.begun) == 1


def test_work_that_is_done_waits_for_the_next_program() -> None:
    seen: list[Any] = []
    node = Node(works(seen, 4.0))
    lasts(10.0, node, node.gone, lambda: node.starts(2))
    assert seen == [("begins", 0.0), ("done", 4.0), ("begins", 20.0), ("done", 24.0)]
    assert node.fed == []


def test_the_step_is_the_highest_one_since_the_start() -> None:
    ports = list[NodePort]()

    async def part(port: NodePort) -> None:
        ports.append(port)

    async def work() -> None:
        node.starts()
        await asyncio.sleep(0)
        assert node.parts.step is None
        for step in (0, 7, 3):
            ports[0].progressed(step)
        assert node.parts.step == 7
        node.starts(2)
        assert node.parts.step is None
        ports[0].progressed(2)
        assert node.parts.step == 2

    node = Node(part)
    virtually(work())


# --- messages -------------------------------------------------------------------------------------


def publishes(topic: Published, *numbers: int, answers: list[Any] | None = None) -> Part:
    async def part(port: NodePort) -> None:
        for number in numbers:
            answer = await port.publish(topic, Message(number=number))
            if answers is not None:
                answers.append(answer)

    return part


def test_a_message_goes_at_once_and_is_answered() -> None:
    answers: list[Any] = []
    node = Node(publishes(ALONE, 1, 2, answers=answers))
    node.free = False
    lasts(1.0, node)
    assert answers == [Message(number=1), Message(number=2)]
    assert node.received == [(0.0, "alone", each) for each in answers]
    assert node.fed == []


def test_one_between_watches_waits_for_the_connection_and_goes_in_turn() -> None:
    node = Node(publishes(BETWEEN, 1, 2), publishes(BETWEEN, 3))
    node.free = False
    lasts(1.0, node, *[node.leaves_free] * 4)
    times = [(at, message.number) for at, _, message in node.received]  # type: ignore[attr-defined]
    assert times == [(1.0, 1), (2.0, 3), (3.0, 2)]
    assert set(node.fed) == {inputs.Publish()}


def test_as_long_as_messages_wait_the_connection_is_asked_for_again() -> None:
    node = Node(publishes(BETWEEN, 1), publishes(BETWEEN, 2))
    node.free = False
    counts = list[int]()
    lasts(1.0, node, *[node.leaves_free, lambda: counts.append(len(node.fed))] * 2)
    assert (counts, len(node.received)) == ([3, 3], 2)


@pytest.mark.parametrize("is_sent", [False, True])
def test_who_takes_a_message_back_holds_nobody_up(is_sent: bool) -> None:
    node = Node(publishes(BETWEEN, 1))
    node.free, node.seconds = False, 100.0
    turns = list[asyncio.Task[None]]()

    def turn() -> None:
        turns.append(node.leaves_free())

    steps = [turn, lambda: node.begun[0].cancel()]
    lasts(1.0, node, *(steps if is_sent else steps[::-1]))
    assert [turn.done() for turn in turns] == [True]
    assert node.received == []


def test_what_the_registry_refuses_is_the_parts_own() -> None:
    seen = list[Any]()

    async def part(port: NodePort) -> None:
        for topic in (ALONE, BETWEEN):
            with pytest.raises(Unavailable):
                await port.publish(topic, Message(number=1))
            seen.append(topic.name)

    node = Node(part)
    node.error = Unavailable("nobody is there")
    lasts(1.0, node)
    assert seen == ["alone", "between"]


# --- its end, and its faults ----------------------------------------------------------------------


def test_all_that_a_part_still_has_is_sent_when_a_program_has_ended_but_for_a_moment_only() -> None:
    flushed = []

    def flushes(seconds: float) -> Part:
        async def flush() -> None:
            await asyncio.sleep(seconds)
            flushed.append(seconds)

        async def part(port: NodePort) -> None:
            port.flush = flush

        return part

    async def breaks(port: NodePort) -> None:
        port.activity, port.flush = "keeping", lambda: fails_with(ValueError("not this way"))(port)

    async def work() -> float:
        node.starts()
        await asyncio.sleep(0)
        await node.parts.flush()
        return asyncio.get_running_loop().time()

    node = Node(flushes(0.5), flushes(_FLUSH_SECONDS + 1.0), breaks, forever_beside)
    assert virtually(work()) == _FLUSH_SECONDS
    assert flushed == [0.5]
    assert [said.what for said in node.fed if isinstance(said, inputs.PartBroken)] == ["trying"]


async def forever_beside(port: NodePort) -> None:
    """A part without anything that is left."""
    await port.beside_programs(forever)


def test_a_part_that_raises_costs_one_line_and_no_other_part() -> None:
    seen: list[Any] = []
    error = ValueError("not this way")
    node = Node(fails_with(error), works(seen))
    lasts(10.0, node, node.gone, lambda: node.starts(2))
    assert node.fed == [inputs.PartBroken("trying", error)]
    assert [what for what, _ in seen] == ["begins", "cancelled", "begins", "cancelled"]


def test_work_that_raises_is_not_begun_again() -> None:
    error = ValueError("not this way")

    async def part(port: NodePort) -> None:
        port.activity = "trying"

        async def work() -> None:
            await asyncio.sleep(3.0)
            raise error

        await port.beside_programs(work)

    node = Node(part)
    lasts(10.0, node, node.gone, lambda: node.starts(2))
    assert node.fed == [inputs.PartBroken("trying", error)]


def test_a_request_that_a_part_breaks_on_is_refused() -> None:
    error = ValueError("not this way")

    def take(request: Any) -> str:
        if request["step"] == 3:
            raise error
        return "refused" if request["step"] == 2 else ""

    async def part(port: NodePort) -> None:
        port.activity = "taking"
        port.serve("steps", take)

    node = Node(part)
    lasts(1.0, node)
    words = "steps: an internal error in rdzv: ValueError('not this way')"
    answers = [node.ask({"do": "steps", "step": step}) for step in (1, 2, 3, 3)]
    assert answers == ["", "refused", words, words]
    assert node.fed == [inputs.PartBroken("taking", error)]


def test_parts_are_loaded_for_agents_that_are_forked_and_a_broken_one_is_left_to_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded = list[str]()

    class Noted(Lazy):
        def load(self) -> None:
            loaded.append(self.path)
            raise ImportError(self.path)

    features = [Feature(name, node=Noted(name)) for name in ("one", "two")]
    monkeypatch.setattr(port, "declared", lambda: (*features, Feature("none")))
    port.load_parts()
    assert loaded == ["one", "two"]
