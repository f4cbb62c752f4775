"""What a GPU's driver says of it at the time of a failure."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from rendezvous.cause.facts import FactKind
from rendezvous.wire.evidence import Fact
from worker.evidence.parsing.telling import fact
from worker.machine.gpus import Gpu, look_gpus

_SLOWED_BY_HARDWARE = 0x8 | 0x40 | 0x80
"""NVML's bits: slowed down, too hot, and too little power. The others are everyday's."""


def look_devices(limit_seconds: float, root: Path = Path("/")) -> list[Fact]:
    """Ask NVML, where the machine has NVIDIA's device at all."""
    if not os.path.exists(root / "dev/nvidiactl"):
        return []
    return gpu_facts(look_gpus(limit_seconds).gpus)


def gpu_facts(gpus: Iterable[Gpu]) -> list[Fact]:
    """The GPUs that are lost, have lost bits, or are slowed down by their hardware."""
    facts = []
    for gpu in gpus:
        path = gpu.uuid or f"GPU {gpu.index}"
        if gpu.is_foreign:
            continue
        if gpu.problem or gpu.recovery:
            words = gpu.problem or f"the driver asks {gpu.recovery}"
            facts.append(fact(FactKind.GPU, path=path, words=words))
        if gpu.ecc_errors:
            facts.append(fact(FactKind.GPU, path=path, words="ecc", value=gpu.ecc_errors))
        if slowed := (gpu.throttled or 0) & _SLOWED_BY_HARDWARE:
            facts.append(fact(FactKind.GPU, path=path, words="throttled", value=slowed))
    return facts
