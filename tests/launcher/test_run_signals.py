"""Signals and the end of a launch by value."""

from __future__ import annotations

import copy

import pytest

from launcher.run import actions as do
from launcher.run import inputs as said
from launcher.run.actions import BySignal
from launcher.run.sentences import EndsAtOnce, EndsRun, ResultUnwritten
from launcher.run.values import EndedAtOnce, Key, Verdict
from rendezvous.wire.run import Phase, SlotState
from tests.launcher.drive import LOCAL, SILENT, Drive, facts, over, result, slot, status
from tests.launcher.test_run_course import (
    HERE,
    WANTS,
    cancelled,
    following,
    kinds,
    leaving,
    outcome,
    silent,
    verdict,
)

ONE = Key(1, 1)


def test_91_a_signal_cancels_at_the_registry_which_tells_the_nodes() -> None:
    drive = following()
    done = drive.signal(15)
    cancel = do.CancelRun(drive.open(do.CancelRun).id, BySignal(15))
    assert done == [do.Say(EndsRun(15)), cancel]
    drive.status(WANTS)
    assert drive.of(do.TellSlot) == []


def test_91_a_run_whose_verdict_is_waited_for_is_cancelled_again() -> None:
    drive = following()
    drive.signal(15)
    for found, again in ((status(phase=Phase.RUNNING), True), (over(), False)):
        cancelled(drive, found)
        assert drive.all_open(do.CancelRun) == []
        drive.wait(1.0)
        assert bool(drive.all_open(do.CancelRun)) is again


def test_101_a_run_that_somebody_cancels_ends_as_any_other() -> None:
    ended, drive = result("cancelled", 84, status="cancelled"), following()
    drive.came(over(result=ended))
    drive.part()
    assert verdict(drive) == Verdict(ended)
    assert outcome(drive).signal is None
    assert (drive.of(do.CancelRun), drive.said()) == ([], [])


def test_91_for_ten_seconds_and_then_everything_ends_at_once() -> None:
    drive = Drive.new().running(ONE)
    drive.signal()
    silent(drive, do.CancelRun, "following", 0.1)
    assert 10.0 <= drive.now < 10.3
    drive.described(ONE, SlotState.RUNNING)
    assert drive.open(do.CancelWorkerRun).grace == 0.0
    drive.told(ONE)
    drive.wait(0.2)
    drive.described(ONE, SlotState.ENDED)
    assert verdict(drive) == Verdict(failure=EndedAtOnce(10.0))


@pytest.mark.parametrize("waits", [True, False])
def test_91_a_run_that_is_over_needs_no_answer_to_its_cancel(waits: bool) -> None:
    drive = Drive.new().running(ONE)
    drive.signal()
    if waits:
        drive.refuse(do.CancelRun, SILENT)
    drive.came(over(HERE, left=False))
    assert drive.all_open(do.CancelRun) == []
    drive.wait(1.0)
    assert drive.all_open(do.CancelRun) == []


def test_92_a_second_signal_ends_everything_at_once() -> None:
    drive = Drive.new().submitting(ONE)
    number = drive.open(do.Submit).id
    drive.signal(2)
    done = drive.signal(15)
    assert done[0] == do.Say(EndsAtOnce(15, again=True))
    assert do.BreakOff(number) in done
    for _ in range(2):
        drive.found(ONE, None)
        drive.wait(1.0)
    assert verdict(drive) == Verdict(failure=EndedAtOnce())
    assert outcome(drive).signal == 2


def test_92_a_first_signal_while_runs_are_ended_hurries_and_is_not_the_launchs_end() -> None:
    drive = Drive.new().ending(ONE)
    drive.described(ONE, SlotState.RUNNING)
    assert drive.signal()[0] == do.Say(EndsAtOnce(15, again=False))
    if drive.all_open(do.CancelWorkerRun):
        drive.told(ONE)
    drive.wait(1.0)
    drive.described(ONE, SlotState.ENDED)
    assert outcome(drive).signal is None
    assert verdict(drive) == Verdict(result())


def test_d7_a_second_signal_after_the_result_does_not_lose_it() -> None:
    drive = following()
    drive.signal()
    drive.came(over(HERE, left=False))
    drive.signal()
    assert verdict(drive) == Verdict(result())


# --- the end


def test_89_runs_then_registry_then_board_then_result() -> None:
    drive = Drive.new().ending(ONE)
    drive.described(ONE, SlotState.ENDED)
    assert kinds(drive.last) == ["Note", "CloseChild"]
    drive.take(said.Done(drive.open(do.CloseChild).id))
    assert kinds(drive.last) == ["CloseBoard", "WriteResult"]
    drive.take(said.Done(drive.open(do.WriteResult).id))
    assert kinds(drive.last) == ["End"]
    assert drive.take(said.Due()) == [] == drive.wait(600)
    under_way = [action for _, action in drive.machine.desk.open.values()]
    assert drive.all_open(do.StartChild) == under_way


def test_94_a_result_that_cannot_be_written_is_said() -> None:
    drive = following()
    drive.end()
    drive.take(said.Done(drive.open(do.CloseChild).id))
    drive.take(said.NotWritten(drive.open(do.WriteResult).id, "no room"))
    assert drive.said() == [ResultUnwritten("no room")]
    assert verdict(drive) == Verdict(result())


def test_95_a_fault_of_rdzvs_own_writes_no_result_though_the_runs_is_known() -> None:
    drive = leaving()
    drive.take(said.PartFailed(drive.open(do.AskStatus).id, "KeyError()"))
    drive.refuse(do.CancelRun, SILENT)
    drive.take(said.Done(drive.open(do.CloseChild).id))
    assert drive.of(do.WriteResult) == []
    assert len(drive.of(do.End)) == 1


@pytest.mark.parametrize(
    ("code", "exit_code", "says"),
    [
        ("node_lost", 86, "PREEMPTED"),
        ("program_failed", 143, "PREEMPTED"),
        ("program_failed", 3, ""),
    ],
)
def test_what_a_signal_or_a_silence_leaves_open_its_scheduler_may_know(
    code: str, exit_code: int, says: str
) -> None:
    drive = Drive.new().running(ONE)
    drive.wait(1.0)
    drive.described(ONE, SlotState.FAILED, "PREEMPTED")
    ended = result(code, exit_code, slot=1)
    drive.came(over(slot(1), result=ended))
    drive.part()
    assert verdict(drive) == Verdict(ended, says=says)


def test_a_machine_is_a_value_that_can_be_recorded() -> None:
    one, other = Drive.new().running(ONE), Drive.new().running(ONE)
    assert one.machine == other.machine
    assert copy.deepcopy(one.machine) == one.machine
    one.signal()
    assert one.machine != other.machine


def test_a_step_does_not_cost_more_with_more_slots() -> None:
    """Two thousand worker runs: describing one of them touches nothing of the others."""
    drive = Drive.new(facts(here=LOCAL, others=LOCAL))
    keys = [Key(number, 1) for number in range(2048)]
    drive.submitting(*keys[:8])
    drive.status(*(slot(key.slot, 0, 1) for key in keys))
    before = len(drive.machine.desk.open)
    drive.submitted(keys[0], "100")
    assert abs(len(drive.machine.desk.open) - before) <= 1
    assert len(drive.last) <= 2
