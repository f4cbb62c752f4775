"""How a node ends: in which order, what is told, and that the hosts file is put back."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from rendezvous.wire.errors import ArmingFailed, ExitCode, Fenced, RunError, RunOver
from rendezvous.wire.reports import ExitReport, LeaveReport
from tests.worker.agent.drive import (
    PROGRAM,
    RESULT,
    RULES,
    Drive,
    armed,
    arming,
    joined,
    notes,
    running,
    table,
    told,
    verifying,
    without_words,
)
from worker.agent.actions import (
    Arm,
    CloseClient,
    CloseSocket,
    Drop,
    End,
    Flush,
    RemoveHosts,
    ShowWord,
    Stop,
    StopListening,
    Tell,
    Visit,
    Watch,
)
from worker.agent.inputs import Armed, Done
from worker.agent.notices import Note, notice
from worker.agent.state import Cause
from worker.program.ending import Ending


def test_each_last_step_begins_when_the_one_before_it_is_over() -> None:
    drive = armed()
    watch = drive.node.count + 1
    actions = drive.result()
    assert notes(actions) == [Note.RUN_OVER]
    assert without_words(actions) == (
        Watch(watch, after=3, poll=2.0, limit=116.0),
        Drop(watch),
        StopListening(),
        CloseSocket(watch + 1),
    )
    (leave,) = drive.answer(CloseSocket)
    assert leave == Tell(
        watch + 2, report=LeaveReport(), began_at=0.0, limit=3.0, is_last_word=True
    )
    assert drive.answer(Tell) == (CloseClient(watch + 3),)
    assert drive.answer(CloseClient) == (RemoveHosts(watch + 4, limit=10.0),)
    assert drive.answer(RemoveHosts) == (End(3),)


def test_a_running_node_ends_its_program_and_reports_it_before_it_leaves() -> None:
    drive = running()
    actions = without_words(drive.result())
    assert [type(action) for action in actions] == [Watch, Stop]
    drive.gone(Ending(143, 0.0, was_told=True))
    drive.answer(Flush)
    assert not drive.all(CloseSocket)
    (tell,) = drive.all(Tell)
    assert isinstance(tell.report, ExitReport)
    assert tell.report.stopped
    assert [type(a) for a in without_words(drive.taken())] == [Drop, StopListening, CloseSocket]
    assert drive.leaves() == End(3)


def test_the_word_in_which_the_nodes_differ_is_shown_with_the_result() -> None:
    drive = joined()
    assert ShowWord(4) in drive.result(RESULT.model_copy(update={"command_word": 4}))


def test_a_result_that_is_said_again_is_the_first_one() -> None:
    drive = running()
    drive.result()
    actions = drive.result(RESULT.model_copy(update={"exit_code": 9}))
    assert [type(action) for action in actions] == [Watch]
    assert drive.node.ends is not None
    assert drive.node.ends.code == 3


# --- a signal -------------------------------------------------------------------------------------


def test_a_signalled_node_with_a_program_ends_it_and_reports_its_end() -> None:
    drive = running()
    actions = drive.signal(signal.SIGTERM)
    assert notes(actions) == [Note.SIGNAL]
    assert without_words(actions) == (Stop(drive.program),)
    drive.gone(Ending(143, 0.0))
    assert len(told(drive.answer(Flush))) == 1
    drive.taken()
    assert drive.leaves() == End(143)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGHUP, 129), (signal.SIGQUIT, 131), (signal.SIGTERM, 143)],
)
def test_the_exit_code_is_that_of_the_signal(number: int, code: int) -> None:
    drive = joined()
    assert len(told(drive.signal(number))) == 1
    drive.answer(Tell)
    assert drive.leaves() == End(code)


def test_of_a_signal_and_a_result_the_first_one_counts() -> None:
    drive = running()
    drive.signal(signal.SIGTERM)
    drive.result()
    drive.gone(Ending(143, 0.0))
    drive.answer(Flush)
    assert Note.RUN_OVER in notes(drive.taken())
    assert drive.leaves() == End(143)
    drive = running()
    drive.result()
    assert notes(drive.signal(signal.SIGTERM)) == [Note.SIGNAL]
    drive.gone(Ending(143, 0.0))
    drive.answer(Flush)
    drive.taken()
    assert drive.leaves() == End(3)


def test_a_refusal_while_the_last_word_is_told_does_not_change_the_exit_code() -> None:
    drive = armed()
    drive.signal(signal.SIGTERM)
    drive.fails(Watch, Fenced("the slot is empty"))
    drive.fails(Tell, Fenced("the slot is empty"))
    assert drive.leaves() == End(143)


def test_a_node_whose_launcher_is_gone_tells_nobody() -> None:
    drive = armed()
    assert not told(drive.signal(signal.SIGTERM, parent_lives=False))
    assert drive.answer(CloseSocket) == (CloseClient(15),)
    assert drive.leaves() == End(143)


def test_a_launcher_that_is_gone_at_the_second_signal_is_told_nothing_more() -> None:
    drive = armed()
    drive.signal(signal.SIGTERM)
    drive.signal(signal.SIGTERM, parent_lives=False)
    drive.answer(Tell)
    assert drive.answer(CloseSocket) == (CloseClient(16),)


def test_a_first_signal_while_the_node_ends_changes_nothing() -> None:
    drive = joined()
    drive.result()
    assert notes(drive.signal(signal.SIGTERM)) == [Note.SIGNAL]
    assert drive.leaves() == End(3)


# --- its own fault --------------------------------------------------------------------------------


def test_a_nodes_own_fault_is_told_before_it_leaves() -> None:
    drive = armed()
    error = ArmingFailed("no disk")
    drive.arm(table(epoch=2))
    drive.fails(Arm, error)
    assert told(drive.answer(CloseSocket)) == [
        ExitReport(epoch=1, exit_code=82, by_agent=True, message="no disk")
    ]
    assert told(drive.late(Tell)) == [LeaveReport()]
    assert drive.leaves() == End(0, error)


def test_a_fault_is_as_old_as_it_is_and_not_as_the_end_of_what_ran_then() -> None:
    drive = running()
    drive.breaks(Watch)
    began_at = drive.now
    drive.now += 9.0  # the grace of its program
    drive.gone()
    actions = drive.answer(CloseSocket)
    assert [tell.since for tell in actions if isinstance(tell, Tell)] == [began_at]


def test_a_fault_in_rdzv_itself_is_named_as_that() -> None:
    drive = verifying()
    drive.breaks(Visit)
    (report,) = told(drive.answer(CloseSocket))
    assert isinstance(report, ExitReport)
    assert (report.epoch, report.exit_code) == (0, ExitCode.INTERNAL)
    assert report.message.startswith("a fault in rdzv itself: ValueError")


@pytest.mark.parametrize("error", [Fenced("newer"), RunOver("over")])
def test_what_the_registry_itself_has_said_is_not_told_as_a_fault(error: RunError) -> None:
    drive = joined()
    drive.fails(Watch, error)
    assert told(drive.answer(CloseSocket)) == [LeaveReport()]


def test_of_two_causes_the_first_is_final() -> None:
    drive = running()
    drive.breaks(Watch)
    drive.signal(signal.SIGTERM)
    assert drive.node.ends is not None
    assert drive.node.ends.cause is Cause.FAULT


@pytest.mark.parametrize("kind", [CloseSocket, CloseClient])
def test_a_fault_in_a_last_step_is_said_and_holds_up_nothing(
    kind: type[CloseSocket | CloseClient],
) -> None:
    drive = joined()
    drive.result()
    if kind is CloseClient:
        drive.answer(CloseSocket)
        drive.answer(Tell)
    assert notes(drive.breaks(kind)) == [Note.PART_BROKEN]
    assert drive.leaves() == End(3)


def test_a_leave_that_breaks_holds_up_nothing() -> None:
    drive = joined()
    drive.result()
    drive.answer(CloseSocket)
    assert drive.breaks(Tell)[-1:] == (CloseClient(11),)


# --- the hosts file -------------------------------------------------------------------------------


def leaving_while_it_arms() -> Drive:
    """A node that ends while a thread may write the hosts file, at 20."""
    drive = arming()
    drive.now = 20.0
    drive.result()
    drive.answer(CloseSocket)
    drive.answer(Tell)
    assert drive.answer(CloseClient) == ()
    return drive


def test_the_hosts_file_is_put_back_once_no_thread_writes_it_any_more() -> None:
    drive = leaving_while_it_arms()
    assert drive.due == 30.0
    drive.now = 24.0
    (remove,) = drive.answer(Arm, Armed, PROGRAM)
    assert isinstance(remove, RemoveHosts)
    assert remove.limit == 6.0
    assert drive.due is None
    assert drive.answer(RemoveHosts) == (End(3),)


def test_a_thread_that_hangs_does_not_hold_up_the_end_for_longer_than_its_time() -> None:
    drive = leaving_while_it_arms()
    assert drive.after(9.9) == ()
    drive.now = 30.0
    actions = drive.after(0.0)
    assert notes(actions) == [Note.HOSTS_HANG]
    assert without_words(actions) == (End(3),)
    assert drive.answer(Arm, Armed, PROGRAM, (notice(Note.WARNED, words="late"),)) == ()


def test_a_thread_that_ends_before_the_hosts_files_turn_holds_up_nothing() -> None:
    drive = arming()
    drive.result()
    assert drive.answer(Arm, Armed, PROGRAM) == ()
    assert drive.leaves() == End(3)


def test_a_hosts_file_that_hangs_itself_is_given_up_and_said() -> None:
    drive = joined()
    drive.result()
    for kind in (CloseSocket, Tell, CloseClient):
        drive.answer(kind)
    actions = drive.late(RemoveHosts)
    assert notes(actions) == [Note.HOSTS_HANG]
    assert without_words(actions) == (End(3),)


@pytest.mark.parametrize("how", ["fails", "breaks"])
def test_a_hosts_file_that_cannot_be_put_back_is_said(how: str) -> None:
    drive = joined()
    drive.result()
    for kind in (CloseSocket, Tell, CloseClient):
        drive.answer(kind)
    if how == "fails":
        actions = drive.fails(RemoveHosts, ArmingFailed("read-only"))
    else:
        actions = drive.breaks(RemoveHosts)
    assert notes(actions) == [Note.HOSTS_NOT_BACK]
    assert without_words(actions) == (End(3),)


def test_without_a_hosts_file_the_node_ends_when_its_connections_are_closed() -> None:
    drive = joined(replace(RULES, hosts_file=""))
    drive.result()
    drive.answer(CloseSocket)
    drive.answer(Tell)
    assert drive.answer(CloseClient) == (End(3),)


def test_a_node_that_is_over_does_and_says_nothing_more() -> None:
    drive = joined()
    drive.result()
    assert drive.leaves() == End(3)
    before = drive.node
    assert drive.signal(signal.SIGTERM) == ()
    assert drive.feed(Done(999, (notice(Note.WARNED, words="late"),))) == ()
    assert drive.after(99.0) == ()
    assert drive.node == before
    assert drive.due is None
