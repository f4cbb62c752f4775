"""Before the go: checks that are judged, network classes that are proven, spares that step in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rendezvous.run import rounds, views
from rendezvous.run.rounds import run_report
from rendezvous.run.views import node_view, run_status
from rendezvous.wire.node import Candidate, Facts, Finding
from rendezvous.wire.run import Phase, Round, RunReport
from rendezvous.wire.verify import PairProbe, ProbePeer, ProbePlan, ProbeReport
from tests.support.driver import Drive, in_phase, make_candidate, make_spec
from tests.support.stories import stories, tell
from tests.support.tables import rows

ETH0 = "eth0 (10.0.0.0/24, Ethernet)"
ETH1 = "eth1 (10.1.0.0/24, Ethernet)"


@stories("""
where one direction fails the next network is proven in the next epoch
    new 3; offer 2; probe 0; probe 1 2; probe 2 -> verifying epoch=2 joined,joined,joined
    "eth0 (10.0.0.0/24, Ethernet): 1 of 6 directed pairs failed; next: eth1 (10.1.0.0/24, Ethernet)"
    -> network='eth1 (10.1.0.0/24, Ethernet)' waiting=0,1,2
    verify -> epoch=2 addresses=10.1.0.1,10.1.0.2,10.1.0.3
where no network works the run fails with the nearest
    new 4; offer 2; probe 0 1 2 3; probe 1 0 2 3; probe 2 0 1 3; probe 3 0 1 2
    probe 0 3; probe 1 3; probe 2 3; probe 3 -> exit=81 code=verification_failed slot=3
    "…over eth1 (10.1.0.0/24…"
a node that the others cannot reach is blamed
    verifying 4; probe 0 3
    "slot 0 (host0) cannot reach slot 3 (host3): timeout"
    probe 1 3; probe 2 3; probe 3 -> exit=81 code=verification_failed slot=3
    "slot 3 (host3) cannot be reached by the 3 others over eth0…"
    hint "…iptables -L on host3…"
what a node reported of its peers is forgotten in the next round
    verifying; probe 0 1; join 1 2; verify -> arming
a report on slots that are no peers is no failure
    verifying; probe 0 0 7 19999; probe 1 -> arming
nodes of two families end the run
    new; join 0 at=10.0.0.1; join 1 at=fd00::2 -> exit=81 code=verification_failed slot=0
    hint "…--network…"
a node that does not report ends the run after the time-out
    verifying 3 verify_timeout_seconds=60; probe 0; wait 59.5 -> verifying
    waits "waiting for slot 1 (host1), slot 2 (host2) to report on the other nodes, 0 s left"
    wait 1 -> exit=81 code=verification_failed slot=1
    "slot 1 (host1), slot 2 (host2) did not report on the other nodes within 60 s, though still
    connected"
    hint "see the log of slot 1 (host1)"
each round has the whole time-out
    new 2 verify_timeout_seconds=60; offer 2; wait 50; probe 0 1; probe 1; wait 59 -> verifying
    wait 2 -> code=verification_failed
the time-out is for all networks together
    new 2 verify_timeout_seconds=20; offer 4; wait 12; probe 0 1; probe 1 0
    waits "…(eth1 (10.1.0.0/24, Ethernet): network 2 of 4)…"
    wait 8; probe 0 1; probe 1 0 -> code=verification_failed
    "…over eth0 (10.0.0.0/24…"
the rounds before it was begun without a node that did not report count no more
    new 2 spares=1 verify_timeout_seconds=20; offer 3; probe 0 2; probe 1; probe 2
    probe 0; probe 1; wait 21 -> verifying out=2
    wait 12; probe 0 1; probe 1 0; wait 8; probe 0 1; probe 1 0 -> code=verification_failed
    "slot 0 (host0) and slot 1 (host1) do not reach each other…(the nearest of 2 networks tried)"
a node that is lost while verifying begins it all again
    new; offer 2; probe 0 1; probe 1; leave 1 -> gathering rounds=1
    join 1 2 at=10.0.0.2,10.1.0.2 -> epoch=3 rounds=0 network='eth0 (10.0.0.0/24, Ethernet)'
