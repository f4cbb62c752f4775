"""What nodes and people are told of a run."""

from __future__ import annotations

import pytest

from rendezvous.run import events
from rendezvous.run.leases import Leases
from rendezvous.run.views import (
    everyone_left,
    node_view,
    reason,
    reason_and_topic,
    remaining_seconds,
    run_status,
)
from rendezvous.wire.reports import LeaveReport
from rendezvous.wire.run import NodeState, Phase, RunStatus, SlotState, SlotStatus
from rendezvous.wire.watch import NodeView
from tests.support.driver import LAUNCH, Drive, in_phase, make_spec


def said(drive: Drive) -> str:
    return reason(drive.run, drive.now)


# --- the sentence ---------------------------------------------------------------------------------


def test_gathering_says_of_each_missing_slot_what_is_known_of_its_worker_run() -> None:
    drive = Drive(make_spec(4, join_timeout_seconds=600)).gather(0)
    drive.wait(20)
    drive.news(1, SlotState.SUBMITTING)
    drive.news(2, SlotState.SUBMITTING)
    drive.news(2, SlotState.QUEUED, detail="Priority")
    assert said(drive) == (
        "waiting for 3 of 4 nodes, 580 s left: slot 1 being submitted; slot 2 queued (Priority); "
        "slot 3 not submitted yet"
    )
    drive.news(1, SlotState.SUBMITTED)
    drive.news(3, SlotState.SUBMITTING)
    drive.wait(60)
    drive.news(3, SlotState.UNKNOWN, detail="QUIRKY")
    drive.wait(240)
    assert said(drive) == (
        "waiting for 3 of 4 nodes, 300 s left: slot 1 submitted 5 min ago; "
        "slot 2 queued 5 min (Priority); slot 3 in no known state for 4 min (QUIRKY)"
    )


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


def test_a_worker_run_that_runs_and_never_calls_is_told_with_the_address_to_be_opened() -> None:
    drive = Drive(make_spec(3, registry="10.0.3.7:29600")).gather(0)
    for slot in (1, 2):
        drive.news(slot, SlotState.SUBMITTING)
        drive.news(slot, SlotState.RUNNING, detail=f"n{slot}")
    drive.wait(29)
    assert said(drive) == (
        "waiting for 2 of 3 nodes, 571 s left: slots 1-2 running for 20 s, not here yet"
    )
    drive.wait(1)
    assert said(drive) == (
        "waiting for 2 of 3 nodes, 570 s left: slots 1-2 running for 30 s but never called: "
        "check that they can open 10.0.3.7:29600"
    )
    drive.join(1)
    drive.wait(30)
    assert said(drive) == (
        "waiting for 1 of 3 nodes, 540 s left: slot 2 running for 1 min but never called: "
        "check that it can open 10.0.3.7:29600"
    )


@pytest.mark.parametrize("phase", list(Phase)[:4])
def test_before_the_go_a_trouble_of_the_registry_is_what_a_run_waits_for(phase: Phase) -> None:
    drive = in_phase(phase)
    usual = said(drive)
    told = reason(drive.run, drive.now, "the disk is full")
    assert told == (usual if phase is Phase.RUNNING else "the disk is full")
    status = run_status(drive.run, drive.now, trouble="the disk is full")
    assert (status.reason, status.trouble) == (told, "the disk is full")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (9.9, "queued"),
        (10, "queued 10 s"),
        (59.9, "queued 50 s"),
        (60, "queued 1 min"),
        (7199, "queued 119 min"),
        (7200, "queued 2 h"),
        (500_000, "queued 138 h"),
    ],
)
def test_what_is_queued_has_its_time_and_no_deadline(seconds: float, words: str) -> None:
    drive = Drive(make_spec(2)).gather(0)
    drive.news(1, SlotState.SUBMITTING)
    drive.news(1, SlotState.QUEUED)
    drive.now += seconds
    assert said(drive) == f"waiting for 1 of 2 nodes: slot 1 {words}"


