"""When a node publishes how its machine is: from the start on, at its turn, where it is wanted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from features.machines import TOPIC
from features.machines.node import run
from features.machines.wire import MachineSample
from rendezvous.wire.errors import RdzvError, TooLarge, Unavailable
from tests.worker.agent.drive import virtually
from tests.worker.agent.ports import Node, of_nodes
from worker.agent import inputs

TURN = 1 / TOPIC.rate
"""After the start: the node has number 1."""


class Machine:
    """A machine whose load is how often it was read."""

    def __init__(self) -> None:
        self.read_at: list[float] = []
        self.seconds = 0.0
        self.error: Exception | None = None

    def read(self) -> MachineSample:
        return MachineSample(load=len(self.read_at))

    async def in_thread(self, work: Callable[[], MachineSample]) -> MachineSample:
        self.read_at.append(round(asyncio.get_running_loop().time(), 3))
        await asyncio.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        return work()


def node_of(machine: Machine, **settings: Any) -> Node:
    part = partial(run, make=lambda folder, environ: machine)
    return Node(part, in_thread=machine.in_thread, **settings)


def goes(node: Node, *steps: tuple[float, Callable[[], object]], until: float = 100.0) -> None:
    """Its program runs since 0; take these steps, each at its time."""

    async def work() -> None:
        node.starts()
        for at, step in steps:
            await asyncio.sleep(at - asyncio.get_running_loop().time())
            step()
        await asyncio.sleep(until - asyncio.get_running_loop().time())
        for task in node.begun:
            task.cancel()

    virtually(work())


def after_start(*seconds: float, begun: float = 0.0) -> list[float]:
    return [round(begun + TURN + each, 3) for each in seconds]


# --- when it is read ------------------------------------------------------------------------------


def test_a_machine_is_read_at_the_nodes_turn_after_the_start_and_then_now_and_then() -> None:
    machine = Machine()
    goes(node_of(machine))
    assert machine.read_at == after_start(0, 30, 60, 90)


def test_the_more_nodes_there_are_the_less_often_each_is_read() -> None:
    machine = Machine()
    node = node_of(machine)
    goes(node, (0.0, lambda: node.starts(2, of_nodes(1_800))))
    assert 1_800 / TOPIC.rate == 2 * TOPIC.interval
    assert machine.read_at == after_start(0, 60)


def test_a_slow_machine_is_read_as_often_and_one_that_hangs_once() -> None:
    machine = Machine()
    machine.seconds = 7.0
    goes(node_of(machine))
    assert machine.read_at == after_start(0, 30, 60, 90)
    machine = Machine()
    machine.seconds = 47.0
    goes(node_of(machine))
    assert machine.read_at == after_start(0, 47, 94)


def test_no_machine_is_read_that_nobody_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.agent.port.observes", lambda settings: False)
    machine = Machine()
    goes(node_of(machine))
    assert machine.read_at == []


# --- when it is published -------------------------------------------------------------------------


def loads(node: Node) -> list[float]:
    return [message.load for _, _, message in node.received]  # type: ignore[attr-defined]


def test_the_newest_is_published_where_the_registry_was_away() -> None:
    node = node_of(Machine())
    node.free = False
    goes(node, (75.0, node.leaves_free), (80.0, node.leaves_free))
    assert loads(node) == [3.0]


@pytest.mark.parametrize("error", [Unavailable("away"), TooLarge("too much")])
def test_what_the_registry_does_not_take_is_left(error: RdzvError) -> None:
    node = node_of(Machine())
    node.error = error
    goes(node, (20.0, lambda: setattr(node, "error", None)))
    assert loads(node) == [2.0, 3.0, 4.0]
    assert set(node.fed) == {inputs.Publish()}


def test_what_nobody_expects_of_the_registry_is_said_once_and_samples_go_on() -> None:
    node = node_of(Machine())
    node.error = ValueError("not this way")
    goes(node, (70.0, lambda: setattr(node, "error", None)))
    assert loads(node) == [4.0]
    broken = [said for said in node.fed if said != inputs.Publish()]
    assert [said.what for said in broken if isinstance(said, inputs.PartBroken)] == [
        "reading this machine"
    ]


def test_the_end_of_the_program_does_not_wait_for_it() -> None:
    """What waits is gone, and what is on its way is broken off."""
    node = node_of(Machine())
    node.free = False
    goes(node, (5.0, node.gone), (6.0, node.leaves_free))
    assert node.received == []
    turns = list[asyncio.Task[None]]()
    node = node_of(Machine())
    node.free, node.seconds = False, 50.0
    goes(node, (5.0, lambda: turns.append(node.leaves_free())), (6.0, node.gone), until=7.0)
    assert [turn.done() for turn in turns] == [True]
    assert node.received == []


def test_a_program_that_is_gone_before_the_turn_of_its_node_costs_no_reading() -> None:
    machine = Machine()
    node = node_of(machine)
    goes(node, (TURN / 2, node.gone))
    assert machine.read_at == []