without verify the preferred network is taken unproven
    new 2 verify=False; offer 2 -> arming rounds=0 network='eth0 (10.0.0.0/24, Ethernet)'
""")
def test_rounds(story: str) -> None:
    tell(story)


def test_every_node_is_told_the_addresses_of_one_network_and_nobody_the_tables() -> None:
    drive = tell(" new 2; offer 2")
    view = node_view(drive.run, drive.now, 2.0)
    assert (view.table, view.plan) == (
        None,
        ProbePlan(
            network=ETH0,
            peers=[
                ProbePeer(
                    slot=slot,
                    hostname=f"host{slot}",
                    address=f"10.0.0.{slot + 1}",
                    interface="eth0",
                    mtu=0,
                    probe_port=7_000 + slot,
                )
                for slot in (0, 1)
            ],
        ),
    )


def test_a_pair_that_was_not_reported_is_not_proven() -> None:
    drive = in_phase(Phase.VERIFYING, 3)
    drive.report(0, ProbeReport(epoch=1, pairs=[PairProbe(slot=1, outcome="ok")]))
    assert drive.reasons[-1] == "slot 0 (host0) cannot reach slot 2 (host2): error"
    drive.verify()
    assert drive.result.code == "verification_failed"
    assert "it was not probed" in drive.result.message


def test_the_report_tells_every_round_and_of_the_older_ones_what_failed() -> None:
    report = run_report(tell(" new 2; offer 2; probe 0 1; verify; verify").run)
    failed, good = PairProbe(slot=1, outcome="timeout"), PairProbe(slot=0, outcome="ok")
    assert report.hostnames == {0: "host0", 1: "host1"}
    assert report.rounds == [
        Round(
            network=ETH0,
            number=0,
            verdict="1 of 2 directed pairs failed",
            slots=[0, 1],
            reports={0: [failed]},
        ),
        Round(
            network=ETH1,
            number=1,
            verdict="every pair works",
            slots=[0, 1],
            reports={0: [PairProbe(slot=1, outcome="ok")], 1: [good]},
        ),
    ]
    assert [finding.check for finding in report.findings] == ["M01"]
    assert RunReport.model_validate_json(report.model_dump_json()) == report


def test_of_a_large_run_only_failed_pairs_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    run = in_phase(Phase.ARMING, 4).run
    assert run_report(run).rounds[0].reports.keys() == {0, 1, 2, 3}
    monkeypatch.setattr(rounds, "FULL_MESH", 3)
    assert run_report(run).rounds[0].reports == {}


# --- checks ---------------------------------------------------------------------------------------


@stories("""
a failed check of a node ends the run before anything is probed
    new 3; gather 0 1; join 2 sick=True -> exit=87 code=preflight_failed slot=2
    "checks before the start failed: slot 2 (host2): memlock 64 KiB, expected unlimited: RDMA cannot
    register memory (L12)"
    hint "ulimit -l unlimited"
    told "…checks before the start failed: slot 2 (host2)…"
a run that needs RDMA names the node without
    new 1 require_rdma=True; gather -> code=preflight_failed slot=0
a node that fails a check is replaced by a spare
    new 2 spares=1; gather 0; join 1 sick=True; join 2 -> plan=0,2
    "host2 joined (3 of 3), from 10.0.0.3; slot 1 (host1): memlock 64 KiB, expected unlimited:
    RDMA cannot register memory; the run continues without slot 1 (host1)"
    verify; arm -> table=0,2 running,released,running L12=fail:1
    -> 1.problem='slot 1 (host1): memlock 64 KiB, expected unlimited: RDMA cannot register memory'
all failed checks are told at once
    new 4; join 0 nccl=2.21.5; join 1 sick=True nccl=2.21.5; join 2 nccl=2.19.3
    join 3 sick=True nccl=2.21.5 -> code=preflight_failed slot=1
    "…slot 1 (host1), slot 3 (host3): memlock…slot 2 (host2)…2.19.3…"
    hint "ulimit -l unlimited; …"
