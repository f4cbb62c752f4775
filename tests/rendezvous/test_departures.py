"""Nodes that say that they will go: when the programs are stopped, and how such a run ends."""

from __future__ import annotations

import pytest

from rendezvous.run.views import node_view
from rendezvous.wire.errors import NotFound, RunOver
from rendezvous.wire.run import Phase
from rendezvous.wire.watch import DepartureNotice
from tests.support.driver import in_phase


def test_a_node_that_goes_at_once_has_all_programs_stopped_at_once() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.depart(1, 0, "its agent received SIGTERM")
    assert (drive.phase, drive.run.stop) == ("running", True)
    assert drive.reasons[-1] == (
        "node 1 (host1) will leave: its agent received SIGTERM; all programs are stopped, "
        "so that they can save their state"
    )
    assert drive.waits() == (
        "node 1 (host1) will leave: its agent received SIGTERM; all programs are being "
        "stopped, so that they can save their state"
    )
    drive.stop(0, 2)
    drive.exit(1, 143, leaves=True, message="its agent received SIGTERM")
    assert (drive.result.exit_code, drive.result.slot) == (143, 1)
    assert drive.result.message == (
        "node 1 (host1) failed: the program ended with exit code 143 (signal 15, SIGTERM); "
        "its agent received SIGTERM"
    )
    assert drive.result.hint == "launch it again to resume from your last checkpoint"


def test_a_program_that_a_signal_ended_on_a_node_that_stays_has_another_hint() -> None:
    drive = in_phase(Phase.RUNNING, 2)
    drive.fail(1, 143)
    assert drive.result.exit_code == 143
    assert drive.result.hint == (
        "SIGTERM often comes from the scheduler (a time limit, a preemption) or a person; "
        "SIGHUP from a closed terminal (tmux, nohup)"
    )
    drive = in_phase(Phase.RUNNING, 2)
    drive.depart(1, 0, "spot")
    drive.fail(1, 3, leaves=True)
    assert drive.result.exit_code == 3
    assert drive.result.hint == "see what it wrote before: rdzv logs r"


def test_the_verdict_waits_for_programs_that_save_their_state() -> None:
    drive = in_phase(Phase.RUNNING, 2, grace_seconds=60)
    drive.depart(1, 0, "its agent received SIGTERM")
    drive.stop(0)
    drive.wait(59)
    assert (drive.phase, drive.run.stop) == ("running", True)
    drive.exit(1, 143, leaves=True, message="its agent received SIGTERM")
    assert (drive.result.exit_code, drive.result.slot) == (143, 1)


def test_a_program_that_does_not_end_in_its_grace_is_not_waited_for() -> None:
    drive = in_phase(Phase.RUNNING, 2, grace_seconds=10)
    drive.depart(1, 0, "spot")
    drive.stop(0)
    drive.wait(24.75)
    assert drive.phase == "running"
    drive.wait(0.25)
    assert (drive.result.status, drive.result.code) == ("failed", "node_lost")
    assert drive.result.slot == 1
    assert drive.result.message == (
        "node 1 (host1) left the run: spot, and no node may take its place (--on-node-loss "
        "fail), so the run ended"
    )


def test_who_fails_while_they_are_stopped_is_the_cause_after_the_time_of_the_verdict() -> None:
    drive = in_phase(Phase.RUNNING, 3, grace_seconds=10)
    drive.drain(1, 15, "spot")
    drive.wait(5)
    drive.exit(0, 3)
    drive.wait(1.75)
    assert drive.phase == "running"
    drive.wait(0.25)
    assert (drive.result.exit_code, drive.result.slot) == (3, 0)


def test_who_is_lost_while_they_are_stopped_is_the_cause() -> None:
    drive = in_phase(Phase.RUNNING, 3, grace_seconds=30)
    drive.drain(1, 15, "spot")
    drive.wait(1).wait(16, silent=[2]).wait(2)
    assert (drive.result.exit_code, drive.result.slot) == (86, 2)
    assert drive.result.message.startswith("node 2 (host2) was lost: ")
    assert drive.result.message.endswith("; node 1 (host1) was about to leave: drained: spot")


def test_programs_are_stopped_in_time_for_their_grace() -> None:
    drive = in_phase(Phase.RUNNING, 3, grace_seconds=10)
    drive.drain(2, 120, "maintenance")
    assert (drive.phase, drive.run.stop, drive.stopping_in()) == ("running", False, 105.0)
    assert drive.reasons[-1] == "node 2 (host2) will leave in 120 s: drained: maintenance"
    assert drive.waits() == (
        "node 2 (host2) will leave: drained: maintenance; all programs are stopped in 105 "
        "s, so that they can save their state"
    )
    drive.wait(104.75)
    assert not drive.run.stop
    drive.wait(0.25)
    assert drive.run.stop
    assert drive.reasons[-1] == (
        "all programs are stopped, because node 2 (host2) leaves: drained: maintenance"
    )
    drive.stop(0, 1, 2)
    assert (drive.result.status, drive.result.exit_code) == ("failed", 86)
    assert (drive.result.code, drive.result.slot, drive.result.node) == ("node_lost", 2, 2)
    assert drive.result.message == (
        "node 2 (host2) was drained: maintenance, and no node may take its place "
        "(--on-node-loss fail), so the run ended"
    )
    assert drive.result.hint == "launch it again to resume from your last checkpoint"


def test_a_short_notice_stops_them_at_once() -> None:
    drive = in_phase(Phase.RUNNING, 2, grace_seconds=10)
    drive.depart(1, 14, "spot")
    assert drive.run.stop


