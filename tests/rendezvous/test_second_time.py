"""What happens to a run for the second time: a loss, a failure, a report of an epoch before."""

from __future__ import annotations

from typing import Any

import pytest

from rendezvous.run import fences
from rendezvous.run.places import standbys
from rendezvous.run.records import Fence
from rendezvous.run.replacing import due_again
from rendezvous.wire.reports import LeaveReport
from rendezvous.wire.run import Phase, SlotState
from tests.rendezvous.test_replacing import without
from tests.support.driver import Drive, in_phase, make_spec

ECC = ["CUDA error: uncorrectable ECC error encountered"]


def test_a_late_report_of_an_epoch_before_the_last_one_says_nothing_of_that() -> None:
    drive = in_phase(Phase.RUNNING, 2, max_restarts=9, verdict_seconds=2)
    drive.exit(0, 1)
    drive.wait(2).arm()
    drive.exit(0, 5)
    drive.wait(2)
    assert (drive.phase, drive.ended()) == ("restarting", [(1, 1), (2, 5)])
    drive.exit(1, 7, epoch=1, age_seconds=60)
    assert (drive.ended(), drive.run.starts.used) == ([(1, 1), (2, 5)], 2)
    drive.exit(1, 9, epoch=2, age_seconds=60)
    assert (drive.ended(), drive.run.starts.used) == ([(1, 1), (2, 9)], 2)
    with drive.unchanged():
        drive.exit(1, 9, epoch=2, age_seconds=60)
    with drive.unchanged():
        drive.exit(1, 7, epoch=1, age_seconds=60)


def test_a_late_report_of_progress_is_none_of_an_epoch_before() -> None:
    drive = in_phase(Phase.RUNNING, 2, max_restarts=9, verdict_seconds=2)
    drive.exit(0, 1)
    drive.wait(2).arm()
    drive.exit(0, 5, progress=4)
    drive.wait(2)
    drive.exit(1, 143, epoch=1, stopped=True, progress=3)
    drive.arm().wait(61)
    drive.exit(0, 6)
    drive.exit(1, 143, epoch=3, stopped=True)
    assert drive.ended() == [(1, 1), (2, 5), (3, 6)]


def test_a_device_that_fails_again_after_something_else_has_failed_is_not_the_second_in_a_row() -> (
    None
):
    drive = in_phase(Phase.RUNNING, 2, max_restarts=9).wait(61)
    drive.fail(1, 1, tail=ECC)
    drive.arm().wait(61)
    drive.fail(0, 3)
    drive.arm().wait(61)
    drive.fail(1, 1, tail=ECC)
    assert (drive.phase, drive.run.starts.used) == ("arming", 3)
    drive.arm().wait(61)
    drive.fail(1, 1, tail=ECC)
    assert drive.result.status == "failed"
    assert drive.result.message.endswith(
        "has failed twice because of its device; it is not started again"
    )


def test_the_device_of_another_node_is_another_one() -> None:
    drive = in_phase(Phase.RUNNING, 2, max_restarts=9).wait(61)
    drive.fail(1, 1, tail=ECC)
    drive.arm().wait(61)
    drive.fail(0, 1, tail=ECC)
    assert (drive.phase, drive.run.starts.used) == ("arming", 2)


def on_two_networks(**changes: Any) -> Drive:
    """A run on the first of two networks, which outlives its nodes."""
    limits: dict[str, Any] = {"max_replacements": 5, "fence_timeout_seconds": 40.0}
    spec = make_spec(3, local_node=True, on_node_loss="replace", **limits, **changes)
    drive = Drive(spec)
    for slot in range(3):
        join(drive, slot, 1)
    drive.verify().arm()
    assert addresses(drive) == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    return drive


def join(drive: Drive, slot: int, generation: int, networks: tuple[int, ...] = (0, 1)) -> None:
    offered = [f"10.{net}.0.{slot + 1}" for net in networks]
    drive.join(slot, generation, addresses=offered)


def addresses(drive: Drive) -> list[str]:
    return [row.address for row in drive.table.rows]


def fresh(drive: Drive) -> list[int] | None:
    """Of which nodes pairs are proven in this round; None: of all."""
    assert drive.phase is Phase.VERIFYING
    assert drive.run.attempt.probing is not None
    fresh = drive.run.attempt.probing.fresh
    return None if fresh is None else list(fresh)


