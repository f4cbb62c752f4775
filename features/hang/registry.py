"""What the registry keeps of the silences of a run's nodes."""

from __future__ import annotations

from features.hang import QUIET
from features.hang.stall import Silence
from features.hang.wire import QuietReport
from rendezvous.registry.topics import Received, Run

_MOST_MISSED = 4
"""Reports of a silence that may be missing one after the other, until nothing is known of it."""


class Quiet:
    """The silences of one run, by slot."""

    def __init__(self) -> None:
        self._silences: dict[int, Silence] = {}
        self._reported_at: dict[int, float] = {}

    def receive(self, received: Received) -> tuple[None, int]:
        """Keep a node's silence, or forget it; what an earlier epoch sent late is left out."""
        report: QuietReport = received.message
        if report.epoch != received.run.epoch:
            return None, 1
        known = self._silences.pop(received.slot, None)
        if report.seconds is not None:
            fresh = Silence(
                received.incarnation,
                report.epoch,
                report.number,
                received.now - report.seconds,
                report.early,
            )
            if known is not None and known[:3] == fresh[:3]:  # however long it was on its way
                fresh = fresh._replace(since=known.since)
            self._silences[received.slot] = fresh
            self._reported_at[received.slot] = received.now
        return None, 1

    def of(self, run: Run, now: float) -> dict[int, Silence]:
        """The silences of the nodes that run now."""
        known = self._silences.items()
        return {n: one for n, one in known if one.is_of(run, n) and not self.is_lost(run, n, now)}

    def is_lost(self, run: Run, slot: int, now: float) -> bool:
        """Whether a node that was silent has reported nothing since, for long."""
        patience = _MOST_MISSED * QUIET.pause(len(run.slots))
        return slot in self._silences and now - self._reported_at[slot] > patience