def test_the_time_of_a_state_begins_when_it_changes_and_not_with_new_words() -> None:
    drive = Drive(make_spec(2)).gather(0)
    drive.news(1, SlotState.SUBMITTING)
    drive.now += 60
    drive.news(1, SlotState.QUEUED, detail="Priority")
    drive.now += 60
    drive.news(1, SlotState.QUEUED, detail="Resources")
    assert said(drive) == "waiting for 1 of 2 nodes: slot 1 queued 1 min (Resources)"
    assert run_status(drive.run, drive.now).slots[1].state_seconds == 60.0


def test_slots_of_one_state_and_reason_are_told_together_and_three_kinds_at_most() -> None:
    drive = Drive(make_spec(9)).gather(0)
    for slot in (1, 2, 3, 5, 6):
        drive.news(slot, SlotState.SUBMITTING)
    for slot in (1, 2, 3, 6):
        drive.news(slot, SlotState.QUEUED, detail="Quota")
    drive.news(5, SlotState.QUEUED, detail="Priority")
    assert said(drive) == (
        "waiting for 8 of 9 nodes, 600 s left: slots 1-3, 6 queued (Quota); "
        "slots 4, 7-8 not submitted yet; slot 5 queued (Priority)"
    )
    drive.news(2, SlotState.RUNNING)
    drive.news(3, SlotState.SUBMITTED)
    assert said(drive) == (
        "waiting for 8 of 9 nodes, 600 s left: slots 1, 6 queued (Quota); slot 2 running, "
        "not here yet; slot 3 submitted; and 4 more"
    )


def test_a_slot_that_was_given_up_is_not_waited_for() -> None:
    drive = Drive(make_spec(4, least=2, submit_retries=0)).gather(0)
    drive.news(2, SlotState.FAILED)
    assert said(drive) == ("waiting for 2 of 2:4 nodes, 600 s left: slots 1, 3 not submitted yet")


def test_a_slot_whose_worker_run_failed_is_to_be_submitted_again() -> None:
    drive = Drive(make_spec(2)).gather(0)
    drive.news(1, SlotState.FAILED, detail="no such image")
    assert said(drive) == (
        "waiting for 1 of 2 nodes, 600 s left: slot 1 to be submitted again (no such image)"
    )


def test_where_nobody_submits_a_slot_is_waited_for_and_then_never_called() -> None:
    drive = Drive(make_spec(3, managed=False)).gather(0)
    assert said(drive) == "waiting for 2 of 3 nodes, 600 s left: slots 1-2 not here yet"
    drive.wait(30)
    assert said(drive) == (
        "waiting for 2 of 3 nodes, 570 s left: slots 1-2 never called: check that they can open "
        "the registry's address"
    )


def test_the_last_call_is_counted_down() -> None:
    drive = Drive(make_spec(4, least=2, last_call_seconds=30)).gather(0, 1)
    drive.wait(10)
    assert said(drive) == "2 of 2:4 nodes joined; last call, 20 s left"


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        (Phase.VERIFYING, "waiting for slot 1 (host1) to report on their peers, 58 s left"),
        (Phase.ARMING, "waiting for node 1 (host1, slot 1) to acknowledge the table, 58 s left"),
    ],
)
def test_verifying_and_arming_name_whom_they_wait_for(phase: Phase, words: str) -> None:
    drive = in_phase(phase)
    if phase is Phase.VERIFYING:
        drive.probe(0)
    else:
        drive.ack(0)
    drive.wait(2)
    assert said(drive) == words


def test_running_says_on_how_many_nodes_and_then_who_failed() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    assert said(drive) == "running on 3 nodes"
    drive.exit(1, 9)
    assert said(drive) == (
        "node 1 (host1, slot 1) failed: the program ended with exit code 9; "
        "the others are being stopped"
    )


def test_running_says_who_is_waited_for_when_others_ended_well_a_while_ago() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.exit(1, 0)
    drive.wait(9)
    assert said(drive) == "running on 3 nodes"
    drive.wait(1)
    assert said(drive) == (
        "1 of 3 nodes ended with exit code 0; waiting for node 0 (host0, slot 0), "
        "node 2 (host2, slot 2) to end for 10 s"
    )
    drive.exit(0, 0)
    assert said(drive) == "running on 3 nodes"
    drive.wait(200)
    assert said(drive) == (
        "2 of 3 nodes ended with exit code 0; waiting for node 2 (host2, slot 2) to end for 3 min"
    )


