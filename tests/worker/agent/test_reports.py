"""What a node tells the registry: how often, how long, and what of a program's end."""

from __future__ import annotations

from signal import SIGTERM
from typing import Any

import pytest

from rendezvous.wire.errors import Fenced, StorageFull, TooManyRequests
from rendezvous.wire.reports import ExitReport
from tests.worker.agent.drive import (
    CLOSES,
    NOT_NOW,
    OVER,
    SLOT,
    SOCKET,
    STOP,
    TAKEN,
    TERM,
    UNTOLD,
    m,
    outcome,
    to,
)
from worker.agent import actions as do
from worker.agent.inputs import OwnWords
from worker.agent.reports import exit_report, signal_report, with_trouble
from worker.agent.state import ProgramState, SignalTold
from worker.program.ending import Ending
from worker.program.family import Failure

WORDS = OwnWords(("a line",), 5, "/logs/node-1.log")
BY_ITSELF = Failure(50.0, 101, 9, 1, 1)
HELPER = Failure(20.0, 99, 1)
FAILS, ENDS = m.ended(Ending(1, 0.0)), m.ended(Ending(143, 300.0, was_told=True))
ALONE, LATE = (m.at(120.5), m.arm()), m.late(do.Tell)
BUSY = TooManyRequests("wait")
FULL, REFUSES = m.fails(do.Tell, StorageFull("full")), m.fails(do.Watch, NOT_NOW)
NOT_TAKEN = m.fails(do.Tell, NOT_NOW)
THREE = m.after(3.0)
LAUNCHER_GONE = m.signal(SIGTERM, parent_lives=False)


@pytest.mark.parametrize(
    ("begin", "steps", "does"),
    [
        # It is told again while the registry may come back.
        ("acknowledging", [m.at(120.0), UNTOLD], "REPORT_WAITS Tell:Ack:pause"),
        ("acknowledging", [m.fails(do.Tell, BUSY)], "REPORT_WAITS Tell:Ack:pause"),
        ("acknowledging", [LATE], "REPORT_WAITS Tell:Ack:pause"),
        ("acknowledging", [m.fails(do.Tell, Fenced("newer"))], "Drop:Watch Leave ends:REFUSED"),
        ("acknowledging", [m.breaks(do.Tell)], "Drop:Watch Leave ends:FAULT"),
        # After the orphan time-out, and once more, the node ends where the watch is answered.
        ("acknowledging", [*ALONE, UNTOLD], "REPORT_WAITS Tell:Ack:pause"),
        ("acknowledging", [*ALONE, UNTOLD, m.at(124.5), UNTOLD], "Drop:Watch Leave ends:LOST"),
        ("acknowledging", [*ALONE, UNTOLD, m.at(124.5), UNTOLD, CLOSES], "End:RegistryLost"),
        ("acknowledging", [*ALONE, UNTOLD, m.at(124.6), UNTOLD], "Tell:Ack:pause"),
        ("acknowledging", [m.at(120.5), UNTOLD, UNTOLD], "Tell:Ack:pause"),
        # One that says that it cannot take it just now is there, for an hour.
        ("acknowledging", [*ALONE, NOT_TAKEN, m.at(124.5), NOT_TAKEN], "Tell:Ack:pause"),
        ("acknowledging", [*ALONE, UNTOLD, m.at(124.5), NOT_TAKEN], "REPORT_WAITS Tell:Ack:pause"),
        (
            "acknowledging",
            [m.at(3_601.0), m.arm(), NOT_TAKEN, NOT_TAKEN],
            "Drop:Watch Leave ends:LOST",
        ),
        ("acknowledging", [*ALONE, FULL, m.at(124.5), FULL], "Drop:Watch Leave ends:LOST"),
        # While no watch is served either, that one knows when it is given up.
        ("acknowledging", [m.at(119.0), REFUSES, m.at(238.0), UNTOLD, UNTOLD], "Tell:Ack:pause"),
        # One that is released has no watch that could give the registry up.
        ("running", [FAILS, m.go(released=[SLOT]), m.at(120.5), UNTOLD, LATE], "Drop:Watch Leave"),
        # Three seconds after the signal or the result, and after the end itself, it is given up.
        ("running", [FAILS, m.at(20.0), TERM], "SIGNAL due:23 ends:SIGNAL"),
        ("running", [FAILS, m.at(20.0), OVER], "Watch due:23 ends:RESULT"),
        ("running", [FAILS, OVER, m.at(2.9), UNTOLD], "REPORT_WAITS Tell:Exit(1)@0:pause due:3"),
        ("running", [FAILS, OVER, THREE], "Drop:Tell REPORT_GIVEN_UP Drop:Watch RUN_OVER Leave"),
        ("running", [OVER, ENDS, m.at(3.0), UNTOLD], "REPORT_GIVEN_UP Drop:Watch RUN_OVER Leave"),
        ("running", [TERM, m.at(300.0), ENDS], "Tell:Exit(143)@0 due:303"),
        ("running", [FAILS, m.at(5), OVER, m.after(1), m.view()], "Watch(4) due:8"),
        # An exit report is told though the launcher is gone, but no last word.
        ("running", [LAUNCHER_GONE, ENDS], "Tell:Exit(143)@0 due:3"),
        ("running", [LAUNCHER_GONE, ENDS, TAKEN, SOCKET], "CloseClient"),
        # What failed by itself keeps its own age, and a signalled node's end counts from there.
        ("running", [m.at(61), STOP, m.at(65), m.ended(Ending(3, 60))], "Tell:Exit(3)@60"),
        ("running", [m.at(20), TERM, m.at(29), ENDS], "Tell:Exit(143)@20 due:32"),
        # The run may have gone on from it.
        (
            "running",
            [m.ended(Ending(0, 0.0)), TAKEN, TERM],
            "SIGNAL Tell:Exit(143):last ends:SIGNAL",
        ),
        # A last word is told once.
        ("armed", [m.at(5), TERM, m.at(8), LATE], "Drop:Watch Leave"),
        ("armed", [TERM, m.late(do.Tell), CLOSES], "End:143"),
    ],
)
def test_how_often_and_how_long_a_report_is_told(begin: str, steps: list[Any], does: str) -> None:
    assert outcome(begin, *steps) == does


