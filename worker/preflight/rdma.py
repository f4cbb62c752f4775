"""The checks of a node's RDMA ports and of what NCCL needs to use them (L04 to L13, L20).

The *rails* carry the collectives: see `rendezvous.wire.rails`. A front-end port that happens to
speak RDMA, and the accelerated half of a virtual machine's network card, are no rails.

A fault is a failure where the program would use RDMA, and a warning elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from rendezvous.wire.checks import Check, Level
from rendezvous.wire.node import RdmaPort
from rendezvous.wire.rails import rails as rails_of
from rendezvous.wire.rails import siblings
from rendezvous.wire.words import listed
from worker.machine.rdma import is_full_member
from worker.machine.surroundings import EFA, EFA_LIBRARIES, Surroundings
from worker.nccl.env import gid_wish, is_true, network_kind
from worker.preflight.verdict import Judge, Verdict, complaint, ok, room, skipped

_MOST_NAMED = 4
_UNCONFIGURED = ("INIT", "ARMED")
_ENOUGH_MEMLOCK = 1 << 30


def wants_rdma(here: Surroundings) -> bool:
    """Whether the program would use RDMA if it could: it has GPUs, and nobody has switched it off.

    Nodes of one machine reach each other through its memory.
    """
    if here.requested.require_rdma:
        return True
    return here.facts.gpus > 0 and not here.requested.loopback and not switched_off(here)


def switched_off(here: Surroundings) -> str:
    """The variable by which the user has NCCL use sockets; empty when there is none."""
    disable, network = here.given.get("NCCL_IB_DISABLE"), here.given.get("NCCL_NET")
    if disable and is_true(disable.value):
        return "NCCL_IB_DISABLE"
    return "NCCL_NET" if network and network_kind(network.value) == "Socket" else ""


def rails(here: Surroundings) -> list[RdmaPort]:
    """The ports that carry the collectives; where enough of them are up, no others."""
    found = rails_of(port for port in here.rdma if not _is_accelerated(port, here))
    up = [port for port in found if port.state == "ACTIVE"]
    return up if 0 < here.gpu_nodes <= len(up) and _is_whole(len(up)) else found


def _is_whole(count: int) -> bool:
    """Whether so many rails are likely all of a machine: they come as 1, 2, 4, 8 or 16."""
    return count.bit_count() == 1


def _is_accelerated(port: RdmaPort, here: Surroundings) -> bool:
    """The hidden half of a virtual machine's network card, such as Azure's mlx5_an0."""
    masters = {interface.name: interface.master for interface in here.network.interfaces}
    return port.gid_index is None and bool(masters.get(port.interface))


def _grave(here: Surroundings) -> Level:
    """How bad it is when the rails cannot be used: one or two Ethernet ports are as likely plain
    network cards, on which the training would run well over TCP."""
    ports = rails(here)
    are_rails = len(ports) > 2 or any(port.link_layer != "Ethernet" for port in ports)
    return "fail" if here.requested.require_rdma or (wants_rdma(here) and are_rails) else "warn"


def _grouped(
    level: Level,
    ports: Iterable[RdmaPort],
    value: Callable[[RdmaPort], str],
    *,
    expected: str,
    cause: str,
    fix: str,
) -> list[Verdict]:
    """One verdict for all ports of which the same is to be said."""
    groups: dict[str, list[str]] = {}
    for port in ports:
        groups.setdefault(value(port), []).append(f"{port.device}:{port.port}")
    return [
        Verdict(level, words, listed(names, _MOST_NAMED), expected, cause, fix)
        for words, names in groups.items()
    ]


def _active(here: Surroundings) -> list[RdmaPort]:
    return [port for port in rails(here) if port.state == "ACTIVE"]


def port_states(here: Surroundings) -> list[Verdict]:
    """L04: every rail is up. Whether one is missing beside the other nodes, they tell together."""
    ports = rails(here)
    down = [port for port in ports if port.state not in ("ACTIVE", *_UNCONFIGURED)]
    down += [p for p in _active(here) if p.phys_state not in ("LinkUp", "")]
    if not down:
        return ok(f"{len(_active(here))} of {len(ports)} ports are up")
    return _grouped(
        "warn",
        down,
        lambda port: ", ".join(filter(None, (port.state or "no state", port.phys_state))),
        expected="ACTIVE, LinkUp",
        cause="NCCL continues without it, more slowly, and other nodes may have more ports",
        fix="check the cable, transceiver and switch port: rdma link show; ibstat",
    )


def subnet_manager(here: Surroundings) -> list[Verdict]:
    """L05: the InfiniBand fabric has configured the port."""
    ports = [port for port in rails(here) if port.link_layer == "InfiniBand"]
    if not ports:
        return skipped("no InfiniBand port here")
    # LID 0 is no problem where it only could not be read.
    bare = [port for port in _active(here) if not port.lid and port.problem]
    waiting = [port for port in ports if port.state in _UNCONFIGURED or port in bare]
    if not waiting:
        return ok("every port has been configured by a subnet manager")
    return _grouped(
        _grave(here),
        waiting,
        lambda port: f"{port.state}, LID {port.lid}, subnet manager {port.sm_lid or 'none'}",
        expected="ACTIVE, with a LID",
        cause="the cable works, but no subnet manager has configured the port",
        fix="start or check the fabric's subnet manager (opensm): sminfo",
    )


def port_rates(here: Surroundings) -> list[Verdict]:
    """L06: no rail is slower than the others, or has but one lane left."""
    ports = [port for port in _active(here) if port.rate_gbps]
    if not ports:
        return skipped("no port with a known rate is up")
    counts = Counter(port.rate_gbps for port in ports)
    usual = max(counts, key=lambda rate: (counts[rate], rate))
    usual_words = next(port.rate for port in ports if port.rate_gbps == usual)
    one_lane = [p for p in ports if p.link_layer == "InfiniBand" and "(1X" in p.rate]
    slow = [port for port in ports if port.rate_gbps < usual or port in one_lane]
    slow += _sick_siblings(here, usual)
    if not slow:
        return ok(f"{len(ports)} x {usual_words}")
    return _grouped(
        _grave(here),
        slow,
        lambda port: port.rate,
        expected=usual_words if usual_words not in {port.rate for port in slow} else "4X",
        cause="the slowest port limits the speed of all nodes",
        fix="reseat or replace the cable and transceiver, then run mlxlink -d DEVICE, or "
        "ibdiagnet; if the port is for storage, name the others in NCCL_IB_HCA",
    )


def _sick_siblings(here: Surroundings, usual: float) -> list[RdmaPort]:
    """The slower ports of the rails' chip, where they are rails as well, and not for storage.

    A node alone cannot tell but by number: only with them they are all that such a machine has. Or
    the user has said which ports are to be used. Where other nodes have more, X04 tells.
    """
    found = rails(here)
    slower = [p for p in siblings(here.rdma, found) if 0 < p.rate_gbps < usual]
    is_short = _is_whole(len(found) + len(slower)) and not _is_whole(len(found))
    return slower if is_short or not all(port.chosen for port in here.rdma) else []


def partitions(here: Surroundings) -> list[Verdict]:
    """L07: the port is a full member of a partition."""
    ports = [port for port in _active(here) if port.link_layer == "InfiniBand" and port.pkeys]
    if not ports:
        return skipped("no InfiniBand port with a partition table is up")
    limited = [port for port in ports if not any(is_full_member(key) for key in port.pkeys)]
    if not limited:
        first = next(key for key in ports[0].pkeys if is_full_member(key))
        return ok(f"full member of 0x{first:04x}")
    return _grouped(
        _grave(here),
        limited,
        lambda port: ", ".join(f"0x{key:04x}" for key in port.pkeys[:4]),
        expected="a key with bit 15 set, such as 0xffff",
        cause="limited members of a partition do not reach each other",
        fix="ask the fabric's administrator to make this port a full member (partitions.conf)",
    )


def roce_addresses(here: Surroundings) -> list[Verdict]:
    """L08: a RoCE port has the address by which NCCL reaches other subnets."""
    wish = gid_wish(here.given)
    ports = [port for port in _active(here) if port.link_layer == "Ethernet"]
    if not ports:
        return skipped("no RoCE rail is up")
    bare = [port for port in ports if port.gid_index is None]
    if not bare:
        indexes = sorted({str(port.gid_index) for port in ports})
        named = "NCCL_IB_GID_INDEX" if wish.index is not None else "routable RoCE v2 GID"
        return ok(f"{named} at index {', '.join(indexes)}")
    expected = f"a GID of type RoCE v2 with an {wish.family} address"
    cause = "NCCL falls back to link-local RoCE v1, which reaches one segment at most"
    fix = (
        f"give the port's interface an {wish.family} address (in a container, its interface "
        "itself), or name the other family: NCCL_IB_ADDR_FAMILY"
    )
    if wish.index is not None:
        expected = "a GID there, as NCCL_IB_GID_INDEX names it"
        cause = "NCCL opens no connection from an empty GID"
        fix = "unset NCCL_IB_GID_INDEX: NCCL since 2.21 finds the index itself"
    said = {"expected": expected, "cause": cause, "fix": fix}
    return _grouped(_grave(here), bare, lambda port: f"no {wish}", **said)


def device_access(here: Surroundings) -> list[Verdict]:
    """L09: this process may open the devices, and they can be opened."""
    ports = _active(here)
    if not ports:
        return skipped("no RDMA port is up")
    closed = [port for port in ports if not port.openable and not _lacks_library(port, here)]
    if not closed:
        return ok(f"{len({port.device for port in ports})} devices can be opened")
    return _grouped(
        _grave(here),
        closed,
        lambda port: port.problem or "it cannot be opened",
        expected="/dev/infiniband/uverbsN, readable and writable",
        cause="NCCL continues without the device, or silently uses TCP",
        fix="give the container its devices: docker run --device=/dev/infiniband, or the "
        "Kubernetes resource of the RDMA device plugin (rdma/...)",
    )


def verbs_library(here: Surroundings) -> list[Verdict]:
    """L10: libibverbs and the driver's part of it are installed here."""
    ports = _active(here)
    if not ports:
        return skipped("no RDMA port is up")
    lacking = [port for port in ports if _lacks_library(port, here)]
    if not lacking:
        return ok("libibverbs can be loaded")
    return _grouped(
        _grave(here),
        lacking,
        lambda port: port.problem,
        expected="libibverbs.so.1 with the device's driver",
        cause="NCCL finds no RDMA device and uses TCP",
        fix="install it in the image: apt-get install -y libibverbs1 ibverbs-providers",
    )


