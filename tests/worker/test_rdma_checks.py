"""The checks of RDMA ports: machines with one fault each, and the trees of real machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rendezvous.proof.compare import compare
from rendezvous.proof.rdma import RdmaExpectation, rdma_of
from rendezvous.wire.checks import Check
from rendezvous.wire.node import Facts, Finding, JoinRequest, RdmaPort
from tests.support.driver import make_join
from tests.support.fake_sysfs import (
    DOWN,
    Addresses,
    Builder,
    Trees,
    efa_p5,
    links_of,
    nd_h100_v5,
    refuse,
    roce_8x400,
    tcp_only,
)
from tests.support.machines import GIB, HEALTHY, complaint, complaints, efa, machine, port, roce
from worker.machine.interfaces import look
from worker.machine.kernel import ResourceLimits
from worker.machine.network import Interface, Network
from worker.machine.rdma import Unopened, look_rdma
from worker.machine.surroundings import EFA_LIBRARIES, Surroundings, look_around
from worker.preflight.rdma import RDMA_JUDGES, rails, wants_rdma

MIB = 1 << 20
LOCKED = ResourceLimits(memlock_bytes=8 * MIB, may_lock=False, files=None, stack_bytes=8 << 20)
LOST = port(1, state="DOWN", phys_state="Polling", problem="down")
ABSENT = "cannot open shared object file"
NO_EFA = dict.fromkeys(EFA_LIBRARIES, ABSENT)


def half_rate(number: int, **values: Any) -> RdmaPort:
    """A port of the rails' chip, at half their rate."""
    return port(number, **({"rate_gbps": 200.0, "rate": "200 Gb/sec (2X NDR)"} | values))


def rails_with(**values: Any) -> dict[str, Any]:
    """Eight rails, the first with these values."""
    return {"rdma": with_first(port(0, **values))}


def with_first(first: RdmaPort, make: Any = port) -> list[RdmaPort]:
    """Eight rails, this one in place of the first."""
    return [first, *(make(number) for number in range(1, 8))]


def unopenable(problem: str) -> dict[str, Any]:
    """One port that libibverbs does not open."""
    rdma = [port(0, openable=False, problem=problem)]
    return {"rdma": rdma, "unopened": {"mlx5_0": Unopened("", lacks_library=True)}}


EIGHT = [port(i) for i in range(8)]
NO_GID = roce(0, gid_index=None, problem="no GID")
NO_IPV4, NO_IPV6 = "no IPv4 RoCE v2 GID", "no IPv6 RoCE v2 GID"
NO_LIBRARY, NO_DRIVER = "libibverbs cannot be loaded", "libibverbs has no driver for this device"
IS_DOWN = [port(i, state="DOWN", phys_state="Polling") for i in (2, 3)]
SWITCHED_OFF = [port(i, state="DOWN", phys_state="Disabled") for i in range(2)]
WITHOUT_UVERBS = [port(i, openable=False, problem="uverbs is missing") for i in range(2)]
V6 = {"NCCL_IB_ADDR_FAMILY": "AF_INET6"}
FLAPPING = {"rdma_errors": {"mlx5_3:1": {"link_downed": 1, "symbol_error": 20}}}
NAMED = {
    "rdma": [*EIGHT[:3], half_rate(3), port(4, device="mlx5_bond_0")],
    "given": {"NCCL_IB_HCA": "^=mlx5_bond_0"},
}
NAMED_BESIDE_FOUR = NAMED | {"rdma": [*EIGHT[:4], half_rate(4), port(5, device="mlx5_bond_0")]}
ONE_LANE = port(0, rate_gbps=100.0, rate="100 Gb/sec (1X NDR)")
NO_MANAGER = rails_with(state="INIT", lid=0, sm_lid=0)
INIT = "L05 fail | mlx5_0:1 | INIT, LID 0, subnet manager none"