what is nobody's fault ends a run that could go without its sick nodes
    new 4 least=2; join 0 nccl=2.21.5; join 1 nccl=2.21.5; join 2 nccl=2.19.3
    join 3 sick=True nccl=2.19.3 -> code=preflight_failed slot=3
where the nodes are split nobody is blamed
    new; join 0 nccl=2.19.3; join 1 nccl=2.21.5 -> code=preflight_failed slot=None
a warning is kept and ends a strict run only
    new 2 strict=False|True; gather 0; join 1 sick=warn -> verifying|finished L12=warn:1
a check that is skipped fails nobody
    new 3 skip=L12,X02 strict=True; join 0 nccl=2.21.5; join 1 sick=True nccl=2.21.5
    join 2 nccl=2.19.3 -> verifying L12=skipped:1 X02=skipped:2
a network that one node lacks is not given up in silence
    new 3 strict=False|True skip=X08|X09; join 0 at=10.9.0.1,10.0.0.1
    join 1 at=10.9.0.2,10.0.0.2; join 2 at=10.0.0.3 -> verifying X09=warn:2|skipped:2 plan=0,1,2
    -> network='eth1 or eth0 (10.0.0.0/24, Ethernet)'
a strict run goes without the node that lacks a network
    new 3 strict=True least=2; join 0 at=10.9.0.1,10.0.0.1; join 1 at=10.9.0.2,10.0.0.2
    join 2 at=10.0.0.3 -> X09=warn:2 plan=0,1 network='eth0 (10.9.0.0/24, Ethernet)'
a strict run that cannot go without it ends
    new 3 strict=True; join 0 at=10.9.0.1,10.0.0.1; join 1 at=10.9.0.2,10.0.0.2
    join 2 at=10.0.0.3 -> X09=warn:2 code=preflight_failed slot=2
    "…slot 2 (host2) does not have its own address in eth0 (10.9.0.0/24…"
the rank of a spare closes up
    new 2 spares=1; gather 0; join 1 sick=True requested_node=1; join 2 requested_node=2; verify
    -> table=0,2
slot 0 has no spare
    new 2 spares=1; join 0 sick=True; join 1; join 2 -> code=preflight_failed slot=0
a sick spare is not counted while a good node may still come
    new 2 spares=1 last_call_seconds=30 join_timeout_seconds=100; news 1 queued; gather 0
    join 2 sick=True; wait 30
    "…the last call ended with 2 nodes; the run waits again for other nodes…"
    wait 170 -> gathering
    gather 1; verify -> table=0,1 released=2
those who never come in place of a sick node are waited for to the join time-out
    new 2 spares=1 last_call_seconds=30 join_timeout_seconds=100; gather 0; join 2 sick=True
    wait 95 -> gathering
    wait 40 -> code=preflight_failed slot=2
a last call that begins anew while nodes verify gathers again
    new 6 least=3 strict=True; join 0 at=10.9.0.1,10.0.0.1; join 1 at=10.9.0.2,10.0.0.2; join 2
    join 3; join 4; wait 30 -> verifying
    probe 0; probe 1; probe 2; wait 60 -> gathering out=
    "…the run waits again for other nodes: …"
    wait 0.5 -> gathering enough_since=190.0