def test_after_a_loss_the_first_network_is_another_one_and_proven_by_all() -> None:
    """What was proven before was proven on other addresses."""
    drive = on_two_networks()
    without(drive, 1)
    join(drive, 1, 2, networks=(1,))
    assert fresh(drive) is None
    drive.verify().arm()
    assert addresses(drive) == ["10.1.0.1", "10.1.0.2", "10.1.0.3"]
    without(drive, 2)
    join(drive, 2, 2, networks=(1,))
    assert fresh(drive) == [2]  # all others have proven each other there
    drive.verify().arm()
    without(drive, 2)
    join(drive, 2, 3)
    assert fresh(drive) == [2]
    drive.verify().arm()
    without(drive, 1)
    join(drive, 1, 3)
    assert fresh(drive) is None  # and now the first one again
    drive.probe(0, 1)
    drive.probe(1)
    drive.probe(2)
    assert drive.run.attempt.probing is not None
    assert (drive.run.attempt.probing.number, fresh(drive)) == (1, [1])
    drive.verify().arm()
    assert addresses(drive) == ["10.1.0.1", "10.1.0.2", "10.1.0.3"]


def test_the_same_node_on_another_address_has_proven_nothing_there() -> None:
    drive = on_two_networks()
    without(drive, 1)
    drive.join(1, 2, addresses=["10.0.0.77", "10.1.0.2"])
    assert fresh(drive) == [1]
    drive.verify().arm()
    assert addresses(drive) == ["10.0.0.1", "10.0.0.77", "10.0.0.3"]


@pytest.mark.parametrize("losses", [1, 2, 3])
def test_a_worker_run_that_has_failed_is_submitted_again_once_for_each_pause(losses: int) -> None:
    drive = on_two_networks(join_timeout_seconds=100.0)
    for loss in range(losses):
        without(drive, 1)
        wanted = drive.slot(1).wanted
        assert drive.run.starts.resubmitted == loss + 1
        drive.news(1, SlotState.SUBMITTING, wanted)
        drive.news(1, SlotState.FAILED, wanted, detail="no route to host")
        drive.wait(5, silent=[1])
        assert due_again(drive.run, drive.now) == []
        assert (drive.slot(1).wanted, drive.slot(1).again_at) == (wanted + 1, None)
        join(drive, 1, wanted + 1)
        drive.verify().arm()
        assert drive.phase is Phase.RUNNING
        assert drive.slot(1).tries == 0


def test_a_standby_has_no_problem_at_any_go() -> None:
    drive = Drive(
        make_spec(
            2, standby=1, on_node_loss="replace", max_replacements=3, fence_timeout_seconds=40.0
        )
    )
    for slot in range(3):
        join(drive, slot, 1)
    for generation in (2, 3):
        drive.verify().arm()
        assert drive.phase is Phase.RUNNING
        [standby] = standbys(drive.run)
        assert standby.problem == ""
        lost = next(slot.index for slot in drive.run.of_table() if slot.index)
        drive.report(lost, LeaveReport())
        drive.stop(0)
        drive.wait(0.5)
        drive.verify().arm()
        join(drive, lost, generation)


def test_a_fence_never_ends_later_because_its_node_falls_silent() -> None:
    """It was released, and has its grace; by its own clock it ends at the latest."""
    drive = on_two_networks()
    slot = drive.slot(1)
    for until, silent_since, expected in ((130.0, 120.0, 130.0), (170.0, 120.0, 160.0)):
        node = slot.its_node
        node.silent_since = silent_since
        own = Fence(1, node.incarnation, 1, until, True)
        others = [Fence(2, node.incarnation, 1, until, True), Fence(1, 9, 1, until, True)]
        drive.run.starts.fences = (own, *others)
        fences.fell_silent(drive.run, slot)
        assert [one.until for one in drive.run.starts.fences] == [expected, until, until]


def test_a_fence_is_over_at_its_very_time_and_not_before() -> None:
    """Programs start that moment: who still counts it would hold the others back for nothing."""
    drive = on_two_networks()
    due, later = Fence(1, 4, 1, 130.0, True), Fence(2, 5, 1, 130.5, True)
    drive.run.starts.fences = (due, later)
    assert not fences.are_over(drive.run, 129.9)
    assert fences.drop_over(drive.run, 129.9) == []
    assert fences.are_over(drive.run, 130.0)
    assert fences.drop_over(drive.run, 130.0) == [due]
    assert [*drive.run.starts.fences] == [later]


def test_what_a_launcher_learns_of_a_worker_run_later_is_news() -> None:
    drive = Drive(make_spec(3))
    drive.news(2, SlotState.SUBMITTED, name="rdzv-r-2")
    for handle in ("job-7", "job-8"):
        assert drive.news(2, SlotState.SUBMITTED, handle=handle)
        assert (drive.slot(2).name, drive.slot(2).handle) == ("rdzv-r-2", handle)
    assert drive.news(2, SlotState.SUBMITTED, handle="job-8") is None
