"""What NCCL's log says of its network: the lines of its versions, and the verdict on a node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rendezvous.wire.reports import ProgressReport
from worker.nccl.verdict import Heard, NetworkVerdict, judge, take_in

LOGS = Path(__file__).parent / "nccl"
INSTALL = (
    "libibverbs cannot be loaded; install it in the image, with its providers "
    "(rdma-core: libibverbs1, ibverbs-providers)"
)
DEVICE = (
    "it may not open mlx5_0; give the container /dev/infiniband (for example --device "
    "/dev/infiniband) and unlimited memlock"
)
STARTS = (
    "Using network ",
    "NET/Socket : Using [0]",
    "NCCL_NET set by environment to ",
    "Failed to initialize any NET plugin",
    " via NET/IB/0",
)
FOUR = "mlx5_ib0, mlx5_ib1, mlx5_ib2, mlx5_ib3"
FALLBACK = "NCCL uses sockets (eth0), and InfiniBand or RoCE was expected: "
NO_PORT = (
    "NCCL uses sockets (eth0, ib0), and EFA was expected: it found no usable RDMA port; 'rdzv "
    "doctor' on that node says why"
)
UNUSABLE = f"NCCL cannot use IB, and may use no other network: {INSTALL}"


def heard(name: str) -> Heard:
    found = Heard()
    for line in (LOGS / f"{name}.log").read_text().splitlines():
        take_in(found, line)
    return found


def verdicts(*names: str, expected: str = "IB", required: bool = False) -> list[NetworkVerdict]:
    return list(judge([heard(name) for name in names], expected, required=required))


# ---- as it should be ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected", "words"),
    [
        ("ib", "IB", f"IB ({FOUR}) with GPUDirect"),
        ("ib_2_27", "IB", "IB (mlx5_0, mlx5_1) with GPUDirect"),
        ("ibext", "IB", "IBext (mlx5_0, mlx5_1)"),
        ("ib", "", f"IB ({FOUR}) with GPUDirect"),
        ("efa", "Libfabric", "AWS Libfabric with GPUDirect"),
        ("sockets", "Socket", "Socket"),
        ("sockets", "", "Socket"),
    ],
)
def test_what_was_expected_is_told_with_its_ports(name: str, expected: str, words: str) -> None:
    assert verdicts(name, expected=expected) == [
        NetworkVerdict("as_expected", "ok", f"NCCL uses {words}")
    ]


def test_processes_that_have_not_said_anything_are_no_verdict() -> None:
    assert list(judge([], "IB", required=True)) == []
    assert list(judge([Heard()], "IB", required=True)) == []


# ---- a fall-back, and what is slow ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected", "kind", "words"),
    [
        ("no_library", "IB", "fallback", FALLBACK + INSTALL),
        ("no_library_2_30", "IB", "fallback", FALLBACK + INSTALL),
        ("unopened", "IB", "fallback", FALLBACK + DEVICE),
        ("disabled", "IB", "fallback", f"{FALLBACK}NCCL_IB_DISABLE is set; unset it"),
        ("sockets", "Libfabric", "fallback", NO_PORT),
        ("not_found", "IB", "unusable", UNUSABLE),
        ("not_found_2_27", "IB", "unusable", UNUSABLE),
    ],
)
def test_what_keeps_nccl_from_its_network_is_told_with_its_cause_and_what_to_do(
    name: str, expected: str, kind: Any, words: str
) -> None:
    levels: dict[bool, Any] = {False: "warn", True: "fail"}
    for required, level in levels.items():
        found = verdicts(name, expected=expected, required=required)
        assert found == [NetworkVerdict(kind, level, words)]


def test_required_rdma_expects_it_whatever_the_table_knows() -> None:
    [found] = verdicts("no_library", expected="", required=True)
    assert (found.kind, found.level) == ("fallback", "fail")


def test_a_fall_back_of_some_processes_says_of_how_many() -> None:
    [found] = verdicts("ib", "no_library", "ib", "ib")
    assert found.words == FALLBACK.replace("(eth0)", "(eth0) in 1 of 4 processes") + INSTALL


def test_data_that_goes_through_the_hosts_memory_is_a_warning_also_where_rdma_is_required() -> None:
    found = verdicts("host_memory", required=True)
    kinds = [(one.kind, one.level) for one in found]
    assert kinds == [("host_memory", "warn"), ("as_expected", "ok")]
    assert found[0].words == (
        "NCCL uses IB without GPUDirect: all data goes through the host's memory; load "
        "nvidia_peermem (modprobe nvidia_peermem), or a driver with DMA-BUF"
    )


def test_nodes_with_different_numbers_of_devices_are_a_warning() -> None:
    assert [one.kind for one in verdicts("uneven")] == ["uneven", "as_expected"]


# ---- whatever stands there ----------------------------------------------------------------------


@given(st.text(max_size=200))
def test_any_line_is_taken_and_what_is_told_of_it_fits_a_report(line: str) -> None:
    found = Heard()
    for start in STARTS:
        take_in(found, f"n1:1:1 [0] NCCL INFO {start}{line}")
    for verdict in judge([found], "IB", required=True):
        assert ProgressReport(epoch=1, words=verdict.words).words == verdict.words


def test_what_the_program_prints_of_its_own_is_no_line_of_nccls() -> None:
    found = Heard()
    take_in(found, "step 3: Using network Socket")
    assert found == Heard()


def test_many_ports_are_cut_short() -> None:
    found = Heard()
    ports = " ".join(f"[{n}]mlx5_{n}:1/IB" for n in range(12))
    take_in(found, f"n1:1:1 [0] NCCL INFO NET/IB : Using {ports} [RO]; OOB eth0:10.0.0.1<0>")
    assert found.ports == [*(f"mlx5_{n}" for n in range(7)), "5 more"]
