"""Nothing moves any more on any node: what is known of it, and when it ends the programs. Pure.

A node says when nothing has moved on it for long, and when something does again. Where that is so
on all nodes the registry looks at their ranks, twice, and what it finds is an event here. It ends
the programs only where a person has given a time for it, and only while the rank for which the
others wait does nothing itself: whoever writes a checkpoint for 20 minutes is at work.

Before the first collectives a silence says little, and is not looked into at first. A person is
told of it as what it is: neither output nor a collective, and how to see where the ranks are.
"""

from __future__ import annotations

from collections.abc import Iterator

from rendezvous.hang import AGAIN_SECONDS, Verdict
from rendezvous.run import events, features, stragglers
from rendezvous.run.decision import Outcome
from rendezvous.run.state import Node, Run, who
from rendezvous.wire.errors import Cause
from rendezvous.wire.run import NodeState, Phase, Suspect
from rendezvous.wire.types import Wire
from rendezvous.wire.words import duration_text, printable, time_text

FEATURE = "hang"
LOOK = "'rdzv look {}' shows where each rank is"


class Stall(Wire):
    """Finding of the looks that are made while nothing moves on any node.

    Attributes:
        since: When something moved last, on the run's clock.
        rule: By which it was found, see `rendezvous.hang`.
        at_work: The rank for which the others wait does something itself.
        slot: Of that rank's node.
    """

    since: float
    rule: str
    sentence: str
    next_step: str = ""
    at_work: bool = False
    certain: bool = False
    slot: int | None = None
    rank: int | None = None


def quiet_since(run: Run) -> float | None:
    """Since when nothing moves on any node whose program runs, so that looks can say why; None:
    something does, or a program has not come to its first collectives."""
    since = silent_since(run)
    if since is None or any(node.quiet_early for node in _own(run)):
        return None
    return since


def silent_since(run: Run) -> float | None:
    """Since when nothing moves on any node whose program runs; None: something does."""
    if run.phase is not Phase.RUNNING or run.stop or run.departure is not None:
        return None
    latest = None
    for node in _own(run):  # of a healthy run the first one says so
        if node.quiet_since is None:
            return None
        latest = node.quiet_since if latest is None else max(latest, node.quiet_since)
    return latest


def _own(run: Run) -> Iterator[Node]:
    """The nodes that run a program: of a led run only the first one does."""
    for slot in run.slots:
        node = slot.live_node()
        if node is None or node.state is not NodeState.RUNNING:
            continue
        if node.number == 0 or not run.spec.led:
            yield node


def quieted(run: Run, event: events.Quieted, now: float) -> Outcome:
    """Keep since when nothing moves on a node."""
    slot, seconds = run.slots[event.slot], event.report.seconds
    was_silent = silent_since(run) is not None
    slot.its_node.quiet_since = None if seconds is None else now - seconds
    slot.its_node.quiet_early = event.report.early
    if seconds is not None:
        since = silent_since(run)
        if since is not None and quiet_since(run) is None and not was_silent:
            return Outcome(_unjudged(run, duration_text(now - since)), slot.index)
        words = f"{who(slot)}: nothing has moved for {duration_text(seconds)}"
        return Outcome(words, slot.index, usual=True)
    stall = found_in(run)
    if stall is None or run.stop_asked is not None:
        return Outcome(f"{who(slot)}: its ranks move again", slot.index, usual=True)
    run.notes = features.without(run.notes, FEATURE)
    after = duration_text(now - stall.since)
    return Outcome(f"the ranks move again, after {after} in which nothing did", slot.index)


def _unjudged(run: Run, passed: str) -> str:
    """Sentence on a silence that nobody has looked into."""
    return f"no output and no collective for {passed}; {LOOK.format(run.id)}"


def found_in(run: Run) -> Stall | None:
    """Return what the looks found last; None: nothing, or the ranks move again."""
    return features.data_of(run, FEATURE, Stall)


def noted(run: Run, verdict: Verdict, at_work: bool, now: float) -> events.Noted:
    """Make the event by which a finding of looks is kept and told."""
    rank = verdict.odd[0] if verdict.odd_count == 1 else None
    since = quiet_since(run)
    stall = Stall(
        since=now if since is None else since,
        rule=verdict.rule,
        sentence=printable(verdict.sentence, 600),
        next_step=printable(verdict.next_step.replace("logs RUN", f"logs {run.id}"), 600),
        at_work=at_work,
        certain=verdict.certain,
        slot=_slot_of(run, rank),
        rank=rank,
    )
    words = f"nothing has moved for {duration_text(now - stall.since)}: {stall.sentence}"
    hint = f"; try: {stall.next_step}" if stall.next_step and not at_work else ""
    return events.Noted(
        feature=FEATURE,
        words=words + hint,
        slot=stall.slot,
        usual=at_work,
        data=stall.model_dump(mode="json"),
    )


def _slot_of(run: Run, rank: int | None) -> int | None:
    """Of the node that runs this rank."""
    rows = run.table.processes() if run.table is not None else ()
    return next((row.slot for row, ranks in rows if rank in ranks), None)


def is_overdue(run: Run, now: float, worked_at: float | None) -> bool:
    """Whether the programs are to be ended, if a look finds what they wait for: nothing has moved,
    and no rank for which the others wait was at work, for as long as a person has given."""
    limit, since = run.spec.limits.stall_timeout_seconds, quiet_since(run)
    if limit is None or since is None:
        return False
    return now - (since if worked_at is None else max(since, worked_at)) >= limit


def again_seconds(run: Run, least: float) -> float:
    """From the first look to the second: who gives a short time is not kept waiting for longer."""
    limit = run.spec.limits.stall_timeout_seconds
    return AGAIN_SECONDS if limit is None else max(least, min(AGAIN_SECONDS, limit / 2))


def stop_asked(note: events.Noted, now: float) -> events.StopAsked:
    """End the programs: what was noted is a failure now."""
    stall = Stall.model_validate(note.data)
    after = duration_text(now - stall.since)
    words = f"the programs are stopped, because nothing has moved for {after}"
    return events.StopAsked(
        feature=FEATURE,
        reason=f"{words}: {stall.sentence}",
        then=events.Ending(
            cause=Cause.STALLED,
            message=printable(f"stalled: {stall.sentence}", 600),
            hint=stall.next_step,
            slot=stall.slot,
            rank=stall.rank,
            certain=stall.certain,
        ),
    )


def silence_of(run: Run, now: float, *, times: bool) -> str:
    """Sentence on a silence before the first collectives; empty: there is none."""
    since = silent_since(run)
    if since is None or quiet_since(run) is not None:
        return ""
    return _unjudged(run, (time_text(now - since) if times else "") or "a while")


def words_of(run: Run, now: float, *, times: bool) -> str:
    """What the reason of a run says of it, in front of which the number of nodes stands."""
    if (since := quiet_since(run)) is None:
        return ""
    passed = time_text(now - since) if times else ""
    words = f"; nothing has moved for {passed}" if passed else "; nothing moves"
    stall = found_in(run)
    return words + (f": {stall.sentence}" if stall is not None else f"; {LOOK.format(run.id)}")


def suspect_of(run: Run) -> Suspect | None:
    """Whom the others wait for, where that is one rank or one node."""
    if quiet_since(run) is not None:
        stall = found_in(run)
        if stall is None or stall.slot is None:
            return None
        return Suspect(slot=stall.slot, rank=stall.rank)
    slow = stragglers.found_in(run)
    return None if slow is None else Suspect(slot=slow.slot, rank=slow.rank, slow=True)
