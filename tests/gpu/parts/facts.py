"""The facts that a node reports when it joins, beside what nvidia-smi and torch say."""

from __future__ import annotations

from typing import Any

from tests.gpu.findings import Finding, holds, recorded
from tests.gpu.machine import Machine
from tests.gpu.session import Session


def run(session: Session, seen: dict[str, Any]) -> None:
    """Read `rdzv status --machines` while a program runs."""
    with session.launch("facts", "--framework", "command", command=["sleep", "300"]) as launched:

        def machine() -> dict[str, Any] | None:
            called = launched.command("status", "--machines", "--json")
            if called.code != 0:
                return None
            [found] = called.json()["machines"]
            return found if found["sample"] is not None else None

        seen["machine"] = launched.wait_for("the node's first sample was there", machine)
        seen["text"] = launched.command("status", "--machines").text


def judge(seen: dict[str, Any], machine: Machine) -> list[Finding]:
    """Each fact that somebody else knows as well."""
    facts, sample = seen["machine"]["facts"], seen["machine"]["sample"]
    smi, torch = machine.smi, machine.torch
    pairs = {f"{name}_version": torch.get(name, "") for name in ("torch", "cuda", "nccl")}
    if smi or machine.obstacle:
        pairs["gpus"], pairs["gpu_models"] = len(smi), [row["name"] for row in smi]
        pairs["gpu_uuids"] = [row["uuid"] for row in smi]
        pairs["driver_version"] = smi[0]["driver_version"] if smi else ""
    found = [
        holds(f"{name} is {value!r}", facts[name] == value, facts[name])
        for name, value in pairs.items()
    ]
    totals = [gpu["memory_total"] >> 20 for gpu in sample["gpus"]]
    given = [int(row["memory.total"].split()[0]) for row in smi]
    # With what the driver has reserved, or without.
    near = len(totals) == len(given) and all(
        abs(total - mib) <= 0.02 * mib for total, mib in zip(totals, given, strict=True)
    )
    found.append(holds(f"MiB of GPU memory are about {given}", near or not smi, totals))
    found.append(
        holds("the sample has no GPU problem", not sample["gpu_problem"] or not smi, sample)
    )
    found.append(recorded("RDMA", {name: facts[name] for name in ("rdma", "wants_rdma")}))
    return found
