"""Programs that start again on the same nodes: when, how often, and when not."""

from __future__ import annotations

from typing import Any

import pytest

from rendezvous.run import events
from rendezvous.run.first_cause import cause_of_late
from rendezvous.run.restarts import alike
from rendezvous.run.views import node_view, remaining_seconds
from rendezvous.wire.errors import Mismatch, RunOver, TooLate
from rendezvous.wire.reports import ExitReport
from rendezvous.wire.run import Phase, RestartFacts, SlotState
from tests.support.driver import Drive, in_phase, make_spec


def test_all_start_again_on_the_next_table_once_nothing_runs_any_more() -> None:
    drive = in_phase(Phase.RUNNING, 3, max_restarts=2)
    assert drive.run.epoch == 1
    assert [slot.its_node.number for slot in drive.run.of_table()] == [0, 1, 2]
    drive.exit(1, 3, rank=1)
    assert (drive.phase, drive.run.stop) == ("running", True)
    drive.stop(0, 2)
    assert (drive.phase, drive.run.stop, drive.run.epoch) == ("arming", False, 2)
    assert (drive.run.starts.used, drive.ended(), drive.table.master_port) == (1, [(1, 3)], 29501)
    assert [slot.its_node.number for slot in drive.run.of_table()] == [0, 1, 2]
    assert drive.waits() == (
        "waiting for node 0 (host0), node 1 (host1), node 2 (host2) to end the program of "
        "epoch 1 and get ready again, 85 s left"
    )
    assert drive.reasons[-1] == "node 2 (host2) was stopped (exit code 143); restart 1 of 2 at once"
    drive.arm()
    assert (drive.phase, drive.run.epoch) == ("running", 2)
    assert drive.states() == ["running", "running", "running"]
    drive.end_well(0, 1, 2)
    assert drive.result.status == "ok"


def test_who_has_not_reported_by_the_verdict_is_waited_for_by_the_acknowledgement() -> None:
    drive = in_phase(Phase.RUNNING, 3, max_restarts=2, verdict_seconds=2)
    drive.exit(1, 3)
    drive.stop(0)
    drive.wait(1.75)
    assert drive.phase == "running"
    drive.wait(0.25)
    assert (drive.phase, sorted(drive.run.waiting_for)) == ("arming", [0, 1, 2])
    assert drive.reasons[-1] == (
        "node 1 (host1) failed: the program ended with exit code 3; restart 1 of 2 at once"
    )
    drive.ack(0)
    drive.ack(1)
    drive.wait(30)
    drive.exit(2, 143, epoch=1, stopped=True)


def test_the_time_to_arm_again_has_the_grace_in_it() -> None:
    drive = in_phase(
        Phase.RUNNING, 2, max_restarts=1, arm_timeout_seconds=10, grace_seconds=7, verdict_seconds=0
    )
    drive.fail(1, 1)
    assert (drive.phase, remaining_seconds(drive.run, drive.now)) == ("arming", 32.0)
    drive.wait(31.75)
    assert drive.phase == "arming"
    drive.wait(0.25)
    assert drive.result.code == "arming_failed"
    assert drive.result.message == (
        "node 0 (host0), node 1 (host1) did not end the program of epoch 1 and get ready "
        "again within 32 s, though still connected"
    )


def test_when_restarts_are_used_up_it_says_so() -> None:
    drive = in_phase(Phase.RUNNING, 2, max_restarts=1)
    drive.fail(1, 3, tail=["one"])
    drive.arm().wait(40)
    drive.fail(0, 4)
    assert (drive.result.status, drive.result.exit_code, drive.ended()) == ("failed", 4, [(1, 3)])
    assert drive.result.message == (
        "node 0 (host0) failed: the program ended with exit code 4; the only restart is used up"
    )


def ends_again(drive: Drive, seconds: float, code: int, **how: Any) -> Drive:
    """The program of node 0 starts again, runs for so long, and ends."""
    drive.arm().wait(seconds)
    drive.exit(0, code, **how)
    return drive


def test_when_all_restarts_ended_alike_it_says_so() -> None:
    drive = in_phase(Phase.RUNNING, 1, max_restarts=2).wait(61)
    drive.exit(0, 3)
    ends_again(drive, 61, 3)
    ends_again(drive, 61, 3)
    assert drive.result.message.endswith(
        "; restart 2 of 2 is used up; each start ended with exit code 3"
    )


