"""A node in which nothing moves: when that is told, and that it moves again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from features.hang.quiet import (
    LEAST_SECONDS,
    NEVER_SECONDS,
    SAMPLE_SECONDS,
    Quiet,
    Sample,
    Silence,
    first_quiet,
    sample_seconds,
    seen,
)


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
    one_is = Sample(((3, 3), (20, 20), (0, 0)))  # the rank that has called most counts
    assert silences((10.0, sample(0)), (20.0, one_is)).limit == LEAST_SECONDS


def test_told_steps_count_as_collectives_do() -> None:
    steps = [(10.0 * n, sample(0, step=n)) for n in range(1, 5)]
    assert silences(*steps[:3]).limit == NEVER_SECONDS
    assert silences(*steps).limit == LEAST_SECONDS


def test_a_rank_moves_whose_calls_have_not_ended_or_whose_ends_are_not_known() -> None:
    first, second = (((4, -1), (7, 3)), ((5, -1), (7, 3)))
    quiet = silences((10.0, Sample(first)), (20.0, Sample(second)))
    assert (quiet.moved_at, quiet.last.calls) == (20.0, second)
    away = seen(quiet, Sample(((5, -1), (-1, 9))), 30.0)
    assert (away.moved_at, away.last.calls) == (20.0, second)


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


# --- before the first collectives -----------------------------------------------------------------


def starting(*work: tuple[float, int], calls: int = 0, ended: int = 0) -> Sample:
    """One rank that has called so many collectives; it, and its launcher, have done so much."""
    return Sample(((calls, ended),), work=work)


def moved_at(*samples: tuple[float, Sample]) -> float:
    """When something has moved last."""
    return silences(*samples).moved_at


IDLE = starting((5.0, 1_000), (0.0, 0))


@pytest.mark.parametrize(
    ("later", "moves"),
    [
        (IDLE, False),
        (starting((5.49, 1_000), (0.0, 0)), False),  # it asks a store for others
        (starting((5.51, 1_000), (0.0, 0)), True),  # it imports, or loads a model
        (starting((5.0, 251_000), (0.0, 0)), False),
        (starting((5.0, 262_000), (0.0, 0)), True),  # it downloads into a file
        (starting((5.0, 1_000), (0.6, 0)), True),  # its launcher does
        (starting((5.0, 1_000)), True),  # the rank has its process now
    ],
)
def test_who_is_at_work_before_the_first_collectives_moves(later: Sample, moves: bool) -> None:
    assert (moved_at((10.0, IDLE), (20.0, later)) == 20.0) is moves


def test_who_waits_in_a_collective_may_use_a_core_for_that() -> None:
    """NCCL's waits do."""
    inside = [starting((5.0 + n, 0), (0.0, 0), calls=2, ended=1) for n in range(3)]
    assert moved_at((10.0, inside[0]), (20.0, inside[1]), (30.0, inside[2])) == 0.0
    outside = starting((9.0, 0), (0.0, 0), calls=2, ended=2)
    assert moved_at((10.0, inside[0]), (20.0, outside)) == 20.0


def test_work_is_no_movement_once_the_program_is_on_its_way() -> None:
    """What the looks find of it is said then."""
    before, after = (starting((5.0 + n, 0), calls=20, ended=20) for n in range(2))
    assert moved_at((10.0, before), (20.0, after)) == 0.0


# --- what is told of it ---------------------------------------------------------------------------


class Watched:
    """A program that runs since 0, and what was told of it last."""

    def __init__(self, timeout: float | None = None) -> None:
        self.quiet = first_quiet(0.0, timeout)

    def at(self, now: float, one: Sample) -> list[tuple[Silence, float]]:
        """What is told at this sample: of which silence, and for how long."""
        quiet = seen(self.quiet, one, now)
        silence = quiet.silence(now)
        said: list[tuple[Silence, float]] = []
        if silence != quiet.told:
            said = [(silence, now - quiet.moved_at)]
        self.quiet = replace(quiet, told=silence)
        return said

    def printed(self, more: int = 0) -> Sample:
        """The newest sample, and so many bytes more."""
        return replace(self.quiet.last, printed=self.quiet.last.printed + more)


MOVES: list[tuple[Silence, float]] = [("", 0.0)]


def test_a_silence_is_told_once_and_so_is_its_end() -> None:
    program = Watched()
    assert program.at(10.0, sample(20)) == []
    assert program.at(20.0, sample(40)) == []
    assert program.at(139.9, sample(40)) == []
    assert program.at(140.0, sample(40)) == [("judged", 120.0)]
    assert program.at(150.0, sample(40)) == []
    assert program.at(160.0, sample(41)) == MOVES
    assert program.at(170.0, sample(41)) == []


def test_who_gives_a_short_time_is_told_sooner() -> None:
    program = Watched(15.0)
    program.at(2.0, sample(40))
    assert program.at(16.9, sample(40)) == []
    assert program.at(17.0, sample(40)) == [("judged", 15.0)]


def test_a_silence_at_the_start_is_told_as_early_and_judged_after_half_an_hour() -> None:
    program = Watched()
    assert program.at(10.0, sample(0)) == []
    assert program.at(129.0, sample(0)) == []
    assert program.at(130.0, sample(0)) == [("early", 120.0)]
    assert program.at(140.0, sample(0)) == []
    assert program.at(1_809.0, sample(0)) == []
    assert program.at(1_810.0, sample(0)) == [("judged", 1_800.0)]
    assert program.at(1_820.0, sample(1)) == MOVES


def test_who_is_silent_again_and_again_at_the_start_is_told_of_it_ever_later() -> None:
    program, at = Watched(), 10.0
    program.at(at, sample(0))
    for silent in (120.0, 240.0, 480.0):
        assert program.at(at + silent - 1.0, program.printed()) == []
        assert program.at(at + silent, program.printed()) == [("early", silent)]
        at += silent
        assert program.at(at, program.printed(more=1)) == MOVES


@pytest.mark.parametrize(("timeout", "judged"), [(20.0, 20.0), (600.0, 600.0), (7_200.0, 1_800.0)])
def test_who_gives_a_time_for_stalls_is_told_of_one_at_the_start_by_then(
    timeout: float, judged: float
) -> None:
    """A torchrun that waits for another one never comes to a collective."""
    program = Watched(timeout)
    program.at(2.0, Sample(((-1, -1), (-1, -1))))
    early = program.at(judged + 1.0, Sample(((-1, -1), (-1, -1))))
    assert early == ([("early", judged - 1.0)] if judged > LEAST_SECONDS else [])
    assert program.at(judged + 2.0, Sample(((-1, -1), (-1, -1)))) == [("judged", judged)]


def test_a_program_that_was_not_sampled_yet_moved_when_it_began() -> None:
    known = first_quiet(50.0, None)
    assert (known.moved_at, known.sampled_at, known.told) == (50.0, 50.0, "")
    assert (known.least, known.judged) == (LEAST_SECONDS, NEVER_SECONDS)
    given = [first_quiet(0.0, timeout) for timeout in (15.0, 600.0, 7_200.0)]
    assert [(one.least, one.judged) for one in given] == [(15, 15), (120, 600), (120, 1_800)]
