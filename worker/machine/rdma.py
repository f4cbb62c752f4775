"""The RDMA ports of this machine, as sysfs describes them, and whether NCCL could use each.

A container sees all devices of its host in /sys, also those it was not given: what counts is its
uverbs node, and in the end whether libibverbs opens the device.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from rendezvous.frozen import frozen
from rendezvous.wire.node import RdmaPort
from rendezvous.wire.words import printable
from worker.machine import aside, sysfs, verbs
from worker.nccl.env import GidWish, selects

_MOST_PORTS = 128
_MOST_PKEYS = 256
_ROCE_V2 = "RoCE v2"
_RATE = re.compile(r"([0-9]{1,5}(?:\.[0-9]+)?) Gb/sec")
_FULL_MEMBER = 0x8000
_USUAL_GID = GidWish()
_SUBNET = re.compile(r"(?:[0-9a-f]{4}:){7}[0-9a-f]{4}\Z")
_STATES = {
    "INIT": "no subnet manager has configured it",
    "ARMED": "the subnet manager has not finished with it",
}
_PHYSICAL = {
    "Polling": "nothing answers at the other end of the cable",
    "Disabled": "it is switched off",
    "LinkErrorRecovery": "the link has errors",
}


@frozen
class Unopened:
    """Why libibverbs does not open a device; it, or its part for the device, may be missing."""

    problem: str
    lacks_library: bool = False


def look_rdma(root: Path = Path("/"), wish: GidWish = _USUAL_GID) -> list[RdmaPort]:
    """See which RDMA ports there are, in natural order, each with why NCCL cannot use it.

    Nothing is opened, so what libibverbs makes of a device is not known yet: see `open_devices`.

    Args:
        root: The directory that holds `sys` and `dev`.
        wish: Which of its GIDs NCCL takes of a RoCE port.
    """
    return list(islice(_ports(root, wish), _MOST_PORTS))


def error_counters(root: Path = Path("/")) -> dict[str, dict[str, int]]:
    """What each port has counted since its driver was loaded, by `DEVICE:PORT` and counter."""
    return {
        f"{device.name}:{port.name}": {
            counter.name: value
            for counter in sysfs.entries(port / "counters")
            if (value := sysfs.number(counter, -1)) >= 0  # some say "N/A (no PMA)"
        }
        for device in sysfs.entries(root / "sys/class/infiniband")
        for port in sysfs.entries(device / "ports")
    }


def opened(ports: Sequence[RdmaPort], unopened: Mapping[str, Unopened]) -> list[RdmaPort]:
    """The ports, those without another problem with what opening their device gave."""
    return [
        replace(port, openable=False, problem=unopened[port.device].problem)
        if not port.problem and port.device in unopened
        else port
        for port in ports
    ]


def chosen(ports: Sequence[RdmaPort], words: str) -> list[RdmaPort]:
    """The ports, those marked that the user's NCCL_IB_HCA leaves out; EFA does not go by it."""
    if not words:
        return list(ports)
    return [
        replace(port, chosen=selects(words, port.device, port=port.port))
        if port.link_layer in ("InfiniBand", "Ethernet")
        else port
        for port in ports
    ]


def open_devices(names: Sequence[str], limit_seconds: float) -> dict[str, Unopened]:
    """Open RDMA devices through libibverbs, as NCCL does: those that it does not open, by name.

    Args:
        names: As in /sys/class/infiniband.
        limit_seconds: For all of them; a broken driver can block for ever.
    """
    if not names:
        return {}
    answer = aside.ask(Path(verbs.__file__), *names, limit_seconds=limit_seconds)
    silent = Unopened(f"libibverbs cannot open it: {answer.problem or 'no answer'}")
    found = dict.fromkeys(names, silent)
    for line in answer.text.splitlines():
        name, _, rest = line.partition("\t")
        lacks, _, problem = rest.partition("\t")
        found[name] = Unopened(printable(problem, 500), lacks == "library")
    return {name: found[name] for name in names if found[name].problem}


def _ports(root: Path, wish: GidWish) -> Iterator[RdmaPort]:
    for device in sysfs.entries(root / "sys/class/infiniband"):
        unopenable = _unopenable(root, device)
        for path in sysfs.entries(device / "ports"):
            if path.name.isdecimal() and 1 <= int(path.name) <= 255:
                yield _port(root, device, path, unopenable, wish)


def _port(root: Path, device: Path, path: Path, unopenable: str, wish: GidWish) -> RdmaPort:
    link_layer = sysfs.text(path / "link_layer")
    gid = _wanted_gid(path, wish) if link_layer == "Ethernet" else None
    interface = _interface(device, path, gid)
    rate = sysfs.text(path / "rate")
    number = _RATE.match(rate)
    port = RdmaPort(
        device=printable(device.name, 253),
        port=int(path.name),
        link_layer=link_layer,
        hca_type=sysfs.text(device / "hca_type"),
        state=_word(path / "state"),
        phys_state=_word(path / "phys_state"),
        rate_gbps=float(number[1]) if number else 0.0,
        rate=rate,
        lid=_count(path / "lid"),
        sm_lid=_count(path / "sm_lid"),
        pkeys=_pkeys(path),
        subnet_prefix=_subnet_prefix(path) if link_layer == "InfiniBand" else "",
        gid_index=gid,
        gid_type=sysfs.text(path / f"gid_attrs/types/{gid}") if gid is not None else "",
        mtu=_count(root / "sys/class/net" / interface / "mtu") if interface else 0,
        firmware=sysfs.text(device / "fw_ver"),
        node_guid=sysfs.text(device / "node_guid"),
        interface=interface,
        openable=not unopenable,
    )
    problem = _link_problem(port) or unopenable or _network_problem(port, device, path, wish)
    return replace(port, problem=problem)


