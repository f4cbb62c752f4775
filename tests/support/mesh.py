"""Rounds of probes for tests: a full mesh in which some pairs fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from rendezvous.proof.network_class import NetworkClass
from rendezvous.proof.networks import Unreachable, classes_of
from rendezvous.wire.node import JoinRequest
from rendezvous.wire.run import Round
from rendezvous.wire.verify import PairProbe
from tests.support.driver import make_candidate, make_join

ETH = "eth0 (10.0.0.0/24, Ethernet)"
RAIL = "eth1 (10.1.0.0/24, Ethernet)"
Pair = tuple[int, int]


def nodes(size: int, **mtus: int) -> list[JoinRequest]:
    """Nodes with an eth0 and an eth1."""
    return [
        make_join(
            slot,
            hostname=f"h{slot}",
            addresses=[
                replace(
                    make_candidate(f"10.{net}.0.{slot + 1}", f"eth{net}"),
                    mtu=mtus.get(f"h{slot}", 1500),
                )
                for net in range(2)
            ],
        )
        for slot in range(size)
    ]


def tried(
    size: int,
    bad: Iterable[Pair] = (),
    *,
    network: str = ETH,
    probe: Callable[[int, int], dict[str, Any]] = lambda one, other: {},
    **failed: Any,
) -> Round:
    """A round of a full mesh in which the pairs `bad` fail."""
    bad = set(bad)
    how: dict[str, Any] = {"outcome": "timeout"} | failed

    def pair(one: int, other: int) -> PairProbe:
        if (one, other) in bad:
            return PairProbe(slot=other, **how)
        values: dict[str, Any] = {
            "outcome": "ok",
            "rtt_ms": 0.2,
            "skew_seconds": 0.0,
            "path_mtu": 1500,
        } | probe(one, other)
        return PairProbe(slot=other, **values)

    slots = list(range(size))
    reports = {a: [pair(a, b) for b in slots if b != a] for a in slots}
    number = {ETH: 0, RAIL: 1}.get(network)
    return Round(network=network, number=number, verdict="", slots=slots, reports=reports)


def classes(joins: Sequence[JoinRequest]) -> list[NetworkClass]:
    """The network classes of nodes that have some."""
    found = classes_of(joins)
    assert not isinstance(found, Unreachable)
    return found


def both(*pairs: Pair) -> list[Pair]:
    """Both directions of these pairs."""
    return [way for a, b in pairs for way in ((a, b), (b, a))]


def into(slot: int, size: int) -> list[Pair]:
    """Everybody else to the slot."""
    return [(other, slot) for other in range(size) if other != slot]


def out_of(slot: int, size: int) -> list[Pair]:
    """The slot to everybody else."""
    return [(b, a) for a, b in into(slot, size)]


def between(some: Iterable[int], others: Iterable[int]) -> list[Pair]:
    """Both directions between these nodes and those."""
    return both(*((a, b) for a in some for b in others))
