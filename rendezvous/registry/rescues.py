"""When a run is taken from an owner that lives: where a node of it cannot reach that. Pure.

Such a replica beats, and keeps its runs; the others answer `Moved` to an address that the node
cannot connect to. So the node would be given up there, though it asks all the time.
"""

from __future__ import annotations

import math

from rendezvous.talk.credentials import Credential
from rendezvous.wire.errors import Moved

RESCUE_SECONDS = 30.0
"""A run is not taken more often: nodes that reach different replicas must not have it go to and
fro."""
_MOST = 10_000
_RESCUERS = ("node", "join", "admin")
"""The credentials without whose owners a run comes to no good end: its nodes and its launcher."""


class Rescues:
    """When each run has gone from one living replica to another, as far as this one has seen it."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}

    def may(self, run: str, why: Moved, shown: Credential, unreached: str, now: float) -> bool:
        """Whether to take a run from its owner.

        Args:
            run: Its name.
            why: What would be answered otherwise.
            shown: What opens the run.
            unreached: Where whoever asks was sent to, and could not connect.
            now: Seconds of a monotonic clock.
        """
        if why.address != unreached or shown.kind not in _RESCUERS:
            return False
        return now - self._at.get(run, -math.inf) >= RESCUE_SECONDS

    def note(self, run: str, now: float) -> None:
        """The run goes now."""
        self._at.pop(run, None)
        self._at[run] = now
        if len(self._at) > _MOST:
            del self._at[next(iter(self._at))]
