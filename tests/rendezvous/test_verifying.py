"""Before the go: checks that are judged, network classes that are proven, spares that step in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rendezvous.run import rounds, views
from rendezvous.run.rounds import run_report
from rendezvous.run.views import node_view
from rendezvous.wire.node import Candidate, Facts, Finding
from rendezvous.wire.run import Phase, Round, RunReport, SlotState
from rendezvous.wire.verify import PairProbe, ProbePeer, ProbePlan, ProbeReport
from tests.support.driver import MEMLOCK, Drive, in_phase, make_candidate, make_spec
from tests.support.tables import rows

NEWER = Facts(gpus=8, nccl_version="2.21.5")
OLDER = Facts(gpus=8, nccl_version="2.19.3")
ETH0 = "eth0 (10.0.0.0/24, Ethernet)"
ETH1 = "eth1 (10.1.0.0/24, Ethernet)"


def test_where_one_direction_fails_the_next_network_is_proven_in_the_next_epoch() -> None:
    drive = Drive(make_spec(3))
    drive.offer(2)
    drive.probe(0)
    drive.probe(1, 2)
    drive.probe(2)
    assert (drive.phase, drive.run.epoch) == ("verifying", 2)
    assert drive.states() == ["joined", "joined", "joined"]
    assert drive.reasons[-1] == (
        "eth0 (10.0.0.0/24, Ethernet): 1 of 6 directed pairs failed; next: eth1 "
        "(10.1.0.0/24, Ethernet)"
    )
    assert drive.network == "eth1 (10.1.0.0/24, Ethernet)"
    assert sorted(drive.run.waiting_for) == [0, 1, 2]
    drive.verify()
    assert drive.run.epoch == 2
    assert [row.address for row in drive.table.rows] == ["10.1.0.1", "10.1.0.2", "10.1.0.3"]


def test_where_no_network_works_the_run_fails_with_the_nearest() -> None:
    drive = Drive(make_spec(4))
    drive.offer(2)
    for slot in range(4):
        drive.probe(slot, *{0, 1, 2, 3} - {slot})
    for slot in range(3):
        drive.probe(slot, 3)
    drive.probe(3)
    assert drive.failure == (81, "verification_failed", 3)
    assert "over eth1 (10.1.0.0/24" in drive.result.message


def test_a_node_that_the_others_cannot_reach_is_blamed() -> None:
    drive = in_phase(Phase.VERIFYING, 4)
    drive.probe(0, 3)
    assert drive.reasons[-1] == "slot 0 (host0) cannot reach slot 3 (host3): timeout"
    drive.probe(1, 3)
    drive.probe(2, 3)
    drive.probe(3)
    assert drive.failure == (81, "verification_failed", 3)
    assert drive.result.message.startswith(
        "slot 3 (host3) cannot be reached by the 3 others over eth0"
    )
    assert "iptables -L on host3" in drive.result.hint


def test_what_a_node_reported_of_its_peers_is_forgotten_in_the_next_round() -> None:
    drive = in_phase(Phase.VERIFYING)
    drive.probe(0, 1)
    drive.join(1, 2)
    drive.verify()
    assert drive.phase == "arming"


def test_a_report_on_slots_that_are_no_peers_is_no_failure() -> None:
    drive = in_phase(Phase.VERIFYING)
    drive.probe(0, 0, 7, 19999)
    drive.probe(1)
    assert drive.phase == "arming"


def test_nodes_of_two_families_end_the_run() -> None:
    drive = Drive(make_spec())
    drive.join(0, addresses=["10.0.0.1"])
    drive.join(1, addresses=["fd00::2"])
    assert drive.failure == (81, "verification_failed", 0)
    assert "--network" in drive.result.hint


def test_a_node_that_does_not_report_ends_the_run_after_the_time_out() -> None:
    drive = in_phase(Phase.VERIFYING, 3, verify_timeout_seconds=60)
    drive.probe(0)
    drive.wait(59.5)
    assert drive.phase == "verifying"
    assert drive.waits() == (
        "waiting for slot 1 (host1), slot 2 (host2) to report on the other nodes, 0 s left"
    )
    drive.wait(1)
    assert drive.failure == (81, "verification_failed", 1)
    assert drive.result.message == (
        "slot 1 (host1), slot 2 (host2) did not report on the other nodes within 60 s, "
        "though still connected"
    )
    assert drive.result.hint == "see the log of slot 1 (host1)"


def test_each_round_has_the_whole_time_out() -> None:
    drive = Drive(make_spec(2, verify_timeout_seconds=60))
    drive.offer(2)
    drive.wait(50)
    drive.probe(0, 1)
    drive.probe(1)
    drive.wait(59)
    assert drive.phase == "verifying"
    drive.wait(2)
    assert drive.result.code == "verification_failed"


def test_the_time_out_is_for_all_networks_together() -> None:
    drive = Drive(make_spec(2, verify_timeout_seconds=20))
    drive.offer(4)
    drive.wait(12)
    drive.probe(0, 1)
    drive.probe(1, 0)
    assert "(eth1 (10.1.0.0/24, Ethernet): network 2 of 4)" in drive.waits()
    drive.wait(8)
    drive.probe(0, 1)
    drive.probe(1, 0)
    assert drive.result.code == "verification_failed"
    assert "over eth0 (10.0.0.0/24" in drive.result.message


def test_the_rounds_before_it_was_begun_without_a_node_that_did_not_report_count_no_more() -> None:
    drive = Drive(make_spec(2, spares=1, verify_timeout_seconds=20))
    drive.offer(3)
    drive.probe(0, 2)
    drive.probe(1)
    drive.probe(2)
    drive.probe(0)
    drive.probe(1)
    drive.wait(21)
    assert (drive.phase, sorted(drive.run.attempt.left_out)) == ("verifying", [2])
    drive.wait(12)
    drive.probe(0, 1)
    drive.probe(1, 0)
    drive.wait(8)
    drive.probe(0, 1)
    drive.probe(1, 0)
    assert drive.result.code == "verification_failed"
    assert drive.result.message.startswith(
        "slot 0 (host0) and slot 1 (host1) do not reach each other"
    )
    assert drive.result.message.endswith("(the nearest of 2 networks tried)")


def test_a_node_that_is_lost_while_verifying_begins_it_all_again() -> None:
    drive = Drive(make_spec())
    drive.offer(2)
    drive.probe(0, 1)
    drive.probe(1)
    drive.leave(1)
    assert (drive.phase, len(drive.run.attempt.rounds)) == ("gathering", 1)
    drive.join(1, 2, addresses=["10.0.0.2", "10.1.0.2"])
    assert (drive.run.epoch, len(drive.run.attempt.rounds)) == (3, 0)
    assert drive.network == "eth0 (10.0.0.0/24, Ethernet)"


def test_without_verify_the_preferred_network_is_taken_unproven() -> None:
    drive = Drive(make_spec(2, verify=False))
    drive.offer(2)
    assert (drive.phase, len(drive.run.attempt.rounds)) == ("arming", 0)
    assert drive.network == "eth0 (10.0.0.0/24, Ethernet)"


def test_every_node_is_told_the_addresses_of_one_network_and_nobody_the_tables() -> None:
    drive = Drive(make_spec(2))
    drive.offer(2)
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
    drive = Drive(make_spec(2))
    drive.offer(2)
    drive.probe(0, 1)
    report = run_report(drive.verify().verify().run)
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


def test_a_failed_check_of_a_node_ends_the_run_before_anything_is_probed() -> None:
    drive = Drive(make_spec(3)).gather(0, 1)
    drive.join(2, findings=[MEMLOCK])
    assert drive.failure == (87, "preflight_failed", 2)
    assert drive.result.message == (
        "checks before the start failed: slot 2 (host2): memlock 64 KiB, expected "
        "unlimited: RDMA cannot register memory (L12)"
    )
    assert drive.result.hint == "ulimit -l unlimited"


def test_a_run_that_needs_rdma_names_the_node_without() -> None:
    drive = Drive(make_spec(1, require_rdma=True)).gather()
    assert (drive.result.code, drive.result.slot) == ("preflight_failed", 0)


def test_a_node_that_fails_a_check_is_replaced_by_a_spare() -> None:
    drive = Drive(make_spec(2, spares=1)).gather(0)
    drive.join(1, findings=[MEMLOCK])
    drive.join(2)
    assert drive.plan() == [0, 2]
    assert drive.reasons[-1] == (
        "host2 joined (3 of 3), from 10.0.0.3; slot 1 (host1): memlock 64 KiB, expected "
        "unlimited: RDMA cannot register memory; the run continues without slot 1 (host1)"
    )
    drive.verify().arm()
    assert (drive.table_slots(), drive.states()) == ([0, 2], ["running", "released", "running"])
    assert drive.findings("L12") == [("fail", 1)]
    assert drive.slot(1).problem == (
        "slot 1 (host1): memlock 64 KiB, expected unlimited: RDMA cannot register memory"
    )


def test_all_failed_checks_are_told_at_once() -> None:
    drive = Drive(make_spec(4))
    drive.join(0, facts=NEWER)
    drive.join(1, findings=[MEMLOCK], facts=NEWER)
    drive.join(2, facts=OLDER)
    drive.join(3, findings=[MEMLOCK], facts=NEWER)
    assert (drive.result.code, drive.result.slot) == ("preflight_failed", 1)
    assert "slot 1 (host1), slot 3 (host3): memlock" in drive.result.message
    assert "slot 2 (host2)" in drive.result.message
    assert "2.19.3" in drive.result.message
    assert drive.result.hint.startswith("ulimit -l unlimited; ")


def test_what_is_nobody_s_fault_ends_a_run_that_could_go_without_its_sick_nodes() -> None:
    drive = Drive(make_spec(4, least=2))
    drive.join(0, facts=NEWER)
    drive.join(1, facts=NEWER)
    drive.join(2, facts=OLDER)
    drive.join(3, findings=[MEMLOCK], facts=OLDER)
    assert (drive.result.code, drive.result.slot) == ("preflight_failed", 3)


def test_where_the_nodes_are_split_nobody_is_blamed() -> None:
    drive = Drive(make_spec())
    drive.join(0, facts=OLDER)
    drive.join(1, facts=NEWER)
    assert (drive.result.code, drive.result.slot) == ("preflight_failed", None)


@pytest.mark.parametrize(("strict", "phase"), [(False, "verifying"), (True, "finished")])
def test_a_warning_is_kept_and_ends_a_strict_run_only(strict: bool, phase: str) -> None:
    drive = Drive(make_spec(2, strict=strict)).gather(0)
    drive.join(1, findings=[replace(MEMLOCK, level="warn")])
    assert (drive.phase, drive.findings("L12")) == (phase, [("warn", 1)])


def test_a_check_that_is_skipped_fails_nobody() -> None:
    drive = Drive(make_spec(3, skip=["L12", "X02"], strict=True))
    drive.join(0, facts=NEWER)
    drive.join(1, findings=[MEMLOCK], facts=NEWER)
    drive.join(2, facts=OLDER)
    assert (drive.phase, drive.findings("L12")) == ("verifying", [("skipped", 1)])
    assert drive.findings("X02") == [("skipped", 2)]


@pytest.mark.parametrize(
    ("spec", "level", "ends_in", "plan"),
    [
        ({"skip": ["X08"]}, "warn", "verifying", [0, 1, 2]),
        ({"strict": True, "skip": ["X09"]}, "skipped", "verifying", [0, 1, 2]),
        ({"strict": True, "least": 2}, "warn", "verifying", [0, 1]),
        ({"strict": True}, "warn", "finished", None),
    ],
)
def test_a_network_that_one_node_lacks_is_not_given_up_in_silence(
    spec: dict[str, Any], level: str, ends_in: str, plan: list[int] | None
) -> None:
    """A strict run goes without that node, or ends."""
    drive = Drive(make_spec(3, **spec))
    drive.join(0, addresses=["10.9.0.1", "10.0.0.1"])
    drive.join(1, addresses=["10.9.0.2", "10.0.0.2"])
    drive.join(2, addresses=["10.0.0.3"])
    assert (drive.findings("X09"), drive.phase, drive.plan()) == ([(level, 2)], ends_in, plan)
    if plan:
        every = plan == [0, 1, 2]
        expected = (
            "eth1 or eth0 (10.0.0.0/24, Ethernet)" if every else "eth0 (10.9.0.0/24, Ethernet)"
        )
        assert drive.network == expected
        return
    assert (drive.result.code, drive.result.slot) == ("preflight_failed", 2)
    words = "slot 2 (host2) does not have its own address in eth0 (10.9.0.0/24"
    assert words in drive.result.message


def test_the_rank_of_a_spare_closes_up() -> None:
    drive = Drive(make_spec(2, spares=1)).gather(0)
    drive.join(1, findings=[MEMLOCK], requested_node=1)
    drive.join(2, requested_node=2)
    drive.verify()
    assert drive.table_slots() == [0, 2]


def test_slot_0_has_no_spare() -> None:
    drive = Drive(make_spec(2, spares=1))
    drive.join(0, findings=[MEMLOCK])
    drive.gather(1, 2)
    assert (drive.result.code, drive.result.slot) == ("preflight_failed", 0)


def test_a_sick_spare_is_not_counted_while_a_good_node_may_still_come() -> None:
    drive = Drive(make_spec(2, spares=1, last_call_seconds=30, join_timeout_seconds=100))
    drive.news(1, SlotState.QUEUED)
    drive.gather(0)
    drive.join(2, findings=[MEMLOCK])
    drive.wait(30)
    assert (
        "the last call ended with 2 nodes; the run waits again for other nodes"
    ) in drive.reasons[-1]
    drive.wait(170)
    assert drive.phase == "gathering"
    drive.gather(1).verify()
    assert drive.table_slots() == [0, 1]
    assert [*node_view(drive.run, drive.now, 2.0).released] == [2]


def test_those_who_never_come_in_place_of_a_sick_node_are_waited_for_to_the_join_time_out() -> None:
    drive = Drive(make_spec(2, spares=1, last_call_seconds=30, join_timeout_seconds=100))
    drive.gather(0)
    drive.join(2, findings=[MEMLOCK])
    drive.wait(95)
    assert drive.phase == "gathering"
    drive.wait(40)
    assert (drive.result.code, drive.result.slot) == ("preflight_failed", 2)


def test_a_last_call_that_begins_anew_while_nodes_verify_gathers_again() -> None:
    drive = Drive(make_spec(6, least=3, strict=True))
    drive.join(0, addresses=["10.9.0.1", "10.0.0.1"])
    drive.join(1, addresses=["10.9.0.2", "10.0.0.2"])
    drive.gather(2, 3, 4)
    drive.wait(30)
    assert drive.phase == "verifying"
    drive.probe(0)
    drive.probe(1)
    drive.probe(2)
    drive.wait(60)
    assert (drive.phase, sorted(drive.run.attempt.left_out)) == ("gathering", [])
    assert "the run waits again for other nodes: " in drive.reasons[-1]
    drive.wait(0.5)
    assert (drive.phase, drive.run.attempt.enough_since) == ("gathering", 190.0)


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
        assert drive.table_slots() == [0, 1, 2]
        assert list(drive.run.attempt.left_out) == [3]
        words = "; the run continues without slot 3 (host3); all 3 nodes reach"
        assert words in drive.reasons[-1]
    else:
        assert (drive.result.code, drive.result.slot) == ("preflight_failed", 2)
        assert "clock" in drive.result.message


# --- spares: who steps in for whom, and who is released -------------------------------------------


def test_a_run_with_a_spare_takes_the_first_nodes_and_releases_the_rest_at_the_go() -> None:
    drive = Drive(make_spec(2, spares=1))
    assert drive.reasons[-1] == "run 'r' was created for 2 nodes and 1 spare"
    drive.gather()
    assert drive.plan() == [0, 1, 2]
    drive.verify()
    assert drive.table_slots() == [0, 1]
    assert [*node_view(drive.run, drive.now, 2.0).released] == [2]
    assert drive.states() == ["verified", "verified", "verified"]
    drive.arm()
    assert (drive.phase, [*node_view(drive.run, drive.now, 2.0).released]) == ("running", [2])
    assert drive.states() == ["running", "running", "released"]
    assert drive.slot(2).problem == "it is not needed: enough other nodes have joined"
    assert drive.reasons[-1].endswith("; starting torchrun, without slot 2 (host2)")
    drive.end_well(0, 1)
    assert (drive.phase, [*node_view(drive.run, drive.now, 2.0).released]) == ("finished", [2])
    assert drive.result.message.startswith("both nodes ended with exit code 0")


def test_of_a_run_that_ended_before_the_go_every_node_was_a_part() -> None:
    drive = in_phase(Phase.ARMING, 2, spares=1)
    assert [*node_view(drive.run, drive.now, 2.0).released] == [2]
    drive.refuse(0, "bad_table", "the row of slot 1 was not written by its node")
    assert (drive.phase, [*node_view(drive.run, drive.now, 2.0).released]) == ("finished", [])


@pytest.mark.parametrize("by_itself", [True, False])
def test_a_released_node_may_leave_or_end_with_its_worker_run(by_itself: bool) -> None:
    drive = in_phase(Phase.RUNNING, 2, spares=1)
    if by_itself:
        drive.leave(2)
    else:
        drive.news(2, SlotState.RUNNING)
        drive.news(2, SlotState.ENDED)
        drive.wait(20, silent=[2])
    assert (drive.run.stop, drive.states()) == (False, ["running", "running", "left"])
    drive.end_well(0, 1)
    assert drive.result.status == "ok"


def test_what_a_released_node_says_of_a_program_is_not_heard() -> None:
    drive = in_phase(Phase.RUNNING, 2, spares=1)
    with drive.unchanged():
        drive.exit(2, 1)


def test_of_a_split_cluster_the_half_of_slot_0_is_kept_when_it_is_enough() -> None:
    drive = in_phase(Phase.VERIFYING, 4, spares=4)
    for slot in range(8):
        drive.probe(slot, *range(1 - slot % 2, 8, 2))
    assert drive.table_slots() == [0, 2, 4, 6]


def test_a_node_without_a_network_of_the_others_is_replaced_by_a_spare() -> None:
    drive = Drive(make_spec(2, spares=1)).gather(0)
    drive.join(1, addresses=["fd00::2"])
    drive.join(2)
    drive.verify()
    assert drive.table_slots() == [0, 2]


def test_a_node_that_does_not_report_is_replaced_by_a_spare() -> None:
    drive = in_phase(Phase.VERIFYING, 2, spares=1, verify_timeout_seconds=60)
    drive.probe(0)
    drive.probe(2)
    drive.wait(61)
    assert (drive.phase, drive.run.epoch, drive.plan()) == ("verifying", 2, [0, 2])
    drive.verify()
    assert drive.table_slots() == [0, 2]


@pytest.mark.parametrize(
    ("hosts", "table"), [((1, 9, 9), [0, 1]), ((9, 2, 9), [0, 1]), ((9, 9, 3), [0, 2])]
)
def test_of_two_nodes_on_one_machine_the_later_is_replaced_by_a_spare(
    hosts: tuple[int, ...], table: list[int]
) -> None:
    drive = Drive(make_spec(2, spares=1))
    for slot, host in enumerate(hosts):
        drive.join(slot, addresses=[f"10.0.0.{host}"])
    drive.verify()
    assert drive.table_slots() == table


def test_a_spare_that_never_comes_is_not_waited_for_longer_than_the_last_call() -> None:
    drive = Drive(make_spec(2, spares=1, last_call_seconds=30)).gather(0, 1).wait(10)
    assert drive.waits() == "2 of 3 nodes (2 nodes and 1 spare) joined; last call, 20 s left"
    drive.wait(21)
    assert drive.phase == "verifying"
    drive.verify()
    assert drive.table_slots() == [0, 1]


def test_a_spare_whose_worker_run_ended_for_good_is_not_waited_for() -> None:
    drive = Drive(make_spec(2, spares=1, submit_retries=0)).gather(0, 1)
    drive.news(2, SlotState.FAILED, detail="no quota")
    assert drive.phase == "verifying"


def test_a_lost_spare_does_not_touch_the_table() -> None:
    drive = in_phase(Phase.ARMING, 2, spares=1)
    assert drive.run.epoch == 1
    drive.leave(2)
    assert (drive.phase, drive.run.epoch, drive.slot(2).given_up) == ("arming", 1, True)
    assert drive.table_slots() == [0, 1]
    assert drive.reasons[-1].endswith("the run continues without it")
    drive.arm()
    assert drive.phase == "running"


def test_a_spare_stands_in_for_a_node_that_is_lost_while_arming() -> None:
    drive = in_phase(Phase.ARMING, 2, spares=1, submit_retries=0)
    drive.leave(1)
    assert (drive.phase, [*node_view(drive.run, drive.now, 2.0).released]) == ("verifying", [])
    drive.verify().arm()
    assert (drive.table_slots(), drive.states()) == ([0, 2], ["running", "-", "running"])


def test_a_spare_steps_in_for_a_node_that_cannot_start() -> None:
    drive = in_phase(Phase.ARMING, 2, spares=1)
    drive.refuse(1, "contract", "torchrun is not there")
    assert (drive.phase, drive.table_slots()) == ("arming", [0, 2])
    assert [*node_view(drive.run, drive.now, 2.0).released] == [1]
    assert drive.reasons[-1].endswith("torchrun is not there; the run continues without it")
    drive.arm()
    assert drive.states() == ["running", "released", "running"]


def test_a_node_that_could_not_start_does_not_come_back_when_another_cannot_either() -> None:
    drive = in_phase(Phase.ARMING, 2, spares=2)
    drive.refuse(1, "contract", "no")
    drive.refuse(2, "hosts", "no")
    assert drive.table_slots() == [0, 3]


def test_spares_step_in_for_several_nodes_that_do_not_acknowledge() -> None:
    drive = in_phase(Phase.ARMING, 3, spares=2, arm_timeout_seconds=20)
    drive.ack(0)
    drive.wait(21)
    assert (drive.phase, drive.table_slots()) == ("arming", [0, 3, 4])
    assert [*node_view(drive.run, drive.now, 2.0).released] == [1, 2]
    assert drive.reasons[-1].endswith("; the run continues without them")


def test_a_node_that_its_peers_do_not_reach_is_replaced_by_a_spare_on_the_first_network() -> None:
    drive = Drive(make_spec(2, spares=1))
    drive.offer(2)
    for _network in range(2):
        drive.probe(0, 1)
        drive.probe(1)
        drive.probe(2, 1)
    assert drive.table_slots() == [0, 2]
    assert [*node_view(drive.run, drive.now, 2.0).released] == [1]
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
    assert drive.status().slots[1].problem == why
    assert node_view(drive.run, drive.now, 2.0).why_released == {1: why}


def test_a_spare_that_is_not_needed_is_released_without_a_cause() -> None:
    view = node_view(in_phase(Phase.RUNNING, 2, spares=1).run, 100.0, 2.0)
    assert (view.released, view.why_released) == ([2], {})


def test_of_very_many_released_nodes_the_first_causes_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(views, "_MOST_CAUSES", 2)
    drive = Drive(make_spec(4, least=1)).gather(0)
    for slot in (1, 2, 3):
        drive.join(slot, findings=[MEMLOCK])
    drive.verify()
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
    assert drive.table_slots() == [0, 1]
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
        "see what it wrote before: rdzv logs r; "
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
