"""A node that is lost once programs have started: it is replaced, or gone without."""

from __future__ import annotations

from typing import Any

import pytest

from rendezvous.run.views import node_view
from rendezvous.wire.errors import Cause, Fenced, SlotTaken, TooLate
from rendezvous.wire.node import Finding
from rendezvous.wire.reports import LeaveReport
from rendezvous.wire.run import NodeState, SlotState
from tests.support.driver import Drive, make_spec

FENCE = 40.0


def elastic(nodes: int = 4, *, how: str = "replace", **changes: Any) -> Drive:
    """A run that outlives its nodes, and runs."""
    limits: dict[str, Any] = {
        "max_replacements": 3 if how == "replace" else 0,
        "fence_timeout_seconds": FENCE,
    }
    least = changes.pop("least", None)
    changes = {"local_node": True, "on_node_loss": how} | limits | changes
    drive = Drive(make_spec(nodes, least=least, **changes))
    for slot in range(len(drive.run.slots)):
        drive.join(slot)
    if drive.phase == "gathering":
        drive.wait(31)
    drive.verify().arm()
    assert drive.phase == "running"
    return drive


def lose(drive: Drive, slot: int, *, closed: bool = True) -> None:
    """The connection of the slot's node closes, or it falls silent."""
    node = drive.node(slot)
    key = (slot, node.incarnation)
    if closed:
        drive.leases.heard(key, drive.now, 7)
        drive.leases.closed(key, drive.now, 7)
        drive.wait(1.25, silent=[slot])
    else:
        drive.wait(15.25, silent=[slot])
    assert drive.run.slots[slot].node is not node or str(node.state) == "lost"


def without(drive: Drive, slot: int) -> Drive:
    """The slot's node is lost, and the programs of the others end, as they are told to."""
    lose(drive, slot)
    others = [one for one in drive.run.of_table() if one.its_node.state is NodeState.RUNNING]
    drive.stop(*(one.index for one in others))
    return drive


def go_on(drive: Drive) -> Drive:
    """Whoever is asked proves what is asked of it, and is ready."""
    if drive.phase == "verifying":
        drive.verify()
    if drive.phase == "arming":
        drive.arm()
    return drive


# --- standbys -------------------------------------------------------------------------------------


def test_a_standby_stays_after_the_go_and_is_told_to_by_nobody_to_leave() -> None:
    drive = elastic(4, standby=1)
    assert drive.states() == ["running"] * 4 + ["standby"]
    view = node_view(drive.run, drive.now, 2.0)
    assert view.released == []
    assert view.retired == []
    assert "host4" in drive.reasons[-1]
    assert "standby: slot 4" in drive.reasons[-1]
    assert drive.status().slots[4].awaited


def test_while_the_table_is_acknowledged_a_standby_counts_as_left_out() -> None:
    drive = without(elastic(4, standby=1), 2)
    assert drive.phase == "arming"
    assert drive.table_slots() == [0, 1, 4, 3]
    assert node_view(drive.run, drive.now, 2.0).released == []


def test_spares_beyond_the_standbys_are_released() -> None:
    drive = elastic(2, standby=1, spares=1)
    assert drive.states() == ["running", "running", "standby", "released"]
    assert node_view(drive.run, drive.now, 2.0).released == [3]
    assert not drive.status().slots[3].awaited


def test_a_standby_takes_the_lost_rank_at_once_and_no_pair_is_proven_again() -> None:
    drive = elastic(4, standby=1)
    went = drive.run.epoch
    lose(drive, 2)
    assert drive.run.stop
    assert drive.phase == "running"
    drive.stop(0, 1, 3)
    assert drive.phase == "arming"  # all have proven each other before
    go_on(drive)
    assert drive.phase == "running"
    assert drive.run.epoch > went
    assert drive.table_slots() == [0, 1, 4, 3]
    assert drive.run.starts.used == 0
    assert drive.run.starts.replaced == 1
    (end,) = drive.run.starts.ended
    assert end.code == Cause.NODE_LOST
    assert end.slot == 2
    assert end.replaced == [2]
    assert "slot 4 (host4)" in end.then
    assert "takes the place of node 2" in end.then


def test_the_slot_of_a_lost_node_is_submitted_again_and_becomes_the_standby() -> None:
    drive = without(elastic(4, standby=1), 2)
    assert drive.slot(2).wanted == 2
    assert drive.status().slots[2].awaited
    go_on(drive)
    drive.join(2, 2)
    assert drive.states() == ["running", "running", "standby", "running", "running"]
    without(drive, 4)
    assert drive.phase == "verifying"  # it has proven nothing yet
    assert drive.run.attempt.probing is not None
    assert drive.run.attempt.probing.fresh == (2,)
    go_on(drive)
    assert drive.table_slots() == [0, 1, 2, 3]
    assert drive.run.starts.replaced == 2


