"""Nodes of which some can start their ranks by torchrun alone: then all do, and each is told."""

from __future__ import annotations

import pytest

from rendezvous.run.views import node_view
from rendezvous.wire.errors import Mismatch
from rendezvous.wire.node import Job
from rendezvous.wire.reports import LeaveReport
from rendezvous.wire.run import Phase, RestartFacts
from tests.support.driver import Drive, make_spec


def told(drive: Drive) -> RestartFacts:
    return node_view(drive.run, drive.now, 2.0).restarts or RestartFacts()


def armed_for(*needs: bool, **spec: int) -> Drive:
    """A run whose nodes arm, of which these need torchrun."""
    drive = Drive(make_spec(len(needs), **spec))
    for slot, needs_torchrun in enumerate(needs):
        drive.join(slot, needs_torchrun=needs_torchrun)
    drive.verify()
    assert drive.run.phase is Phase.ARMING
    return drive


@pytest.mark.parametrize(
    ("needs", "mixed"),
    [
        ((False, False), False),
        ((True, True), False),
        ((True,), False),
        ((True, False), True),
        ((False, True), True),
        ((False, False, False, True), True),
    ],
)
def test_all_start_torchrun_where_some_can_start_nothing_else(
    needs: tuple[bool, ...], mixed: bool
) -> None:
    drive = armed_for(*needs)
    for _ in range(2):  # at the go as before it
        facts = told(drive)
        assert (facts.mixed, facts.by_torchrun, facts.cold) == (mixed, mixed, False)
        drive.arm()


def test_it_holds_for_the_next_table_of_the_same_nodes() -> None:
    drive = armed_for(False, True, max_restarts=1)
    drive.arm()
    drive.exit(0, 1)
    drive.exit(1, 143, stopped=True)
    assert (drive.run.epoch, told(drive).mixed, told(drive).cold) == (2, True, False)


def test_a_node_in_the_place_of_the_odd_one_ends_it() -> None:
    drive = armed_for(False, True)
    drive.report(1, LeaveReport())
    drive.join(1, 2)
    drive.verify()
    assert (drive.run.phase, told(drive).mixed) == (Phase.ARMING, False)
    drive.arm()
    assert drive.run.phase is Phase.RUNNING


@pytest.mark.parametrize(
    ("backends", "refused"),
    [
        (("static", "static"), False),
        (("c10d", "c10d"), False),
        (("static", "c10d"), True),
        (("c10d", "static"), True),
        (("", "c10d"), False),  # an older node does not say
        (("", "static", "c10d"), True),
    ],
)
def test_a_torchrun_that_would_meet_nobody_is_refused(
    backends: tuple[str, ...], refused: bool
) -> None:
    drive = Drive(make_spec(len(backends)))
    *others, last = (Job(rdzv_backend=backend) for backend in backends)
    for slot, job in enumerate(others):
        drive.join(slot, job=job)
    if not refused:
        drive.join(len(others), job=last)
        return
    with pytest.raises(Mismatch) as caught:
        drive.join(len(others), job=last)
    assert f"--rdzv-backend {last.rdzv_backend}, but " in caught.value.message
    assert "same --rdzv-backend" in caught.value.hint
