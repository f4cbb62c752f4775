"""What is not the same on all nodes: the odd one out is named, and of two halves neither is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rendezvous.proof.compare import compare
from rendezvous.proof.findings import finding_text
from rendezvous.proof.rdma import RdmaExpectation, rdma_of
from rendezvous.wire.node import Facts, Finding, JoinRequest, RdmaPort
from tests.support.driver import make_join, make_spec, sha

MANY = 128
ODD = 77


def infiniband(number: int = 0, slot: int = 0, **changes: Any) -> RdmaPort:
    values: dict[str, Any] = {
        "device": f"mlx5_ib{number}",
        "link_layer": "InfiniBand",
        "hca_type": "MT4126",
        "state": "ACTIVE",
        "phys_state": "LinkUp",
        "rate_gbps": 400.0,
        "pkeys": [0x801D, 0x7FFF],
        "subnet_prefix": "fe80:0000:0000:0000",
        "firmware": "28.39.1002",
        "node_guid": f"0015:5dff:{slot:04x}:{number:04x}",
    }
    return RdmaPort(**(values | changes))


def roce(number: int = 0, slot: int = 0, **changes: Any) -> RdmaPort:
    values: dict[str, Any] = {
        "device": f"mlx5_{number}",
        "link_layer": "Ethernet",
        "hca_type": "MT4129",
        "pkeys": [0xFFFF],
        "subnet_prefix": "",
        "gid_index": 3,
        "gid_type": "RoCE v2",
        "mtu": 4220,
    }
    return infiniband(number, slot, **(values | changes))


def efa(number: int = 0, slot: int = 0) -> RdmaPort:
    return RdmaPort(device=f"rdmap{number}s0", link_layer="Unknown", state="ACTIVE", rate_gbps=100)


def facts(slot: int, ports: Callable[..., RdmaPort] = infiniband, **changes: Any) -> Facts:
    """Of a sound machine with eight GPUs and eight ports."""
    values: dict[str, Any] = {
        "rdzv_version": "0.1.0",
        "python_version": "3.12.4",
        "torch_version": "2.7.1+cu126",
        "cuda_version": "12.6",
        "nccl_version": "2.26.2",
        "driver_version": "570.86.15",
        "gpus": 8,
        "gpu_models": ["NVIDIA H100 80GB HBM3"] * 8,
        "gpu_uuids": [f"GPU-{slot}-{n}" for n in range(8)],
        "boot_id": f"boot-{slot}",
        "script_digest": sha("train.py"),
        "rdma": [ports(n, slot) for n in range(8)],
    }
    return Facts(**(values | changes))


def cluster(
    odd: dict[int, Facts] | None = None, size: int = MANY, ports: Any = infiniband
) -> list[JoinRequest]:
    """So many sound nodes, and those that are not."""
    odd = odd or {}
    return [
        make_join(
            slot,
            hostname=f"h{slot}",
            addresses=[f"10.0.{slot // 200}.{slot % 200 + 1}"],
            facts=odd.get(slot) or facts(slot, ports),
        )
        for slot in range(size)
    ]


def wrong(joins: list[JoinRequest], **spec: Any) -> list[Finding]:
    """What is found that is not ok."""
    found = compare(joins, make_spec(len(joins), **spec))
    assert all(not f.fix for f in found if f.level == "ok")
    return [f for f in found if f.level != "ok"]


def said(joins: list[JoinRequest], **spec: Any) -> list[tuple[str, str, int | None, str]]:
    return [(f.check, f.level, f.slot, f.cause) for f in wrong(joins, **spec)]


def with_port(slot: int, number: int, ports: Any = infiniband, **changes: Any) -> Facts:
    """A node of which one port is different."""
    all_ports = [ports(n, slot, **(changes if n == number else {})) for n in range(8)]
    return facts(slot, rdma=all_ports)


# --- sound runs -----------------------------------------------------------------------------------


def test_of_a_sound_cluster_every_property_is_told_once() -> None:
    found = compare(cluster(), make_spec(MANY))
    assert {f.level for f in found} == {"ok"}
    assert [(f.check, f.cause) for f in found] == [
        ("X02", "all nodes have NCCL 2.26.2"),
        ("X02", "all nodes have torch 2.7.1+cu126"),
        ("X02", "all nodes have CUDA 12.6"),
        ("X02", "all nodes have Python 3.12.4"),
        ("X02", "all nodes have rdzv 0.1.0"),
        ("X02", f"all nodes have entry script {sha('train.py')[:12]}"),
        ("X03", "all nodes have GPU count 8"),
        ("X03", "all nodes have GPU model NVIDIA H100 80GB HBM3"),
        ("X03", "all nodes have NVIDIA driver 570.86.15"),
        ("X04", "all nodes have RDMA ports 8 x 400 Gb/s InfiniBand"),
        ("X04", "all nodes have RDMA adapter type MT4126"),
        ("X04", "all nodes have RDMA firmware 28.39.1002"),
        ("X05", "all nodes have partition key (full member) 0x801d"),
        ("X05", "all nodes have InfiniBand subnet prefix fe80:0000:0000:0000"),
    ]


def test_of_nodes_that_know_nothing_nothing_is_said() -> None:
    assert compare([make_join(slot) for slot in range(3)], make_spec(3)) == []


def test_a_single_node_is_compared_with_nobody() -> None:
    assert wrong(cluster(size=1)) == []


def test_nodes_that_do_not_know_are_left_out() -> None:
    joins = cluster({1: facts(1, nccl_version="", torch_version="")}, 3)
    assert wrong(joins) == []
    assert "2 nodes have NCCL 2.26.2" in [f.cause for f in compare(joins, make_spec(3))]


# --- one odd value in 128 nodes -------------------------------------------------------------------

OTHERS = "; the 127 others have"


@pytest.mark.parametrize(
    ("odd", "check", "level", "sentence"),
    [
        ({"nccl_version": "2.19.3"}, "X02", "fail", f"NCCL 2.19.3{OTHERS} 2.26.2"),
        ({"torch_version": "2.6.0"}, "X02", "fail", f"torch 2.6.0{OTHERS} 2.7.1+cu126"),
        ({"torch_version": "2.7.0+cu126"}, "X02", "warn", f"torch 2.7.0+cu126{OTHERS} 2.7.1+cu126"),
        ({"cuda_version": "12.4"}, "X02", "warn", f"CUDA 12.4{OTHERS} 12.6"),
        ({"python_version": "3.11.9"}, "X02", "warn", f"Python 3.11.9{OTHERS} 3.12.4"),
        ({"rdzv_version": "0.0.9"}, "X02", "warn", f"rdzv 0.0.9{OTHERS} 0.1.0"),
        (
            {"script_digest": sha("old")},
            "X02",
            "warn",
            f"entry script {sha('old')[:12]}{OTHERS} {sha('train.py')[:12]}",
        ),
        ({"gpus": 7}, "X03", "warn", f"GPU count 7{OTHERS} 8"),
        (
            {"gpu_models": ["NVIDIA A100"] * 8},
            "X03",
            "warn",
            f"GPU model NVIDIA A100{OTHERS} NVIDIA H100 80GB HBM3",
        ),
        ({"driver_version": "550.1"}, "X03", "warn", f"NVIDIA driver 550.1{OTHERS} 570.86.15"),
        ({"rdma": []}, "X04", "fail", f"RDMA ports none{OTHERS} 8 x 400 Gb/s InfiniBand"),
    ],
)
def test_the_odd_one_of_128_nodes_is_named(
    odd: dict[str, Any], check: str, level: str, sentence: str
) -> None:
    assert said(cluster({ODD: facts(ODD, **odd)})) == [
        (check, level, ODD, f"slot 77 (h77) is alone with {sentence}")
    ]


EIGHT = "8 x 400 Gb/s InfiniBand"


@pytest.mark.parametrize(
    ("changes", "check", "level", "sentence"),
    [
        (
            {"rate_gbps": 200.0},
            "X04",
            "fail",
            f"RDMA ports 7 x 400 Gb/s InfiniBand, 1 x 200 Gb/s InfiniBand{OTHERS} {EIGHT}",
        ),
        (
            {"state": "DOWN", "problem": "it is DOWN: nothing answers at the other end"},
            "X04",
            "fail",
            (
                f"RDMA ports 7 x 400 Gb/s InfiniBand{OTHERS} {EIGHT} "
                "(mlx5_ib6:1: it is DOWN: nothing answers at the other end)"
            ),
        ),
        (
            {"link_layer": "Ethernet"},
            "X04",
            "fail",
            f"RDMA ports 7 x 400 Gb/s InfiniBand, 1 x 400 Gb/s RoCE{OTHERS} {EIGHT}",
        ),
        ({"hca_type": "MT1"}, "X04", "warn", f"RDMA adapter type MT1, MT4126{OTHERS} MT4126"),
        (
            {"firmware": "28.1"},
            "X04",
            "warn",
            f"RDMA firmware 28.1, 28.39.1002{OTHERS} 28.39.1002",
        ),
        (
            {"pkeys": [0x7FFF]},
            "X05",
            "fail",
            f"partition key (full member) none that all its ports have{OTHERS} 0x801d",
        ),
        (
            {"subnet_prefix": "fe80:0000:0000:0001"},
            "X05",
            "warn",
            (
                "InfiniBand subnet prefix fe80:0000:0000:0000, fe80:0000:0000:0001"
                f"{OTHERS} fe80:0000:0000:0000"
            ),
        ),
    ],
)
def test_an_odd_infiniband_port_is_named_with_its_node(
    changes: dict[str, Any], check: str, level: str, sentence: str
) -> None:
    assert said(cluster({ODD: with_port(ODD, 6, **changes)})) == [
        (check, level, ODD, f"slot 77 (h77) is alone with {sentence}")
    ]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"gid_index": 5}, f"RoCE GID 3 (RoCE v2), 5 (RoCE v2){OTHERS} 3 (RoCE v2)"),
        ({"mtu": 1500}, f"MTU of the RoCE ports 1500, 4220{OTHERS} 4220"),
    ],
)
def test_an_odd_roce_port_is_named_with_its_node(changes: dict[str, Any], sentence: str) -> None:
    odd = {ODD: with_port(ODD, 6, roce, **changes)}
    assert said(cluster(odd, ports=roce)) == [
        ("X06", "warn", ODD, f"slot 77 (h77) is alone with {sentence}")
    ]


def test_roce_ports_whose_gid_is_not_known_are_not_compared() -> None:
    odd = {1: facts(1, rdma=[roce(n, 1, gid_index=None, gid_type="") for n in range(8)])}
    assert wrong(cluster(odd, 3, ports=roce)) == []


def test_what_mends_it_is_said() -> None:
    [finding] = wrong(cluster({9: facts(9, nccl_version="2.19.3")}, 16))
    assert finding == Finding(
        check="X02",
        level="fail",
        slot=9,
        subject="NCCL",
        value="2.19.3",
        expected="2.26.2",
        cause="slot 9 (h9) is alone with NCCL 2.19.3; the 15 others have 2.26.2",
        fix="NCCL refuses a peer of another version: use one image, or one environment, on all "
        "nodes",
    )


# --- several odd ones -----------------------------------------------------------------------------


def test_several_nodes_with_the_same_odd_value_are_all_named() -> None:
    odd = {slot: facts(slot, driver_version="1") for slot in (2, 5)}
    assert [cause for *_, cause in said(cluster(odd, 6))] == [
        "slot 2 (h2) is one of 2 with NVIDIA driver 1; the 4 others have 570.86.15",
        "slot 5 (h5) is one of 2 with NVIDIA driver 1; the 4 others have 570.86.15",
    ]


def test_several_odd_values_are_all_named() -> None:
    odd = {2: facts(2, driver_version="1"), 5: facts(5, driver_version="2")}
    assert [cause for *_, cause in said(cluster(odd, 6))] == [
        "slot 2 (h2) is alone with NVIDIA driver 1; 4 others have 570.86.15",
        "slot 5 (h5) is alone with NVIDIA driver 2; 4 others have 570.86.15",
    ]


def test_of_three_nodes_two_are_the_majority() -> None:
    odd = {0: facts(0, nccl_version="2.19.3")}
    assert said(cluster(odd, 3)) == [
        ("X02", "fail", 0, "slot 0 (h0) is alone with NCCL 2.19.3; the 2 others have 2.26.2")
    ]


def test_a_cluster_in_two_halves_has_no_odd_one() -> None:
    odd = {slot: facts(slot, nccl_version="2.19.3") for slot in range(64, 128)}
    assert said(cluster(odd)) == [
        (
            "X02",
            "fail",
            None,
            "the nodes are split 64/64 over NCCL: 2.26.2 on slots 0-63, 2.19.3 on slots 64-127",
        )
    ]


def test_of_two_nodes_that_differ_neither_is_blamed() -> None:
    assert said(cluster({1: facts(1, nccl_version="2.19.3")}, 2)) == [
        (
            "X02",
            "fail",
            None,
            "the nodes are split 1/1 over NCCL: 2.26.2 on slot 0 (h0), 2.19.3 on slot 1 (h1)",
        )
    ]


def test_a_cluster_in_many_parts_is_told_in_few_words() -> None:
    odd = {slot: facts(slot, driver_version=f"{slot}") for slot in range(MANY)}
    [(_, _, slot, cause)] = said(cluster(odd))
    assert slot is None
    assert cause == (
        "the nodes are split 1/1/1/1/1/... over NVIDIA driver: 0 on slot 0 (h0), 1 on slot 1 (h1), "
        "2 on slot 2 (h2), 3 on slot 3 (h3) and 124 more"
    )


def test_names_and_values_of_any_length_fit_the_wire() -> None:
    joins = [
        make_join(s, hostname="h" * 253, addresses=[f"10.0.0.{s}"], facts=Facts(nccl_version=v))
        for s, v in enumerate(["a" * 253, "b" * 253, "b" * 253], start=1)
    ]
    assert {len(f.cause) for f in wrong(joins) if f.subject == "NCCL"} == {600}


# --- the same thing twice -------------------------------------------------------------------------


def test_two_nodes_of_one_name_are_told() -> None:
    joins = cluster(size=4)
    joins[3] = joins[3].model_copy(update={"hostname": "H1"})
    assert said(joins) == [("X01", "warn", 3, "slot 1 (h1), slot 3 (H1) have the same hostname h1")]


def test_many_nodes_of_one_name_are_nobodys_fault() -> None:
    joins = [join.model_copy(update={"hostname": "box"}) for join in cluster(size=4)]
    assert said(joins) == [("X01", "warn", None, "slots 0-3 have the same hostname box")]


def test_two_nodes_that_use_the_same_gpus_are_named() -> None:
    uuids = [f"GPU-1-{n}" for n in range(8)]
    assert said(cluster({3: facts(3, gpu_uuids=uuids, boot_id="boot-1")}, 4)) == [
        (
            "X01",
            "fail",
            3,
            "slot 1 (h1), slot 3 (h3) have the same GPU GPU-1-0, GPU-1-1 and 6 more",
        )
    ]


def test_on_one_machine_alone_the_same_gpus_may_be_meant() -> None:
    odd = {slot: facts(slot, gpu_uuids=["GPU-0"], boot_id="boot") for slot in range(2)}
    assert [f.level for f in wrong(cluster(odd, 2))] == ["warn"]


def test_nodes_on_loopback_are_on_one_machine_on_purpose() -> None:
    joins = [
        make_join(slot, hostname="box", addresses=[f"127.0.0.{slot + 1}"]) for slot in range(3)
    ]
    assert compare(joins, make_spec(3)) == []


def test_two_adapters_with_one_guid_are_named() -> None:
    odd = {3: with_port(3, 0, node_guid="0015:5dff:0001:0000")}
    assert said(cluster(odd, 4)) == [
        (
            "X01",
            "fail",
            3,
            "slot 1 (h1), slot 3 (h3) have the same node GUID 0015:5dff:0001:0000",
        )
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"boot_id": "boot-1", "rdma": [infiniband(n, 1) for n in range(8)]},
        {"rdma": [infiniband(n, 3, node_guid="0000:0000:0000:0000") for n in range(8)]},
    ],
)
def test_containers_of_one_machine_see_the_same_adapters_and_no_guid_is_none(
    changes: dict[str, Any],
) -> None:
    zero = [infiniband(n, 2, node_guid="0000:0000:0000:0000") for n in range(8)]
    assert wrong(cluster({2: facts(2, rdma=zero), 3: facts(3, **changes)}, 4)) == []


# --- what the person asked for --------------------------------------------------------------------


def test_a_check_that_is_left_out_is_skipped() -> None:
    [finding] = [
        f
        for f in compare(cluster({1: facts(1, gpus=7)}, 3), make_spec(3, skip=["X03"]))
        if f.subject == "GPU count"
    ]
    assert (finding.level, finding.slot) == ("skipped", 1)


def test_every_node_without_rdma_is_named_where_it_is_required() -> None:
    down = [infiniband(n, 1, state="DOWN", problem="it is DOWN") for n in range(4)]
    odd = {1: facts(1, rdma=down), 2: facts(2, rdma=[])}
    assert said(cluster(odd, 5), require_rdma=True) == [
        (
            "X04",
            "fail",
            1,
            (
                "slot 1 (h1) has no usable RDMA port (mlx5_ib0:1, mlx5_ib1:1 and 2 more: it is "
                "DOWN), and --require-rdma asks for one on every node"
            ),
        ),
        (
            "X04",
            "fail",
            2,
            "slot 2 (h2) has no usable RDMA port, and --require-rdma asks for one on every node",
        ),
    ]


def test_without_rdma_it_is_said_where_to_look() -> None:
    assert wrong(cluster(size=3, ports=efa), require_rdma=True) == []
    [finding] = wrong(cluster({1: facts(1, rdma=[])}, 3), require_rdma=True)
    assert finding.fix.startswith("see rdzv doctor there: is /dev/infiniband given")


def test_what_is_wrong_on_every_node_is_not_what_makes_the_odd_one() -> None:
    half = {s: roce(0, s, device="mlx5_an0", problem="no IPv4 RoCE v2 GID") for s in range(4)}
    down = infiniband(0, 1, problem="it is DOWN")
    odd = {s: facts(s, rdma=[half[s], down if s == 1 else infiniband(0, s)]) for s in range(4)}
    assert said(cluster(odd, 4)) == [
        (
            "X04",
            "fail",
            1,
            (
                "slot 1 (h1) is alone with RDMA ports none; the 3 others have 1 x 400 Gb/s "
                "InfiniBand (mlx5_ib0:1: it is DOWN)"
            ),
        )
    ]


def test_a_program_without_gpus_does_without_rdma() -> None:
    odd = {s: facts(s, gpus=0, rdma=[infiniband(0, s)] if s else []) for s in range(3)}
    assert [f.level for f in wrong(cluster(odd, 3))] == ["warn"]
    assert [f.level for f in wrong(cluster(odd, 3), require_rdma=True)] == ["fail"]


def test_partition_keys_that_no_two_nodes_share() -> None:
    odd = {s: facts(s, rdma=[infiniband(0, s, pkeys=[0x8001 + s])]) for s in range(4)}
    assert [cause for *_, cause in said(cluster(odd, 4))] == [
        (
            "the nodes are split 1/1/1/1 over partition key (full member): 0x8001 on slot 0 (h0), "
            "0x8002 on slot 1 (h1), 0x8003 on slot 2 (h2), 0x8004 on slot 3 (h3)"
        )
    ]


def test_nodes_that_are_nowhere_a_full_member_have_said_so_themselves() -> None:
    odd = {s: facts(s, rdma=[infiniband(0, s, pkeys=[0x7FFF])]) for s in range(4)}
    assert wrong(cluster(odd, 4)) == []


# --- what NCCL is to use --------------------------------------------------------------------------


def test_eight_equal_ports_on_every_node_are_infiniband_without_a_list() -> None:
    assert rdma_of(cluster()) == RdmaExpectation("IB")


def test_the_front_end_adapter_is_kept_out() -> None:
    front = [roce(8, s, hca_type="MT4125", rate_gbps=100.0) for s in range(3)]
    odd = {s: facts(s, rdma=[*(roce(n, s) for n in range(8)), front[s]]) for s in range(3)}
    names = [f"mlx5_{n}:1" for n in range(8)]
    assert rdma_of(cluster(odd, 3)) == RdmaExpectation(
        "IB",
        {0: names, 1: names, 2: names},
    )


def test_an_active_port_that_does_not_work_is_kept_out_too() -> None:
    """As the Ethernet half of an accelerated network: NCCL takes whatever is ACTIVE."""
    half = [roce(0, s, device="mlx5_an0", problem="no IPv4 RoCE v2 GID") for s in range(2)]
    odd = {s: facts(s, rdma=[half[s], infiniband(0, s)]) for s in range(2)}
    assert rdma_of(cluster(odd, 2)) == RdmaExpectation(
        "IB",
        {0: ["mlx5_ib0:1"], 1: ["mlx5_ib0:1"]},
    )


def test_a_port_of_half_the_rate_is_not_hidden() -> None:
    assert rdma_of(cluster({1: with_port(1, 6, rate_gbps=200.0)}, 3)) == RdmaExpectation("IB")


@pytest.mark.parametrize(
    ("odd", "expected"),
    [
        ({1: {"rdma": []}}, RdmaExpectation("")),
        (
            {1: {"rdma": [infiniband(0, 1)]}},
            RdmaExpectation(""),
        ),
        (
            {0: {"rdma": []}, 1: {"rdma": []}, 2: {"rdma": []}},
            RdmaExpectation("Socket"),
        ),
        (
            {s: {"rdma": [infiniband(0, s, problem="no uverbs node")]} for s in range(3)},
            RdmaExpectation("Socket"),
        ),
        (
            {s: {"rdma": [efa(n) for n in range(4)]} for s in range(3)},
            RdmaExpectation("Libfabric"),
        ),
        (
            {s: {"rdma": [efa(n) for n in range(4 - s // 2)]} for s in range(3)},
            RdmaExpectation(""),
        ),
    ],
)
def test_what_nccl_should_say_it_uses(
    odd: dict[int, dict[str, Any]], expected: RdmaExpectation
) -> None:
    assert rdma_of(cluster({s: facts(s, **changes) for s, changes in odd.items()}, 3)) == expected


def test_efa_devices_are_called_so() -> None:
    odd = {s: facts(s, rdma=[efa(0), efa(1)]) for s in range(2)}
    assert "all nodes have RDMA ports 2 x 100 Gb/s EFA" in [
        f.cause for f in compare(cluster(odd, 2), make_spec(2))
    ]


# --- sentences ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {
                "slot": 1,
                "subject": "/dev/shm",
                "value": "64 MiB",
                "expected": "at least 1 GiB",
                "cause": "NCCL needs it",
            },
            "slot 1 (h1): /dev/shm 64 MiB, expected at least 1 GiB: NCCL needs it",
        ),
        ({"slot": 7, "cause": "the clock is not set"}, "slot 7: the clock is not set"),
        ({"subject": "NCCL_NET", "value": "Socket"}, "NCCL_NET Socket"),
    ],
)
def test_a_nodes_own_finding_is_told_with_its_values(values: dict[str, Any], sentence: str) -> None:
    assert finding_text(Finding(check="L14", level="warn", **values), {1: "h1"}) == sentence


def test_a_finding_over_the_table_names_its_node_itself() -> None:
    finding = Finding(check="X02", level="fail", slot=1, value="1", cause="slot 1 (h1) is alone")
    assert finding_text(finding, {1: "h1"}) == "slot 1 (h1) is alone"


@pytest.mark.parametrize("check", ["L99", "X99", "D01"])
def test_a_finding_of_a_check_that_is_not_known_here_is_told_with_all_that_it_says(
    check: str,
) -> None:
    finding = Finding(check=check, level="fail", slot=1, value="1", cause="it is alone")
    assert finding_text(finding, {1: "h1"}) == "slot 1 (h1): 1: it is alone"


# --- what is worth a warning, and no more ---------------------------------------------------------


def levels(joins: list[JoinRequest]) -> dict[str, set[str]]:
    """By check, how grave what was found is."""
    found: dict[str, set[str]] = {}
    for finding in compare(joins, make_spec(len(joins))):
        found.setdefault(finding.check, set()).add(finding.level)
    return {check: own - {"ok"} for check, own in found.items() if own != {"ok"}}


def test_fewer_gpus_than_elsewhere_fail_only_a_node_that_was_to_use_them_all() -> None:
    joins = cluster({1: facts(1, gpus=4)}, 3)
    assert levels(joins) == {"X03": {"warn"}}
    joins = [join.model_copy(update={"nproc_per_node": 8}) for join in joins]
    assert levels(joins) == {"X03": {"fail"}}


def test_a_head_node_without_gpus_or_rdma_does_not_fail_the_others() -> None:
    head = facts(0, gpus=0, gpu_models=[], gpu_uuids=[], driver_version="", rdma=[])
    assert levels(cluster({0: head}, 3)) == {"X03": {"warn"}}


def test_a_port_more_for_storage_is_worth_a_warning() -> None:
    more = facts(1, rdma=[*facts(1).rdma, roce(9, 1, rate_gbps=100.0, firmware="28.39.1002")])
    assert levels(cluster({1: more}, 3))["X04"] == {"warn"}


def storage(slot: int, **changes: Any) -> RdmaPort:
    """A port of the rails' chip, at half their rate."""
    return infiniband(9, slot, rate_gbps=200.0, **changes)