def test_a_standby_that_is_lost_stops_nobody_and_comes_again() -> None:
    drive = elastic(2, standby=1)
    lose(drive, 2)
    assert drive.phase == "running"
    assert not drive.run.stop
    assert drive.slot(2).wanted == 2
    assert drive.run.starts.resubmitted == 1
    assert "a standby, was lost" in drive.reasons[-1]


def test_a_standby_that_is_drained_is_retired_at_once() -> None:
    drive = elastic(2, standby=1)
    drive.drain(2, 0.0, "maintenance")
    assert not drive.run.stop
    assert drive.node(2).state is NodeState.RELEASED
    view = node_view(drive.run, drive.now, 2.0)
    assert view.retired == [2]
    assert "maintenance" in view.why_released[2]


def test_who_comes_after_a_retired_node_is_not_told_to_leave_like_it() -> None:
    """It reads the newest news: those that retired the other one are not."""
    drive = elastic(2, standby=1)
    drive.drain(2, 0.0, "maintenance")
    told = drive.run.seq
    assert node_view(drive.run, drive.now, 2.0).retired == [2]
    drive.join(2, 2)
    assert drive.run.seq > told
    assert node_view(drive.run, drive.now, 2.0).retired == []


def test_a_standby_dies_while_it_is_promoted() -> None:
    drive = without(elastic(4, standby=1, max_replacements=1), 2)
    lose(drive, 4)
    assert drive.phase == "gathering"  # the replacement of slot 2 is on its way
    assert drive.slot(2).wanted == 2
    assert drive.slot(4).wanted == 1
    drive.join(2, 2)
    go_on(drive)
    assert drive.phase == "running"
    assert drive.table_slots() == [0, 1, 2, 3]


# --- worker runs that are submitted again ---------------------------------------------------------


def test_without_a_standby_the_run_waits_for_the_new_worker_run() -> None:
    drive = without(elastic(3), 1)
    assert drive.phase == "gathering"
    assert drive.slot(1).wanted == 2
    assert drive.status().slots[1].fenced is False
    drive.join(1, 2)
    assert drive.phase == "verifying"
    assert drive.run.attempt.probing is not None
    assert drive.run.attempt.probing.fresh == (1,)
    go_on(drive)
    assert drive.phase == "running"
    assert drive.table_slots() == [0, 1, 2]
    assert drive.table.generations == [1, 2, 1]


def test_the_budget_ends_and_says_so() -> None:
    drive = without(elastic(3, max_replacements=1), 1)
    drive.join(1, 2)
    go_on(drive)
    without(drive, 2)
    assert drive.result.code == Cause.NODE_LOST
    assert drive.result.slot == 2
    assert "replacement 1 of 1 is used up" in drive.result.message
    assert drive.result.replacements == 1


def test_standbys_are_not_counted() -> None:
    drive = without(elastic(3, standby=2, max_replacements=0), 1)
    go_on(drive)
    without(drive, 2)
    go_on(drive)
    assert drive.phase == "running"
    assert drive.table_slots() == [0, 3, 4]
    assert drive.run.starts.replaced == 2
    assert drive.run.starts.resubmitted == 0


def test_a_replacement_that_never_comes_ends_the_run_with_what_is_known() -> None:
    drive = without(elastic(3, join_timeout_seconds=60), 1)
    drive.news(1, SlotState.SUBMITTING, 2)
    drive.news(1, SlotState.SUBMITTED, 2, handle="7")
    drive.wait(61, silent=[1])
    assert drive.result.code == Cause.JOIN_TIMEOUT
    assert drive.result.slot == 1
    assert "connection was closed" in drive.result.message  # of what it was to replace


def test_with_fewer_allowed_the_run_goes_on_with_those_that_are_there() -> None:
    drive = without(elastic(3, least=2, last_call_seconds=30), 1)
    drive.wait(31, silent=[1])
    go_on(drive)
    assert drive.phase == "running"
    assert drive.table_slots() == [0, 2]
    assert drive.status().slots[1].awaited
    drive.join(1, 2)
    assert drive.node(1).state is NodeState.STANDBY


def test_a_replacement_that_comes_twice_is_refused() -> None:
    drive = without(elastic(3), 1)
    drive.join(1, 2)
    with pytest.raises(SlotTaken):
        drive.join(1, 2, attempt=2)
    go_on(drive)
    with pytest.raises(SlotTaken, match="has not been missed yet"):
        drive.join(1, 2, attempt=3)


