"""Led runs: rank 0 alone has a program, and its end is the run's."""

from __future__ import annotations

from rendezvous.wire.reports import LeaveReport
from rendezvous.wire.run import Phase, Result
from tests.support.driver import in_phase


def test_a_led_run_has_succeeded_when_the_program_of_rank_0_ended_well() -> None:
    drive = in_phase(Phase.RUNNING, 3, led=True)
    drive.wait(30)
    assert drive.phase == "running"
    outcome = drive.exit(0, 0, ran_seconds=30.0)
    assert outcome is not None
    assert outcome.reason == "node 0 (host0, slot 0) ended with exit code 0"
    assert drive.result == Result(
        status="ok",
        exit_code=0,
        message="the program of node 0, which led 3 nodes, ended with exit code 0 after 30 s",
    )
    assert drive.states() == ["exited", "running", "running"]


def test_a_run_that_is_not_led_waits_for_the_other_programs() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.exit(0, 0)
    assert drive.phase == "running"


def test_a_serving_node_that_reports_an_end_is_not_the_end_of_the_run() -> None:
    drive = in_phase(Phase.RUNNING, 3, led=True)
    drive.exit(1, 0)
    assert (drive.phase, drive.run.stop) == ("running", False)
    drive.exit(0, 0)
    assert drive.result.status == "ok"


def test_the_program_of_rank_0_that_fails_ends_the_run_and_is_named() -> None:
    drive = in_phase(Phase.RUNNING, 2, led=True)
    drive.exit(0, 3)
    assert (drive.phase, drive.run.stop) == ("running", True)
    drive.exit(1, 0, stopped=True)
    assert (drive.result.code, drive.result.exit_code, drive.result.slot) == (
        "program_failed",
        3,
        0,
    )
    assert drive.result.message == (
        "node 0 (host0, slot 0) failed: the program ended with exit code 3"
    )


def test_a_serving_node_that_is_lost_ends_the_run_though_rank_0_then_ends_well() -> None:
    drive = in_phase(Phase.RUNNING, 3, led=True)
    drive.report(2, LeaveReport())
    assert (drive.phase, drive.run.stop) == ("running", True)
    drive.exit(0, 0)
    drive.exit(1, 0, stopped=True)
    assert (drive.result.status, drive.result.code) == ("failed", "node_lost")
    assert "node 2 (host2, slot 2) was lost: its agent left before the end" in drive.result.message


def test_a_serving_node_whose_agent_fails_ends_the_run() -> None:
    drive = in_phase(Phase.RUNNING, 2, led=True)
    drive.exit(1, 143, message="its agent was told to end (SIGTERM)")
    assert drive.run.stop
    drive.exit(0, 143, stopped=True)
    assert (drive.result.slot, drive.result.exit_code) == (1, 143)
