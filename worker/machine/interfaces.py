"""What this node's machine has: network interfaces with their addresses, GPUs, CPUs.

This module only looks; `worker.offer.address` chooses. Everything below /sys is optional: a
container may hide it, and the kernel answers some reads with an error (the speed of a link that is
down).
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import stat
from collections.abc import Mapping
from pathlib import Path

from worker.machine import netlink, sysfs
from worker.machine.network import Interface, Network, RdmaKind

_LOOPBACK = 772  # of /sys/class/net/*/type
_GPU_NODE = re.compile(r"nvidia[0-9]+\Z")


def look(root: Path = Path("/"), *, links: Mapping[str, netlink.Link] | None = None) -> Network:
    """See which network interfaces this machine has, and what they are made of.

    Args:
        root: The directory that holds `sys`.
        links: The interfaces; those of this process's own network namespace when not given.
    """
    net = root / "sys/class/net"
    found = netlink.links() if links is None else links
    return Network(
        interfaces=tuple(_interface(net / name, link) for name, link in found.items()),
        rdma=tuple(_rdma_kind(path) for path in sysfs.entries(root / "sys/class/infiniband")),
    )


def route_source(host: str) -> str | None:
    """Tell which of this machine's addresses the route to `host` leaves from; None without one.

    No packet is sent to `host`. A host *name* is resolved first, which can take seconds.
    """
    try:
        found = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return None
    for family, kind, protocol, _, peer in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.connect(peer)
                return str(probe.getsockname()[0]).partition("%")[0]
        except OSError:
            continue
    return None


def device_names() -> tuple[list[str], list[str]]:
    """The names of this machine's network interfaces, and of its RDMA devices."""
    interfaces, devices = list[str](), list[str]()
    with contextlib.suppress(OSError):
        interfaces = [name for _, name in socket.if_nameindex()]
    with contextlib.suppress(OSError):
        devices = os.listdir("/sys/class/infiniband")
    return interfaces, devices


def why_unusable(address: str, interface: str) -> str:
    """Why nothing can be reached any more at an address that this machine had; empty if it has."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError as exc:
        if exc.errno == errno.EADDRNOTAVAIL:
            return f"its address {address} ({interface}) is gone"
    try:
        link = netlink.links().get(interface)
    except OSError:
        return ""
    return f"its interface {interface} ({address}) is down" if link and not link.is_running else ""


def count_gpus(root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> int:
    """Count the NVIDIA GPUs that a program started from here would see.

    CUDA_VISIBLE_DEVICES is read as CUDA reads it: the list ends at the first entry that names no
    device, an entry named twice makes it empty, and of MIG slices a program sees one.
    """
    nodes = [path for path in sysfs.entries(root / "dev") if _GPU_NODE.match(path.name)]
    present = sum(1 for path in nodes if _is_char_device(path))
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    return present if visible is None else _count_visible(visible, present)


def _interface(path: Path, link: netlink.Link) -> Interface:
    name, master = path.name, sysfs.link_name(path / "master")
    is_port = sysfs.exists(path / "brport") or sysfs.exists(path / "master/bridge")
    carrier = sysfs.number(path / "carrier", -1)
    return Interface(
        name=name,
        addresses=link.addresses,
        is_running=link.is_running,
        carrier=None if carrier < 0 else carrier == 1,
        mtu=link.mtu,
        speed_mbps=max(link.speed_mbps, sysfs.number(path / "speed", 0)),
        link_type=sysfs.number(path / "type", _LOOPBACK if name == "lo" else 0),
        is_bridge=sysfs.exists(path / "bridge"),
        bridge=(master or "a bridge") if is_port else None,
        master=master,
        is_physical=_is_physical(path),
        rdma=_rdma_of(path),
    )


def _is_physical(path: Path) -> bool:
    return sysfs.exists(path / "device") or any(map(_is_physical, _below(path)))


def _rdma_of(path: Path) -> RdmaKind | None:
    """The kind of the RDMA device on the interface's own card, or on one that it stands on."""
    if sysfs.exists(path / "device"):
        return next(map(_rdma_kind, sysfs.entries(path / "device/infiniband")), None)
    return next(filter(None, map(_rdma_of, _below(path))), None)


def _below(path: Path) -> list[Path]:
    """What a bond or a VLAN stands on."""
    return [entry for entry in sysfs.entries(path) if entry.name.startswith("lower_")]


def _rdma_kind(path: Path) -> RdmaKind:
    layers = [sysfs.text(port / "link_layer") for port in sysfs.entries(path / "ports")]
    return RdmaKind(link_layer=next(iter(layers), ""), hca_type=sysfs.text(path / "hca_type"))


def _count_visible(visible: str, present: int) -> int:
    seen: list[str] = []
    for entry in (part.strip() for part in visible.split(",")):
        is_index = entry.isascii() and entry.isdigit() and int(entry) < present
        if not (is_index or entry.startswith(("GPU-", "MIG-"))):
            break
        if entry in seen:
            return 0
        seen.append(entry)
    mig = any(entry.startswith("MIG-") for entry in seen)
    return min(len(seen), 1 if mig else present, present)


def _is_char_device(path: Path) -> bool:
    try:
        return stat.S_ISCHR(path.stat().st_mode)
    except OSError:
        return False
