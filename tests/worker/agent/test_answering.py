"""What a node answers to a look, by whose clock, and when it answers nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from rendezvous.wire.errors import Unavailable
from rendezvous.wire.look import LookReport, RankLook
from rendezvous.wire.pace import ClockReply
from rendezvous.wire.reports import ReportReply
from tests.worker.agent.drive import at_once, virtually
from worker.agent import AgentEnvironment
from worker.agent.actions import AnswerLook
from worker.agent.answering import Answering, RanksToSee
from worker.look.collect import Seen
from worker.look.parsing.arrivals import Called, RankCalls

LOOK = AnswerLook(7, 2, 1, 0.004)
PACE = replace(LOOK, pace_before=1_000.0)
RANKS = RanksToSee("/run/look", {0: 70}, 4)
AHEAD = 1_000.0
"""Of this machine's clock is the registry's."""


class Registry:
    """A registry that is some milliseconds away, there and back, at each question."""

    def __init__(self, *milliseconds: tuple[int, int]) -> None:
        self._ways = list(milliseconds)
        self.said: list[dict[str, Any]] = []
        self.at: list[float] = []

    async def ask(self, model: Any, method: str, path: str, said: Any = None) -> Any:
        if method == "GET":
            assert path == "/v1/runs/llama/nodes/1/clock"
            there, back = self._ways.pop(0) if self._ways else (5, 5)
            await asyncio.sleep(there / 1000)
            now = wall() + AHEAD
            await asyncio.sleep(back / 1000)
            return ClockReply(now=now)
        assert path == "/v1/runs/llama/nodes/1/looks"
        self.said.append(said)
        self.at.append(asyncio.get_running_loop().time())
        return ReportReply(seq=1)


def wall() -> float:
    """The clock of this machine."""
    return asyncio.get_running_loop().time()


def where_ranks_are(*asked: object) -> Seen:
    assert asked == tuple(RANKS)
    return Seen([RankLook(rank=4)], [], 1)


def calls(*asked: object) -> dict[int, RankCalls]:
    assert asked == (RANKS.folder, RANKS.pids, RANKS.first_rank)
    return {4: RankCalls({("0", "4"): [Called(9, "a", 500_000_000)]}, set())}


def answered(
    asked: AnswerLook,
    ranks: RanksToSee | None = RANKS,
    registry: Registry | None = None,
    **doors: Callable[..., Any],
) -> list[LookReport]:
    """What the node has answered."""
    registry = registry or Registry()

    async def work() -> None:
        values: dict[str, Any] = {
            "in_thread": at_once,
            "wall": wall,
            "where_ranks_are": where_ranks_are,
            "calls": calls,
        }
        join: Any = SimpleNamespace(run="llama", slot=1)
        environment = AgentEnvironment(**(values | doors))
        client: Any = registry
        await Answering(environment, client, join).answer(asked, ranks)

    virtually(work())
    return [LookReport.model_validate(said) for said in registry.said]


def test_it_says_where_its_ranks_are_when_it_is_its_turn() -> None:
    registry = Registry()
    [report] = answered(LOOK, registry=registry)
    assert (report.look, report.epoch, report.left_out) == (7, 2, 1)
    assert ([one.rank for one in report.ranks], report.pace) == ([4], None)
    registry = Registry()
    answered(replace(LOOK, delay=3.0), registry=registry)
    assert registry.at == [3.0]


def test_why_there_is_nothing_to_see() -> None:
    [report] = answered(LOOK, None)
    assert report.words == "its program has not been started yet"
    [report] = answered(replace(LOOK, program=None, why="its program has ended"), None)
    assert report.words == "its program has ended"

    def breaks(*_: object) -> None:
        raise RuntimeError

    [report] = answered(LOOK, where_ranks_are=breaks)
    assert report.words == "looking at its processes failed: RuntimeError"


def test_when_they_called_is_told_by_the_registrys_clock() -> None:
    """The quickest answer says most of it, however uneven the ways of the others are."""
    ways = ((80, 5), (2, 2), (5, 70), (9, 1), (30, 30))
    [report] = answered(replace(PACE, pace_before=1e6), registry=Registry(*ways))
    assert report.pace is not None
    assert report.ranks == []
    assert report.pace.clock_error == pytest.approx(0.002)
    [arrivals] = report.pace.arrivals
    assert arrivals.began == pytest.approx((AHEAD + 0.5) * 1e6, abs=2_000)
    assert arrivals.ranks == [4]


def test_later_calls_are_not_told() -> None:
    [report] = answered(replace(PACE, pace_before=AHEAD + 0.4))
    assert report.pace is not None
    assert report.pace.arrivals == []


@pytest.mark.parametrize("ranks", [None, RanksToSee("", {0: 70}, 4)])
def test_where_nobody_is_to_look_nothing_is_told(ranks: RanksToSee | None) -> None:
    def looks(*_: object) -> None:
        raise AssertionError

    [report] = answered(PACE, ranks, calls=looks, where_ranks_are=looks)
    assert report.pace is None


def test_a_registry_that_does_not_answer_is_told_nothing() -> None:
    class Away(Registry):
        async def ask(self, model: Any, method: str, path: str, said: Any = None) -> Any:
            raise Unavailable("nobody listens")

    assert answered(PACE, registry=Away()) == []
