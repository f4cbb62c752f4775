"""How many commands run side by side while a scheduler drops some of them."""

from __future__ import annotations

import asyncio

import pytest

from launcher.schedulers.gate import Gate, pause_seconds


class Commands:
    """Commands that wait in a gate; those inside end when they are told."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.inside: list[int] = []
        self.ends: dict[int, asyncio.Event] = {}
        self.tasks: dict[int, asyncio.Task[None]] = {}

    async def start(self, *numbers: int) -> None:
        for number in numbers:
            self.ends[number] = asyncio.Event()
            self.tasks[number] = asyncio.create_task(self._run(number))
        await asyncio.sleep(0)

    async def _run(self, number: int) -> None:
        async with self.gate.place():
            self.inside.append(number)
            await self.ends[number].wait()
            self.inside.remove(number)

    async def end(self, *numbers: int) -> None:
        for number in numbers:
            self.ends[number].set()
            await self.tasks[number]
        await asyncio.sleep(0)


async def test_there_are_so_many_places_and_the_first_gets_the_next_one() -> None:
    commands = Commands(Gate(2))
    await commands.start(1, 2, 3, 4, 5)
    assert commands.inside == [1, 2]
    await commands.end(2)
    assert commands.inside == [1, 3]
    commands.tasks[4].cancel()
    await asyncio.sleep(0)
    await commands.end(1)
    assert commands.inside == [3, 5]
    await commands.end(3, 5)


async def test_a_place_that_comes_to_one_that_leaves_goes_to_the_next() -> None:
    commands = Commands(Gate(1))
    await commands.start(1, 2, 3)
    commands.ends[1].set()
    await asyncio.sleep(0)  # from now on it is the turn of 2, which has not heard
    commands.tasks[2].cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert commands.inside == [3]
    await commands.end(3)


async def test_each_one_that_is_dropped_halves_the_places_and_those_that_pass_widen_them() -> None:
    gate = Gate(8)
    widths = []
    for _ in range(4):
        gate.dropped()
        widths.append(gate.width)
    assert widths == [4, 2, 1, 1]
    gate.passed()
    gate.dropped()  # what came through before counts no more
    commands = Commands(gate)
    await commands.start(1, 2, 3)
    assert commands.inside == [1]
    for _ in range(3):
        gate.passed()
    assert gate.width == 1
    gate.passed()
    await asyncio.sleep(0)
    assert (gate.width, commands.inside) == (2, [1, 2])
    await commands.end(1, 2, 3)
    for _ in range(1000):
        gate.passed()
    assert gate.width == 8


async def test_where_there_was_no_limit_half_of_those_that_ran_is_the_first() -> None:
    commands = Commands(gate := Gate(None))
    await commands.start(*range(7))
    assert len(commands.inside) == 7
    gate.passed()
    assert gate.width is None
    gate.dropped()
    assert gate.width == 4
    await commands.start(7)
    await commands.end(*range(4))
    assert commands.inside == [4, 5, 6, 7]
    await commands.end(4, 5, 6, 7)


@pytest.mark.parametrize(
    ("tries", "jitter", "seconds"),
    [(1, 1.0, 0.5), (2, 1.0, 1.0), (3, 0.0, 1.0), (4, 1.0, 4.0), (5, 1.0, 5.0), (8, 0.0, 2.5)],
)
def test_pauses_grow_to_a_limit_and_are_not_the_same(
    tries: int, jitter: float, seconds: float
) -> None:
    assert pause_seconds(tries, jitter) == seconds
