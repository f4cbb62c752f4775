"""What is not the same on all nodes: the odd one is named; and what NCCL is to use on them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from rendezvous.proof.compare import compare
from rendezvous.proof.findings import finding_text
from rendezvous.proof.rdma import RdmaExpectation, rdma_of
from rendezvous.wire.node import Facts, Finding, JoinRequest
from tests.support.driver import make_join, sha
from tests.support.fabric import machines
from tests.support.tables import rows

EIGHT = "8 x 400 Gb/s InfiniBand"
OLD = sha("old")
PREFIX = "fe80:0000:0000:0000"
NO_RDMA = "but --require-rdma needs one on every node"


def said_of(text: str) -> list[str]:
    """What is found of machines in a run of these options: `require-rdma-- 5; 1 gpus=7`."""
    option, _, nodes = text.rpartition("-- ")
    joins = machines(nodes)
    if option == "use-all-gpus":
        joins = [replace(join, nproc_per_node=8) for join in joins]
    return said(joins, require_rdma=option == "require-rdma")


def said(joins: list[JoinRequest], *, require_rdma: bool = False) -> list[str]:
    """What is found that is not ok: check, level, slot and cause, without the hostnames."""
    found = compare(joins, require_rdma=require_rdma)
    assert {f.subject for f in found if not f.fix and f.level != "ok"} <= {"RDMA adapter type"}
    assert all(not f.fix for f in found if f.level == "ok")
    told = [f for f in found if f.level != "ok" and not f.cause.startswith("all nodes have")]
    return [re.sub(r" \(h\d+\)", "", f"{f.check} {f.level} {f.slot}: {f.cause}") for f in told]


def test_of_a_sound_cluster_every_property_is_told_once() -> None:
    found = compare(machines("16"), require_rdma=False)
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
    assert compare([make_join(slot) for slot in range(3)], require_rdma=False) == []
    assert said(machines("1")) == []
    joins = machines("3; 1 nccl_version= torch_version=")
    assert said(joins) == []
    assert "2 nodes have NCCL 2.26.2" in [f.cause for f in compare(joins, require_rdma=False)]


@rows(
    "odd found alone others",
    f"""
NCCL | nccl_version=2.19.3 | X02 fail | NCCL 2.19.3 | 2.26.2
torch | torch_version=2.6.0 | X02 fail | torch 2.6.0 | 2.7.1+cu126
torch, but for the patch | torch_version=2.7.0 | X02 warn | torch 2.7.0 | 2.7.1+cu126
CUDA | cuda_version=12.4 | X02 warn | CUDA 12.4 | 12.6
Python | python_version=3.11.9 | X02 warn | Python 3.11.9 | 3.12.4
rdzv | rdzv_version=0.0.9 | X02 warn | rdzv 0.0.9 | 0.1.0
script | script_digest={OLD} | X02 warn | entry script {OLD[:12]} | {sha("train.py")[:12]}
GPUs | gpus=7 | X03 warn | GPU count 7 | 8
GPU model | gpu_models="['A100']" | X03 warn | GPU model A100 | NVIDIA H100 80GB HBM3
driver | driver_version=550.1 | X03 warn | NVIDIA driver 550.1 | 570.86.15
no RDMA | ports=infiniband:0 | X04 fail | RDMA ports none | {EIGHT}
EFA | ports=efa:2 | X04 fail | RDMA ports 2 x 100 Gb/s EFA | {EIGHT}
rate | 6.rate_gbps=200.0 | X04 fail
    | RDMA ports 7 x 400 Gb/s InfiniBand, 1 x 200 Gb/s InfiniBand | {EIGHT}
down | 6.state=DOWN 6.problem=DOWN | X04 fail
    | RDMA ports 7 x 400 Gb/s InfiniBand | {EIGHT} (mlx5_ib6:1: DOWN)
left out | 6.chosen=False | X04 fail
    | RDMA ports 7 x 400 Gb/s InfiniBand | {EIGHT} (mlx5_ib6:1: NCCL_IB_HCA excludes it)
link layer | 6.link_layer=Ethernet | X04 fail
    | RDMA ports 7 x 400 Gb/s InfiniBand, 1 x 400 Gb/s RoCE | {EIGHT}
adapter | 6.hca_type=MT1 | X04 warn | RDMA adapter type MT1, MT4126 | MT4126
firmware | 6.firmware=28.1 | X04 warn | RDMA firmware 28.1, 28.39.1002 | 28.39.1002
keys | 6.pkeys=[0x7FFF] | X05 fail
    | partition key (full member) none common to all its ports | 0x801d