def _lacks_library(port: RdmaPort, here: Surroundings) -> bool:
    unopened = here.unopened.get(port.device)
    return unopened is not None and unopened.lacks_library and not port.openable


def efa_plugin(here: Surroundings) -> list[Verdict]:
    """L11: AWS's devices need a plugin of NCCL's."""
    if not any(port.link_layer == EFA for port in here.rdma):
        return skipped("no EFA device here")
    plugin = here.given.get("NCCL_NET_PLUGIN")
    loaded = [name for name, problem in here.libraries.items() if not problem]
    if loaded or plugin:
        return ok(loaded[0] if loaded else f"NCCL_NET_PLUGIN={plugin}")
    reasons = here.libraries.get(EFA_LIBRARIES[0], "it was not tried")
    return complaint(
        _grave(here),
        reasons,
        EFA_LIBRARIES[0],
        "a library that can be loaded",
        "NCCL itself does not support EFA and uses TCP",
        "install aws-ofi-nccl in the image, and put its folder into LD_LIBRARY_PATH "
        "(/opt/amazon/ofi-nccl/lib)",
    )


def locked_memory(here: Surroundings) -> list[Verdict]:
    """L12: RDMA may pin the memory that it registers."""
    limits = here.limits
    if limits is None:
        return skipped("the limits cannot be read here")
    if limits.memlock_bytes is None or limits.may_lock:
        return ok("unlimited" if limits.memlock_bytes is None else "unlimited (CAP_IPC_LOCK)")
    grave = _grave(here) if limits.memlock_bytes < _ENOUGH_MEMLOCK else "warn"
    return complaint(
        grave,
        room(limits.memlock_bytes),
        "ulimit -l",
        "unlimited",
        "registering memory for RDMA fails with 'Cannot allocate memory'",
        "docker run --ulimit memlock=-1 (or --cap-add IPC_LOCK); on a host, "
        "LimitMEMLOCK=infinity or /etc/security/limits.conf",
    )