def test_ports_of_the_rails_chip_at_another_rate_are_no_rails() -> None:
    own = {slot: facts(slot, rdma=[*facts(slot).rdma, storage(slot)]) for slot in range(3)}
    names = [f"mlx5_ib{number}:1" for number in range(8)]
    assert levels(cluster(own, 3)) == {}
    assert rdma_of(cluster(own, 3)).hcas == {0: names, 1: names, 2: names}


def test_ports_that_the_user_leaves_out_are_not_compared() -> None:
    odd = storage(ODD, chosen=False, pkeys=[0x7FFF], firmware="1", subnet_prefix="")
    more = facts(ODD, rdma=[*facts(ODD).rdma, odd])
    assert wrong(cluster({ODD: more})) == []
    assert rdma_of(cluster({ODD: more})) == RdmaExpectation("IB")


def test_rails_that_one_node_leaves_out_are_missing_there() -> None:
    assert said(cluster({ODD: with_port(ODD, 6, chosen=False)})) == [
        (
            "X04",
            "fail",
            ODD,
            (
                "slot 77 (h77) is alone with RDMA ports 7 x 400 Gb/s InfiniBand"
                f"{OTHERS} {EIGHT} (mlx5_ib6:1: NCCL_IB_HCA leaves it out)"
            ),
        )
    ]


