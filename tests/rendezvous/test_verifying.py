"""Before the go: checks that are judged, network classes that are proven, spares that step in."""

from __future__ import annotations

from typing import Any

import pytest

from rendezvous.run.rounds import run_report
from rendezvous.run.views import node_view, reason, run_status
from rendezvous.wire.errors import ExitCode, Mismatch
from rendezvous.wire.node import Facts, Finding
from rendezvous.wire.reports import ExitReport, LeaveReport
from rendezvous.wire.run import NodeState, Phase, Round, RunReport, SlotState
from rendezvous.wire.verify import PairProbe, ProbePeer, ProbePlan, ProbeReport
from tests.support.driver import Drive, in_phase, make_candidate, make_probe, make_spec

ETH0 = "eth0, 10.0.0.0/24, Ethernet, IPv4"
ETH1 = "eth1, 10.1.0.0/24, Ethernet, IPv4"
MEMLOCK = Finding(
    check="L12",
    level="fail",
    subject="memlock",
    value="64 KiB",
    expected="unlimited",
    cause="RDMA cannot register memory",
    fix="ulimit -l unlimited",
)
OLD_NCCL = Facts(gpus=8, nccl_version="2.19.3")
NEW_NCCL = Facts(gpus=8, nccl_version="2.21.5")


def two_networks(slot: int) -> list[str]:
    """What a node offers that has two interfaces."""
    return [f"10.0.0.{slot + 1}", f"10.1.0.{slot + 1}"]


def with_two_networks(nodes: int, **changes: Any) -> Drive:
    """A run whose nodes have two interfaces each, and all are in."""
    drive = Drive(make_spec(nodes, **changes))
    for slot in range(drive.run.spec.slots):
        drive.join(slot, addresses=two_networks(slot))
    return drive


def plan(drive: Drive) -> ProbePlan:
    """What the nodes are told to probe."""
    found = node_view(drive.run, drive.now, 2.0).plan
    assert found is not None
    return found


def table_slots(drive: Drive) -> list[int]:
    """The slots of the table, in order of their ranks."""
    assert drive.run.table is not None
    return [row.slot for row in drive.run.table.rows]


def released(drive: Drive) -> list[int]:
    """Whom the nodes are told that the table goes without."""
    return node_view(drive.run, drive.now, 2.0).released


# --- rounds ---------------------------------------------------------------------------------------


def test_every_node_is_told_the_addresses_of_one_network_and_nobody_the_tables() -> None:
    drive = with_two_networks(2)
    assert plan(drive) == ProbePlan(
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
    )
    assert node_view(drive.run, drive.now, 2.0).table is None
    drive.verify()
    view = node_view(drive.run, drive.now, 2.0)
    assert (view.phase, view.plan) == (Phase.ARMING, None)


def test_the_table_is_sealed_on_the_network_that_was_proven() -> None:
    drive = with_two_networks(2).verify()
    assert drive.run.table is not None
    assert (drive.run.table.network, drive.run.table.epoch) == (ETH0, 1)
    assert drive.reasons[-1] == f"slot 1 (host1) verified its peers; the table is sealed on {ETH0}"


def test_where_one_direction_fails_the_next_network_is_proven_in_the_next_epoch() -> None:
    drive = with_two_networks(3)
    drive.probe(0)
    drive.probe(1, 2)
    outcome = drive.probe(2)
    assert outcome is not None
    assert outcome.reason == (
        f"slot 2 (host2) verified its peers; {ETH0}: 1 of 6 directed pairs failed; next is {ETH1}"
    )
    assert (drive.phase, drive.run.epoch, drive.states()) == ("verifying", 2, ["joined"] * 3)
    assert plan(drive).network == ETH1
    drive.verify()
    assert drive.run.table is not None
    assert (drive.run.table.network, drive.run.table.epoch) == (ETH1, 2)
    assert [row.address for row in drive.run.table.rows] == ["10.1.0.1", "10.1.0.2", "10.1.0.3"]


