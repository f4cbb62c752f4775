"""What `worker.machine.rdma` sees in trees of real machines, and what libibverbs makes of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from rendezvous.wire.node import RdmaPort
from tests.support import fake_drivers
from tests.support.fake_sysfs import (
    DOWN,
    EMPTY_GID,
    SLOW,
    UNMANAGED,
    PortFiles,
    SysfsTree,
    Trees,
    efa_p5,
    nd_h100_v5,
    refuse,
    refused,
    roce_8x400,
)
from tests.support.rows import rows
from worker.machine.rdma import Unopened, error_counters, look_rdma, open_devices, opened
from worker.nccl.env import Given, gid_wish

ROCE_RAILS = [f"mlx5_{i}" for i in (0, 3, 4, 5, 6, 9, 10, 11)]
NO_GID = "no IPv4 RoCE v2 GID: its interface has no IPv4 address"
NOT_GIVEN = "it is not in /dev/infiniband: the container does not have the device"


def one_port(root: Path, port: PortFiles, **how: Any) -> RdmaPort:
    """The port of a machine that has this one device, mlx5_0."""
    tree = SysfsTree(root, node=1)
    card = tree.pci("0000:01:00.0")
    files = {"link_layer": "InfiniBand", "rate": "400 Gb/sec (4X NDR)", "lid": "0x7"} | dict(port)
    tree.rdma("mlx5_0", device=card, hca_type="MT4129", port=files, **how)
    return look_rdma(root)[0]


# ---- the four machine types, whole and degraded -------------------------------------------------


def up_port(device: str, number: int, **values: Any) -> RdmaPort:
    """A port of a whole machine, the so manieth of its devices."""
    guid = f"a288:c203:0004:{number:04x}"
    up = {"state": "ACTIVE", "phys_state": "LinkUp", "firmware": "28.39.1002", "node_guid": guid}
    fast = {"rate_gbps": 400.0, "rate": "400 Gb/sec (4X NDR)", "pkeys": [0xFFFF]}
    return RdmaPort(device=device, **(up | fast | values))  # type: ignore[arg-type]


SLOWER = {"link_layer": "Ethernet", "rate_gbps": 100.0, "rate": "100 Gb/sec (4X EDR)"}
ROUTABLE = {"link_layer": "Ethernet", "gid_index": 3, "gid_type": "RoCE v2"}


def infiniband_rail(i: int) -> RdmaPort:
    values: dict[str, Any] = {"link_layer": "InfiniBand", "pkeys": [0x801D, 0x7FFF]}
    values |= {
        "hca_type": "MT4126",
        "lid": 0x420 + i,
        "sm_lid": 1,
        "mtu": 2044,
        "subnet_prefix": "fe80:0000:0000:0000",
    }
    values |= {"node_guid": f"0015:5dff:fd34:040{i}", "interface": f"ib{i}"}
    return up_port(f"mlx5_ib{i}", i, **values)


def test_an_infiniband_machine_has_eight_ports_and_an_accelerated_front_end(trees: Trees) -> None:
    root, _ = trees(nd_h100_v5)
    values = SLOWER | {"hca_type": "MT4122", "mtu": 1500, "problem": NO_GID, "interface": "eth1"}
    front = up_port("mlx5_an0", 8, **values)
    assert look_rdma(root) == [front, *map(infiniband_rail, range(8))]


def test_a_roce_machine_has_eight_rails_and_a_front_end_that_does_roce_too(trees: Trees) -> None:
    root, _ = trees(roce_8x400)
    rails = [
        up_port(device, i, **ROUTABLE, hca_type="MT4129", mtu=4220, interface=f"rdma{i}")
        for i, device in enumerate(ROCE_RAILS)
    ]
    values = ROUTABLE | SLOWER | {"hca_type": "MT4125", "mtu": 9000, "interface": "eth0"}
    assert look_rdma(root) == [rails[0], up_port("mlx5_2", 8, **values), *rails[1:]]


def test_an_efa_machine_has_32_ports_that_a_plugin_can_use(trees: Trees) -> None:
    root, _ = trees(efa_p5)
    ports = look_rdma(root)
    values = SLOWER | {"link_layer": "Unknown", "firmware": "0.0.0.0"}
    assert ports[0] == up_port("rdmap79s0", 0, **values)
    assert len(ports) == 32
    assert {port.problem for port in ports} == {""}


def test_rails_without_an_ipv4_address_have_no_gid_that_others_can_reach(trees: Trees) -> None:
    root, _ = trees(partial(roce_8x400, v4=False))
    found = {port.device: port.problem for port in look_rdma(root) if port.problem}
    assert found == dict.fromkeys(ROCE_RAILS, NO_GID)


def test_a_container_that_was_given_no_device_sees_all_and_can_use_none(trees: Trees) -> None:
    root, _ = trees(nd_h100_v5)
    with refused(root / "dev/infiniband"):
        ports = look_rdma(root)
    assert [(port.openable, port.problem) for port in ports] == [(False, NOT_GIVEN)] * 9


# ---- one port -----------------------------------------------------------------------------------


AT, LINK = "the port is", "its link"
NOT_FINISHED = "the subnet manager has not finished with it"
RECOVERS, HAS_ERRORS = "6: LinkErrorRecovery", "the link has errors"
SWITCHED_OFF = "it is switched off"
TRAINS = "4: PortConfigurationTraining"


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        *(({}, ""), ({"phys_state": ""}, ""), (SLOW, ""), ({"lid": ""}, "")),
        ({"sm_lid": "0x0"}, ""),  # virtual functions of some clouds tell none
        ({"state": ""}, "the kernel does not report its state"),
        ({"state": "3: ARMED"}, f"{AT} ARMED and {LINK} LinkUp: {NOT_FINISHED}"),
        ({"state": "5: ACTIVE_DEFER"}, f"{AT} ACTIVE_DEFER and {LINK} LinkUp"),
        ({"phys_state": RECOVERS}, f"{AT} ACTIVE and {LINK} LinkErrorRecovery: {HAS_ERRORS}"),
        ({"state": "1: DOWN", "phys_state": TRAINS}, f"{AT} DOWN and {LINK} {TRAINS[3:]}"),
        ({"state": "1: DOWN", "phys_state": ""}, f"{AT} DOWN"),
        (DOWN, f"{AT} DOWN and {LINK} Polling: nothing answers at the other end of the cable"),
        (DOWN | {"phys_state": "3: Disabled"}, f"{AT} DOWN and {LINK} Disabled: {SWITCHED_OFF}"),
        (UNMANAGED, f"{AT} INIT and {LINK} LinkUp: no subnet manager has configured it"),
        ({"lid": "0x0"}, "it has no LID: no subnet manager has configured it"),
        ({"link_layer": ""}, "NCCL does not support its link layer (unknown)"),
        ({"link_layer": "Unknown"}, "NCCL does not support its link layer (Unknown)"),
        ({"link_layer": "Ethernet"}, "no IPv4 RoCE v2 GID"),
    ],
)
def test_a_port_is_usable_or_says_why_not(tmp_path: Path, files: PortFiles, problem: str) -> None:
    assert one_port(tmp_path, files).problem == problem


V4, V1, V2 = "0000:0000:0000:0000:0000:ffff:0a00:0001", "IB/RoCE v1", "RoCE v2"
V6 = "fd00:0000:0000:0000:0000:0000:0000:0001"
GID_OF = {
    "v4/1": (V4, V1, ""),
    "v4/2": (V4, V2, ""),
    "v6/1": (V6, V1, ""),
    "v6/2": (V6, V2, ""),
    **{f"ll6/{n}": (f"fe80{V6[4:]}", kind, "") for n, kind in ((1, V1), (2, V2))},
    "ll4/2": ("0000:0000:0000:0000:0000:ffff:a9fe:0001", V2, ""),
    "none": (EMPTY_GID, "", ""),
    "odd": ("no gid", V2, ""),
    "bare": ("", V2, ""),
}
ALL_GIDS, FEW = "ll6/1 ll6/2 v6/1 v6/2 v4/2 none", "no IPv4 RoCE v2 GID"
GIDS = f"""
v4/1 v4/2         |                                                      | 1
none none v4/2    |                                                      | 2
{"v6/2 " * 11}v4/2 |                                                     | 11
ll4/2 v4/2        |                                                      | 1
v4/1              |                                                      | {FEW}
v6/2              |                                                      | {FEW}
odd bare          |                                                      | {FEW}
                  |                                                      | {FEW}
{ALL_GIDS}        |                                                      | 4
{ALL_GIDS}        | NCCL_IB_ADDR_FAMILY=AF_INET                          | 4
{ALL_GIDS}        | NCCL_IB_ADDR_FAMILY=AF_INET6                         | 3
{ALL_GIDS}        | NCCL_IB_GID_INDEX=1                                  | 1
{ALL_GIDS}        | NCCL_IB_GID_INDEX=0                                  | 0
{ALL_GIDS}        | NCCL_IB_GID_INDEX=5                                  | no GID at index 5
{ALL_GIDS}        | NCCL_IB_GID_INDEX=-1 NCCL_IB_ADDR_FAMILY=AF_INET6    | 3
{ALL_GIDS}        | NCCL_IB_GID_INDEX=one                                | 4
"""


@pytest.mark.parametrize(("gids", "given", "found"), rows(GIDS))
def test_the_gid_is_the_one_that_nccl_would_take(
    tmp_path: Path, gids: str, given: str, found: str
) -> None:
    """By itself, the first of the family that reaches other subnets, or as the user asks."""
    slots = [GID_OF[word] for word in gids.split()]
    one_port(tmp_path, {"link_layer": "Ethernet"}, gids=slots)
    words = [word.split("=") for word in given.split()]
    [port] = look_rdma(tmp_path, gid_wish({name: Given(value) for name, value in words}))
    index = int(found) if found.isdecimal() else None
    assert (port.gid_index, port.gid_type) == (index, "" if index is None else slots[index][1])
    assert port.problem == ("" if found.isdecimal() else found)


SUBNET = "fec0:0000:0000:0001"
NO_MEMBER = "it is not a full member of any partition (pkeys 0x"


@pytest.mark.parametrize(
    ("how", "field", "value"),
    [
        *(({"pkeys": keys}, "problem", "") for keys in (("0x7fff", "0x801d"), (), ("0x0000",))),
        ({"pkeys": ["0x7fff"]}, "problem", f"{NO_MEMBER}7fff)"),
        ({"pkeys": ["0x8000", "0x7fff"]}, "problem", f"{NO_MEMBER}8000, 0x7fff)"),
        ({"gids": [(f"{SUBNET}:0015:5dff:fd34:0400", V1, "")]}, "subnet_prefix", SUBNET),
        *(({"gids": [(gid, V1, "")]}, "subnet_prefix", "") for gid in ("", "fe80::1")),
        ({"port": {"rate": "2.5 Gb/sec (1X SDR)"}}, "rate_gbps", 2.5),
        ({"port": {"rate": "2.5 Gb/sec (1X SDR)"}}, "rate", "2.5 Gb/sec (1X SDR)"),
        *(({"port": {"rate": r}}, "rate_gbps", 0.0) for r in ("", "fast", "9999999999 Gb/sec")),
    ],
)
def test_partitions_subnet_and_rate_of_a_port(
    tmp_path: Path, how: dict[str, Any], field: str, value: object
) -> None:
    assert getattr(one_port(tmp_path, **({"port": {}} | how)), field) == value


def test_a_device_without_uverbs_node_needs_a_kernel_module(tmp_path: Path) -> None:
    one_port(tmp_path, {})
    shutil.rmtree(tmp_path / "sys/class/infiniband/mlx5_0/device/infiniband_verbs")
    words = "it has no uverbs node: the kernel module ib_uverbs is not loaded"
    assert [port.problem for port in look_rdma(tmp_path)] == [words]


def test_a_uverbs_node_that_this_user_may_not_open_is_a_problem() -> None:
    script = "import os, sys; from pathlib import Path; from worker.machine.rdma import look_rdma; "
    script += "os.getuid() or os.setuid(65534); print(look_rdma(Path(sys.argv[1]))[0].problem)"
    with TemporaryDirectory() as folder:  # another user cannot enter pytest's
        Path(folder).chmod(0o755)
        assert one_port(Path(folder), {}).problem == ""
        Path(folder, "dev/infiniband/uverbs0").chmod(0o000)
        command = [sys.executable, "-c", script, folder]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "this user cannot read and write it in /dev/infiniband\n"


def test_the_ports_of_a_card_with_two_have_an_interface_each(tmp_path: Path) -> None:
    tree = SysfsTree(tmp_path, node=1)
    card = tree.pci("0000:01:00.0")
    for name, dev_port in (("ens1", "0"), ("ens1d1", "1")):
        (tree.net(name, device=card) / "dev_port").write_text(f"{dev_port}\n")
    files = {"link_layer": "InfiniBand", "lid": "0x7"}
    tree.rdma("mlx4_0", device=card, hca_type="MT4103", port=files)
    ports = tmp_path / "sys/class/infiniband/mlx4_0/ports"
    shutil.copytree(ports / "1", ports / "2")
    (ports / "not a port").mkdir()
    seen = [(port.port, port.interface) for port in look_rdma(tmp_path)]
    assert seen == [(1, "ens1"), (2, "ens1d1")]


def test_more_ports_than_a_join_carries_are_left_out(tmp_path: Path) -> None:
    for i in range(130):
        (tmp_path / f"sys/class/infiniband/mlx5_{i}/ports/1").mkdir(parents=True)
    assert [port.device for port in look_rdma(tmp_path)] == [f"mlx5_{i}" for i in range(128)]


def test_what_errors_were_counted_is_told_by_port(tmp_path: Path) -> None:
    one_port(tmp_path, {})
    counters = tmp_path / "sys/class/infiniband/mlx5_0/ports/1/counters"
    (counters / "link_downed").write_text("2\n")
    (counters / "symbol_error").write_text("N/A (no PMA)\n")
    refuse(counters / "port_rcv_errors")
    assert error_counters(tmp_path) == {
        "mlx5_0:1": {"link_downed": 2, "link_error_recovery": 0, "port_xmit_wait": 0}
    }


# ---- files that the kernel refuses --------------------------------------------------------------


def test_a_device_whose_files_cannot_be_read_is_still_listed(trees: Trees) -> None:
    root, _ = trees(partial(roce_8x400, node=9))
    *others, last = look_rdma(root)
    card = (root / "sys/class/infiniband" / last.device).resolve().parent.parent
    for path in [path for path in card.rglob("*") if path.is_file()]:
        refuse(path)
    problem = "the kernel does not report its state"
    left = RdmaPort(device=last.device, interface=last.interface, problem=problem)
    assert look_rdma(root) == [*others, left]


NO_INDEX = {"gid_index": None, "gid_type": ""}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        *((f"ports/1/{name}", NO_INDEX) for name in ("gids", "gid_attrs")),
        ("ports/1/gid_attrs/ndevs", {}),  # the card's only interface it is
        *(("ports/1/gid_attrs/types/0", {}), ("ports/1/pkeys", {"pkeys": []})),
        *(("ports/1/lid", {}), ("ports/1/phys_state", {"phys_state": ""})),
        ("ports/1/rate", {"rate": "", "rate_gbps": 0.0}),
        *(("hca_type", {"hca_type": ""}), ("fw_ver", {"firmware": ""})),
        *(("node_guid", {"node_guid": ""}), ("device/net/rdma7/mtu", {"mtu": 0})),
    ],
)
def test_what_cannot_be_read_is_unknown_and_the_rest_is_told(
    trees: Trees, path: str, expected: Mapping[str, Any]
) -> None:
    root, _ = trees(roce_8x400)
    whole = look_rdma(root)[-1]
    with refused(root / "sys/class/infiniband/mlx5_11" / path):
        seen = look_rdma(root)[-1]
    problem = NO_GID if "gid_index" in expected else ""
    assert seen == replace(whole, **expected, problem=problem)


def test_where_devices_cannot_be_listed_there_are_none(trees: Trees) -> None:
    root, _ = trees(roce_8x400)
    with refused(root / "sys/class/infiniband"):
        assert look_rdma(root) == []
        assert error_counters(root) == {}


# ---- libibverbs ---------------------------------------------------------------------------------


ALL = ["mlx5_0", "mlx5_1", "mlx5_2", "rdmap79s0"]
NOT_OPENED = "libibverbs cannot open it:"
SILENT = Unopened(f"{NOT_OPENED} the query ended with SIGABRT")
LACKING = Unopened("libibverbs has no driver for this device", lacks_library=True)
FAILED = [Unopened(f"ibv_open_device fails: {os.strerror(number)}") for number in (13, 19)]
WHY_NOT = dict(zip(ALL[1:], [*FAILED, LACKING], strict=True))


@pytest.mark.parametrize(
    ("devices", "limit_seconds", "unopened"),
    [
        (
            "mlx5_0 mlx5_1=13 mlx5_2=19 unasked=crash",
            20.0,
            WHY_NOT,
        ),
        ("mlx5_0 mlx5_1=crash mlx5_2 rdmap79s0", 20.0, dict.fromkeys(ALL[1:], SILENT)),
        ("mlx5_0=hang", 0.5, dict.fromkeys(ALL, Unopened(f"{NOT_OPENED} no answer within 0.5 s"))),
    ],
)
def test_each_device_is_opened_or_says_why_not_and_nobody_waits_for_a_driver(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    devices: str,
    limit_seconds: float,
    unopened: dict[str, Unopened],
) -> None:
    fake_drivers.install("ibverbs.c", "libibverbs.so.1", tmp_path / "lib", monkeypatch)
    monkeypatch.setenv("FAKE_VERBS", devices)
    assert open_devices(ALL, limit_seconds) == unopened


def test_without_a_libibverbs_that_can_be_loaded_no_device_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("libibverbs.so.1", "libibverbs.so"):
        (tmp_path / name).write_text("no library\n")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    said = f"libibverbs cannot be loaded: {tmp_path}/libibverbs.so.1: file too short"
    assert open_devices(["mlx5_0"], 20.0) == {"mlx5_0": Unopened(said, lacks_library=True)}


def test_what_opening_gives_is_the_problem_of_every_port_that_had_none(trees: Trees) -> None:
    ports = look_rdma(trees(nd_h100_v5)[0])
    tried = opened(ports, dict.fromkeys(["mlx5_an0", "mlx5_ib1"], LACKING))
    assert tried[2] == replace(ports[2], openable=False, problem=LACKING.problem)
    assert [*tried[:2], *tried[3:]] == [*ports[:2], *ports[3:]]