def test_a_program_that_had_ended_well_starts_again_with_the_others() -> None:
    drive = in_phase(Phase.RUNNING, 2, max_restarts=1)
    drive.exit(0, 0)
    drive.exit(1, 1)
    assert (drive.phase, sorted(drive.run.waiting_for)) == ("arming", [0, 1])


def test_a_port_that_a_person_has_chosen_stays() -> None:
    drive = in_phase(Phase.RUNNING, 2, max_restarts=1, master_port=4000)
    assert drive.table.master_port == 4000
    drive.fail(1, 1)
    assert (drive.phase, drive.table.master_port) == ("arming", 4000)


def test_another_port_is_looked_for_again() -> None:
    drive = in_phase(Phase.RUNNING, 1, max_restarts=1)
    drive.exit(0, 1)
    assert drive.table.master_port == 29501
    drive.refuse(0, "port_taken", "it is taken", 29507)
    assert (drive.phase, drive.run.epoch, drive.table.master_port) == ("arming", 3, 29507)


def test_the_first_restart_comes_at_once_and_the_next_ones_wait_for_longer_and_longer() -> None:
    drive = in_phase(Phase.RUNNING, 1, max_restarts=9)
    drive.exit(0, 1)
    assert drive.phase == "arming"
    ends_again(drive, 5, 2)
    assert (drive.phase, remaining_seconds(drive.run, drive.now)) == ("restarting", 1.0)
    assert drive.run.starts.ended[-1].then == "restart 2 of 9 after 1 s"
    assert drive.waits() == (
        "node 0 (host0) failed: the program ended with exit code 2; restart 2 of 9 after 1 "
        "s, 1 s left"
    )
    drive.wait(0.75)
    assert drive.phase == "restarting"
    drive.wait(0.25)
    assert drive.phase == "arming"
    for code, pause in ((3, 2), (4, 4)):
        ends_again(drive, 5, code)
        assert remaining_seconds(drive.run, drive.now) == pause
        drive.wait(pause)
    assert ends_again(drive, 70, 5).phase == "arming"
    assert remaining_seconds(ends_again(drive, 5, 6).run, drive.now) == 8.0


def test_ten_minutes_or_progress_begin_the_back_off_anew() -> None:
    drive = in_phase(Phase.RUNNING, 1, max_restarts=9)
    drive.exit(0, 1)
    ends_again(drive, 1, 2).wait(1)
    assert ends_again(drive, 601, 3).phase == "arming"
    assert ends_again(drive, 1, 4).phase == "arming"
    assert ends_again(drive, 1, 5, progress=7).phase == "arming"
    assert ends_again(drive, 1, 6, progress=7).phase == "arming"
    assert ends_again(drive, 1, 5).phase == "restarting"


def test_the_same_end_twice_within_30_s_is_not_started_a_third_time() -> None:
    drive = in_phase(Phase.RUNNING, 2, max_restarts=9).wait(3)
    drive.fail(1, 1, tail=["at 0x7f1 step 3"])
    assert drive.phase == "arming"
    drive.arm().wait(4)
    drive.fail(0, 1, tail=["at 0x8aa step 4"])
    assert (drive.result.status, drive.result.exit_code) == ("failed", 1)
    assert drive.run.starts.used == 1
    assert drive.result.message == (
        "node 0 (host0) failed: the program ended with exit code 1: the program's last line "
        "was 'at 0x8aa step 4'; it failed twice in the same way (numbers aside), 4 s after the "
        "start, so 8 of 9 restarts were not used"
    )


def test_the_same_end_later_is_started_again() -> None:
    drive = in_phase(Phase.RUNNING, 1, max_restarts=9).wait(31)
    drive.exit(0, 1)
    assert ends_again(drive, 3, 1).phase == "restarting"
    drive.wait(1)
    assert ends_again(drive, 31, 1).phase == "restarting"


def test_the_same_end_beyond_another_step_is_started_again() -> None:
    drive = in_phase(Phase.RUNNING, 1, max_restarts=9)
    drive.exit(0, 1, progress=1)
    assert ends_again(drive, 0, 1, progress=2).phase == "arming"