def test_a_report_of_the_round_before_counts_for_nothing() -> None:
    drive = with_two_networks(2)
    drive.probe(0, 1)
    drive.probe(1)
    assert drive.run.epoch == 2
    assert drive.report(0, make_probe(1, 0, [1])) is None
    assert drive.run.waiting_for == {0, 1}


def test_a_pair_that_was_not_reported_is_not_proven() -> None:
    drive = in_phase(Phase.VERIFYING, 3)
    drive.report(0, ProbeReport(epoch=1, pairs=[PairProbe(slot=1, outcome="ok")]))
    assert drive.reasons[-1] == "slot 0 (host0) cannot reach slot 2 (host2): error"
    drive.verify()
    assert drive.result.code == "verification_failed"
    assert "slot 0 (host0) does not reach slot 2 (host2)" in drive.result.message
    assert "it was not probed" in drive.result.message


def test_where_no_network_works_the_run_fails_with_the_nearest() -> None:
    drive = with_two_networks(4)
    for slot in range(4):
        drive.probe(slot, *(peer for peer in range(4) if peer != slot))
    for slot in (0, 1, 2):
        drive.probe(slot, 3)
    drive.probe(3)
    assert (drive.result.exit_code, drive.result.code, drive.result.slot) == (
        81,
        "verification_failed",
        3,
    )
    assert f"over {ETH1}" in drive.result.message


def test_nobody_is_blamed_for_a_single_pair() -> None:
    drive = in_phase(Phase.VERIFYING, 3)
    drive.probe(0)
    drive.probe(1, 2)
    drive.probe(2)
    assert (drive.result.slot, drive.result.hostname) == (None, "")
    assert "slot 1 (host1) does not reach slot 2 (host2), which reaches it" in drive.result.message


def test_each_round_has_the_whole_verify_timeout() -> None:
    drive = with_two_networks(2, verify_timeout_seconds=60)
    drive.wait(50)
    drive.probe(0, 1)
    drive.probe(1)
    drive.wait(59)
    assert drive.phase is Phase.VERIFYING
    drive.wait(2)
    assert drive.result.code == "verification_failed"


def test_a_node_that_is_lost_while_verifying_begins_it_all_again() -> None:
    drive = with_two_networks(2)
    drive.probe(0, 1)
    drive.probe(1)
    drive.report(1, LeaveReport())
    assert (drive.phase, drive.run.attempt.rounds[0].network) == ("gathering", ETH0)
    drive.join(1, 2, addresses=two_networks(1))
    assert (drive.run.epoch, drive.run.attempt.rounds, plan(drive).network) == (3, [], ETH0)


def test_without_verify_the_preferred_network_is_taken_unproven() -> None:
    drive = with_two_networks(2, verify=False)
    assert drive.run.table is not None
    assert (drive.phase, drive.run.table.network) == ("arming", ETH0)
    assert drive.run.attempt.rounds == []


def test_the_sentence_says_who_has_not_reported() -> None:
    drive = in_phase(Phase.VERIFYING, 3)
    drive.probe(0)
    assert reason(drive.run, drive.now) == (
        "waiting for slot 1 (host1), slot 2 (host2) to report on their peers, 60 s left"
    )


# --- the report -----------------------------------------------------------------------------------


def test_the_report_tells_every_round_and_of_the_older_ones_what_failed() -> None:
    drive = with_two_networks(2)
    drive.probe(0, 1)
    drive.verify().verify()
    report = run_report(drive.run)
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


def test_of_a_large_run_only_failed_pairs_are_told() -> None:
    drive = Drive(make_spec(130))
    for slot in range(130):
        drive.join(slot)
    drive.verify()
    assert drive.phase is Phase.ARMING
    assert run_report(drive.run).rounds[0].reports == {}


# --- checks ---------------------------------------------------------------------------------------


