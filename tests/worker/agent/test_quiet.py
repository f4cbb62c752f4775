"""A node in which nothing moves: when that is told, and that it moves again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rendezvous.wire.reports import QuietReport, Report
from tests.worker.agent.drive import RULES, TERM, Drive, to, told
from worker.agent import actions as do
from worker.agent import inputs
from worker.agent.quiet import (
    LEAST_SECONDS,
    NEVER_SECONDS,
    SAMPLE_SECONDS,
    Quiet,
    Sample,
    sample_seconds,
    seen,
)
from worker.agent.state import Rules


def sample(called: int, printed: int = 0, step: int | None = None) -> Sample:
    """Two ranks that have called so many collectives, which have ended."""
    return Sample(((called, called), (called, called)), printed, step)


# --- what a silence is ----------------------------------------------------------------------------


def silences(*samples: tuple[float, Sample]) -> Quiet:
    """What is known after these samples, of a program that began at 0."""
    quiet = Quiet(samples[0][1], 0.0)
    for at, one in samples:
        quiet = seen(quiet, one, at)
    return quiet


def test_who_has_not_got_going_has_half_an_hour() -> None:
    assert silences((10.0, sample(0)), (20.0, sample(19))).limit == NEVER_SECONDS
    assert silences((10.0, sample(0)), (20.0, sample(20))).limit == LEAST_SECONDS


def test_told_steps_count_as_collectives_do() -> None:
    steps = [(10.0 * n, sample(0, step=n)) for n in range(1, 5)]
    assert silences(*steps[:3]).limit == NEVER_SECONDS
    assert silences(*steps).limit == LEAST_SECONDS


def test_the_longest_silence_before_counts_six_times() -> None:
    """An evaluation of five minutes makes a silence of half an hour usual."""
    quiet = silences((10.0, sample(20)), (20.0, sample(30)), (320.0, sample(31)))
    assert quiet.longest == 300.0
    assert quiet.limit == 1_800.0


def test_what_was_before_the_first_collectives_is_not_usual() -> None:
    quiet = silences((10.0, sample(0)), (600.0, sample(20)), (610.0, sample(40)))
    assert quiet.longest == 10.0


@pytest.mark.parametrize("one", [sample(21), sample(20, printed=1), sample(20, step=1)])
def test_a_collective_a_byte_and_a_step_are_movement(one: Sample) -> None:
    assert silences((10.0, sample(20)), (20.0, one)).moved_at == 20.0


def test_a_rank_that_does_not_answer_stays_where_it_was() -> None:
    """Who holds the GIL is silent."""
    quiet = silences((10.0, sample(20)), (20.0, Sample(((-1, -1), (20, 20)))))
    assert quiet.moved_at == 0.0
    assert quiet.last == sample(20)


def test_ranks_that_come_or_go_are_movement() -> None:
    assert silences((10.0, sample(20)), (20.0, Sample(((20, 20),)))).moved_at == 20.0


def test_who_wants_an_end_soon_is_sampled_more_often() -> None:
    assert [sample_seconds(x) for x in (None, 600.0, 20.0, 1.0)] == [SAMPLE_SECONDS] * 2 + [4, 1]


# --- what is told of it ---------------------------------------------------------------------------


def running(rules: Rules = RULES, *, takes_quiet: bool = True) -> Drive:
    """A node whose program runs, at 0, on a registry that can be told."""
    drive = to("running", rules)
    assert drive.node.member is not None
    member = replace(drive.node.member, takes_quiet=takes_quiet)
    drive.node = replace(drive.node, member=member)
    return drive


def sampled(drive: Drive, at: float, one: Sample) -> list[Report]:
    """What is told at this sample."""
    drive.at(at)
    return told(drive.feed(inputs.RanksSampled(drive.program, one)))


def quiet(seconds: float | None) -> list[Any]:
    """What is told of this silence."""
    return [QuietReport(epoch=1, seconds=seconds)]


def test_a_silence_is_told_once_and_so_is_its_end() -> None:
    drive = running()
    assert sampled(drive, 10.0, sample(20)) == []
    assert sampled(drive, 20.0, sample(40)) == []
    assert sampled(drive, 139.9, sample(40)) == []
    assert sampled(drive, 140.0, sample(40)) == quiet(120.0)
    assert sampled(drive, 150.0, sample(40)) == []
    assert sampled(drive, 160.0, sample(41)) == quiet(None)
    assert sampled(drive, 170.0, sample(41)) == []


def test_what_is_no_longer_so_is_not_told_any_more() -> None:
    """The registry may be away meanwhile: of two reports the older one must not come last."""
    drive = running()
    sampled(drive, 20.0, sample(40))
    sampled(drive, 140.0, sample(40))
    drive.at(160.0)
    done = drive.feed(inputs.RanksSampled(drive.program, sample(41)))
    assert [type(one) for one in done] == [do.Drop, do.Tell]
    assert len(drive.all(do.Tell)) == 1


def test_who_gives_a_short_time_is_told_sooner() -> None:
    drive = running(replace(RULES, stall_timeout=15.0))
    sampled(drive, 2.0, sample(40))
    assert sampled(drive, 16.9, sample(40)) == []
    assert sampled(drive, 17.0, sample(40)) == quiet(15.0)


def test_an_older_registry_is_not_told() -> None:
    drive = running(takes_quiet=False)
    sampled(drive, 20.0, sample(40))
    assert sampled(drive, 9_000.0, sample(40)) == []


def test_a_program_that_is_being_stopped_moves_as_it_likes() -> None:
    drive = running()
    sampled(drive, 20.0, sample(40))
    TERM(drive)
    assert sampled(drive, 900.0, sample(40)) == []


def test_a_sample_of_a_program_that_is_gone_says_nothing() -> None:
    drive = running()
    number = drive.program
    drive.ended()
    drive.at(900.0)
    assert drive.feed(inputs.RanksSampled(number, sample(40))) == ()
