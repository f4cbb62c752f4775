"""What a node tells the registry: how often, how long, and what of a program's end."""

from __future__ import annotations

import signal

import pytest

from rendezvous.wire.errors import Fenced, Mismatch, RdzvError, RegistryLost, TooManyRequests
from rendezvous.wire.reports import ExitReport, LeaveReport
from tests.worker.agent.drive import (
    AWAY,
    PROGRAM,
    Drive,
    arming,
    notes,
    of_kind,
    running,
    told,
    without_words,
)
from worker.agent.actions import Arm, CloseSocket, Drop, End, Flush, Stop, Tell
from worker.agent.inputs import Armed, OwnWords
from worker.agent.notices import Note
from worker.agent.reports import exit_report, signal_report
from worker.agent.state import Cause, Epoch, ProgramState, SignalTold
from worker.program.ending import Ending
from worker.program.family import Failure

WORDS = OwnWords(("a line",), 5, "/logs/node-1.log")
BY_ITSELF = Failure(50.0, 101, 9, 1, 1)


def acknowledging() -> Drive:
    """A node that tells the registry that it can start, since 0."""
    drive = arming()
    drive.answer(Arm, Armed, PROGRAM)
    return drive


def ended(drive: Drive, ending: Ending) -> Tell:
    """What is told when nothing is left of the program."""
    drive.gone(ending)
    (tell,) = of_kind(drive.answer(Flush), Tell)
    return tell


# --- until it is taken in -------------------------------------------------------------------------


@pytest.mark.parametrize("error", [AWAY, TooManyRequests("wait")])
def test_a_report_is_told_again_while_the_registry_may_come_back(error: RdzvError) -> None:
    drive = acknowledging()
    first = drive.the(Tell)
    drive.now = 120.0
    actions = drive.fails(Tell, error)
    assert notes(actions) == [Note.REPORT_WAITS]
    (again,) = without_words(actions)
    assert again == Tell(first.number + 1, report=first.report, began_at=0.0, pause=True)
    assert drive.due is None


def test_a_report_that_nobody_takes_in_for_the_orphan_timeout_ends_the_node() -> None:
    drive = acknowledging()
    drive.now = 120.5
    drive.arm()
    drive.fails(Tell)
    drive.now = 121.0
    drive.fails(Tell)
    assert drive.node.ends is not None
    assert drive.node.ends.cause is Cause.LOST
    error = drive.node.ends.error
    assert isinstance(error, RegistryLost)
    assert "nobody listens" in error.message


def test_a_report_leaves_it_to_the_watch_to_give_up_a_registry_that_answers_nothing() -> None:
    drive = acknowledging()
    drive.now = 80.0
    drive.arm()
    drive.now = 120.5
    drive.fails(Tell)
    drive.now = 121.0
    drive.fails(Tell)
    assert drive.node.ends is None
    assert drive.the(Tell).began_at == 0.0


def test_a_process_that_was_stopped_tells_once_more_before_it_blames_the_registry() -> None:
    drive = acknowledging()
    drive.now = 600.0
    (again,) = of_kind(drive.late(Tell), Tell)
    assert again.is_last_try
    assert drive.node.ends is None


def test_a_report_that_is_refused_ends_the_node() -> None:
    drive = acknowledging()
    error = Fenced("newer")
    drive.fails(Tell, error)
    assert drive.node.ends is not None
    assert (drive.node.ends.cause, drive.node.ends.error) == (Cause.REFUSED, error)


def test_a_report_that_breaks_is_this_nodes_own_fault() -> None:
    drive = acknowledging()
    drive.breaks(Tell)
    assert drive.node.ends is not None
    assert drive.node.ends.cause is Cause.FAULT


@pytest.mark.parametrize("what", ["signal", "result"])
def test_after_the_signal_or_the_result_a_report_is_given_up_three_seconds_later(what: str) -> None:
    drive = running()
    drive.now = 10.0
    ended(drive, Ending(1, 10.0))
    drive.now = 20.0
    if what == "signal":
        drive.signal(signal.SIGTERM)
    else:
        drive.result()
    assert drive.due == 23.0
    tell = drive.the(Tell)
    drive.now = 22.9
    (again,) = of_kind(drive.fails(Tell), Tell)
    assert again.report == tell.report
    actions = drive.after(0.1)
    assert Drop(again.number) in actions
    assert Note.REPORT_GIVEN_UP in notes(actions)
    assert drive.leaves().code == (143 if what == "signal" else 3)


def test_a_failure_after_those_three_seconds_is_not_tried_again() -> None:
    drive = running()
    drive.result()
    tell = ended(drive, Ending(143, 0.0, was_told=True))
    drive.now = 3.0
    actions = drive.fails(Tell)
    assert notes(actions)[0] is Note.REPORT_GIVEN_UP
    assert not of_kind(actions, Tell)
    assert tell.number not in drive.node.effects


def test_after_a_long_grace_the_end_is_still_told_for_three_seconds() -> None:
    drive = running()
    drive.signal(signal.SIGTERM)
    drive.now = 300.0
    ended(drive, Ending(143, 300.0, was_told=True))
    assert drive.due == 303.0
    drive.now = 302.0
    assert of_kind(drive.fails(Tell), Tell)