@pytest.mark.parametrize(
    ("code", "line", "ran_seconds", "why"),
    [
        (126, "", 2, "; exit code 126 means that it cannot be started"),
        (127, "", 2, "; exit code 127 means that it cannot be started"),
        (1, "SyntaxError: no", 0, "a SyntaxError does not pass by itself"),
        (1, "ModuleNotFoundError: no", 0, "a ModuleNotFoundError does not pass by itself"),
        (1, "[rank3]: ModuleNotFoundError: no", 0, " does not pass by itself"),
        (1, "warning: ModuleNotFoundError: no apex", 0, ""),  # it only speaks of one
        (1, "ModuleNotFoundError: no", 31, ""),  # it began well
        (
            *(2, "train.py: error: unrecognized arguments: --x", 0),
            "; its arguments are wrong, which does not pass by itself",
        ),
    ],
)
def test_what_does_not_pass_by_itself_is_not_started_again(
    code: int, line: str, ran_seconds: float, why: str
) -> None:
    drive = in_phase(Phase.RUNNING, 1, max_restarts=9).wait(ran_seconds)
    drive.exit(0, code, tail=[line][: bool(line)])
    if not why:
        assert drive.phase == "arming"
        return
    assert (drive.result.status, drive.result.exit_code) == ("failed", code)
    assert drive.result.message.endswith(f"{why}; it is not started again")


def test_three_epochs_that_get_no_further_are_enough() -> None:
    drive = in_phase(Phase.RUNNING, 1, max_restarts=9).wait(61)
    drive.exit(0, 1, progress=5)
    ends_again(drive, 61, 1, progress=5)
    assert ends_again(drive, 61, 1, progress=4).phase == "arming"
    ends_again(drive, 61, 1)
    assert drive.result.status == "failed"
    assert drive.result.message.endswith("exit code 1; 3 starts in a row did not get beyond step 5")


def test_progress_that_only_a_program_knows_that_is_late_to_end_counts_as_well() -> None:
    drive = in_phase(Phase.RUNNING, 2, max_restarts=9, verdict_seconds=2)
    drive.exit(1, 1)
    drive.wait(2)
    for epoch, code in ((1, 2), (2, 3), (3, 4)):
        drive.exit(0, 143, epoch=epoch, stopped=True, progress=epoch + 4)
        drive.arm().wait(5)
        drive.exit(1, code)
        drive.wait(2)
        assert (drive.phase, drive.run.starts.used) == ("arming", epoch + 1)


def test_a_lost_node_ends_the_run_although_restarts_are_left() -> None:
    drive = in_phase(Phase.RUNNING, 3, max_restarts=9).wait(16, silent=[2])
    drive.stop(0)
    drive.exit(1, 1)
    assert (drive.result.status, drive.result.exit_code, drive.result.slot) == ("failed", 86, 2)
    assert drive.result.message == (
        "node 2 (host2) was lost: it was silent for 15 s: host, network or agent is down or "
        "paused; the programs are not started again, because it has left the run"
    )


def test_a_node_that_is_lost_while_the_others_stop_ends_the_run() -> None:
    drive = in_phase(Phase.RUNNING, 3, max_restarts=9)
    drive.exit(1, 1)
    drive.leave(1)
    drive.stop(0, 2)
    assert (drive.result.status, drive.result.exit_code) == ("failed", 1)
    assert drive.result.message.endswith(
        "exit code 1; the programs are not started again, because it has left the run"
    )


def test_a_node_that_is_told_to_end_is_lost() -> None:
    drive = in_phase(Phase.RUNNING, 2, max_restarts=9)
    drive.fail(1, 143, leaves=True, message="its agent received SIGTERM")
    assert (drive.result.status, drive.result.exit_code) == ("failed", 143)
    assert drive.result.message.endswith(
        "; the programs are not started again, because it leaves the run"
    )


def test_a_failure_of_the_node_itself_is_none_of_the_program() -> None:
    drive = in_phase(Phase.RUNNING, 2, max_restarts=9)
    drive.fail(1, 87, by_agent=True, message="no RDMA")
    assert (drive.result.status, drive.result.exit_code) == ("failed", 87)
    assert drive.result.message == (
        "node 1 (host1) failed: no RDMA; the programs are not started again, because this "
        "is a failure of its node"
    )


def test_a_node_that_is_lost_before_it_has_armed_again_ends_the_run() -> None:
    drive = in_phase(Phase.RUNNING, 3, max_restarts=9)
    drive.fail(1, 1)
    drive.wait(16, silent=[2])
    assert (drive.result.status, drive.result.code) == ("failed", "node_lost")
    assert drive.result.message == (
        "node 2 (host2) failed before the restart: it was silent for 15 s: host, network or"
        " agent is down or paused"
    )