def test_who_is_started_again_before_it_is_missed_waits_for_that() -> None:
    drive = elastic(3, managed=False)
    again = {"attempt": 2}
    with pytest.raises(SlotTaken):
        drive.join(1, 1, **again)
    without(drive, 1)
    drive.join(1, 1, **again)
    go_on(drive)
    assert drive.phase == "running"


def test_a_worker_run_that_dies_before_it_joins_is_submitted_again_after_a_while() -> None:
    """Its host may be down for minutes; one replacement is used up, and one join time-out."""
    drive = without(elastic(3, max_replacements=1, join_timeout_seconds=20), 1)
    for generation, pause in ((2, 1), (3, 2), (4, 4)):
        assert drive.slot(1).wanted == generation
        drive.news(1, SlotState.SUBMITTING, generation)
        drive.news(1, SlotState.FAILED, generation, detail="no route to host")
        assert f"it is submitted again in {pause} s" in drive.reasons[-1]
        drive.wait(pause - 0.25, silent=[1])
        assert drive.slot(1).wanted == generation
        drive.wait(0.25, silent=[1])
    assert drive.run.starts.resubmitted == 1
    drive.join(1, 5)
    assert drive.slot(1).tries == 0
    go_on(drive)
    assert drive.phase == "running"


def test_tries_end_with_the_join_time_out() -> None:
    drive = without(elastic(3, join_timeout_seconds=5), 1)
    for generation in (2, 3):
        drive.news(1, SlotState.SUBMITTING, generation)
        drive.news(1, SlotState.FAILED, generation, detail="no route to host")
        drive.wait(2, silent=[1])
    drive.wait(3, silent=[1])
    assert drive.result.code == Cause.JOIN_TIMEOUT
    assert "no route to host" in drive.result.message


def test_a_place_that_nobody_fills_is_asked_for_ever_more_seldom_as_long_as_the_run_lives() -> None:
    drive = without(elastic(3, standby=1, max_replacements=1, join_timeout_seconds=5), 1)
    go_on(drive)
    pauses = [1, 2, 4, 8, 16, 32, 60, 120, 300, 600, 900, 900]
    for generation, pause in enumerate(pauses, 2):
        drive.news(1, SlotState.SUBMITTING, generation)
        drive.news(1, SlotState.FAILED, generation, detail="no route to host")
        words = f"{pause} s" if pause <= 60 else f"{pause // 60} min"
        assert drive.reasons[-1].endswith(f"; it is submitted again in {words}")
        drive.wait(pause - 0.75, silent=[1])
        assert drive.slot(1).wanted == generation
        drive.wait(1, silent=[1])  # a fence may end in the same sweep
        assert drive.slot(1).wanted == generation + 1
    assert drive.phase == "running"
    assert drive.run.starts.resubmitted == 1
    assert drive.status().slots[1].awaited
    drive.join(1, len(pauses) + 2)
    assert drive.node(1).state is NodeState.STANDBY


def test_one_that_runs_and_does_not_come_is_asked_for_again_beside_the_programs() -> None:
    drive = without(elastic(3, standby=1, join_timeout_seconds=60), 1)
    go_on(drive)
    for generation in (2, 3):
        drive.news(1, SlotState.SUBMITTING, generation)
        drive.news(1, SlotState.QUEUED, generation)
        drive.wait(300, silent=[1])  # in a queue nothing is late
        drive.news(1, SlotState.RUNNING, generation)
        drive.wait(59, silent=[1])
        assert drive.slot(1).wanted == generation
        drive.wait(1, silent=[1])
        assert drive.slot(1).wanted == generation + 1
        words = "slot 1 is submitted again: its node has not joined within 60 s"
        assert drive.reasons[-1] == words
    assert drive.run.starts.resubmitted == 1
    drive.wait(600, silent=[1])  # nothing has been submitted since
    assert drive.slot(1).wanted == 4


@pytest.mark.parametrize("stop", ["another loss", "a restart"])
def test_when_the_programs_stop_nobody_waits_for_a_long_pause(stop: str) -> None:
    limits: dict[str, Any] = {"last_call_seconds": 10, "max_restarts": 3}
    drive = without(elastic(4, least=2, join_timeout_seconds=900, **limits), 1)
    drive.wait(11, silent=[1])
    go_on(drive)
    for generation in range(2, 11):
        drive.news(1, SlotState.SUBMITTING, generation)
        drive.news(1, SlotState.FAILED, generation, detail="no route to host")
        if generation < 10:
            drive.wait(300, silent=[1])
    if stop == "another loss":
        without(drive, 2)
    else:
        drive.fail(0, 1)
    assert drive.slot(1).again_at == drive.now + 60


