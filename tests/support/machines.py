"""A machine on which all is well, as `worker.machine.surroundings` describes it, and changes."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from rendezvous.wire.node import Candidate, Facts, LinkKind, RdmaPort
from worker.machine.gpus import Gpu, Gpus
from worker.machine.kernel import Clock, ResourceLimits
from worker.machine.network import Interface, Network
from worker.machine.rdma import chosen
from worker.machine.surroundings import Disk, Requested, Surroundings
from worker.machine.user_python import UserPython
from worker.nccl.env import Given
from worker.preflight.checks import check_node

GIB = 1 << 30


def port(number: int, **values: Any) -> RdmaPort:
    """An InfiniBand rail that works."""
    good: dict[str, Any] = {
        "device": f"mlx5_{number}",
        "link_layer": "InfiniBand",
        "hca_type": "MT4129",
        "state": "ACTIVE",
        "phys_state": "LinkUp",
        "rate_gbps": 400.0,
        "rate": "400 Gb/sec (4X NDR)",
        "lid": 7 + number,
        "sm_lid": 1,
        "pkeys": [0xFFFF],
    }
    return RdmaPort(**(good | values))


def roce(number: int, **values: Any) -> RdmaPort:
    """A RoCE rail that works."""
    good = {"link_layer": "Ethernet", "lid": 0, "sm_lid": 0, "gid_index": 3}
    return port(number, **(good | {"interface": f"rdma{number}"} | values))


def efa(number: int) -> RdmaPort:
    """One of AWS's devices."""
    return port(number, link_layer="Unknown", hca_type="", lid=0, sm_lid=0)


def candidate(interface: str = "eth0", address: str = "10.0.0.4", **values: Any) -> Candidate:
    return Candidate(interface=interface, address=address, prefix_length=24, **values)


HEALTHY = Surroundings(
    facts=Facts(gpus=8, nccl_version="2.27.3", rdma=[port(number) for number in range(8)]),
    python=UserPython("/opt/venv/bin/python", "3.12", "2.9.0+cu128", "12.8", "2.27.3"),
    network=Network((Interface("lo"), Interface("eth0"), Interface("eth1"))),
    candidates=(candidate(),),
    hostname="gpu-17",
    hostname_addresses=("10.0.0.4",),
    gpus=Gpus("570.10", tuple(Gpu(i, "NVIDIA H100", f"GPU-{i}") for i in range(8))),
    gpu_nodes=8,
    limits=ResourceLimits(memlock_bytes=None, may_lock=False, files=1_048_576, stack_bytes=8 << 20),
    shm=Disk("/dev/shm", 64 * GIB, 64 * GIB),
    disks=(Disk("/work", 500 * GIB, 900 * GIB), Disk("/tmp", 500 * GIB, 900 * GIB)),
    clock=Clock(is_synchronised=True, error_seconds=0.002),
    is_master_port_free=True,
    requested=Requested(nproc=8, master_port=29_500),
)


def machine(**changes: Any) -> Surroundings:
    """The healthy machine but for these values; `rdma`, `gpus_seen` and `nccl` are of its facts."""
    facts = HEALTHY.facts
    for name, field in (("rdma", "rdma"), ("gpus_seen", "gpus"), ("nccl", "nccl_version")):
        if name in changes:
            facts = replace(facts, **{field: changes.pop(name)})
    given = {name: Given(value) for name, value in changes.pop("given", {}).items()}
    if "NCCL_IB_HCA" in given:
        facts = replace(facts, rdma=chosen(facts.rdma, given["NCCL_IB_HCA"].value))
    requested = {f.name: changes.pop(f.name) for f in fields(Requested) if f.name in changes}
    changes["requested"] = replace(HEALTHY.requested, **requested)
    return replace(HEALTHY, facts=facts, given=given, **changes)


def complaints(here: Surroundings) -> list[tuple[str, str, str, str]]:
    """Check, level, subject and value of everything that is not well."""
    return [
        (finding.check, finding.level, finding.subject, finding.value)
        for finding in check_node(here)
        if finding.level in ("warn", "fail")
    ]


def complaint(text: str) -> tuple[str, ...]:
    """One of `complaints`, written as "CHECK LEVEL | SUBJECT | VALUE"."""
    verdict, subject, value = (word.strip() for word in text.split("|"))
    return (*verdict.split(), subject, value)


VIRTUAL = candidate("docker0", "172.17.0.1", kind=LinkKind.VIRTUAL)
