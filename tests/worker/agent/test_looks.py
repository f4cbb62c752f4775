"""Looks at the machine of a program: when, at what, and that they cost a program nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from rendezvous.cause.clues import Line
from rendezvous.wire.evidence import Fact
from tests.support.virtual_time import forever
from tests.worker.agent.drive import at_once, virtually
from worker.agent import AgentEnvironment
from worker.agent.looks import Looks
from worker.evidence.look import Asked, Counters
from worker.program.ending import Ending
from worker.program.family import Child, Family, Ranks
from worker.program.rank_words import RankWords

FULL = Fact(kind="space", path="/data")
FAILED = Family(None, (Child(71, 1.0, 1.0, Ranks(9, 1), 5.0, 1),))
GOES_ON = Family(None, (Child(71, 1.0, 1.0, Ranks(9, 1)),))


def looks(look_after: Callable[..., Any], **changes: Any) -> Looks:
    values = {
        "in_thread": at_once,
        "look_before": lambda pid: Counters(),
        "look_after": look_after,
        "folders": lambda environ: ("/work",),
    }
    found = Looks(AgentEnvironment(**(values | changes)), 8)
    found.begin(70)
    return found


def test_it_looks_once_at_what_the_failed_rank_has_named() -> None:
    asked: list[Asked] = []

    def look(before: Counters, what: Asked) -> list[Fact]:
        asked.append(what)
        return [FULL]

    async def run() -> None:
        one = looks(look)
        words = RankWords()
        words.take(1, b"OSError: [Errno 28] No space left on device: '/data/x'\n", "stderr")
        one.failed(GOES_ON, None, words)
        one.failed(GOES_ON, (0, 5.0), words)
        one.failed(FAILED, None, words)
        one.failed(FAILED, (1, 6.0), words)
        await one.finish(FAILED, Ending(1, 6.0), words)
        assert one.facts == (FULL,)
        (line,) = one.lines(words)
        assert (line.text[:7], line.rank, line.stream) == ("OSError", 9, "stderr")

    virtually(run())
    assert asked == [Asked({9: 71}, ("/work",), ("/data/x",))]


def test_a_program_that_is_over_before_anything_was_seen_is_looked_at_then() -> None:
    async def run(code: int, told: bool) -> tuple[Fact, ...]:
        one = looks(lambda before, what: [FULL])
        await one.finish(Family(), Ending(code, 6.0, was_told=told), None)
        return one.facts

    assert virtually(run(1, False)) == (FULL,)
    assert virtually(run(0, False)) == ()
    assert virtually(run(143, True)) == ()


@pytest.mark.parametrize("door", ["look_before", "look_after"])
def test_a_look_that_breaks_is_none(door: str) -> None:
    def breaks(*_: Any) -> Any:
        raise RuntimeError("so")

    async def run() -> tuple[Fact, ...]:
        values = {"look_after": lambda before, what: [FULL]} | {door: breaks}
        one = looks(**values)
        await one.finish(FAILED, Ending(1, 6.0), None)
        return one.facts

    assert virtually(run()) == ((FULL,) if door == "look_before" else ())


def test_a_look_that_hangs_is_waited_for_for_half_a_second() -> None:
    async def hangs(call: Callable[..., Any], *args: Any) -> Any:
        return await forever() if len(args) == 2 else call(*args)

    async def run() -> float:
        one = looks(lambda before, what: [FULL], in_thread=hangs)
        await one.finish(FAILED, Ending(1, 6.0), None)
        return asyncio.get_running_loop().time()

    began = virtually(_now())
    assert virtually(run()) - began == pytest.approx(0.5)
    assert looks_of_nobody() == ()


async def _now() -> float:
    return asyncio.get_running_loop().time()


def looks_of_nobody() -> tuple[Line, ...]:
    return Looks(AgentEnvironment(), 0).lines(None)
