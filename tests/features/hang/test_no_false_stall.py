"""Two hours of silences that are none: no stall is told while the ranks are at work, and a real
hang after them is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from features.hang import QUIET
from features.hang.quiet import NEVER_SECONDS, SAMPLE_SECONDS, Quiet, Sample, seen
from features.hang.stall import Stall, silent_since, timeout_of
from features.hang.wire import QuietReport
from rendezvous.run.events import Noted
from tests.features.hang.driving import Judged, report_of, timeout
from tests.features.hang.runs import (
    FORWARD,
    INIT,
    LOAD,
    REDUCE,
    SAVE,
    Frames,
    One,
    group,
)
from tests.support.driver import Drive, make_spec
from tests.support.nightly import at_night

NODES, RANKS = 4, 2
STEP_SECONDS = 2.0
HOURS = 2 * 3_600.0
COMPILE: Frames = (("compile", "/usr/lib/python3.11/site-packages/torch/_inductor/a.py", 9),)
EVALUATE: Frames = (("evaluate", "/home/u/eval.py", 12),)


@dataclass
class Rank:
    """What one rank has done until now."""

    called: int = 0
    called_at: float = 0.0
    waits: bool = False
    cpu: float = 0.0
    bytes: int = 0
    place: Frames = FORWARD

    def as_seen(self, now: float) -> One:
        if not self.called:
            more: dict[str, object] = {"cpu_total": self.cpu, "bytes_total": self.bytes}
            where = INIT if self.waits else self.place
            return One((), where, "none", stage="imported", more={**more, "lives": now})
        ended = self.called - self.waits
        groups = (group(self.called, ended, age=now - self.called_at, usual=STEP_SECONDS),)
        more = {"cpu_total": self.cpu, "bytes_total": self.bytes}
        return One(groups, REDUCE if self.waits else self.place, more=more)


def going(ends: float | None = None) -> Judged:
    """A run of these nodes whose programs run."""
    drive = Drive(make_spec(NODES, **timeout(ends)))
    for slot in range(NODES):
        drive.join(slot, nproc_per_node=RANKS)
    return Judged(drive.verify().arm())


@dataclass
class Training:
    """A program on four nodes, its nodes' samples, and the registry that watches it."""

    run: Judged = field(default_factory=going)
    ranks: list[Rank] = field(default_factory=lambda: [Rank() for _ in range(NODES * RANKS)])
    told: list[Stall] = field(default_factory=list)
    quiet: dict[int, Quiet] = field(default_factory=dict)
    sent_at: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.drive = self.run.drive
        began, ends = self.drive.now, timeout_of(self.drive.run)
        judged = NEVER_SECONDS if ends is None else min(NEVER_SECONDS, ends)
        quiet = Quiet(Sample(), began, sampled_at=began, judged=judged)
        self.quiet = dict.fromkeys(range(NODES), quiet)

    def runs(self, phase: Iterator[float]) -> None:
        """Let a phase of the program pass; it yields how long each of its steps takes."""
        for seconds in phase:
            self.drive.wait(seconds)
            self._watch()

    def _watch(self) -> None:
        now = self.drive.now
        for slot in range(NODES):
            self._sample(slot, now)
        self._answer(now)
        for event in self.run.sweep():
            if isinstance(event, Noted) and event.words.startswith("nothing has moved"):
                self.told.append(Stall.model_validate(event.data))
        self._answer(now)

    def _sample(self, slot: int, now: float) -> None:
        own = self.ranks[slot * RANKS : (slot + 1) * RANKS]
        calls = tuple((rank.called, rank.called - rank.waits) for rank in own)
        work = tuple((rank.cpu, rank.bytes) for rank in own)
        known = seen(self.quiet[slot], Sample(calls, work=(*work, (0.0, 0))), now)
        told = known.silence(now)
        is_due = told and now - self.sent_at.get(slot, 0.0) >= QUIET.interval
        if told != known.told or is_due:
            silent = now - known.moved_at if told else None
            self.run.send(slot, QuietReport(epoch=1, seconds=silent, early=told == "early"))
            self.sent_at[slot] = now
        self.quiet[slot] = replace(known, told=told)

    def _answer(self, now: float) -> None:
        question = self.run.looks.open(now)
        for slot in range(NODES if question is not None else 0):
            assert question is not None
            own = self.ranks[slot * RANKS : (slot + 1) * RANKS]
            said = report_of(slot, [rank.as_seen(now) for rank in own], question.number)
            self.run.looks.take(slot, said, now)

    # --- what programs do -------------------------------------------------------------------------

    def trains(self, seconds: float) -> Iterator[float]:
        for _ in range(round(seconds / SAMPLE_SECONDS)):
            called = max(rank.called for rank in self.ranks)
            for rank in self.ranks:
                rank.called = called + round(SAMPLE_SECONDS / STEP_SECONDS)
                rank.called_at, rank.waits = self.drive.now, False
                rank.cpu, rank.place = rank.cpu + SAMPLE_SECONDS / 2, FORWARD
            yield SAMPLE_SECONDS

    def silent(self, seconds: float, place: Frames, *at_work: int, **does: Any) -> Iterator[float]:
        """These ranks are at a place; the others have called a collective, and wait."""
        for number, rank in enumerate(self.ranks):
            rank.waits = number not in at_work
            rank.called += rank.waits
            rank.called_at = self.drive.now if rank.waits else rank.called_at
            rank.place = place
        for _ in range(round(seconds / SAMPLE_SECONDS)):
            for number in at_work:
                self.ranks[number].cpu += does.get("cpu", 0.0)
                self.ranks[number].bytes += does.get("bytes", 0)
            yield SAMPLE_SECONDS

    def starts(self, seconds: float, place: Frames, *late: int, **does: Any) -> Iterator[float]:
        """These ranks are at a place before their first process group; the others wait in it."""
        for number, rank in enumerate(self.ranks):
            rank.waits, rank.place = number not in late, place
        for _ in range(round(seconds / SAMPLE_SECONDS)):
            for number in late:
                self.ranks[number].cpu += does.get("cpu", 0.0)
                self.ranks[number].bytes += does.get("bytes", 0)
            yield SAMPLE_SECONDS

    @property
    def alarms(self) -> list[Stall]:
        """What a person was warned of."""
        return [one for one in self.told if not one.at_work]