def test_a_failed_check_of_a_node_ends_the_run_before_anything_is_probed() -> None:
    drive = Drive(make_spec(3)).gather(0, 1)
    drive.join(2, findings=[MEMLOCK])
    assert drive.result.message == (
        "checks before the start failed: slot 2 (host2): memlock 64 KiB, expected unlimited: "
        "RDMA cannot register memory (L12)"
    )
    assert (drive.result.exit_code, drive.result.code, drive.result.slot, drive.result.hint) == (
        ExitCode.PREFLIGHT_FAILED,
        "preflight_failed",
        2,
        "ulimit -l unlimited",
    )
    assert drive.result.message in drive.reasons[-1]


def test_all_failed_checks_are_told_at_once() -> None:
    drive = Drive(make_spec(4))
    for slot in range(4):
        own = [MEMLOCK] if slot in (1, 3) else []
        drive.join(slot, findings=own, facts=OLD_NCCL if slot == 2 else NEW_NCCL)
    for words in ("slot 1 (host1), slot 3 (host3): memlock", "slot 2 (host2)", "2.19.3"):
        assert words in drive.result.message
    assert drive.result.hint.startswith("ulimit -l unlimited; ")


def test_of_very_many_failed_checks_the_first_are_told() -> None:
    drive = Drive(make_spec(60))
    for slot in range(60):
        drive.join(slot, facts=OLD_NCCL if slot < 20 else NEW_NCCL)
    assert "slot 15 (host15) is one of 20 with NCCL 2.19.3" in drive.result.message
    assert drive.result.message.endswith("(X02); and 4 more")


def test_what_a_node_says_of_another_is_about_itself() -> None:
    drive = Drive(make_spec(2)).gather(0)
    drive.join(1, findings=[MEMLOCK.model_copy(update={"slot": 0})])
    assert (drive.result.slot, drive.result.hostname) == (1, "host1")


def test_where_the_nodes_are_split_nobody_is_blamed() -> None:
    drive = Drive(make_spec(2))
    drive.join(0, facts=OLD_NCCL)
    drive.join(1, facts=NEW_NCCL)
    assert (drive.result.code, drive.result.slot) == ("preflight_failed", None)


def test_a_warning_is_kept_and_ends_a_strict_run_only() -> None:
    warning = MEMLOCK.model_copy(update={"level": "warn"})
    drive = Drive(make_spec(2)).gather(0)
    drive.join(1, findings=[warning])
    assert drive.phase is Phase.VERIFYING
    assert warning.model_copy(update={"slot": 1}) in run_report(drive.run).findings
    drive = Drive(make_spec(2, strict=True)).gather(0)
    drive.join(1, findings=[warning])
    assert drive.result.code == "preflight_failed"


def without_the_second_network(*, strict: bool, **changes: Any) -> Drive:
    """Slot 2 of three has no address in the network that the others prefer."""
    drive = Drive(make_spec(3, strict=strict, **changes))
    for slot in range(3):
        preferred = [f"10.9.0.{slot + 1}"] if slot != 2 else []
        drive.join(slot, addresses=[*preferred, f"10.0.0.{slot + 1}"])
    return drive


def test_a_network_that_one_node_lacks_is_not_given_up_in_silence() -> None:
    drive = without_the_second_network(strict=False)
    assert drive.phase is Phase.VERIFYING
    assert [(f.level, f.slot) for f in run_report(drive.run).findings if f.check == "X09"] == [
        ("warn", 2)
    ]
    drive = without_the_second_network(strict=True, skip=["X09"])
    assert drive.phase is Phase.VERIFYING
    drive = without_the_second_network(strict=True)
    assert (drive.result.code, drive.result.slot) == ("preflight_failed", 2)
    assert "slot 2 (host2) has no address of its own in eth0, 10.9.0.0/24" in drive.result.message


