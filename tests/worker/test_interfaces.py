"""What `worker.machine.interfaces` sees: in trees of real machines, and of a real kernel."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_sysfs import (
    IPOIB,
    LOOPBACK,
    NONE,
    Builder,
    SysfsTree,
    Trees,
    efa_p5,
    links_of,
    nd_h100_v5,
    refused,
    roce_8x400,
    tcp_only,
)
from worker.machine import netlink
from worker.machine.interfaces import count_gpus, look, route_source, why_unusable
from worker.machine.network import Interface, Network, RdmaKind

LO = Interface("lo", ("127.0.0.1/8", "::1/128"), carrier=True, mtu=65536, link_type=LOOPBACK)


UP: dict[str, Any] = {"carrier": True, "speed_mbps": 400_000}


def ib(number: int) -> Interface:
    """An IPoIB interface of which nothing more is known."""
    kind = RdmaKind("InfiniBand", "MT4126")
    return Interface(f"ib{number}", mtu=2044, link_type=IPOIB, is_physical=True, rdma=kind)


def by_name(machine: Network) -> dict[str, Interface]:
    return {interface.name: interface for interface in machine.interfaces}


def see(trees: Trees, build: Builder) -> Network:
    root, addresses = trees(build)
    return look(root, links=links_of(root, addresses))


def test_an_infiniband_machine_is_seen_whole(trees: Trees) -> None:
    machine = see(trees, nd_h100_v5)
    infiniband = RdmaKind("InfiniBand", "MT4126")
    accelerated = RdmaKind("Ethernet", "MT4122")
    nic: dict[str, Any] = {"carrier": True, "mtu": 1500, "speed_mbps": 100_000, "is_physical": True}
    six = "fe80::20d:3aff:fe00:1/64"
    assert list(machine.interfaces) == [
        Interface("docker0", ("172.17.0.1/16",), False, mtu=1500, is_bridge=True, carrier=False),
        Interface("eth0", ("10.0.0.4/24", six), **nic),
        Interface("eth1", (six,), master="eth0", rdma=accelerated, **nic),
        *(replace(ib(i), addresses=(f"172.{16 + i}.1.4/16",), **UP) for i in range(8)),
        LO,
    ]
    assert sorted(machine.rdma, key=str) == [accelerated, *[infiniband] * 8]


def test_ipoib_interfaces_that_are_down_have_no_address_and_no_speed(trees: Trees) -> None:
    machine = see(trees, partial(nd_h100_v5, ipoib=False))
    assert by_name(machine)["ib3"] == replace(ib(3), is_running=False, carrier=False)


def test_efa_devices_are_seen_although_they_have_no_interface(trees: Trees) -> None:
    machine = see(trees, efa_p5)
    assert machine.rdma == (RdmaKind("Unknown", ""),) * 32
    assert by_name(machine)["eth0"] == Interface(
        "eth0", ("10.1.3.4/20",), carrier=True, mtu=9001, speed_mbps=0, is_physical=True
    )


def test_bridges_ports_and_tunnels_are_told_apart(trees: Trees) -> None:
    seen = by_name(see(trees, tcp_only))
    assert (seen["cni0"].is_bridge, seen["cni0"].bridge) == (True, None)
    assert (seen["veth12ab"].is_bridge, seen["veth12ab"].bridge) == (False, "docker0")
    assert seen["tailscale0"] == Interface(
        "tailscale0", ("100.101.1.4/32",), carrier=True, mtu=1280, link_type=NONE
    )


def test_a_vlan_on_a_bond_is_of_the_kind_of_the_cards_below_and_a_bond_is_not(
    tmp_path: Path,
) -> None:
    tree = SysfsTree(tmp_path, node=1)
    card = tree.pci("0000:01:00.0")
    tree.rdma("mlx5_bond_0", device=card, hca_type="MT4125", port={"link_layer": "Ethernet"})
    tree.net("bond0")
    tree.net("bond1")
    tree.net("ens1", device=card, master="bond0")
    tree.net("bond0.7", over=["bond0"])
    seen = by_name(look(tmp_path, links=links_of(tmp_path, {})))
    physical = {name for name, interface in seen.items() if interface.is_physical}
    assert physical == {"bond0", "ens1", "bond0.7"}
    kinds = {name: interface.rdma for name, interface in seen.items() if interface.rdma}
    assert kinds == dict.fromkeys(physical, RdmaKind("Ethernet", "MT4125"))


@pytest.mark.parametrize(
    ("path", "unknown"),
    [
        *(("speed", {"speed_mbps": 0}), ("carrier", {"carrier": None}), ("type", {"link_type": 0})),
        ("device", {"is_physical": False, "rdma": None}),
        ("device/infiniband", {"rdma": None}),
        ("device/infiniband/mlx5_11/hca_type", {"rdma": RdmaKind("Ethernet", "")}),
        ("device/infiniband/mlx5_11/ports", {"rdma": RdmaKind("", "MT4129")}),
        ("bridge", {}),
        ("brport", {}),
        ("master", {"master": "x" * 300}),
    ],
)
def test_what_is_refused_hides_nothing_else(trees: Trees, path: str, unknown: Any) -> None:
    root, addresses = trees(roce_8x400)
    whole = by_name(look(root, links=links_of(root, addresses)))
    with refused(root / "sys/class/net/rdma7" / path):
        seen = by_name(look(root, links=links_of(root, addresses)))
    assert seen == whole | {"rdma7": replace(whole["rdma7"], **unknown)}


@pytest.mark.parametrize("path", ["sys/class/net", "sys/class/infiniband"])
def test_addresses_are_there_although_sysfs_tells_nothing_of_them(trees: Trees, path: str) -> None:
    root, addresses = trees(nd_h100_v5)
    with refused(root / path):
        seen = by_name(look(root, links=links_of(root, addresses)))
    assert {name: list(interface.addresses) for name, interface in seen.items()} == addresses
    assert seen["lo"].link_type == LOOPBACK


SEE = """
import dataclasses, json
from worker.machine.interfaces import look, route_source, why_unusable
hosts = ("10.9.0.77", "fd09::77", "192.0.2.1", "10.9.0.3", "no.invalid")
seen = {interface.name: dataclasses.asdict(interface) for interface in look().interfaces}
usable = [why_unusable("10.9.0.3", "eth0"), why_unusable("10.4.0.1", "ib0")]
print(json.dumps([seen, [route_source(host) for host in hosts], usable]))
"""

MACHINE = """
set -e
mount -t sysfs sysfs /sys
ip link set lo up
ip link add eth0 type veth peer name far0
ip link set eth0 up
ip link set far0 up
ip address add 10.9.0.3/24 dev eth0
ip address add 10.9.0.4/24 dev eth0 label eth0:1
ip address add fd09::3/64 dev eth0 nodad
ip link add br7 type bridge
ip link add veth7 type veth peer name veth8
ip link set veth7 master br7
ip address add 10.8.0.1/24 dev br7
ip link set br7 up
ip tuntap add tun0 mode tun
ip address add 10.6.0.1 peer 10.6.0.2 dev tun0
ip address add fd06::1 peer fd06::2 dev tun0
ip link add ib0 mtu 2044 type veth peer name ib1
ip address add 10.4.0.1/16 dev ib0
exec "$@"
"""


@pytest.mark.netns
def test_a_real_kernel_is_seen_as_it_is() -> None:
    command = ["unshare", "--net", "--mount", "sh", "-c", MACHINE, "sh", sys.executable, "-c", SEE]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seen, routes, usable = json.loads(done.stdout)
    eth0, br7, veth7 = seen["eth0"], seen["br7"], seen["veth7"]
    routable = {address for address in eth0["addresses"] if not address.startswith("fe80")}
    assert routable == {"10.9.0.3/24", "10.9.0.4/24", "fd09::3/64"}
    assert (eth0["is_running"], eth0["carrier"], eth0["mtu"]) == (True, True, 1500)
    assert (eth0["link_type"], eth0["speed_mbps"], eth0["is_physical"]) == (1, 10_000, False)
    assert (br7["addresses"], br7["is_bridge"], br7["carrier"]) == (["10.8.0.1/24"], True, False)
    assert (veth7["bridge"], veth7["master"], veth7["is_running"]) == ("br7", "br7", False)
    assert seen["tun0"]["addresses"] == ["10.6.0.1/32", "fd06::1/128"]
    down = {"addresses": ["10.4.0.1/16"], "is_running": False, "mtu": 2044}
    assert {key: seen["ib0"][key] for key in down} == down
    assert seen["ib1"]["addresses"] == []
    assert seen["lo"]["link_type"] == LOOPBACK
    assert routes == ["10.9.0.3", "fd09::3", None, "10.9.0.3", None]
    assert usable == ["", "its interface ib0 (10.4.0.1) is down"]


@pytest.mark.netns
def test_every_interface_of_the_network_namespace_is_seen_and_no_other() -> None:
    """Also where the kernel needs several messages to list them."""
    script = """
