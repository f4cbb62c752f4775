"""When each slot was in which phase, of the events of its run: what the timeline shows. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from launcher.ui.shapes import PhaseName, Span
from rendezvous.wire.run import EventLine, Phase, SlotState

MOST_SPANS = 24
"""Of one slot: a run that starts again and again has no end of them."""

_OF_WORKER_RUN: dict[SlotState, PhaseName] = {
    SlotState.SUBMITTING: "submitted",
    SlotState.SUBMITTED: "submitted",
    SlotState.QUEUED: "queued",
    SlotState.RUNNING: "booted",
    SlotState.FAILED: "ended",
    SlotState.ENDED: "ended",
}
_OF_EVENT: dict[str, PhaseName] = {
    "joined": "joined",
    "acked": "armed",
    "exited": "ended",
    "lost": "ended",
    "left": "ended",
}
_FROM_JOINED = ("joined", "verified", "armed", "running")


class Phases:
    """The phases of all slots of one run."""

    def __init__(self) -> None:
        self._begun: dict[int, list[tuple[PhaseName, float]]] = {}
        self._phase = Phase.GATHERING

    def take(self, line: EventLine) -> Iterable[int]:
        """Take in what has happened; returns the slots of which that has changed something."""
        changed = set[int]()
        if line.slot is not None and (phase := _phase_of(line)) is not None:
            changed |= self._begin(line.slot, phase, line.at_seconds)
        if line.phase is not self._phase:
            self._phase = line.phase
            changed |= self._all_begin(line.phase, line.at_seconds)
        return changed

    def _all_begin(self, phase: Phase, at: float) -> set[int]:
        """A new phase of the run is one of its nodes, too."""
        slots = list(self._begun)
        here = [slot for slot in slots if self._now(slot) in _FROM_JOINED]
        match phase:
            case Phase.ARMING:
                return self._each(here, "verified", at)
            case Phase.RUNNING:
                return self._each([s for s in here if self._now(s) == "armed"], "running", at)
            case Phase.RESTARTING | Phase.GATHERING | Phase.VERIFYING:
                return self._each([s for s in slots if self._now(s) == "running"], "ended", at)
            case Phase.FINISHED:
                return self._each([s for s in slots if self._now(s) != "ended"], "ended", at)

    def _each(self, slots: Iterable[int], phase: PhaseName, at: float) -> set[int]:
        return set[int]().union(*(self._begin(slot, phase, at) for slot in slots))

    def _now(self, slot: int) -> PhaseName:
        return self._begun[slot][-1][0]

    def _begin(self, slot: int, phase: PhaseName, at: float) -> set[int]:
        begun = self._begun.get(slot)
        if begun is None or (phase == "submitted" and begun[-1][0] == "ended"):
            self._begun[slot] = [(phase, at)]  # its first generation, or another one
            return {slot}
        now = begun[-1][0]
        is_late = phase in ("submitted", "queued", "booted") and now in (*_FROM_JOINED, "ended")
        if now == phase or is_late:  # what the scheduler says of a node that is here already
            return set()
        begun.append((phase, at))
        del begun[:-MOST_SPANS]
        return {slot}

    def spans(self, slot: int) -> list[Span]:
        """The phases of a slot, oldest first; the last one lasts, unless it is its end."""
        begun = self._begun.get(slot, [])
        ends: list[float | None] = [at for _, at in begun[1:]]
        ends.append(begun[-1][1] if begun and begun[-1][0] == "ended" else None)
        return [
            {"phase": phase, "start": start, "end": end}
            for (phase, start), end in zip(begun, ends, strict=False)
        ]


def _phase_of(line: EventLine) -> PhaseName | None:
    if line.state is not None:
        return _OF_WORKER_RUN.get(line.state)
    return _OF_EVENT.get(line.kind)