def test_two_fast_ethernet_ports_are_no_rails_beside_a_faster_infiniband_port() -> None:
    own = {
        slot: facts(
            slot, rdma=[infiniband(0, slot)] + [roce(n, slot, rate_gbps=25.0) for n in (1, 2)]
        )
        for slot in range(2)
    }
    assert rdma_of(cluster(own, 2)).hcas == {0: ["mlx5_ib0:1"], 1: ["mlx5_ib0:1"]}


def test_where_nobody_wants_rdma_its_differences_fail_nobody() -> None:
    own = {slot: facts(slot, wants_rdma=False, rdma=[]) if slot else facts(0) for slot in range(3)}
    own[0] = own[0].model_copy(update={"wants_rdma": False})
    assert levels(cluster(own, 3))["X04"] == {"warn"}


def test_partition_keys_that_cannot_be_read_are_not_compared() -> None:
    hidden = facts(1, rdma=[infiniband(n, 1, pkeys=[]) for n in range(8)])
    assert "X05" not in levels(cluster({1: hidden}, 3))


def test_another_nccl_fails_nobody_who_has_no_gpu() -> None:
    bare: dict[str, Any] = {"gpus": 0, "gpu_models": [], "gpu_uuids": [], "rdma": []}
    own = {slot: facts(slot, **bare) for slot in range(3)}
    own[1] = own[1].model_copy(update={"nccl_version": "2.19.3"})
    assert levels(cluster(own, 3)) == {"X02": {"warn"}}