def _beside_the_programs(drive: Drive, how: str) -> None:
    """Slot 1 has been missing for longer than the join time-out while the programs have run."""
    generation = 2
    drive.news(1, SlotState.SUBMITTING, generation)
    while how == "jobs fail" and generation < 9:
        drive.news(1, SlotState.FAILED, generation, detail="no route to host")
        drive.wait(300, silent=[1])
        generation = drive.slot(1).wanted
        drive.news(1, SlotState.SUBMITTING, generation)
    if how == "queued":
        drive.news(1, SlotState.QUEUED, generation)
        drive.wait(300, silent=[1])
    drive.wait(50, silent=[1])
    drive.news(1, SlotState.RUNNING, generation)
    drive.wait(10, silent=[1])
    assert drive.phase == "running"


@pytest.mark.parametrize("how", ["jobs fail", "queued", "its job runs"])
@pytest.mark.parametrize("standby", [0, 1])
def test_how_long_a_place_was_empty_beside_the_programs_does_not_end_the_run(
    how: str, standby: int
) -> None:
    """At the next loss the others wait for it for the join time-out, from the stop on."""
    nodes = 3 if standby else 4
    limits: dict[str, Any] = {"max_replacements": 1, "join_timeout_seconds": 60}
    drive = without(elastic(nodes, least=3, standby=standby, last_call_seconds=5, **limits), 1)
    drive.wait(6, silent=[1])
    go_on(drive)
    _beside_the_programs(drive, how)
    without(drive, 2)
    drive.wait(55, silent=[1, 2])
    assert drive.phase == "gathering"
    drive.wait(6, silent=[1, 2])
    assert drive.result.code == Cause.JOIN_TIMEOUT
    assert "within 60 s" in drive.result.message


def test_nor_does_it_after_a_restart_of_the_programs() -> None:
    """Neither while they ran nor in the pause before they start again did anybody wait for it."""
    drive = without(
        elastic(3, least=2, max_restarts=3, join_timeout_seconds=60, last_call_seconds=5), 1
    )
    drive.wait(6, silent=[1])
    go_on(drive)
    drive.news(1, SlotState.SUBMITTING, 2)
    drive.news(1, SlotState.RUNNING, 2)
    drive.wait(50, silent=[1])
    drive.fail(0, 1)
    assert drive.slot(1).wait_seconds(drive.now) == 0
    drive.wait(4, silent=[1])
    assert drive.slot(1).wait_seconds(drive.now) == 4  # no later step begins it again


def test_a_place_stays_awaited_over_a_restart() -> None:
    drive = without(elastic(4, least=2, last_call_seconds=10, max_restarts=3), 1)
    drive.wait(11, silent=[1])
    go_on(drive)
    drive.news(1, SlotState.SUBMITTING, 2)
    drive.fail(0, 1)
    go_on(drive)
    assert drive.phase == "running"
    assert drive.status().slots[1].awaited


CANNOT_START = {"cause": Cause.SCHEDULER_FAILED, "detail": "its last line: 'cannot start: no rdzv'"}


def test_a_worker_run_that_can_never_start_ends_the_run_at_once() -> None:
    drive = without(elastic(3, join_timeout_seconds=600), 1)
    drive.news(1, SlotState.SUBMITTING, 2)
    drive.news(1, SlotState.FAILED, 2, **CANNOT_START)
    assert drive.reasons[-1].endswith("no other one would do better")
    assert drive.result.code == Cause.SCHEDULER_FAILED
    assert drive.result.slot == 1
    assert "cannot start: no rdzv" in drive.result.message


def test_where_enough_nodes_are_left_the_run_goes_on_without_it() -> None:
    drive = without(elastic(3, least=2, join_timeout_seconds=600), 1)
    drive.news(1, SlotState.SUBMITTING, 2)
    drive.news(1, SlotState.FAILED, 2, **CANNOT_START)
    assert "it is not submitted again" in drive.reasons[-1]
    go_on(drive)
    assert drive.phase == "running"
    assert drive.slot(1).given_up
    drive.wait(30, silent=[1])
    assert drive.slot(1).wanted == 2


def test_a_standbys_place_that_can_never_be_filled_is_given_up() -> None:
    drive = without(elastic(3, standby=1, join_timeout_seconds=600), 1)
    go_on(drive)
    drive.news(1, SlotState.SUBMITTING, 2)
    drive.news(1, SlotState.FAILED, 2, **CANNOT_START)
    assert drive.slot(1).given_up
    assert drive.phase == "running"


def test_nobody_submits_again_what_a_platform_starts_itself() -> None:
    drive = without(elastic(3, managed=False), 1)
    assert drive.slot(1).wanted == 1
    assert drive.run.starts.resubmitted == 1
    assert "its platform may start again" in drive.run.starts.ended[-1].then
    drive.join(1, 1, attempt=2)
    go_on(drive)
    assert drive.phase == "running"