# See test_preflight.
WRONG: list[tuple[str, dict[str, Any]]] = [
    ("L04 warn | mlx5_0:1 | DOWN, Polling", rails_with(state="DOWN", phys_state="Polling")),
    ("L04 warn | mlx5_0:1, mlx5_1:1 | DOWN, Disabled", {"rdma": SWITCHED_OFF + EIGHT[2:]}),
    ("L04 warn | mlx5_3:1 | DOWN, Polling", {"rdma": [*EIGHT[:3], IS_DOWN[1]], "gpu_nodes": 2}),
    ("L04 warn | mlx5_0:1 | ACTIVE, LinkErrorRecovery", rails_with(phys_state="LinkErrorRecovery")),
    (INIT, NO_MANAGER),
    ("L05 fail | mlx5_0:1 | ACTIVE, LID 0, subnet manager 1", rails_with(lid=0, problem="no LID")),
    ("L06 fail | mlx5_0:1 | 200 Gb/sec (2X NDR)", {"rdma": with_first(half_rate(0))}),
    ("L06 fail | mlx5_3:1 | 200 Gb/sec (2X NDR)", NAMED),
    ("L06 fail | mlx5_3:1 | 200 Gb/sec (2X NDR)", {"rdma": [*EIGHT[:3], half_rate(3)]}),
    ("L06 fail | mlx5_4:1 | 200 Gb/sec (2X NDR)", NAMED_BESIDE_FOUR),
    ("L06 fail | mlx5_0:1 | 100 Gb/sec (1X NDR)", {"rdma": [ONE_LANE]}),
    ("L07 fail | mlx5_0:1 | 0x7fff, 0x8000", rails_with(pkeys=[0x7FFF, 0x8000])),
    (f"L08 fail | mlx5_0:1 | {NO_IPV4}", {"rdma": with_first(NO_GID, roce)}),
    (f"L08 warn | mlx5_0:1 | {NO_IPV4}", {"rdma": [NO_GID]}),
    (f"L08 fail | mlx5_0:1 | {NO_IPV6}", {"rdma": with_first(NO_GID, roce), "given": V6}),
    ("L09 fail | mlx5_0:1, mlx5_1:1 | uverbs is missing", {"rdma": WITHOUT_UVERBS}),
    (f"L10 fail | mlx5_0:1 | {NO_LIBRARY}", unopenable(NO_LIBRARY)),
    (f"L10 fail | mlx5_0:1 | {NO_DRIVER}", unopenable(NO_DRIVER)),
    (f"L11 fail | libnccl-net.so | {ABSENT}", {"rdma": [efa(0), efa(1)], "libraries": NO_EFA}),
    ("L12 fail | ulimit -l | 8 MiB", {"limits": LOCKED}),
    ("L12 warn | ulimit -l | 1 GiB", {"limits": replace(LOCKED, memlock_bytes=GIB)}),
    ("L13 warn | | no nvidia_peermem, and not the open kernel driver", {"is_direct": False}),
    ("L20 warn | mlx5_3:1 | link_downed rose by 1, symbol_error rose by 20", FLAPPING),
]


@pytest.mark.parametrize(("words", "changes"), WRONG)
def test_on_a_node_whose_program_uses_no_rdma_nothing_of_it_is_a_failure(
    words: str, changes: dict[str, Any]
) -> None:
    here = machine(**(changes | {"given": {"NCCL_NET": "Socket"}}))
    assert "fail" not in {level for _, level, _, _ in complaints(here)}


def test_require_rdma_makes_it_a_failure_without_gpus_too() -> None:
    here = machine(**NO_MANAGER, gpus_seen=0, gpu_nodes=0, require_rdma=True)
    assert complaints(here) == [complaint(INIT)]


