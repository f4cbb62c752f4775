"""Small /sys and /dev trees that look like real GPU nodes, as far as rdzv looks at them.

Each builder returns the addresses by interface, of which `links_of` makes what `look` takes. As in
the real /sys, text files end in a line feed and `class/*/X` are links into `devices/`. Where the
kernel answers a read with an error (the speed of a link that is down, the type of an empty GID
slot) the file is left out.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from worker.machine import sysfs
from worker.machine.netlink import Link

Addresses: TypeAlias = dict[str, list[str]]
Builder: TypeAlias = Callable[[Path], Addresses]
Trees: TypeAlias = Callable[[Builder], tuple[Path, Addresses]]
"""The fixture `trees`: the tree that a builder makes, made once, and its addresses."""
PortFiles: TypeAlias = Mapping[str, str]
"""Files of an RDMA port that differ from the good ones, such as {"state": "1: DOWN"}."""

ETHER, IPOIB, LOOPBACK, NONE = 1, 32, 772, 65534
EMPTY_GID = ":".join(["0000"] * 8)
_LO = ["127.0.0.1/8", "::1/128"]
_VMBUS_NIC = "000d3a00-0001-000d-3a00-0001000d3a00"
_ROCE_RAILS = {0: "0c", 3: "2a", 4: "41", 5: "58", 6: "86", 9: "a5", 10: "bd", 11: "d5"}
_EFA_BUSES = (79, 96, 113, 130, 147, 164, 181, 198)
_NO_ERRORS = dict.fromkeys(
    ("link_downed", "symbol_error", "link_error_recovery", "port_rcv_errors", "port_xmit_wait"), 0
)


def links_of(root: Path, addresses: Mapping[str, Sequence[str]]) -> dict[str, Link]:
    """The links that a kernel with this tree would list: those of /sys and of `addresses`."""
    net = root / "sys/class/net"
    names = dict.fromkeys([*(path.name for path in sysfs.entries(net)), *addresses])
    return {
        name: Link(
            is_running=sysfs.text(net / name / "operstate") in ("up", "unknown", ""),
            mtu=sysfs.number(net / name / "mtu", 0),
            speed_mbps=0,
            addresses=tuple(addresses.get(name, ())),
        )
        for name in names
    }


DOWN = {"state": "1: DOWN", "phys_state": "2: Polling", "rate": "10 Gb/sec (4X SDR)", "lid": "0x0"}
UNMANAGED = {"state": "2: INIT", "lid": "0x0", "sm_lid": "0x0"}
SLOW = {"rate": "200 Gb/sec (4X HDR)"}


class SysfsTree:
    """Puts devices under `root`; begins with `lo` alone."""

    def __init__(self, root: Path, node: int) -> None:
        self.root = root
        self.sys = root / "sys"
        self.node = node
        self._uverbs = 0
        self.net("lo", link_type=LOOPBACK, mtu=65536, operstate="unknown")

    def pci(self, bus_id: str, parent: str = "") -> Path:
        """A PCI function below these bridges."""
        return self.sys / "devices" / (parent or f"pci{bus_id[:7]}") / bus_id

    def net(
        self,
        name: str,
        *,
        device: Path | None = None,
        link_type: int = ETHER,
        mtu: int = 1500,
        operstate: str = "up",
        speed: int | None = None,
        master: str | None = None,
        bridge: bool = False,
        over: Sequence[str] = (),
    ) -> Path:
        """Add an interface; `over` names what a bond or VLAN stands on."""
        base = (device / "net" if device else self.sys / "devices/virtual/net") / name
        _write(base, {"operstate": operstate, "type": link_type, "mtu": mtu})
        _write(base, {"carrier": int(operstate in ("up", "unknown"))})
        if speed is not None:
            _write(base, {"speed": speed})
        if bridge:
            (base / "bridge").mkdir()
        if device:
            _link(base / "device", device)
        _link(self.sys / "class/net" / name, base)
        if master:
            _link(self._net(master) / f"lower_{name}", base)
            _link(base / "master", self._net(master))
        for lower in over:
            _link(base / f"lower_{lower}", self._net(lower))
        return base

    def rdma(
        self,
        name: str,
        *,
        device: Path,
        hca_type: str,
        port: PortFiles,
        gids: Sequence[tuple[str, str, str]] = (),
        pkeys: Sequence[str] = ("0xffff",),
        node_type: str = "1: CA",
        firmware: str = "28.39.1002",
        guid: str = "",
        uverbs: bool = True,
    ) -> None:
        """Add an RDMA device with one port; a GID is its text, its type and its interface."""
        base, number = device / "infiniband" / name, self._uverbs
        self._uverbs += 1
        guid = guid or f"a288:c203:00{self.node:02x}:{number:04x}"
        _write(base, {"node_type": node_type, "hca_type": hca_type})
        _write(base, {"fw_ver": firmware, "node_guid": guid})
        good = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "lid": "0x0", "sm_lid": "0x0"}
        _write(base / "ports/1", good | dict(port))
        _write(base / "ports/1/counters", _NO_ERRORS)
        _write(base / "ports/1/pkeys", {str(i): key for i, key in enumerate(pkeys)})
        _write_gids(base / "ports/1", gids)
        _link(base / "device", device)
        _link(self.sys / "class/infiniband" / name, base)
        _write(device / "infiniband_verbs" / f"uverbs{number}", {"ibdev": name})
        if uverbs:
            _write(self.root / "dev/infiniband", {f"uverbs{number}": ""})

    def _net(self, name: str) -> Path:
        return (self.sys / "class/net" / name).resolve()


def nd_h100_v5(
    root: Path,
    *,
    node: int = 4,
    ipoib: bool = True,
    accelerated: bool = True,
    bad: Mapping[int, PortFiles] | None = None,
    without_uverbs: Collection[int] = (),
) -> Addresses:
    """8 x 400 Gb/s InfiniBand virtual functions, and a front end with an accelerated half."""
    tree, addresses = SysfsTree(root, node), {"lo": list(_LO)}
    vmbus = tree.sys / "devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00" / _VMBUS_NIC
    vmbus.mkdir(parents=True)
    tree.net("eth0", device=vmbus, speed=100_000)
    addresses["eth0"] = [f"10.0.0.{node}/24", "fe80::20d:3aff:fe00:1/64"]
    for i in range(8):
        device, guid = tree.pci(f"010{i + 1}:00:00.0"), f"0015:5dff:fd34:{node:02x}{i:02x}"
        port = {"link_layer": "InfiniBand", "rate": "400 Gb/sec (4X NDR)", "sm_lid": "0x1"}
        port |= {"lid": f"0x{0x400 + 8 * node + i:x}"} | dict((bad or {}).get(i, {}))
        up = ipoib and port.get("state", "4: ACTIVE") == "4: ACTIVE"
        state, speed = ("up", 1000 * int(port["rate"].split()[0])) if up else ("down", None)
        tree.net(f"ib{i}", device=device, link_type=IPOIB, mtu=2044, operstate=state, speed=speed)
        if up:
            addresses[f"ib{i}"] = [f"172.{16 + i}.1.{node}/16"]
        tree.rdma(
            f"mlx5_ib{i}",
            device=device,
            hca_type="MT4126",
            port=port,
            guid=guid,
            gids=[(f"fe80:0000:0000:0000:{guid}", "IB/RoCE v1", "")],
            pkeys=("0x801d", "0x7fff"),
            uverbs=i not in without_uverbs,
        )
    if accelerated:
        addresses |= _accelerated_half(tree)
    tree.net("docker0", operstate="down", speed=-1, bridge=True)
    return addresses | {"docker0": ["172.17.0.1/16"]}


def _accelerated_half(tree: SysfsTree) -> Addresses:
    device = tree.pci("89a3:00:02.0")
    tree.net("eth1", device=device, speed=100_000, master="eth0")
    gid = "fe80:0000:0000:0000:020d:3aff:fe00:0001"
    tree.rdma(
        "mlx5_an0",
        device=device,
        hca_type="MT4122",
        port={"link_layer": "Ethernet", "rate": "100 Gb/sec (4X EDR)"},
        gids=[(gid, "IB/RoCE v1", "eth1"), (gid, "RoCE v2", "eth1")],
    )
    return {"eth1": ["fe80::20d:3aff:fe00:1/64"]}


def roce_8x400(
    root: Path, *, node: int = 4, v4: bool = True, bad: Mapping[int, PortFiles] | None = None
) -> Addresses:
    """8 x 400 GbE rails, each a subnet of its own, and a 100 GbE front end that does RDMA too."""
    tree, addresses = SysfsTree(root, node), {"lo": list(_LO)}
    for rail, (number, bus) in enumerate(_ROCE_RAILS.items()):
        switch = f"pci0000:{bus}/0000:{bus}:01.0"
        device = tree.pci(f"0000:{bus}:00.0", parent=switch)
        name, address = f"rdma{rail}", f"10.224.{rail}.{node}"
        port = {"link_layer": "Ethernet", "rate": "400 Gb/sec (4X NDR)"}
        port |= dict((bad or {}).get(rail, {}))
        up = port.get("state", "4: ACTIVE") == "4: ACTIVE"
        speed = 1000 * int(port["rate"].split()[0]) if up else None
        tree.net(name, device=device, mtu=4220, operstate="up" if up else "down", speed=speed)
        if v4 and up:
            addresses[name] = [f"{address}/24"]
        link_local = f"fe80:0000:0000:0000:a288:c2ff:fe00:{node:02x}{rail:02x}"
        tree.rdma(
            f"mlx5_{number}",
            device=device,
            hca_type="MT4129",
            port=port,
            gids=_roce_gids(name, link_local, address if v4 else "") + [(EMPTY_GID, "", "")] * 4,
        )
    return addresses | _roce_front_end(tree)


def _roce_front_end(tree: SysfsTree) -> Addresses:
    parent, address = "pci0000:1f", f"10.140.0.{tree.node}"
    device = tree.pci("0000:1f:00.0", parent=parent)
    tree.net("eth0", device=device, mtu=9000, speed=100_000)
    tree.rdma(
        "mlx5_2",
        device=device,
        hca_type="MT4125",
        port={"link_layer": "Ethernet", "rate": "100 Gb/sec (4X EDR)"},
        gids=_roce_gids("eth0", "fe80:0000:0000:0000:0000:17ff:fe00:0001", address),
    )
    return {"eth0": [f"{address}/20"]}


def efa_p5(root: Path, *, node: int = 4) -> Addresses:
    """32 EFA devices: no interface of their own, link layer Unknown; one ENA interface."""
    tree = SysfsTree(root, node)
    ena = tree.pci("0000:30:00.0", parent="pci0000:30")
    tree.net("eth0", device=ena, mtu=9001, speed=-1)
    for gpu, bus in enumerate(_EFA_BUSES):
        for k in range(4):
            device = tree.pci(f"0000:{bus + k:02x}:00.0", parent=f"pci0000:{bus - 12:02x}")
            gid = f"fe80:0000:0000:0000:04{node:02x}:{gpu:02x}ff:fe00:{k:04x}"
            tree.rdma(
                f"rdmap{bus + k}s0",
                device=device,
                hca_type="",
                node_type="7: unspecified",
                firmware="0.0.0.0",
                port={"link_layer": "Unknown", "rate": "100 Gb/sec (4X EDR)"},
                gids=[(gid, "IB/RoCE v1", "")],
            )
    return {"lo": list(_LO), "eth0": [f"10.1.3.{node}/20"]}


def tcp_only(root: Path, *, node: int = 4) -> Addresses:
    """A virtual machine without RDMA that runs containers and a VPN; its address is a /32."""
    tree = SysfsTree(root, node)
    virtio = tree.sys / "devices/pci0000:00/0000:00:04.0/virtio1"
    virtio.mkdir(parents=True)
    tree.net("eth0", device=virtio, mtu=1460, speed=-1)
    tree.net("docker0", speed=10_000, bridge=True)
    tree.net("veth12ab", speed=10_000, master="docker0")
    tree.net("cni0", speed=10_000, bridge=True, mtu=1450)
    tree.net("tailscale0", link_type=NONE, mtu=1280, operstate="unknown", speed=-1)
    return {
        "lo": list(_LO),
        "eth0": [f"10.128.0.{node}/32", f"fd20:1::{node}/128", f"fe80::4001:aff:fe80:{node}/64"],
        "docker0": ["172.17.0.1/16"],
        "veth12ab": ["fe80::5800:ff:fe00:1/64"],
        "cni0": ["10.244.0.1/24"],
        "tailscale0": ["100.101.1.4/32"],
    }


def _roce_gids(interface: str, link_local: str, address: str) -> list[tuple[str, str, str]]:
    gids = [link_local]
    if address:
        a, b, c, d = (int(part) for part in address.split("."))
        gids.append(f"0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}")
    return [(gid, kind, interface) for gid in gids for kind in ("IB/RoCE v1", "RoCE v2")]


def _write_gids(port: Path, gids: Sequence[tuple[str, str, str]]) -> None:
    for i, (gid, kind, interface) in enumerate(gids):
        _write(port / "gids", {str(i): gid})
        if kind:
            _write(port / "gid_attrs/types", {str(i): kind})
        if interface:
            _write(port / "gid_attrs/ndevs", {str(i): interface})


def refuse(path: Path) -> None:
    """Make every use of a file or directory an error, also for root: a name that is too long."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to("x" * 300)


@contextmanager
def refused(path: Path) -> Iterator[None]:
    """Refuse a file or directory for a while; the tree is then as it was."""
    aside = path.with_name(f"{path.name}.aside")
    was_there = path.is_symlink() or path.exists()
    if was_there:
        path.rename(aside)
    refuse(path)
    yield
    path.unlink()
    if was_there:
        aside.rename(path)


def _write(folder: Path, files: Mapping[str, str | int]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(f"{text}\n")


def _link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(os.path.relpath(target, path.parent))