def test_a_node_that_is_lost_while_the_run_waits_ends_it() -> None:
    drive = in_phase(Phase.RUNNING, 2, max_restarts=9)
    drive.fail(1, 1)
    drive.arm().wait(1)
    drive.fail(1, 2)
    assert drive.phase == "restarting"
    drive.leave(1)
    assert (drive.result.status, drive.result.code) == ("failed", "node_lost")


def test_the_scheduler_alone_does_not_say_that_a_node_is_lost() -> None:
    drive = in_phase(Phase.RUNNING, 2, max_restarts=9)
    drive.fail(1, 1)
    drive.news(1, SlotState.ENDED)
    assert drive.phase == "arming"


def test_a_newer_worker_run_of_the_same_slot_proves_itself_before_the_programs_start_again() -> (
    None
):
    drive = in_phase(Phase.RUNNING, 2, max_restarts=9)
    drive.fail(1, 1)
    assert drive.phase == "arming"
    drive.join(0, 2)
    assert (drive.phase, drive.run.epoch) == ("verifying", 3)
    drive.verify()
    assert drive.table.master_port == 29501
    drive.arm()
    assert (drive.phase, drive.run.epoch) == ("running", 3)
    assert [slot.its_node.number for slot in drive.run.of_table()] == [0, 1]


def test_a_newer_worker_run_may_come_while_the_run_waits() -> None:
    drive = in_phase(Phase.RUNNING, 2, max_restarts=9)
    drive.fail(1, 1)
    drive.arm().wait(1)
    drive.fail(1, 2)
    drive.join(0, 2)
    assert drive.phase == "restarting"
    drive.wait(1)
    assert drive.phase == "verifying"
    drive.verify().arm()
    assert drive.phase == "running"


def test_who_was_not_there_at_the_first_start_stays_out() -> None:
    drive = Drive(make_spec(3, least=2, max_restarts=9)).gather(0, 1).wait(30)
    drive.verify().arm()
    drive.exit(1, 1)
    with pytest.raises(TooLate):
        drive.join(2)
    drive.stop(0)
    assert drive.phase == "arming"
    with pytest.raises(TooLate):
        drive.join(2)
    drive.join(0, 2)
    assert drive.phase == "verifying"
    with pytest.raises(TooLate):
        drive.join(2)
    drive.verify().arm()
    assert drive.phase == "running"


def test_a_cancel_ends_a_run_that_would_start_again_or_waits() -> None:
    drive = in_phase(Phase.RUNNING, 2, max_restarts=9)
    drive.exit(1, 1)
    drive.cancelled()
    assert drive.result.status == "cancelled"
    drive = in_phase(Phase.RUNNING, 1, max_restarts=9)
    drive.exit(0, 1)
    assert remaining_seconds(ends_again(drive, 1, 2).run, drive.now) == 1.0
    drive.cancelled()
    assert (drive.result.status, remaining_seconds(drive.run, drive.now)) == ("cancelled", None)


@pytest.mark.parametrize(("why", "asked"), [("new weights", "new weights"), ("", "asked for")])
def test_somebody_may_have_the_programs_start_again_and_that_is_not_counted(
    why: str, asked: str
) -> None:
    drive = in_phase(Phase.RUNNING, 2)
    drive.restart(why)
    assert (drive.phase, drive.run.stop, drive.run.starts.asked) == ("running", True, asked)
    assert drive.waits() == f"restart requested: {asked}; stopping the programs"
    with drive.unchanged():
        drive.restart("now")
    drive.stop(0, 1)
    assert (drive.phase, drive.run.starts.used, drive.run.starts.asked) == ("arming", 0, "")
    assert drive.run.starts.ended[-1].then == f"restart requested: {asked}"
    with drive.unchanged():
        drive.restart("now")


def test_programs_that_an_older_rdzv_stopped_without_a_reason_have_not_ended_well() -> None:
    drive = in_phase(Phase.RUNNING, 2)
    drive.apply(events.RestartAsked(reason=""))
    drive.stop(0, 1)
    assert (drive.result.status, drive.result.exit_code) == ("cancelled", 84)
    assert drive.result.code == "cancelled"
    assert drive.result.message == (
        "run 'r' was cancelled: all programs were stopped, and are not started again"
    )
    drive = in_phase(Phase.RUNNING, 2)
    drive.apply(events.RestartAsked(reason=""))
    drive.end_well(0, 1)
    assert drive.result.status == "ok"


