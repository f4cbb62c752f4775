"""Machines with GPUs and RDMA ports for tests: sound ones, and some that are not."""

from __future__ import annotations

from typing import Any

from rendezvous.wire.node import Facts, RdmaPort
from tests.support.driver import make_join, sha


def infiniband(number: int = 0, slot: int = 0, **changes: Any) -> RdmaPort:
    values: dict[str, Any] = {
        "device": f"mlx5_ib{number}",
        "link_layer": "InfiniBand",
        "hca_type": "MT4126",
        "state": "ACTIVE",
        "phys_state": "LinkUp",
        "rate_gbps": 400.0,
        "pkeys": [0x801D, 0x7FFF],
        "subnet_prefix": "fe80:0000:0000:0000",
        "firmware": "28.39.1002",
        "node_guid": f"0015:5dff:{slot:04x}:{number:04x}",
    }
    return RdmaPort(**(values | changes))


def roce(number: int = 0, slot: int = 0, **changes: Any) -> RdmaPort:
    values: dict[str, Any] = {
        "device": f"mlx5_{number}",
        "link_layer": "Ethernet",
        "hca_type": "MT4129",
        "pkeys": [0xFFFF],
        "subnet_prefix": "",
        "gid_index": 3,
        "gid_type": "RoCE v2",
        "mtu": 4220,
    }
    return infiniband(number, slot, **(values | changes))


def efa(number: int = 0, slot: int = 0) -> RdmaPort:
    return RdmaPort(device=f"rdmap{number}s0", link_layer="Unknown", state="ACTIVE", rate_gbps=100)


def facts(slot: int, ports: Any = infiniband, **changes: Any) -> Facts:
    """Of a sound machine with eight GPUs and eight ports."""
    values: dict[str, Any] = {
        "rdzv_version": "0.1.0",
        "python_version": "3.12.4",
        "torch_version": "2.7.1+cu126",
        "cuda_version": "12.6",
        "nccl_version": "2.26.2",
        "driver_version": "570.86.15",
        "gpus": 8,
        "gpu_models": ["NVIDIA H100 80GB HBM3"] * 8,
        "gpu_uuids": [f"GPU-{slot}-{n}" for n in range(8)],
        "boot_id": f"boot-{slot}",
        "script_digest": sha("train.py"),
        "rdma": [ports(n, slot) for n in range(8)],
    }
    return Facts(**(values | changes))


def cluster(size: int, odd: dict[int, Facts] | None = None, ports: Any = infiniband) -> Any:
    """So many sound nodes, and those that are not."""
    own = {slot: facts(slot, ports) for slot in range(size)} | (odd or {})
    return [make_join(slot, hostname=f"h{slot}", facts=own[slot]) for slot in range(size)]


def with_port(slot: int, number: int, ports: Any = infiniband, **changes: Any) -> Facts:
    """A node of which one port is different."""
    return facts(slot, rdma=[ports(n, slot, **(changes if n == number else {})) for n in range(8)])


def on(slots: Any, make: Any) -> dict[int, Facts]:
    """The facts of several nodes, of each by its slot."""
    return {slot: make(slot) for slot in slots}


def storage(slot: int, **changes: Any) -> Facts:
    """A port of the rails' chip more, at half their rate."""
    port = infiniband(9, slot, rate_gbps=200.0, **changes)
    return facts(slot, rdma=[*facts(slot).rdma, port])
