"""The run's state machine: phase by phase, failure by failure, and as a whole."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from rendezvous.run import events
from rendezvous.run.moves import Outcome
from rendezvous.run.protocol import apply, launcher_gone
from rendezvous.run.state import create
from rendezvous.run.views import reason
from rendezvous.wire.errors import ExitCode, Mismatch, RequestError
from rendezvous.wire.node import Finding, Job
from rendezvous.wire.reports import AckReport, ExitReport, LeaveReport, Report
from rendezvous.wire.run import NodeState, Phase, Result, SlotNews, SlotState
from rendezvous.wire.table import EndpointTable, TableRow
from tests.support.driver import FEW, LAUNCH, Drive, in_phase, make_probe, make_spec, sha

ETH0 = "eth0, 10.0.0.0/24, Ethernet, IPv4"
BEFORE_GO = [Phase.GATHERING, Phase.VERIFYING, Phase.ARMING]


# --- the straight way -----------------------------------------------------------------------------


def test_a_run_goes_from_the_first_join_to_a_good_end() -> None:
    drive = Drive(make_spec(2))
    drive.join(1, nproc_per_node=2)
    assert (drive.phase, drive.run.epoch, drive.states()) == ("gathering", 0, ["-", "joined"])
    drive.join(0)
    assert (drive.phase, drive.run.epoch, drive.states()) == ("verifying", 1, ["joined"] * 2)
    drive.probe(0)
    assert (drive.phase, drive.states()) == ("verifying", ["verified", "joined"])
    drive.verify()
    assert (drive.phase, drive.states()) == ("arming", ["verified"] * 2)
    drive.ack(0)
    assert (drive.phase, drive.states()) == ("arming", ["armed", "verified"])
    drive.ack(1)
    assert (drive.phase, drive.states()) == ("running", ["running"] * 2)
    assert drive.run.table == EndpointTable(
        run="r",
        launch_id=LAUNCH,
        epoch=1,
        master_address="10.0.0.1",
        master_port=29_500,
        network=ETH0,
        transport="Socket",
        rows=[row(0, nproc_per_node=1), row(1, nproc_per_node=2)],
    )
    assert drive.run.digest == drive.run.table.digest()
    drive.wait(60)
    drive.exit(0, 0, ran_seconds=59.6)
    drive.exit(1, 0, ran_seconds=58.0)
    assert drive.result == Result(
        status="ok", exit_code=0, message="all 2 nodes ended with exit code 0 after 60 s"
    )
    assert drive.reasons == [
        "run 'r' was created for 2 nodes",
        "slot 1 (host1) joined from 10.0.0.2 as incarnation 1; 1 of 2 nodes are in",
        "slot 0 (host0) joined from 10.0.0.1 as incarnation 1; 2 of 2 nodes are in",
        "slot 0 (host0) verified its peers",
        f"slot 1 (host1) verified its peers; the table is sealed on {ETH0}",
        f"node 0 (host0, slot 0) is ready on table {drive.run.digest[:12]}",
        f"node 1 (host1, slot 1) is ready on table {drive.run.digest[:12]}; all are: go",
        "node 0 (host0, slot 0) ended with exit code 0",
        "node 1 (host1, slot 1) ended with exit code 0",
    ]


def row(slot: int, nproc_per_node: int = 1) -> TableRow:
    return TableRow(
        rank=slot,
        slot=slot,
        hostname=f"host{slot}",
        address=f"10.0.0.{slot + 1}",
        interface="eth0",
        prefix_length=24,
        nproc_per_node=nproc_per_node,
        mac="",
    )


def test_a_run_and_its_slots_wait_since_the_run_was_made() -> None:
    run = create("r", make_spec(2), 7.0)
    assert (run.created_at, run.phase_since, run.phase) == (7.0, 7.0, "gathering")
    assert [slot.wait_seconds(9.0) for slot in run.slots] == [2.0, 2.0]


def test_a_run_of_one_node_needs_nobody_else() -> None:
    drive = Drive(make_spec(1)).gather().verify().arm()
    assert drive.phase is Phase.RUNNING
    drive.exit(0, 0)
    assert drive.result.exit_code == 0


def test_what_every_node_does_is_usual_and_what_only_one_does_is_not() -> None:
    drive = in_phase(Phase.VERIFYING, 3)
    told = [drive.probe(0), drive.probe(1), drive.probe(2, 0)]
    assert [o.usual for o in told if o is not None] == [True, True, False]
    drive = in_phase(Phase.ARMING)
    told = [drive.ack(0), drive.ack(1), drive.progress(0, "step 1"), drive.exit(0, 0)]
    told += [drive.report(0, LeaveReport()), drive.exit(1, 1)]
    assert [o.usual for o in told if o is not None] == [True, False, True, True, True, False]
    drive = in_phase(Phase.RUNNING, 3)
    told = [drive.exit(0, 1), drive.exit(1, 143, stopped=True), drive.report(2, LeaveReport())]
    assert [o.usual for o in told if o is not None] == [False, True, False]
    assert [o.slot for o in told if o is not None] == [0, 1, 2]
    news = events.SlotChanged(slot=1, news=SlotNews(generation=1, state=SlotState.QUEUED))
    assert drive.apply(news) == Outcome("slot 1, generation 1: queued", 1, usual=True)


def test_progress_and_leaving_are_told_with_the_nodes_name() -> None:
    drive = in_phase(Phase.RUNNING)
    told = [drive.progress(0, "step 1"), drive.exit(0, 0), drive.report(0, LeaveReport())]
    assert told == [
        Outcome("node 0 (host0, slot 0): step 1", 0, usual=True),
        Outcome("node 0 (host0, slot 0) ended with exit code 0", 0, usual=True),
        Outcome("node 0 (host0, slot 0) has left", 0, usual=True),
    ]


def test_every_event_gives_the_state_a_new_version() -> None:
    drive = Drive(make_spec(2))
    versions = [drive.run.version]
    for step in (drive.gather, drive.verify, drive.arm):
        step()
        versions.append(drive.run.version)
    assert versions == [2, 4, 6, 8]


def test_join_tokens_come_with_the_run_or_with_the_submission() -> None:
    drive = Drive(make_spec(2, token_sha256=[sha("0"), sha("1")]))
    drive.news(1, SlotState.SUBMITTING, 2, token_sha256=sha("1, again"))
    drive.news(1, SlotState.SUBMITTED, 2)
    assert [slot.tokens for slot in drive.run.slots] == [
        {1: sha("0")},
        {1: sha("1"), 2: sha("1, again")},
    ]


def test_news_are_numbered_whenever_there_is_something_for_every_node() -> None:
    drive = Drive(make_spec(2))
    seen = [drive.run.seq]
    for step in (drive.gather, drive.verify, drive.arm):
        step()
        seen.append(drive.run.seq)
    drive.exit(0, 1)
    seen.append(drive.run.seq)
    drive.wait(5)
    seen.append(drive.run.seq)
    assert seen == [1, 2, 3, 4, 5, 6]


def test_a_master_port_that_rank_0_found_free_is_used_unless_one_is_fixed() -> None:
    for fixed, expected in ((None, 41_000), (29_999, 29_999)):
        drive = Drive(make_spec(2, master_port=fixed))
        drive.join(0, master_port=41_000)
        drive.join(1, master_port=42_000)
        drive.verify()
        assert drive.run.table is not None
        assert drive.run.table.master_port == expected


# --- a node is lost or fails before the go --------------------------------------------------------


@pytest.mark.parametrize("phase", BEFORE_GO)
def test_a_node_lost_before_the_go_is_submitted_again(phase: Phase) -> None:
    drive = in_phase(phase, 3)
    drive.wait(16, silent={1})
    assert (drive.phase, drive.run.table, drive.run.digest) == ("gathering", None, "")
    assert drive.states()[:2] == ["joined", "-"]
    assert (drive.slot(1).wanted, drive.slot(1).retries) == (2, 1)
    assert drive.reasons[-1].endswith(
        "failed before the go: it was silent for 15 s: host, network or agent is down; "
        "it is submitted again as generation 2"
    )


@pytest.mark.parametrize("phase", BEFORE_GO)
def test_a_node_lost_before_the_go_with_no_retry_left_ends_the_run(phase: Phase) -> None:
    drive = in_phase(phase, 3, submit_retries=0)
    drive.wait(16, silent={1})
    result = drive.result
    assert (result.status, result.exit_code, result.code) == ("failed", 86, "node_lost")
    assert (result.slot, result.hostname) == (1, "host1")
    assert "(host1" in result.message
    assert result.message.endswith(
        "failed before the go: it was silent for 15 s: host, network or agent is down"
    )


@pytest.mark.parametrize("phase", BEFORE_GO)
def test_where_nobody_can_submit_again_a_lost_node_is_waited_for_once(phase: Phase) -> None:
    drive = in_phase(phase, 3, managed=False)
    drive.wait(16, silent={1})
    assert (drive.phase, drive.run.result) == ("gathering", None)
    assert drive.reasons[-1].endswith("; it is waited for, as its platform may start it again")
    drive.join(1, hostname="host1", addresses=["10.0.0.77"], join_id="join-of-the-new-one")
    assert drive.slot(1).problem == ""
    drive.wait(16, silent={1})
    assert (drive.result.exit_code, drive.result.slot) == (86, 1)


@pytest.mark.parametrize("phase", BEFORE_GO)
def test_where_nobody_can_submit_again_a_node_that_was_ended_comes_again_and_one_that_failed_not(
    phase: Phase,
) -> None:
    drive = in_phase(phase, 3, managed=False)
    drive.exit(1, 143)
    assert (drive.phase, drive.run.result) == ("gathering", None)
    drive = in_phase(phase, 3, managed=False)
    drive.exit(1, 82)
    assert (drive.result.exit_code, drive.result.slot, drive.result.code) == (82, 1, "agent_failed")


def test_the_replacement_completes_a_new_epoch_with_another_table() -> None:
    drive = in_phase(Phase.ARMING)
    first = drive.run.digest
    drive.wait(16, silent={1})
    drive.news(1, SlotState.SUBMITTING, 2)
    drive.join(1, 2, hostname="spare", addresses=["10.0.0.77"])
    drive.verify()
    assert (drive.phase, drive.run.epoch) == ("arming", 2)
    assert drive.run.digest not in ("", first)
    assert drive.run.table is not None
    assert [r.address for r in drive.run.table.rows] == ["10.0.0.1", "10.0.0.77"]
    assert drive.slot(1).problem == ""
    drive.arm()
    assert drive.phase is Phase.RUNNING


@pytest.mark.parametrize("phase", [Phase.VERIFYING, Phase.ARMING])
def test_a_newer_generation_that_takes_a_slot_begins_a_new_epoch(phase: Phase) -> None:
    drive = in_phase(phase)
    drive.join(1, 2, hostname="spare")
    assert (drive.phase, drive.run.epoch, drive.states()) == ("verifying", 2, ["joined"] * 2)
    assert drive.reasons[-1] == (
        "slot 1 (spare) joined from 10.0.0.2 as incarnation 2, in place of host1; "
        "2 of 2 nodes are in"
    )
    assert drive.run.waiting_for == {0, 1}


def test_a_newer_generation_that_takes_a_slot_while_gathering_disturbs_nobody() -> None:
    drive = Drive(make_spec(3, least=2)).gather(0, 1)
    before = (drive.run.seq, drive.run.attempt.enough_since)
    drive.wait(5)
    drive.join(1, 2)
    assert (drive.run.seq, drive.run.attempt.enough_since) == before


def test_a_join_keeps_what_is_known_of_its_worker_run() -> None:
    drive = Drive(make_spec(2))
    drive.news(1, SlotState.RUNNING, name="rdzv-1", handle="17")
    drive.join(1)
    assert (drive.slot(1).name, drive.slot(1).handle, drive.slot(1).state) == (
        "rdzv-1",
        "17",
        "running",
    )


def test_retries_are_counted_per_slot_and_not_without_end() -> None:
    drive = Drive(make_spec(3, submit_retries=2))
    for generation in (1, 2):
        for slot in (1, 2):
            drive.news(slot, SlotState.SUBMITTING, generation)
            drive.news(slot, SlotState.FAILED, generation)
    assert [(s.wanted, s.retries) for s in drive.run.slots] == [(1, 0), (3, 2), (3, 2)]
    drive.news(1, SlotState.SUBMITTING, 3)
    drive.news(1, SlotState.FAILED, 3, detail="no such image")
    assert drive.result.exit_code == 83
    assert drive.result.message == (
        "slot 1 failed before the go: its submission failed: no such image"
    )


def test_one_failure_told_by_the_agent_and_by_the_scheduler_costs_one_retry() -> None:
    drive = Drive(make_spec(2)).gather(1)
    drive.news(1, SlotState.RUNNING)
    drive.exit(1, 1, message="its GPU is gone")
    assert drive.slot(1).wanted == 2
    assert drive.news(1, SlotState.FAILED, detail="exit code 1") == (
        "slot 1, generation 1: failed (exit code 1)"
    )
    assert (drive.phase, drive.slot(1).retries, drive.slot(1).wanted) == ("gathering", 1, 2)
    assert drive.slot(1).problem == "its GPU is gone"


def test_a_node_whose_worker_run_ended_before_the_go_is_submitted_again() -> None:
    drive = Drive(make_spec(2)).gather(1)
    assert drive.news(1, SlotState.ENDED, detail="preempted") == (
        "slot 1 (host1) failed before the go: its worker run ended: preempted; "
        "it is submitted again as generation 2"
    )
    assert drive.states() == ["-", "-"]


def test_a_node_whose_worker_run_ended_before_the_go_ends_the_run_with_no_retry_left() -> None:
    drive = in_phase(Phase.ARMING, submit_retries=0)
    drive.news(1, SlotState.ENDED, detail="preempted")
    assert drive.result == Result(
        status="failed",
        exit_code=86,
        code="node_lost",
        message="node 1 (host1, slot 1) failed before the go: its worker run ended: preempted",
        slot=1,
        rank=1,
        hostname="host1",
    )


def test_a_newer_worker_run_that_dies_does_not_harm_the_node_it_was_to_replace() -> None:
    drive = in_phase(Phase.ARMING)
    drive.news(1, SlotState.SUBMITTING, 2)
    drive.news(1, SlotState.FAILED, 2)
    assert (drive.phase, drive.states()) == ("arming", ["verified"] * 2)
    drive.arm()
    assert drive.phase is Phase.RUNNING


def test_what_the_scheduler_said_of_an_older_worker_run_is_not_held_against_a_newer_one() -> None:
    drive = in_phase(Phase.GATHERING)
    drive.news(1, SlotState.FAILED, detail="bad node")
    drive.join(1, 2)
    drive.verify().arm()
    drive.wait(14, silent={1})
    assert (drive.slot(1).state, drive.slot(1).detail) == ("none", "")
    assert drive.states() == ["running", "running"]


def test_a_node_that_is_lost_while_its_replacement_is_on_the_way_costs_no_retry() -> None:
    drive = Drive(make_spec(2)).gather(1)
    drive.news(1, SlotState.SUBMITTING, 2)
    drive.wait(16, silent={1})
    assert drive.reasons[-1].endswith("; its generation 2 is on the way")
    assert (drive.slot(1).wanted, drive.slot(1).retries) == (2, 0)
    assert drive.join(1, 2) == 2


def test_a_node_that_is_lost_after_its_replacement_died_is_submitted_again() -> None:
    drive = Drive(make_spec(2)).gather(1)
    drive.news(1, SlotState.SUBMITTING, 2)
    drive.news(1, SlotState.FAILED, 2)
    drive.wait(16, silent={1})
    assert (drive.slot(1).wanted, drive.slot(1).retries) == (3, 1)


@pytest.mark.parametrize("phase", BEFORE_GO)
def test_an_agent_that_ends_or_leaves_before_the_go_is_submitted_again(phase: Phase) -> None:
    for leave in (False, True):
        drive = in_phase(phase, 3)
        if leave:
            drive.report(1, LeaveReport())
            why = "its agent left before the end"
        else:
            drive.exit(1, 143)
            why = "its agent ended with code 143"
        assert (drive.phase, drive.states()[1], drive.slot(1).wanted) == ("gathering", "-", 2)
        assert drive.slot(1).problem == why


@pytest.mark.parametrize(("said", "expected"), [(77, 77), (0, 1)])
def test_an_exit_before_the_go_with_no_retry_left_never_ends_the_run_well(
    said: int, expected: int
) -> None:
    drive = in_phase(Phase.ARMING, submit_retries=0)
    drive.exit(1, said, message="the disk is full", tail=["a", "b"], log="/log")
    assert drive.result == Result(
        status="failed",
        exit_code=expected,
        code="agent_failed",
        message="node 1 (host1, slot 1) failed before the go: the disk is full",
        slot=1,
        rank=1,
        hostname="host1",
        tail=["a", "b"],
        log="/log",
    )
    assert drive.states() == ["verified", "lost"]
    assert drive.reasons[-1] == drive.result.message


# --- min:max --------------------------------------------------------------------------------------


def test_min_max_goes_on_without_the_others_after_the_last_call() -> None:
    drive = Drive(make_spec(4, least=2, last_call_seconds=30)).gather(0)
    drive.wait(100)
    drive.join(2)
    drive.wait(29)
    assert drive.run.epoch == 0
    drive.wait(1)
    assert (drive.phase, drive.run.epoch) == ("verifying", 1)
    assert drive.reasons[-1] == "last call is over: 2 nodes are in"
    drive.verify().arm()
    assert drive.run.table is not None
    assert [(r.rank, r.slot) for r in drive.run.table.rows] == [(0, 0), (1, 2)]


def test_min_max_goes_on_at_once_when_all_are_in() -> None:
    drive = Drive(make_spec(3, least=2)).gather()
    assert drive.phase is Phase.VERIFYING


def test_a_replacement_after_the_last_call_begins_another_one() -> None:
    drive = Drive(make_spec(3, least=2, last_call_seconds=5)).gather(0, 1)
    drive.wait(5)
    assert drive.phase is Phase.VERIFYING
    drive.join(1, 2)
    assert (drive.phase, drive.run.attempt.enough_since) == ("gathering", drive.now)


def test_the_last_call_needs_slot_0() -> None:
    drive = Drive(make_spec(4, least=2)).gather(1, 2, 3)
    drive.wait(60)
    assert (drive.phase, drive.run.attempt.enough_since) == ("gathering", None)
    drive.join(0)
    assert drive.phase is Phase.VERIFYING


def test_the_last_call_ends_when_a_loss_makes_them_too_few() -> None:
    drive = Drive(make_spec(3, least=2)).gather(0, 1)
    drive.wait(16, silent={1})
    assert drive.run.attempt.enough_since is None
    drive.wait(60)
    assert drive.phase is Phase.GATHERING


def test_a_slot_that_cannot_be_had_is_spared_when_the_others_are_enough() -> None:
    drive = Drive(make_spec(3, least=2, submit_retries=0)).gather(0)
    assert drive.news(2, SlotState.FAILED) == (
        "slot 2 failed before the go: its submission failed; the run can spare it"
    )
    drive.join(1)
    drive.wait(30)
    assert drive.phase is Phase.VERIFYING


def test_a_slot_that_cannot_be_spared_ends_the_run() -> None:
    drive = Drive(make_spec(3, least=2, submit_retries=0)).gather(0)
    drive.news(2, SlotState.FAILED)
    drive.news(1, SlotState.FAILED)
    assert (drive.result.exit_code, drive.result.slot) == (83, 1)


def test_slot_0_cannot_be_spared() -> None:
    drive = Drive(make_spec(3, least=2, submit_retries=0)).gather(1)
    drive.news(0, SlotState.FAILED)
    assert (drive.result.exit_code, drive.result.slot) == (83, 0)


def test_min_max_spares_a_lost_node_also_where_nobody_can_submit_again() -> None:
    drive = Drive(make_spec(3, least=2, managed=False)).gather()
    drive.wait(16, silent={2})
    assert drive.phase is Phase.GATHERING
    drive.wait(30)
    assert (drive.phase, drive.states()) == ("verifying", ["joined", "joined", "-"])


def test_a_spared_slot_that_is_filled_after_all_counts_again() -> None:
    drive = Drive(make_spec(3, least=2, submit_retries=0)).gather(0)
    drive.news(2, SlotState.FAILED)
    drive.join(2)
    assert not drive.slot(2).given_up
    drive.news(1, SlotState.FAILED)
    assert drive.run.result is None
    drive.wait(30)
    assert drive.phase is Phase.VERIFYING


def test_a_spared_slot_that_is_submitted_again_counts_again() -> None:
    drive = Drive(make_spec(3, least=2, submit_retries=0)).gather(0)
    drive.news(2, SlotState.FAILED)
    drive.news(2, SlotState.SUBMITTING, 2)
    drive.news(1, SlotState.FAILED)
    assert drive.run.result is None


@pytest.mark.parametrize("retries", [0, 1])
@pytest.mark.parametrize("phase", [Phase.VERIFYING, Phase.ARMING])
def test_a_worker_run_of_a_slot_outside_the_table_dies_and_the_table_stays(
    phase: Phase, retries: int
) -> None:
    drive = Drive(make_spec(3, least=2, submit_retries=retries, last_call_seconds=1)).gather(0, 1)
    drive.wait(1)
    if phase is Phase.ARMING:
        drive.verify()
    before = (drive.phase, drive.run.epoch, drive.run.digest, drive.run.seq)
    drive.news(2, SlotState.FAILED)
    assert (drive.phase, drive.run.epoch, drive.run.digest, drive.run.seq) == before
    assert (drive.slot(2).wanted, drive.slot(2).given_up) == (1 + retries, retries == 0)


@pytest.mark.parametrize("retries", [0, 1])
def test_a_worker_run_of_a_slot_outside_the_table_dies_and_training_goes_on(retries: int) -> None:
    drive = Drive(make_spec(3, least=2, submit_retries=retries, last_call_seconds=1)).gather(0, 1)
    drive.wait(1)
    drive.verify().arm()
    before = drive.run.seq
    assert drive.news(2, SlotState.FAILED) == "slot 2, generation 1: failed"
    assert (drive.phase, drive.run.seq, drive.states()) == (
        "running",
        before,
        ["running", "running", "-"],
    )
    assert drive.slot(2).wanted == 1


# --- verifying ------------------------------------------------------------------------------------


def test_without_verify_the_table_is_sealed_as_soon_as_all_are_in() -> None:
    drive = Drive(make_spec(3, verify=False)).gather(0, 1)
    assert drive.phase is Phase.GATHERING
    drive.join(2)
    assert (drive.phase, drive.run.epoch, drive.states()) == ("arming", 1, ["verified"] * 3)
    assert drive.arm().phase is Phase.RUNNING


def test_without_verify_a_loss_while_arming_makes_a_new_epoch_and_table() -> None:
    drive = Drive(make_spec(2, verify=False)).gather()
    before = drive.run.digest
    drive.report(1, LeaveReport())
    assert (drive.phase, drive.run.table) == ("gathering", None)
    drive.join(1, 2)
    assert (drive.phase, drive.run.epoch) == ("arming", 2)
    assert drive.run.digest != before


def test_a_node_that_others_cannot_reach_is_blamed() -> None:
    drive = in_phase(Phase.VERIFYING, 4)
    for slot in (0, 1, 2):
        drive.probe(slot, 3)
    outcome = drive.probe(3)
    assert outcome is not None
    assert drive.reasons[-4] == "slot 0 (host0) cannot reach slot 3 (host3): timeout"
    result = drive.result
    assert (result.exit_code, result.code, result.slot) == (81, "verification_failed", 3)
    assert result.message.startswith("slot 3 (host3) cannot be reached by the 3 others over eth0")
    assert "iptables -L on host3" in result.hint


def test_what_a_node_reported_of_its_peers_is_forgotten_in_the_next_round() -> None:
    drive = in_phase(Phase.VERIFYING)
    drive.probe(0, 1)
    drive.join(1, 2)
    drive.verify()
    assert drive.phase is Phase.ARMING


def test_a_report_on_slots_that_are_no_peers_is_no_failure() -> None:
    drive = in_phase(Phase.VERIFYING)
    drive.probe(0, 0, 7, 19_999)
    drive.probe(1)
    assert drive.phase is Phase.ARMING


def test_nodes_of_two_families_end_the_run_with_both_named() -> None:
    drive = Drive(make_spec(2))
    drive.join(0, addresses=["10.0.0.1"])
    drive.join(1, addresses=["fd00::2"])
    drive.verify()
    assert (drive.result.exit_code, drive.result.code) == (81, "verification_failed")
    assert "slot 0 can offer IPv4 addresses only and slot 1 IPv6" in drive.result.message
    assert "--network" in drive.result.hint


def test_a_node_that_does_not_report_ends_the_run_after_the_timeout() -> None:
    drive = in_phase(Phase.VERIFYING, 3, verify_timeout_seconds=60)
    drive.probe(0)
    drive.wait(59.5)
    assert drive.phase is Phase.VERIFYING
    drive.wait(1)
    assert (drive.result.exit_code, drive.result.code) == (81, "verification_failed")
    assert drive.result.message == (
        "slot 1 (host1), slot 2 (host2) did not report on their peers within 60 s, "
        "though still connected"
    )
    assert (drive.result.slot, drive.result.hint) == (1, "look at the log of slot 1 (host1)")


# --- arming ---------------------------------------------------------------------------------------


def test_a_node_that_does_not_acknowledge_ends_the_run_after_the_timeout() -> None:
    drive = in_phase(Phase.ARMING, 2, arm_timeout_seconds=10)
    drive.ack(0)
    drive.wait(10)
    assert (drive.result.exit_code, drive.result.code) == (82, "arming_failed")
    assert drive.result.message == (
        "node 1 (host1, slot 1) did not acknowledge the table within 10 s, though still connected"
    )
    assert drive.reasons[-1] == drive.result.message


def test_only_the_first_of_many_slow_nodes_are_named() -> None:
    drive = in_phase(Phase.ARMING, 8, arm_timeout_seconds=10)
    drive.wait(10)
    assert "node 4 (host4, slot 4) and 3 more did not acknowledge" in drive.result.message


def test_a_taken_port_gives_a_new_epoch_with_a_free_one() -> None:
    drive = in_phase(Phase.ARMING)
    first = drive.run.digest
    drive.ack(1)
    drive.refuse(0, "port_taken", "master port 29500 is taken", free_port=29_507)
    assert drive.reasons[-1] == (
        "node 0 (host0, slot 0) cannot start: master port 29500 is taken; "
        "new table with master port 29507"
    )
    assert (drive.phase, drive.run.epoch) == ("arming", 2)
    assert (drive.run.waiting_for, drive.states()) == ({0, 1}, ["verified"] * 2)
    assert drive.run.digest != first
    assert drive.run.table is not None
    assert (drive.run.table.epoch, drive.run.table.master_port) == (2, 29_507)
    assert drive.report(1, AckReport(epoch=1, digest=first)) is None
    drive.arm()
    assert drive.phase is Phase.RUNNING


@pytest.mark.parametrize(("taken", "following"), [(41_000, 41_001), (65_535, 29_500)])
def test_a_taken_port_without_a_free_one_is_followed_by_the_next(
    taken: int, following: int
) -> None:
    drive = Drive(make_spec(1))
    drive.join(0, master_port=taken)
    drive.verify()
    drive.refuse(0, "port_taken", "taken")
    assert drive.run.table is not None
    assert drive.run.table.master_port == following


def test_ports_are_not_tried_for_ever() -> None:
    drive = in_phase(Phase.ARMING, 1)
    for tried in range(32):
        drive.refuse(0, "port_taken", "taken", free_port=30_000 + tried)
        assert drive.phase is Phase.ARMING
    drive.refuse(0, "port_taken", "taken")
    assert (drive.result.exit_code, drive.run.epoch) == (82, 33)


def test_a_fixed_port_that_is_taken_ends_the_run() -> None:
    drive = in_phase(Phase.ARMING, master_port=29_999)
    drive.refuse(0, "port_taken", "master port 29999 is taken", free_port=30_000)
    assert drive.result == Result(
        status="failed",
        exit_code=82,
        code="arming_failed",
        message="node 0 (host0, slot 0) cannot start: master port 29999 is taken",
        hint="choose another with --master-port",
        slot=0,
        rank=0,
        hostname="host0",
    )
    assert drive.reasons[-1] == drive.result.message


@pytest.mark.parametrize("code", ["bad_table", "hosts", "contract"])
def test_another_refusal_ends_the_run_at_once_with_node_and_reason(code: str) -> None:
    drive = in_phase(Phase.ARMING)
    drive.refuse(1, code, "the row of slot 0 was not made by its node")
    assert drive.result == Result(
        status="failed",
        exit_code=82,
        code="arming_failed",
        message="node 1 (host1, slot 1) cannot start: the row of slot 0 was not made by its node",
        slot=1,
        rank=1,
        hostname="host1",
    )


# --- the join time-out ----------------------------------------------------------------------------


def test_a_missing_slot_is_named_with_what_is_known_of_it() -> None:
    drive = Drive(make_spec(4, join_timeout_seconds=600)).gather(0, 1, 3)
    drive.news(2, SlotState.SUBMITTING, name="rdzv-x-2")
    drive.news(2, SlotState.RUNNING, detail="node017")
    drive.wait(599)
    assert drive.run.result is None
    drive.wait(1)
    assert drive.result == Result(
        status="failed",
        exit_code=80,
        code="join_timeout",
        message=(
            "run 'r' expected 4 nodes and 3 joined within 600 s: slot 2 (worker run rdzv-x-2, "
            "generation 1) never reached the registry; the scheduler says running: node017"
        ),
        hint="see the log of the missing worker run; it must be able to open the registry's "
        "address",
        slot=2,
    )
    assert drive.outcomes[-1] == Outcome(drive.result.message, 2)


def test_a_submission_that_fails_again_and_again_is_named_before_the_end_and_at_it() -> None:
    drive = Drive(make_spec(2, join_timeout_seconds=5)).gather(0)
    drive.news(1, SlotState.SUBMITTING, name="rdzv-x-1")
    drive.news(1, SlotState.SUBMITTING, detail="the API answered 500")
    assert reason(drive.run, drive.now).endswith("slot 1 being submitted (the API answered 500)")
    drive.wait(5)
    assert drive.result.message.endswith(
        "generation 1) was still being submitted: the API answered 500"
    )
    assert drive.result.hint == (
        "its scheduler has not taken the worker run yet: launch again when it answers"
    )


@pytest.mark.parametrize(
    ("handle", "words"),
    [("", "its submission failed"), ("4711", "its worker run ended before it joined")],
)
def test_what_was_never_submitted_has_not_ended(handle: str, words: str) -> None:
    drive = Drive(make_spec(2, submit_retries=0)).gather(0)
    drive.news(1, SlotState.SUBMITTED, handle=handle)
    drive.news(1, SlotState.FAILED, handle=handle, detail="no such image")
    assert drive.result.message == f"slot 1 failed before the go: {words}: no such image"


def test_what_to_try_follows_from_what_is_known_of_the_missing_slot() -> None:
    hints = []
    for states in ((), (SlotState.SUBMITTING, SlotState.SUBMITTED)):
        drive = Drive(make_spec(2, join_timeout_seconds=0.5)).gather(0)
        for state in states:
            drive.news(1, state)
        drive.wait(0.5)
        assert " joined within 0.5 s: slot 1 " in drive.result.message
        hints.append(drive.result.hint)
    assert hints[0] == "what its launcher has said before tells why"
    assert hints[1].startswith("launch again with a larger --join-timeout; ")


def test_all_missing_slots_are_named_in_one_sentence() -> None:
    drive = Drive(make_spec(3, join_timeout_seconds=5)).gather(0)
    drive.wait(5)
    assert drive.result.message == (
        "run 'r' expected 3 nodes and 1 joined within 5 s: "
        "slot 1 was never submitted; slot 2 was never submitted"
    )


@pytest.mark.parametrize(
    ("managed", "known"),
    [(True, "slot 1 was never submitted"), (False, "slot 1 never reached the registry")],
)
def test_a_slot_of_which_nothing_is_known_is_named_too(managed: bool, known: str) -> None:
    drive = Drive(make_spec(2, managed=managed, join_timeout_seconds=5)).gather(0)
    drive.wait(5)
    assert drive.result.message == (f"run 'r' expected 2 nodes and 1 joined within 5 s: {known}")


@pytest.mark.parametrize("state", [SlotState.NONE, SlotState.UNKNOWN])
def test_a_scheduler_that_knows_nothing_is_not_quoted(state: SlotState) -> None:
    drive = Drive(make_spec(2, join_timeout_seconds=5)).gather(0)
    drive.news(1, state)
    drive.wait(5)
    assert drive.result.message.endswith("slot 1 never reached the registry")


@pytest.mark.parametrize(
    ("nodes", "end"),
    [(6, "submitted"), (7, "submitted; and 1 more"), (9, "submitted; and 3 more")],
)
def test_only_the_first_five_missing_slots_are_described(nodes: int, end: str) -> None:
    drive = Drive(make_spec(nodes, join_timeout_seconds=5)).gather(0)
    drive.wait(5)
    assert drive.result.message.endswith(f"slot 5 was never {end}")


def test_a_journal_may_hold_a_timeout_that_is_not_due_today() -> None:
    drive = Drive(make_spec(3)).gather(0)
    drive.apply(events.TimedOut(phase=Phase.GATHERING))
    assert drive.result.message.endswith("slot 1 was never submitted")


def test_a_trouble_of_the_registry_is_told_instead_of_blaming_who_is_missing() -> None:
    drive = Drive(make_spec(9, join_timeout_seconds=5)).gather(0)
    drive.wait(4)
    drive.apply(events.TimedOut(phase=Phase.GATHERING, trouble="no more connections"))
    assert drive.result.message.endswith("1 joined within 5 s: no more connections")
    assert drive.result.hint == ""


def test_time_in_the_schedulers_queue_does_not_count() -> None:
    drive = Drive(make_spec(2, join_timeout_seconds=60)).gather(0)
    drive.news(1, SlotState.SUBMITTING)
    drive.wait(50)
    drive.news(1, SlotState.QUEUED, detail="Priority")
    drive.wait(1_000)
    drive.news(1, SlotState.RUNNING)
    drive.wait(9)
    assert drive.run.result is None
    drive.wait(1)
    assert drive.result.code == "join_timeout"


def test_the_time_before_each_stay_in_the_queue_counts() -> None:
    drive = Drive(make_spec(2))
    for seconds in (10, 20):
        drive.news(1, SlotState.RUNNING)
        drive.wait(seconds)
        drive.news(1, SlotState.QUEUED)
        drive.wait(100)
    assert drive.slot(1).wait_seconds(drive.now) == 30


def test_news_of_the_same_worker_run_leaves_its_slots_clock_alone() -> None:
    drive = Drive(make_spec(2, join_timeout_seconds=60)).gather(0)
    for state in (SlotState.SUBMITTING, SlotState.SUBMITTED, SlotState.RUNNING):
        drive.news(1, state)
        drive.wait(20)
    assert drive.result.code == "join_timeout"


def test_without_its_launcher_nothing_is_known_of_the_queue_any_more() -> None:
    drive = Drive(make_spec(3))
    for slot, state in ((0, SlotState.RUNNING), (1, SlotState.QUEUED)):
        drive.news(slot, state, 2)
    words = "it was queued when its launcher was last heard of"
    news = SlotNews(generation=2, state=SlotState.UNKNOWN, detail=words)
    assert launcher_gone(drive.run) == [events.SlotChanged(slot=1, news=news)]
    drive.apply(events.Cancelled(reason="enough"))
    assert launcher_gone(drive.run) == []


def test_the_clock_of_a_filled_slot_stands() -> None:
    drive = Drive(make_spec(2))
    drive.news(1, SlotState.SUBMITTING)
    drive.wait(10)
    drive.join(1)
    drive.wait(10)
    assert drive.slot(1).wait_seconds(drive.now) == 10


def test_a_new_submission_starts_its_slots_clock_again() -> None:
    drive = Drive(make_spec(2, join_timeout_seconds=60)).gather(0)
    drive.wait(50)
    drive.news(1, SlotState.SUBMITTING, 2)
    drive.wait(59)
    assert drive.run.result is None
    drive.wait(1)
    assert "generation 2" not in drive.result.message  # it has no name yet
    assert drive.result.code == "join_timeout"


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


def test_a_slot_above_the_minimum_is_nobodys_fault() -> None:
    drive = Drive(make_spec(4, least=2, join_timeout_seconds=60)).gather(0)
    for slot in (2, 3):
        drive.news(slot, SlotState.QUEUED)
    drive.wait(100)
    assert drive.run.result is None  # slot 1 is overdue, and slots 2 and 3 may still come
    drive.news(3, SlotState.RUNNING)
    drive.wait(60)
    assert drive.run.result is None
    drive.news(2, SlotState.RUNNING)
    drive.wait(60)
    assert drive.result.code == "join_timeout"
    assert drive.result.message.startswith("run 'r' expected 2:4 nodes and 1 joined within 60 s")


def test_slot_0_is_waited_for_while_the_others_are_enough() -> None:
    drive = Drive(make_spec(4, least=2, join_timeout_seconds=60)).gather(1, 2)
    drive.wait(30)
    drive.news(0, SlotState.SUBMITTING, 2)
    drive.wait(40)
    assert drive.run.result is None  # slot 3 is overdue and not needed
    drive.wait(20)
    assert drive.result.slot == 0


def test_a_spared_slot_does_not_count_among_those_that_may_come() -> None:
    drive = Drive(make_spec(3, least=2, submit_retries=0, join_timeout_seconds=60)).gather(0)
    drive.news(1, SlotState.QUEUED)
    drive.news(2, SlotState.FAILED, detail="bad node")
    drive.news(1, SlotState.RUNNING)
    drive.wait(60)
    assert drive.result.code == "join_timeout"
    assert "bad node" in drive.result.message


# --- another job ----------------------------------------------------------------------------------


def test_a_node_of_another_job_ends_the_run_at_once_when_its_slot_is_empty() -> None:
    drive = Drive(make_spec(2)).gather(0)
    with pytest.raises(Mismatch):
        drive.join(1, job=Job(nnodes="3"))
    assert drive.result == Result(
        status="failed",
        exit_code=77,
        code="mismatch",
        message="slot 1 (host1) was started with --nnodes 3, and run 'r' has --nnodes 2",
        hint="give every node the same --nnodes (NUM_NODES)",
        slot=1,
    )


def test_a_node_of_another_job_does_not_harm_the_node_that_has_the_slot() -> None:
    drive = Drive(make_spec(2)).gather(1)
    with pytest.raises(Mismatch):
        drive.join(1, attempt=2, job=Job(nnodes="3"))
    assert (drive.phase, drive.states()) == ("gathering", ["-", "joined"])
    assert "--nnodes 3" in drive.slot(1).problem


# --- after the go: the verdict --------------------------------------------------------------------


def test_a_failing_program_stops_the_others_and_is_named() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.exit(1, 137, worker_rank=1, message="out of memory?", tail=["last words"], log="/l")
    assert (drive.run.stop, drive.phase) == (True, "running")
    drive.exit(0, 143, stopped=True)
    drive.exit(2, 143, stopped=True)
    assert drive.result == Result(
        status="failed",
        exit_code=137,
        code="program_failed",
        message="node 1 (host1, slot 1) failed: rank 1 ended with exit code 137 (signal 9); "
        "out of memory?",
        hint="SIGKILL is often the kernel's, out of memory, or the scheduler's",
        slot=1,
        rank=1,
        hostname="host1",
        worker_rank=1,
        tail=["last words"],
        log="/l",
    )


def test_a_node_that_had_ended_well_before_is_named_beside_the_first_cause() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.exit(1, 0)
    drive.exit(0, 1, worker_rank=0)
    drive.exit(2, 0, stopped=True)
    assert drive.result.message == (
        "node 0 (host0, slot 0) failed: rank 0 ended with exit code 1; "
        "node 1 (host1, slot 1) had ended with exit code 0"
    )


def test_the_verdict_falls_after_two_seconds_without_those_that_only_stop_slowly() -> None:
    drive = in_phase(Phase.RUNNING, 3, verdict_seconds=2)
    drive.exit(1, 1)
    drive.wait(1.75)
    assert drive.phase is Phase.RUNNING
    drive.wait(0.25)
    assert (drive.result.slot, drive.result.exit_code, drive.result.hint) == (1, 1, "")
    assert drive.reasons[-1] == drive.result.message


def test_the_first_cause_is_the_oldest_failure_not_the_first_report() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.exit(0, 1, age_seconds=0.5)
    drive.wait(1)
    drive.exit(2, 3, age_seconds=30, worker_rank=5)
    drive.wait(2)
    assert (drive.result.slot, drive.result.exit_code, drive.result.worker_rank) == (2, 3, 5)
    assert drive.result.message == ("node 2 (host2, slot 2) failed: rank 5 ended with exit code 3")


def test_failures_of_the_same_age_go_to_the_lowest_slot() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.exit(2, 5)
    drive.exit(1, 4)
    drive.wait(2.25)
    assert (drive.result.slot, drive.result.exit_code) == (1, 4)


def test_a_node_that_fell_silent_before_the_failure_is_waited_for_and_is_the_cause() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.wait(1, silent={1})
    drive.exit(0, 1)
    drive.wait(3, silent={1})
    assert drive.phase is Phase.RUNNING
    drive.wait(12, silent={1})
    assert drive.result.message == (
        "node 1 (host1, slot 1) was lost: it was silent for 15 s: host, network or agent is down"
    )
    assert (drive.result.exit_code, drive.result.code) == (86, "node_lost")


def test_a_node_that_was_last_heard_when_all_were_told_to_stop_is_waited_for_too() -> None:
    drive = in_phase(Phase.RUNNING)
    drive.wait(1)
    drive.exit(0, 1)
    drive.wait(10, silent={1})
    assert drive.phase is Phase.RUNNING


def test_the_verdict_waits_no_longer_than_a_lease() -> None:
    drive = in_phase(Phase.RUNNING, 5)
    drive.wait(1, silent={1, 2, 3, 4})
    drive.exit(0, 1)
    drive.wait(16.75, silent={1, 2, 3, 4})
    assert drive.phase is Phase.RUNNING  # all but one are silent: the registry doubts itself
    drive.wait(0.25, silent={1, 2, 3, 4})
    assert (drive.result.slot, drive.result.exit_code) == (0, 1)


def test_a_silent_node_that_speaks_again_is_not_the_cause() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.wait(4, silent={1})
    drive.exit(0, 7)
    drive.wait(4, silent={1})
    assert drive.phase is Phase.RUNNING
    drive.wait(0.25)
    assert (drive.result.slot, drive.result.exit_code) == (0, 7)


def test_a_node_lost_after_a_failure_is_not_the_cause() -> None:
    drive = in_phase(Phase.RUNNING, 3, verdict_seconds=60)
    drive.exit(0, 7)
    drive.wait(30, silent={1})
    assert drive.states() == ["exited", "lost", "running"]
    drive.exit(2, 143, stopped=True)
    assert (drive.result.slot, drive.result.exit_code) == (0, 7)


@pytest.mark.parametrize(
    ("silent", "words"),
    [
        ({1}, "; also lost: node 1 (host1, slot 1)"),
        ({1, 2}, "; also lost: node 1 (host1, slot 1), node 2 (host2, slot 2)"),
    ],
)
def test_nodes_that_were_lost_after_a_failure_are_named_beside_it(
    silent: set[int], words: str
) -> None:
    drive = in_phase(Phase.RUNNING, 4, verdict_seconds=60)
    drive.exit(0, 7)
    drive.wait(30, silent=silent)
    for slot in {1, 2, 3} - silent:
        drive.exit(slot, 143, stopped=True)
    assert drive.result.message == (
        f"node 0 (host0, slot 0) failed: the program ended with exit code 7{words}"
    )


def test_what_an_agent_ends_its_node_for_is_said_without_the_exit_code() -> None:
    drive = in_phase(Phase.RUNNING, 2, verdict_seconds=0)
    drive.exit(0, 87, by_agent=True, message="NCCL uses sockets")
    drive.exit(1, 143, stopped=True)
    assert drive.result.message == "node 0 (host0, slot 0) failed: NCCL uses sockets"
    assert drive.result.exit_code == 87


def test_a_lost_node_fails_the_run() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.wait(16, silent={2})
    assert (drive.run.stop, drive.states()) == (True, ["running", "running", "lost"])
    drive.exit(0, 143, stopped=True)
    drive.exit(1, 1)
    assert (drive.result.slot, drive.result.exit_code, drive.result.rank) == (2, 86, 2)
    assert "preemption" in drive.result.hint


def test_a_node_that_leaves_while_the_run_runs_fails_it() -> None:
    drive = in_phase(Phase.RUNNING)
    drive.report(1, LeaveReport())
    drive.wait(2.25)
    assert drive.result.message == (
        "node 1 (host1, slot 1) was lost: its agent left before the end"
    )


def test_a_node_that_leaves_after_a_failure_is_not_the_cause() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.report(1, LeaveReport())
    drive.exit(2, 4, age_seconds=0.5)
    drive.wait(2.25)
    assert (drive.result.slot, drive.result.exit_code) == (2, 4)


def test_a_node_that_has_ended_well_may_fall_silent_or_leave() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.exit(1, 0)
    drive.exit(2, 0)
    drive.report(2, LeaveReport())
    drive.wait(30, silent={1})
    assert (drive.run.stop, drive.states()) == (False, ["running", "lost", "left"])
    drive.exit(0, 0)
    assert drive.result.status == "ok"


def test_one_failure_after_others_ended_well_fails_the_run() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.exit(0, 0)
    drive.exit(1, 0)
    drive.exit(2, 9)
    assert (drive.result.status, drive.result.exit_code, drive.result.slot) == ("failed", 9, 2)


def test_a_stopped_node_is_never_the_cause() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.exit(0, 1)
    drive.exit(1, 137, stopped=True, age_seconds=100)
    drive.exit(2, 143, stopped=True)
    assert (drive.result.slot, drive.result.exit_code) == (0, 1)
    assert "node 1 (host1, slot 1) was stopped (exit code 137)" in drive.reasons


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (128, "exit code 128"),
        (129, "exit code 129 (signal 1)"),
        (192, "exit code 192 (signal 64)"),
        (193, "exit code 193"),
    ],
)
def test_a_signal_is_told_by_its_number(code: int, words: str) -> None:
    drive = in_phase(Phase.RUNNING, 1)
    drive.exit(0, code)
    assert drive.result.message.endswith(f"the program ended with {words}")
    assert drive.result.exit_code == code


def test_a_node_that_nobody_told_to_stop_failed_whatever_it_says() -> None:
    drive = in_phase(Phase.RUNNING)
    drive.exit(1, 143, stopped=True)
    assert drive.run.stop
    drive.exit(0, 0)
    assert (drive.result.status, drive.result.slot, drive.result.exit_code) == ("failed", 1, 143)


def test_after_the_go_the_lease_and_not_the_scheduler_says_who_is_lost() -> None:
    drive = in_phase(Phase.RUNNING)
    assert drive.news(1, SlotState.FAILED, detail="exit code 137") == (
        "slot 1, generation 1: failed (exit code 137)"
    )
    drive.wait(60)
    assert (drive.phase, drive.run.stop) == ("running", False)


def test_a_suspect_node_whose_worker_run_is_over_is_lost_with_the_schedulers_words() -> None:
    drive = in_phase(Phase.RUNNING)
    drive.wait(1, silent={1})
    drive.news(1, SlotState.FAILED, detail="exit code 137")
    drive.wait(4.75, silent={1})
    assert drive.states() == ["running", "running"]
    drive.wait(0.25, silent={1})
    assert drive.states() == ["running", "lost"]
    drive.wait(2.25)
    assert drive.result.message == (
        "node 1 (host1, slot 1) was lost: its worker run ended: exit code 137"
    )


def test_a_killed_node_is_the_cause_although_its_peer_told_of_it_first() -> None:
    drive = in_phase(Phase.RUNNING)
    drive.leases.heard((1, 1), drive.now, connection=7)
    drive.leases.closed((1, 1), drive.now, 7)
    drive.wait(0.25, silent={1})
    drive.exit(0, 1, age_seconds=0.2)
    drive.news(1, SlotState.ENDED)
    drive.wait(3, silent={1})
    assert (drive.result.slot, drive.result.exit_code) == (1, 86)
    assert drive.result.message.endswith("was lost: its worker run ended")


def test_a_closed_connection_ends_a_node_within_seconds() -> None:
    drive = in_phase(Phase.RUNNING)
    drive.leases.heard((1, 1), drive.now, connection=7)
    drive.leases.closed((1, 1), drive.now, 7)
    drive.wait(1.25, silent={1})
    assert drive.slot(1).problem == (
        "its agent is gone: the connection was closed and no new one came"
    )


def test_a_worker_run_that_ends_after_its_node_has_means_nothing() -> None:
    drive = in_phase(Phase.RUNNING)
    drive.exit(1, 0)
    drive.news(1, SlotState.ENDED)
    assert (drive.run.stop, drive.states()) == (False, ["running", "exited"])


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


# --- the end --------------------------------------------------------------------------------------


def test_cancelling_ends_the_run_in_any_phase() -> None:
    for phase in [*BEFORE_GO, Phase.RUNNING]:
        drive = in_phase(phase)
        drive.apply(events.Cancelled(reason="SIGINT at the launcher"))
        assert drive.result == Result(
            status="cancelled",
            exit_code=84,
            code="cancelled",
            message="run 'r' was cancelled: SIGINT at the launcher",
        )
        assert drive.run.stop


@pytest.mark.parametrize("exit_code", [None, 7, 137])
def test_a_cancel_does_not_hide_the_cause_of_an_end_that_has_begun(exit_code: int | None) -> None:
    drive = in_phase(Phase.RUNNING, 3)
    if exit_code is None:
        drive.wait(16, silent={1})
    else:
        drive.exit(1, exit_code)
    assert drive.phase is Phase.RUNNING
    assert drive.cancel("SIGTERM at the launcher") is None
    drive.exit(2, 143)
    drive.wait(2)
    assert drive.result.exit_code == (exit_code or ExitCode.NODE_LOST)
    assert drive.result.slot == 1
    assert drive.cancel("SIGTERM at the launcher") is None


def test_who_cancels_again_does_not_wait_for_a_silent_node() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.exit(1, 7)
    drive.exit(0, 143, stopped=True)
    drive.wait(1.9, silent={2})
    assert drive.cancel("SIGTERM at the launcher") is None
    drive.wait(0.1, silent={2})
    assert drive.phase is Phase.RUNNING
    verdict = drive.cancel("SIGTERM at the launcher")
    assert verdict == events.VerdictFell(unheard=(2,))
    drive.apply(verdict)
    assert (drive.result.slot, drive.result.exit_code) == (1, 7)
    assert drive.result.message.endswith(
        "; nothing was heard since of node 2 (host2, slot 2), which may have failed before"
    )


@pytest.mark.parametrize("exit_code", [129, 130, 143])
def test_a_cancel_counts_where_the_nodes_were_told_to_end_too(exit_code: int) -> None:
    drive = in_phase(Phase.RUNNING, 3)
    assert drive.cancel("SIGTERM at the launcher") is not None
    drive.exit(1, exit_code)
    assert drive.cancel("SIGTERM at the launcher") == events.Cancelled(
        reason="SIGTERM at the launcher"
    )


def test_a_cancel_before_the_go_names_the_node_that_had_failed() -> None:
    drive = Drive(make_spec(2)).gather(0, 1)
    drive.exit(1, 9, message="its disk is full")
    assert drive.run.result is None  # it is submitted again
    drive.apply(events.Cancelled(reason="SIGTERM at the launcher"))
    assert drive.result.message == (
        "run 'r' was cancelled: SIGTERM at the launcher; before that, slot 1 failed: "
        "its disk is full"
    )


def test_a_result_stays_the_first() -> None:
    drive = in_phase(Phase.RUNNING)
    drive.exit(0, 0)
    drive.exit(1, 0)
    first, at = drive.result, drive.run.finished_at
    outcome = drive.apply(events.Cancelled(reason="too late"))
    assert (drive.result, drive.run.finished_at) == (first, at)
    assert outcome.reason == first.message


def test_after_the_end_nodes_leave_or_are_lost_and_nothing_else_happens() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.exit(0, 4)
    drive.wait(2.25)
    first, seq = drive.result, drive.run.seq
    drive.report(0, LeaveReport())
    drive.news(2, SlotState.FAILED)
    drive.wait(100, silent={1, 2})
    assert drive.states() == ["left", "lost", "lost"]
    assert (drive.result, drive.run.seq) == (first, seq)


def test_a_restart_of_the_registry_is_told_and_changes_nothing() -> None:
    drive = in_phase(Phase.RUNNING)
    before = drive.run.seq
    outcome = drive.apply(events.Restarted())
    assert "full lease" in outcome.reason
    assert (drive.phase, drive.run.seq) == ("running", before)


def test_the_nodes_that_were_lost_besides_the_first_cause_are_named() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.wait(1)
    drive.exit(1, 3)
    drive.wait(16, silent=[2])
    assert drive.result.slot == 1
    assert drive.result.message.endswith("exit code 3; also lost: node 2 (host2, slot 2)")


def test_after_a_restart_the_verdict_waits_for_those_not_heard_of_since() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.wait(5)
    drive.exit(1, 3)
    drive.apply(events.Restarted())
    drive.leases.grant_all([(0, 1), (2, 1)], drive.now)
    drive.wait(14, silent=[2])
    assert drive.run.result is None
    drive.wait(1.5, silent=[2])
    assert drive.result.message.endswith("exit code 3; also lost: node 2 (host2, slot 2)")


# --- refusals of nodes that have not joined -------------------------------------------------------


@pytest.mark.parametrize("managed", [True, False])
@pytest.mark.parametrize("slot", [0, 1])
def test_a_node_that_refuses_to_join_ends_the_run_at_once_with_its_name_and_cause(
    managed: bool, slot: int
) -> None:
    drive = Drive(make_spec(2, managed=managed)).gather(1 - slot)
    drive.refuse_to_join(slot)
    result = drive.result
    assert (result.status, result.code, result.exit_code) == ("failed", "refused", 2)
    assert (result.slot, result.hostname) == (slot, f"host{slot}")
    assert result.message == f"slot {slot} (host{slot}) cannot take part: there is no GPU"
    assert result.hint == "ask for one"


def test_a_node_that_another_machine_may_cure_is_submitted_again_as_often_as_any() -> None:
    drive = Drive(make_spec(2))
    drive.news(1, SlotState.SUBMITTING)
    drive.refuse_to_join(1, retryable=True)
    assert drive.run.result is None
    assert drive.reasons[-1].endswith("; it is submitted again as generation 2")
    drive.news(1, SlotState.FAILED)  # the scheduler saw that one end, and it is known
    assert (drive.run.result, drive.slot(1).wanted) == (None, 2)
    drive.news(1, SlotState.SUBMITTING, 2)
    drive.refuse_to_join(1, 2, retryable=True)
    assert (drive.result.code, drive.result.slot) == ("refused", 1)


@pytest.mark.parametrize("sizes", [{"spares": 1}, {"least": 1}])
def test_a_slot_that_can_be_spared_is_dropped_where_its_node_refuses(sizes: dict[str, int]) -> None:
    drive = Drive(make_spec(2, **sizes)).gather(0)
    drive.refuse_to_join(1)
    assert drive.reasons[-1] == (
        "slot 1 (host1) cannot take part: there is no GPU; the run can spare it"
    )
    if sizes == {"spares": 1}:
        drive.join(2)
    drive.verify().arm()
    assert drive.phase is Phase.RUNNING
    drive = Drive(make_spec(2, **sizes)).gather(1)
    drive.refuse_to_join(0)
    assert drive.result.slot == 0


def test_a_slot_that_refuses_while_the_others_verify_is_not_waited_for_later() -> None:
    drive = Drive(make_spec(3, least=2)).gather(0, 1)
    drive.wait(31)
    drive.refuse_to_join(2)
    assert (drive.phase, drive.slot(2).given_up) == ("verifying", True)
    drive.verify().arm()
    assert drive.phase is Phase.RUNNING


def test_a_refusal_that_an_older_version_has_kept_is_replayed_as_it_was() -> None:
    drive = Drive(make_spec(2, spares=1))
    kept = events.Refused(slot=1, generation=1, code="mismatch", reason="another job")
    assert drive.apply(kept).reason == "refused: another job"
    assert (drive.result.code, drive.result.exit_code) == ("mismatch", 77)


def test_a_launchers_own_child_that_ends_before_it_joins_is_not_waited_for() -> None:
    drive = Drive(make_spec(2, managed=False)).gather(1)
    drive.news(0, SlotState.RUNNING)
    drive.news(0, SlotState.FAILED, detail="pid 7 ended with exit code 2: no such option")
    assert (drive.result.code, drive.result.slot) == ("scheduler_failed", 0)
    assert drive.result.message.endswith("pid 7 ended with exit code 2: no such option")


# --- the machine as a whole -----------------------------------------------------------------------

SLOTS = st.integers(0, 3)
GENERATIONS = st.integers(1, 3)
ADDRESSES = st.sampled_from(["10.0.0.1", "10.0.0.2", "10.9.9.9", "fd00::1"])
MOSTLY_NOW = st.sampled_from([0, 0, 0, 1])
"""How far back the epoch or the incarnation lies that a message is about."""


class Machine(RuleBasedStateMachine):
    """Everybody says anything at any time; the registry decides; its promises hold."""

    @initialize(
        phase=st.sampled_from([*BEFORE_GO, Phase.RUNNING]),
        least=st.integers(3, 4),
        spares=st.integers(0, 1),
        verify=st.booleans(),
    )
    def start(self, phase: Phase, least: int, spares: int, verify: bool) -> None:
        verify = verify or phase is Phase.VERIFYING
        nodes = 4 - spares
        sizes = {"least": min(least, nodes), "spares": spares}
        limits = {"last_call_seconds": 5, "submit_retries": 3}
        self.drive = in_phase(phase, nodes, verify=verify, **sizes, **limits)
        self.tables: dict[int, str] = {}
        self.proven: set[str] = set()
        self.final: Result | None = None

    def tried(self, call: Any, *arguments: Any, **changes: Any) -> None:
        """The registry may refuse; then nothing has changed, but for the refusal that it keeps."""
        before = self.drive.run.version
        try:
            call(*arguments, **changes)
        except Mismatch:
            assert self.drive.run.version <= before + 1
        except RequestError:
            assert self.drive.run.version == before

    def report(self, slot: int, back: int, report: Report, epochs_ago: int = 0) -> None:
        """A message; of an older incarnation, or on an older epoch, it must change nothing."""
        before = self.drive.run.version
        self.tried(self.drive.report, slot, report, self.drive.slot(slot).incarnations - back)
        assert back == epochs_ago == 0 or self.drive.run.version == before

    def another_joins(self, slot: int, generation: int) -> None:
        """A node that never joined before; when it is taken in, it has a number of its own."""
        place, attempt = self.drive.slot(slot), self.drive.run.version
        before, hostname = place.incarnations, f"host{slot}-{attempt}"
        self.tried(self.drive.join, slot, generation, attempt=attempt, hostname=hostname)
        if place.node is not None and place.node.join.hostname == hostname:
            assert place.node.incarnation == place.incarnations == before + 1
            assert place.joins[place.node.join.join_id] == before + 1

    @rule()
    def the_missing_join(self) -> None:
        for slot in sorted(self.drive.run.missing):
            self.another_joins(slot, self.drive.slot(slot).wanted)

    @rule(slot=SLOTS)
    def a_newer_worker_run_joins(self, slot: int) -> None:
        self.another_joins(slot, self.drive.slot(slot).generation + 1)

    @rule()
    def the_registry_comes_back(self) -> None:
        drive = self.drive
        drive.apply(events.Restarted())
        slots = [slot for slot in drive.run.slots if slot.node is not None]
        drive.leases.grant_all([(s.index, s.incarnations) for s in slots], drive.now)

    @rule()
    def all_verify_and_arm(self) -> None:
        if self.drive.phase is Phase.VERIFYING:
            self.drive.verify()
        if self.drive.phase is Phase.ARMING:
            self.drive.arm()

    @rule(
        slot=SLOTS,
        generation=GENERATIONS,
        attempt=st.integers(1, 3),
        address=ADDRESSES,
        rank=st.sampled_from([None] * 12 + [1, 2, 4]),
        nnodes=st.sampled_from([None] * 12 + ["5"]),
        sick=st.sampled_from([False] * 8 + [True]),
    )
    def a_node_joins(
        self,
        slot: int,
        generation: int,
        attempt: int,
        address: str,
        rank: int | None,
        nnodes: str | None,
        sick: bool,
    ) -> None:
        offered = [address, f"10.1.{slot % 2}.{slot + 1}"]
        found = [Finding(check="L12", level="fail", cause="it is sick")] * sick
        changes: dict[str, Any] = {"addresses": offered, "requested_rank": rank}
        changes |= {"findings": found, "job": Job(nnodes=nnodes)}
        self.tried(self.drive.join, slot, generation, attempt=attempt, **changes)

    @rule(
        slot=SLOTS,
        back=MOSTLY_NOW,
        epoch=MOSTLY_NOW,
        cut_off=st.sampled_from([[]] * 12 + [[1], [2, 99]]),
    )
    def a_node_probes(self, slot: int, back: int, epoch: int, cut_off: list[int]) -> None:
        report = make_probe(self.drive.run.epoch - epoch, slot, self.drive.listening(), cut_off)
        self.report(slot, back, report, epoch)

    @rule(slot=SLOTS, back=MOSTLY_NOW, epoch=MOSTLY_NOW, right=st.booleans())
    def a_node_acknowledges(self, slot: int, back: int, epoch: int, right: bool) -> None:
        run = self.drive.run
        digest = run.digest if right and run.digest else sha("another")
        before = run.version
        self.report(slot, back, AckReport(epoch=run.epoch - epoch, digest=digest), epoch)
        assert right or run.version == before

    @rule(slot=SLOTS, code=st.sampled_from(["port_taken"] * 9 + ["hosts"]))
    def a_node_refuses(self, slot: int, code: str) -> None:
        self.tried(self.drive.refuse, slot, code, "it cannot")

    @rule(slot=SLOTS, generation=GENERATIONS, retryable=st.sampled_from([True, True, True, False]))
    def a_node_refuses_to_join(self, slot: int, generation: int, retryable: bool) -> None:
        before = self.drive.slot(slot).live_node()
        self.drive.refuse_to_join(slot, generation, retryable=retryable)
        assert before is None or self.drive.slot(slot).live_node() is before

    @rule(
        slot=SLOTS,
        back=MOSTLY_NOW,
        code=st.sampled_from([0, 0, 1, 137]),
        age=st.floats(0, 60),
        stopped=st.booleans(),
    )
    def a_program_ends(self, slot: int, back: int, code: int, age: float, stopped: bool) -> None:
        epoch = self.drive.run.epoch
        self.report(
            slot, back, ExitReport(epoch=epoch, exit_code=code, age_seconds=age, stopped=stopped)
        )

    @rule(slot=SLOTS, back=MOSTLY_NOW)
    def a_node_leaves(self, slot: int, back: int) -> None:
        self.report(slot, back, LeaveReport())

    @rule(slot=SLOTS, state=st.sampled_from(list(SlotState)), generation=GENERATIONS)
    def the_launcher_tells(self, slot: int, state: SlotState, generation: int) -> None:
        self.tried(self.drive.news, slot, state, generation)

    @rule(silent=st.sets(SLOTS, max_size=2), seconds=st.sampled_from([0.5, 3, 7, 16]))
    def time_passes(self, silent: set[int], seconds: float) -> None:
        self.drive.wait(seconds, silent=silent)

    @precondition(lambda self: self.drive.run.version > 40)
    @rule()
    def somebody_cancels(self) -> None:
        if self.drive.phase is not Phase.FINISHED:
            self.drive.apply(events.Cancelled(reason="enough"))

    @invariant()
    def a_table_never_changes_within_its_epoch(self) -> None:
        run = self.drive.run
        if run.table is not None:
            assert run.table.epoch == run.epoch
            assert run.table.digest() == run.digest
            assert self.tables.setdefault(run.epoch, run.digest) == run.digest

    @invariant()
    def a_table_has_every_rank_slot_and_address_once(self) -> None:
        table = self.drive.run.table
        if table is not None:
            count = len(table.rows)
            assert [r.rank for r in table.rows] == list(range(count))
            assert table.rows[0].slot == 0
            assert (
                len({r.slot for r in table.rows}) == len({r.address for r in table.rows}) == count
            )
            assert self.drive.run.spec.min_nodes <= count <= self.drive.run.spec.max_nodes
            assert not {r.slot for r in table.rows} & set(self.drive.run.attempt.left_out)

    @invariant()
    def nobody_in_a_table_is_sick(self) -> None:
        table = self.drive.run.table
        for r in table.rows if table is not None else []:
            node = self.drive.slot(r.slot).node
            assert node is None or not node.join.findings

    @invariant()
    def a_table_stands_on_pairs_that_were_proven(self) -> None:
        run = self.drive.run
        if run.phase is not Phase.ARMING or run.digest in self.proven or not run.spec.verify:
            return
        assert run.table is not None
        self.proven.add(run.digest)
        nodes = {r.slot: self.drive.node(r.slot).incarnation for r in run.table.rows}
        proven = {
            (event.slot, pair.slot)
            for _, event in self.drive.journal
            if isinstance(event, events.Probed) and nodes.get(event.slot) == event.incarnation
            for pair in event.report.pairs
            if pair.outcome == "ok"
        }
        assert {(a, b) for a in nodes for b in nodes if a != b} <= proven

    @invariant()
    def nobody_runs_on_a_table_that_not_all_have_acknowledged(self) -> None:
        run = self.drive.run
        if run.phase is Phase.RUNNING or NodeState.RUNNING in self.drive.states():
            assert run.table is not None
            acknowledged = {
                (event.slot, event.incarnation, event.report.digest)
                for _, event in self.drive.journal
                if isinstance(event, events.Acked)
            }
            for r in run.table.rows:
                assert (r.slot, self.drive.node(r.slot).incarnation, run.digest) in acknowledged

    @invariant()
    def there_is_always_a_reason_and_the_end_is_final(self) -> None:
        run = self.drive.run
        assert reason(run, self.drive.now).strip()
        assert (run.result is None) == (run.phase is not Phase.FINISHED)
        if self.final is not None:
            assert run.result == self.final
        self.final = run.result

    @invariant()
    def whom_the_run_waits_for_is_there(self) -> None:
        run = self.drive.run
        if run.phase is Phase.GATHERING:
            assert run.missing == {s.index for s in run.slots if s.node is None}
        elif run.phase in (Phase.VERIFYING, Phase.ARMING):
            assert run.waiting_for
            assert run.waiting_for <= {s.index for s in run.members()}

    def teardown(self) -> None:
        """The same journal, read back from its bytes, gives the same state."""
        spec, start = self.drive.run.spec, self.drive.journal[0][0]
        again = create("r", spec, start)
        reasons = []
        for now, event in self.drive.journal:
            copy = events.load_event(events.dump_event(event))
            assert copy == event
            reasons.append(apply(again, copy, now).reason)
        assert again == self.drive.run
        assert reasons == self.drive.reasons
        assert all(reasons)


TestMachine = pytest.mark.timeout(300)(Machine.TestCase)
TestMachine.settings = settings(FEW, max_examples=400, stateful_step_count=40)
