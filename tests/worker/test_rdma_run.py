"""Four machines with RDMA, from the trees of their /sys to what is said of the run.

One of them has a fault. The checks on the machine itself and those over all of them name it, and
what NCCL is to use follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rendezvous.proof.compare import compare
from rendezvous.proof.findings import finding_text
from rendezvous.proof.rdma import RdmaExpectation, rdma_of
from rendezvous.wire.node import Facts, JoinRequest
from tests.support.driver import make_join, make_spec
from tests.support.fake_sysfs import (
    DOWN,
    SLOW,
    UNMANAGED,
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
from worker.machine.interfaces import look
from worker.machine.rdma import look_rdma
from worker.machine.surroundings import Surroundings
from worker.preflight.rdma import RDMA_JUDGES

SIZE, ODD = 4, 2
ND = [partial(nd_h100_v5, node=slot + 1) for slot in range(SIZE)]
ROCE = [partial(roce_8x400, node=slot + 1) for slot in range(SIZE)]
EFA = [partial(efa_p5, node=slot + 1) for slot in range(SIZE)]
TCP = [partial(tcp_only, node=slot + 1) for slot in range(SIZE)]
ND_HCAS = [f"mlx5_ib{i}:1" for i in range(8)]
ROCE_HCAS = [f"mlx5_{i}:1" for i in (0, 3, 4, 5, 6, 9, 10, 11)]


def machine(trees: Trees, build: Builder, slot: int) -> tuple[JoinRequest, Surroundings]:
    """A node as it joins, and as its own checks see it."""
    root, addresses = trees(build)
    facts = Facts(gpus=8, boot_id=f"boot-{slot}", rdma=look_rdma(root))
    here = Surroundings(
        facts=facts,
        network=look(root, links=links_of(root, addresses)),
        libraries={"libnccl-net.so": ""},
    )
    return make_join(slot, hostname=f"h{slot}", facts=facts), here


def joins(trees: Trees, builders: Sequence[Builder]) -> list[JoinRequest]:
    return [machine(trees, build, slot)[0] for slot, build in enumerate(builders)]


def said(trees: Trees, builders: Sequence[Builder]) -> list[str]:
    """Every warning and failure of the run: level, check, sentence."""
    machines = [machine(trees, build, slot) for slot, build in enumerate(builders)]
    found = [
        verdict.finding(check).model_copy(update={"slot": slot})
        for slot, (_, here) in enumerate(machines)
        for check, judge in RDMA_JUDGES.items()
        for verdict in judge(here)
    ]
    found += compare([join for join, _ in machines], make_spec(SIZE))
    hostnames = {slot: f"h{slot}" for slot in range(SIZE)}
    return [
        f"{one.level} {one.check} {finding_text(one, hostnames)}"
        for one in found
        if one.level in ("warn", "fail")
    ]


def with_odd(sound: Sequence[Builder], odd: Builder) -> list[Builder]:
    return [odd if slot == ODD else build for slot, build in enumerate(sound)]


# ---- sound machines -----------------------------------------------------------------------------

SOUND: dict[str, tuple[Sequence[Builder], RdmaExpectation]] = {
    "InfiniBand": (ND, RdmaExpectation("IB", dict.fromkeys(range(SIZE), ND_HCAS))),
    "no front end": ([partial(b, accelerated=False) for b in ND], RdmaExpectation("IB")),
    "RoCE": (ROCE, RdmaExpectation("IB", dict.fromkeys(range(SIZE), ROCE_HCAS))),
    "EFA": (EFA, RdmaExpectation("Libfabric")),
    "TCP": (TCP, RdmaExpectation("Socket")),
}


@pytest.mark.parametrize("name", SOUND)
def test_what_nccl_is_to_use_follows_from_sound_machines_and_nothing_is_said(
    trees: Trees, name: str
) -> None:
    builders, expected = SOUND[name]
    assert rdma_of(joins(trees, builders)) == expected
    assert said(trees, builders) == []


# ---- one fault ----------------------------------------------------------------------------------


def with_files(build: Builder, device: str, files: dict[str, str]) -> Builder:
    """The machine with other words in some files of one RDMA device."""

    def built(root: Path) -> Addresses:
        addresses = build(root)
        for name, text in files.items():
            (root / "sys/class/infiniband" / device / name).write_text(f"{text}\n")
        return addresses

    return built


def not_given(build: Builder) -> Builder:
    """The machine as seen by a container that was not given its devices."""

    def built(root: Path) -> Addresses:
        addresses = build(root)
        refuse(root / "dev/infiniband")
        return addresses

    return built


def nd(**changes: Any) -> list[Builder]:
    """Machines with InfiniBand, of which the odd one has these faults."""
    return with_odd(ND, partial(nd_h100_v5, node=ODD + 1, **changes))


def nd_with(files: dict[str, str]) -> list[Builder]:
    return with_odd(ND, with_files(ND[ODD], "mlx5_ib0", files))


def roce(**changes: Any) -> list[Builder]:
    """Machines with RoCE, of which the odd one has these faults."""
    return with_odd(ROCE, partial(roce_8x400, node=ODD + 1, **changes))


DISABLED = {"state": "1: DOWN", "phys_state": "3: Disabled"}
NARROW = {"rate": "200 Gb/sec (2X NDR)"}
PREFIX = "fec0:0000:0000:0000:0015:5dff:fd34:0300"
MTU = {"device/net/rdma0/mtu": "1500"}
FAULTS: dict[str, tuple[list[Builder], str]] = {
    "an InfiniBand port whose cable is out": (nd(bad={2: DOWN}), "warn L04, fail X04"),
    "an InfiniBand port that is switched off": (nd(bad={2: DISABLED}), "warn L04, fail X04"),
    "an InfiniBand port that no subnet manager has configured": (
        nd(bad={5: UNMANAGED}),
        "fail L05, fail X04",
    ),
    "an InfiniBand port at half its rate": (nd(bad={6: SLOW}), "fail L06, fail X04"),
    "an InfiniBand port with half its lanes": (nd(bad={6: NARROW}), "fail L06, fail X04"),
    "one machine with the network cards of the generation before": (
        nd(bad=dict.fromkeys(range(8), SLOW)),
        "fail X04",
    ),
    "a container that lacks one RDMA device": (nd(without_uverbs=[7]), "fail L09, fail X04"),
    "a container that sees all RDMA devices and was given none": (
        with_odd(ND, not_given(ND[ODD])),
        "fail L09, fail X04",
    ),
    "a port that is no full member of its partition": (
        nd_with({"ports/1/pkeys/0": "0x7fff"}),
        "fail L07, fail X04",
    ),
    "a port in another partition": (nd_with({"ports/1/pkeys/0": "0x8002"}), "fail X05"),
    "a port in another InfiniBand subnet": (nd_with({"ports/1/gids/0": PREFIX}), "warn X05"),
    "a network card with older firmware": (nd_with({"fw_ver": "28.38.1002"}), "warn X04"),
    "a machine without RDMA among others": (with_odd(ND, TCP[ODD]), "fail X04"),
    "RoCE rails without an IPv4 address": (
        roce(v4=False),
        "fail L08, fail X04, warn X04, warn X06",
    ),
    "a RoCE rail that is down": (roce(bad={1: DOWN}), "warn L04, fail X04"),
    "a RoCE rail at half its rate": (roce(bad={3: SLOW}), "fail L06, fail X04"),
    "a RoCE rail whose MTU is another": (
        with_odd(ROCE, with_files(ROCE[ODD], "mlx5_0", MTU)),
        "warn X06",
    ),
    "EFA devices that the container was not given": (
        with_odd(EFA, not_given(EFA[ODD])),
        "fail L09, fail X04",
    ),
}
"""Machines, and the findings on them."""


@pytest.mark.parametrize("fault", FAULTS)
def test_the_machine_with_a_fault_is_named_and_no_other(trees: Trees, fault: str) -> None:
    builders, findings = FAULTS[fault]
    found = said(trees, builders)
    assert all(" slot 2 (h2)" in sentence for sentence in found), found
    assert list(dict.fromkeys(one[:8] for one in found)) == findings.split(", ")


@pytest.mark.parametrize(
    ("builders", "expected"),
    [
        (nd(bad={2: DOWN}), RdmaExpectation("")),
        (nd(bad={6: SLOW}), RdmaExpectation("IB")),
        (with_odd(ND, not_given(ND[ODD])), RdmaExpectation("")),
        ([not_given(build) for build in ND], RdmaExpectation("Socket")),
    ],
    ids=["one port down", "one port slow", "one container without", "all containers without"],
)
def test_nothing_is_written_for_nccl_to_hide_a_fault(
    trees: Trees, builders: Sequence[Builder], expected: RdmaExpectation
) -> None:
    assert rdma_of(joins(trees, builders)) == expected