""")
def test_sick_nodes(story: str) -> None:
    tell(story)


def test_of_very_many_failed_checks_the_first_are_told() -> None:
    drive = Drive(make_spec(60))
    for slot in range(60):
        drive.join(slot, facts=Facts(gpus=8, nccl_version=f"2.{19 + (slot < 20)}.3"))
    assert "slot 15 (host15) is one of 20 nodes with NCCL 2.20.3" in drive.result.message
    assert drive.result.message.endswith("(X02); and 4 more")


@pytest.mark.parametrize("spares", [0, 1])
def test_a_clock_that_is_off_costs_a_strict_run_the_node_or_its_life(spares: int) -> None:
    drive = in_phase(Phase.VERIFYING, 3, spares=spares, strict=True)
    slots, off = range(3 + spares), 2 + spares
    for slot in slots:
        skews = {p: 90.0 * ((p == off) - (slot == off)) for p in slots if p != slot}
        pairs = [PairProbe(slot=p, outcome="ok", skew_seconds=skew) for p, skew in skews.items()]
        drive.report(slot, ProbeReport(epoch=1, pairs=pairs))
    if spares:
        assert drive.run.table is not None
        assert [row.slot for row in drive.run.table.rows] == [0, 1, 2]
        assert list(drive.run.attempt.left_out) == [3]
        words = "; the run continues without slot 3 (host3); all 3 nodes reach"
        assert words in drive.reasons[-1]
    else:
        assert (drive.result.code, drive.result.slot) == ("preflight_failed", 2)
        assert "clock" in drive.result.message


# --- spares: who steps in for whom, and who is released -------------------------------------------


@stories("""
a run with a spare takes the first nodes and releases the rest at the go
    new 2 spares=1
    "run 'r' was created for 2 nodes and 1 spare"
    gather -> plan=0,1,2
    verify -> table=0,1 released=2 verified,verified,verified
    arm -> running released=2 running,running,released
    -> 2.problem='it is not needed: enough other nodes have joined'
    "…; starting torchrun, without slot 2 (host2)"
    exit 0 0; exit 1 0 -> finished released=2
    "both nodes ended with exit code 0…"
several spares are told in the plural
    new 2 spares=2
    "run 'r' was created for 2 nodes and 2 spares"
of a run that ended before the go every node was a part
    arming 2 spares=1 -> released=2
    refuse 0 bad_table 'the row of slot 1 was not written by its node' -> finished released=
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
    waits "2 of 3 nodes (2 nodes and 1 spare) joined; last call, 30 s left"
    wait 31 -> verifying
    verify -> table=0,1
a spare whose worker run ended for good is not waited for
    new 2 spares=1 submit_retries=0; gather 0 1; news 2 failed detail='no quota' -> verifying
a lost spare does not touch the table
    arming 2 spares=1 -> epoch=1
    leave 2 -> arming epoch=1 2.given_up=True table=0,1
    "…the run continues without it"
    arm -> running
a spare stands in for a node that is lost while arming
    arming 2 spares=1 submit_retries=0; leave 1 -> verifying released=
    verify; arm -> table=0,2 running,-,running
a spare steps in for a node that cannot start
    arming 2 spares=1; refuse 1 contract 'torchrun is not there' -> arming table=0,2 released=1
    "…torchrun is not there; the run continues without it"
    arm -> running,released,running
a node that could not start does not come back when another cannot either
    arming 2 spares=2; refuse 1 contract no; refuse 2 hosts no -> table=0,3
spares step in for several nodes that do not acknowledge
    arming 3 spares=2 arm_timeout_seconds=20; ack 0; wait 21 -> arming table=0,3,4 released=1,2
    "…; the run continues without them"
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
        f"slot 1 (host1) cannot be reached by the 2 others over {ETH0}: no answer at "
        "10.0.0.2:7001; the other direction works, so most likely a firewall there drops incoming "
        "packets"
    )
    assert drive.reasons[-1].endswith(
        f"{why}; the run continues without slot 1 (host1); both nodes reach each other over {ETH0}"
    )
    assert drive.run.network == drive.run.attempt.classes[0]
    drive.arm()
    assert drive.states()[1] == "released"
    assert run_status(drive.run, drive.now, drive.leases).slots[1].problem == why
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
    without = "; the run continues without slot 2 (host2), slot 3 (host3), slot 4 (host4); "
    assert without in drive.reasons[-1]


def test_what_was_measured_counts_also_when_the_network_has_another_name_without_a_node() -> None:
    """Without slot 2 no interface is called ens3."""
    drive = Drive(make_spec(2, spares=1))
    for slot, interface in enumerate(("eth0", "eth0", "ens3")):
        offered = make_candidate(f"10.0.0.{slot + 1}", interface)
        drive.join(slot, addresses=[replace(offered, mtu=9000)])
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


# --- programs that the user's variables send to another interface than the table's ----------------


GLOO = "GLOO_SOCKET_IFNAME"