# --- fences ---------------------------------------------------------------------------------------


def test_a_silent_node_holds_the_go_until_its_fence() -> None:
    drive = elastic(4, standby=1)
    silent_from = drive.now
    lose(drive, 2, closed=False)
    drive.stop(0, 1, 3)
    go_on(drive)
    assert drive.phase == "arming"
    assert not drive.run.waiting_for
    assert (
        "nothing runs any more on the lost node of slot 2"
        in node_view(drive.run, drive.now, 2.0).reason
    )
    assert not drive.status().slots[2].fenced
    status = drive.status()
    assert status.remaining_seconds == silent_from + FENCE - drive.now
    drive.wait(silent_from + FENCE - drive.now - 0.25, silent=[2])
    assert drive.phase == "arming"
    drive.wait(0.5, silent=[2])
    assert drive.phase == "running"
    assert drive.status().slots[2].fenced


def test_its_scheduler_lifts_the_fence() -> None:
    drive = elastic(4, standby=1)
    lose(drive, 2, closed=False)
    drive.stop(0, 1, 3)
    go_on(drive)
    drive.news(2, SlotState.SUBMITTING, 2)
    assert drive.phase == "arming"
    drive.news(2, SlotState.ENDED, 1)
    assert drive.phase == "running"
    assert drive.news(2, SlotState.ENDED, 1) is None


def test_a_closed_connection_holds_nobody_but_the_next_worker_run() -> None:
    drive = without(elastic(4, standby=1), 2)
    go_on(drive)
    assert drive.phase == "running"
    assert not drive.status().slots[2].fenced
    drive.wait(FENCE, silent=[2])
    assert drive.status().slots[2].fenced


def test_an_acknowledgement_shows_that_nothing_is_left_to_fence() -> None:
    drive = without(elastic(4, standby=2), 2)
    drive.ack(3)
    lose(drive, 3, closed=False)
    go_on(drive)
    assert drive.phase == "running"
    assert drive.table_slots() == [0, 1, 4, 5]


def test_who_was_cut_off_and_comes_back_unmissed_starts_again_uncounted() -> None:
    drive = elastic(3)
    drive.exit(1, 143, stopped=True, fenced=True)
    assert drive.run.stop
    drive.stop(0, 2)
    assert drive.phase == "arming"
    go_on(drive)
    starts = drive.run.starts
    assert (starts.used, starts.replaced, starts.resubmitted) == (0, 0, 0)
    assert "cut off from the registry" in starts.ended[-1].message
    assert starts.ended[-1].then == ("they start again, as node 1 (host1) can be reached again")


def test_a_fenced_program_that_ended_well_has_not_ended_the_run() -> None:
    drive = elastic(2)
    drive.exit(1, 0, stopped=True, fenced=True)
    drive.stop(0)
    assert drive.phase == "arming"


def test_a_node_that_was_cut_off_ends_a_run_that_cannot_go_on_as_a_lost_one() -> None:
    """Whatever its program ended with."""
    drive = elastic(3, how="shrink", least=3)
    for slot in (0, 1):
        drive.exit(slot, 0)
    drive.report(1, LeaveReport())
    drive.exit(2, 0, stopped=True, fenced=True, tail=["step 1"])
    result = drive.result
    assert (result.status, result.code, result.exit_code) == ("failed", Cause.NODE_LOST, 86)
    assert (result.slot, result.cause) == (2, "node_lost")
    assert "was cut off from the registry" in result.message
    assert "step 1" not in result.message


def test_a_lost_node_is_fenced_at_once_and_for_ever() -> None:
    drive = elastic(3)
    lose(drive, 1)
    with pytest.raises(Fenced):
        drive.progress(1, "it goes on")
    drive.stop(0, 2)
    with pytest.raises(Fenced):
        drive.exit(1, 1)
    with pytest.raises(Fenced, match=r"newer worker run \(generation 2"):
        drive.join(1, 1, attempt=2)
    with pytest.raises(Fenced):
        drive.join(1, 1)


def test_a_slot_whose_loss_is_not_decided_yet_opens_later() -> None:
    drive = elastic(3, managed=False)
    lose(drive, 1)
    with pytest.raises(SlotTaken, match="it is free once"):
        drive.join(1, 1, attempt=2)


# --- what counts, and who is blamed ---------------------------------------------------------------


def test_a_loss_uses_no_restart_also_where_programs_failed_of_it() -> None:
    drive = elastic(3, max_restarts=1)
    drive.exit(0, 1)
    without(drive, 1)
    assert drive.phase == "gathering"
    assert drive.run.starts.used == 0
    assert drive.run.starts.resubmitted == 1