def test_a_status_tells_that_some_are_late_to_end() -> None:
    drive = in_phase(Phase.RUNNING, 2)
    drive.exit(1, 0)
    assert not run_status(drive.run, drive.now).ending
    drive.wait(10)
    assert run_status(drive.run, drive.now).ending
    drive.exit(0, 1)
    assert not run_status(drive.run, drive.now).ending


def test_running_names_the_node_that_was_lost() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.wait(15, silent={2})
    assert said(drive) == (
        "node 2 (host2, slot 2) was lost: it was silent for 15 s: host, network or agent is down; "
        "the others are being stopped"
    )


def test_finished_says_the_result() -> None:
    drive = in_phase(Phase.RUNNING, 1)
    drive.exit(0, 0, ran_seconds=12.3)
    assert said(drive) == "all 1 nodes ended with exit code 0 after 12 s"


def test_a_registry_that_stood_still_says_how_long_the_programs_ran() -> None:
    """Its own clock stands still as well: by that, no time has passed since the go."""
    drive = in_phase(Phase.RUNNING, 3)
    for slot, seconds in enumerate((11.8, 12.2, 3.0)):
        drive.exit(slot, 0, ran_seconds=seconds)
    assert said(drive) == "all 3 nodes ended with exit code 0 after 12 s"


def test_how_long_older_nodes_ran_is_not_guessed() -> None:
    drive = in_phase(Phase.RUNNING, 1)
    drive.wait(30)
    drive.exit(0, 0)
    assert said(drive) == "all 1 nodes ended with exit code 0"


# --- the time that is left ------------------------------------------------------------------------


def test_each_phase_has_its_own_deadline() -> None:
    left = {
        phase: remaining_seconds((drive := in_phase(phase)).run, drive.now + 10)
        for phase in Phase
        if phase is not Phase.FINISHED
    }
    assert left == {"gathering": 590, "verifying": 50, "arming": 50, "running": None}


def test_the_slot_that_waited_longest_counts() -> None:
    drive = Drive(make_spec(3, join_timeout_seconds=60)).gather(0)
    drive.wait(40)
    drive.news(1, SlotState.SUBMITTING)
    assert remaining_seconds(drive.run, drive.now) == 20
    drive.news(2, SlotState.SUBMITTING)
    assert remaining_seconds(drive.run, drive.now) == 60


def test_with_min_max_the_slot_counts_whose_timeout_ends_the_run() -> None:
    drive = Drive(make_spec(4, least=3, join_timeout_seconds=60)).gather(0)
    drive.wait(40)
    drive.news(2, SlotState.SUBMITTING)
    drive.wait(10)
    drive.news(3, SlotState.SUBMITTING)
    assert remaining_seconds(drive.run, drive.now) == 50  # slot 1 can be spared, slot 2 then not
    drive.wait(49.75)
    assert drive.run.result is None
    drive.wait(0.25)
    assert drive.result.code == "join_timeout"


def test_a_slot_that_was_given_up_leaves_one_less_to_spare() -> None:
    limits = {"join_timeout_seconds": 60, "submit_retries": 0}
    drive = Drive(make_spec(5, least=3, **limits)).gather(0)
    drive.news(4, SlotState.FAILED)
    drive.wait(40)
    drive.news(2, SlotState.SUBMITTING)
    drive.wait(10)
    drive.news(3, SlotState.SUBMITTING)
    assert remaining_seconds(drive.run, drive.now) == 50  # slots 4 and 1 are spared, 2 is not


def test_slot_0_counts_although_the_others_are_enough() -> None:
    drive = Drive(make_spec(3, least=2, join_timeout_seconds=60)).gather(1, 2)
    drive.wait(10)
    assert remaining_seconds(drive.run, drive.now) == 50


def test_a_finished_run_has_no_deadline_and_its_clock_stands() -> None:
    drive = Drive(make_spec(1), now=0.0)
    drive.apply(events.Cancelled(reason="at once"))
    status = run_status(drive.run, 50.0)
    assert (status.remaining_seconds, status.elapsed_seconds) == (None, 0.0)


# --- what every node is told ----------------------------------------------------------------------


