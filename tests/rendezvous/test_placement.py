"""Which node ran which ranks, by epoch: also where another one has taken its place."""

from __future__ import annotations

from rendezvous.run.placement import MOST_PLACEMENTS, Placed, Placement, in_epoch, with_go
from rendezvous.wire.run import Phase
from tests.support.driver import in_phase
from tests.worker.test_hosts_plan import row
from tests.worker.test_hosts_plan import table as table_of

TABLE = table_of(row(0, "a", "10.0.0.4"), row(1, "b", "10.0.0.5"))


def test_what_is_known_stays_while_the_nodes_are_the_same() -> None:
    first = with_go((), TABLE, {0: 1, 1: 1})
    assert [(one.slot, one.incarnation, one.hostname, one.node) for one in first[0].nodes] == [
        (0, 1, "a", 0),
        (1, 1, "b", 1),
    ]
    assert [one.ranks for one in first[0].nodes] == [ranks for _, ranks in TABLE.processes()]
    assert with_go(first, TABLE.renewed(2, 29_501), {0: 1, 1: 1}) == first
    then = with_go(first, TABLE.renewed(3, 29_502), {0: 1, 1: 2})
    assert [one.epoch for one in then] == [TABLE.epoch, 3]
    assert then[:1] == first
    assert then[1].nodes[1].incarnation == 2


def test_the_newest_are_kept() -> None:
    known: tuple[Placement, ...] = ()
    for epoch in range(1, MOST_PLACEMENTS + 4):
        known = with_go(known, TABLE.renewed(epoch, 29_500), {0: 1, 1: epoch})
    assert [one.epoch for one in known] == list(range(4, MOST_PLACEMENTS + 4))


def test_each_epoch_has_the_nodes_of_its_last_change() -> None:
    known = [Placement(2, (Placed(0, 1, "a", 0, range(2)),)), Placement(5, ())]
    found = [in_epoch(known, epoch) for epoch in (1, 2, 4, 5, 9, None)]
    assert [one and one.epoch for one in found] == [2, 2, 2, 5, 5, 5]
    assert in_epoch([], 1) is None


def test_a_run_knows_who_ran_what() -> None:
    drive = in_phase(Phase.RUNNING, 2, max_restarts=9)
    drive.fail(1, 1)
    drive.join(0, 2)
    drive.verify().arm().wait(99)
    drive.fail(1, 2)
    drive.arm()
    found = drive.run.starts.placements
    assert [one.epoch for one in found] == [1, 3]
    assert [[node.incarnation for node in one.nodes] for one in found] == [[1, 1], [2, 1]]
    assert drive.run.epoch == 4