def test_a_report_that_is_told_again_is_the_same_and_as_old() -> None:
    drive = to("acknowledging")
    first = drive.the(do.Tell)
    drive.now = 120.0
    drive.fails(do.Tell)
    again = do.Tell(first.number + 1, report=first.report, began_at=0.0, pause=True)
    assert drive.the(do.Tell) == again


def test_a_signalled_node_without_a_program_says_so_for_three_seconds_at_most() -> None:
    drive = to("armed")
    drive.now = 5.0
    drive.signal(SIGTERM)
    tell = drive.the(do.Tell)
    assert (tell.report, tell.began_at) == (signal_report(1, SIGTERM), 5.0)
    assert (tell.limit, tell.is_last_word) == (3.0, True)


# --- how a program ended --------------------------------------------------------------------------


def report_of(
    ending: Ending, *, stop_at: float | None = None, signal_at: float | None = None
) -> tuple[ExitReport, float]:
    """The report of a program that began at 10."""
    program = ProgramState(7, 1, started_at=10.0, stop_at=stop_at)
    told_of = None if signal_at is None else SignalTold(SIGTERM, signal_at)
    return exit_report(program, ending, WORDS, told_of)


def test_the_report_of_an_end_holds_all_that_is_known_of_it() -> None:
    report, since = report_of(Ending(3, 60.0))
    assert since == 60.0
    known = {"tail": ["a line"], "log": "/logs/node-1.log", "rank": 5}
    assert report == ExitReport.model_validate(
        {"epoch": 1, "exit_code": 3, "ran_seconds": 50.0, **known}
    )
    killed, words = (
        report_of(Ending(137, 60.0))[0],
        "rdzv did not send this signal",
    )
    assert killed.message == words
    assert with_trouble(killed, "mlx5_0 is down").message == f"{words}; mlx5_0 is down"
    assert "SIGTERM" in report_of(Ending(143, 60.0), signal_at=5.0)[0].message


@pytest.mark.parametrize(
    ("ending", "told_at", "expected"),
    [
        (Ending(0, 60.0), {}, (0, False, 60.0)),
        (Ending(3, 60.0), {}, (3, False, 60.0)),
        # A rank that failed is the cause, and its age counts.
        (Ending(1, 60.0, BY_ITSELF), {}, (9, False, 50.0)),
        (Ending(0, 60.0, BY_ITSELF), {}, (0, False, 50.0)),
        # A helper that failed is not.
        (Ending(3, 60.0, HELPER), {}, (3, False, 60.0)),
        # What was told to stop has stopped.
        (Ending(143, 60.0), {"stop_at": 55.0}, (143, True, 60.0)),
        (Ending(0, 60.0), {"stop_at": 55.0}, (0, True, 60.0)),
        # What had failed by itself is not excused by a stop or a signal that came after.
        (Ending(3, 60.0), {"stop_at": 60.1}, (3, False, 60.0)),
        (Ending(1, 60.0, BY_ITSELF), {"stop_at": 55.0}, (9, False, 50.0)),
        (Ending(3, 60.0), {"stop_at": 60.1, "signal_at": 60.1}, (3, False, 60.0)),
        (Ending(1, 60.0, BY_ITSELF), {"stop_at": 55.0, "signal_at": 55.0}, (9, False, 50.0)),
        # A signal is the beginning, however long the grace was, and a clean end no better.
        (Ending(143, 90.0), {"stop_at": 55.0, "signal_at": 55.0}, (143, False, 55.0)),
        (Ending(0, 90.0), {"stop_at": 55.0, "signal_at": 55.0}, (143, False, 55.0)),
        # Of stop and signal the first counts.
        (Ending(143, 90.0), {"stop_at": 55.0, "signal_at": 56.0}, (143, True, 90.0)),
    ],
)
def test_what_came_first_counts(
    ending: Ending, told_at: dict[str, float], expected: tuple[int, bool, float]
) -> None:
    report, since = report_of(ending, **told_at)
    assert (report.exit_code, report.stopped, since) == expected


@pytest.mark.parametrize(("started_at", "seconds"), [(None, 0.0), (0.0, 60.0)])
def test_the_time_that_a_program_ran_counts_from_any_clocks_zero(
    started_at: float | None, seconds: float
) -> None:
    program = ProgramState(7, 1, started_at=started_at)
    assert exit_report(program, Ending(1, 60.0), WORDS, None)[0].ran_seconds == seconds
