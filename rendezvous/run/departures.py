"""A node that will go says so before, and the programs of all end together. Pure.

A platform that takes a machine away gives a notice of 30 s or two minutes. Programs are shown it at
once; all are stopped early enough for their grace, so that the ranks can save one state together.
The node counts as lost: no restart answers it.
"""

from __future__ import annotations

from rendezvous.run import events
from rendezvous.run.decision import Outcome
from rendezvous.run.moves import begin_stop, failure
from rendezvous.run.records import Departure
from rendezvous.run.replacing import retire
from rendezvous.run.state import KILL_SECONDS, Run, Slot, who
from rendezvous.wire.errors import Cause
from rendezvous.wire.reports import DepartReport, ExitReport
from rendezvous.wire.run import NodeState, Result
from rendezvous.wire.watch import DepartureNotice
from rendezvous.wire.words import printable

MARGIN_SECONDS = 5.0
"""Beside the grace: for the stop to be heard, and for what is left to be written and reported."""
_SAME_SECONDS = 1.0
"""What is said again took another time on its way."""
TOLD_TO_END = (128 + 1, 128 + 2, 128 + 15)
"""What a node ends with that was told to end: by its platform, or by whoever cancels, if that comes
just then."""
_HINT = "launch it again to resume from your last checkpoint"
_ALONE = "no node may take its place (--on-node-loss fail), so the run ended"


def _stop_at(run: Run, report: DepartReport, now: float) -> float:
    left = report.seconds - run.spec.limits.grace_seconds - MARGIN_SECONDS
    return now + max(0.0, left)


def is_known(run: Run, slot: Slot, report: DepartReport, now: float) -> bool:
    """Whether a node has said it before, and goes no sooner; a signal may follow a notice."""
    before, stop_at = slot.its_node.departure, _stop_at(run, report, now)
    if before is None or (stop_at <= now and not run.stop):
        return False
    return stop_at > before.stop_at - _SAME_SECONDS


def departs(run: Run, event: events.Departs, now: float) -> Outcome:
    """Show it to the programs, and stop them when it is time; the earliest departure counts."""
    slot, report = run.slots[event.slot], event.report
    if slot.its_node.state is NodeState.STANDBY:  # no program runs on it: it may go at once
        name = who(slot)
        how = retire(run, slot, report.words, now)
        run.seq += 1
        words = f"{name}, a standby, leaves: {report.words}"
        return Outcome(words + (f"; {how}" if how else ""), slot.index)
    stop_at = _stop_at(run, report, now)
    slot.its_node.departure = departure = Departure(
        slot.index, stop_at, report.words, report.drained
    )
    if run.departure is None or stop_at < run.departure.stop_at:
        run.departure = departure
        run.seq += 1
    when = f" in {report.seconds:.0f} s" if report.seconds else ""
    reason = f"{who(slot)} will leave{when}: {report.words}"
    if stop_at <= now and not run.stop:
        _stop_all(run, now)
        reason += "; all programs are stopped, so that they can save their state"
    return Outcome(reason, slot.index)


def ended_well(run: Run, slot: Slot) -> None:
    """Whose program has ended well stops nobody: the run does without its node."""
    if run.departure is not None and run.departure.slot == slot.index and not run.stop:
        known = [node.departure for s in run.members() if (node := s.its_node).departure]
        run.departure = min(filter(None, known), key=lambda one: one.stop_at, default=None)


def departure_due(run: Run, event: events.DepartureDue, now: float) -> Outcome:
    """Stop all programs, while the node is still there."""
    assert run.departure is not None
    slot = run.slots[run.departure.slot]
    _stop_all(run, now)
    return Outcome(f"all programs are stopped, because {who(slot)} leaves: {run.departure.words}")


def _stop_all(run: Run, now: float) -> None:
    """Nothing has failed: how the run ends is known once all have saved what they save."""
    begin_stop(run, now, run.spec.limits.grace_seconds + KILL_SECONDS)


def notice_of(run: Run, now: float) -> DepartureNotice | None:
    """What the programs are shown."""
    departure = run.departure
    if departure is None:
        return None
    node = run.slots[departure.slot].node
    return DepartureNotice(
        slot=departure.slot,
        node=node.number if node else None,
        seconds=round(max(0.0, departure.stop_at - now), 1),
        words=departure.words,
    )


def result_of(run: Run, departure: Departure) -> Result:
    """Of a run whose programs were stopped for it, and did not fail."""
    slot = run.slots[departure.slot]
    how = "was" if departure.drained else "left the run:"
    words = f"{who(slot)} {how} {departure.words}"
    if not run.spec.outlives_nodes:
        return failure(Cause.NODE_LOST, f"{words}, and {_ALONE}", slot, _HINT)
    return failure(Cause.NODE_LOST, f"{words}; all programs were stopped before", slot, _HINT)


def end_of(run: Run, slot: Slot) -> Result:
    """What the end of an epoch says that was ended for it: that the node leaves, or was lost."""
    departure = slot.its_node.departure
    how = f"leaves the run: {departure.words}" if departure else f"was lost: {slot.problem}"
    return failure(Cause.NODE_LOST, printable(f"{who(slot)} {how}", 600), slot)


def hint_of(report: ExitReport) -> str:
    """What to do where a node that was told to end is the first cause; empty where it is not."""
    return _HINT if report.leaves and report.exit_code in TOLD_TO_END else ""


def clause_of(run: Run, first: Slot) -> str:
    """What the sentence of a failure says of a node that was about to leave."""
    departure = run.departure
    if departure is None or departure.slot == first.index:
        return ""
    return f"; {who(run.slots[departure.slot])} was about to leave: {departure.words}"
