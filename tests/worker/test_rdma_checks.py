"""The checks of RDMA ports: machines with one fault each, and the trees of real machines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rendezvous.wire.node import RdmaPort
from tests.support.fake_sysfs import (
    DOWN,
    SLOW,
    UNMANAGED,
    Addresses,
    efa_p5,
    links_of,
    nd_h100_v5,
    roce_8x400,
    tcp_only,
)
from tests.support.machines import GIB, HEALTHY, complaints, efa, machine, port, roce
from worker.machine.interfaces import look
from worker.machine.kernel import ResourceLimits
from worker.machine.network import Interface, Network
from worker.machine.rdma import Unopened, look_rdma
from worker.machine.surroundings import EFA_LIBRARIES, Surroundings, look_around
from worker.nccl.env import Given
from worker.preflight.checks import check_node
from worker.preflight.rdma import RDMA_JUDGES, rails, wants_rdma

MIB = 1 << 20
LOCKED = ResourceLimits(memlock_bytes=8 * MIB, may_lock=False, files=None, stack_bytes=8 << 20)
LOST = port(1, state="DOWN", phys_state="Polling", problem="down")
NO_EFA = dict.fromkeys(EFA_LIBRARIES, "cannot open shared object file")


def half_rate(number: int, **values: Any) -> RdmaPort:
    """A port of the rails' chip, at half their rate."""
    return port(number, **({"rate_gbps": 200.0, "rate": "200 Gb/sec (2X NDR)"} | values))


def with_first(first: RdmaPort, make: Any = port) -> list[RdmaPort]:
    """Eight rails, this one in place of the first."""
    return [first, *(make(number) for number in range(1, 8))]


