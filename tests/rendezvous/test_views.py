"""What nodes and people are told of a run."""

from __future__ import annotations

from typing import Any

import pytest

from rendezvous.run import events
from rendezvous.run.decision import Outcome
from rendezvous.run.views import (
    event_line,
    node_view,
    reason,
    reason_and_topic,
    remaining_seconds,
    run_status,
)
from rendezvous.wire.run import EventLine, NodeState, Phase, RunStatus, SlotState, SlotStatus
from rendezvous.wire.watch import NodeView
from rendezvous.wire.words import did_you_mean, time_text
from tests.support.driver import LAUNCH, Drive, in_phase, make_spec


def test_of_each_missing_slot_it_is_said_what_is_known_of_its_worker_run() -> None:
    drive = Drive(make_spec(4, join_timeout_seconds=600)).gather(0).wait(20)
    drive.news(1, SlotState.SUBMITTING)
    drive.news(2, SlotState.SUBMITTING)
    drive.news(2, SlotState.QUEUED, detail="Priority")
    assert drive.waits() == (
        "waiting for 3 of 4 nodes, 580 s left: slot 1 being submitted; slot 2 queued "
        "(Priority); slot 3 not submitted yet"
    )
    drive.news(1, SlotState.SUBMITTED)
    drive.news(3, SlotState.SUBMITTING)
    drive.wait(60)
    drive.news(3, SlotState.UNKNOWN, detail="QUIRKY")
    drive.wait(240)
    assert drive.waits() == (
        "waiting for 3 of 4 nodes, 300 s left: slot 1 submitted 5 min ago; slot 2 queued 5 "
        "min (Priority); slot 3 in an unknown state for 4 min (QUIRKY)"
    )


def test_a_worker_run_that_runs_and_never_calls_is_told_with_the_address_to_open() -> None:
    drive = Drive(make_spec(3, registry="10.0.3.7:29600")).gather(0)
    drive.news(1, SlotState.SUBMITTING)
    drive.news(2, SlotState.SUBMITTING)
    drive.news(1, SlotState.RUNNING, detail="n1")
    drive.news(2, SlotState.RUNNING, detail="n2")
    drive.wait(29)
    assert drive.waits() == (
        "waiting for 2 of 3 nodes, 571 s left: slots 1-2 running for 20 s, not joined yet"
    )
    drive.wait(1)
    assert drive.waits() == (
        "waiting for 2 of 3 nodes, 570 s left: slots 1-2 have been running for 30 s but "
        "have not contacted the registry; check that they can reach 10.0.3.7:29600"
    )
    drive.join(1)
    drive.wait(30)
    assert drive.waits() == (
        "waiting for 1 of 3 nodes, 540 s left: slot 2 has been running for 1 min but has "
        "not contacted the registry; check that it can reach 10.0.3.7:29600"
    )


def test_what_is_queued_has_no_deadline() -> None:
    drive = Drive(make_spec()).gather(0)
    drive.news(1, SlotState.SUBMITTING)
    drive.news(1, SlotState.QUEUED)
    drive.wait(9.75)
    assert drive.waits() == "waiting for 1 of 2 nodes: slot 1 queued"
    drive.wait(0.25)
    assert drive.waits() == "waiting for 1 of 2 nodes: slot 1 queued 10 s"


def test_the_time_of_a_state_begins_when_it_changes_and_not_with_new_words() -> None:
    drive = Drive(make_spec()).gather(0)
    drive.news(1, SlotState.SUBMITTING)
    drive.wait(60)
    drive.news(1, SlotState.QUEUED, detail="Priority")
    drive.wait(60)
    drive.news(1, SlotState.QUEUED, detail="Resources")
    assert drive.slot(1).since == 160.0
    assert drive.waits() == ("waiting for 1 of 2 nodes: slot 1 queued 1 min (Resources)")


def test_slots_of_one_state_and_reason_are_told_together_and_three_kinds_at_most() -> None:
    drive = Drive(make_spec(9)).gather(0)
    for slot in (1, 2, 3, 6, 5):
        drive.news(slot, SlotState.SUBMITTING)
        drive.news(slot, SlotState.QUEUED, detail="Priority" if slot == 5 else "Quota")
    assert drive.waits() == (
        "waiting for 8 of 9 nodes, 600 s left: slots 1-3, 6 queued (Quota); slots 4, 7-8 "
        "not submitted yet; slot 5 queued (Priority)"
    )
    drive.news(2, SlotState.RUNNING)
    drive.news(3, SlotState.SUBMITTED)
    assert drive.waits() == (
        "waiting for 8 of 9 nodes, 600 s left: slots 1, 6 queued (Quota); slot 2 running, "
        "not joined yet; slot 3 submitted; and 4 more"
    )