def test_a_strict_run_with_a_spare_keeps_the_network_and_leaves_the_node_out() -> None:
    drive = without_the_second_network(strict=True, least=2)
    assert drive.run.network is not None
    assert drive.run.network.words == "eth0, 10.9.0.0/24, Ethernet, IPv4"
    assert [peer.slot for peer in plan(drive).peers] == [0, 1]


def test_a_check_that_is_skipped_fails_nobody() -> None:
    drive = Drive(make_spec(3, skip=["L12", "X02"], strict=True))
    for slot in range(3):
        drive.join(slot, findings=[MEMLOCK], facts=OLD_NCCL if slot == 2 else NEW_NCCL)
    assert drive.phase is Phase.VERIFYING
    levels = {f.check: f.level for f in run_report(drive.run).findings}
    assert (levels["L12"], levels["X02"]) == ("skipped", "skipped")


def test_what_the_probes_measure_may_end_a_strict_run() -> None:
    drive = in_phase(Phase.VERIFYING, 3, strict=True)
    for slot in range(3):
        skew = {0: 0.0, 1: 0.0, 2: 0.0} | ({2: 90.0} if slot != 2 else {0: -90.0, 1: -90.0})
        pairs = [
            PairProbe(slot=peer, outcome="ok", rtt_ms=0.1, skew_seconds=skew[peer])
            for peer in range(3)
            if peer != slot
        ]
        drive.report(slot, ProbeReport(epoch=1, pairs=pairs))
    assert (drive.result.code, drive.result.slot) == ("preflight_failed", 2)
    assert "clock" in drive.result.message


def test_a_run_that_needs_rdma_names_the_node_without() -> None:
    drive = Drive(make_spec(1, require_rdma=True)).gather()
    assert (drive.result.code, drive.result.slot) == ("preflight_failed", 0)


# --- spares ---------------------------------------------------------------------------------------


def test_a_run_with_a_spare_takes_the_first_nodes_and_releases_the_rest_at_the_go() -> None:
    drive = Drive(make_spec(2, spares=1)).gather()
    assert drive.reasons[0] == "run 'r' was created for 2 nodes and 1 spare"
    assert len(plan(drive).peers) == 3
    drive.verify()
    assert (table_slots(drive), released(drive), drive.states()[2]) == ([0, 1], [2], "verified")
    drive.arm()
    assert drive.states() == ["running", "running", "released"]
    assert drive.reasons[-1].endswith("all are: go, without slot 2 (host2)")
    assert drive.slot(2).problem == "it is not needed: enough others are there"
    assert (drive.phase, released(drive)) == ("running", [2])


def test_a_run_that_ended_after_the_go_says_whom_it_went_without() -> None:
    drive = Drive(make_spec(2, spares=1)).gather().verify().arm()
    assert released(drive) == [2]
    for slot in (0, 1):
        drive.exit(slot, 0)
    assert (drive.phase, released(drive)) == ("finished", [2])


def test_of_a_run_that_ended_before_the_go_every_node_was_a_part() -> None:
    drive = Drive(make_spec(2, spares=1)).gather().verify()
    assert released(drive) == [2]
    drive.refuse(0, "bad_table", "the row of slot 1 was not made by its node")
    assert (drive.phase, released(drive)) == ("finished", [])


def test_a_released_node_may_go_in_any_way() -> None:
    for goes in ("leaves", "is silent", "ends with its worker run"):
        drive = in_phase(Phase.RUNNING, 2, spares=1)
        if goes == "leaves":
            drive.report(2, LeaveReport())
        elif goes == "is silent":
            drive.wait(20, silent=[2])
        else:
            drive.news(2, SlotState.RUNNING)
            drive.news(2, SlotState.ENDED)
            drive.wait(20, silent=[2])
        assert (drive.node(2).state, drive.run.stop) == (NodeState.LEFT, False)
        drive.exit(0, 0)
        drive.exit(1, 0)
        assert drive.result.message.startswith("all 2 nodes ended with exit code 0")


