"""A first warm start that fails at once is repeated cold: when, and how often."""

from __future__ import annotations

from typing import Any

import pytest

from rendezvous.run.views import node_view
from rendezvous.wire.run import Phase
from tests.support.driver import Drive, in_phase


def warm(nodes: int = 1, **changes: Any) -> Drive:
    """A run that goes, of which node 0 was started warm."""
    drive = in_phase(Phase.ARMING, nodes, **changes)
    drive.ack(0, warm=True)
    for slot in range(1, nodes):
        drive.ack(slot)
    return drive


def test_a_first_warm_start_that_fails_at_once_is_repeated_on_the_same_nodes() -> None:
    drive = in_phase(Phase.ARMING, 2)
    drive.ack(0)
    drive.ack(1, warm=True)
    assert drive.phase == "running"
    drive.wait(9)
    drive.exit(1, 3)
    assert (drive.phase, drive.run.stop) == ("running", True)
    drive.stop(0)
    assert (drive.phase, drive.run.epoch, drive.run.stop) == ("arming", 2, False)
    assert (drive.run.starts.used, drive.ended(), drive.table.master_port) == (0, [(1, 3)], 29501)
    assert [slot.its_node.number for slot in drive.run.of_table()] == [0, 1]
    assert sorted(drive.run.waiting_for) == [0, 1]
    assert drive.reasons[-1] == (
        "node 0 (host0) was stopped (exit code 143); node 1 (host1) failed within 10 s of a"
        " warm start; starting again with --warm off, not counted as a restart"
    )
    assert drive.run.starts.ended[-1].message == (
        "node 1 (host1) failed: the program ended with exit code 3"
    )
    drive.arm()
    drive.end_well(0, 1)
    assert drive.result.status == "ok"


def test_who_has_not_reported_by_the_verdict_is_waited_for_by_the_acknowledgement() -> None:
    drive = warm(2, verdict_seconds=2)
    drive.exit(0, 1)
    drive.wait(2)
    assert (drive.phase, sorted(drive.run.waiting_for)) == ("arming", [0, 1])
    assert drive.reasons[-1].startswith(
        "node 0 (host0) failed: the program ended with exit code 1; node 0 (host0) failed "
        "within 10 s of a warm start; "
    )
    drive.exit(1, 143, epoch=1, stopped=True)
    drive.arm()
    assert (drive.phase, drive.run.epoch) == ("running", 2)


@pytest.mark.parametrize(
    ("code", "tail"),
    [
        (127, []),
        (139, []),
        (255, []),
        (1, ["ModuleNotFoundError: no"]),  # which does not pass by itself
        (1, ["SyntaxError: no"]),
    ],
)
def test_whatever_it_fails_of(code: int, tail: list[str]) -> None:
    drive = warm()
    drive.exit(0, code, tail=tail)
    assert drive.phase == "arming"
    drive.arm()
    drive.exit(0, 2, tail=["error: unrecognized arguments: --x"])
    assert (drive.result.status, drive.ended()) == ("failed", [(1, code)])


def test_it_is_repeated_once() -> None:
    drive = warm()
    drive.exit(0, 1)
    drive.ack(0, warm=True)
    drive.exit(0, 1)
    assert (drive.result.status, drive.result.exit_code) == ("failed", 1)
    assert drive.result.message == "node 0 (host0) failed: the program ended with exit code 1"


@pytest.mark.parametrize(
    ("seconds", "told", "ended"),
    [
        (10.25, {}, []),
        (12, {"age_seconds": 3}, [(1, 1)]),  # it failed before that was told
        (40, {"ran_seconds": 9}, [(1, 1)]),  # a go that waited for the imports did not run yet
        (40, {"ran_seconds": 11}, []),
        (9, {"ran_seconds": 30}, [(1, 1)]),
    ],
)
def test_later_it_fails_as_ever(
    seconds: float, told: dict[str, float], ended: list[tuple[int, int]]
) -> None:
    drive = warm()
    drive.wait(seconds)
    drive.exit(0, 1, **told)
    assert (drive.phase, drive.ended()) == ("arming" if ended else "finished", ended)
    if ended:
        drive.arm()
        drive.exit(0, 0)
    assert drive.result.status == ("ok" if ended else "failed")


def test_without_a_warm_node_it_fails_as_ever() -> None:
    drive = in_phase(Phase.ARMING, 2).arm()
    drive.fail(0, 1)
    assert (drive.result.status, drive.ended()) == ("failed", [])


def test_a_table_that_was_not_gone_on_is_forgotten() -> None:
    drive = warm()
    assert drive.phase == "running"
    drive.exit(0, 1)
    drive.refuse(0, "port_taken", "it is taken", 29507)
    assert (drive.phase, drive.run.epoch) == ("arming", 3)
    drive.arm()
    drive.exit(0, 1)
    assert (drive.result.status, drive.ended()) == ("failed", [(1, 1)])


def test_who_would_have_forked_on_a_table_before_does_not_on_this_one() -> None:
    drive = in_phase(Phase.ARMING, 2)
    drive.ack(0, warm=True)
    drive.refuse(1, "port_taken", "it is taken", 29507)
    assert drive.run.epoch == 2
    drive.ack(0)
    drive.ack(1)
    drive.fail(0, 1)
    assert (drive.result.status, drive.ended()) == ("failed", [])


def test_a_failure_of_what_follows_is_the_first_that_is_counted() -> None:
    drive = warm(max_restarts=1)
    drive.wait(3)
    drive.exit(0, 1, tail=["same"])
    assert (drive.phase, drive.run.starts.used) == ("arming", 0)
    drive.arm().wait(3)
    drive.exit(0, 1, tail=["same"])
    assert (drive.phase, drive.run.starts.used) == ("arming", 1)
    assert drive.run.starts.ended[-1].then == "restart 1 of 1 at once"
    drive.arm().wait(3)
    drive.exit(0, 1, tail=["other"])
    assert drive.result.status == "failed"
    assert drive.result.message.endswith(
        "; the only restart is used up; each start ended with exit code 1"
    )


