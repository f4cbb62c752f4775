"""How a node answers looks, and when it publishes that nothing moves: on a virtual clock."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from features.hang import LOOKS, QUIET
from features.hang.node import Reads, Sampled, look, run, sample
from features.hang.quiet import SAMPLE_SECONDS
from features.hang.ranks.fitting import Seen
from features.hang.wire import MAX_HELD_BACK, LookReport, QuietReport, RankLook
from rendezvous.wire.errors import RdzvError, TooLarge, Unavailable
from rendezvous.wire.question import Question
from tests.worker.agent.drive import at_once, table, virtually
from tests.worker.agent.ports import Node
from worker.agent import inputs
from worker.agent.port import RunningRanks

RANKS = RunningRanks("/run/look", {0: 101, 1: 102}, 8, 100, 4_096, 7)
QUESTION = Question(number=5, topic=LOOKS.name)


class Program:
    """Two ranks that have called so many collectives, which have ended, on one node."""

    def __init__(self, called: int = 20, **settings: Any) -> None:
        self.called, self.work = called, ((1.5, 10),) * 3
        self.error: Exception | None = None
        self.seconds = 0.0
        self.sampled_at: list[float] = []
        part = partial(run, reads=Reads(self.look, self.sample))
        self.node = Node(part, in_thread=self.in_thread, **settings)
        self.node.ranks = RANKS

    async def in_thread(self, work: Callable[..., Any], ranks: RunningRanks) -> Any:
        await asyncio.sleep(self.seconds)
        return await at_once(work, ranks)

    def look(self, ranks: RunningRanks) -> Seen:
        assert ranks is self.node.ranks
        if self.error is not None:
            raise self.error
        return Seen([RankLook(rank=8)], [], 3, unstarted=(9,), held_back=["its group"])

    def sample(self, ranks: RunningRanks) -> Sampled:
        self.sampled_at.append(now())
        if self.error is not None:
            raise self.error
        return [(self.called, self.called)] * 2, self.work

    # --- what happens -------------------------------------------------------------------------

    def calls(self) -> None:
        self.called += 1

    def has(self, ranks: RunningRanks | None) -> None:
        """These are its ranks now."""
        self.node.ranks = ranks

    def registry_says(self, error: Exception | None) -> None:
        self.node.error = error

    def goes(self, *steps: tuple[float, Callable[[], object]], until: float = 200.0) -> list[Any]:
        """It runs since 0; take these steps, each at its time. Returns what is received: when, for
        how long nothing moves, and whether early."""

        async def work() -> None:
            self.node.starts()
            for at, step in [*steps, (until, lambda: None)]:
                await asyncio.sleep(at - now())
                step()
            for task in self.node.begun:
                task.cancel()

        virtually(work())
        assert {topic for _, topic, _ in self.node.received} <= {QUIET.name}
        return [
            (at, said.seconds, said.early)
            for at, _, said in self.node.received
            if isinstance(said, QuietReport)
        ]

    @property
    def broken(self) -> list[inputs.Input]:
        return [said for said in self.node.fed if said != inputs.Publish()]


def now() -> float:
    return round(asyncio.get_running_loop().time(), 3)


# --- when it is sampled ---------------------------------------------------------------------------


def test_ranks_are_sampled_every_few_seconds_and_more_often_where_an_end_is_wanted_soon() -> None:
    program = Program()
    program.goes(until=35.0)
    assert program.sampled_at == [SAMPLE_SECONDS * n for n in (1, 2, 3)]
    program = Program(stall_timeout=40.0)
    program.goes(until=35.0)
    assert program.sampled_at == [8.0 * n for n in (1, 2, 3, 4)]


def test_ranks_are_sampled_also_where_nothing_runs_yet_at_the_first_sample() -> None:
    """A torchrun may take its time to start: a hang after that is to be seen as well."""
    program = Program()
    program.has(None)
    program.goes((25.0, lambda: program.has(RANKS)), until=55.0)
    assert program.sampled_at == [30.0, 40.0, 50.0]


def test_nobody_is_sampled_where_that_cannot_be_or_nobody_wants_it() -> None:
    program = Program()
    program.has(RANKS._replace(folder=""))
    assert program.goes(until=500.0) == []
    assert program.sampled_at == []
    program = Program(stall="off")
    assert program.goes(until=500.0) == []
    assert (program.sampled_at, program.node.fed) == ([], [])


# --- what is published ----------------------------------------------------------------------------


def test_a_silence_is_published_anew_every_30_s_and_its_end_once() -> None:
    program = Program()
    assert program.goes((25.0, program.calls), (215.0, program.calls), until=300.0) == [
        (150.0, 120.0, False),
        (180.0, 150.0, False),
        (210.0, 180.0, False),
        (220.0, None, False),
    ]
    assert {said.epoch for _, _, said in program.node.received} == {table().epoch}  # type: ignore[attr-defined]


@pytest.mark.parametrize("change", [RANKS._replace(printed=4_097), RANKS._replace(step=8)])
def test_bytes_and_steps_are_movement_as_collectives_are(change: RunningRanks) -> None:
    program = Program()
    found = program.goes((25.0, lambda: program.has(change)), until=155.0)
    assert found == [(150.0, 120.0, False)]


def test_work_at_the_start_is_movement() -> None:
    program = Program(called=0)

    def works() -> None:
        program.work = ((3.0, 10),) * 3

    assert program.goes((65.0, works), until=195.0) == [(190.0, 120.0, True)]


def test_who_gives_a_short_time_is_told_sooner() -> None:
    program = Program(stall_timeout=15.0)
    assert program.goes(until=20.0) == [(18.0, 15.0, False)]


@pytest.mark.parametrize("error", [Unavailable("away"), TooLarge("too much")])
def test_a_change_is_sent_until_it_is_taken(error: RdzvError) -> None:
    program = Program()
    program.registry_says(error)
    steps = (
        *((155.0, lambda: program.registry_says(None)), (165.0, program.calls)),
        *(
            (165.0, lambda: program.registry_says(error)),
            (185.0, lambda: program.registry_says(None)),
        ),
    )
    found = program.goes(*steps, until=250.0)
    assert found == [(160.0, 150.0, False), (190.0, None, False)]
    sent = program.node.fed.count(inputs.Publish())
    assert sent == len([130, 140, 150, 160]) + len([170, 180, 190])
    assert program.broken == []


def test_of_two_reports_the_older_one_does_not_come_last() -> None:
    """The registry may be away meanwhile, and the watch hold the connection."""
    program = Program()
    program.node.free = False
    steps = (135.0, program.calls), (145.0, program.node.leaves_free)
    assert program.goes(*steps, (150.0, program.node.leaves_free)) == [(145.0, None, False)]
    program = Program()
    program.node.seconds = 25.0
    assert program.goes((135.0, program.calls), until=250.0) == [(165.0, None, False)]


def test_what_waits_for_long_is_replaced_by_how_it_is_now() -> None:
    program = Program()
    program.node.free = False
    assert program.goes((195.0, program.node.leaves_free)) == [(195.0, 180.0, False)]


def test_what_nobody_expects_of_the_registry_is_said_once() -> None:
    program = Program()
    error = ValueError("not this way")
    program.registry_says(error)
    assert program.goes((155.0, lambda: program.registry_says(None))) == []
    assert program.broken == [inputs.PartBroken("sampling the ranks", error)]


# --- its programs ---------------------------------------------------------------------------------


def test_a_second_program_begins_anew() -> None:
    program = Program()

    def starts() -> None:
        program.called = 0
        program.node.starts(2, table(epoch=2))

    steps = (155.0, program.node.gone), (165.0, starts)
    assert program.goes(*steps, until=300.0) == [(130.0, 120.0, False), (295.0, 120.0, True)]
    assert [said.epoch for _, _, said in program.node.received] == [1, 2]  # type: ignore[attr-defined]
    assert 155.0 < min(at for at in program.sampled_at if at > 150.0) == 175.0


def test_nothing_is_published_of_a_program_that_is_gone() -> None:
    """What waits is taken back."""
    program = Program()
    program.node.free = False
    steps = (135.0, program.node.gone), (145.0, program.node.leaves_free)
    assert program.goes(*steps, until=500.0) == []
    assert max(program.sampled_at) == 130.0


def test_a_program_that_is_ending_moves_as_it_likes() -> None:
    """The core shows no ranks of one that is being stopped, or has told its end."""
    program = Program()
    assert program.goes((125.0, lambda: program.has(None)), until=900.0) == []
    assert max(program.sampled_at) == 120.0


def test_a_sample_that_comes_when_it_is_ending_says_nothing() -> None:
    program = Program()
    program.seconds = 2.0
    assert program.goes((131.0, lambda: program.has(None)), until=900.0) == []
    assert max(program.sampled_at) == 132.0


# --- looks ----------------------------------------------------------------------------------------


def looked(program: Program, ranks: RunningRanks = RANKS, **settings: Any) -> LookReport:
    """What it answers to a look, a second after its start."""

    async def work() -> LookReport:
        program.node.starts(given=table(epoch=3))
        await asyncio.sleep(1.0)
        topic, make = program.node.parts.answers[LOOKS.name]
        assert topic is LOOKS
        answer: Any = make(QUESTION, ranks)
        assert isinstance(answer, Coroutine)
        found = await answer
        for task in program.node.begun:
            task.cancel()
        return LookReport.model_validate(found.model_dump())

    return virtually(work())


@pytest.mark.parametrize("stall", ["warn", "off"])
def test_it_says_where_its_ranks_are(stall: str) -> None:
    program = Program(stall=stall)
    program.seconds = 0.75
    assert looked(program) == LookReport(
        number=5,
        epoch=3,
        seconds=0.75,
        ranks=[RankLook(rank=8)],
        left_out=3,
        unstarted=[9],
        held_back=["its group"],
    )
    assert program.broken == []


def test_why_there_is_nothing_to_see() -> None:
    program = Program()
    program.error = RuntimeError("of a part")
    words = "looking at its processes failed: RuntimeError"
    assert looked(program) == LookReport(number=5, epoch=3, words=words)
    assert program.broken == []


@pytest.mark.parametrize("folder", ["/run/look", ""])
def test_the_ranks_are_seen_with_their_launcher_and_what_has_held_them_back_meanwhile(
    monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    asked: list[Any] = []

    def read_groups(pids: list[int]) -> str:
        asked.append(pids)
        return f"groups {len(asked)}"

    def collect(*what: Any) -> Seen:
        asked.append(what)
        return Seen([RankLook(rank=8)], [], 3)

    def held_back(before: str, after: str) -> list[str]:
        assert (before, after) == ("groups 1", "groups 3")
        return [f"group {number}" for number in range(MAX_HELD_BACK + 1)]

    ranks_module = "features.hang.ranks"
    monkeypatch.setattr(f"{ranks_module}.held_back_reader.read_groups", read_groups)
    monkeypatch.setattr(f"{ranks_module}.collect.collect", collect)
    monkeypatch.setattr(f"{ranks_module}.held_back.held_back", held_back)
    pids = {0: 101, 1: None}
    found = look(RANKS._replace(folder=folder, pids=pids))
    assert asked == [[101, 100], (Path(folder or os.devnull), pids, 8, 100), [101, 100]]
    assert (found.ranks, found.left_out) == ([RankLook(rank=8)], 3)
    assert [*found.held_back] == [f"group {number}" for number in range(MAX_HELD_BACK)]


def test_what_the_ranks_have_called_and_done_is_sampled_in_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []
    calls = {
        1: SimpleNamespace(called=9, ended=8),
        0: SimpleNamespace(called=5, ended=4),
    }

    def sampled(*what: Any) -> dict[int, Any]:
        asked.append(what)
        return calls

    def work(*what: Any) -> list[tuple[float, int]]:
        asked.append(what)
        return [(1.5, 7)]

    collect = "features.hang.ranks.collect"
    monkeypatch.setattr(f"{collect}.sample", sampled)
    monkeypatch.setattr(f"{collect}.work", work)
    assert sample(RANKS) == ([(5, 4), (9, 8)], [(1.5, 7)])
    assert asked == [(Path("/run/look"), RANKS.pids), (Path("/run/look"), RANKS.pids, 100)]
