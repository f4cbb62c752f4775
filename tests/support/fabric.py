"""Machines with GPUs and RDMA ports for tests: sound ones, and some that are not."""

from __future__ import annotations

import ast
import shlex
from dataclasses import replace
from typing import Any

from rendezvous.wire.node import Facts, JoinRequest, RdmaPort
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


KINDS: dict[str, Any] = {"infiniband": infiniband, "roce": roce, "efa": efa}


def machines(text: str) -> list[JoinRequest]:
    """`16 roce; 7 gpus=7 6.mtu=1500`: 16 sound machines with RoCE, and one that is not.

    Slots are `7`, `0-2` or `*`; `6.mtu` is of its port 6, `*.mtu` of all, `+roce9.mtu` of one more,
    and `ports=efa:4` what it has instead.
    """
    first, *clauses = text.split("; ")
    size, _, kind = first.partition(" ")
    told: dict[int, list[str]] = {slot: [] for slot in range(int(size))}
    for clause in clauses:
        slots, *words = shlex.split(clause)
        start, _, end = slots.partition("-")
        for slot in told if slots == "*" else range(int(start), int(end or start) + 1):
            told[slot] += words
    return [
        make_join(slot, hostname=f"h{slot}", facts=_facts(slot, kind or "infiniband", words))
        for slot, words in told.items()
    ]


def _facts(slot: int, kind: str, words: list[str]) -> Facts:
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
        "wants_rdma": True,
    }
    ports = _ports(slot, f"{kind}:8")
    for word in words:
        name, value = word.split("=", 1)
        number, _, of_port = name.partition(".")
        if name == "ports":
            ports = _ports(slot, value)
        elif not of_port:
            values[name] = _like(values[name], value)
        else:
            if number.startswith("+"):
                ports.append(KINDS[number[1:-1]](int(number[-1]), slot))
            for at in (
                range(len(ports)) if number == "*" else [-1 if "+" in number else int(number)]
            ):
                changed = {of_port: _like(getattr(ports[at], of_port), value)}
                ports[at] = replace(ports[at], **changed)
    return Facts(**values, rdma=ports)


def _ports(slot: int, text: str) -> list[RdmaPort]:
    kind, _, count = text.partition(":")
    return [KINDS[kind](number, slot) for number in range(int(count))]


def _like(default: object, text: str) -> Any:
    return text if isinstance(default, str) else ast.literal_eval(text)