def test_and_may_be_hopeless_as_the_first_one() -> None:
    drive = warm(max_restarts=9)
    drive.exit(0, 127)
    drive.arm()
    drive.exit(0, 127)
    assert (drive.result.status, drive.run.starts.used) == ("failed", 0)
    assert drive.result.message.endswith(
        "; exit code 127 means that it cannot be started; it is not started again"
    )


def test_its_steps_count_as_those_of_any_epoch() -> None:
    drive = warm(max_restarts=9)
    drive.wait(3)
    drive.exit(0, 1, progress=5)
    for _ in range(3):
        drive.arm().wait(61)
        drive.exit(0, 1)
    assert (drive.result.status, drive.run.starts.used) == ("failed", 2)
    assert drive.result.message.endswith("exit code 1; 3 starts in a row did not get beyond step 5")


def test_only_the_first_warm_epoch_is() -> None:
    drive = warm(max_restarts=9)
    drive.wait(11)
    drive.exit(0, 1)
    assert (drive.phase, drive.run.starts.used) == ("arming", 1)
    drive.ack(0, warm=True)
    drive.exit(0, 2)
    assert drive.run.starts.used == 2


def test_the_first_that_is_warm_may_be_a_later_one() -> None:
    drive = in_phase(Phase.ARMING, 1, max_restarts=9)
    drive.ack(0)
    drive.wait(61)
    drive.exit(0, 1)
    assert (drive.phase, drive.run.starts.used) == ("arming", 1)
    drive.ack(0, warm=True)
    drive.exit(0, 1)
    assert (drive.phase, drive.run.starts.used, drive.ended()) == ("arming", 1, [(1, 1), (2, 1)])


def test_a_node_that_is_lost_is_none_that_has_failed() -> None:
    drive = warm(2)
    drive.leave(1)
    drive.stop(0)
    assert (drive.result.status, drive.result.code) == ("failed", "node_lost")


def test_nor_is_one_that_leaves() -> None:
    drive = warm(2)
    drive.depart(1, 0, "preempted")
    drive.exit(1, 143, stopped=True, leaves=True)
    drive.stop(0)
    assert (drive.result.code, drive.ended()) == ("node_lost", [])


def test_nor_is_one_whose_agent_fails() -> None:
    drive = warm(2)
    drive.fail(1, 82, by_agent=True)
    assert (drive.result.status, drive.ended()) == ("failed", [])


def test_a_node_that_is_lost_while_the_others_stop_ends_the_run() -> None:
    drive = warm(2)
    drive.exit(0, 1)
    drive.leave(1)
    assert (drive.result.status, drive.result.exit_code, drive.ended()) == ("failed", 1, [])


def test_a_node_that_is_lost_before_the_next_go_ends_the_run_as_before_any_restart() -> None:
    drive = warm(2)
    drive.fail(0, 1)
    drive.leave(1)
    assert (drive.result.status, drive.result.code) == ("failed", "node_lost")
    assert drive.result.message == (
        "node 1 (host1) failed before the restart: its agent left before the end"
    )


def test_a_restart_by_hand_is_what_it_is_also_of_the_first_warm_epoch() -> None:
    drive = warm(2)
    drive.restart("now")
    drive.fail(0, 1)
    assert (drive.phase, drive.run.starts.ended[-1].then) == ("arming", "restart requested: now")
    drive.ack(0, warm=True)
    drive.ack(1)
    drive.fail(0, 1)
    assert drive.result.status == "failed"


def test_who_cancels_meanwhile_has_cancelled_it() -> None:
    drive = warm(2)
    drive.exit(0, 1)
    drive.cancelled()
    assert drive.result.status == "cancelled"


def test_programs_that_have_ended_well_are_not_started_again() -> None:
    drive = warm()
    drive.exit(0, 0)
    assert drive.result.status == "ok"


def test_the_stop_of_a_stall_is_none() -> None:
    drive = warm(2)
    drive.exit(0, 0)
    drive.exit(1, 1)
    assert (drive.phase, drive.run.epoch, drive.ended()) == ("arming", 2, [(1, 1)])


def test_after_a_restart_of_the_registry_everything_goes_on() -> None:
    drive = warm()
    drive.registry_restarts()
    drive.exit(0, 1)
    drive.registry_restarts()
    assert drive.phase == "arming"
    drive.arm()
    drive.exit(0, 1)
    assert drive.result.status == "failed"


def test_a_run_that_outlives_its_nodes_repeats_it_on_all_of_them() -> None:
    drive = warm(2, on_node_loss="replace", fence_timeout_seconds=30)
    drive.fail(1, 1)
    assert (drive.phase, drive.run.epoch, drive.run.starts.used) == ("arming", 2, 0)


@pytest.mark.parametrize("most", [0, 3])
def test_the_nodes_are_told_for_the_rest_of_the_run(most: int) -> None:
    drive = warm(max_restarts=most)
    drive.exit(0, 9)
    for _ in range(2):
        restarts = node_view(drive.run, drive.now, 2.0).restarts
        assert restarts is not None
        words = "node 0 (host0) failed: the program ended with exit code 9"
        assert (restarts.cold, restarts.restarts, restarts.max_restarts) == (True, 0, most)
        assert restarts.last_failure == words
        drive.arm()
    drive.exit(0, 0)
    assert (drive.result.status, drive.result.restarts) == ("ok", 0)