def test_the_exit_report_is_told_though_the_launcher_is_gone_but_no_last_word() -> None:
    drive = running()
    drive.signal(signal.SIGTERM, parent_lives=False)
    ended(drive, Ending(143, 0.0))
    drive.taken()
    assert not drive.all(Tell)
    assert drive.leaves() == End(143)


# --- how a program ended --------------------------------------------------------------------------


def report_of(
    ending: Ending, *, stop_at: float | None = None, signal_at: float | None = None
) -> tuple[ExitReport, float]:
    """The report of a program that began at 10."""
    epoch = Epoch(1, program=ProgramState(7, started_at=10.0), stop_at=stop_at)
    told_of = None if signal_at is None else SignalTold(signal.SIGTERM, signal_at)
    return exit_report(epoch, ending, WORDS, told_of)


def values(ending: Ending, **told_at: float) -> tuple[int, bool, float]:
    """The exit code, whether it was stopped, and since when."""
    report, since = report_of(ending, **told_at)
    return report.exit_code, report.stopped, since


def test_the_report_of_an_end_holds_all_that_is_known_of_it() -> None:
    report, since = report_of(Ending(3, 60.0))
    assert since == 60.0
    assert report == ExitReport(
        epoch=1,
        exit_code=3,
        ran_seconds=50.0,
        worker_rank=5,
        tail=["a line"],
        log="/logs/node-1.log",
    )


@pytest.mark.parametrize(
    ("ending", "told_at", "expected"),
    [
        (Ending(0, 60.0), {}, (0, False, 60.0)),
        (Ending(3, 60.0), {}, (3, False, 60.0)),
        # A rank that failed is the cause, and its age counts.
        (Ending(1, 60.0, BY_ITSELF), {}, (9, False, 50.0)),
        (Ending(0, 60.0, BY_ITSELF), {}, (0, False, 50.0)),
        # A helper that failed is not.
        (Ending(3, 60.0, Failure(20.0, 99, 1)), {}, (3, False, 60.0)),
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
    assert values(ending, **told_at) == expected


def test_a_program_that_failed_by_itself_and_is_then_stopped_is_reported_with_its_own_age() -> None:
    drive = running()
    drive.now = 61.0
    assert of_kind(drive.stop(), Stop)
    drive.now = 65.0
    tell = ended(drive, Ending(3, 60.0))
    assert isinstance(tell.report, ExitReport)
    assert (tell.report.exit_code, tell.report.stopped, tell.since) == (3, False, 60.0)


def test_a_signalled_nodes_report_counts_from_the_signal() -> None:
    drive = running()
    drive.now = 20.0
    drive.signal(signal.SIGTERM)
    drive.now = 29.0
    tell = ended(drive, Ending(143, 29.0, was_told=True))
    assert isinstance(tell.report, ExitReport)
    assert (tell.report.exit_code, tell.report.stopped, tell.since) == (143, False, 20.0)
    assert "SIGTERM" in tell.report.message


def test_a_signal_after_the_end_was_reported_tells_nothing_more() -> None:
    drive = running()
    ended(drive, Ending(0, 0.0))
    drive.taken()
    actions = drive.signal(signal.SIGTERM)
    assert not told(actions)
    assert drive.leaves() == End(143)


def test_a_program_that_is_gone_before_it_was_seen_to_run_ran_for_no_time() -> None:
    epoch = Epoch(1, program=ProgramState(7))
    report, _ = exit_report(epoch, Ending(1, 60.0), WORDS, None)
    assert report.ran_seconds == 0.0


def test_the_time_that_a_program_ran_counts_from_any_clocks_zero() -> None:
    epoch = Epoch(1, program=ProgramState(7, started_at=0.0))
    report, _ = exit_report(epoch, Ending(1, 60.0), WORDS, None)
    assert report.ran_seconds == 60.0


def test_what_killed_a_program_from_elsewhere_is_said() -> None:
    report, _ = report_of(Ending(137, 60.0))
    assert report.message == "the SIGKILL came from elsewhere"


# --- a node without a program ---------------------------------------------------------------------


def test_a_signalled_node_without_a_program_says_so_once_and_waits_three_seconds_at_most() -> None:
    drive = arming()
    drive.answer(Arm, Armed, PROGRAM)
    drive.taken()
    drive.now = 5.0
    (tell,) = of_kind(drive.signal(signal.SIGTERM), Tell)
    assert tell == Tell(
        tell.number,
        report=signal_report(1, signal.SIGTERM),
        began_at=5.0,
        limit=3.0,
        is_last_word=True,
    )
    drive.now = 8.0
    actions = drive.late(Tell)
    assert not of_kind(actions, Tell)
    assert drive.leaves() == End(143)


def test_a_node_that_is_refused_for_what_it_told_says_of_what_it_ends() -> None:
    drive = acknowledging()
    error = Mismatch("not what this run is")
    drive.fails(Tell, error)
    (report,) = told(drive.answer(CloseSocket))
    assert report == ExitReport(epoch=1, exit_code=77, by_agent=True, message=error.message)
    assert told(drive.answer(Tell)) == [LeaveReport()]
    assert drive.leaves().error is error


def test_a_report_that_is_not_answered_in_time_is_told_again() -> None:
    drive = acknowledging()
    (again,) = of_kind(drive.late(Tell), Tell)
    assert again.pause
