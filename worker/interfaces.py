"""What this node's machine has: network interfaces with their addresses, GPUs, CPUs.

This module only looks; `worker.address` chooses. Everything below /sys is optional: a container
may hide it, and the kernel answers some reads with an error (the speed of a link that is down).
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from worker.address import Interface, Machine, RdmaKind

_LOOPBACK = 772  # of /sys/class/net/*/type
_FAMILIES = (socket.AF_INET, socket.AF_INET6)
_GPU_NODE = re.compile(r"nvidia[0-9]+\Z")


@dataclass(frozen=True)
class _Link:
    """What the kernel says of an interface's state."""

    is_running: bool
    mtu: int
    speed_mbps: int


def look(
    root: Path = Path("/"), *, addresses: Mapping[str, Sequence[str]] | None = None
) -> Machine:
    """See which network interfaces this machine has, and what they are made of.

    Args:
        root: The directory that holds `sys`.
        addresses: By interface, in CIDR form. When given, this process's own network namespace is
            not asked, and all else is read below `root`.
    """
    net = root / "sys/class/net"
    links: Mapping[str, _Link] = {}
    names = [path.name for path in _entries(net)]
    if addresses is None:
        addresses, links = _kernel_addresses(), _kernel_links()
        names = []  # /sys may show another network namespace's
    names = list(dict.fromkeys([*names, *addresses, *links]))
    return Machine(
        interfaces=tuple(
            _interface(net / name, tuple(addresses.get(name, ())), links.get(name))
            for name in names
        ),
        rdma=tuple(_rdma_kind(path) for path in _entries(root / "sys/class/infiniband")),
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


def count_gpus(root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> int:
    """Count the NVIDIA GPUs that a program started from here would see.

    CUDA_VISIBLE_DEVICES is read as CUDA reads it: the list ends at the first entry that names no
    device, an entry named twice makes it empty, and of MIG slices a program sees one.
    """
    nodes = [path for path in _entries(root / "dev") if _GPU_NODE.match(path.name)]
    present = sum(1 for path in nodes if _is_char_device(path))
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    return present if visible is None else _count_visible(visible, present)


def count_cpus() -> int:
    """Count the CPUs as torchrun's `--nproc-per-node=cpu` does, at least 1."""
    return os.cpu_count() or 1


def _kernel_addresses() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for label, entries in psutil.net_if_addrs().items():
        # An IPv4 alias such as eth0:1 is an address of eth0.
        cidrs = found.setdefault(label.partition(":")[0], [])
        cidrs += [_cidr(e.address, e.netmask) for e in entries if e.family in _FAMILIES]
    return found


def _cidr(address: str, netmask: str | None) -> str:
    plain = address.partition("%")[0]
    if netmask is None:
        return str(ipaddress.ip_interface(plain))
    return f"{plain}/{int(ipaddress.ip_address(netmask)).bit_count()}"


def _kernel_links() -> dict[str, _Link]:
    try:
        stats = psutil.net_if_stats()
    except OSError:  # a sandboxed kernel may not know the calls; /sys is asked instead
        return {}
    return {name: _Link(one.isup, one.mtu, one.speed) for name, one in stats.items()}


def _interface(path: Path, addresses: tuple[str, ...], link: _Link | None) -> Interface:
    name, master = path.name, _link_name(path / "master")
    is_port = (path / "brport").exists() or (path / "master/bridge").exists()
    carrier = _number(path / "carrier", -1)
    return Interface(
        name=name,
        addresses=addresses,
        is_running=link.is_running if link else _operates(path),
        carrier=None if carrier < 0 else carrier == 1,
        mtu=link.mtu if link else _number(path / "mtu", 0),
        speed_mbps=max(link.speed_mbps if link else 0, _number(path / "speed", 0)),
        link_type=_number(path / "type", _LOOPBACK if name == "lo" else 0),
        is_bridge=(path / "bridge").exists(),
        bridge=(master or "a bridge") if is_port else None,
        master=master,
        is_physical=_is_physical(path),
        rdma=next((_rdma_kind(rdma) for rdma in _entries(path / "device/infiniband")), None),
    )


def _operates(path: Path) -> bool:
    """IFF_RUNNING as the kernel derives it; lo and tunnels say `unknown` and do run."""
    return _text(path / "operstate") in ("up", "unknown", "")


def _is_physical(path: Path) -> bool:
    return (path / "device").exists() or any(
        _is_physical(lower) for lower in _entries(path) if lower.name.startswith("lower_")
    )


def _rdma_kind(path: Path) -> RdmaKind:
    layers = [_text(port / "link_layer") for port in _entries(path / "ports")]
    return RdmaKind(link_layer=next(iter(layers), ""), hca_type=_text(path / "hca_type"))


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


def _entries(path: Path) -> list[Path]:
    """What a directory holds, by name; nothing when it cannot be read."""
    try:
        return sorted(path.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _number(path: Path, default: int) -> int:
    try:
        return int(_text(path))
    except ValueError:
        return default


def _link_name(path: Path) -> str | None:
    try:
        return path.readlink().name
    except OSError:
        return None