DOWN_HALF = half_rate(8, state="DOWN", phys_state="Polling")
INIT_HALF = half_rate(8, state="INIT", lid=0, sm_lid=0)
TWO_PORTS = [port(0), LOST]
NO_FAULT: dict[str, dict[str, Any]] = {
    "spare port": {"rdma": [port(0), port(1, hca_type="MT4125", state="DOWN"), port(2)]},
    "NDR200": {"rdma": [half_rate(i) for i in range(8)]},
    "storage at another rate": {"rdma": [*EIGHT, half_rate(8), half_rate(9)]},
    "storage without subnet manager": {"rdma": [*EIGHT, INIT_HALF]},
    "storage that is down": {"rdma": [*EIGHT, DOWN_HALF]},
    "a rail for two GPUs, and storage": {"rdma": [*EIGHT[:4], half_rate(8)]},
    "three rails, and storage": {"rdma": [*EIGHT[:3], half_rate(3), half_rate(4)]},
    "a rail for each of two GPUs": {"rdma": [*EIGHT[:2], *IS_DOWN], "gpu_nodes": 2},
    "no direct way and no GPU": {"is_direct": False, "gpu_nodes": 0, "gpus_seen": 0},
    "a port that is not named": {"rdma": TWO_PORTS, "given": {"NCCL_IB_HCA": "=mlx5_0"}},
    "a port that is excluded": {"rdma": TWO_PORTS, "given": {"NCCL_IB_HCA": "^=mlx5_1:1"}},
    "front end": {"rdma": [*EIGHT[:4], roce(9, hca_type="MT4125", gid_index=None)]},
    "EFA": {"rdma": [efa(0)], "libraries": NO_EFA | {EFA_LIBRARIES[1]: ""}},
    "a plugin": {"rdma": [efa(0)], "libraries": NO_EFA, "given": {"NCCL_NET_PLUGIN": "ofi"}},
    "IPC_LOCK": {"limits": replace(LOCKED, may_lock=True)},
    "no RDMA": {"rdma": []},
}


def test_of_roce_over_ipv6_its_ipv6_addresses_are_judged(tmp_path: Path) -> None:
    (tmp_path / "nccl.conf").write_text("NCCL_IB_ADDR_FAMILY=AF_INET6\n")
    roce_8x400(tmp_path / "v4")
    environ = {"PATH": "", "NCCL_CONF_FILE": str(tmp_path / "nccl.conf")}
    here = look_around("torchrun", [], environ, root=tmp_path / "v4", limit_seconds=30.0)
    assert {port.gid_index for port in here.rdma} == {None}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "routable RoCE v2 GID at index 3, 5"),
        ({"NCCL_IB_GID_INDEX": "3"}, "NCCL_IB_GID_INDEX at index 3, 5"),
    ],
)
def test_at_which_index_a_gid_was_found_is_said(given: dict[str, str], words: str) -> None:
    here = machine(rdma=[roce(0, gid_index=5), roce(1, gid_index=3)], given=given)
    [found] = RDMA_JUDGES[Check.ROCE_ADDRESSES](here)
    assert (found.level, found.value) == ("ok", words)


def test_an_index_that_names_no_gid_is_said() -> None:
    bare = [roce(i, gid_index=None, problem="no GID at index 9") for i in range(8)]
    here = machine(rdma=bare, given={"NCCL_IB_GID_INDEX": "9"})
    [found] = RDMA_JUDGES[Check.ROCE_ADDRESSES](here)
    assert (found.level, found.value) == ("fail", "no GID at index 9")
    assert found.fix.startswith("unset NCCL_IB_GID_INDEX")


def test_the_accelerated_half_of_a_network_card_is_no_rail() -> None:
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
    for off in ("1", "01", " 1;", "-1", "0xa", "0x0f"):
        assert not wants_rdma(machine(given={"NCCL_IB_DISABLE": off}))
    for on in ("", "0", "00", "08", "0x0", "x1", "false"):  # NCCL reads what is no number as 0
        assert wants_rdma(machine(given={"NCCL_IB_DISABLE": on}))
    assert not wants_rdma(machine(given={"NCCL_NET": "Socket"}))
    assert wants_rdma(machine(given={"NCCL_NET": "Socket"}, require_rdma=True))


