"""Nodes beyond those that the table needs: who steps in for whom, and who is released."""

from __future__ import annotations

import pytest

from rendezvous.run import views
from rendezvous.run.rounds import run_report
from rendezvous.run.views import node_view, run_status
from rendezvous.wire.run import Phase
from rendezvous.wire.verify import PairProbe, ProbeReport
from tests.support.driver import Drive, in_phase, make_candidate, make_spec
from tests.support.stories import stories, tell

ETH0 = "eth0, 10.0.0.0/24, Ethernet, IPv4"


@stories("""
a run with a spare takes the first nodes and releases the rest at the go
    new 2 spares=1
    "run 'r' was created for 2 nodes and 1 spare"
    gather -> plan=0,1,2
    verify -> table=0,1 released=2 verified,verified,verified
    arm -> running released=2 running,running,released
    -> 2.problem='it is not needed: enough others are there'
    "…all are: go, without slot 2 (host2)"
    exit 0 0; exit 1 0 -> finished released=2
    "all 2 nodes ended with exit code 0…"
several spares are told in the plural
    new 2 spares=2
    "run 'r' was created for 2 nodes and 2 spares"
of a run that ended before the go every node was a part
    arming 2 spares=1 -> released=2
    refuse 0 bad_table 'the row of slot 1 was not made by its node' -> finished released=
a released node may leave
    running 2 spares=1; leave 2 -> stop=False running,running,left
    exit 0 0; exit 1 0 -> status=ok
a released node may end with its worker run
    running 2 spares=1; news 2 running; news 2 ended; silent 20 2 -> stop=False running,running,left
    exit 0 0; exit 1 0 -> status=ok
what a released node says of a program is not heard
    running 2 spares=1; exit 2 1 -> nothing
of a split cluster the half of slot 0 is kept when it is enough
    verifying 4 spares=4; probe 0 1 3 5 7; probe 1 0 2 4 6; probe 2 1 3 5 7; probe 3 0 2 4 6
    probe 4 1 3 5 7; probe 5 0 2 4 6; probe 6 1 3 5 7; probe 7 0 2 4 6 -> table=0,2,4,6
a node without a network of the others is replaced by a spare
    new 2 spares=1; gather 0; join 1 at=fd00::2; join 2; verify -> table=0,2
a node that does not report is replaced by a spare
    verifying 2 spares=1 verify_timeout_seconds=60; probe 0; probe 2; wait 61 -> verifying epoch=2
    -> plan=0,2
    verify -> table=0,2
of two nodes on one machine the later is replaced by a spare
    new 2 spares=1; join 0 at=10.0.0.1|10.0.0.9|10.0.0.9; join 1 at=10.0.0.9|10.0.0.2|10.0.0.9
    join 2 at=10.0.0.9|10.0.0.9|10.0.0.3; verify -> table=0,1|0,1|0,2
a spare that never comes is not waited for longer than the last call
    new 2 spares=1 last_call_seconds=30; gather 0 1
    waits "2 of 2 nodes and 1 spare joined; last call, 30 s left"
    wait 31 -> verifying
    verify -> table=0,1
a spare whose worker run ended for good is not waited for
    new 2 spares=1 submit_retries=0; gather 0 1; news 2 failed detail='no quota' -> verifying
a lost spare does not touch the table
    arming 2 spares=1 -> epoch=1
    leave 2 -> arming epoch=1 2.given_up=True table=0,1
    "…the run goes without it"
    arm -> running
a spare stands in for a node that is lost while arming
    arming 2 spares=1 submit_retries=0; leave 1 -> verifying released=
    verify; arm -> table=0,2 running,-,running
a spare steps in for a node that cannot start
    arming 2 spares=1; refuse 1 contract 'torchrun is not there' -> arming table=0,2 released=1
    "…torchrun is not there; a new table goes without it"
    arm -> running,released,running
a spare steps in for a node that does not acknowledge
    arming 2 spares=1 arm_timeout_seconds=20; ack 0; wait 21 -> arming table=0,2 released=1
""")
def test_spares(story: str) -> None:
    tell(story)


def test_a_node_that_its_peers_do_not_reach_is_replaced_by_a_spare_on_the_first_network() -> None:
    drive = tell(
        " new 2 spares=1; offer 2; probe 0 1; probe 1; probe 2 1; probe 0 1; probe 1; probe 2 1\n"
        " -> table=0,2 released=1"
    )
    why = (
        f"slot 1 (host1) cannot be reached by the 2 others over {ETH0}: no answer; the other "
        "direction works, so most likely a firewall there drops what comes in"
    )
    assert drive.reasons[-1].endswith(
        f"{why}; it goes without slot 1 (host1); the table is sealed on {ETH0}"
    )
    assert drive.run.network == drive.run.attempt.classes[0]
    drive.arm()
    assert drive.states()[1] == "released"
    assert run_status(drive.run, drive.now).slots[1].problem == why
    assert node_view(drive.run, drive.now, 2.0).why_released == {1: why}


def test_a_spare_that_is_not_needed_is_released_without_a_cause() -> None:
    view = node_view(in_phase(Phase.RUNNING, 2, spares=1).run, 100.0, 2.0)
    assert (view.released, view.why_released) == ([2], {})


def test_of_very_many_released_nodes_the_first_causes_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(views, "_MOST_CAUSES", 2)
    drive = tell(" new 4 least=1; gather 0; join 1 sick=1; join 2 sick=1; join 3 sick=1; verify")
    view = node_view(drive.run, drive.now, 2.0)
    assert (view.released, list(view.why_released)) == ([1, 2, 3], [1, 2])


def test_nodes_that_fail_alike_are_told_of_together_and_others_by_themselves() -> None:
    drive = in_phase(Phase.VERIFYING, 2, spares=4)
    bad = {0: (2, 3), 1: (2, 3, 4)}
    for slot in range(6):
        drive.probe(slot, *bad.get(slot, ()))
    (together,) = {drive.run.attempt.left_out[slot] for slot in (2, 3)}
    assert together.words.startswith(
        "slot 2 (host2), slot 3 (host3) cannot be reached by 2 of the 4 "
    )
    assert drive.run.attempt.left_out[4].words.startswith(
        f"slot 4 (host4) cannot be reached by 1 of the 5 others (slot 1) over {ETH0}"
    )
    assert "; it goes without slot 2 (host2), slot 3 (host3), slot 4 (host4); " in drive.reasons[-1]


def test_what_was_measured_counts_also_when_the_network_has_another_name_without_a_node() -> None:
    """Without slot 2 no interface is called ens3."""
    drive = Drive(make_spec(2, spares=1))
    for slot, interface in enumerate(("eth0", "eth0", "ens3")):
        offered = make_candidate(f"10.0.0.{slot + 1}", interface)
        drive.join(slot, addresses=[offered.model_copy(update={"mtu": 9000})])
    for slot in range(3):
        pairs = [
            PairProbe(slot=peer, outcome="timeout")
            if 2 in (slot, peer)
            else PairProbe(slot=peer, outcome="ok", path_mtu=1500)
            for peer in range(3)
            if peer != slot
        ]
        drive.report(slot, ProbeReport(epoch=1, pairs=pairs))
    assert drive.run.table is not None
    assert [row.slot for row in drive.run.table.rows] == [0, 1]
    first, narrow = [f.cause for f in run_report(drive.run).findings if f.check == "M02"]
    assert first == "all nodes have MTU 9000"
    assert narrow.startswith("only packets of up to 1500 bytes pass between slot 0 (host0) and ")
