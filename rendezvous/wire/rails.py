"""Which RDMA ports of a node carry the collectives: its *rails*. Pure.

A node that checks itself and the registry that compares all nodes ask here, and mean the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from rendezvous.wire.node import RdmaPort

_Kind: TypeAlias = tuple[str, str, float]


def rails(ports: Iterable[RdmaPort]) -> list[RdmaPort]:
    """The ports of the kind that carries most together; of two that carry as much, InfiniBand.

    A kind is link layer, chip and rate: storage often has ports of the rails' own chip, at another
    rate. A port without a link has a rate that means nothing, and counts by its chip. Ports that
    NCCL_IB_HCA leaves out are none.
    """
    chosen = [port for port in ports if port.chosen]
    count = Counter(_kind(port) for port in chosen)

    def carries(kind: _Kind) -> tuple[float, bool, int, _Kind]:
        return count[kind] * kind[2], kind[0] == "InfiniBand", count[kind], kind

    best = max(count, key=carries, default=None)
    return [port for port in chosen if best and _is_of(port, best)]


def siblings(ports: Iterable[RdmaPort], found: Sequence[RdmaPort]) -> list[RdmaPort]:
    """The ports of the rails' chip that run at another rate, and so are none: storage, or sick."""
    chips = {_kind(port)[:2] for port in found}
    return [p for p in ports if p.chosen and _kind(p)[:2] in chips and p not in found]


def _kind(port: RdmaPort) -> _Kind:
    return port.link_layer, port.hca_type, port.rate_gbps if _is_linked(port) else 0.0


def _is_linked(port: RdmaPort) -> bool:
    return port.phys_state in ("LinkUp", "") and port.state != "DOWN"


def _is_of(port: RdmaPort, kind: _Kind) -> bool:
    return _kind(port) == kind or (_kind(port)[:2] == kind[:2] and not _is_linked(port))