def test_the_table_goes_with_the_news_while_it_is_to_be_acknowledged() -> None:
    drive = in_phase(Phase.ARMING)
    run = drive.run
    assert node_view(run, drive.now, 2.0) == NodeView(
        seq=run.seq,
        phase=Phase.ARMING,
        epoch=1,
        reason=said(drive),
        topic=reason_and_topic(run, drive.now)[1],
        digest=run.digest,
        table=run.table,
        poll_seconds=2.0,
    )


def test_the_go_names_the_table_by_its_digest_since_every_node_has_it() -> None:
    drive = in_phase(Phase.RUNNING)
    view = node_view(drive.run, drive.now, 2.0)
    assert (view.digest, view.table) == (drive.run.digest, None)
    assert view.digest


def test_there_is_no_table_before_the_seal() -> None:
    for phase in (Phase.GATHERING, Phase.VERIFYING):
        drive = in_phase(phase)
        assert node_view(drive.run, drive.now, 2.0).table is None


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
    drive.wait(3, silent={0})
    status = run_status(drive.run, drive.now, drive.leases)
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
        elapsed_seconds=3.0,
        remaining_seconds=600.0,
        slots=[
            SlotStatus(
                slot=0,
                generation=1,
                wanted_generation=1,
                state=SlotState.NONE,
                state_seconds=3.0,
                node_state=NodeState.JOINED,
                incarnation=1,
                hostname="host0",
                address="10.0.0.1",
                nproc_per_node=2,
                silent_seconds=3.0,
            ),
            SlotStatus(
                slot=1,
                generation=1,
                wanted_generation=1,
                state=SlotState.QUEUED,
                state_seconds=3.0,
                detail="Priority",
                name="rdzv-r-1",
                handle="17",
            ),
            SlotStatus(
                slot=2,
                generation=0,
                wanted_generation=1,
                state=SlotState.NONE,
                state_seconds=3.0,
            ),
        ],
    )
    assert run_status(drive.run, drive.now, slots=False) == status.model_copy(update={"slots": []})


def test_the_status_of_a_node_shows_its_rank_progress_exit_and_problem() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    drive.progress(0, "step 10")
    drive.exit(1, 9)
    drive.wait(16, silent={2})
    first, second, third = run_status(drive.run, drive.now, drive.leases).slots
    assert (first.rank, first.node_state, first.progress) == (0, "running", "step 10")
    assert (second.rank, second.node_state, second.exit_code) == (1, "exited", 9)
    assert (third.node_state, third.problem) == (
        "lost",
        "it was silent for 15 s: host, network or agent is down",
    )
    assert (first.silent_seconds, third.silent_seconds) == (0.0, None)


def test_the_address_shown_is_the_sealed_one() -> None:
    drive = Drive(make_spec(2))
    for slot in (0, 1):
        drive.join(slot, addresses=["172.17.0.1", f"10.0.0.{slot + 1}"])
    before = run_status(drive.run, drive.now)
    drive.verify()
    after = run_status(drive.run, drive.now)
    assert [s.address for s in before.slots] == ["172.17.0.1", "172.17.0.1"]
    assert [s.address for s in after.slots] == ["10.0.0.1", "10.0.0.2"]


def test_a_registry_that_doubts_itself_says_so() -> None:
    drive = in_phase(Phase.RUNNING, 4)
    drive.wait(16, silent={0, 1, 2})
    assert drive.states() == ["running"] * 4
    status = run_status(drive.run, drive.now, drive.leases)
    assert status.reason == (
        "most nodes are silent together: this registry may be the one cut off, so it waits; "
        "running on 4 nodes"
    )
    calm = Leases(15, 2)
    assert run_status(drive.run, drive.now, calm).reason == "running on 4 nodes"


# --- the end --------------------------------------------------------------------------------------


def test_everyone_has_left_once_each_node_has_left_or_is_lost() -> None:
    drive = in_phase(Phase.RUNNING, 3)
    assert not everyone_left(drive.run)
    drive.exit(0, 5)
    drive.wait(3)
    drive.report(0, LeaveReport())
    drive.report(1, LeaveReport())
    assert not run_status(drive.run, drive.now).everyone_left
    drive.wait(16, silent={2})
    assert drive.states() == ["left", "left", "lost"]
    assert run_status(drive.run, drive.now).everyone_left


def test_an_empty_run_has_nobody_to_tell() -> None:
    assert everyone_left(Drive(make_spec(2)).run)