@pytest.mark.parametrize(("number", "required"), [(1, False), (2, False), (2, True)])
def test_a_plain_network_card_that_can_do_rdma_fails_nobody(number: int, required: bool) -> None:
    cards = [roce(i, openable=False, problem="it is not in /dev/infiniband") for i in range(number)]
    found = complaints(machine(rdma=cards, limits=LOCKED, require_rdma=required))
    assert {level for _, level, _, _ in found} == {"fail" if required else "warn"}


# ---- trees of four real machines, one of them with a fault --------------------------------------

SIZE, ODD = 4, 2
ND, ROCE, EFA, TCP = (
    [partial(build, node=slot + 1) for slot in range(SIZE)]
    for build in (nd_h100_v5, roce_8x400, efa_p5, tcp_only)
)
ND_HCAS = [f"mlx5_ib{i}:1" for i in range(8)]
ROCE_HCAS = [f"mlx5_{i}:1" for i in (0, 3, 4, 5, 6, 9, 10, 11)]


def seen(trees: Trees, builders: Sequence[Builder]) -> tuple[list[JoinRequest], list[Finding]]:
    """Nodes as they join, and every warning and failure of the run."""
    joins, found = [], []
    for slot, build in enumerate(builders):
        root, addresses = trees(build)
        facts = Facts(gpus=8, boot_id=f"boot-{slot}", rdma=look_rdma(root))
        network = look(root, links=links_of(root, addresses))
        here = Surroundings(facts=facts, network=network, libraries={"libnccl-net.so": ""})
        joins.append(make_join(slot, hostname=f"h{slot}", facts=facts))
        for check, judge in RDMA_JUDGES.items():
            own = [verdict.finding(check) for verdict in judge(here)]
            found += [replace(one, slot=slot) for one in own]
    found += compare(joins, require_rdma=False)
    return joins, [one for one in found if one.level in ("warn", "fail")]


@pytest.mark.parametrize(
    ("builders", "expected"),
    [
        (ND, RdmaExpectation("IB", dict.fromkeys(range(SIZE), ND_HCAS))),
        ([partial(build, accelerated=False) for build in ND], RdmaExpectation("IB")),
        (ROCE, RdmaExpectation("IB", dict.fromkeys(range(SIZE), ROCE_HCAS))),
        (EFA, RdmaExpectation("Libfabric")),
        (TCP, RdmaExpectation("Socket")),
    ],
    ids=["InfiniBand", "no front end", "RoCE", "EFA", "TCP"],
)
def test_what_nccl_is_to_use_follows_from_sound_machines_and_nothing_is_said(
    trees: Trees, builders: Sequence[Builder], expected: RdmaExpectation
) -> None:
    joins, findings = seen(trees, builders)
    assert rdma_of(joins) == expected
    assert findings == []


def not_given(build: Builder) -> Builder:
    """The machine as seen by a container that was not given its devices."""

    def built(root: Path) -> Addresses:
        addresses = build(root)
        refuse(root / "dev/infiniband")
        return addresses

    return built


@pytest.mark.parametrize(
    ("sound", "odd", "findings"),
    [
        (ND, partial(ND[ODD], bad={2: DOWN}), "L04 warn, X04 fail"),
        (ND, partial(ND[ODD], without_uverbs=[7]), "L09 fail, X04 fail"),
        (ND, TCP[ODD], "X04 fail"),
        (ROCE, partial(ROCE[ODD], v4=False), "L08 fail, X04 fail, X04 warn, X06 warn"),
        (EFA, not_given(EFA[ODD]), "L09 fail, X04 fail"),
    ],
    ids=["cable out", "one device not given", "no RDMA", "no IPv4 address", "no device given"],
)
def test_the_machine_with_a_fault_is_named_and_no_other(
    trees: Trees, sound: list[Builder], odd: Builder, findings: str
) -> None:
    _, found = seen(trees, [*sound[:ODD], odd, *sound[ODD + 1 :]])
    assert {one.slot for one in found} == {ODD}
    assert [*dict.fromkeys(f"{one.check} {one.level}" for one in found)] == findings.split(", ")