def test_what_a_released_node_says_of_a_program_is_not_heard() -> None:
    drive = in_phase(Phase.RUNNING, 2, spares=1)
    assert drive.report(2, ExitReport(epoch=1, exit_code=1)) is None


def test_a_node_that_fails_a_check_is_replaced_by_a_spare() -> None:
    drive = Drive(make_spec(2, spares=1)).gather(0)
    drive.join(1, findings=[MEMLOCK])
    drive.join(2)
    assert drive.reasons[-1].endswith(
        "3 of 3 nodes are in; slot 1 (host1): memlock 64 KiB, expected unlimited: "
        "RDMA cannot register memory; it goes without slot 1 (host1)"
    )
    assert [peer.slot for peer in plan(drive).peers] == [0, 2]
    drive.verify().arm()
    assert (table_slots(drive), drive.states()[1]) == ([0, 2], "released")
    assert drive.slot(1).problem.startswith("slot 1 (host1): memlock 64 KiB")
    assert [f.slot for f in run_report(drive.run).findings if f.check == "L12"] == [1]


def test_the_rank_of_a_spare_closes_up() -> None:
    drive = Drive(make_spec(2, spares=1)).gather(0)
    drive.join(1, findings=[MEMLOCK], requested_rank=1)
    drive.join(2, requested_rank=2)
    drive.verify()
    assert [(row.rank, row.slot) for row in drive.run.table.rows] == [(0, 0), (1, 2)]  # type: ignore[union-attr]


def test_a_node_that_its_peers_do_not_reach_is_replaced_by_a_spare() -> None:
    drive = with_two_networks(2, spares=1)
    for _ in range(2):  # on both networks
        drive.probe(0, 1)
        drive.probe(1)
        drive.probe(2, 1)
    why = (
        f"slot 1 (host1) cannot be reached by the 2 others over {ETH0}: no answer; the other "
        "direction works, so most likely a firewall there drops what comes in"
    )
    assert drive.reasons[-1].endswith(
        f"{why}; it goes without slot 1 (host1); the table is sealed on {ETH0}"
    )
    assert (table_slots(drive), released(drive), drive.run.network) == (
        [0, 2],
        [1],
        drive.run.attempt.classes[0],
    )
    drive.arm()
    assert drive.states()[1] == "released"
    assert run_status(drive.run, drive.now).slots[1].problem == why
    assert node_view(drive.run, drive.now, 2.0).why_released == {1: why}


def test_a_spare_that_is_not_needed_is_released_without_a_cause() -> None:
    view = node_view(in_phase(Phase.RUNNING, 2, spares=1).run, 100.0, 2.0)
    assert (view.released, view.why_released) == ([2], {})


def test_of_very_many_released_nodes_the_first_causes_are_told() -> None:
    drive = Drive(make_spec(400, least=1)).gather(0)
    for slot in range(1, 400):
        address = f"10.0.{slot // 200}.{slot % 200 + 1}"
        drive.join(slot, addresses=[address], findings=[MEMLOCK])
    view = node_view(drive.verify().run, drive.now, 2.0)
    assert (len(view.released), list(view.why_released)) == (399, list(range(1, 257)))


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


# --- splits ---------------------------------------------------------------------------------------


def split(drive: Drive, *halves: set[int]) -> Drive:
    """Nodes of different halves do not reach each other; those in none reach all."""
    for slot in sorted(drive.run.waiting_for):
        own = next((half for half in halves if slot in half), None)
        drive.probe(slot, *(p for half in halves for p in half if own and half is not own))
    return drive


@pytest.mark.parametrize(
    ("spares", "halves", "kept"),
    [
        (2, ({0, 1}, {2, 3}), [0, 1, 4, 5]),
        (2, ({2, 3}, {4, 5}), [0, 1, 2, 3]),
        (4, ({0, 2, 4, 6}, {1, 3, 5, 7}), [0, 2, 4, 6]),
    ],
)
def test_of_a_split_cluster_the_half_of_slot_0_is_kept_when_it_is_enough(
    spares: int, halves: tuple[set[int], set[int]], kept: list[int]
) -> None:
    assert table_slots(split(in_phase(Phase.VERIFYING, 4, spares=spares), *halves)) == kept