prefix | 6.subnet_prefix=fe80:1 | X05 warn | InfiniBand subnet prefix {PREFIX}, fe80:1 | {PREFIX}
GID of RoCE | roce: 6.gid_index=5 | X06 warn | RoCE GID 3 (RoCE v2), 5 (RoCE v2) | 3 (RoCE v2)
MTU of RoCE | roce: 6.mtu=1500 | X06 warn | MTU of the RoCE ports 1500, 4220 | 4220
""",
)
def test_the_odd_node_is_named(odd: str, found: str, alone: str, others: str) -> None:
    kind, _, words = odd.rpartition(": ")
    cause = f"slot 7 is the only node with {alone}; the 15 others have {others}"
    assert said(machines(f"16 {kind}; 7 {words}")) == [f"{found} 7: {cause}"]


def test_what_mends_it_is_said() -> None:
    found = compare(machines("16; 9 nccl_version=2.19.3"), require_rdma=False)
    [finding] = [f for f in found if f.level != "ok"]
    assert finding == Finding(
        check="X02",
        level="fail",
        slot=9,
        subject="NCCL",
        value="2.19.3",
        expected="2.26.2",
        cause="slot 9 (h9) is the only node with NCCL 2.19.3; the 15 others have 2.26.2",
        fix="NCCL refuses a peer that has a different version: use the same image, or the same "
        "environment, on all nodes",
    )


@rows(
    "nodes expected",
    f"""
two alike | 6; 2 driver_version=1; 5 driver_version=1
    | X03 warn 2: slot 2 is one of 2 nodes with NVIDIA driver 1; the 4 others have 570.86.15
    & X03 warn 5: slot 5 is one of 2 nodes with NVIDIA driver 1; the 4 others have 570.86.15
two of their own | 6; 2 driver_version=1; 5 driver_version=5
    | X03 warn 2: slot 2 is the only node with NVIDIA driver 1; 4 others have 570.86.15
    & X03 warn 5: slot 5 is the only node with NVIDIA driver 5; 4 others have 570.86.15
one of three | 3; 0 driver_version=1
    | X03 warn 0: slot 0 is the only node with NVIDIA driver 1; the 2 others have 570.86.15
halves | 8; 4-7 driver_version=1
    | X03 warn None: the nodes are split 4/4 over NVIDIA driver: 570.86.15 on slots 0-3, 1 on slots
    4-7
one of two | 2; 1 driver_version=1
    | X03 warn None: the nodes are split 1/1 over NVIDIA driver: 570.86.15 on slot 0, 1 on slot 1
many parts | 7; {"; ".join(f"{n} driver_version=v{n}" for n in range(7))}
    | X03 warn None: the nodes are split 1/1/1/1/1/... over NVIDIA driver: v0 on slot 0, v1 on slot
    1, v2 on slot 2, v3 on slot 3 and 3 more
GPUs | 4; 3 boot_id=boot-1 gpu_uuids="['GPU-1-0','GPU-1-1','GPU-1-2']"
    | X01 fail 3: slot 1, slot 3 have the same GPU GPU-1-0, GPU-1-1 and 1 more
GPUs of one machine | 2; * boot_id=boot gpu_uuids="['GPU']"
    | X01 warn 1: slot 0, slot 1 have the same GPU GPU
a GUID | 4; 3 0.node_guid=0015:5dff:0001:0000
    | X01 fail 3: slot 1, slot 3 have the same node GUID 0015:5dff:0001:0000
the GUID of one machine | 4; 3 boot_id=boot-1 0.node_guid=0015:5dff:0001:0000 |
GUIDs that are none | 4; 2-3 *.node_guid=0000:0000:0000:0000 |
RDMA is required | require-rdma-- 5; 1 *.state=DOWN *.problem='it is DOWN'; 2 ports=infiniband:0
    | X04 fail 1: slot 1 has no usable RDMA port (mlx5_ib0:1, mlx5_ib1:1 and 6 more: it is DOWN),
    {NO_RDMA} & X04 fail 2: slot 2 has no usable RDMA port, {NO_RDMA}
EFA is RDMA | require-rdma-- 3; * ports=efa:8 |
no common key | 3; * ports=infiniband:1; 0 0.pkeys=[0x8001]; 1 0.pkeys=[0x8002]; 2 0.pkeys=[0x8003]
    | X05 fail None: the nodes are split 1/1/1 over partition key (full member): 0x8001 on slot 0,
    0x8002 on slot 1, 0x8003 on slot 2
nowhere a full member | 4; * *.pkeys=[0x7FFF] |
wrong on every node | 4; * ports=roce:1 0.problem=x +infiniband1.state=ACTIVE; 1 1.problem=DOWN
    | X04 fail 1: slot 1 is the only node with RDMA ports none; the 3 others have 1 x 400 Gb/s
    InfiniBand (mlx5_ib1:1: DOWN)
