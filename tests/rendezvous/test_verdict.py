"""After the go: who failed first, how the run ends, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rendezvous.run import events
from rendezvous.wire.run import Phase, SlotState
from tests.support.driver import Drive, in_phase, make_spec


def test_a_node_that_had_ended_well_before_is_named_beside_the_first_cause() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.exit(1, 0)
    drive.exit(0, 1, rank=0)
    drive.exit(2, 0, stopped=True)
    assert drive.result.message == (
        "node 0 (host0) failed: rank 0 ended with exit code 1: no error of it was seen; "
        "node 1 (host1) had ended with exit code 0"
    )


def test_a_failing_program_stops_the_others_and_is_named() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.exit(1, 137, rank=1, message="out of memory?", tail=["last words"], log="/l")
    assert (drive.phase, drive.run.stop) == ("running", True)
    drive.stop(0, 2)
    assert (drive.result.status, drive.result.exit_code) == ("failed", 137)
    assert (drive.result.code, drive.result.slot, drive.result.node) == ("program_failed", 1, 1)
    assert (drive.result.hostname, drive.result.rank) == ("host1", 1)
    assert (drive.result.tail, drive.result.log) == (["last words"], "/l")
    assert drive.result.exit_code_of == "program"
    assert drive.result.message == (
        "node 1 (host1) failed: rank 1 ended with exit code 137 (signal 9, SIGKILL); out of memory?"
    )
    assert drive.result.hint == (
        "see dmesg (the kernel kills when memory is used up), or ask the scheduler (sacct, "
        "kubectl describe pod)"
    )


def test_what_rdzv_itself_says_of_a_failure_is_not_the_programs_last_output() -> None:
    drive = in_phase(Phase.RUNNING, 2)
    drive.exit(
        1, 3, tail=["last words", "rdzv: SIGKILL did not end these processes within 5 s: 71"]
    )
    drive.stop(0)
    assert (drive.result.exit_code, drive.result.tail) == (3, ["last words"])


def test_the_verdict_falls_after_two_seconds_without_those_that_only_stop_slowly() -> None:
    drive = in_phase(Phase.RUNNING, 3, verdict_seconds=2)
    drive.exit(1, 1)
    drive.wait(1.75)
    assert (drive.phase, drive.run.stop) == ("running", True)
    drive.wait(0.25)
    assert (drive.result.slot, drive.result.exit_code) == (1, 1)
    assert drive.result.hint == "see what it wrote before: rdzv logs r"
    assert drive.reasons[-1] == "node 1 (host1) failed: the program ended with exit code 1"


def test_the_first_cause_is_the_oldest_failure_and_not_the_first_report() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.exit(0, 1, age_seconds=0.5)
    drive.wait(1)
    drive.exit(2, 3, age_seconds=30, rank=5)
    drive.wait(2)
    assert (drive.result.slot, drive.result.exit_code, drive.result.rank) == (2, 3, 5)
    assert drive.result.message == (
        "node 2 (host2) failed: rank 5 ended with exit code 3: no error of it was seen"
    )


def test_a_node_that_fell_silent_before_the_failure_is_waited_for_and_is_the_cause() -> None:
    drive = in_phase(Phase.RUNNING, 3).wait(1, silent=[1])
    drive.exit(0, 1)
    drive.wait(3, silent=[1])
    assert drive.phase == "running"
    drive.wait(12, silent=[1])
    assert (drive.result.exit_code, drive.result.exit_code_of) == (86, "rdzv")
    assert drive.result.code == "node_lost"
    assert drive.result.message == (
        "node 1 (host1) was lost: it was silent for 15 s: host, network or agent is down or paused"
    )


def test_the_verdict_waits_no_longer_than_a_lease_although_the_registry_doubts_itself() -> None:
    drive = in_phase(Phase.RUNNING, 5).wait(1, silent=[1, 2, 3, 4])
    drive.exit(0, 1)
    drive.wait(16.75, silent=[1, 2, 3, 4])
    assert drive.phase == "running"
    drive.wait(0.25, silent=[1, 2, 3, 4])
    assert (drive.result.slot, drive.result.exit_code) == (0, 1)


def test_a_node_whose_worker_run_was_preempted_says_so_where_that_is_known_in_time() -> None:
    drive = in_phase(Phase.RUNNING, 2)
    drive.news(1, SlotState.RUNNING, cause="preempted")
    drive.exit(1, 143)
    drive.wait(1)
    drive.stop(0)
    assert (drive.result.code, drive.result.exit_code) == ("preempted", 88)
    assert (drive.result.exit_code_of, drive.result.slot) == ("rdzv", 1)


def test_a_preemption_that_is_told_before_the_node_is_lost_is_its_cause() -> None:
    drive = in_phase(Phase.RUNNING, 2).wait(5, silent=[1])
    drive.news(1, SlotState.FAILED, detail="PREEMPTED: n1", cause="preempted")
    drive.wait(12, silent=[1])
    assert (drive.result.code, drive.result.exit_code) == ("preempted", 88)
    assert drive.result.message == (
        "node 1 (host1) was lost: its worker run ended: PREEMPTED: n1; the scheduler "
        "preempted its worker run"
    )


def test_a_preemption_of_another_generations_worker_run_is_none_of_the_nodes() -> None:
    drive = in_phase(Phase.RUNNING, 2)
    drive.news(1, SlotState.FAILED, 2, cause="preempted")
    drive.wait(17, silent=[1])
    assert (drive.result.code, drive.result.exit_code) == ("node_lost", 86)


def test_a_node_that_is_lost_after_a_failure_is_not_the_cause_and_is_named_beside_it() -> None:
    drive = in_phase(Phase.RUNNING, 3, verdict_seconds=60)
    drive.exit(0, 7)
    drive.wait(30, silent=[1])
    assert drive.states() == ["exited", "lost", "running"]
    drive.stop(2)
    assert (drive.result.slot, drive.result.exit_code) == (0, 7)
    assert drive.result.message == (
        "node 0 (host0) failed: the program ended with exit code 7; also lost: node 1 (host1)"
    )


def test_after_a_restart_the_verdict_waits_for_those_who_were_not_heard_of_since() -> None:
    drive = in_phase(Phase.RUNNING, 3).wait(5)
    drive.exit(1, 3)
    drive.registry_restarts()
    drive.wait(14, silent=[2])
    assert drive.run.result is None
    drive.wait(1.5, silent=[2])
    assert drive.result.slot == 1
    assert drive.result.message.endswith("exit code 3; also lost: node 2 (host2)")


def test_what_an_agent_ends_its_node_for_is_said_without_the_exit_code() -> None:
    drive = in_phase(Phase.RUNNING, 2, verdict_seconds=0)
    drive.fail(0, 87, by_agent=True, message="no GPU")
    assert (drive.result.exit_code, drive.result.exit_code_of) == (87, "rdzv")
    assert drive.result.message == "node 0 (host0) failed: no GPU"


def test_a_lost_node_fails_the_run() -> None:
    drive = in_phase(Phase.RUNNING, 3).wait(16, silent=[2])
    assert (drive.run.stop, drive.states()) == (True, ["running", "running", "lost"])
    drive.stop(0)
    drive.exit(1, 1)
    assert (drive.result.slot, drive.result.exit_code, drive.result.node) == (2, 86, 2)
    assert "preemption" in drive.result.hint


def test_a_node_that_leaves_while_the_run_runs_fails_it() -> None:
    drive = in_phase(Phase.RUNNING)
    drive.leave(1)
    drive.wait(2.25)
    assert drive.result.slot == 1
    assert drive.result.message == "node 1 (host1) was lost: its agent left before the end"


def test_a_node_that_leaves_after_a_failure_is_not_the_cause() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.leave(1)
    drive.exit(2, 4, age_seconds=0.5)
    drive.wait(2.25)
    assert (drive.result.slot, drive.result.exit_code) == (2, 4)


def test_a_node_that_has_ended_well_may_fall_silent_or_leave() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.end_well(1, 2)
    drive.leave(2)
    drive.wait(30, silent=[1])
    assert (drive.run.stop, drive.states()) == (False, ["running", "lost", "left"])
    drive.exit(0, 0)
    assert drive.result.status == "ok"


def test_a_stopped_node_is_never_the_cause() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.exit(0, 1)
    drive.exit(1, 137, stopped=True, age_seconds=100)
    assert drive.reasons[-1] == "node 1 (host1) was stopped (exit code 137)"
    drive.stop(2)
    assert (drive.result.slot, drive.result.exit_code) == (0, 1)


@pytest.mark.parametrize(
    ("code", "words"),
    [(128, ""), (129, " (signal 1, SIGHUP)"), (192, " (signal 64)"), (193, "")],
)
def test_an_exit_code_that_is_a_signal_s_is_told_with_it(code: int, words: str) -> None:
    drive = in_phase(Phase.RUNNING, 1)
    drive.exit(0, code)
    assert drive.result.exit_code == code
    assert drive.result.message.endswith(f": the program ended with exit code {code}{words}")


def test_a_node_that_nobody_told_to_stop_failed_whatever_it_says() -> None:
    drive = in_phase(Phase.RUNNING)
    drive.stop(1)
    assert drive.run.stop
    drive.exit(0, 0)
    assert (drive.result.status, drive.result.slot, drive.result.exit_code) == ("failed", 1, 143)


def test_after_the_go_the_lease_and_not_the_scheduler_says_who_is_lost() -> None:
    drive = in_phase(Phase.RUNNING)
    drive.news(1, SlotState.FAILED, detail="exit code 137")
    assert drive.reasons[-1] == "slot 1: failed (exit code 137)"
    drive.wait(60)
    assert (drive.phase, drive.run.stop) == ("running", False)


def test_a_suspect_node_whose_worker_run_is_over_is_lost_with_the_scheduler_s_words() -> None:
    drive = in_phase(Phase.RUNNING).wait(1, silent=[1])
    drive.news(1, SlotState.FAILED, detail="exit code 137")
    drive.wait(4.75, silent=[1])
    assert drive.states() == ["running", "running"]
    drive.wait(0.25, silent=[1])
    assert drive.states() == ["running", "lost"]
    drive.wait(2.25)
    assert drive.result.message == "node 1 (host1) was lost: its worker run ended: exit code 137"


def test_a_killed_node_is_the_cause_although_its_peer_told_of_it_first() -> None:
    drive = in_phase(Phase.RUNNING)
    drive.close(1)
    drive.wait(0.25, silent=[1])
    drive.exit(0, 1, age_seconds=0.2)
    drive.news(1, SlotState.ENDED)
    drive.wait(3, silent=[1])
    assert (drive.result.slot, drive.result.exit_code) == (1, 86)
    assert drive.result.message.endswith("was lost: its worker run ended")


def test_a_closed_connection_ends_a_node_within_seconds() -> None:
    drive = in_phase(Phase.RUNNING)
    drive.close(1)
    drive.wait(1.25, silent=[1])
    assert drive.slot(1).problem == (
        "its agent is gone: its connection was closed and it did not reconnect"
    )


@pytest.mark.parametrize("phase", [Phase.GATHERING, Phase.VERIFYING, Phase.ARMING, Phase.RUNNING])
def test_cancelling_ends_the_run_in_any_phase(phase: Phase) -> None:
    drive = in_phase(phase)
    drive.apply(events.Cancelled(reason="SIGINT at the launcher"))
    assert (drive.phase, drive.run.stop, drive.result.status) == ("finished", True, "cancelled")
    assert (drive.result.exit_code, drive.result.exit_code_of) == (84, "rdzv")
    assert (drive.result.code, drive.result.slot) == ("cancelled", None)
    assert drive.result.message == "run 'r' was cancelled: SIGINT at the launcher"


@pytest.mark.parametrize("code", [7, 137])
def test_a_cancel_does_not_hide_the_cause_of_an_end_that_has_begun(code: int) -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.exit(1, code)
    assert drive.phase == "running"
    with drive.unchanged():
        drive.cancelled()
    drive.exit(2, 143)
    drive.wait(2)
    assert (drive.result.exit_code, drive.result.slot) == (code, 1)
    with drive.unchanged():
        drive.cancelled()


def test_who_cancels_again_does_not_wait_for_a_silent_node() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.exit(1, 7)
    drive.stop(0)
    drive.wait(1.9, silent=[2])
    with drive.unchanged():
        drive.cancelled()
    drive.wait(0.1, silent=[2])
    assert drive.phase == "running"
    drive.cancelled()
    assert (drive.result.slot, drive.result.exit_code) == (1, 7)
    assert drive.result.message.endswith(
        "; no report since then from node 2 (host2), which may have failed earlier"
    )


@pytest.mark.parametrize("code", [129, 130, 143])
def test_a_cancel_counts_where_the_nodes_were_told_to_end_too(code: int) -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.exit(1, code)
    drive.cancelled()
    assert drive.result.status == "cancelled"
    assert drive.result.message == "run 'r' was cancelled: SIGTERM at the launcher"


def test_a_cancel_before_the_go_names_the_node_that_had_failed() -> None:
    drive = Drive(make_spec()).gather(0, 1)
    drive.exit(1, 9, message="its disk is full")
    assert drive.run.result is None
    drive.apply(events.Cancelled(reason="enough"))
    assert drive.result.message == (
        "run 'r' was cancelled: enough; before that, slot 1 failed: its disk is full"
    )


def test_what_a_node_says_of_its_program_is_told_with_its_name() -> None:
    drive = in_phase(Phase.RUNNING)
    drive.progress(0, "step 1")
    assert drive.reasons[-1] == "node 0 (host0): step 1"
    drive.exit(0, 0)
    drive.leave(0)
    assert drive.reasons[-1] == "node 0 (host0) has left"


def test_a_result_stays_the_first() -> None:
    drive = in_phase(Phase.RUNNING)
    drive.end_well(0, 1)
    drive.wait(3)
    drive.apply(events.Cancelled(reason="too late"))
    assert (drive.result.status, drive.run.finished_at) == ("ok", 100.0)
    assert drive.result.exit_code_of == "program"
    assert drive.reasons[-1] == "both nodes ended with exit code 0"


def test_after_the_end_nodes_leave_or_are_lost_and_nothing_else_happens() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.exit(0, 4)
    drive.wait(2.25)
    assert (drive.result.slot, drive.run.seq) == (0, 6)
    drive.leave(0)
    drive.news(2, SlotState.FAILED)
    drive.wait(100, silent=[1, 2])
    assert (drive.states(), drive.result.slot, drive.run.seq) == (["left", "lost", "lost"], 0, 6)


def test_a_restart_of_the_registry_is_told_and_changes_nothing() -> None:
    drive = in_phase(Phase.RUNNING)
    assert drive.run.seq == 4
    drive.registry_restarts()
    assert (drive.phase, drive.run.seq) == ("running", 4)
    assert "restarted from its journal" in drive.reasons[-1]


def test_the_lease_of_a_node_that_is_gone_is_forgotten() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.leases.heard((2, 99), drive.now)
    drive.wait(16, silent={1})
    drive.leases.heard((1, 1), drive.now)
    before = len(drive.journal)
    drive.wait(16)
    assert [event.kind for _, event in drive.journal[before:]] == ["verdict"]
    assert drive.leases.silent_seconds((2, 99), drive.now) == 0  # it has none any more


def test_the_lease_of_an_older_incarnation_hides_no_silent_node() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.leases.grant_all([(0, 99), (0, 1), (1, 1), (2, 1)], drive.now)
    drive.wait(15, silent={1})
    assert drive.states() == ["running", "lost", "running"]


def test_what_every_node_does_is_usual_and_what_only_one_does_is_not() -> None:
    """Usual things are not worth a line in the log of a launch."""

    def usual(drive: Drive, *steps: Callable[[], object]) -> list[bool]:
        for step in steps:
            step()
        return [outcome.usual for outcome in drive.outcomes[-len(steps) :]]

    drive = in_phase(Phase.VERIFYING, 3)
    probes = [lambda: drive.probe(0), lambda: drive.probe(1), lambda: drive.probe(2, 0)]
    assert usual(drive, *probes) == [True, True, False]
    drive = in_phase(Phase.ARMING)
    acks = [lambda: drive.ack(0), lambda: drive.ack(1), lambda: drive.progress(0, "step 1")]
    assert usual(drive, *acks) == [True, False, True]
    drive = in_phase(Phase.RUNNING)
    ends = [lambda: drive.exit(0, 0), lambda: drive.leave(0), lambda: drive.exit(1, 1)]
    assert usual(drive, *ends) == [True, True, False]
    drive = in_phase(Phase.RUNNING, 3)
    failure = [lambda: drive.exit(0, 1), lambda: drive.stop(1), lambda: drive.leave(2)]
    assert usual(drive, *failure) == [False, True, False]
    drive = in_phase(Phase.RUNNING)
    assert usual(drive, lambda: drive.news(1, SlotState.QUEUED)) == [True]


# --- led runs: node 0 alone has a program, and its end is the run's -------------------------------


def test_a_led_run_has_succeeded_when_the_program_of_node_0_ended_well() -> None:
    drive = in_phase(Phase.RUNNING, 3, led=True).wait(30)
    assert drive.phase == "running"
    drive.exit(0, 0, ran_seconds=30.0)
    assert (drive.result.status, drive.result.exit_code) == ("ok", 0)
    assert drive.states() == ["exited", "running", "running"]
    assert drive.reasons[-1] == "node 0 (host0) ended with exit code 0"
    assert drive.result.message == (
        "the program of node 0, which led 3 nodes, ended with exit code 0"
    )


def test_a_led_run_of_one_node_leads_nobody() -> None:
    drive = in_phase(Phase.RUNNING, 1, led=True)
    drive.exit(0, 0)
    assert drive.result.status == "ok"
    assert drive.result.message == "the node ended with exit code 0"


def test_a_serving_node_that_reports_an_end_is_not_the_end_of_the_run() -> None:
    drive = in_phase(Phase.RUNNING, 3, led=True)
    drive.exit(1, 0)
    assert (drive.phase, drive.run.stop) == ("running", False)
    drive.exit(0, 0)
    assert drive.result.status == "ok"


def test_a_serving_node_that_is_lost_ends_the_run_though_node_0_then_ends_well() -> None:
    drive = in_phase(Phase.RUNNING, 3, led=True)
    drive.leave(2)
    assert (drive.phase, drive.run.stop) == ("running", True)
    drive.exit(0, 0)
    drive.exit(1, 0, stopped=True)
    assert (drive.result.status, drive.result.code) == ("failed", "node_lost")
    assert drive.result.slot == 2