EVERYBODY = range(NODES * RANKS)


def silences(training: Training) -> None:
    """An hour of a training with a compiler, checkpoints, evaluations and slow data."""
    training.runs(training.silent(600.0, COMPILE, *EVERYBODY, cpu=9.0))
    training.runs(training.trains(300.0))
    training.runs(training.silent(1_200.0, SAVE, 0, bytes=50 << 20))
    training.runs(training.trains(300.0))
    training.runs(training.silent(900.0, EVALUATE, 3, cpu=8.0))
    training.runs(training.trains(60.0))
    training.runs(training.silent(240.0, SAVE, 0, cpu=0.3))


@pytest.mark.parametrize("ends", [None, 130.0])
def test_no_silence_of_two_hours_is_a_stall(ends: float | None) -> None:
    training = Training(going(ends))
    began = training.drive.now
    while training.drive.now - began < HOURS:
        silences(training)
        assert training.alarms == []
        assert not training.drive.run.stop
    assert any(one.at_work for one in training.told), "no silence was looked at"


def test_a_hang_after_short_steps_is_named_within_150_seconds() -> None:
    training = Training()
    training.runs(training.trains(600.0))
    began = training.drive.now
    for seconds in training.silent(600.0, FORWARD, 5):
        training.runs(iter([seconds]))
        if training.alarms:
            break
    (alarm,) = training.alarms
    assert (alarm.rule, alarm.rank, alarm.slot) == ("behind", 5, 2)
    assert training.drive.now - began <= 150.0


def test_a_hang_after_a_checkpoint_of_20_minutes_is_named_in_the_end() -> None:
    training = Training()
    silences(training)
    training.runs(training.trains(300.0))
    training.runs(training.silent(4 * 3_600.0, FORWARD, 5))
    assert [one.rank for one in training.alarms] == [5]
    assert training.run.quiet_since is not None


# --- before the first collective ------------------------------------------------------------------


@pytest.mark.parametrize("ends", [None, 20.0, at_night(130.0)])
@pytest.mark.parametrize(
    ("cpu", "done", "silent"), [(0.2, 0, True), (0.6, 0, False), (0.0, 300 << 10, False)]
)
def test_no_slow_start_is_ended(ends: float | None, cpu: float, done: int, silent: bool) -> None:
    """One rank downloads, or loads a model, for 40 minutes, and the others wait for it."""
    training = Training(going(ends))
    training.runs(training.starts(2_400.0, LOAD, 3, cpu=cpu, bytes=done))
    assert not training.drive.run.stop
    assert training.alarms == []
    since = silent_since(training.drive.run, training.run.silences)
    assert (since is not None) is silent


def test_a_start_that_stops_to_work_is_ended_after_the_time_and_not_before() -> None:
    training = Training(going(60.0))
    training.runs(training.starts(300.0, LOAD, 3, cpu=5.0))
    began = training.drive.now
    for seconds in training.starts(600.0, LOAD, 3):
        training.runs(iter([seconds]))
        if training.drive.run.stop:
            break
    (alarm,) = training.alarms
    assert (alarm.rule, alarm.rank, alarm.slot) == ("starting", 3, 1)
    assert 60.0 <= training.drive.now - began <= 100.0


def test_who_has_worked_between_the_looks_is_not_ended_for_an_idle_moment() -> None:
    """A look that finds work counts, also one that finds no stall: the time begins anew."""
    training = Training(going(60.0))
    for place in (LOAD, SAVE, EVALUATE) * 20:
        training.runs(training.starts(50.0, place, 3, cpu=0.0))
        training.runs(training.starts(10.0, place, 3, cpu=5.0))
    assert not training.drive.run.stop


def test_a_hang_before_the_first_collective_is_spoken_of_after_two_minutes_and_not_judged() -> None:
    training = Training()
    training.runs(training.starts(130.0, LOAD, 3))
    status = training.run.status()
    assert status.silence.startswith("no output and no collective for 2 min")
    assert training.told == []
    training.runs(training.starts(1_800.0, LOAD, 3))
    assert [one.rank for one in training.alarms] == [3]
