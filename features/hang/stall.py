"""Nothing moves on any node: what is known of it, and when it ends the programs. Pure.

A node reports when nothing has moved on it for long, and when something does again. Where nothing
does on all nodes, the judge looks at their ranks, twice, and notes what it finds. That ends the
programs only where a person has given a time for it, and only while the rank for which the others
wait does nothing itself: a rank that writes a checkpoint for 20 minutes is at work.

Before the first collectives a silence says little: at first it ends nothing, and is no stall. A
person is shown it as what it is, neither output nor a collective, and what the looks found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from features.hang.rules import Verdict, look_at, stacks_of
from features.hang.watch import AGAIN_SECONDS, STUCK
from features.hang.wire import RunLook
from rendezvous.registry.topics import Ending, Noted, Remark, Run, StopAsked, data_of
from rendezvous.wire.errors import Cause
from rendezvous.wire.run import NodeState, Phase, Standing, Suspect
from rendezvous.wire.types import Wire
from rendezvous.wire.words import duration_text, printable, time_text

NAME = "hang"
LOOK = "'rdzv look {}' shows where each rank is"


class Silence(NamedTuple):
    """A node on which nothing moves.

    Attributes:
        incarnation: Of the node, in this `epoch`.
        since: When something moved last, by the run's clock.
        number: Counts the silences of the node's program.
        early: Its program has not come to its first collectives, so that this says little.
    """

    incarnation: int
    epoch: int
    number: int
    since: float
    early: bool

    def is_of(self, run: Run, slot: int) -> bool:
        """Whether this node of the slot has not ended, and runs this epoch."""
        node = run.slots[slot].live_node()
        return node is not None and (node.incarnation, run.epoch) == self[:2]


Silences = Mapping[int, Silence]
"""By slot."""


class Stall(Wire):
    """Finding of the looks that are made while nothing moves on any node.

    Attributes:
        since: When something moved last, on the run's clock.
        rule: By which it was found, see `features.hang.rules`.
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


def quiet_since(run: Run, silences: Silences) -> float | None:
    """Since when nothing moves on any node whose program runs, so that looks can say why; None:
    something does, or a program has not come to its first collectives."""
    since = silent_since(run, silences)
    if since is None or any(silences[slot].early for slot in own(run)):
        return None
    return since


def silent_since(run: Run, silences: Silences) -> float | None:
    """Since when nothing moves on any node whose program runs; None: something does."""
    if run.phase is not Phase.RUNNING or run.stop or run.departure is not None:
        return None
    latest = None
    for slot in own(run):  # of a healthy run the first one says so
        if (silence := silences.get(slot)) is None:
            return None
        latest = silence.since if latest is None else max(latest, silence.since)
    return latest


def own(run: Run) -> Iterator[int]:
    """The slots whose nodes run a program: of a led run only the first one does."""
    for slot in run.slots:
        node = slot.live_node()
        if node is None or node.state is not NodeState.RUNNING:
            continue
        if node.number == 0 or not run.spec.led:
            yield slot.index


def unjudged(run: Run, passed: str) -> str:
    """Sentence on a silence before the first collectives, with what looks have found."""
    stall = found_in(run)
    more = f": {stall.sentence}" if stall is not None else f"; {LOOK.format(run.id)}"
    return f"no output and no collective for {passed}{more}"


def found_in(run: Run) -> Stall | None:
    """Return what the looks found last; None: nothing, or the ranks move again."""
    return data_of(run, NAME, Stall)


def remarked(slots: Sequence[int], words: str, kept: Noted | None, *, usual: bool = True) -> Noted:
    """Make the event of a sentence on these nodes that leaves what was found as it is."""
    slot = slots[0] if len(slots) == 1 else None
    said = Noted(feature=NAME, words=words)
    return (kept or said).model_copy(update={"words": words, "slot": slot, "usual": usual})


def looked(look: RunLook, before: RunLook | None, now: float) -> Iterator[Noted]:
    """Make the event that keeps what a person's look has found, if that lasts."""
    is_of_it = before is not None and before.epoch == look.epoch
    verdict = look_at(look, before if is_of_it else None, brief="timed")
    if verdict.rule in STUCK:
        yield Noted(
            feature=NAME,
            words=printable(f"a look has found: {verdict.sentence}", 1_400),
            usual=True,
            data={},
            finding=finding(
                f"a look {{time}} before had found: {verdict.sentence}", look, verdict.next_step
            ),
            since=now - look.age,
        )