def test_the_earliest_departure_counts() -> None:
    drive = in_phase(Phase.RUNNING, 3, grace_seconds=10)
    drive.drain(2, 120)
    drive.drain(1, 60)
    assert drive.stopping_in() == 45.0
    drive.drain(0, 600)
    assert drive.stopping_in() == 45.0


def test_who_says_again_that_it_will_go_later_than_another_says_nothing_new() -> None:
    drive = in_phase(Phase.RUNNING, 3, grace_seconds=10)
    drive.drain(1, 60)
    drive.drain(2, 120)
    with drive.unchanged():
        drive.drain(2, 120)


def test_who_has_said_it_already_says_nothing_new() -> None:
    drive = in_phase(Phase.RUNNING, 2)
    drive.depart(1, 60, "spot")
    drive.wait(5)
    with drive.unchanged():
        drive.depart(1, 55, "spot")


def test_who_goes_sooner_than_it_has_said_is_believed() -> None:
    drive = in_phase(Phase.RUNNING, 2, grace_seconds=10)
    drive.drain(1, 3600, "maintenance")
    drive.depart(1, 30, "spot")
    assert drive.stopping_in() == 15.0
    drive.depart(1, 0, "its agent received SIGTERM")
    assert drive.run.stop


def test_programs_that_end_well_before_they_are_stopped_have_ended_well() -> None:
    drive = in_phase(Phase.RUNNING, 2)
    drive.drain(1, 60)
    drive.end_well(0, 1)
    assert drive.result.status == "ok"


def test_who_will_go_and_has_ended_well_stops_nobody() -> None:
    drive = in_phase(Phase.RUNNING, 3, grace_seconds=10)
    drive.drain(1, 60, "spot")
    drive.exit(1, 0)
    drive.wait(90)
    assert (drive.phase, drive.run.stop) == ("running", False)
    drive.end_well(0, 2)
    assert drive.result.status == "ok"


def test_who_will_go_later_is_still_there() -> None:
    drive = in_phase(Phase.RUNNING, 3, grace_seconds=10)
    drive.drain(1, 60)
    drive.drain(2, 90, "spot")
    drive.exit(1, 0)
    drive.wait(74.75)
    assert not drive.run.stop
    drive.wait(0.25)
    assert drive.run.stop
    drive.stop(0, 2)
    assert (drive.result.exit_code, drive.result.slot) == (86, 2)
    assert drive.result.message == (
        "node 2 (host2) was drained: spot, and no node may take its place (--on-node-loss "
        "fail), so the run ended"
    )


def test_a_program_that_fails_meanwhile_is_the_cause_and_the_departure_is_named() -> None:
    drive = in_phase(Phase.RUNNING, 2)
    drive.drain(1, 60, "spot")
    drive.fail(0, 3)
    assert drive.result.exit_code == 3
    assert drive.result.message == (
        "node 0 (host0) failed: the program ended with exit code 3; node 1 (host1) was "
        "about to leave: drained: spot"
    )


def test_a_departure_is_no_reason_for_a_restart() -> None:
    drive = in_phase(Phase.RUNNING, 2, max_restarts=3)
    drive.depart(1, 0, "spot")
    drive.stop(0, 1)
    assert (drive.result.status, drive.result.code) == ("failed", "node_lost")


@pytest.mark.parametrize("ended_well", [False, True])
def test_no_program_starts_again_on_a_node_that_will_go(ended_well: bool) -> None:
    """Nor where its own has ended well."""
    drive = in_phase(Phase.RUNNING, 2, max_restarts=3)
    drive.drain(1, 60, "spot")
    if ended_well:
        drive.exit(1, 0)
    drive.fail(0, 3)
    assert (drive.result.status, drive.result.exit_code) == ("failed", 3)
    assert drive.result.message.endswith(
        "; the programs are not started again, because node 1 (host1) leaves the run"
    )


def test_before_the_go_a_node_is_not_drained() -> None:
    drive = in_phase(Phase.VERIFYING, 2)
    with drive.unchanged():
        drive.drain(1, 60)


def test_a_node_that_is_not_there_is_not_drained() -> None:
    drive = in_phase(Phase.RUNNING, 2)
    with pytest.raises(NotFound) as refused:
        drive.drain(7, 60)
    assert refused.value.message == "run 'r' has no node in slot 7"


def test_a_node_whose_program_has_ended_is_not_drained() -> None:
    drive = in_phase(Phase.RUNNING, 2)
    drive.exit(1, 0)
    with pytest.raises(NotFound) as refused, drive.unchanged():
        drive.drain(1, 60)
    assert refused.value.message == (
        "the program of node 1 (host1) has ended: the node can go without a drain"
    )
    drive = in_phase(Phase.RUNNING, 2)
    drive.exit(1, 0)
    drive.leave(1)
    with pytest.raises(NotFound) as refused:
        drive.drain(1, 60)
    assert refused.value.message.startswith("the program of node 1 (host1) has ended")


def test_a_node_of_a_run_that_has_ended_is_not_drained() -> None:
    drive = in_phase(Phase.RUNNING, 1)
    drive.exit(0, 0)
    with pytest.raises(RunOver) as refused:
        drive.drain(0, 60)
    assert refused.value.message == "run 'r' has ended; its nodes have left"


def test_every_node_is_told_how_long_the_programs_have() -> None:
    drive = in_phase(Phase.RUNNING, 2, grace_seconds=10)
    assert node_view(drive.run, drive.now, 2.0).notice is None
    seq = drive.run.seq
    drive.drain(1, 60.0, "maintenance")
    assert drive.run.seq == seq + 1
    drive.wait(5.0)
    notice = DepartureNotice(slot=1, node=1, seconds=40.0, words="drained: maintenance")
    assert node_view(drive.run, drive.now, 2.0).notice == notice