def test_of_a_split_mesh_that_is_not_whole_the_half_of_slot_0_is_kept_as_well() -> None:
    even, odd = set(range(0, 200, 2)), set(range(1, 200, 2))
    drive = split(in_phase(Phase.VERIFYING, 100, spares=100), even, odd)
    assert table_slots(drive) == sorted(even)


def test_of_a_split_cluster_without_enough_on_the_side_of_slot_0_nobody_is_blamed() -> None:
    drive = split(in_phase(Phase.VERIFYING, 3, spares=1), {0, 1}, {2, 3})
    assert (drive.result.code, drive.result.slot) == ("verification_failed", None)
    assert drive.result.message.startswith(
        f"the nodes are split 2/2: slots 0-1 and slots 2-3 do not reach each other over {ETH0}"
    )


def test_what_was_measured_counts_also_when_the_network_is_called_otherwise_without_a_node() -> (
    None
):
    """Without slot 2 no interface is called ens3, and the network has another name."""
    drive = Drive(make_spec(2, spares=1))
    for slot, interface in enumerate(("eth0", "eth0", "ens3")):
        offered = make_candidate(f"10.0.0.{slot + 1}", interface)
        drive.join(slot, addresses=[offered.model_copy(update={"mtu": 9000})])
    for slot in range(3):
        outcomes = {peer: "timeout" if 2 in (slot, peer) else "ok" for peer in range(3)}
        pairs = [
            PairProbe(slot=peer, outcome=how, path_mtu=1500 if how == "ok" else None)  # type: ignore[arg-type]
            for peer, how in outcomes.items()
            if peer != slot
        ]
        drive.report(slot, ProbeReport(epoch=1, pairs=pairs))
    assert table_slots(drive) == [0, 1]
    told = [f.cause for f in run_report(drive.run).findings if f.check == "M02"]
    assert told[0] == "all nodes have MTU 9000"
    assert told[1:] == [
        (
            "only packets of up to 1500 bytes pass between slot 0 (host0) and slot 1 (host1), "
            "though the interfaces take 9000"
        )
    ]


def test_of_a_single_bad_pair_one_end_is_left_out_but_never_slot_0() -> None:
    drive = in_phase(Phase.VERIFYING, 3, spares=1)
    drive.probe(0, 1)
    drive.verify()
    assert (table_slots(drive), released(drive)) == ([0, 2, 3], [1])


def test_a_node_without_a_network_of_the_others_is_replaced_by_a_spare() -> None:
    drive = Drive(make_spec(2, spares=1)).gather(0)
    drive.join(1, addresses=["fd00::2"])
    drive.join(2)
    drive.verify()
    assert table_slots(drive) == [0, 2]


@pytest.mark.parametrize(("twins", "kept"), [((1, 2), [0, 1]), ((0, 2), [0, 1]), ((0, 1), [0, 2])])
def test_of_two_nodes_on_one_machine_the_later_is_replaced_by_a_spare(
    twins: tuple[int, int], kept: list[int]
) -> None:
    drive = Drive(make_spec(2, spares=1))
    for slot in range(3):
        drive.join(slot, addresses=["10.0.0.9"] if slot in twins else None)
    drive.verify()
    assert table_slots(drive) == kept


def test_a_clock_that_is_off_costs_a_strict_run_the_node_when_there_is_a_spare() -> None:
    drive = in_phase(Phase.VERIFYING, 3, spares=1, strict=True)
    for slot in range(4):
        pairs = [
            PairProbe(
                slot=peer,
                outcome="ok",
                skew_seconds=90.0 if peer == 3 else -90.0 if slot == 3 else 0.0,
            )
            for peer in range(4)
            if peer != slot
        ]
        drive.report(slot, ProbeReport(epoch=1, pairs=pairs))
    assert (table_slots(drive), released(drive)) == ([0, 1, 2], [3])
    assert "; it goes without slot 3 (host3); the table is sealed" in drive.reasons[-1]