def test_nothing_is_stopped_where_a_node_is_about_to_leave() -> None:
    drive = in_phase(Phase.RUNNING, 2)
    drive.drain(1, 3600, "repair")
    with pytest.raises(Mismatch) as refused, drive.unchanged():
        drive.restart("now")
    assert not drive.run.stop
    assert refused.value.message == (
        "run 'r': its programs cannot start again, because node 1 (host1) leaves the run"
    )
    drive.end_well(0, 1)
    assert drive.result.status == "ok"


def test_nothing_is_stopped_where_a_node_has_ended_well_and_left() -> None:
    drive = in_phase(Phase.RUNNING, 2)
    drive.exit(1, 0)
    drive.leave(1)
    with pytest.raises(Mismatch) as refused, drive.unchanged():
        drive.restart("now")
    assert not drive.run.stop
    assert refused.value.hint == (
        "let its programs end, or cancel it; then launch it again to resume from your last "
        "checkpoint"
    )
    drive = in_phase(Phase.RUNNING, 3)
    drive.exit(1, 0)
    drive.leave(1)
    drive.exit(2, 0)
    drive.leave(2)
    with pytest.raises(Mismatch) as refused:
        drive.restart("now")
    assert refused.value.message.endswith(
        ", because node 1 (host1), node 2 (host2) have left the run"
    )


def test_who_asks_while_the_run_waits_has_it_wait_no_longer() -> None:
    drive = in_phase(Phase.RUNNING, 1, max_restarts=9)
    drive.exit(0, 1)
    assert ends_again(drive, 1, 2).phase == "restarting"
    drive.restart("now")
    assert (drive.phase, drive.run.starts.used) == ("arming", 2)


def test_nothing_starts_again_that_has_not_started_or_has_ended() -> None:
    drive = in_phase(Phase.GATHERING)
    with drive.unchanged():
        drive.restart("now")
    drive = in_phase(Phase.RUNNING, 1)
    drive.exit(0, 0)
    with pytest.raises(RunOver) as refused:
        drive.restart("now")
    assert refused.value.message == "run 'r' has ended; its programs cannot be started again"


def test_who_needs_longer_to_stop_than_the_verdict_takes_is_waited_for_by_the_next_table() -> None:
    drive = in_phase(Phase.RUNNING, 2)
    drive.restart("now")
    drive.wait(2)
    assert (drive.phase, drive.run.starts.used) == ("arming", 0)
    assert drive.run.starts.ended[-1].then == "restart requested: now"
    drive.exit(0, 143, epoch=1, stopped=True)
    assert drive.phase == "arming"
    drive = in_phase(Phase.RUNNING, 2)
    drive.restart("now")
    drive.exit(0, 0)
    drive.wait(2)
    assert drive.phase == "arming"


def test_who_leaves_while_the_programs_are_stopped_for_a_restart_by_hand_has_left_the_run() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.restart("now")
    drive.exit(1, 143, stopped=True, leaves=True)
    drive.leave(1)
    drive.stop(0, 2)
    assert drive.failure == (86, "node_lost", 1)
    assert drive.result.message == (
        "restart requested: now; the programs are not started again, because node 1 (host1)"
        " has left the run"
    )


def test_programs_that_have_all_ended_well_are_not_started_again() -> None:
    drive = in_phase(Phase.RUNNING, 2)
    drive.restart("now")
    drive.end_well(0, 1)
    assert drive.result.status == "ok"


def test_nor_is_one_that_has_led_the_others_and_has_ended_well() -> None:
    drive = in_phase(Phase.RUNNING, 2, led=True)
    drive.restart("now")
    drive.exit(0, 0)
    drive.exit(1, 0, stopped=True)
    assert drive.result.status == "ok"
    drive = in_phase(Phase.RUNNING, 2, led=True)
    drive.restart("now")
    drive.exit(1, 0)
    drive.stop(0)
    assert drive.phase == "arming"


