"""Before the go: nodes that fail or are lost, min:max, arming, slots that nobody fills; plans."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from rendezvous.run import events
from rendezvous.run.gathering import Recovery, recovery_of
from rendezvous.run.phases import RULES, Admits, Awaits, PhaseRules
from rendezvous.run.protocol import launcher_gone
from rendezvous.run.verifying import GatherMore, Verify, plan_checks
from rendezvous.wire.errors import Mismatch
from rendezvous.wire.node import Job
from rendezvous.wire.run import Limits, Phase, Result, SlotNews, SlotState
from tests.support.driver import MEMLOCK, Drive, in_phase, make_spec


@pytest.mark.parametrize(
    ("phase", "states"),
    [
        (Phase.GATHERING, ["joined", "-", "-"]),
        (Phase.VERIFYING, ["joined", "-", "joined"]),
        (Phase.ARMING, ["joined", "-", "joined"]),
    ],
)
def test_a_node_that_is_lost_is_submitted_again(phase: Phase, states: list[str]) -> None:
    drive = in_phase(phase, 3).wait(16, silent=[1])
    assert (drive.phase, drive.table_slots(), drive.run.digest) == ("gathering", None, "")
    assert (drive.slot(1).wanted, drive.slot(1).retries, drive.states()) == (2, 1, states)
    assert drive.reasons[-1].endswith(
        "failed before the start: it was silent for 15 s: host, network or agent is down or "
        "paused; it is submitted again"
    )


@pytest.mark.parametrize("phase", [Phase.GATHERING, Phase.VERIFYING, Phase.ARMING])
def test_a_node_that_is_lost_with_no_retry_left_ends_the_run(phase: Phase) -> None:
    drive = in_phase(phase, 3, submit_retries=0).wait(16, silent=[1])
    assert (drive.result.slot, drive.result.hostname) == (1, "host1")
    assert (drive.result.status, drive.result.exit_code) == ("failed", 86)
    assert drive.result.code == "node_lost"
    assert "(host1" in drive.result.message
    assert drive.result.message.endswith(
        "failed before the start: it was silent for 15 s: host, network or agent is down or paused"
    )


def test_a_worker_run_that_is_preempted_with_no_retry_left_ends_the_run_with_that_cause() -> None:
    drive = Drive(make_spec(2, submit_retries=0)).gather(0)
    drive.news(1, SlotState.SUBMITTING)
    drive.news(1, SlotState.FAILED, cause="preempted")
    assert (drive.result.status, drive.result.exit_code) == ("failed", 88)
    assert drive.result.code == "preempted"


def test_what_another_worker_run_would_do_no_better_is_not_submitted_again() -> None:
    drive = Drive(make_spec(2)).gather(0)
    drive.news(1, SlotState.SUBMITTING)
    drive.news(1, SlotState.FAILED, cause="scheduler_failed", detail="no rdzv")
    assert drive.failure == (83, "scheduler_failed", 1)


@pytest.mark.parametrize("phase", [Phase.GATHERING, Phase.VERIFYING, Phase.ARMING])
def test_where_nobody_can_submit_again_a_lost_node_is_waited_for_once(phase: Phase) -> None:
    drive = in_phase(phase, 3, managed=False).wait(16, silent=[1])
    assert drive.phase == "gathering"
    assert drive.reasons[-1].endswith(
        "; the run waits for it, because its platform may start it again"
    )
    drive.join(1, addresses=["10.0.0.77"], attempt=2)
    assert drive.slot(1).problem == ""
    drive.wait(16, silent=[1])
    assert (drive.result.exit_code, drive.result.slot) == (86, 1)


@pytest.mark.parametrize("phase", [Phase.GATHERING, Phase.VERIFYING, Phase.ARMING])
def test_where_nobody_can_submit_again_a_node_that_was_ended_may_come_again(phase: Phase) -> None:
    drive = in_phase(phase, 3, managed=False)
    drive.exit(1, 143)
    assert drive.phase == "gathering"


@pytest.mark.parametrize("phase", [Phase.GATHERING, Phase.VERIFYING, Phase.ARMING])
def test_where_nobody_can_submit_again_a_node_that_failed_may_not(phase: Phase) -> None:
    drive = in_phase(phase, 3, managed=False)
    drive.exit(1, 82)
    assert drive.failure == (82, "agent_failed", 1)


@pytest.mark.parametrize("phase", [Phase.GATHERING, Phase.VERIFYING, Phase.ARMING])
def test_an_agent_that_ends_is_submitted_again(phase: Phase) -> None:
    drive = in_phase(phase, 3)
    drive.exit(1, 143)
    assert (drive.phase, drive.slot(1).wanted, drive.slot(1).node) == ("gathering", 2, None)
    assert drive.slot(1).problem == "its agent ended with code 143"


@pytest.mark.parametrize("phase", [Phase.VERIFYING, Phase.ARMING])
def test_a_newer_generation_that_takes_a_slot_begins_a_new_epoch(phase: Phase) -> None:
    drive = in_phase(phase)
    drive.join(1, 2, hostname="spare")
    assert (drive.phase, drive.run.epoch) == ("verifying", 2)
    assert (drive.states(), sorted(drive.run.waiting_for)) == (["joined", "joined"], [0, 1])
    assert drive.reasons[-1] == (
        "spare joined in slot 1 (2 of 2), from 10.0.0.2, as incarnation 2, replacing host1"
    )


def test_a_newer_generation_that_takes_a_slot_while_gathering_disturbs_nobody() -> None:
    drive = Drive(make_spec(3, least=2)).gather(0, 1)
    assert (drive.run.seq, drive.run.attempt.enough_since) == (1, 100.0)
    drive.wait(5)
    drive.join(1, 2)
    assert (drive.run.seq, drive.run.attempt.enough_since) == (1, 100.0)


def test_one_failure_that_agent_and_scheduler_tell_of_costs_one_retry() -> None:
    drive = Drive(make_spec()).gather(1)
    drive.news(1, SlotState.RUNNING)
    assert drive.reasons[-1] == "slot 1: running"
    drive.exit(1, 1, message="its GPU is gone")
    assert drive.slot(1).wanted == 2
    drive.news(1, SlotState.FAILED, detail="exit code 1")
    assert (drive.phase, drive.slot(1).retries, drive.slot(1).wanted) == ("gathering", 1, 2)
    assert drive.slot(1).problem == "its GPU is gone"
    assert drive.reasons[-1] == "slot 1: failed (exit code 1)"


def test_a_node_whose_worker_run_ended_is_submitted_again() -> None:
    drive = Drive(make_spec()).gather(1)
    drive.news(1, SlotState.ENDED, detail="preempted")
    assert drive.states() == ["-", "-"]
    assert drive.reasons[-1] == (
        "slot 1 (host1) failed before the start: its worker run ended: preempted; it is "
        "submitted again"
    )


def test_a_newer_worker_run_that_dies_does_not_harm_the_node_that_it_was_to_replace() -> None:
    drive = in_phase(Phase.ARMING)
    drive.news(1, SlotState.SUBMITTING, 2)
    drive.news(1, SlotState.FAILED, 2)
    assert (drive.phase, drive.states()) == ("arming", ["verified", "verified"])
    drive.arm()
    assert drive.phase == "running"


def test_what_the_scheduler_said_of_an_older_worker_run_is_not_held_against_a_newer_one() -> None:
    drive = in_phase(Phase.GATHERING)
    drive.news(1, SlotState.FAILED, detail="bad node")
    drive.join(1, 2)
    drive.verify().arm().wait(14, silent=[1])
    assert (drive.slot(1).state, drive.slot(1).detail) == ("none", "")
    assert drive.states() == ["running", "running"]


def test_the_cause_of_a_submission_that_fails_is_said_once_before_the_end_and_at_it() -> None:
    drive = Drive(make_spec()).gather(0)
    drive.news(1, SlotState.SUBMITTING)
    drive.news(1, SlotState.SUBMITTING, detail="no such queue")
    assert drive.reasons[-1] == "slot 1 could not be submitted yet: no such queue"
    drive.news(1, SlotState.FAILED, detail="no such queue")
    assert drive.reasons[-1] == (
        "slot 1 failed before the start: its submission failed; it is submitted again"
    )
    assert drive.waits().endswith("slot 1 waiting to be submitted again")
    drive.news(1, SlotState.SUBMITTING, 2)
    assert drive.waits().endswith("slot 1 being submitted again")
    drive.news(1, SlotState.FAILED, 2, detail="no such queue")
    assert drive.failure == (83, "scheduler_failed", 1)
    assert drive.result.message == (
        "slot 1 failed before the start: its submission failed: no such queue"
    )


def test_another_cause_is_said_as_well() -> None:
    drive = Drive(make_spec()).gather(0)
    drive.news(1, SlotState.SUBMITTING)
    drive.news(1, SlotState.FAILED, detail="no such queue")
    assert drive.reasons[-1] == (
        "slot 1 failed before the start: its submission failed: no such queue; it is "
        "submitted again"
    )
    drive.news(1, SlotState.SUBMITTING, 2)
    drive.news(1, SlotState.FAILED, 2, detail="the queue is full")
    assert drive.result.exit_code == 83
    assert drive.result.message == (
        "slot 1 failed before the start: its submission failed: the queue is full"
    )


def test_a_node_that_joined_has_the_causes_before_it_forgotten() -> None:
    drive = Drive(make_spec()).gather(0)
    drive.news(1, SlotState.SUBMITTING)
    drive.news(1, SlotState.FAILED, detail="no image")
    drive.news(1, SlotState.SUBMITTING, 2)
    drive.join(1, 2)
    assert drive.slot(1).told == ""


def test_what_was_submitted_has_ended_before_it_joined() -> None:
    drive = Drive(make_spec(2, submit_retries=0)).gather(0)
    drive.news(1, SlotState.SUBMITTED, handle="n17")
    drive.news(1, SlotState.FAILED, detail="no image")
    assert drive.result.message == (
        "slot 1 failed before the start: its worker run ended before it joined: no image"
    )


def test_without_verify_the_table_is_sealed_as_soon_as_all_are_in_and_again_after_a_loss() -> None:
    drive = Drive(make_spec(3, verify=False)).gather(0, 1)
    assert drive.phase == "gathering"
    drive.join(2)
    assert (drive.phase, drive.run.epoch) == ("arming", 1)
    assert drive.states() == ["verified", "verified", "verified"]
    drive.leave(1)
    assert (drive.phase, drive.table_slots()) == ("gathering", None)
    drive.join(1, 2)
    assert (drive.phase, drive.run.epoch) == ("arming", 2)
    drive.arm()
    assert drive.phase == "running"


def test_the_last_call_begins_when_enough_are_in_and_goes_on_without_the_others() -> None:
    drive = Drive(make_spec(4, least=2, last_call_seconds=30)).gather(0).wait(100)
    drive.join(2)
    drive.wait(29)
    assert drive.run.epoch == 0
    drive.wait(1)
    assert (drive.phase, drive.run.epoch) == ("verifying", 1)
    assert drive.reasons[-1] == "the last call ended with 2 nodes"
    drive.verify().arm()
    assert drive.table_slots() == [0, 2]


def test_a_replacement_after_the_last_call_begins_another_one() -> None:
    drive = Drive(make_spec(3, least=2, last_call_seconds=5)).gather(0, 1).wait(5)
    assert drive.phase == "verifying"
    drive.join(1, 2)
    assert (drive.phase, drive.run.attempt.enough_since) == ("gathering", 105.0)


def test_the_last_call_needs_slot_0() -> None:
    drive = Drive(make_spec(4, least=2)).gather(1, 2, 3).wait(60)
    assert (drive.phase, drive.run.attempt.enough_since) == ("gathering", None)
    drive.join(0)
    assert drive.phase == "verifying"


def test_the_last_call_ends_when_a_loss_makes_them_too_few() -> None:
    drive = Drive(make_spec(3, least=2)).gather(0, 1).wait(16, silent=[1])
    assert drive.run.attempt.enough_since is None
    drive.wait(60)
    assert drive.phase == "gathering"


def test_a_slot_that_cannot_be_had_is_spared_when_the_others_are_enough() -> None:
    drive = Drive(make_spec(3, least=2, submit_retries=0)).gather(0)
    drive.news(2, SlotState.FAILED)
    assert drive.reasons[-1] == (
        "slot 2 failed before the start: its submission failed; the run does not need it"
    )
    drive.join(1)
    drive.wait(30)
    assert drive.phase == "verifying"


def test_a_slot_that_cannot_be_spared_ends_the_run() -> None:
    drive = Drive(make_spec(3, least=2, submit_retries=0)).gather(0)
    drive.news(2, SlotState.FAILED)
    drive.news(1, SlotState.FAILED)
    assert (drive.result.exit_code, drive.result.slot) == (83, 1)


def test_a_spared_slot_that_is_filled_after_all_counts_again() -> None:
    drive = Drive(make_spec(3, least=2, submit_retries=0)).gather(0)
    drive.news(2, SlotState.FAILED)
    drive.join(2)
    assert not drive.slot(2).given_up
    drive.news(1, SlotState.FAILED)
    assert drive.run.result is None
    drive.wait(30)
    assert drive.phase == "verifying"


def test_a_spared_slot_that_is_submitted_again_counts_again() -> None:
    drive = Drive(make_spec(3, least=2, submit_retries=0)).gather(0)
    drive.news(2, SlotState.FAILED)
    drive.news(2, SlotState.SUBMITTING, 2)
    drive.news(1, SlotState.FAILED)
    assert drive.run.result is None


@pytest.mark.parametrize(
    ("submit_retries", "wanted_of_2", "given_up_of_2"), [(0, 1, True), (1, 2, False)]
)
def test_a_worker_run_of_a_slot_outside_the_sealed_table_dies_and_the_table_stays(
    submit_retries: int, wanted_of_2: int, given_up_of_2: bool
) -> None:
    drive = Drive(make_spec(3, least=2, submit_retries=submit_retries, last_call_seconds=1))
    drive.gather(0, 1).wait(1).verify()
    assert (drive.phase, drive.run.seq) == ("arming", 3)
    drive.news(2, SlotState.FAILED)
    assert (drive.phase, drive.run.epoch, drive.run.seq) == ("arming", 1, 3)
    assert (drive.slot(2).wanted, drive.slot(2).given_up) == (wanted_of_2, given_up_of_2)


def test_a_node_that_does_not_acknowledge_ends_the_run_after_the_time_out() -> None:
    drive = in_phase(Phase.ARMING, 2, arm_timeout_seconds=10)
    drive.ack(0)
    drive.wait(10)
    assert (drive.result.exit_code, drive.result.code) == (82, "arming_failed")
    assert drive.result.message == (
        "node 1 (host1) did not get ready within 10 s, though still connected"
    )


def test_a_taken_port_gives_a_new_epoch_with_a_free_one() -> None:
    drive = in_phase(Phase.ARMING)
    drive.ack(1)
    drive.refuse(0, "port_taken", "master port 29500 is taken", free_port=29507)
    assert (drive.phase, drive.run.epoch, sorted(drive.run.waiting_for)) == ("arming", 2, [0, 1])
    assert (drive.states(), drive.table.master_port) == (["verified", "verified"], 29507)
    assert drive.reasons[-1] == (
        "node 0 (host0) cannot start: master port 29500 is taken; trying master port 29507"
    )
    drive.arm()
    assert drive.phase == "running"


@pytest.mark.parametrize(("master_port", "port"), [(41000, 41001), (65535, 29500)])
def test_a_taken_port_without_a_free_one_is_followed_by_the_next(
    master_port: int, port: int
) -> None:
    drive = Drive(make_spec(1))
    drive.join(0, master_port=master_port)
    drive.verify()
    drive.refuse(0, "port_taken", "taken")
    assert drive.table.master_port == port


@pytest.mark.parametrize(("master_port", "port"), [(None, 41000), (29999, 29999)])
def test_a_master_port_that_rank_0_found_free_is_used_unless_one_is_fixed(
    master_port: int | None, port: int
) -> None:
    drive = Drive(make_spec(2, master_port=master_port))
    drive.join(0, master_port=41000)
    drive.join(1, master_port=42000)
    drive.verify()
    assert drive.table.master_port == port


def test_a_fixed_port_that_is_taken_ends_the_run() -> None:
    drive = in_phase(Phase.ARMING, 2, master_port=29999)
    drive.refuse(0, "port_taken", "master port 29999 is taken", free_port=30000)
    assert (drive.result.status, drive.result.exit_code) == ("failed", 82)
    assert (drive.result.code, drive.result.slot, drive.result.node) == ("arming_failed", 0, 0)
    assert drive.result.hostname == "host0"
    assert drive.result.message == "node 0 (host0) cannot start: master port 29999 is taken"
    assert drive.result.hint == "choose another with --master-port"


@pytest.mark.parametrize(("code", "exit_code"), [(77, 77), (0, 1)])
def test_an_exit_with_no_retry_left_never_ends_the_run_well(code: int, exit_code: int) -> None:
    drive = in_phase(Phase.ARMING, 2, submit_retries=0)
    drive.exit(1, code, message="the disk is full", tail=["a", "b"], log="/log")
    assert (drive.result.status, drive.result.exit_code) == ("failed", exit_code)
    assert (drive.result.code, drive.result.slot, drive.result.node) == ("agent_failed", 1, 1)
    assert (drive.result.hostname, drive.states()) == ("host1", ["verified", "lost"])
    assert (drive.result.tail, drive.result.log) == (["a", "b"], "/log")
    assert drive.result.message == "node 1 (host1) failed before the start: the disk is full"


@pytest.mark.parametrize("code", ["bad_table", "hosts", "contract"])
def test_another_refusal_ends_the_run_at_once(code: str) -> None:
    drive = in_phase(Phase.ARMING)
    drive.refuse(1, code, "it has no file")
    assert (drive.result.exit_code, drive.result.code) == (82, "arming_failed")
    assert (drive.result.slot, drive.result.node, drive.result.hostname) == (1, 1, "host1")
    assert drive.result.message == "node 1 (host1) cannot start: it has no file"


def test_ports_are_not_tried_for_ever() -> None:
    drive = in_phase(Phase.ARMING, 1)
    for tried in range(32):
        drive.refuse(0, "port_taken", "taken", free_port=30_000 + tried)
        assert drive.phase is Phase.ARMING
    drive.refuse(0, "port_taken", "taken")
    assert (drive.result.exit_code, drive.run.epoch) == (82, 33)


# --- the join time-out ----------------------------------------------------------------------------


def test_a_missing_slot_is_named_with_what_is_known_of_it() -> None:
    drive = Drive(make_spec(4, join_timeout_seconds=600)).gather(0, 1, 3)
    drive.news(2, SlotState.SUBMITTING, name="rdzv-x-2")
    drive.news(2, SlotState.RUNNING, detail="node017")
    drive.wait(599)
    assert drive.run.result is None
    drive.wait(1)
    assert (drive.result.status, drive.result.exit_code) == ("failed", 80)
    assert (drive.result.code, drive.result.slot, drive.result.node) == ("join_timeout", 2, None)
    assert drive.result.hostname == ""
    assert drive.result.message == (
        "run 'r' expected 4 nodes and 3 joined within 600 s: slot 2 (worker run rdzv-x-2) "
        "never reached the registry; the scheduler reports running: node017"
    )
    assert drive.result.hint == (
        "see the log of the missing worker run; it must be able to reach the registry's address"
    )


def test_what_fails_again_and_again_is_named_before_the_end_and_at_it() -> None:
    drive = Drive(make_spec(2, join_timeout_seconds=5)).gather(0)
    drive.news(1, SlotState.SUBMITTING, name="x-1")
    drive.news(1, SlotState.SUBMITTING, detail="the API answered 500")
    assert drive.reasons[-1] == "slot 1 could not be submitted yet: the API answered 500"
    assert drive.waits() == ("waiting for 1 of 2 nodes, 5 s left: slot 1 being submitted again")
    drive.wait(5)
    assert drive.result.code == "join_timeout"
    assert drive.result.message.endswith(
        "slot 1 (worker run x-1) was still being submitted: the API answered 500"
    )
    assert drive.result.hint == (
        "the scheduler has not accepted the worker run yet; launch again when it responds"
    )


@pytest.mark.parametrize(
    ("nodes", "joined", "managed", "news", "end"),
    [
        (2, [0], True, [], "'r' expected 2 nodes and 1 joined within 5 s: slot 1 was {never}"),
        (9, [0], True, [], "1 joined within 5 s: slots 1-8 were {never}"),
        (3, [0], False, [], "1 joined within 5 s: slots 1-2 {missed}"),
        (64, [0, 1, 2, 42], False, [], "4 joined within 5 s: slots 3-41, 43-63 {missed}"),
        (2, [0], True, [SlotState.NONE], "slot 1 {missed}"),
        (2, [0], True, [SlotState.UNKNOWN], "slot 1 {missed}"),
    ],
)
def test_missing_slots_of_which_the_same_is_known_are_one_group(
    nodes: int, joined: list[int], managed: bool, news: list[SlotState], end: str
) -> None:
    """Where nobody submits, none was to be submitted; a scheduler that knows nothing is silent."""
    drive = Drive(make_spec(nodes, managed=managed, join_timeout_seconds=5)).gather(*joined)
    for state in news:
        drive.news(1, state)
    drive.wait(5)
    words = {"never": "never submitted", "missed": "never reached the registry"}
    assert drive.result.message.endswith(end.format(**words))
    if "{never}" in end:
        assert drive.result.hint == "see the earlier messages of the launcher for the cause"


def test_whoever_was_awaited_for_a_moment_less_is_named_as_well() -> None:
    drive = Drive(make_spec(4, join_timeout_seconds=5)).gather(0)
    drive.news(3, SlotState.SUBMITTING)
    drive.news(3, SlotState.QUEUED)
    drive.wait(0.5)
    drive.news(3, SlotState.RUNNING)
    drive.wait(4.5)
    assert drive.result.message.endswith(
        ": slots 1-2 were never submitted; slot 3 never reached the registry; the scheduler "
        "reports running"
    )
    assert drive.result.slot == 1


def test_where_a_worker_run_was_submitted_a_longer_time_out_may_do() -> None:
    drive = Drive(make_spec(2, join_timeout_seconds=0.5)).gather(0)
    drive.news(1, SlotState.SUBMITTING)
    drive.news(1, SlotState.SUBMITTED)
    drive.wait(0.5)
    assert drive.result.hint.startswith("launch again with a larger --join-timeout; ")


def test_what_differs_by_a_number_or_a_name_alone_is_one_group_with_an_example() -> None:
    drive = Drive(make_spec(4, join_timeout_seconds=5)).gather(0)
    drive.news(1, SlotState.SUBMITTING, name="x-1")
    drive.news(1, SlotState.QUEUED, detail="n17")
    drive.news(2, SlotState.SUBMITTING, name="x-2")
    drive.news(2, SlotState.RUNNING, detail="on ab17", handle="ab")
    drive.news(3, SlotState.SUBMITTING, name="x-3")
    drive.news(3, SlotState.RUNNING, detail="on cd18", handle="cd")
    drive.news(1, SlotState.RUNNING, detail="on ef16", handle="ef")
    drive.wait(5)
    assert (
        ": slots 1-3, such as slot 1, never reached the registry; the scheduler reports "
    ) in drive.result.message
    assert drive.result.message.endswith(": on ef16")


def test_four_reasons_are_three_and_a_number() -> None:
    drive = Drive(make_spec(6, join_timeout_seconds=5)).gather(0)
    drive.news(1, SlotState.SUBMITTING)
    drive.news(2, SlotState.SUBMITTING)
    drive.news(2, SlotState.RUNNING)
    drive.news(3, SlotState.SUBMITTING)
    drive.news(3, SlotState.SUBMITTED)
    drive.news(4, SlotState.SUBMITTING)
    drive.news(4, SlotState.UNKNOWN)
    drive.wait(5)
    assert ": slot 1 was still being submitted; slot 2 never reached " in drive.result.message
    assert "; slot 3 never " in drive.result.message
    assert drive.result.message.endswith("; and 2 more")


def test_a_trouble_of_the_registry_is_told_instead_of_blaming_who_is_missing() -> None:
    drive = Drive(make_spec(9, join_timeout_seconds=5)).gather(0).wait(4.75)
    drive.time_out(trouble="no more connections")
    assert drive.result.message.endswith("1 joined within 5 s: no more connections")
    assert drive.result.hint == ""


def test_time_in_the_scheduler_s_queue_does_not_count() -> None:
    drive = Drive(make_spec(2, join_timeout_seconds=60)).gather(0)
    drive.news(1, SlotState.SUBMITTING)
    drive.wait(50)
    drive.news(1, SlotState.QUEUED, detail="Priority")
    drive.wait(1000)
    drive.news(1, SlotState.RUNNING)
    drive.wait(9)
    assert drive.run.result is None
    drive.wait(1)
    assert drive.result.code == "join_timeout"


def test_the_time_before_each_stay_in_the_queue_counts() -> None:
    drive = Drive(make_spec())
    drive.news(1, SlotState.RUNNING)
    drive.wait(10)
    drive.news(1, SlotState.QUEUED)
    drive.wait(100)
    assert drive.slot(1).waited == 10.0
    drive.news(1, SlotState.RUNNING)
    drive.wait(20)
    drive.news(1, SlotState.QUEUED)
    drive.wait(100)
    assert drive.slot(1).waited == 30.0


def test_the_clock_of_a_filled_slot_stands() -> None:
    drive = Drive(make_spec())
    drive.news(1, SlotState.SUBMITTING)
    drive.wait(10)
    drive.join(1)
    drive.wait(10)
    assert (drive.slot(1).waited, drive.slot(1).waiting_since) == (10.0, None)


def test_a_new_submission_starts_its_slot_s_clock_again() -> None:
    drive = Drive(make_spec(2, join_timeout_seconds=60)).gather(0).wait(50)
    drive.news(1, SlotState.SUBMITTING, 2)
    drive.wait(59)
    assert drive.run.result is None
    drive.wait(1)
    assert drive.result.code == "join_timeout"
    assert drive.result.message.endswith(": slot 1 was still being submitted")


def test_a_slot_that_was_lost_starts_its_clock_again_and_the_loss_is_told() -> None:
    drive = Drive(make_spec(2, join_timeout_seconds=60)).gather(0)
    drive.news(1, SlotState.SUBMITTING)
    drive.wait(50)
    drive.join(1)
    drive.exit(1, 1, message="its disk is full")
    drive.wait(59)
    assert drive.run.result is None
    drive.wait(1)
    assert drive.result.message.endswith(
        "slot 1 was still being submitted; before that: its disk is full"
    )


def test_a_slot_above_the_minimum_is_nobody_s_fault() -> None:
    drive = Drive(make_spec(4, least=2, join_timeout_seconds=60)).gather(0)
    drive.news(2, SlotState.QUEUED)
    drive.news(3, SlotState.QUEUED)
    drive.wait(100)
    assert drive.run.result is None
    drive.news(3, SlotState.RUNNING)
    drive.wait(60)
    assert drive.run.result is None
    drive.news(2, SlotState.RUNNING)
    drive.wait(60)
    assert drive.result.code == "join_timeout"
    assert drive.result.message.startswith("run 'r' expected 2:4 nodes and 1 joined within 60 s")


def test_a_spared_slot_does_not_count_among_those_that_may_come() -> None:
    drive = Drive(make_spec(3, least=2, submit_retries=0, join_timeout_seconds=60)).gather(0)
    drive.news(1, SlotState.QUEUED)
    drive.news(2, SlotState.FAILED, detail="bad node")
    drive.news(1, SlotState.RUNNING)
    drive.wait(60)
    assert drive.result.code == "join_timeout"
    assert "bad node" in drive.result.message


def test_a_node_of_another_job_ends_the_run_at_once_when_its_slot_is_empty() -> None:
    drive = Drive(make_spec()).gather(0)
    with pytest.raises(Mismatch):
        drive.join(1, job=Job(nnodes="3"))
    drive.wait(0)
    assert (drive.result.code, drive.result.exit_code, drive.result.slot) == ("mismatch", 77, 1)
    assert drive.result.message == (
        "slot 1 (host1) was started with --nnodes 3, but run 'r' has --nnodes 2"
    )
    assert drive.result.hint == "give every node the same number of nodes (--nnodes or NUM_NODES)"


def test_a_node_of_another_job_does_not_harm_the_node_that_has_the_slot() -> None:
    drive = Drive(make_spec()).gather(1)
    with pytest.raises(Mismatch):
        drive.join(1, attempt=2, job=Job(nnodes="3"))
    assert (drive.phase, drive.states()) == ("gathering", ["-", "joined"])
    assert drive.slot(1).problem == ""


def test_without_its_launcher_nothing_is_known_of_the_queue_any_more() -> None:
    drive = Drive(make_spec(3))
    for slot, state in ((0, SlotState.RUNNING), (1, SlotState.QUEUED)):
        drive.news(slot, state, 2)
    words = "it was queued when its launcher last reported"
    news = SlotNews(generation=2, state=SlotState.UNKNOWN, detail=words)
    assert launcher_gone(drive.run) == [events.SlotChanged(slot=1, news=news)]
    drive.apply(events.Cancelled(reason="enough"))
    assert launcher_gone(drive.run) == []


# --- refusals of nodes that have not joined -------------------------------------------------------


@pytest.mark.parametrize("managed", [True, False])
def test_a_node_that_refuses_to_join_ends_the_run_at_once(managed: bool) -> None:
    drive = Drive(make_spec(2, managed=managed)).gather(0)
    drive.refuse_to_join(1)
    assert (drive.result.code, drive.result.exit_code, drive.result.slot) == ("refused", 2, 1)
    assert (drive.result.hostname, drive.result.status) == ("host1", "failed")
    assert drive.result.message == "slot 1 (host1) cannot take part: there is no GPU"
    assert drive.result.hint == "ask for one"


def test_a_node_that_another_machine_may_cure_is_submitted_again_as_often_as_any() -> None:
    drive = Drive(make_spec())
    drive.news(1, SlotState.SUBMITTING)
    drive.refuse_to_join(1, retryable=True)
    assert drive.run.result is None
    assert drive.reasons[-1].endswith("; it is submitted again")
    with drive.unchanged():
        drive.refuse_to_join(1, retryable=True)
    drive.news(1, SlotState.FAILED)
    assert (drive.run.result, drive.slot(1).wanted) == (None, 2)
    drive.news(1, SlotState.SUBMITTING, 2)
    drive.refuse_to_join(1, 2, retryable=True)
    assert (drive.result.code, drive.result.slot) == ("refused", 1)


def test_a_refusal_of_a_worker_run_of_which_nothing_was_told_begins_its_generation() -> None:
    drive = Drive(make_spec())
    drive.news(1, SlotState.QUEUED, name="j1", detail="Priority")
    drive.refuse_to_join(1, 2, retryable=True)
    assert (drive.slot(1).generation, drive.slot(1).wanted, drive.slot(1).name) == (2, 3, "")
    assert drive.slot(1).detail == ""


def test_a_slot_for_which_a_spare_is_there_is_dropped_where_its_node_refuses() -> None:
    drive = Drive(make_spec(2, spares=1)).gather(0)
    drive.refuse_to_join(1)
    assert drive.reasons[-1] == (
        "slot 1 (host1) cannot take part: there is no GPU; the run does not need it"
    )
    drive.join(2)
    drive.verify().arm()
    assert drive.phase == "running"


def test_a_launcher_s_own_child_that_ends_before_it_joins_is_not_waited_for() -> None:
    drive = Drive(make_spec(2, managed=False)).gather(1)
    drive.news(0, SlotState.RUNNING)
    drive.news(0, SlotState.FAILED, detail="pid 7: no such option")
    assert (drive.result.code, drive.result.slot) == ("scheduler_failed", 0)
    assert drive.result.message.endswith("pid 7: no such option")


def test_a_refusal_that_an_older_version_has_kept_is_replayed_as_it_was() -> None:
    drive = Drive(make_spec(2, spares=1))
    kept = events.Refused(slot=1, generation=1, code="mismatch", reason="another job")
    assert drive.apply(kept).reason == "refused: another job"
    assert (drive.result.code, drive.result.exit_code) == ("mismatch", 77)


# --- what holds in each phase, and what follows on a state: planning changes nothing --------------


@pytest.mark.parametrize(
    ("bad", "spares", "given_up", "step", "out"),
    [
        (None, 1, False, Verify, []),
        (1, 2, False, Verify, [1]),
        (1, 1, False, GatherMore, []),
        (0, 1, False, Result, []),
        (1, 1, True, Result, []),
    ],
)
def test_checks_leave_out_gather_more_or_end_the_run(
    bad: int | None, spares: int, given_up: bool, step: type[Any], out: list[int]
) -> None:
    drive = Drive(make_spec(2, spares=spares))
    for slot in range(1 + spares):
        drive.join(slot, findings=[MEMLOCK] if slot == bad else [])
    drive.run.slots[-1].given_up = given_up
    before = copy.deepcopy(drive.run)
    plan = plan_checks(drive.run, drive.now)
    assert drive.run == before
    assert type(plan.step) is step
    assert [slot for group in plan.left_out for slot in group] == out


def test_how_a_run_goes_on_without_a_node() -> None:
    run = in_phase(Phase.ARMING, 2, spares=1).run
    slot = run.slots[1]
    assert recovery_of(run, slot, again=False) is Recovery.SPARED
    assert recovery_of(run, run.slots[0], again=False) is None
    assert recovery_of(run, slot, again=True) is Recovery.RESUBMITTED
    run.spec = run.spec.model_copy(update={"managed": False})
    assert recovery_of(run, slot, again=True) is Recovery.RESTARTED
    slot.retries = run.spec.limits.submit_retries
    assert recovery_of(run, slot, again=True) is Recovery.SPARED
    slot.generation = 2
    assert recovery_of(run, slot, again=True) is Recovery.ON_ITS_WAY
    slot.state = SlotState.FAILED
    assert recovery_of(run, slot, again=True) is Recovery.SPARED
    assert recovery_of(run, run.slots[2], again=True) is Recovery.LEFT_OUT


@pytest.mark.parametrize("rules", RULES.values(), ids=list(RULES))
def test_the_rules_of_a_phase_are_of_one_piece(rules: PhaseRules) -> None:
    assert list(RULES) == list(Phase)
    asks = rules.awaits is Awaits.REPORTS
    assert asks == bool(rules.task) == (rules.limit is not None) == (rules.shows is not None)
    assert rules.limit is None or rules.limit in Limits.model_fields
    assert rules.is_forming == (rules.admits is not Admits.NOBODY)  # nobody joins programs that run