def finding(words: str, look: RunLook, next_step: str) -> Standing:
    """Make what is kept for the end of the run, with the stacks of the ranks that matter."""
    return Standing(
        words=printable(words, 800),
        next_step=printable(next_step, 600),
        stacks=[printable(one, 800) for one in stacks_of(look)],
    )


def moved_again(slots: Sequence[int], found: Stall, now: float) -> Noted:
    """Make the event by which what was found is over, since something moves on these nodes."""
    words = f"the ranks move again, after {duration_text(now - found.since)} in which nothing did"
    return remarked(slots, words, None, usual=False)


def noted(
    run: Run,
    silences: Silences,
    verdict: Verdict,
    at_work: bool,
    now: float,
    found: Standing | None = None,
) -> Noted:
    """Make the event by which a finding of looks is kept and shown."""
    rank = verdict.odd[0] if verdict.odd_count == 1 else None
    since = silent_since(run, silences)
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
    is_early = quiet_since(run, silences) is None
    nothing = "no output and no collective" if is_early else "nothing has moved"
    words = f"{nothing} for {duration_text(now - stall.since)}: {stall.sentence}"
    hint = f"; try: {stall.next_step}" if stall.next_step and not at_work else ""
    return Noted(
        feature=NAME,
        words=words + hint,
        slot=stall.slot,
        usual=at_work,
        data=stall.model_dump(mode="json"),
        finding=found,
        since=stall.since,
    )


def _slot_of(run: Run, rank: int | None) -> int | None:
    """Of the node that runs this rank."""
    rows = run.table.processes() if run.table is not None else ()
    return next((row.slot for row, ranks in rows if rank in ranks), None)


def is_overdue(run: Run, silences: Silences, now: float, worked_at: float | None) -> bool:
    """Whether the programs are to be ended, if a look finds what they wait for: nothing has moved,
    and no rank for which the others wait was at work, for as long as a person has given."""
    limit, since = timeout_of(run), quiet_since(run, silences)
    if limit is None or since is None:
        return False
    return now - (since if worked_at is None else max(since, worked_at)) >= limit


def timeout_of(run: Run) -> float | None:
    """After how many seconds a stall ends the programs; None: it does not."""
    options = run.spec.features.get(NAME)
    seconds = options.get("timeout_seconds") if isinstance(options, dict) else None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds < 1:
        return None
    return seconds


def again_seconds(run: Run, least: float) -> float:
    """From the first look to the second: who gives a short time is not kept waiting for longer."""
    limit = timeout_of(run)
    return AGAIN_SECONDS if limit is None else max(least, min(AGAIN_SECONDS, limit / 2))


def stop_asked(note: Noted, now: float) -> StopAsked:
    """End the programs: what was noted is a failure now."""
    stall = Stall.model_validate(note.data)
    after = duration_text(now - stall.since)
    words = f"the programs are stopped, because nothing has moved for {after}"
    return StopAsked(
        feature=NAME,
        reason=f"{words}: {stall.sentence}",
        then=Ending(
            cause=Cause.STALLED,
            message=printable(f"stalled: {stall.sentence}", 600),
            hint=stall.next_step,
            slot=stall.slot,
            rank=stall.rank,
            certain=stall.certain,
        ),
    )


def remark_of(run: Run, silences: Silences, now: float) -> Remark | None:
    """Observation for the status while the programs run; None: something moves."""
    since = silent_since(run, silences)
    if since is None:
        return None
    passed = time_text(now - since)
    if quiet_since(run, silences) is None:
        return Remark(silence=unjudged(run, passed or "a while"), lasting=unjudged(run, "a while"))
    stall = found_in(run)
    more = f": {stall.sentence}" if stall is not None else f"; {LOOK.format(run.id)}"
    finding = f"nothing has moved for {passed}" if passed else "nothing moves"
    suspect = None
    if stall is not None and stall.slot is not None:
        suspect = Suspect(slot=stall.slot, rank=stall.rank)
    return Remark(
        finding=finding + more,
        lasting=f"nothing moves{more}",
        next_step=stall.next_step if stall is not None else "",
        suspect=suspect,
    )
