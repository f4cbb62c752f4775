"""A network class: one candidate of each node, over which a run can be proven. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from rendezvous.frozen import frozen
from rendezvous.wire.node import Candidate


@frozen
class NetworkClass:
    """One address of each node.

    Attributes:
        number: Its place among the classes of a run, from 0.
        words: `eth0 (10.0.0.0/24, Ethernet)`; classes that look alike are numbered in it.
        members: The candidate of each slot.
        is_last: Nodes left it out as virtual; see `last_resort`.
    """

    number: int
    words: str
    members: Mapping[int, Candidate]
    is_last: bool = False
