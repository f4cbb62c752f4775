"""Runs of which all nodes have a program, and which end with that of node 0."""

from __future__ import annotations

import pytest

from rendezvous.wire.run import Phase
from tests.support.driver import in_phase

REPLACES = {"on_node_loss": "replace", "max_replacements": 1, "fence_timeout_seconds": 20}


@pytest.mark.parametrize(
    ("nodes", "ends", "message"),
    [
        (4, [0], "node 0 ended with exit code 0; the 3 others were stopped"),
        (2, [0], "node 0 ended with exit code 0; node 1 (host1) was stopped"),
        (1, [0], "the node ended with exit code 0"),
        (4, [1, 0], "node 0 ended with exit code 0; the 2 others that still ran were stopped"),
        (3, [1, 2, 0], "all 3 nodes ended with exit code 0"),
    ],
)
def test_the_run_is_over_when_the_program_of_node_0_has_ended_well(
    nodes: int, ends: list[int], message: str
) -> None:
    drive = in_phase(Phase.RUNNING, nodes, ends_with="node0").wait(30)
    for slot in ends:
        assert (drive.phase, drive.run.stop) == ("running", False)
        drive.exit(slot, 0)
    assert (drive.result.status, drive.result.exit_code) == ("ok", 0)
    assert drive.states() == ["exited" if slot in ends else "running" for slot in range(nodes)]
    assert drive.result.message == message


def test_what_a_helper_ends_with_afterwards_is_no_failure() -> None:
    drive = in_phase(Phase.RUNNING, 3, ends_with="node0")
    drive.exit(0, 0)
    drive.stop(1)
    drive.exit(2, 1, rank=3)
    assert (drive.result.status, drive.result.exit_code) == ("ok", 0)


def test_a_helper_that_fails_while_node_0_runs_fails_the_run() -> None:
    drive = in_phase(Phase.RUNNING, 3, ends_with="node0")
    drive.exit(2, 7)
    assert (drive.phase, drive.run.stop) == ("running", True)
    drive.exit(0, 0, stopped=True)
    drive.stop(1)
    assert drive.failure == (7, "program_failed", 2)
    assert drive.result.message == "node 2 (host2) failed: the program ended with exit code 7"


def test_a_helper_that_failed_before_node_0_ended_is_a_failure() -> None:
    drive = in_phase(Phase.RUNNING, 3, ends_with="node0").wait(5)
    drive.exit(2, 7, age_seconds=2)
    drive.exit(0, 0, age_seconds=1.5)
    assert drive.phase == "running"
    drive.stop(1)
    assert (drive.result.status, drive.result.exit_code, drive.result.slot) == ("failed", 7, 2)
    assert drive.result.message == (
        "node 2 (host2) failed: the program ended with exit code 7; node 0 (host0) had "
        "ended with exit code 0"
    )


@pytest.mark.parametrize("fails", [True, False], ids=["fails", "is lost"])
def test_a_helper_that_failed_of_the_end_of_node_0_is_none_though_it_was_heard_of_first(
    fails: bool,
) -> None:
    drive = in_phase(Phase.RUNNING, 3, ends_with="node0").wait(5)
    if fails:
        drive.exit(2, 7, age_seconds=1)
    else:
        drive.leave(2)
    assert (drive.phase, drive.run.stop) == ("running", True)
    drive.exit(0, 0, age_seconds=1.5)
    assert (drive.result.status, drive.result.exit_code) == ("ok", 0)
    assert drive.result.message == "node 0 ended with exit code 0, and with it the run"


def test_a_verdict_waits_for_node_0_whose_end_may_come_late_for_what_it_has_left_running() -> None:
    drive = in_phase(Phase.RUNNING, 2, ends_with="node0", grace_seconds=10, verdict_seconds=2)
    drive.wait(5)
    drive.exit(1, 1)
    drive.wait(12)
    assert drive.phase == "running"
    drive.exit(0, 0, age_seconds=13)
    assert drive.result.status == "ok"


def test_a_verdict_waits_for_node_0_no_longer_than_for_its_grace_and_its_end() -> None:
    drive = in_phase(Phase.RUNNING, 2, ends_with="node0", grace_seconds=10, verdict_seconds=2)
    drive.exit(1, 1)
    drive.wait(24.5)
    assert drive.phase == "running"
    drive.wait(1)
    assert (drive.result.status, drive.result.exit_code, drive.result.slot) == ("failed", 1, 1)


def test_a_verdict_waits_for_no_other_node() -> None:
    drive = in_phase(Phase.RUNNING, 3, ends_with="node0", verdict_seconds=2)
    drive.exit(1, 1)
    drive.stop(0)
    drive.wait(2.5)
    assert (drive.result.status, drive.result.exit_code) == ("failed", 1)


def test_node_0_that_was_stopped_has_come_to_no_good_end() -> None:
    drive = in_phase(Phase.RUNNING, 2, ends_with="node0", max_restarts=1)
    drive.restart("now")
    drive.exit(0, 0, stopped=True)
    assert drive.phase == "running"
    drive.stop(1)
    assert drive.phase == "arming"


def test_node_0_that_fails_is_the_cause() -> None:
    drive = in_phase(Phase.RUNNING, 2, ends_with="node0")
    drive.exit(0, 3)
    assert (drive.phase, drive.run.stop) == ("running", True)
    drive.stop(1)
    assert (drive.result.status, drive.result.exit_code, drive.result.slot) == ("failed", 3, 0)


def test_a_node_that_leaves_is_no_matter_once_node_0_has_ended_well() -> None:
    drive = in_phase(Phase.RUNNING, 2, ends_with="node0", **REPLACES)
    drive.leave(1)
    drive.exit(0, 0, age_seconds=1)
    assert drive.result.status == "ok"


def test_a_helper_that_is_lost_while_node_0_runs_is_replaced() -> None:
    drive = in_phase(Phase.RUNNING, 2, ends_with="node0", **REPLACES)
    drive.leave(1)
    drive.stop(0)
    assert drive.phase == "gathering"


def test_node_0_that_ends_well_by_itself_when_a_restart_is_requested_has_ended_the_run() -> None:
    drive = in_phase(Phase.RUNNING, 2, ends_with="node0")
    drive.restart("now")
    drive.exit(0, 0)
    assert drive.result.status == "ok"
    assert drive.result.message == "node 0 ended with exit code 0; node 1 (host1) was stopped"


def test_all_programs_end_where_the_run_ends_with_all() -> None:
    drive = in_phase(Phase.RUNNING, 2)
    drive.exit(0, 0)
    assert (drive.phase, drive.run.stop) == ("running", False)
    drive.exit(1, 1)
    assert (drive.result.status, drive.result.slot) == ("failed", 1)