def test_a_node_that_does_not_report_is_replaced_by_a_spare() -> None:
    drive = in_phase(Phase.VERIFYING, 2, spares=1, verify_timeout_seconds=60)
    drive.probe(0)
    drive.probe(2)
    drive.wait(61)
    assert (drive.phase, drive.run.epoch) == ("verifying", 2)
    assert [peer.slot for peer in plan(drive).peers] == [0, 2]
    drive.verify()
    assert table_slots(drive) == [0, 2]


def test_more_sick_nodes_than_spares_end_the_run_with_all_named() -> None:
    drive = Drive(make_spec(2, spares=1)).gather(0)
    drive.join(1, findings=[MEMLOCK])
    drive.join(2, findings=[MEMLOCK])
    assert "slot 1 (host1)" in drive.result.message
    assert "slot 2 (host2)" in drive.result.message


def test_slot_0_has_no_spare() -> None:
    drive = Drive(make_spec(2, spares=1))
    drive.join(0, findings=[MEMLOCK])
    drive.join(1)
    drive.join(2)
    assert (drive.result.code, drive.result.slot) == ("preflight_failed", 0)


def test_a_spare_that_never_comes_is_not_waited_for_longer_than_the_last_call() -> None:
    drive = Drive(make_spec(2, spares=1, last_call_seconds=30)).gather(0, 1)
    assert reason(drive.run, drive.now) == "2 of 2 nodes and 1 spare joined; last call, 30 s left"
    drive.wait(31)
    assert drive.phase is Phase.VERIFYING
    drive.verify()
    assert table_slots(drive) == [0, 1]


def test_a_sick_spare_is_not_counted_while_a_good_node_may_still_come() -> None:
    drive = Drive(make_spec(2, spares=1, last_call_seconds=30, join_timeout_seconds=100))
    drive.news(1, SlotState.QUEUED)
    drive.gather(0)
    drive.join(2, findings=[MEMLOCK])
    drive.wait(200)
    assert drive.phase is Phase.GATHERING
    assert "last call is over: 2 nodes are in; the others are waited for once more" in (
        " ".join(drive.reasons)
    )
    drive.gather(1).verify()
    assert (table_slots(drive), released(drive)) == ([0, 1], [2])


def test_nodes_that_never_come_in_place_of_a_sick_one_are_waited_for_to_the_join_timeout() -> None:
    spec = make_spec(2, spares=1, last_call_seconds=30, join_timeout_seconds=100)
    drive = Drive(spec).gather(0)
    drive.join(2, findings=[MEMLOCK])
    drive.wait(95)
    assert drive.phase is Phase.GATHERING
    drive.wait(40)
    assert (drive.result.code, drive.result.slot) == ("preflight_failed", 2)


def test_a_spare_whose_worker_run_ended_for_good_is_not_waited_for() -> None:
    drive = Drive(make_spec(2, spares=1, submit_retries=0)).gather(0, 1)
    drive.news(2, SlotState.FAILED, detail="no quota")
    assert drive.phase is Phase.VERIFYING


def test_a_lost_spare_does_not_touch_the_table() -> None:
    drive = in_phase(Phase.ARMING, 2, spares=1)
    before = drive.run.digest
    drive.report(2, LeaveReport())
    assert (drive.phase, drive.run.digest, drive.slot(2).given_up) == ("arming", before, True)
    assert drive.reasons[-1].endswith("the run goes without it")
    drive.arm()
    assert drive.phase is Phase.RUNNING