def test_a_program_that_fails_still_uses_its_restart() -> None:
    drive = elastic(3, max_restarts=1)
    drive.fail(0, 1)
    assert drive.phase == "arming"
    assert drive.run.starts.used == 1


def test_without_restarts_a_program_that_fails_ends_the_run() -> None:
    drive = elastic(3)
    drive.fail(0, 1)
    assert drive.result.code == Cause.PROGRAM_FAILED


def test_a_node_that_its_scheduler_preempts_is_replaced_and_called_so() -> None:
    drive = elastic(3, standby=1)
    drive.news(1, SlotState.RUNNING, detail="PREEMPTED", cause="preempted")
    drive.fail(1, 143, leaves=True, message="its agent received SIGTERM")
    assert drive.phase == "arming"
    assert drive.run.starts.ended[-1].code == Cause.PREEMPTED


def test_a_newcomer_that_fails_a_check_is_replaced() -> None:
    drive = without(elastic(3), 1)
    sick = Finding(check="L12", level="fail", cause="RDMA cannot register memory")
    drive.join(1, 2, findings=[sick])
    assert drive.phase == "gathering"
    assert drive.slot(1).wanted == 3
    assert "RDMA cannot register memory" in node_view(drive.run, drive.now, 2.0).why_released[1]


def test_who_does_not_report_on_its_peers_in_time_is_replaced() -> None:
    drive = without(elastic(3, verify_timeout_seconds=30), 1)
    drive.join(1, 2)
    drive.probe(0)
    drive.probe(2)
    drive.wait(30.25)
    assert drive.slot(1).wanted == 3
    assert "did not report" in node_view(drive.run, drive.now, 2.0).why_released[1]


def test_who_is_silent_and_was_released_holds_the_next_go_no_longer_than_its_fence() -> None:
    """It may not have heard of its release, and its grace counts from that."""
    drive = without(elastic(3, verify_timeout_seconds=12, fence_timeout_seconds=25), 1)
    heard = drive.now
    drive.join(1, 2)
    drive.probe(0)
    drive.probe(1)
    drive.wait(12.25, silent=[2])
    assert drive.node(2).state is NodeState.RELEASED
    drive.wait(3.25, silent=[2])
    assert drive.node(2).state is NodeState.LEFT
    drive.join(2, 2)
    go_on(drive)
    drive.wait(heard + 24.5 - drive.now)
    assert drive.phase == "arming"
    drive.wait(1)
    assert drive.phase == "running"


def test_who_cannot_start_on_the_next_table_is_replaced() -> None:
    drive = without(elastic(3), 1)
    drive.join(1, 2)
    drive.verify()
    drive.refuse(1, "address", "it has no such address any more")
    assert drive.slot(1).wanted == 3
    assert node_view(drive.run, drive.now, 2.0).retired == [1]


@pytest.mark.parametrize("comes", ["while the programs run", "in the pause"])
def test_who_came_after_the_others_had_gathered_is_in_no_table_until_they_gather_again(
    comes: str,
) -> None:
    """Nobody has proven its addresses, which may be others than those of the node before."""
    drive = elastic(2, standby=1, max_restarts=2)
    drive.fail(0, 1)
    go_on(drive)
    if comes == "while the programs run":
        lose(drive, 2)
        drive.join(2, 2)
        assert drive.states() == ["running", "running", "standby"]
    drive.fail(0, 2)
    assert drive.phase == "restarting"
    if comes == "in the pause":
        drive.join(2, 2)
    drive.wait(1.25)
    assert drive.phase == "arming"
    drive.refuse(1, "address", "it has no such address any more")
    assert drive.phase == "verifying"
    assert drive.run.attempt.probing is not None
    assert drive.run.attempt.probing.fresh == (2,)
    go_on(drive)
    assert drive.table_slots() == [0, 2]


def test_a_restart_by_hand_that_a_loss_comes_with_is_answered_as_the_loss() -> None:
    drive = elastic(3, max_restarts=1)
    lose(drive, 1)
    drive.restart("new data")
    drive.stop(0, 2)
    assert drive.phase == "gathering"
    assert drive.run.starts.used == 0


def test_a_node_that_fails_itself_is_replaced() -> None:
    drive = elastic(3)
    drive.fail(1, 71, by_agent=True, message="NCCL uses sockets")
    assert drive.phase == "gathering"
    assert drive.slot(1).wanted == 2
    view = node_view(drive.run, drive.now, 2.0)
    assert view.retired == [1]
    assert "NCCL uses sockets" in view.why_released[1]