def test_a_slot_that_was_given_up_is_not_waited_for() -> None:
    drive = Drive(make_spec(4, least=2, submit_retries=0)).gather(0)
    drive.news(2, SlotState.FAILED)
    assert drive.waits() == ("waiting for 2 of 2:4 nodes, 600 s left: slots 1, 3 not submitted yet")


def test_where_nobody_submits_a_slot_is_waited_for_and_then_never_called() -> None:
    drive = Drive(make_spec(3, managed=False)).gather(0)
    assert drive.waits() == ("waiting for 2 of 3 nodes, 600 s left: slots 1-2 have not joined yet")
    drive.wait(30)
    assert drive.waits() == (
        "waiting for 2 of 3 nodes, 570 s left: slots 1-2 have not contacted the registry; "
        "check that they can reach the registry's address"
    )


def test_arming_names_whom_it_waits_for() -> None:
    drive = in_phase(Phase.ARMING)
    drive.ack(0)
    drive.wait(2)
    assert remaining_seconds(drive.run, drive.now) == 58.0
    assert drive.waits() == "waiting for node 1 (host1) to get ready, 58 s left"


def test_running_says_on_how_many_nodes_and_then_who_failed() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    assert remaining_seconds(drive.run, drive.now) is None
    assert drive.waits() == "running on 3 nodes"
    drive.exit(1, 9)
    assert drive.waits() == (
        "node 1 (host1) failed: the program ended with exit code 9; the others are being stopped"
    )


def test_running_says_who_is_waited_for_when_others_ended_well_a_while_ago() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.exit(1, 0)
    drive.wait(9)
    assert not drive.status().ending
    assert drive.waits() == "running on 3 nodes"
    drive.wait(1)
    assert drive.status().ending
    assert drive.waits() == (
        "1 of 3 nodes ended with exit code 0; waiting for node 0 (host0), node 2 (host2) to"
        " end for 10 s"
    )
    drive.exit(0, 0)
    assert not drive.status().ending
    assert drive.waits() == "running on 3 nodes"
    drive.wait(200)
    assert drive.waits() == (
        "2 of 3 nodes ended with exit code 0; waiting for node 2 (host2) to end for 3 min"
    )
    drive.exit(2, 1)
    assert not drive.status().ending


def test_running_names_the_node_that_was_lost() -> None:
    drive = in_phase(Phase.RUNNING, 3).wait(15, silent=[2])
    assert drive.waits() == (
        "node 2 (host2) was lost: it was silent for 15 s: host, network or agent is down or "
        "paused; the others are being stopped"
    )


def test_a_run_of_one_node_has_no_peers_and_no_other_nodes() -> None:
    drive = Drive(make_spec(1, join_timeout_seconds=600))
    drive.news(0, SlotState.SUBMITTING)
    assert drive.waits() == ("waiting for the node, 600 s left: slot 0 being submitted")
    drive.gather(0)
    assert drive.reasons[-1] == "host0 joined, from 10.0.0.1"
    assert drive.waits() == "waiting for slot 0 (host0) to report, 60 s left"
    drive.verify()
    assert drive.reasons[-1] == "slot 0 (host0) is verified"
    drive.arm()
    assert drive.waits() == "running on 1 node"
    drive.wait(12)
    drive.exit(0, 0, ran_seconds=12.0)
    assert drive.result.status == "ok"
    assert drive.waits() == "the node ended with exit code 0"


def test_the_one_node_that_does_not_report_is_named() -> None:
    drive = Drive(make_spec(1, verify_timeout_seconds=60)).gather(0).wait(60)
    assert drive.result.code == "verification_failed"
    assert drive.result.message == (
        "slot 0 (host0) did not report within 60 s, though still connected"
    )


def test_a_registry_that_doubts_itself_says_so() -> None:
    drive = in_phase(Phase.RUNNING, 4).wait(16, silent=[0, 1, 2])
    assert drive.states() == ["running", "running", "running", "running"]
    assert drive.status().reason == (
        "most nodes went silent at the same time, so this registry itself may be cut off; "
        "it waits; running on 4 nodes"
    )


def test_a_slot_that_was_given_up_leaves_one_less_to_spare() -> None:
    drive = Drive(make_spec(5, least=3, join_timeout_seconds=60, submit_retries=0)).gather(0)
    drive.news(4, SlotState.FAILED)
    drive.wait(40)
    drive.news(2, SlotState.SUBMITTING)
    drive.wait(10)
    drive.news(3, SlotState.SUBMITTING)
    assert remaining_seconds(drive.run, drive.now) == 50.0