WRONG: dict[str, tuple[dict[str, Any], tuple[str, str, str, str]]] = {
    "a cable is out": (
        {"rdma": with_first(port(0, state="DOWN", phys_state="Polling", problem="down"))},
        ("L04", "warn", "mlx5_0:1", "DOWN, Polling"),
    ),
    "two ports are switched off": (
        {
            "rdma": [
                *(port(i, state="DOWN", phys_state="Disabled") for i in range(2)),
                *(port(i) for i in range(2, 8)),
            ]
        },
        ("L04", "warn", "mlx5_0:1, mlx5_1:1", "DOWN, Disabled"),
    ),
    "a link that recovers": (
        {"rdma": with_first(port(0, phys_state="LinkErrorRecovery"))},
        ("L04", "warn", "mlx5_0:1", "ACTIVE, LinkErrorRecovery"),
    ),
    "no subnet manager": (
        {"rdma": with_first(port(0, state="INIT", lid=0, sm_lid=0))},
        ("L05", "fail", "mlx5_0:1", "INIT, LID 0, subnet manager none"),
    ),
    "no LID": (
        {"rdma": with_first(port(0, lid=0, problem="no LID"))},
        ("L05", "fail", "mlx5_0:1", "ACTIVE, LID 0, subnet manager 1"),
    ),
    "half the rate": (
        {"rdma": with_first(port(0, rate_gbps=200.0, rate="200 Gb/sec (2X NDR)"))},
        ("L06", "fail", "mlx5_0:1", "200 Gb/sec (2X NDR)"),
    ),
    "half the rate, of the port that the user names": (
        {
            "rdma": [*(port(i) for i in range(3)), half_rate(3), port(4, device="mlx5_bond_0")],
            "given": {"NCCL_IB_HCA": "^=mlx5_bond_0"},
        },
        ("L06", "fail", "mlx5_3:1", "200 Gb/sec (2X NDR)"),
    ),
    "one lane everywhere": (
        {"rdma": [port(0, rate_gbps=100.0, rate="100 Gb/sec (1X NDR)")]},
        ("L06", "fail", "mlx5_0:1", "100 Gb/sec (1X NDR)"),
    ),
    "a limited member": (
        {"rdma": with_first(port(0, pkeys=[0x7FFF, 0x8000]))},
        ("L07", "fail", "mlx5_0:1", "0x7fff, 0x8000"),
    ),
    "RoCE without an address": (
        {"rdma": with_first(roce(0, gid_index=None, problem="no GID"), roce)},
        ("L08", "fail", "mlx5_0:1", "no IPv4 RoCE v2 GID"),
    ),
    "the one RoCE port without an address": (
        {"rdma": [roce(0, gid_index=None, problem="no GID")]},
        ("L08", "warn", "mlx5_0:1", "no IPv4 RoCE v2 GID"),
    ),
    "RoCE without an address of the family that is named": (
        {
            "rdma": with_first(roce(0, gid_index=None, problem="no GID"), roce),
            "given": {"NCCL_IB_ADDR_FAMILY": "AF_INET6"},
        },
        ("L08", "fail", "mlx5_0:1", "no IPv6 RoCE v2 GID"),
    ),
    "no uverbs nodes": (
        {"rdma": [port(i, openable=False, problem="uverbs is missing") for i in range(2)]},
        ("L09", "fail", "mlx5_0:1, mlx5_1:1", "uverbs is missing"),
    ),
    "no libibverbs": (
        {
            "rdma": [
                port(0, openable=False, problem="libibverbs cannot be loaded: no such file"),
            ],
            "unopened": {"mlx5_0": Unopened("", lacks_library=True)},
        },
        ("L10", "fail", "mlx5_0:1", "libibverbs cannot be loaded: no such file"),
    ),
    "no driver in libibverbs": (
        {
            "rdma": [port(0, openable=False, problem="libibverbs has no driver for it")],
            "unopened": {"mlx5_0": Unopened("", lacks_library=True)},
        },
        ("L10", "fail", "mlx5_0:1", "libibverbs has no driver for it"),
    ),
    "EFA without its plugin": (
        {"rdma": [efa(0), efa(1)], "libraries": NO_EFA},
        ("L11", "fail", "libnccl-net.so", "cannot open shared object file"),
    ),
    "8 MiB may be locked": ({"limits": LOCKED}, ("L12", "fail", "ulimit -l", "8 MiB")),
    "2 GiB may be locked": (
        {"limits": replace(LOCKED, memlock_bytes=2 * GIB)},
        ("L12", "warn", "ulimit -l", "2 GiB"),
    ),
    "no peer memory": (
        {"is_direct": False},
        ("L13", "warn", "", "no nvidia_peermem, and not the open kernel driver"),
    ),
    "a link that flaps": (
        {"rdma_errors": {"mlx5_3:1": {"link_downed": 1, "symbol_error": 20}}},
        ("L20", "warn", "mlx5_3:1", "link_downed rose by 1, symbol_error rose by 20"),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named_and_nothing_else(name: str) -> None:
    changes, complaint = WRONG[name]
    assert complaints(machine(**changes)) == [complaint]


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_comes_with_meaning_and_cure(name: str) -> None:
    changes, (check, level, subject, _) = WRONG[name]
    [found] = [f for f in check_node(machine(**changes)) if f.level == level]
    assert (found.check, found.subject) == (check, subject)
    assert found.expected
    assert found.cause
    assert found.fix


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize(
    "changes",
    [
        {"gpus_seen": 0, "gpu_nodes": 0},
        {"given": {"NCCL_NET": "Socket"}},
        {"given": {"NCCL_IB_DISABLE": "1"}},
        {"loopback": True, "gpu_nodes": 0},
    ],
)
def test_on_a_node_whose_program_uses_no_rdma_nothing_of_it_is_a_failure(
    name: str, changes: dict[str, Any]
) -> None:
    wrong, _ = WRONG[name]
    assert "fail" not in {level for _, level, _, _ in complaints(machine(**(wrong | changes)))}


def test_require_rdma_makes_it_a_failure_without_gpus_too() -> None:
    changes, complaint = WRONG["no subnet manager"]
    here = machine(**changes, gpus_seen=0, gpu_nodes=0, require_rdma=True)
    assert complaints(here) == [complaint]


def test_every_check_of_this_file_is_seen_to_complain() -> None:
    assert {c[0] for _, c in WRONG.values()} == {check.id for check in RDMA_JUDGES}


@pytest.mark.parametrize(
    "changes",
    [
        {"rdma": [port(0), port(1, device="mlx5_9", hca_type="MT4125", state="DOWN"), port(2)]},
        {"rdma": [half_rate(i) for i in range(8)]},
        {"rdma": [*(port(i) for i in range(8)), half_rate(8), half_rate(9)]},
        {"rdma": [*(port(i) for i in range(8)), half_rate(8, state="INIT", lid=0, sm_lid=0)]},
        {"rdma": [*(port(i) for i in range(8)), half_rate(8, state="DOWN", phys_state="Polling")]},
        {"rdma": [*(port(i) for i in range(4)), half_rate(8)]},
        {"rdma": [port(0), LOST], "given": {"NCCL_IB_HCA": "=mlx5_0"}},
        {"rdma": [port(0), LOST], "given": {"NCCL_IB_HCA": "^=mlx5_1:1"}},
        {"rdma": [port(i) for i in range(4)] + [roce(9, hca_type="MT4125", gid_index=None)]},
        {"rdma": [efa(0)], "libraries": NO_EFA | {EFA_LIBRARIES[1]: ""}},
        {"rdma": [efa(0)], "libraries": NO_EFA, "given": {"NCCL_NET_PLUGIN": "ofi"}},
        {"limits": replace(LOCKED, may_lock=True)},
        {"rdma": []},
    ],
    ids=[
        "spare port",
        "NDR200",
        "storage at another rate",
        "storage without subnet manager",
        "storage that is down",
        "a rail for two GPUs, and storage",
        "a port that is not named",
        "a port that is excluded",
        "front end",
        "EFA",
        "named plugin",
        "IPC_LOCK",
        "no RDMA",
    ],
)
def test_what_is_no_fault_is_not_complained_of(changes: dict[str, Any]) -> None:
    assert complaints(machine(**changes)) == []


# ---- real machines ------------------------------------------------------------------------------


def real(root: Path, addresses: Addresses, **changes: Any) -> Surroundings:
    """The machine of a tree, with eight GPUs."""
    given = {name: Given(value) for name, value in changes.pop("given", {}).items()}
    return replace(
        HEALTHY,
        facts=HEALTHY.facts.model_copy(update={"rdma": look_rdma(root)}),
        network=look(root, links=links_of(root, addresses)),
        given=given,
        **changes,
    )


def test_the_machines_as_they_should_be_have_nothing_wrong(tmp_path: Path) -> None:
    made: dict[str, Addresses] = {
        "nd": nd_h100_v5(tmp_path / "nd"),
        "nd without IPoIB": nd_h100_v5(tmp_path / "nd without IPoIB", ipoib=False),
        "roce": roce_8x400(tmp_path / "roce"),
        "tcp": tcp_only(tmp_path / "tcp"),
    }
    for name, addresses in made.items():
        assert complaints(real(tmp_path / name, addresses)) == [], name
    loaded = real(tmp_path / "efa", efa_p5(tmp_path / "efa"), libraries={EFA_LIBRARIES[0]: ""})
    assert complaints(loaded) == []


def test_a_degraded_infiniband_machine_has_each_of_its_faults_named(tmp_path: Path) -> None:
    addresses = nd_h100_v5(tmp_path, bad={2: DOWN, 5: UNMANAGED, 6: SLOW}, without_uverbs=[7])
    told = [
        (check, level, subject)
        for check, level, subject, _ in complaints(real(tmp_path, addresses))
    ]
    assert told == [
        ("L04", "warn", "mlx5_ib2:1"),
        ("L05", "fail", "mlx5_ib5:1"),
        ("L06", "fail", "mlx5_ib6:1"),
        ("L09", "fail", "mlx5_ib7:1"),
    ]


def test_roce_rails_without_addresses_are_all_named_at_once(tmp_path: Path) -> None:
    here = real(tmp_path, roce_8x400(tmp_path, v4=False))
    names = "mlx5_0:1, mlx5_3:1, mlx5_4:1, mlx5_5:1 and 4 more"
    assert complaints(here) == [("L08", "fail", names, "no IPv4 RoCE v2 GID")]


def test_of_roce_over_ipv6_its_ipv6_addresses_are_judged(tmp_path: Path) -> None:
    file = tmp_path / "cluster.conf"
    file.write_text("NCCL_IB_ADDR_FAMILY=AF_INET6\n")
    roce_8x400(tmp_path / "v4")
    environ = {"PATH": "", "NCCL_CONF_FILE": str(file)}
    here = look_around("torchrun", [], environ, root=tmp_path / "v4")
    assert {port.gid_index for port in here.rdma} == {None}
    assert {port.gid_index for port in look_rdma(tmp_path / "v4")} == {3}


def test_an_index_that_names_no_gid_is_said(tmp_path: Path) -> None:
    bare = [roce(i, gid_index=None, problem="no GID at index 9") for i in range(8)]
    given = {"NCCL_IB_GID_INDEX": "9"}
    found = {
        (check, level, value)
        for check, level, _, value in complaints(machine(rdma=bare, given=given))
    }
    assert ("L08", "fail", "no GID at index 9") in found


def test_a_container_that_sees_all_devices_and_was_given_none_is_told_so(tmp_path: Path) -> None:
    here = real(tmp_path, nd_h100_v5(tmp_path, without_uverbs=range(8)))
    assert {(check, level) for check, level, _, _ in complaints(here)} == {("L09", "fail")}


def test_the_accelerated_half_of_a_network_card_is_no_rail(tmp_path: Path) -> None:
    here = real(tmp_path, nd_h100_v5(tmp_path))
    assert {p.device for p in rails(here)} == {f"mlx5_ib{i}" for i in range(8)}
    alone = machine(
        rdma=[roce(0, gid_index=None, interface="eth1")],
        network=Network((Interface("eth0"), Interface("eth1", master="eth0"))),
    )
    assert rails(alone) == []
    assert complaints(alone) == []


def test_of_two_kinds_as_common_the_rails_are_infiniband_or_the_faster() -> None:
    assert {p.link_layer for p in rails(machine(rdma=[roce(0), port(1)]))} == {"InfiniBand"}
    slow = roce(0, hca_type="MT4125", rate_gbps=100.0)
    assert rails(machine(rdma=[slow, roce(1)])) == [roce(1)]
    assert rails(machine(rdma=[])) == []


def test_rdma_is_wanted_where_gpus_would_use_it() -> None:
    assert wants_rdma(HEALTHY)
    assert not wants_rdma(machine(gpus_seen=0))
    assert not wants_rdma(machine(loopback=True))
    assert not wants_rdma(machine(given={"NCCL_IB_DISABLE": "1"}))
    assert wants_rdma(machine(given={"NCCL_IB_DISABLE": "0"}))
    assert not wants_rdma(machine(given={"NCCL_NET": "Socket"}))
    assert wants_rdma(machine(given={"NCCL_NET": "Socket"}, require_rdma=True))


@pytest.mark.parametrize("number", [1, 2])
def test_a_plain_network_card_that_can_do_rdma_fails_nobody(number: int) -> None:
    cards = [roce(i, openable=False, problem="it is not in /dev/infiniband") for i in range(number)]
    found = complaints(machine(rdma=cards, limits=LOCKED))
    assert {level for _, level, _, _ in found} == {"warn"}
