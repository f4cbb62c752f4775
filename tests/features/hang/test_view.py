"""`rdzv look`: what a person is shown of a look, and how it is asked for."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from features.hang import LOOKS, view
from features.hang.rules import Verdict
from features.hang.view import SHOWN_FRAMES, lines_of, one_look
from features.hang.wire import (
    Frame,
    LookReport,
    NodeLook,
    ProcessLook,
    RankLook,
    RunLook,
    Stack,
)
from rendezvous.channel import Asked
from rendezvous.talk.client import RegistryClient
from rendezvous.wire.errors import NotFound, TooManyRequests
from rendezvous.wire.question import QuestionCall
from tests.support.virtual_time import run_virtually

LOADS = Stack(frames=[Frame(function="load", file="train.py", line=3)])
WAITS = Stack(frames=[Frame(function="all_reduce", file="c10d.py", line=9)])
SAVES = Stack(frames=[Frame(function="save", file="other.py", line=5)])
VERDICT = Verdict("behind", "rank 4 is behind", next_step="see what it does")


def rank(number: int, stack: int, **more: Any) -> RankLook:
    return RankLook(rank=number, pid=100 + number, state="S", stack=stack, **more)


def found() -> RunLook:
    """Of three nodes whose slots are not their ranks; one does not answer, and one cannot see."""
    child = ProcessLook(pid=77, state="D", name="loader", stack=2)
    stacks = [WAITS, LOADS, SAVES]
    ranks = [rank(3, 0), rank(4, 1, cpu=0.5, threads=[2], children=[child])]
    seen = LookReport(number=7, epoch=2, ranks=ranks, stacks=stacks)
    none = LookReport(number=7, epoch=2, ranks=[rank(0, 0)], stacks=[WAITS], words="half of it")
    nodes = [
        NodeLook(slot=0, node=0, hostname="gpu-9", report=none),
        NodeLook(slot=1, node=2, hostname="gpu-4"),
        NodeLook(slot=2, node=1, hostname="gpu-7", report=seen),
    ]
    return RunLook(number=7, epoch=2, over=True, nodes=nodes)


def test_each_place_is_shown_with_its_ranks_and_nodes_by_their_ranks() -> None:
    assert [line for line in lines_of(found(), VERDICT, everything=False) if line] == [
        "rank 4 is behind",
        "try: see what it does",
        "rank 4 (node 1, gpu-7), state S, 500.0 ms of CPU during the look:",
        "    load (train.py:3)",
        "2 ranks, 0, 3:",
        "    all_reduce (c10d.py:9)",
        "process 77 (loader), started by rank 4 (node 1, gpu-7), state D:",
        "    save (other.py:5)",
        "node 0 (gpu-9): half of it",
        "node 2 (gpu-4, slot 1): it has not answered",
    ]


def test_a_stack_that_is_not_known_or_not_whole_says_so() -> None:
    """Whether it is cut here, or was at its node."""
    frames = [Frame(function=f"f{number}", file="x.py", line=1) for number in range(30)]
    stacks = [Stack(frames=frames[:2], cut=True), Stack(frames=frames, cut=True)]
    ranks = [RankLook(rank=0, pid=7, state="S"), rank(1, 0), rank(2, 1)]
    report = LookReport(number=7, epoch=2, ranks=ranks, stacks=stacks)
    look = RunLook(number=7, epoch=2, over=True, nodes=[NodeLook(slot=0, node=0, report=report)])
    shown = [line for line in lines_of(look, VERDICT, everything=False) if line[:4] == "    "]
    assert "    its stack is not known" in shown
    assert shown.count("    and older calls") == 1
    assert shown.count(f"    and {30 - SHOWN_FRAMES} older calls") == 1


def test_all_of_it_has_the_other_threads_of_a_place() -> None:
    lines = [*lines_of(found(), VERDICT, everything=True)]
    at = lines.index("  another thread of rank 4:")
    assert lines[at + 1] == "    save (other.py:5)"


class Registry:
    """One that refuses a look for a while, and whose nodes take their time to answer it."""

    def __init__(self, refuses: int = 0, answers: int = 2, error: Exception | None = None) -> None:
        self.refuses, self.answers, self.error = refuses, answers, error
        self.begun: list[float] = []
        self.waited: list[int] = []

    async def begin(self, client: Any, topic: Asked, run: str) -> QuestionCall:
        assert topic is LOOKS
        self.begun.append(asyncio.get_running_loop().time())
        if self.error is not None:
            raise self.error
        if len(self.begun) <= self.refuses:
            raise TooManyRequests("there was a look just before")
        return QuestionCall(number=7)

    async def so_far(
        self, client: Any, topic: Asked, run: str, number: int, seconds: float
    ) -> RunLook:
        assert topic is LOOKS
        self.waited.append(number)
        return RunLook(number=number, over=len(self.waited) == self.answers)


def asked(monkeypatch: pytest.MonkeyPatch, registry: Registry) -> RunLook:
    monkeypatch.setattr(view, "ask_nodes", registry.begin)
    monkeypatch.setattr(view, "answers", registry.so_far)
    made: list[RunLook] = []

    async def work() -> None:
        made.append(await one_look(cast(RegistryClient, None), "r"))

    run_virtually(work())
    return made[0]


def test_who_comes_just_after_a_look_asks_again_until_there_may_be_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry = Registry(refuses=4, answers=3)
    look = asked(monkeypatch, registry)
    assert (look.number, look.over) == (7, True)
    assert registry.begun == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert registry.waited == [7, 7, 7]


def test_nobody_asks_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TooManyRequests):
        asked(monkeypatch, Registry(refuses=1_000))
    registry = Registry(answers=1_000)
    assert not asked(monkeypatch, registry).over
    assert len(registry.waited) == view._MOST_TRIES
    with pytest.raises(NotFound, match="no such run"):
        asked(monkeypatch, Registry(error=NotFound("no such run")))


def test_of_very_many_places_the_first_ones_are_shown_and_how_many_are_left() -> None:
    stacks = [Stack(frames=[Frame(function=f"f{n}", file="t.py", line=7)] * 9) for n in range(23)]
    ranks = [RankLook(rank=n, pid=n, state="S", stack=n) for n in range(23)]
    node = NodeLook(
        slot=4,
        node=1,
        hostname="h",
        report=LookReport(number=9, epoch=2, ranks=ranks, stacks=stacks),
    )
    found = RunLook(number=9, epoch=2, over=True, nodes=[node])
    verdict = Verdict("unclear", "they are everywhere")
    lines = [*lines_of(found, verdict, everything=False)]
    assert sum(line.startswith("rank ") for line in lines) == 20
    assert lines[-1] == "and 3 more places, shown by --all"
    assert lines.count("    and 1 older calls") == 20
    whole = [*lines_of(found, verdict, everything=True)]
    assert sum(line.startswith("rank ") for line in whole) == 23
    assert sum(line.startswith("    f") for line in whole) == 9 * 23
    assert "more places" not in whole[-1]
