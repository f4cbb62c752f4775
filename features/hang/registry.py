"""What the registry keeps of the silences of a run's nodes."""

from __future__ import annotations

from features.hang.stall import Silence
from features.hang.wire import QuietReport
from rendezvous.registry.topics import Received
from rendezvous.run.state import Run

_ON_ITS_WAY_SECONDS = 10.0
"""Of a message, at most; the end of a silence and the next one take longer."""


class Quiet:
    """The silences of one run, by slot."""

    def __init__(self) -> None:
        self._silences: dict[int, Silence] = {}

    def receive(self, received: Received) -> tuple[None, int]:
        """Keep a node's silence, or forget it; what an earlier epoch sent late is left out."""
        report: QuietReport = received.message
        if report.epoch != received.run.epoch:
            return None, 1
        known = self._silences.pop(received.slot, None)
        if report.seconds is not None:
            fresh = Silence(
                received.incarnation, report.epoch, received.now - report.seconds, report.early
            )
            if known is not None and _is_same(known, fresh):
                fresh = fresh._replace(since=known.since)
            self._silences[received.slot] = fresh
        return None, 1

    def of(self, run: Run) -> dict[int, Silence]:
        """The silences of the nodes that run now."""
        return {slot: one for slot, one in self._silences.items() if one.is_of(run, slot)}


def _is_same(known: Silence, fresh: Silence) -> bool:
    """Whether a silence is the known one, sent anew: that began when it began, however long the
    message was on its way. That something has moved in between may have been lost."""
    return known[:2] == fresh[:2] and abs(fresh.since - known.since) < _ON_ITS_WAY_SECONDS
