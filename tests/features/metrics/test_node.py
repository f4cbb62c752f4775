"""Rows on their way from the program to the registry: none twice, none held for ever."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any, cast

import pytest

from features.metrics import TOPIC, node
from features.metrics.node import Rows, run
from features.metrics.wire import MOST_METRIC_ROWS, MetricBatch, MetricReply, decoded, encoded
from rendezvous.channel import Published
from rendezvous.wire.errors import NotFound, RdzvError, TooManyRequests, Unavailable
from tests.support.virtual_time import run_virtually
from tests.worker.agent.drive import virtually
from tests.worker.agent.ports import Node
from worker.agent.port import NodePort


class Port:
    """A node's port: it takes batches in as the registry does, which may be away, or silent."""

    def __init__(self) -> None:
        self.batches: list[MetricBatch] = []
        self.at: list[float] = []
        self.error: RdzvError | None = None
        self.lose_answer = False
        self.seconds = 0.0
        self.nodes = 1
        self.steps: list[int] = []

    def progressed(self, step: int) -> None:
        self.steps.append(step)

    async def publish(self, topic: Published, batch: MetricBatch) -> MetricReply:
        assert topic is TOPIC
        if self.seconds:
            await asyncio.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        self.batches.append(batch)
        self.at.append(asyncio.get_running_loop().time())
        if self.lose_answer:
            self.lose_answer = False
            raise Unavailable("the answer was lost")
        return MetricReply(expected=batch.first + len(batch.rows))

    @property
    def numbered(self) -> list[tuple[int, int]]:
        """Each row that came: its number, and its step."""
        return [
            (number, row.step)
            for batch in self.batches
            for number, row in enumerate(batch.rows, batch.first)
        ]


@pytest.fixture
def registry() -> Port:
    return Port()


@pytest.fixture
def sender(registry: Port) -> Rows:
    return Rows(cast(NodePort, registry))


def row(step: int, **changes: Any) -> dict[str, object]:
    return {"do": "metrics", "rank": 1, "step": step, "values": {"loss": 0.5}} | changes


def test_what_is_not_finite_travels_as_json_can_say_it() -> None:
    told = json.loads('{"loss": NaN, "norm": Infinity, "low": -Infinity, "lr": 0.1, "on": true}')
    sent = encoded(told | {"text": "x"})
    codes = {"loss/not_finite": 1.0, "norm/not_finite": 2.0, "low/not_finite": -2.0}
    assert sent == {**codes, "lr": 0.1, "on": True, "text": "x"}
    assert repr(decoded({k: v for k, v in sent.items() if isinstance(v, float)})) == (
        "{'loss': nan, 'norm': inf, 'low': -inf, 'lr': 0.1}"
    )
    assert decoded({"loss/not_finite": 7.0}) == {"loss/not_finite": 7.0}


@pytest.mark.parametrize("error", [Unavailable("nobody is there"), TooManyRequests("too many")])
def test_what_comes_together_goes_in_one_batch_and_waits_for_a_registry_that_takes_nothing(
    registry: Port, sender: Rows, error: RdzvError
) -> None:
    registry.error = error

    async def work() -> None:
        task = asyncio.create_task(sender.send())
        assert [sender.take(row(step)) for step in (1, 2)] == ["", ""]
        await asyncio.sleep(100.0)
        registry.error = None
        await asyncio.sleep(100.0)
        assert sender.take(row(3, values=json.loads('{"loss": NaN}'), host="x")) == ""
        await asyncio.sleep(100.0)
        task.cancel()

    run_virtually(work())
    assert registry.numbered == [(1, 1), (2, 2), (3, 3)]
    first, second = registry.batches
    assert first.rows[0].model_dump() == {"rank": 1, "step": 1, "values": {"loss": 0.5}}
    assert second.rows[0].values == {"loss/not_finite": 1.0}


def test_of_many_rows_a_batch_goes_in_an_interval(registry: Port, sender: Rows) -> None:
    """What all nodes send together is bounded by how often each does."""

    async def work() -> None:
        for step in range(MOST_METRIC_ROWS + 10):
            sender.take(row(step))
        task = asyncio.create_task(sender.send())
        await asyncio.sleep(0.5 * TOPIC.interval)
        assert [len(batch.rows) for batch in registry.batches] == [MOST_METRIC_ROWS]
        task.cancel()
        await sender.flush()

    run_virtually(work())
    assert [len(batch.rows) for batch in registry.batches] == [MOST_METRIC_ROWS, 10]
    assert [number for number, _ in registry.numbered] == list(range(1, MOST_METRIC_ROWS + 11))


async def test_a_step_is_known_at_once_whatever_becomes_of_its_row(
    registry: Port, sender: Rows
) -> None:
    for step in (0, 7, 3):
        sender.take(row(step))
    sender.take(row(9, rank=-1))  # which is refused
    assert registry.steps == [0, 7, 3]