def _link_problem(port: RdmaPort) -> str:
    """Why nothing passes through the port, whatever the network behind it."""
    if port.state == "ACTIVE" and port.phys_state in ("LinkUp", ""):
        return ""
    if not port.state:
        return "the kernel does not report its state"
    link = f" and its link {port.phys_state}" if port.phys_state else ""
    why = _PHYSICAL.get(port.phys_state) or _STATES.get(port.state, "")
    return f"the port is {port.state}{link}" + (f": {why}" if why else "")


def _network_problem(port: RdmaPort, device: Path, path: Path, wish: GidWish) -> str:
    """Why NCCL finds no peer through the port, although its link is up."""
    if port.link_layer == "InfiniBand":
        return _fabric_problem(port, path)
    if port.link_layer == "Ethernet":
        has_reason = port.interface and wish.index is None
        at = f": its interface has no {wish.family} address" if has_reason else ""
        return "" if port.gid_index is not None else f"no {wish}{at}"
    kind = sysfs.text(device / "node_type")
    if kind.endswith("unspecified"):  # EFA, which NCCL uses through a plugin
        return ""
    return f"NCCL does not support its link layer ({port.link_layer or 'unknown'})"


def _fabric_problem(port: RdmaPort, path: Path) -> str:
    if sysfs.number(path / "lid", -1) == 0:  # not where it could not be read
        return "it has no LID: no subnet manager has configured it"
    if port.pkeys and not any(is_full_member(key) for key in port.pkeys):
        keys = ", ".join(f"0x{key:04x}" for key in port.pkeys[:4])
        return f"it is not a full member of any partition (pkeys {keys})"
    return ""


def is_full_member(pkey: int) -> bool:
    """Whether the key makes its port a full member of a partition: bit 15, and a partition."""
    return bool(pkey & _FULL_MEMBER and pkey != _FULL_MEMBER)


def _unopenable(root: Path, device: Path) -> str:
    """Why a program here cannot open the device; nothing when its uverbs node looks right."""
    nodes = [
        path.name
        for path in sysfs.entries(device / "device/infiniband_verbs")
        if sysfs.text(path / "ibdev") in (device.name, "")
    ]
    if not nodes:
        return "it has no uverbs node: the kernel module ib_uverbs is not loaded"
    node = root / "dev/infiniband" / nodes[0]
    if not sysfs.exists(node):
        return "it is not in /dev/infiniband: the container does not have the device"
    if not os.access(node, os.R_OK | os.W_OK):
        return "this user cannot read and write it in /dev/infiniband"
    return ""


def _interface(device: Path, path: Path, gid: int | None) -> str:
    """The port's network interface; empty where it has none in this network namespace."""
    named = sysfs.text(path / f"gid_attrs/ndevs/{gid or 0}")
    if named:
        return named
    found = sysfs.entries(device / "device/net")
    if len(found) > 1:  # a card whose ports share one PCI function
        found = [net for net in found if _port_of(net) == int(path.name)]
    return printable(found[0].name, 253) if found else ""


def _port_of(net: Path) -> int:
    """Which port an interface belongs to; older drivers count in dev_id."""
    return 1 + max(sysfs.number(net / "dev_port", 0), sysfs.number(net / "dev_id", 0))


def _wanted_gid(path: Path, wish: GidWish) -> int | None:
    """The index of the GID that NCCL takes: RoCE v2, of the family and not link-local; or any."""
    for gid in sysfs.entries(path / "gids"):
        address = _address_of(sysfs.text(gid))
        if address is None or address.is_unspecified or not gid.name.isdecimal():
            continue
        index, version = int(gid.name), "IPv4" if address.version == 4 else "IPv6"
        kind = sysfs.text(path / "gid_attrs/types" / gid.name)
        is_routable = version == wish.family and kind == _ROCE_V2 and not address.is_link_local
        if index == wish.index if wish.index is not None else is_routable:
            return index
    return None


def _address_of(gid: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.IPv6Address(gid)
    except ValueError:
        return None
    return address.ipv4_mapped or address


def _subnet_prefix(path: Path) -> str:
    gid = sysfs.text(path / "gids/0")
    return gid[:19] if _SUBNET.match(gid) else ""


def _pkeys(path: Path) -> list[int]:
    keys = [sysfs.number(key, 0) for key in sysfs.entries(path / "pkeys")]
    return [key for key in keys if 0 < key <= 0xFFFF][:_MOST_PKEYS]


def _word(path: Path) -> str:
    """`ACTIVE` of `4: ACTIVE`."""
    return sysfs.text(path).rpartition(": ")[2]


def _count(path: Path) -> int:
    return max(0, sysfs.number(path, 0))
