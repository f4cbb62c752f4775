"""A run whose ranks wait for one of them: what it says, and for how long."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rendezvous.feature import Feature
from rendezvous.pace import Straggler
from rendezvous.run.state import Node
from rendezvous.run.stragglers import found_in, noted, watched_epoch
from rendezvous.run.views import run_status
from rendezvous.wire.run import Phase
from tests.support.driver import Drive, in_phase

LATE = Straggler(slot=1, rank=2, cost=0.0189, step=0.0778, last=1365, of=1744)
WORDS = (
    "rank 2 on node 1 (host1) makes the others wait, up to 18.9 ms of each step of 77.8 ms "
    "(24 %): the last in 1365 of 1744 collectives"
)


def running(**changes: Any) -> Drive:
    """A run that goes."""
    return in_phase(Phase.RUNNING, 2, **changes)


def can_report_pace(node: Node, can: bool = True) -> None:
    """Have it be a node that can tell when its ranks called, or cannot."""
    node.join = replace(node.join, reports_pace=can)


def reason(drive: Drive) -> str:
    """What the run says that it does."""
    return run_status(drive.run, drive.now, drive.leases).reason


@pytest.mark.parametrize(
    ("locates", "first"),
    [
        (
            "rdzv where {run}",
            "where it is and what it prints with 'rdzv where r' and 'rdzv logs r ",
        ),
        ("", "what it prints with 'rdzv logs r "),
    ],
)
def test_it_is_told_once_and_shown_while_it_is_one(
    locates: str, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rendezvous.feature.declared", lambda: (Feature("f", locates=locates),))
    drive = running()
    outcome = drive.apply(noted(drive.run, LATE))
    assert outcome.reason == (
        f"{WORDS}; try: see {first}--rank 2'; it may have more data than the others, or a slower "
        "disk, CPU or GPU"
    )
    assert not outcome.usual
    assert reason(drive) == f"running on 2 nodes; {WORDS}"
    outcome = drive.apply(noted(drive.run, None))
    assert outcome.reason == "rank 2 on node 1 (host1) no longer makes the others wait"
    assert reason(drive) == "running on 2 nodes"
    assert drive.apply(noted(drive.run, None)).usual


def test_all_ranks_of_a_node_are_named_by_it() -> None:
    drive = running()
    outcome = drive.apply(noted(drive.run, replace(LATE, rank=None)))
    assert outcome.reason.startswith("node 1 (host1) makes the others wait")
    assert "'rdzv logs r --node 1'" in outcome.reason


def test_a_node_is_read_by_its_rank_and_not_by_its_slot() -> None:
    drive = running()
    drive.edit(lambda run: run.starts.numbers.update({1: 5}))
    outcome = drive.apply(noted(drive.run, replace(LATE, rank=None)))
    assert "'rdzv logs r --node 5'" in outcome.reason


def test_one_that_has_just_been_lost_can_still_be_named() -> None:
    drive = running()
    drive.edit(lambda run: setattr(run.slots[1], "node", None))
    for rank in (2, None):
        assert drive.apply(noted(drive.run, replace(LATE, rank=rank))).reason


def test_another_epoch_begins_without() -> None:
    drive = running(max_restarts=1)
    drive.apply(noted(drive.run, LATE))
    drive.restart("by hand")
    for slot in sorted(drive.run.waiting_for):
        drive.exit(slot, 143, stopped=True)
    drive.arm()
    assert drive.run.phase is Phase.RUNNING
    assert found_in(drive.run) is None


@pytest.mark.parametrize("can", [True, False])
def test_nodes_are_asked_only_if_all_of_them_can_answer(can: bool) -> None:
    drive = running()
    for slot in drive.run.members():
        can_report_pace(slot.its_node, can or slot.index == 0)
    assert watched_epoch(drive.run) == (drive.run.epoch if can else -1)


def test_nobody_is_asked_while_programs_are_stopped() -> None:
    drive = running()
    drive.edit(lambda run: can_report_pace(run.slots[0].its_node))
    drive.edit(lambda run: can_report_pace(run.slots[1].its_node))
    drive.exit(0, 3)
    assert drive.run.stop
    assert watched_epoch(drive.run) == -1
    assert watched_epoch(in_phase(Phase.ARMING, 2).run) == -1