def test_a_late_report_moves_the_first_cause_and_not_the_decision() -> None:
    drive = in_phase(Phase.RUNNING, 2, max_restarts=9, verdict_seconds=2)
    drive.exit(1, 1)
    drive.wait(2)
    assert (drive.phase, drive.ended()) == ("arming", [(1, 1)])
    drive.exit(0, 7, epoch=1, age_seconds=9)
    assert (drive.phase, drive.ended(), drive.run.starts.used) == ("arming", [(1, 7)], 1)
    assert drive.run.starts.ended[-1].message == (
        "node 0 (host0) failed: the program ended with exit code 7"
    )
    with drive.unchanged():
        drive.exit(0, 7, epoch=1, age_seconds=9)


def test_what_followed_a_failure_that_was_told_late_is_not_how_the_epoch_ended() -> None:
    drive = in_phase(Phase.RUNNING, 2, max_restarts=9, verdict_seconds=2)
    drive.exit(1, 134)
    drive.wait(2)
    drive.exit(0, 7, epoch=1, age_seconds=9)
    drive.arm().wait(3)
    drive.fail(1, 134)
    assert (drive.phase, drive.run.starts.used) == ("restarting", 2)


def test_a_late_report_of_a_later_failure_changes_nothing() -> None:
    drive = in_phase(Phase.RUNNING, 2, max_restarts=9, verdict_seconds=2)
    drive.exit(1, 1)
    drive.wait(2)
    drive.exit(0, 7, epoch=1)
    assert drive.ended() == [(1, 1)]


def test_a_report_of_an_epoch_before_does_not_end_the_next_one() -> None:
    drive = in_phase(Phase.RUNNING, 2, max_restarts=9, verdict_seconds=2)
    drive.exit(1, 1)
    drive.wait(2).arm()
    drive.exit(0, 7, epoch=1)
    assert (drive.phase, drive.run.stop) == ("running", False)


def test_after_a_restart_of_the_registry_everything_goes_on() -> None:
    drive = in_phase(Phase.RUNNING, 2, max_restarts=9)
    drive.fail(1, 1)
    drive.arm().wait(1)
    drive.fail(1, 2)
    drive.registry_restarts()
    assert drive.phase == "restarting"
    drive.wait(1)
    assert drive.phase == "arming"
    drive.registry_restarts()
    drive.arm()
    assert drive.phase == "running"


def test_what_nodes_and_people_see_of_it() -> None:
    drive = in_phase(Phase.RUNNING, 2, max_restarts=3)
    before = node_view(drive.run, drive.now, 2.0)
    assert before.restarts == RestartFacts(max_restarts=3)
    drive.fail(1, 9)
    words = "node 1 (host1) failed: the program ended with exit code 9"
    view = node_view(drive.run, drive.now, 2.0)
    assert view.restarts == RestartFacts(restarts=1, max_restarts=3, last_failure=words)
    status = drive.status()
    assert (status.restarts, status.max_restarts) == (1, 3)
    (end,) = status.ended
    assert (end.epoch, end.node, end.hostname, end.then) == (
        1,
        1,
        "host1",
        "restart 1 of 3 at once",
    )


def test_a_run_that_starts_once_tells_its_nodes_nothing_of_restarts() -> None:
    drive = in_phase(Phase.RUNNING, 2)
    assert node_view(drive.run, drive.now, 2.0).restarts is None


def test_nodes_are_not_told_of_each_epoch_at_the_end() -> None:
    drive = in_phase(Phase.RUNNING, 1, max_restarts=3)
    drive.exit(0, 1)
    drive.arm().exit(0, 0)
    assert [end.epoch for end in drive.result.epochs] == [1]
    view = node_view(drive.run, drive.now, 2.0)
    assert view.result is not None
    assert view.result.epochs == []


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (["step 3 of 9"], ["step 17 of 9"], True),
        (["at 0x7ffe12"], ["at 0xabc"], True),
        (["out of memory"], ["no such file"], False),
        (["out of memory", "the end"], ["no such file", "the end"], False),
        ([], [], True),
    ],
)
def test_ends_are_alike_but_for_numbers_and_addresses(
    one: list[str], other: list[str], same: bool
) -> None:
    ends = [_alike(exit_code=1, tail=tail) for tail in (one, other)]
    assert (ends[0] == ends[1]) is same
    assert _alike(exit_code=2) != _alike(exit_code=1)


def _alike(**said: Any) -> str:
    run = in_phase(Phase.RUNNING).run
    report = ExitReport(epoch=1, **said)
    found = cause_of_late(run, run.slots[0], report, 0.0)
    assert found is not None
    return alike(found, report)
