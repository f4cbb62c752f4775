"""What is not the same on all nodes: the odd one out is named, and of two halves neither is."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rendezvous.proof.compare import compare
from rendezvous.proof.findings import finding_text
from rendezvous.wire.node import Facts, Finding, JoinRequest
from tests.support.driver import make_join, make_spec, sha
from tests.support.fabric import cluster, efa, facts, infiniband, on, roce, storage, with_port

EIGHT = "8 x 400 Gb/s InfiniBand"
DOWN = "it is DOWN: nothing answers at the other end"
NO_KEY = "none that all its ports have"


def said(joins: list[JoinRequest], **spec: Any) -> list[str]:
    """What is found that is not ok: check, level, slot and cause, without the hostnames."""
    found = compare(joins, make_spec(len(joins), **spec))
    assert all(not f.fix for f in found if f.level == "ok")
    told = [f for f in found if f.level != "ok" and not f.cause.startswith("all nodes have")]
    return [re.sub(r" \(h\d+\)", "", f"{f.check} {f.level} {f.slot}: {f.cause}") for f in told]


def levels(joins: list[JoinRequest], **spec: Any) -> list[str]:
    """Check and level of what is not ok, each once."""
    return sorted({" ".join(line.split()[:2]) for line in said(joins, **spec)})


# --- sound runs -----------------------------------------------------------------------------------


def test_of_a_sound_cluster_every_property_is_told_once() -> None:
    found = compare(cluster(16), make_spec(16))
    assert {f.level for f in found} == {"ok"}
    assert [(f.check, f.cause.removeprefix("all nodes have ")) for f in found] == [
        ("X02", "NCCL 2.26.2"),
        ("X02", "torch 2.7.1+cu126"),
        ("X02", "CUDA 12.6"),
        ("X02", "Python 3.12.4"),
        ("X02", "rdzv 0.1.0"),
        ("X02", f"entry script {sha('train.py')[:12]}"),
        ("X03", "GPU count 8"),
        ("X03", "GPU model NVIDIA H100 80GB HBM3"),
        ("X03", "NVIDIA driver 570.86.15"),
        ("X04", "RDMA ports 8 x 400 Gb/s InfiniBand"),
        ("X04", "RDMA adapter type MT4126"),
        ("X04", "RDMA firmware 28.39.1002"),
        ("X05", "partition key (full member) 0x801d"),
        ("X05", "InfiniBand subnet prefix fe80:0000:0000:0000"),
    ]


def test_nothing_is_said_where_nothing_is_known_or_nobody_to_compare_with() -> None:
    assert compare([make_join(slot) for slot in range(3)], make_spec(3)) == []
    assert said(cluster(1)) == []
    joins = cluster(3, {1: facts(1, nccl_version="", torch_version="")})
    assert said(joins) == []
    assert "2 nodes have NCCL 2.26.2" in [f.cause for f in compare(joins, make_spec(3))]


# --- one odd value --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "found", "alone", "others"),
    [
        ({"nccl_version": "2.19.3"}, "X02 fail", "NCCL 2.19.3", "2.26.2"),
        ({"torch_version": "2.6.0"}, "X02 fail", "torch 2.6.0", "2.7.1+cu126"),
        ({"torch_version": "2.7.0+cu126"}, "X02 warn", "torch 2.7.0+cu126", "2.7.1+cu126"),
        ({"cuda_version": "12.4"}, "X02 warn", "CUDA 12.4", "12.6"),
        ({"python_version": "3.11.9"}, "X02 warn", "Python 3.11.9", "3.12.4"),
        ({"rdzv_version": "0.0.9"}, "X02 warn", "rdzv 0.0.9", "0.1.0"),
        (
            *({"script_digest": sha("old")}, "X02 warn"),
            *(f"entry script {sha('old')[:12]}", sha("train.py")[:12]),
        ),
        ({"gpus": 7}, "X03 warn", "GPU count 7", "8"),
        ({"gpu_models": ["A100"] * 8}, "X03 warn", "GPU model A100", "NVIDIA H100 80GB HBM3"),
        ({"driver_version": "550.1"}, "X03 warn", "NVIDIA driver 550.1", "570.86.15"),
        ({"rdma": []}, "X04 fail", "RDMA ports none", EIGHT),
    ],
)
def test_the_odd_node_is_named(
    changes: dict[str, Any], found: str, alone: str, others: str
) -> None:
    cause = f"slot 7 is alone with {alone}; the 15 others have {others}"
    assert said(cluster(16, {7: facts(7, **changes)})) == [f"{found} 7: {cause}"]


@pytest.mark.parametrize(
    ("ports", "changes", "found", "alone", "others"),
    [
        (
            *(infiniband, {"rate_gbps": 200.0}, "X04 fail"),
            *("RDMA ports 7 x 400 Gb/s InfiniBand, 1 x 200 Gb/s InfiniBand", EIGHT),
        ),
        (
            *(infiniband, {"state": "DOWN", "problem": DOWN}, "X04 fail"),
            *("RDMA ports 7 x 400 Gb/s InfiniBand", f"{EIGHT} (mlx5_ib6:1: {DOWN})"),
        ),
        (
            *(infiniband, {"chosen": False}, "X04 fail", "RDMA ports 7 x 400 Gb/s InfiniBand"),
            f"{EIGHT} (mlx5_ib6:1: NCCL_IB_HCA leaves it out)",
        ),
        (
            *(infiniband, {"link_layer": "Ethernet"}, "X04 fail"),
            *("RDMA ports 7 x 400 Gb/s InfiniBand, 1 x 400 Gb/s RoCE", EIGHT),
        ),
        (infiniband, {"hca_type": "M1"}, "X04 warn", "RDMA adapter type M1, MT4126", "MT4126"),
        (
            *(infiniband, {"firmware": "28.1"}, "X04 warn", "RDMA firmware 28.1, 28.39.1002"),
            "28.39.1002",
        ),
        (
            *(infiniband, {"pkeys": [0x7FFF]}, "X05 fail"),
            *(f"partition key (full member) {NO_KEY}", "0x801d"),
        ),
        (
            *(infiniband, {"subnet_prefix": "fe80:1"}, "X05 warn"),
            *("InfiniBand subnet prefix fe80:0000:0000:0000, fe80:1", "fe80:0000:0000:0000"),
        ),
        (roce, {"gid_index": 5}, "X06 warn", "RoCE GID 3 (RoCE v2), 5 (RoCE v2)", "3 (RoCE v2)"),
        (roce, {"mtu": 1500}, "X06 warn", "MTU of the RoCE ports 1500, 4220", "4220"),
    ],
)
def test_an_odd_port_is_named_with_its_node(
    ports: Any, changes: dict[str, Any], found: str, alone: str, others: str
) -> None:
    cause = f"slot 7 is alone with {alone}; the 15 others have {others}"
    odd = {7: with_port(7, 6, ports, **changes)}
    assert said(cluster(16, odd, ports)) == [f"{found} 7: {cause}"]


def test_what_mends_it_is_said() -> None:
    [finding] = [
        f
        for f in compare(cluster(16, {9: facts(9, nccl_version="2.19.3")}), make_spec(16))
        if f.level != "ok"
    ]
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


NEW = "570.86.15"
MANY = "v0 on slot 0, v1 on slot 1, v2 on slot 2, v3 on slot 3"


@pytest.mark.parametrize(
    ("size", "odd", "expected"),
    [
        (
            *(6, {2: "1", 5: "1"}),
            [f"{n}: slot {n} is one of 2 with driver 1; the 4 others have {NEW}" for n in (2, 5)],
        ),
        (
            *(6, {2: "1", 5: "5"}),
            [
                f"{n}: slot {n} is alone with driver {d}; 4 others have {NEW}"
                for n, d in ("21", "55")
            ],
        ),
        (3, {0: "1"}, [f"0: slot 0 is alone with driver 1; the 2 others have {NEW}"]),
        (
            *(8, dict.fromkeys(range(4, 8), "1")),
            [f"None: the nodes are split 4/4 over driver: {NEW} on slots 0-3, 1 on slots 4-7"],
        ),
        (
            *(2, {1: "1"}),
            [f"None: the nodes are split 1/1 over driver: {NEW} on slot 0, 1 on slot 1"],
        ),
        (
            *(9, {slot: f"v{slot}" for slot in range(9)}),
            [f"None: the nodes are split 1/1/1/1/1/... over driver: {MANY} and 5 more"],
        ),
    ],
    ids=["alike", "each its own", "of three", "halves", "of two", "many parts"],
)
def test_several_odd_ones(size: int, odd: dict[int, str], expected: list[str]) -> None:
    found = said(cluster(size, {s: facts(s, driver_version=own) for s, own in odd.items()}))
    assert [line.replace("NVIDIA driver", "driver") for line in found] == [
        f"X03 warn {line}" for line in expected
    ]


def test_names_and_values_of_any_length_fit_the_wire() -> None:
    joins = [
        make_join(s, hostname="h" * 253, addresses=[f"10.0.0.{s}"], facts=Facts(nccl_version=v))
        for s, v in enumerate(["a" * 253, "b" * 253, "b" * 253], start=1)
    ]
    found = compare(joins, make_spec(3))
    assert {len(f.cause) for f in found if f.subject == "NCCL" and f.level != "ok"} == {600}


# --- the same thing twice, and what the person asked for ------------------------------------------

KEYS = "0x8001 on slot 0, 0x8002 on slot 1, 0x8003 on slot 2"
ZERO = "0000:0000:0000:0000"
ALL_DOWN = "mlx5_ib0:1, mlx5_ib1:1 and 6 more: it is DOWN"
NO_RDMA = "and --require-rdma asks for one on every node"


@pytest.mark.parametrize(
    ("odd", "size", "spec", "expected"),
    [
        (
            *({3: facts(3, gpu_uuids=facts(1).gpu_uuids, boot_id="boot-1")}, 4, {}),
            ["X01 fail 3: slot 1, slot 3 have the same GPU GPU-1-0, GPU-1-1 and 6 more"],
        ),
        (
            *(on((0, 1), lambda s: facts(s, gpu_uuids=["GPU-0"], boot_id="boot")), 2, {}),
            ["X01 warn 1: slot 0, slot 1 have the same GPU GPU-0"],
        ),
        (
            *({3: with_port(3, 0, node_guid="0015:5dff:0001:0000")}, 4, {}),
            ["X01 fail 3: slot 1, slot 3 have the same node GUID 0015:5dff:0001:0000"],
        ),
        (
            *({3: facts(3, boot_id="boot-1", rdma=facts(1).rdma)}, 4, {}),
            [],
        ),
        (on((2, 3), lambda s: facts(s, lambda n, s: infiniband(n, s, node_guid=ZERO))), 4, {}, []),
        (
            *({1: facts(1, gpus=7)}, 3, {"skip": ["X03"]}),
            ["X03 skipped 1: slot 1 is alone with GPU count 7; the 2 others have 8"],
        ),
        (
            {
                1: facts(1, lambda n, s: infiniband(n, s, state="DOWN", problem="it is DOWN")),
                2: facts(2, rdma=[]),
            },
            *(5, {"require_rdma": True}),
            [
                f"X04 fail 1: slot 1 has no usable RDMA port ({ALL_DOWN}), {NO_RDMA}",
                f"X04 fail 2: slot 2 has no usable RDMA port, {NO_RDMA}",
            ],
        ),
        (on(range(3), lambda s: facts(s, efa)), 3, {"require_rdma": True}, []),
        (
            *(on(range(3), lambda s: facts(s, rdma=[infiniband(0, s, pkeys=[s + 0x8001])])), 3, {}),
            [f"X05 fail None: the nodes are split 1/1/1 over partition key (full member): {KEYS}"],
        ),
        (on(range(4), lambda s: facts(s, rdma=[infiniband(0, s, pkeys=[0x7FFF])])), 4, {}, []),
    ],
    ids=[
        *("GPUs", "GPUs of one machine", "a GUID", "the GUIDs of one machine", "GUIDs that are 0"),
        *("skipped", "RDMA is required", "EFA is RDMA", "no common key", "nowhere a full member"),
    ],
)
def test_what_is_there_twice_or_asked_for(
    odd: dict[int, Facts], size: int, spec: dict[str, Any], expected: list[str]
) -> None:
    assert said(cluster(size, odd), **spec) == expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (
            ["h0", "h1", "h2", "H1"],
            ["X01 warn 3: slot 1, slot 3 (H1) have the same hostname h1"],
        ),
        (["box"] * 4, ["X01 warn None: slots 0-3 have the same hostname box"]),
    ],
)
def test_nodes_of_one_name_are_told(names: list[str], expected: list[str]) -> None:
    joins = [
        join.model_copy(update={"hostname": name})
        for join, name in zip(cluster(4), names, strict=True)
    ]
    assert said(joins) == expected


def test_nodes_on_loopback_are_on_one_machine_on_purpose() -> None:
    joins = [make_join(s, hostname="box", addresses=[f"127.0.0.{s + 1}"]) for s in range(3)]
    assert compare(joins, make_spec(3)) == []


def test_without_rdma_it_is_said_where_to_look() -> None:
    found = compare(cluster(3, {1: facts(1, rdma=[])}), make_spec(3, require_rdma=True))
    [fix] = [f.fix for f in found if f.level != "ok"]
    assert fix.startswith("see rdzv doctor there: is /dev/infiniband given")


def test_what_is_wrong_on_every_node_is_not_what_makes_the_odd_one() -> None:
    def half(s: int) -> Facts:
        port = infiniband(0, s, problem="it is DOWN" if s == 1 else "")
        return facts(s, rdma=[roce(0, s, device="mlx5_an0", problem="no IPv4 RoCE v2 GID"), port])

    [found] = said(cluster(4, on(range(4), half)))
    assert found.startswith("X04 fail 1: slot 1 is alone with RDMA ports none; the 3 others have ")
    assert found.endswith(" 1 x 400 Gb/s InfiniBand (mlx5_ib0:1: it is DOWN)")


# --- what is worth a warning, and no more ---------------------------------------------------------

BARE: dict[str, Any] = {"gpus": 0, "gpu_models": [], "gpu_uuids": [], "rdma": []}


@pytest.mark.parametrize(
    ("odd", "spec", "expected"),
    [
        ({1: facts(1, gpus=4)}, {}, ["X03 warn"]),
        ({0: facts(0, **BARE, driver_version="")}, {}, ["X03 warn"]),
        (
            {1: facts(1, rdma=[*facts(1).rdma, roce(9, 1, rate_gbps=100.0)])},
            {},
            ["X04 warn"],
        ),
        (on(range(3), storage), {}, []),
        ({1: storage(1, chosen=False, pkeys=[0x7FFF], firmware="1", subnet_prefix="")}, {}, []),
        (
            on(range(3), lambda s: facts(s, wants_rdma=False, **({"rdma": []} if s else {}))),
            {},
            ["X04 warn"],
        ),
        ({1: facts(1, lambda n, s: infiniband(n, s, pkeys=[]))}, {}, []),
        ({1: facts(1, lambda n, s: roce(n, s, gid_index=None, gid_type=""))}, {"p": roce}, []),
        (
            on(range(3), lambda s: facts(s, **BARE, **({"nccl_version": "2.1"} if s == 1 else {}))),
            {},
            ["X02 warn"],
        ),
        (
            on(range(3), lambda s: facts(s, gpus=0, rdma=[infiniband(0, s)] if s else [])),
            {},
            ["X04 warn"],
        ),
        (
            on(range(3), lambda s: facts(s, gpus=0, rdma=[infiniband(0, s)] if s else [])),
            {"require_rdma": True},
            ["X04 fail"],
        ),
    ],
    ids=[
        *("fewer GPUs", "a bare head node", "a port more", "storage", "storage left out"),
        *("nobody wants RDMA", "keys not readable", "GIDs not known", "NCCL without GPUs"),
        *("RDMA without GPUs", "RDMA without GPUs that is required"),
    ],
)
def test_how_grave_it_is(odd: dict[int, Facts], spec: dict[str, Any], expected: list[str]) -> None:
    ports = spec.pop("p", infiniband)
    assert levels(cluster(3, odd, ports), **spec) == expected


def test_fewer_gpus_fail_a_node_that_was_to_use_them_all() -> None:
    joins = cluster(3, {1: facts(1, gpus=4)})
    joins = [join.model_copy(update={"nproc_per_node": 8}) for join in joins]
    assert levels(joins) == ["X03 fail"]


def test_efa_devices_are_called_so() -> None:
    odd = on(range(2), lambda s: facts(s, rdma=[efa(0), efa(1)]))
    assert "all nodes have RDMA ports 2 x 100 Gb/s EFA" in [
        f.cause for f in compare(cluster(2, odd), make_spec(2))
    ]


# --- sentences ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"slot": 1, "subject": "shm", "value": "64 MiB", "expected": "1 GiB", "cause": "why"},
            "slot 1 (h1): shm 64 MiB, expected 1 GiB: why",
        ),
        ({"slot": 7, "cause": "the clock is not set"}, "slot 7: the clock is not set"),
        ({"subject": "NCCL_NET", "value": "Socket"}, "NCCL_NET Socket"),
        ({"check": "X02", "slot": 1, "value": "1", "cause": "h1 is alone"}, "h1 is alone"),
        ({"check": "L99", "slot": 1, "value": "1", "cause": "alone"}, "slot 1 (h1): 1: alone"),
        ({"check": "X99", "slot": 1, "value": "1", "cause": "alone"}, "slot 1 (h1): 1: alone"),
        ({"check": "D01", "slot": 1, "value": "1", "cause": "alone"}, "slot 1 (h1): 1: alone"),
    ],
)
def test_a_finding_is_told_with_its_values(values: dict[str, Any], sentence: str) -> None:
    finding = Finding(**({"check": "L14", "level": "warn"} | values))
    assert finding_text(finding, {1: "h1"}) == sentence