def test_slot_0_counts_although_the_others_are_enough() -> None:
    drive = Drive(make_spec(3, least=2, join_timeout_seconds=60)).gather(1, 2).wait(10)
    assert remaining_seconds(drive.run, drive.now) == 50.0


@pytest.mark.parametrize(
    ("phase", "left"), [(Phase.GATHERING, 600.0), (Phase.VERIFYING, 60.0), (Phase.ARMING, 60.0)]
)
def test_each_phase_has_its_own_deadline(phase: Phase, left: float) -> None:
    drive = in_phase(phase)
    assert remaining_seconds(drive.run, drive.now) == left


def test_everyone_has_left_once_each_node_has_left_or_is_lost() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    assert not drive.status().everyone_left
    drive.exit(0, 5)
    drive.wait(3)
    drive.leave(0)
    drive.leave(1)
    assert not drive.status().everyone_left
    drive.wait(16, silent=[2])
    assert drive.states() == ["left", "left", "lost"]
    assert drive.status().everyone_left


def test_of_a_run_with_a_spare_the_board_shows_it_too() -> None:
    drive = Drive(make_spec(2, spares=1)).gather(0)
    assert drive.status().spares == 1
    assert drive.status().reason == (
        "waiting for 2 of 3 nodes (2 nodes and 1 spare), 600 s left: slots 1-2 not submitted yet"
    )


def test_an_empty_run_has_nobody_to_tell() -> None:
    drive = Drive(make_spec())
    assert drive.status().everyone_left


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(9.9, ""), (59.9, "50 s"), (60, "1 min"), (7199, "119 min"), (7200, "2 h"), (5e5, "138 h")],
)
def test_a_time_is_told_in_its_unit(seconds: float, words: str) -> None:
    assert time_text(seconds) == words


def test_the_topic_changes_with_the_sentence_but_for_the_times_in_it() -> None:
    drive = Drive(make_spec(2)).gather(0)
    drive.news(1, SlotState.SUBMITTING)
    drive.news(1, SlotState.QUEUED, detail="Quota for 20 s")
    before, topic = reason_and_topic(drive.run, drive.now)
    drive.wait(61)
    words, same = reason_and_topic(drive.run, drive.now)
    assert (words != before, same) == (True, topic)
    drive.news(1, SlotState.QUEUED, detail="Quota for 30 s")
    assert reason_and_topic(drive.run, drive.now)[1] != topic


def test_a_finished_run_has_a_result_and_no_deadline_and_its_clock_stands() -> None:
    drive = Drive(make_spec(1), now=0.0)
    drive.apply(events.Cancelled(reason="at once"))
    status = run_status(drive.run, 50.0, drive.leases)
    assert (status.remaining_seconds, status.elapsed_seconds) == (None, 0.0)
    assert status.result == drive.result


# --- what every node is told ----------------------------------------------------------------------


def test_the_table_goes_with_the_news_while_it_is_to_be_acknowledged() -> None:
    drive = in_phase(Phase.ARMING)
    run = drive.run
    assert node_view(run, drive.now, 2.0) == NodeView(
        seq=run.seq,
        phase=Phase.ARMING,
        epoch=1,
        reason=reason(run, drive.now),
        topic=reason_and_topic(run, drive.now)[1],
        digest=run.digest,
        table=run.table,
        poll_seconds=2.0,
    )


@pytest.mark.parametrize("phase", [Phase.GATHERING, Phase.VERIFYING, Phase.RUNNING])
def test_the_table_is_told_neither_before_the_seal_nor_after_the_go(phase: Phase) -> None:
    drive = in_phase(phase)
    view = node_view(drive.run, drive.now, 2.0)
    assert (view.digest, view.table) == (drive.run.digest, None)
    assert bool(view.digest) is (phase is Phase.RUNNING)


@pytest.mark.parametrize("phase", list(Phase)[:4])
def test_before_the_go_a_trouble_of_the_registry_is_what_a_run_waits_for(phase: Phase) -> None:
    drive = in_phase(phase)
    usual, trouble = drive.waits(), "the disk is full"
    status = run_status(drive.run, drive.now, drive.leases, trouble=trouble)
    told = usual if phase is Phase.RUNNING else trouble
    assert (status.reason, status.trouble) == (told, trouble)


def test_the_result_goes_with_the_news() -> None:
    drive = in_phase(Phase.RUNNING)
    drive.exit(0, 3)
    view = node_view(drive.run, drive.now, 2.0)
    assert (view.stop, view.result) == (True, None)
    drive.exit(1, 0)
    view = node_view(drive.run, drive.now, 2.0)
    assert (view.stop, view.result, view.table) == (True, drive.result, None)


# --- what people see ------------------------------------------------------------------------------


