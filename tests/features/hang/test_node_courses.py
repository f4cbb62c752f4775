"""What a node sees and answers of its ranks, and when it is silent, is as in `node_courses.txt`.

See `make reference`.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from features.hang import LOOKS
from features.hang.node import Reads, _answer, look, sample
from features.hang.quiet import Quiet, Sample, sample_seconds, seen
from features.hang.ranks.held_back import held_back
from features.hang.ranks.held_back_reader import read_groups
from features.hang.wire import MAX_HELD_BACK
from rendezvous.wire.question import Question
from tests.support.courses import lines_in, text_of
from tests.worker.agent.drive import virtually
from tests.worker.agent.test_doors_courses import JOIN, Doors, Registry
from tests.worker.test_tree_courses import go_on_in_version_2, of_version_1, of_version_2, tree
from tests.worker.told import Told
from worker.agent.actions import AnswerQuestion
from worker.agent.answering import Answers
from worker.agent.port import RunningRanks

KNOWN = Path(__file__).with_name("node_courses.txt")
RANKS = RunningRanks("/look", {0: 71, 1: None}, 14, 70, 4_096, None)


def how_long_it_is_silent() -> Told:
    """Samples that grow, stand still or fail, before the first steps and later."""
    told, draw = Told(), random.Random(11)
    for least, judged in ((120.0, 1_800.0), (40.0, 90.0)):
        known = Quiet(Sample(), 100.0, 100.0, least=least, judged=judged)
        now, calls, printed, step, work = 100.0, [0, 0], 0, None, [0.0, 0.0, 0.0]
        for number in range(70):
            now += draw.choice((10.0, 10.0, 35.0))
            kind = draw.choice(
                ("still", "still", "works", "reads", "calls", "prints", "steps", "out")
            )
            calls = [n + draw.choice((0, 4)) * (kind == "calls") for n in calls]
            printed += 7 * (kind == "prints")
            step = (step or 0) + 1 if kind == "steps" and number > 20 else step
            work = [w + 9.0 * (kind == "works") for w in work]
            shown = [(n, n - draw.choice((0, 1))) for n in calls]
            if kind == "out":
                shown = draw.choice(([], [(-1, -1), shown[1]]))
            done = [(w, 10_000_000 * (kind == "reads") + number) for w in work]
            one = Sample(tuple(shown), printed, step, tuple(done[: draw.choice((3, 3, 2))]))
            known = seen(known, one, now)
            silence = known.silence(now)
            known = replace(known, told=silence)
            told.of(
                f"{now} {kind} {shown} {step}",
                f"{known.moved_at} {known.longest} {known.early} {known.steps} {known.limit} "
                f"{known.is_on_its_way} {silence!r} {known.silence(now + 1_700)!r}",
                known.last.calls,
            )
    worked = ((5.0, 100), (5.0, 100))
    before = Quiet(Sample(((0, 0),), 7, None, worked), 100.0, 200.0)
    for cpu, read in ((0.5, 0), (0.51, 0), (0.0, 260_000), (0.0, 260_001), (0.0, -260_001)):
        for number in (0, 1):
            grown = [*worked]
            grown[number] = (5.0 + cpu, 100 + read)
            for called in ((0, 0), (3, 2), (3, 3)):
                known = replace(before, last=replace(before.last, calls=(called,)))
                moved = seen(known, replace(known.last, work=tuple(grown)), 210.0).moved_at
                told.of(f"{cpu} {read} of {number} in {called}", moved)
    return told.of("seconds", *(sample_seconds(n) for n in (None, 1.0, 20.0, 90.0)))


def how_looks_are_answered() -> Told:
    """Where ranks are; at whose turn, and why there is nothing."""
    doors = Doors()
    found = SimpleNamespace(unstarted=(1,), held_back=(), _asdict=lambda: {"left_out": 3})

    async def work() -> None:
        for what, of, changes, comes in (
            ("ranks", RANKS, {}, found),
            ("no program", None, {"program": None, "why": "it is over"}, found),
            ("none yet", None, {}, found),
            ("it breaks", RANKS, {"node": 2_500}, ValueError("x")),
        ):
            environment = doors.environment()
            port: Any = SimpleNamespace(epoch=4, in_thread=environment.in_thread)
            make = partial(_answer, port, Reads(look=doors.door("look", comes)))
            known: Any = SimpleNamespace(answers={LOOKS.name: (LOOKS, make)})
            registry: Any = Registry(doors)
            asked: Any = {"question": Question(number=5, topic=LOOKS.name), "program": 7}
            asked |= {"epoch": 4, "node": 0, "nodes": 1}
            doors.told.lines.append(f"* {what} {asyncio.get_running_loop().time():.3f}")
            answers = Answers(environment, registry, JOIN, known)
            await answers.answer(AnswerQuestion(**asked | changes), of)

    virtually(work())
    return doors.told


def how_ranks_are_read() -> Told:
    """What is imported where it is wanted, with which values, and in which order."""
    doors = Doors()
    groups: Iterator[str] = iter(())
    some = {2: SimpleNamespace(called=9, ended=8), 0: SimpleNamespace(called=5, ended=4)}
    whole = SimpleNamespace(_replace=lambda **news: news)
    with pytest.MonkeyPatch.context() as patch:
        for name, found in {
            "held_back_reader.read_groups": lambda known: next(groups),
            "held_back.held_back": [*range(MAX_HELD_BACK + 3)],
            "collect.collect": whole,
            "collect.sample": some,
            "collect.work": [(1.5, 7)],
        }.items():
            door = doors.door(name.rpartition(".")[2], found)
            patch.setattr(f"features.hang.ranks.{name}", door)
        for folder in ("/look", ""):
            ranks = RANKS._replace(folder=folder, pids={0: 71, 1: None, 2: 73})
            for launcher in (70, None)[: 1 + bool(folder)]:
                groups = iter(("before", "now"))
                found_in: Any = look(ranks._replace(launcher=launcher))
                doors.told.of(f"where {folder} {launcher}", len(found_in["held_back"]))
            doors.told.of("sampled", *sample(ranks))
    return doors.told


def what_groups_hold_back() -> Told:
    """Of version 2, before and after; and a frozen one of version 1."""
    told = Told()
    with tree() as at:
        of_version_2(at)
        groups = read_groups([70, 99, 71], at.root)
        told.of("held back", *groups.items(), again=held_back(groups, groups))
        go_on_in_version_2(at)
        told.of("held back after", *held_back(groups, read_groups([70, 71], at.root)))
        told.lines = [line.replace(str(at.root), "ROOT") for line in told.lines]
    with tree() as at:
        of_version_1(at)
        text = (at.root / "proc/self/cgroup").read_text()
        at.put({"70/cgroup": text}, "proc")
        groups = read_groups([70], at.root)
        told.of("of version 1", *groups.items(), words=held_back(groups, groups))
        told.lines = [line.replace(str(at.root), "ROOT") for line in told.lines]
    return told


COURSES: dict[str, Callable[[], Told]] = {
    one.__name__: one
    for one in (
        *(how_long_it_is_silent, how_looks_are_answered, how_ranks_are_read),
        what_groups_hold_back,
    )
}


@pytest.mark.parametrize("name", COURSES)
def test_what_a_node_has_of_its_ranks(name: str) -> None:
    assert COURSES[name]().lines == lines_in(KNOWN, name)


if __name__ == "__main__":  # make reference
    sys.exit(KNOWN.write_text(text_of(COURSES)) == 0)
