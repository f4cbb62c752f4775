"""Who probes whom, and what came of it. Pure."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from rendezvous.wire.types import (
    MAX_NODES,
    STRICT,
    Address,
    Port,
    ShortWords,
    SlotIndex,
    Wire,
    Words,
)

Outcome = Literal[
    "ok",
    "refused",  # the address answers, and nothing listens there
    "timeout",  # no answer at all
    "no_route",  # this host has no way there
    "self",  # it is an address of this node itself
    "wrong_node",  # another node of the run answered
    "stranger",  # something answered that is no node of this run
    "black_hole",  # small messages pass, and large ones vanish
    "error",  # anything else; `detail` says what
]


@dataclass(frozen=True, slots=True, config=STRICT)
class PairProbe:
    """What a node found out about one peer, over the addresses of one network class."""

    slot: Annotated[SlotIndex, Field(description="The peer.")]
    outcome: Outcome
    rtt_ms: Annotated[float, Field(ge=0, le=1e7, allow_inf_nan=False)] | None = None
    skew_seconds: Annotated[float, Field(ge=-1e10, le=1e10, allow_inf_nan=False)] | None = Field(
        default=None, description="The peer's clock less this node's, at the sample of least rtt."
    )
    path_mtu: Annotated[int, Field(ge=0, le=1_000_000)] | None = Field(
        default=None, description="Bytes of the largest unfragmented IP packet that was answered."
    )
    source: ShortWords = Field(default="", description="This node's address, as the peer saw it.")
    resolved: ShortWords = Field(
        default="",
        description="Where this node's hosts file maps the peer's hostname, if not to the peer.",
    )
    detail: Words = ""
    icmp: ShortWords = Field(
        default="",
        description="What ICMP reports about the address: `neighbour` (the next hop does not "
        "answer), `prohibited` (by a firewall) or `unreachable` (from a router).",
    )


class ProbePeer(Wire):
    """One node of a probe plan: where the others are to reach it in this round."""

    slot: SlotIndex
    hostname: ShortWords
    address: Address
    interface: ShortWords
    mtu: Annotated[int, Field(ge=0, le=1_000_000, description="0 when unknown.")]
    probe_port: Port


class ProbePlan(Wire):
    """Verifying: the addresses of one network class, which are to be proven in this epoch."""

    network: Words = Field(description="The class, in words: eth0 (10.0.0.0/24, Ethernet).")
    peers: list[ProbePeer]
    fresh: list[SlotIndex] | None = Field(
        None, description="Only pairs with one of these are verified; not set: all pairs."
    )


class ProbeReport(Wire):
    """Verifying: what this node found out about its peers in this epoch's plan."""

    kind: Literal["probe"] = "probe"
    epoch: int
    pairs: Annotated[list[PairProbe], Field(max_length=MAX_NODES)] = []