def offered(slot: int, number: int, left_out: bool) -> Candidate:
    """The address of a slot on ethN, and whether a variable leaves that interface out."""
    found = make_candidate(f"10.0.{number}.{slot + 1}", f"eth{number}")
    return replace(found, left_out_by={GLOO: "other"} if left_out else {})


def sealed(left_out: str, own: list[Finding] | None = None, **spec: Any) -> Drive:
    """`ox xo`: slots that offer eth0, eth1..., of which x are left out; the run starts on eth0."""
    drive = Drive(make_spec(len(left_out.split()), verify=False, **spec))
    for slot, flags in enumerate(left_out.split()):
        addresses = [offered(slot, number, flag == "x") for number, flag in enumerate(flags)]
        if spec.get("loopback"):
            addresses = [replace(one, address=f"127.0.0.{slot + 1}") for one in addresses]
        drive.join(slot, addresses=addresses, findings=own if slot and own else [])
    return drive


ABSENT = Finding(check="L17", level="warn", subject=GLOO, value="ib9", cause="it is not there")
CHANGES: dict[str, dict[str, Any]] = {
    "one machine": {"loopback": True},
    "said by itself": {"own": [ABSENT]},
    "skipped": {"skip": ["L17"]},
}


@rows(
    "left_out changes expected",
    """
the table's is left out | o x o | | 1 warn eth0
the table's is taken in | ox ox | |
all mean another that they share | xo xo | |
one node alone reaches itself | x | |
every interface will do | x x | one machine |
they do not agree on the other | xo xx | | 0 warn eth0, 1 warn eth0
not said again | o x | said by itself | 1 warn
not looked at | o x | skipped | 1 skipped eth0
""",
)
def test_a_node_whose_variable_leaves_out_the_tables_interface_is_warned_of(
    left_out: str, changes: str, expected: str
) -> None:
    drive = sealed(left_out, **CHANGES.get(changes, {}))
    assert drive.phase is Phase.ARMING
    found = [f for f in drive.run.attempt.findings if f.check == "L17"]
    told = [f"{f.slot} {f.level} {f.expected}".strip() for f in found]
    assert ", ".join(told) == expected


def test_a_strict_run_ends_for_it() -> None:
    drive = sealed("o x", strict=True)
    assert (drive.result.code, drive.result.slot) == ("preflight_failed", 1)


def test_a_program_that_fails_is_followed_by_what_was_warned_of() -> None:
    drive = sealed("o x o", verdict_seconds=2)
    drive.arm()
    drive.exit(2, 1)
    drive.wait(2)
    assert (drive.result.code, drive.result.slot) == ("program_failed", 2)
    assert drive.result.hint == (
        "see what it wrote before: rdzv logs RUN; "
        "warning at the start: slot 1 (host1): GLOO_SOCKET_IFNAME other, expected eth0: it "
        "excludes the interface that the table uses (L17); unset GLOO_SOCKET_IFNAME: rdzv "
        "sets it to the interface that it has verified"
    )


def test_what_a_node_says_that_is_left_out_is_no_finding_about_the_others() -> None:
    """Slot 1 is cut off; it and slot 2 have other hosts files than the rest."""
    drive = Drive(make_spec(4, least=3)).gather()
    resolved = {(1, 0): "10.0.0.9", (2, 3): "10.0.0.8", (2, 1): "10.0.0.7"}
    for slot in range(4):
        pairs = [
            PairProbe(
                slot=peer,
                outcome="timeout" if 1 in (slot, peer) else "ok",
                resolved=resolved.get((slot, peer), ""),
            )
            for peer in range(4)
            if peer != slot
        ]
        drive.report(slot, ProbeReport(epoch=1, pairs=pairs))
    assert drive.phase is Phase.ARMING
    assert [(one.check, one.slot, one.cause) for one in drive.run.attempt.findings] == [
        ("M01", None, f"all 6 directed pairs passed over {ETH0}"),
        (
            "X08",
            2,
            (
                "on slot 2 (host2), /etc/hosts maps host3 to 10.0.0.8; the address of slot 3 "
                "(host3) is 10.0.0.4"
            ),
        ),
    ]