def test_a_node_that_fails_itself_and_is_not_replaced_is_told_as_the_cause_once() -> None:
    drive = elastic(3, max_replacements=0)
    drive.fail(1, 71, by_agent=True, message="NCCL uses sockets")
    assert drive.result.message == (
        "node 1 (host1) failed: NCCL uses sockets; the programs are not started again; "
        "2 nodes would be left of 3, and --max-replacements is 0"
    )


@pytest.mark.parametrize("how", ["replace", "fail"])
def test_a_node_whose_device_fails_twice_is_replaced(how: str) -> None:
    """Where nodes are: else it is not started again."""
    drive = elastic(3, how=how, max_restarts=5)
    said = ["RuntimeError: CUDA error: uncorrectable ECC error encountered"]
    for _ in range(2):
        go_on(drive).wait(61)
        drive.exit(1, 1, tail=said)
        drive.stop(0, 2)
    assert drive.run.starts.used == 1
    if how == "fail":
        assert "has failed twice because of its device" in drive.result.message
        return
    assert drive.phase == "gathering"
    assert drive.slot(1).wanted == 2
    assert node_view(drive.run, drive.now, 2.0).retired == [1]


def test_who_is_replaced_and_lives_holds_the_go_until_it_has_left() -> None:
    drive = elastic(3, standby=1)
    drive.fail(1, 71, by_agent=True, message="NCCL uses sockets")
    go_on(drive)
    assert drive.phase == "arming"
    drive.report(1, LeaveReport())
    assert drive.phase == "running"
    assert drive.table_slots() == [0, 3, 2]


def test_a_node_that_gave_notice_is_replaced_before_it_goes() -> None:
    drive = elastic(3, standby=1)
    drive.drain(1, 60.0, "spot")
    drive.wait(46)
    assert drive.run.stop
    for slot in (0, 1, 2):
        drive.exit(slot, 0, stopped=True)
    assert drive.phase == "arming"
    assert drive.run.departure is None
    view = node_view(drive.run, drive.now, 2.0)
    assert view.retired == [1]
    assert view.notice is None
    assert drive.run.starts.ended[-1].code == Cause.NODE_LOST
    assert "leaves the run: drained: spot" in drive.run.starts.ended[-1].message


def test_the_end_of_a_worker_run_that_is_replaced_already_is_no_failure() -> None:
    """Its launcher says late that the node has left, as it was told to."""
    drive = elastic(3, max_replacements=1)
    drive.news(1, SlotState.RUNNING)
    drive.drain(1, 60.0, "spot")
    drive.wait(46)
    drive.stop(0, 1, 2)
    assert drive.phase == "gathering"
    assert drive.slot(1).wanted == 2
    drive.report(1, LeaveReport())
    words = drive.news(1, SlotState.ENDED, detail="exit code 0")
    assert words == "slot 1: ended (exit code 0)"
    assert drive.phase == "gathering"
    assert drive.slot(1).wanted == 2


def test_a_local_slot_0_ends_the_run() -> None:
    drive = without(elastic(3, standby=1), 0)
    assert drive.result.code == Cause.NODE_LOST
    assert drive.result.slot == 0
    assert "launcher's own" in drive.result.message


def test_another_slot_0_is_replaced_like_any_other_and_the_master_moves() -> None:
    drive = without(elastic(3, standby=1, local_node=False), 0)
    go_on(drive)
    assert drive.phase == "running"
    assert drive.table_slots() == [3, 1, 2]
    assert drive.table.master_address == "10.0.0.4"


def test_slot_0_comes_again_where_no_standby_is() -> None:
    drive = without(elastic(3, local_node=False), 0)
    assert drive.slot(0).wanted == 2
    drive.join(0, 2)
    go_on(drive)
    assert drive.table_slots() == [0, 1, 2]


# --- shrink ---------------------------------------------------------------------------------------


def test_a_run_that_may_shrink_goes_on_at_once_and_closes_its_ranks_up() -> None:
    drive = without(elastic(4, how="shrink", least=2), 1)
    go_on(drive)
    assert drive.phase == "running"
    assert drive.table_slots() == [0, 2, 3]
    assert drive.slot(1).wanted == 1
    assert drive.run.starts.replaced == 0
    assert not drive.status().slots[1].awaited


