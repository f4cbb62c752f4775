"""Before the go: checks that are judged, network classes that are proven, spares that step in."""

from __future__ import annotations

import pytest

from rendezvous.run import rounds
from rendezvous.run.rounds import run_report
from rendezvous.run.views import node_view
from rendezvous.wire.node import Facts
from rendezvous.wire.run import Phase, Round, RunReport
from rendezvous.wire.verify import PairProbe, ProbePeer, ProbePlan, ProbeReport
from tests.support.driver import Drive, in_phase, make_spec
from tests.support.stories import stories, tell

ETH0 = "eth0, 10.0.0.0/24, Ethernet, IPv4"
ETH1 = "eth1, 10.1.0.0/24, Ethernet, IPv4"


@stories("""
where one direction fails the next network is proven in the next epoch
    new 3; offer 2; probe 0; probe 1 2; probe 2 -> verifying epoch=2 joined,joined,joined
    "slot 2 (host2) verified its peers; eth0, 10.0.0.0/24, Ethernet, IPv4: 1 of 6 directed pairs
    failed; next is eth1, 10.1.0.0/24, Ethernet, IPv4"
    -> network='eth1, 10.1.0.0/24, Ethernet, IPv4' waiting=0,1,2
    verify -> epoch=2 addresses=10.1.0.1,10.1.0.2,10.1.0.3
where no network works the run fails with the nearest
    new 4; offer 2; probe 0 1 2 3; probe 1 0 2 3; probe 2 0 1 3; probe 3 0 1 2
    probe 0 3; probe 1 3; probe 2 3; probe 3 -> exit=81 code=verification_failed slot=3
    "…over eth1, 10.1.0.0/24…"
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
    waits "waiting for slot 1 (host1), slot 2 (host2) to report on their peers, 0 s left"
    wait 1 -> exit=81 code=verification_failed slot=1
    "slot 1 (host1), slot 2 (host2) did not report on their peers within 60 s, though still
    connected"
    hint "look at the log of slot 1 (host1)"
each round has the whole time-out
    new 2 verify_timeout_seconds=60; offer 2; wait 50; probe 0 1; probe 1; wait 59 -> verifying
    wait 2 -> code=verification_failed
the time-out is for all networks together
    new 2 verify_timeout_seconds=20; offer 4; wait 12; probe 0 1; probe 1 0
    waits "…(eth1, 10.1.0.0/24, Ethernet, IPv4: network 2 of 4)…"
    wait 8; probe 0 1; probe 1 0 -> code=verification_failed
    "…over eth0, 10.0.0.0/24…"
a node that is lost while verifying begins it all again
    new; offer 2; probe 0 1; probe 1; leave 1 -> gathering rounds=1
    join 1 2 at=10.0.0.2,10.1.0.2 -> epoch=3 rounds=0 network='eth0, 10.0.0.0/24, Ethernet, IPv4'
without verify the preferred network is taken unproven
    new 2 verify=False; offer 2 -> arming rounds=0 network='eth0, 10.0.0.0/24, Ethernet, IPv4'
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
    "…3 of 3 nodes are in; slot 1 (host1): memlock 64 KiB, expected unlimited: RDMA cannot register
    memory; it goes without slot 1 (host1)"
    verify; arm -> table=0,2 running,released,running L12=fail:1
    -> 1.problem='slot 1 (host1): memlock 64 KiB, expected unlimited: RDMA cannot register memory'
all failed checks are told at once
    new 4; join 0 nccl=2.21.5; join 1 sick=True nccl=2.21.5; join 2 nccl=2.19.3
    join 3 sick=True nccl=2.21.5 -> code=preflight_failed slot=1
    "…slot 1 (host1), slot 3 (host3): memlock…slot 2 (host2)…2.19.3…"
    hint "ulimit -l unlimited; …"
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
    -> network='eth1 or eth0, 10.0.0.0/24, Ethernet, IPv4'
a strict run goes without the node that lacks a network
    new 3 strict=True least=2; join 0 at=10.9.0.1,10.0.0.1; join 1 at=10.9.0.2,10.0.0.2
    join 2 at=10.0.0.3 -> X09=warn:2 plan=0,1 network='eth0, 10.9.0.0/24, Ethernet, IPv4'
a strict run that cannot go without it ends
    new 3 strict=True; join 0 at=10.9.0.1,10.0.0.1; join 1 at=10.9.0.2,10.0.0.2
    join 2 at=10.0.0.3 -> X09=warn:2 code=preflight_failed slot=2
    "…slot 2 (host2) has no address of its own in eth0, 10.9.0.0/24…"
the rank of a spare closes up
    new 2 spares=1; gather 0; join 1 sick=True requested_rank=1; join 2 requested_rank=2; verify
    -> table=0,2
slot 0 has no spare
    new 2 spares=1; join 0 sick=True; join 1; join 2 -> code=preflight_failed slot=0
a sick spare is not counted while a good node may still come
    new 2 spares=1 last_call_seconds=30 join_timeout_seconds=100; news 1 queued; gather 0
    join 2 sick=True; wait 30
    "…last call is over: 2 nodes are in; the others are waited for once more…"
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
    "…the others are waited for once more: …"
    timeout phase=verifying; wait 0.5 -> gathering enough_since=190.0
""")
def test_sick_nodes(story: str) -> None:
    tell(story)


def test_of_very_many_failed_checks_the_first_are_told() -> None:
    drive = Drive(make_spec(60))
    for slot in range(60):
        drive.join(slot, facts=Facts(gpus=8, nccl_version=f"2.{19 + (slot < 20)}.3"))
    assert "slot 15 (host15) is one of 20 with NCCL 2.20.3" in drive.result.message
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
        assert "; it goes without slot 3 (host3); the table is sealed" in drive.reasons[-1]
    else:
        assert (drive.result.code, drive.result.slot) == ("preflight_failed", 2)
        assert "clock" in drive.result.message