def test_the_status_tells_everything() -> None:
    drive = Drive(make_spec(3, least=2, submit_retries=1))
    drive.join(0, nproc_per_node=2)
    drive.news(1, SlotState.SUBMITTING, name="rdzv-r-1")
    drive.news(1, SlotState.QUEUED, handle="17", detail="Priority")
    drive.wait(3.14, silent={0})
    status = run_status(drive.run, drive.now, drive.leases, unwritten_seconds=2.0)
    every: dict[str, Any] = {"wanted_generation": 1, "state_seconds": 3.1}
    here: dict[str, Any] = {"node_state": NodeState.JOINED, "hostname": "host0", "incarnation": 1}
    here |= {"address": "10.0.0.1", "source": "10.0.0.1"}
    here |= {"nproc_per_node": 2, "silent_seconds": 3.1}
    queued: dict[str, Any] = {"state": SlotState.QUEUED, "detail": "Priority"}
    queued |= {"name": "rdzv-r-1", "handle": "17"}
    assert status == RunStatus(
        run="r",
        launch_id=LAUNCH,
        version=drive.run.version,
        phase=Phase.GATHERING,
        epoch=0,
        reason="waiting for 2 of 2:3 nodes, 600 s left: slot 1 queued (Priority); "
        "slot 2 not submitted yet",
        topic=reason_and_topic(drive.run, drive.now)[1],
        min_nodes=2,
        max_nodes=3,
        elapsed_seconds=drive.now - drive.run.created_at,
        remaining_seconds=600.0,
        unwritten_seconds=2.0,
        slots=[
            SlotStatus(slot=0, generation=1, state=SlotState.NONE, **every, **here),
            SlotStatus(slot=1, generation=1, **every, **queued),
            SlotStatus(slot=2, generation=0, state=SlotState.NONE, **every),
        ],
    )
    bare = status.model_copy(update={"slots": [], "unwritten_seconds": 0.0})
    assert run_status(drive.run, drive.now, drive.leases, slots=False) == bare


def test_the_status_of_a_node_shows_its_rank_progress_exit_and_problem() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.progress(0, "step 10")
    drive.exit(1, 9)
    drive.wait(16, silent={2})
    first, second, third = drive.status().slots
    assert (first.node, first.node_state, first.progress) == (0, "running", "step 10")
    assert (second.node, second.node_state, second.exit_code) == (1, "exited", 9)
    assert (third.node_state, third.problem) == (
        "lost",
        "it was silent for 15 s: host, network or agent is down or paused",
    )
    assert (first.silent_seconds, third.silent_seconds) == (0.0, None)


def test_the_status_of_a_node_tells_whether_it_was_stopped_or_failed_itself() -> None:
    drive = in_phase(Phase.RUNNING, 4)
    drive.exit(1, 1)
    drive.stop(0)
    drive.exit(2, 1)  # of itself, after the first
    drive.exit(3, 0, stopped=True)
    slots = drive.status().slots
    assert [slot.stopped for slot in slots] == [True, False, False, True]


def test_a_program_that_a_stranger_stopped_has_failed() -> None:
    drive = in_phase(Phase.RUNNING, 2)
    drive.stop(0)
    slots = drive.status().slots
    assert [(slot.exit_code, slot.stopped) for slot in slots] == [(143, False), (None, False)]


def test_an_event_is_told_with_what_it_did_to_the_run() -> None:
    run = in_phase(Phase.RUNNING, 2).run
    event = events.Left(slot=1, incarnation=1)
    line = event_line(run, 7, event, Outcome("it has left", 1, usual=True), run.created_at + 2)
    assert (run.phase, run.epoch) == (Phase.RUNNING, 1)
    assert line == EventLine(7, 2.0, "left", "it has left", Phase.RUNNING, 1, 1, usual=True)


def test_the_address_shown_is_the_sealed_one() -> None:
    drive = Drive(make_spec(2))
    for slot in (0, 1):
        drive.join(slot, addresses=["172.17.0.1", f"10.0.0.{slot + 1}"])
    before = drive.status()
    drive.verify()
    after = drive.status()
    assert [s.address for s in before.slots] == ["172.17.0.1", "172.17.0.1"]
    assert [s.address for s in after.slots] == ["10.0.0.1", "10.0.0.2"]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("lanch", "did you mean 'launch'?"),
        ("LAUNCH", "did you mean 'launch'?"),
        ("state", "did you mean 'stats' or 'start'?"),
        ("xyzzy", ""),
        ("", ""),
    ],
)
def test_a_typo_is_shown_the_two_nearest_words_at_most(word: str, said: str) -> None:
    assert did_you_mean(word, ["bench", "launch", "stats", "status", "start"]) == said
    assert did_you_mean(word, []) == ""
