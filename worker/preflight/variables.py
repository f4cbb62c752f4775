"""The check of what the user has set for NCCL and Gloo (L17): does it fit this node?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from worker.machine.surroundings import Surroundings
from worker.nccl.env import Given, network_kind, selects
from worker.preflight.rdma import switched_off, wants_rdma
from worker.preflight.verdict import Verdict, ok

_FIXED_GID_UNTIL = (2, 21)
_LISTS = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
_AZURE = "Microsoft Corporation"


def variables(here: Surroundings) -> list[Verdict]:
    """L17: what the user has set for NCCL and Gloo fits this node."""
    found = [*_interface_lists(here), *_networks(here), *_devices(here), *_topology(here)]
    judged = sorted(name for name in here.given if name.startswith(("NCCL_", "GLOO_")))
    return found or ok(", ".join(judged) or "nothing is set for NCCL or Gloo")


def _interface_lists(here: Surroundings) -> Iterator[Verdict]:
    present = [one.name for one in here.network.interfaces if one.is_running]
    for name in _LISTS:
        given = here.given.get(name)
        if given is None or not given.value:
            continue
        is_nccl = name.startswith("NCCL")
        if is_nccl:
            absent = not any(selects(given.value, interface) for interface in present)
        else:
            absent = not set(given.value.split(",")) <= set(present)
        if absent:
            yield Verdict(
                "warn" if is_nccl and not here.facts.gpus else "fail",
                str(given),
                name,
                f"one of {', '.join(present)}",
                "no interface of this node that is up has this name",
                f"unset {name}: rdzv sets it to the interface that it has verified",
            )


def left_out_by(interface: str, given: Mapping[str, Given]) -> dict[str, str]:
    """Which lists of interfaces, set by the user, lack this one; and their values."""
    return {
        name: str(one)
        for name in _LISTS
        # NCCL takes a single character for nothing.
        if (one := given.get(name)) is not None
        and len(one.value) > 1
        and not selects(one.value, interface, exact=not name.startswith("NCCL"))
    }


def _networks(here: Surroundings) -> Iterator[Verdict]:
    usable = [port for port in here.rdma if not port.problem]
    off, network = switched_off(here), here.given.get("NCCL_NET")
    if off and usable:
        yield Verdict(
            "fail" if here.requested.require_rdma else "warn",
            str(here.given[off]),
            off,
            "not set",
            f"{len(usable)} usable RDMA ports are disabled, and NCCL uses TCP",
            f"unset {off}",
        )
    if network and network_kind(network.value) == "IB" and not usable:
        yield Verdict(
            "fail" if here.facts.gpus else "warn",
            str(network),
            "NCCL_NET",
            "not set",
            "there is no usable RDMA port here, and NCCL then refuses to start",
            "unset NCCL_NET",
        )


def _devices(here: Surroundings) -> Iterator[Verdict]:
    listed, index = here.given.get("NCCL_IB_HCA"), here.given.get("NCCL_IB_GID_INDEX")
    devices = sorted({port.device for port in here.rdma if not port.problem})
    if listed and devices and not any(p.chosen for p in here.rdma if not p.problem):
        yield Verdict(
            "fail" if wants_rdma(here) else "warn",
            str(listed),
            "NCCL_IB_HCA",
            f"one of {', '.join(devices)}",
            "no usable device here has this name, and NCCL uses TCP",
            "unset NCCL_IB_HCA: rdzv sets it where it is needed",
        )
    is_roce = any(port.link_layer == "Ethernet" for port in here.rdma if not port.problem)
    is_new = _version(here.facts.nccl_version) >= _FIXED_GID_UNTIL
    if index and index.value not in ("", "-1") and devices and (is_new or not is_roce):
        yield Verdict(
            "warn",
            str(index),
            "NCCL_IB_GID_INDEX",
            "not set",
            "a fixed index is for RoCE before NCCL 2.21; newer versions find it themselves"
            if is_roce
            else "on InfiniBand the index is 0; with another one NCCL reaches no peer",
            "unset NCCL_IB_GID_INDEX",
        )


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())


def _topology(here: Surroundings) -> Iterator[Verdict]:
    """Azure's virtual machines hide which GPU is near which port."""
    given = here.given.get("NCCL_TOPO_FILE")
    if given and "NCCL_TOPO_FILE" in here.missing_files:
        yield Verdict(
            "warn",
            str(given),
            "NCCL_TOPO_FILE",
            "a file of this node",
            "there is no such file here, and NCCL continues without it",
            "mount it into the container: -v /opt/microsoft:/opt/microsoft:ro",
        )
    is_flat = here.vendor == _AZURE and here.facts.gpus > 1 and not here.requested.loopback
    if is_flat and not given and any(port.link_layer == "InfiniBand" for port in here.rdma):
        yield Verdict(
            "warn",
            "not set",
            "NCCL_TOPO_FILE",
            "this kind of machine's file",
            "a virtual machine of Azure does not show which port is near which GPU",
            "export NCCL_TOPO_FILE=/opt/microsoft/ndv5-topo.xml (ndv4 on A100 machines; "
            "azhpc-images has them)",
        )
