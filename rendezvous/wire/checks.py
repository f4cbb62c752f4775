"""The checks of a run before the go, and of `rdzv doctor`, each declared once. Pure.

docs/checks.md describes them. A finding carries the id of its check. An id that is not here is of
a newer peer.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal, TypeAlias

Level: TypeAlias = Literal["ok", "warn", "fail", "skipped"]


class Kind(Enum):
    """What a check looks at; the heading under which docs/checks.md describes it."""

    NODE = "On the node alone"
    ALL_NODES = "All nodes side by side"
    PROBES = "Between the nodes"
    DOCTOR = "By `rdzv doctor` alone"


_NODE, _ALL, _PROBES, _DOCTOR = Kind.NODE, Kind.ALL_NODES, Kind.PROBES, Kind.DOCTOR


class Check(Enum):
    """One check.

    Attributes:
        id: As findings and `--skip` name it.
        kind: What it looks at.
        title: What it asks about, in a word or two.
        worst: The worst level that a finding of it has.
    """

    ADDRESS = "L01", _NODE, "address", "fail"
    OWN_HOSTNAME = "L02", _NODE, "own hostname", "fail"
    MASTER_PORT = "L03", _NODE, "master port", "warn"
    PORT_STATES = "L04", _NODE, "RDMA ports", "warn"
    SUBNET_MANAGER = "L05", _NODE, "subnet manager", "fail"
    PORT_RATES = "L06", _NODE, "RDMA rates", "fail"
    PARTITIONS = "L07", _NODE, "partition keys", "fail"
    ROCE_ADDRESSES = "L08", _NODE, "RoCE addresses", "fail"
    DEVICE_ACCESS = "L09", _NODE, "device access", "fail"
    LIBIBVERBS = "L10", _NODE, "libibverbs", "fail"
    EFA_PLUGIN = "L11", _NODE, "EFA plugin", "fail"
    LOCKED_MEMORY = "L12", _NODE, "locked memory", "fail"
    GPUDIRECT = "L13", _NODE, "GPUDirect", "warn"
    SHARED_MEMORY = "L14", _NODE, "shared memory", "fail"
    OPEN_FILES = "L15", _NODE, "limits, processes", "warn"
    GPUS = "L16", _NODE, "GPUs", "fail"
    VARIABLES = "L17", _NODE, "variables", "fail"
    DISKS = "L18", _NODE, "disks", "fail"
    OWN_CLOCK = "L19", _NODE, "clock", "warn"
    LINK_ERRORS = "L20", _NODE, "link errors", "warn"
    SHARED_SUBNETS = "L21", _NODE, "shared subnets", "warn"
    DUPLICATES = "X01", _ALL, "duplicates", "fail"
    VERSIONS = "X02", _ALL, "versions", "fail"
    GPUS_ALIKE = "X03", _ALL, "GPUs and driver", "fail"
    PORTS_ALIKE = "X04", _ALL, "RDMA ports", "fail"
    INFINIBAND = "X05", _ALL, "partition and subnet", "fail"
    ROCE = "X06", _ALL, "RoCE GID and MTU", "warn"
    SEEN_ADDRESSES = "X07", _ALL, "address seen by others", "warn"
    HOSTNAMES = "X08", _ALL, "hostnames", "warn"
    NETWORK_GIVEN_UP = "X09", _ALL, "preferred network", "warn"
    REACHABILITY = "M01", _PROBES, "reachability", "fail"
    PACKET_SIZES = "M02", _PROBES, "MTU", "warn"
    CLOCKS = "M03", _PROBES, "clocks", "warn"
    DISTANCES = "M04", _PROBES, "round-trip time", "warn"
    REGISTRY = "D01", _DOCTOR, "registry", "fail"
    TORCHRUN = "D02", _DOCTOR, "torchrun", "fail"

    def __init__(self, id_: str, kind: Kind, title: str, worst: Level) -> None:
        self.id = id_
        self.kind = kind
        self.title = title
        self.worst = worst


_BY_ID = {check.id: check for check in Check}
CHECK_IDS = tuple(check.id for check in Check if check.kind is not Kind.DOCTOR)
"""Of the checks that a run makes, and can skip."""


def names_nodes(check_id: str) -> bool:
    """Whether the cause of a finding is a sentence of its own, which names the nodes.

    What a node finds on itself is a clause: only the reader knows how the node is named.
    """
    check = _BY_ID.get(check_id)
    return check is not None and check.kind in (Kind.ALL_NODES, Kind.PROBES)
