"""What nodes and people are told of a run."""

from __future__ import annotations

from typing import Any

import pytest

from rendezvous.run import events
from rendezvous.run.decision import Outcome
from rendezvous.run.views import event_line, node_view, reason, reason_and_topic, run_status
from rendezvous.wire.run import EventLine, NodeState, Phase, RunStatus, SlotState, SlotStatus
from rendezvous.wire.watch import NodeView
from rendezvous.wire.words import did_you_mean, time_text
from tests.support.driver import LAUNCH, Drive, in_phase, make_spec
from tests.support.stories import stories, tell


@stories("""
of each missing slot it is said what is known of its worker run
    new 4 join_timeout_seconds=600; gather 0; wait 20; news 1 submitting; news 2 submitting
    news 2 queued detail=Priority
    waits "waiting for 3 of 4 nodes, 580 s left: slot 1 being submitted; slot 2 queued (Priority);
    slot 3 not submitted yet"
    news 1 submitted; news 3 submitting; wait 60; news 3 unknown detail=QUIRKY; wait 240
    waits "waiting for 3 of 4 nodes, 300 s left: slot 1 submitted 5 min ago; slot 2 queued 5 min
    (Priority); slot 3 in an unknown state for 4 min (QUIRKY)"
a worker run that runs and never calls is told with the address that it is to open
    new 3 registry=10.0.3.7:29600; gather 0; news 1 submitting; news 2 submitting
    news 1 running detail=n1; news 2 running detail=n2; wait 29
    waits "waiting for 2 of 3 nodes, 571 s left: slots 1-2 running for 20 s, not joined yet"
    wait 1
    waits "waiting for 2 of 3 nodes, 570 s left: slots 1-2 have been running for 30 s but
    have not contacted the registry; check that they can reach 10.0.3.7:29600"
    join 1; wait 30
    waits "waiting for 1 of 3 nodes, 540 s left: slot 2 has been running for 1 min but has
    not contacted the registry; check that it can reach 10.0.3.7:29600"
what is queued has no deadline
    new; gather 0; news 1 submitting; news 1 queued; wait 9.75
    waits "waiting for 1 of 2 nodes: slot 1 queued"
    wait 0.25
    waits "waiting for 1 of 2 nodes: slot 1 queued 10 s"
the time of a state begins when it changes and not with new words
    new; gather 0; news 1 submitting; wait 60; news 1 queued detail=Priority; wait 60
    news 1 queued detail=Resources -> 1.since=160.0
    waits "waiting for 1 of 2 nodes: slot 1 queued 1 min (Resources)"
slots of one state and reason are told together and three kinds at most
    new 9; gather 0; news 1 submitting; news 2 submitting; news 3 submitting; news 5 submitting
    news 6 submitting; news 1 queued detail=Quota; news 2 queued detail=Quota
    news 3 queued detail=Quota; news 6 queued detail=Quota; news 5 queued detail=Priority
    waits "waiting for 8 of 9 nodes, 600 s left: slots 1-3, 6 queued (Quota); slots 4, 7-8 not
    submitted yet; slot 5 queued (Priority)"
    news 2 running; news 3 submitted
    waits "waiting for 8 of 9 nodes, 600 s left: slots 1, 6 queued (Quota); slot 2 running, not
    joined yet; slot 3 submitted; and 4 more"
a slot that was given up is not waited for
    new 4 least=2 submit_retries=0; gather 0; news 2 failed
    waits "waiting for 2 of 2:4 nodes, 600 s left: slots 1, 3 not submitted yet"
a slot whose worker run failed is to be submitted again
    new; gather 0; news 1 failed detail='no such image'
    waits "waiting for 1 of 2 nodes, 600 s left: slot 1 waiting to be submitted again"
where nobody submits a slot is waited for and then never called
    new 3 managed=False; gather 0
    waits "waiting for 2 of 3 nodes, 600 s left: slots 1-2 have not joined yet"
    wait 30
    waits "waiting for 2 of 3 nodes, 570 s left: slots 1-2 have not contacted the registry;
    check that they can reach the registry's address"
the last call is counted down
    new 4 least=2 last_call_seconds=30; gather 0 1; wait 10
    waits "2 of 2:4 nodes joined; last call, 20 s left"
arming names whom it waits for
    arming; ack 0; wait 2 -> left=58.0
    waits "waiting for node 1 (host1) to get ready, 58 s left"
running says on how many nodes and then who failed
    running 3 -> left=None
    waits "running on 3 nodes"
    exit 1 9
    waits "node 1 (host1) failed: the program ended with exit code 9; the others are being
    stopped"
running says who is waited for when others ended well a while ago
    running 3; exit 1 0; wait 9 -> ending=False
    waits "running on 3 nodes"
    wait 1 -> ending=True
    waits "1 of 3 nodes ended with exit code 0; waiting for node 0 (host0),
    node 2 (host2) to end for 10 s"
    exit 0 0 -> ending=False
    waits "running on 3 nodes"
    wait 200
    waits "2 of 3 nodes ended with exit code 0; waiting for node 2 (host2) to end for 3 min"
    exit 2 1 -> ending=False
running names the node that was lost
    running 3; silent 15 2
    waits "node 2 (host2) was lost: it was silent for 15 s: host, network or agent is down;
    the others are being stopped"
a run ends well however long its programs ran
    running 3; exit 0 0 ran_seconds=11.8; exit 1 0 ran_seconds=12.2; exit 2 0 ran_seconds=3.0
    waits "all 3 nodes ended with exit code 0"
a run of one node has no peers and no other nodes
    new 1 join_timeout_seconds=600; news 0 submitting
    waits "waiting for the node, 600 s left: slot 0 being submitted"
    gather 0
    "host0 joined, from 10.0.0.1"
    waits "waiting for slot 0 (host0) to report, 60 s left"
    verify
    "slot 0 (host0) is verified"
    arm
    waits "running on 1 node"
    wait 12; exit 0 0 ran_seconds=12.0 -> status=ok
    waits "the node ended with exit code 0"
the one node that does not report is named
    new 1 verify_timeout_seconds=60; gather 0; wait 60 -> code=verification_failed
    "slot 0 (host0) did not report within 60 s, though still connected"
a registry that doubts itself says so
    running 4; silent 16 0 1 2 -> running,running,running,running
    board "most nodes went silent at the same time, so this registry itself may be cut off; it
    waits; running on 4 nodes"
a slot that was given up leaves one less to spare
    new 5 least=3 join_timeout_seconds=60 submit_retries=0; gather 0; news 4 failed; wait 40
    news 2 submitting; wait 10; news 3 submitting -> left=50.0
slot 0 counts although the others are enough
    new 3 least=2 join_timeout_seconds=60; gather 1 2; wait 10 -> left=50.0
each phase has its own deadline
    gathering|verifying|arming -> left=600.0|60.0|60.0
everyone has left once each node has left or is lost
    running 3 -> everyone_left=False
    exit 0 5; wait 3; leave 0; leave 1 -> everyone_left=False
    silent 16 2 -> left,left,lost everyone_left=True
of a run with a spare the board shows it too
    new 2 spares=1; gather 0 -> spares=1
    board "waiting for 2 of 3 nodes (2 nodes and 1 spare), 600 s left: slots 1-2 not submitted yet"
an empty run has nobody to tell
    new -> everyone_left=True
""")
def test_what_is_said(story: str) -> None:
    tell(story)


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
    usual, trouble = reason(drive.run, drive.now), "the disk is full"
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
    first, second, third = run_status(drive.run, drive.now, drive.leases).slots
    assert (first.node, first.node_state, first.progress) == (0, "running", "step 10")
    assert (second.node, second.node_state, second.exit_code) == (1, "exited", 9)
    assert (third.node_state, third.problem) == (
        "lost",
        "it was silent for 15 s: host, network or agent is down",
    )
    assert (first.silent_seconds, third.silent_seconds) == (0.0, None)


def test_the_status_of_a_node_tells_whether_it_was_stopped_or_failed_itself() -> None:
    drive = in_phase(Phase.RUNNING, 4)
    drive.exit(1, 1)
    drive.exit(0, 143, stopped=True)
    drive.exit(2, 1)  # of itself, after the first
    drive.exit(3, 0, stopped=True)
    slots = run_status(drive.run, drive.now, drive.leases).slots
    assert [slot.stopped for slot in slots] == [True, False, False, True]


def test_a_program_that_a_stranger_stopped_has_failed() -> None:
    drive = in_phase(Phase.RUNNING, 2)
    drive.exit(0, 143, stopped=True)
    slots = run_status(drive.run, drive.now, drive.leases).slots
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
    before = run_status(drive.run, drive.now, drive.leases)
    drive.verify()
    after = run_status(drive.run, drive.now, drive.leases)
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