def gpu_direct(here: Surroundings) -> list[Verdict]:
    """L13: network cards may reach the GPUs' memory without a copy through the host's."""
    if not here.gpu_nodes or not any(not port.problem for port in here.rdma):
        return skipped("no GPU with a usable RDMA port")
    if here.is_direct:
        return ok("nvidia_peermem, or DMA-BUF by the open driver")
    return complaint(
        "warn",
        "no nvidia_peermem, and not the open kernel driver",
        expected="one of the two",
        cause="GPUDirect is off: all traffic is copied through the host's memory",
        fix="on the host: modprobe nvidia_peermem",
    )


def link_errors(here: Surroundings) -> list[Verdict]:
    """L20: the ports count no errors while we look; older ones are history."""
    if not here.rdma_errors:
        return ok("no port counted an error during the check")
    return [
        Verdict(
            "warn",
            ", ".join(f"{name} rose by {gain}" for name, gain in gains.items()),
            port,
            "no new errors",
            "the link loses symbols or goes down and up again",
            "reseat or replace the cable and its transceiver",
        )
        for port, gains in here.rdma_errors.items()
    ]


def _where_there_are_ports(judge: Judge) -> Judge:
    return lambda here: judge(here) if rails(here) else skipped("no RDMA port")


RDMA_JUDGES = {
    check: _where_there_are_ports(judge)
    for check, judge in (
        (Check.PORT_STATES, port_states),
        (Check.SUBNET_MANAGER, subnet_manager),
        (Check.PORT_RATES, port_rates),
        (Check.PARTITIONS, partitions),
        (Check.ROCE_ADDRESSES, roce_addresses),
        (Check.DEVICE_ACCESS, device_access),
        (Check.LIBIBVERBS, verbs_library),
        (Check.EFA_PLUGIN, efa_plugin),
        (Check.LOCKED_MEMORY, locked_memory),
        (Check.GPUDIRECT, gpu_direct),
        (Check.LINK_ERRORS, link_errors),
    )
}
