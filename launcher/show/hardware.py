"""The GPUs and RDMA ports of a machine, in words. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rendezvous.wire.node import Facts, RdmaPort
from rendezvous.wire.words import listed

OF_ITS_GROUP = "(its control group's limit)"
"""Said of an amount of memory that is below the machine's own."""


def gpu_words(facts: Facts) -> str:
    """`8 x NVIDIA H100 80GB HBM3`; only their number, where no model is known; or nothing."""
    models = Counter(facts.gpu_models)
    words = ", ".join(f"{count} x {model}" for model, count in models.items())
    return words or (str(facts.gpus) if facts.gpus else "")


def rdma_words(ports: Sequence[RdmaPort]) -> Iterator[str]:
    """The usable ports, alike ones together; and the others, each with its reason."""
    usable = Counter((_rate(p), p.link_layer, p.hca_type) for p in ports if not p.problem)
    for (rate, layer, chip), count in usable.items():
        kind = {"Ethernet": "RoCE", "Unknown": "EFA"}.get(layer, layer)
        yield " ".join(filter(None, (f"{count} x", rate, kind, chip)))
    problems: dict[str, list[str]] = {}
    for port in ports:
        if port.problem:
            problems.setdefault(port.problem, []).append(f"{port.device}:{port.port}")
    for problem, names in problems.items():
        yield f"not {listed(names)} ({problem})"


def _rate(port: RdmaPort) -> str:
    """As the kernel writes it, where that is known."""
    return port.rate or (f"{port.rate_gbps:g} Gb/sec" if port.rate_gbps else "")