def test_the_more_nodes_there_are_the_less_often_each_sends(registry: Port, sender: Rows) -> None:
    registry.nodes = 3_000

    async def work() -> None:
        task = asyncio.create_task(sender.send())
        for step in range(20):
            sender.take(row(step))
            await asyncio.sleep(1.0)
        task.cancel()

    run_virtually(work())
    assert registry.at == [0.0, 6.0, 12.0, 18.0]


async def test_after_a_lost_answer_the_same_rows_come_with_the_same_numbers(
    registry: Port, sender: Rows
) -> None:
    registry.lose_answer = True
    for step in (1, 2):
        sender.take(row(step))
        await sender.flush()
    assert registry.numbered == [(1, 1), (1, 1), (2, 2)]


def test_two_who_send_at_the_same_time_send_nothing_twice(registry: Port, sender: Rows) -> None:
    """The program has ended while a batch is on its way."""
    registry.seconds = 0.4

    async def work() -> None:
        for step in range(1, 4):
            sender.take(row(step))
        task = asyncio.create_task(sender.send())
        await asyncio.sleep(0.1)
        sender.take(row(4))
        await sender.flush()
        task.cancel()

    run_virtually(work())
    assert registry.numbered == [(step, step) for step in range(1, 5)]


def test_a_row_that_is_dropped_while_it_is_sent_takes_no_other_with_it(
    registry: Port, sender: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "_MOST_WAITING", 3)
    registry.seconds = 0.4

    async def work() -> None:
        for step in range(1, 4):
            sender.take(row(step))
        task = asyncio.create_task(sender.send())
        await asyncio.sleep(0.1)
        for step in (4, 5):
            sender.take(row(step))
        await asyncio.sleep(9.0)
        task.cancel()

    run_virtually(work())
    assert registry.numbered == [(step, step) for step in range(1, 6)]


async def test_a_batch_of_large_rows_fits_a_body(registry: Port, sender: Rows) -> None:
    values = {f"{'x' * 62}{n:02}": -1.2345678901234567e-300 for n in range(32)}
    assert [sender.take(row(step, values=values)) for step in range(40)] == [""] * 40
    await sender.flush()
    assert len(registry.numbered) == 40
    assert max(len(batch.model_dump_json()) for batch in registry.batches) < 64 << 10


async def test_of_too_many_that_wait_the_oldest_are_dropped_and_that_is_said_once(
    registry: Port,
    sender: Rows,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(node, "_MOST_WAITING", 3)
    with caplog.at_level(logging.WARNING):
        for step in range(1, 8):
            sender.take(row(step))
    await sender.flush()
    assert registry.numbered == [(5, 5), (6, 6), (7, 7)]
    words = "1 rows of metrics were dropped, the oldest first: the program sends them faster"
    assert [record.message for record in caplog.records] == [
        f"{words} than the node can report them"
    ]


def test_who_knows_no_metrics_is_not_asked_again(registry: Port, sender: Rows) -> None:
    registry.error = NotFound("there is no such route")
    sender.take(row(1))
    run_virtually(sender.send())  # and it ends
    registry.error = None
    sender.take(row(2))
    run_virtually(sender.flush())
    assert registry.batches == []


def test_the_part_takes_rows_from_the_socket_and_a_silent_registry_holds_nobody_up() -> None:
    own = Node(run)

    async def work() -> float:
        own.starts()
        await asyncio.sleep(0)
        assert own.ask(row(4)) == ""
        assert own.ask(row("x")).startswith("metrics: step: Input should be a valid integer")  # type: ignore[arg-type]
        await asyncio.sleep(5.0)
        assert [topic for _, topic, _ in own.received] == ["metrics"]
        own.seconds = 100.0
        assert own.ask(row(5)) == ""
        began = asyncio.get_running_loop().time()
        await own.parts.flush()
        own.begun[0].cancel()
        return asyncio.get_running_loop().time() - began

    assert virtually(work()) == 1.0
    assert (own.parts.step, own.fed, len(own.received)) == (5, [], 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"step": "7"}, "metrics: step: Input should be a valid integer"),
        ({"values": {"a b": 1}}, "metrics: values.a b.[key]: String should match pattern"),
        ({"values": {"loss": "nan"}}, "metrics: values.loss: Input should be a valid number"),
        ({"values": [1.0]}, "metrics: values: Input should be a valid dictionary"),
    ],
)
async def test_what_is_not_as_agreed_is_refused_with_its_place(
    change: dict[str, object], words: str, registry: Port, sender: Rows
) -> None:
    assert sender.take(row(1) | change).startswith(words)
    await sender.flush()
    assert registry.batches == []


def test_who_has_nothing_to_send_waits(
    registry: Port, sender: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after the first batch."""
    tries: list[float] = []
    send_batch = sender._send_batch

    async def counted() -> bool:
        tries.append(asyncio.get_running_loop().time())
        return await send_batch()

    monkeypatch.setattr(sender, "_send_batch", counted)

    async def work() -> None:
        task = asyncio.create_task(sender.send())
        for step in (1, 2):
            sender.take(row(step))
            await asyncio.sleep(100 * TOPIC.interval)
        task.cancel()

    run_virtually(work())
    assert len(tries) == 2
    assert registry.numbered == [(1, 1), (2, 2)]