def test_a_spare_stands_in_for_a_node_that_is_lost_while_arming() -> None:
    drive = in_phase(Phase.ARMING, 2, spares=1, submit_retries=0)
    drive.report(1, LeaveReport())
    assert (drive.phase, released(drive)) == ("verifying", [])
    drive.verify().arm()
    assert table_slots(drive) == [0, 2]
    assert drive.states() == ["running", "-", "running"]


def test_a_spare_steps_in_for_a_node_that_cannot_start() -> None:
    drive = in_phase(Phase.ARMING, 2, spares=1)
    drive.refuse(1, "contract", "'torchrun' is not on this node's PATH")
    assert drive.reasons[-1].endswith(
        "'torchrun' is not on this node's PATH; a new table goes without it"
    )
    assert (drive.phase, table_slots(drive), released(drive)) == (Phase.ARMING, [0, 2], [1])
    drive.arm()
    assert drive.states() == ["running", "released", "running"]


def test_a_spare_steps_in_for_a_node_that_does_not_acknowledge() -> None:
    drive = in_phase(Phase.ARMING, 2, spares=1, arm_timeout_seconds=20)
    drive.ack(0)
    drive.wait(21)
    assert (drive.phase, table_slots(drive), released(drive)) == (Phase.ARMING, [0, 2], [1])


def test_without_a_spare_a_node_that_cannot_start_ends_the_run() -> None:
    drive = in_phase(Phase.ARMING, 2)
    drive.refuse(1, "contract", "'torchrun' is not on this node's PATH")
    assert (drive.result.code, drive.result.slot) == ("arming_failed", 1)


def test_with_min_max_a_sick_node_is_left_out_as_well() -> None:
    drive = Drive(make_spec(3, least=2)).gather(0, 1)
    drive.join(2, findings=[MEMLOCK])
    drive.verify().arm()
    assert (table_slots(drive), drive.states()[2]) == ([0, 1], "released")


def test_the_board_knows_of_the_spares() -> None:
    status = run_status(Drive(make_spec(2, spares=1)).gather(0).run, 100.0)
    assert (status.min_nodes, status.max_nodes, status.spares, len(status.slots)) == (2, 2, 1, 3)


def test_a_rank_beyond_the_spares_is_refused() -> None:
    drive = Drive(make_spec(2, spares=1)).gather(0)
    with pytest.raises(Mismatch, match=r"rank 3 in a run of 2 nodes and 1 spare"):
        drive.join(1, requested_rank=3)


def test_a_node_that_does_not_listen_is_refused_where_addresses_are_to_be_proven() -> None:
    drive = Drive(make_spec(2)).gather(0)
    with pytest.raises(Mismatch, match=r"slot 1 \(host1\) does not listen for its peers' probes"):
        drive.join(1, probe_port=None)


@pytest.mark.parametrize("changes", [{"nodes": 2, "verify": False}, {"nodes": 1}])
def test_a_node_need_not_listen_where_nobody_probes_it(changes: dict[str, Any]) -> None:
    drive = Drive(make_spec(**changes))
    for slot in range(changes["nodes"]):
        drive.join(slot, probe_port=None)
    view = node_view(drive.run, drive.now, 2.0)
    assert view.plan is None or view.plan.peers == []
    drive.verify()
    assert drive.phase is Phase.ARMING


# --- many networks --------------------------------------------------------------------------------


def test_the_time_out_of_verifying_is_for_all_networks_together() -> None:
    drive = Drive(make_spec(2, verify_timeout_seconds=20))
    for slot in range(2):
        drive.join(slot, addresses=[f"10.{net}.0.{slot + 1}" for net in range(4)])
    for number in range(2):
        if number:
            assert "(eth1, 10.1.0.0/24, Ethernet, IPv4: network 2 of 4)" in reason(
                drive.run, drive.now
            )
        drive.wait(12)
        drive.probe(0, 1)
        drive.probe(1, 0)
    assert drive.result.code == "verification_failed"
    assert "over eth0, 10.0.0.0/24" in drive.result.message
    assert len(run_report(drive.run).rounds) == 2
