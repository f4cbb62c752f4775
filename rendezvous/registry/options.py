"""What the operator of a registry decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rendezvous.wire.run import DEFAULT_MAX_RUNS


@dataclass(frozen=True, slots=True)
class Options:
    """What the operator decides.

    Attributes:
        trust_close: Whether a closed connection speaks of the node, and its peer is the node's
            address (not behind an ingress).
        max_runs: How many runs may be in progress at once; those that have ended do not count.
        crowded: Says why further nodes cannot call; empty when they can.
        connections: How many are open.
        boot_id: Of the machine on which the registry runs; empty when unknown.
    """

    trust_close: bool = True
    max_runs: int = DEFAULT_MAX_RUNS
    crowded: Callable[[], str] = lambda: ""
    connections: Callable[[], int] = lambda: 0
    boot_id: str = ""
