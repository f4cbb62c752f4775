"""How long an epoch has lasted, and whether it has got on. Pure."""

from __future__ import annotations

from rendezvous.run.state import Run, Slot

LONG_SECONDS = 600.0
"""Who has run for so long has got on, whatever is known of its progress."""


def ran_seconds(run: Run, first: Slot | None, now: float | None = None) -> float:
    """From the go to the first failure."""
    went_at = run.starts.went_at
    failed_at = first.its_node.failed_at if first is not None else now
    return 0.0 if went_at is None or failed_at is None else max(0.0, failed_at - went_at)


def progress_of(run: Run) -> int | None:
    """The highest step that a node has reported in this epoch."""
    exits = [slot.node.exit for slot in run.slots if slot.node and slot.node.exit]
    return max((r.progress for r in exits if r.progress is not None), default=None)


def got_on(run: Run, seconds: float) -> bool:
    """Whether this epoch has got further than those before it, as far as that is known."""
    reached, before = progress_of(run), run.starts.progress
    further = reached is not None and (before is None or reached > before)
    return further or seconds >= LONG_SECONDS