import subprocess
from worker.machine.interfaces import look
assert [interface.name for interface in look().interfaces] == ["lo"]  # /sys shows the others
batch = "".join(
    f"link add a{i} type veth peer name b{i}\\naddress add 10.0.{i}.1/24 dev a{i}\\n"
    for i in range(100)
)
subprocess.run(["ip", "-batch", "-"], input=batch, text=True, check=True)
found = {interface.name: interface.addresses for interface in look().interfaces}
wanted = {f"a{i}": (f"10.0.{i}.1/24",) for i in range(100)}
assert found == wanted | {f"b{i}": () for i in range(100)} | {"lo": ()}, found
"""
    subprocess.run(["unshare", "--net", sys.executable, "-c", script], check=True)


def test_what_the_kernel_refuses_to_list_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netlink, "_GET_LINK", 9999)
    with pytest.raises(OSError, match="not supported"):
        look()


@pytest.mark.parametrize(
    ("address", "words"),
    [
        *(("127.0.0.1", ""), ("127.0.0.3", "")),
        *((gone, f"its address {gone} (lo) is gone") for gone in ("192.0.2.1", "2001:db8::1")),
    ],
)
def test_an_address_that_is_gone_is_named(address: str, words: str) -> None:
    assert why_unusable(address, "lo") == words


@pytest.mark.parametrize(
    ("host", "source"),
    [("127.0.0.1", "127.0.0.1"), *((none, None) for none in ("", "a" * 70, "a..b", "x\0y"))],
)
def test_a_route_leaves_from_an_address_of_this_machine(host: str, source: str | None) -> None:
    assert route_source(host) == source


@pytest.mark.parametrize(
    ("visible", "count"),
    [
        (None, 4),
        *(("", 0), ("-1", 0), ("NoDevFiles", 0), ("2", 1), ("3, 1", 2), ("0,9,1", 1)),
        *(("0,1,0", 0), ("GPU-5a,GPU-5b", 2), ("MIG-1,MIG-2", 1)),
        ("GPU-1,GPU-2,GPU-3,GPU-4,GPU-5", 4),
    ],
)
def test_gpus_are_counted_as_programs_see(tmp_path: Path, visible: str | None, count: int) -> None:
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidia11", "nvidiactl", "nvidia-uvm"):
        (tmp_path / "dev" / name).symlink_to("/dev/null")
    (tmp_path / "dev/nvidia7").write_text("no device\n")
    (tmp_path / "dev/nvidia8").symlink_to("nowhere")
    assert count_gpus(tmp_path, environ) == count


def test_of_a_hosts_addresses_the_first_with_a_route_is_left_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    udp, protocol = socket.SOCK_DGRAM, socket.IPPROTO_UDP
    found = [
        (socket.AF_INET, udp, protocol, "", (address, 9))
        for address in ("255.255.255.255", "127.0.0.1")  # nobody may connect to the first
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    assert route_source("gpu-17") == "127.0.0.1"
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found[:1])
    assert route_source("gpu-17") is None


def test_an_address_is_not_called_unusable_where_nothing_can_be_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def links() -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(netlink, "links", links)
    assert why_unusable("127.0.0.1", "lo") == ""
    down = netlink.Link(False, 1_500, 0, ())
    monkeypatch.setattr(netlink, "links", lambda: {"lo": down})
    assert why_unusable("127.0.0.1", "lo") == "its interface lo (127.0.0.1) is down"
    assert why_unusable("127.0.0.1", "eth9") == ""


def test_an_address_of_another_family_or_without_its_bytes_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own, mpls = {netlink._LOCAL: bytes((10, 0, 0, 4))}, 28
    answers: dict[int, list[Any]] = {
        netlink._GET_ADDRESS: [
            ((socket.AF_INET, 24, 0, 0, 1), own),
            ((socket.AF_INET, 24, 0, 0, 1), {}),
            ((mpls, 20, 0, 0, 1), own),
        ],
        netlink._GET_LINK: [((0, 0, 1, netlink._RUNNING, 0), {netlink._NAME: b"rdzv0\0"})],
    }
    monkeypatch.setattr(netlink, "_dump", lambda kind, _: iter(answers[kind]))
    assert netlink.links() == {"rdzv0": netlink.Link(True, 0, 0, ("10.0.0.4/24",))}