""",
)
def test_what_is_said_of_several_nodes(nodes: str, expected: str) -> None:
    assert " & ".join(said_of(nodes)) == expected


def test_names_and_values_of_any_length_fit_the_wire() -> None:
    joins = [
        make_join(s, hostname="h" * 253, addresses=[f"10.0.0.{s}"], facts=Facts(nccl_version=v))
        for s, v in enumerate(["a" * 253, "b" * 253, "b" * 253], start=1)
    ]
    found = compare(joins, require_rdma=False)
    assert {len(f.cause) for f in found if f.subject == "NCCL" and f.level != "ok"} == {600}


@rows(
    "names expected",
    """
two | h0 h1 h2 H1 | X01 warn 3: slot 1, slot 3 (H1) have the same hostname h1
all | box box box box | X01 warn None: slots 0-3 have the same hostname box
""",
)
def test_nodes_of_one_name_are_told(names: str, expected: str) -> None:
    joins = [
        replace(join, hostname=name)
        for join, name in zip(machines("4"), names.split(), strict=True)
    ]
    assert said(joins) == [expected]


def test_nodes_on_loopback_are_on_one_machine_on_purpose() -> None:
    joins = [make_join(s, hostname="box", addresses=[f"127.0.0.{s + 1}"]) for s in range(3)]
    assert compare(joins, require_rdma=False) == []


def test_without_rdma_it_is_said_where_to_look() -> None:
    found = compare(machines("3; 1 ports=infiniband:0"), require_rdma=True)
    [fix] = [f.fix for f in found if f.level != "ok"]
    assert fix.startswith("run 'rdzv doctor' there: does the container have /dev/infiniband")


BARE = "gpus=0 gpu_models=[] gpu_uuids=[] ports=infiniband:0"


@rows(
    "nodes expected",
    f"""
fewer GPUs | 3; 1 gpus=4 | X03 warn
fewer GPUs than are to be used | use-all-gpus-- 3; 1 gpus=4 | X03 fail
a bare head node | 3; 0 {BARE} driver_version= | X03 warn
a port more | 3; 1 +roce9.rate_gbps=100.0 | X04 warn
patches of torch, and a node without it | 3; 1 torch_version=2.7.0; 2 torch_version= | X02 warn
storage on all | 3; * +infiniband9.rate_gbps=200.0 |
storage that is left out
    | 3; 1 +infiniband9.rate_gbps=200.0 8.chosen=False 8.pkeys=[0x7FFF] 8.firmware=1
    8.subnet_prefix= |
nobody wants RDMA | 3; * wants_rdma=False; 1-2 ports=infiniband:0 | X04 warn
keys that cannot be read | 3; 1 *.pkeys=[] |
GIDs that are not known | 3 roce; 1 *.gid_index=None *.gid_type= |
NCCL without GPUs | 3; * {BARE}; 1 nccl_version=2.1 | X02 warn
RDMA without GPUs | 3; * gpus=0 ports=infiniband:1; 0 ports=infiniband:0 | X04 warn
RDMA without GPUs is required
    | require-rdma-- 3; * gpus=0 ports=infiniband:1; 0 ports=infiniband:0 | X04 fail
""",
)
def test_how_grave_it_is(nodes: str, expected: str) -> None:
    assert " ".join(sorted({" ".join(line.split()[:2]) for line in said_of(nodes)})) == expected


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


# --- what NCCL is to use --------------------------------------------------------------------------

RAILS = " ".join(f"mlx5_ib{n}:1" for n in range(8))


@rows(
    "nodes transport hcas",
    f"""
alike | 16 | IB |
half the rate | 3; 1 6.rate_gbps=200.0 | IB |
left out | 3; * +infiniband9.rate_gbps=200.0 8.chosen=False | IB |
storage | 3; * +infiniband9.rate_gbps=200.0 | IB | {RAILS}
the front end | 3 roce; * +roce8.hca_type=M 8.rate_gbps=100.0 | IB | {RAILS.replace("ib", "")}
a port that does not work, as of an accelerated network
    | 3; * ports=infiniband:1 +roce8.device=mlx5_an0 1.problem=x | IB | mlx5_ib0:1
slow Ethernet | 3; * ports=infiniband:1 +roce1.rate_gbps=25.0 +roce2.rate_gbps=25.0 | IB
    | mlx5_ib0:1
one without | 3; 1 ports=infiniband:0 | |
one with fewer | 3; 1 ports=infiniband:1 | |
none | 3; * ports=infiniband:0 | Socket |
none that works | 3; * ports=infiniband:1 0.problem=x | Socket |
EFA | 3; * ports=efa:4 | Libfabric |
fewer EFA | 3; * ports=efa:4; 2 ports=efa:3 | |
""",
)
def test_what_nccl_should_use(nodes: str, transport: Any, hcas: str) -> None:
    joins = machines(nodes)
    expected = dict.fromkeys(range(len(joins)), hcas.split()) if hcas else {}
    assert rdma_of(joins) == RdmaExpectation(transport, expected)