def test_who_is_missing_after_a_shrink_is_submitted_again_and_taken_in_at_the_next_restart() -> (
    None
):
    drive = without(elastic(4, how="shrink", least=2, max_replacements=1, max_restarts=1), 1)
    then = drive.run.starts.ended[-1].then
    assert then.endswith("slot 1 is submitted again (replacement 1 of 1)")
    go_on(drive)
    assert drive.table_slots() == [0, 2, 3]  # it waits for nobody
    assert drive.slot(1).wanted == 2
    assert drive.status().slots[1].awaited
    drive.news(1, SlotState.SUBMITTING, 2)
    drive.news(1, SlotState.FAILED, 2, detail="no route to host")
    drive.wait(1.25, silent=[1])
    assert drive.slot(1).wanted == 3
    drive.join(1, 3)
    assert drive.node(1).state is NodeState.STANDBY
    assert not drive.run.stop
    drive.fail(0, 1)
    go_on(drive)
    assert drive.table_slots() == [0, 2, 3, 1]
    without(drive, 3)
    go_on(drive)
    assert not drive.status().slots[3].awaited  # the only replacement is used up
    assert drive.table_slots() == [0, 2, 1]


@pytest.mark.parametrize("replacements", [0, 3])
def test_it_does_not_shrink_below_the_least(replacements: int) -> None:
    """Nor does it wait there for who is submitted again."""
    drive = without(elastic(3, how="shrink", least=2, max_replacements=replacements), 1)
    go_on(drive)
    assert drive.status().slots[1].awaited is (replacements > 0)
    without(drive, 2)
    assert drive.result.code == Cause.NODE_LOST
    assert "1 node would be left of 2:3" in drive.result.message


def test_who_comes_back_to_a_run_that_has_shrunk_is_taken_in_at_the_next_restart() -> None:
    drive = without(elastic(3, how="shrink", least=2, managed=False, max_restarts=1), 1)
    go_on(drive)
    drive.join(1, 1, attempt=2)
    assert drive.node(1).state is NodeState.STANDBY
    assert not drive.run.stop
    drive.fail(0, 1)
    go_on(drive)
    assert drive.table_slots() == [0, 2, 1]


# --- joins ----------------------------------------------------------------------------------------


def test_who_is_not_needed_is_too_late() -> None:
    drive = elastic(2, least=1, spares=1)
    assert drive.states() == ["running", "running", "released"]
    with pytest.raises(TooLate):
        drive.join(2, 1, attempt=2)


def test_a_newcomer_that_reaches_nobody_is_replaced_and_not_those_that_stay() -> None:
    drive = without(elastic(3), 1)
    drive.join(1, 2)
    drive.probe(0, 1)
    drive.probe(2)
    drive.probe(1)
    assert drive.phase == "gathering"
    assert drive.slot(1).wanted == 3
    assert node_view(drive.run, drive.now, 2.0).retired == [1]


def test_a_node_lost_in_a_pause_does_not_shorten_it() -> None:
    drive = elastic(3, max_restarts=4)
    for _ in range(3):
        drive.wait(1.25)
        go_on(drive).wait(31)
        drive.fail(0, 1)
    assert drive.phase == "restarting"
    lose(drive, 1)
    assert drive.phase == "restarting"
    drive.wait(2, silent=[1])
    assert drive.phase == "gathering"
    assert drive.slot(1).wanted == 2


def test_a_node_that_is_lost_before_the_first_go_holds_nobody_up() -> None:
    drive = Drive(
        make_spec(3, on_node_loss="replace", fence_timeout_seconds=FENCE, max_replacements=3)
    )
    drive.gather()
    lose(drive, 1)
    drive.wait(1.5)
    assert drive.run.starts.fences == ()
    assert drive.slot(1).wanted == 2


@pytest.mark.parametrize("state", [SlotState.FAILED, SlotState.ENDED])
def test_of_a_node_whose_worker_run_is_over_nothing_is_left(state: SlotState) -> None:
    drive = elastic()
    drive.news(1, SlotState.RUNNING)
    drive.news(1, state, detail="evicted")
    lose(drive, 1, closed=False)
    drive.wait(16.0, silent=[1])
    drive.stop(0, 2, 3)
    assert drive.run.starts.ended[-1].replaced == [1]
    assert drive.run.starts.fences == ()


def test_a_standby_that_ends_by_itself_stops_no_program() -> None:
    drive = elastic(2, standby=1)
    assert drive.node(2).state is NodeState.STANDBY
    outcome = drive.exit(2, 82, by_agent=True, message="its disk is full")
    assert outcome is not None
    words = "slot 2 (host2), a standby, was lost: its disk is full"
    assert outcome.reason == f"{words}; slot 2 is submitted again (replacement 1 of 3)"
    assert not drive.run.stop


def test_a_restart_by_hand_does_not_follow_where_a_node_is_lost_as_well() -> None:
    drive = Drive(make_spec(3, max_restarts=1)).gather().verify().arm()
    drive.restart("by hand")
    drive.exit(1, 3)
    lose(drive, 2)
    drive.wait(1.5)
    drive.stop(0)
    drive.wait(3.0)
    assert "the programs are not started again, because node 2 (host2) has left" in (
        drive.result.message
    )
