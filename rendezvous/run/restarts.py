"""Programs that have failed start again on the same nodes, or they do not. Pure.

    running -> all programs over, or the verdict -> restarting (back-off) -> arming -> running
                                                 -> gathering: nodes were lost, and others come
                                                 -> finished: no restart is left, or none would help

Rules
  - A restart answers the failure of a program, on nodes that are all there. One number counts for
    the whole run; what a person asks for is not counted.
  - Where a node is lost as well, only the loss counts, and no restart is used up: the run goes on
    with others if it outlives its nodes (`rendezvous.run.replacing`), else it ends. So it is where
    a node fails itself, or its device for the second time.
  - The acknowledgement of the new table says that nothing of the old programs is left on a node.
  - None follows where it would fail alike: the same end twice within 30 s of the start, a program
    that cannot be found or read, three epochs that have not got beyond the last step.
  - The first restart comes at once. After epochs shorter than 60 s that have got no further the
    next ones wait for 1, 2, 4 ... 60 s. Progress, or 10 minutes, begins the count anew.
  - A first warm start that fails at once is repeated as `rendezvous.run.cold` says.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rendezvous.cause.row import Then
from rendezvous.frozen import frozen
from rendezvous.run import cold, departures, events, features
from rendezvous.run.arming import renew_table
from rendezvous.run.decision import Outcome
from rendezvous.run.ends import words_of_exit
from rendezvous.run.gathering import cause_of, check_gathered
from rendezvous.run.lasted import got_on, progress_of, ran_seconds
from rendezvous.run.moves import begin_stop, enter, gather_again
from rendezvous.run.places import standbys
from rendezvous.run.replacing import hurry, plan_words, refill, retire, why_not
from rendezvous.run.state import GONE, Run, Slot, Starts, who
from rendezvous.wire.errors import Cause
from rendezvous.wire.reports import ExitReport
from rendezvous.wire.run import EpochEnd, NodeState, Phase, Result
from rendezvous.wire.words import listed, printable, reason_clause

if TYPE_CHECKING:
    from rendezvous.run.first_cause import FirstCause

QUICK_SECONDS = 30.0
"""Two ends that are alike, each within this time of its start, are of the program itself."""
SHORT_SECONDS = 60.0
LONGEST_BACKOFF_SECONDS = 60.0
MOST_STALLED = 3
MOST_ENDED = 32

_NOT_AGAIN = "the programs are not started again"
_OF_ITS_NODE = f"{_NOT_AGAIN}, because this is a failure of its node"
_OF_CAUSE = (
    *("code", "cause", "message", "exit_code", "slot", "node", "hostname", "rank", "certain"),
)
"""Fields of a result that the end of an epoch has as well."""
_RAISED = re.compile(r"(?:\S+\.)?(\w*Error)\b")
_CHANGING = re.compile(r"0x[0-9a-fA-F]+|[0-9]+")
"""Numbers and addresses, in which the words of two ends that are alike may differ."""


@frozen
class Again:
    """The programs start again, after a while; `then` says so.

    Attributes:
        gone: The nodes without which they do.
        cold: No node forks its ranks from now on.
    """

    after_seconds: float
    counted: bool
    then: str
    gone: tuple[Slot, ...] = ()
    cold: bool = False


@frozen
class Enough:
    """They do not; `why` follows the cause; empty where nobody asked for restarts.

    Attributes:
        gone: Where no program failed, the node without which they cannot start again.
    """

    why: str = ""
    gone: Slot | None = None


def next_step(run: Run, found: FirstCause | None, now: float) -> Again | Enough:
    """What follows the end of an epoch, with its first cause; None: nothing has failed."""
    starts, most = run.starts, run.spec.limits.max_restarts
    first, lost = (found.failed if found is not None else None), _lost(run)
    if found is not None and found.node_goes and found.slot not in lost:
        lost.append(found.slot)
    if run.spec.outlives_nodes and lost and (found is not None or was_stopped(run)):
        return _without(run, first, lost)
    if run.spec.outlives_nodes and (cut_off := _cut_off(run)):
        return Again(0.0, False, f"they start again, as {listed(cut_off)} can be reached again")
    if starts.asked and (first is not None or was_stopped(run)):
        by_hand = f"restart requested{reason_clause(starts.asked)}"
        if lost and first is None:
            return Enough(f"{by_hand}; {_because_lost(None, lost)}", lost[0])
        if lost:
            return Enough(_because_lost(first, lost))
        return Again(0.0, False, by_hand)
    if found is None and run.stop_asked is not None and most:
        return _after_stall(run, lost)
    if found is not None and _is_of_its_node(run, found):
        return _without(run, first, [found.slot])
    if found is not None and not lost and cold.is_due(run, found):
        return Again(0.0, False, cold.words_of(found), cold=True)
    if found is None or first is None or not most:
        return Enough()
    report = found.report
    if lost:
        return Enough(_because_lost(first, lost))
    if report is None or report.by_agent:
        return Enough(_OF_ITS_NODE)
    if starts.used >= most:
        return Enough(_used_up(run, report))
    if why := _hopeless(run, found, report):
        return Enough(why)
    wait = _backoff(run, first)
    return Again(wait, True, _counted(run, wait))


def _is_of_its_node(run: Run, found: FirstCause) -> bool:
    """Whether another node in its place may do better: of a run that outlives its nodes."""
    if not run.spec.outlives_nodes or found.report is None:
        return False
    is_sick = found.then is Then.SICK and run.starts.sick == found.slot.index
    return found.report.by_agent or is_sick


def _without(run: Run, first: Slot | None, lost: list[Slot]) -> Again | Enough:
    """Go on without these nodes, if that can be."""
    if cannot := why_not(run, [slot.index for slot in lost]):
        gone = lost[0] if first is None else None
        words = _because_lost(first, lost) if first is None or lost != [first] else _NOT_AGAIN
        return Enough(f"{words}; {cannot}", gone)
    return Again(0.0, False, plan_words(run, lost), tuple(lost))


def _cut_off(run: Run) -> list[str]:
    """The nodes whose agents have ended the program, as they did not hear of the registry: nobody
    has missed them, and they are there again."""
    nodes = ((slot, slot.its_node.exit) for slot in run.of_table())
    return [who(slot) for slot, report in nodes if report is not None and report.fenced]


def _counted(run: Run, wait: float) -> str:
    after = f"after {wait:.0f} s" if wait else "at once"
    return f"restart {run.starts.used + 1} of {run.spec.limits.max_restarts} {after}"


def _after_stall(run: Run, lost: list[Slot]) -> Again | Enough:
    """What follows programs that were ended because nothing moved any more."""
    starts, most = run.starts, run.spec.limits.max_restarts
    if lost:
        return Enough(_because_lost(None, lost))
    if starts.used >= most:
        return Enough(_all_used(most))
    return Again(0.0, True, _counted(run, 0.0))


def was_stopped(run: Run) -> bool:
    """Whether some program did not end by itself: it was stopped, or takes its time to end."""
    nodes = [slot.its_node for slot in run.of_table()]
    exits = [node.exit for node in nodes if not run.spec.led or node.number == 0]
    return any(report is None or report.stopped for report in exits)


def _lost(run: Run) -> list[Slot]:
    """The nodes of the table that are gone, or are about to go."""
    assert run.table is not None
    slots = [run.slots[row.slot] for row in run.table.rows]
    return [slot for slot in slots if slot.node is None or _goes(run, slot)]


def _goes(run: Run, slot: Slot) -> bool:
    node = slot.its_node
    says_so = node.exit is not None and node.exit.leaves
    return node.state in GONE or says_so or node.departure is not None


def why_never(run: Run) -> str:
    """Why the programs cannot start again on the nodes of the table; empty where they can."""
    lost = _lost(run)
    if run.spec.outlives_nodes and not why_not(run, [slot.index for slot in lost]):
        return ""
    return f"its programs cannot start again, {_because(None, lost)}" if lost else ""


def _because_lost(first: Slot | None, lost: Sequence[Slot]) -> str:
    return f"{_NOT_AGAIN}, {_because(first, lost)}"


def _because(first: Slot | None, lost: Sequence[Slot]) -> str:
    others = [slot for slot in lost if slot is not first]
    named = listed([who(slot) for slot in others]) if others else "it"
    are_gone = all(slot.node is None or slot.node.state in GONE for slot in lost)
    several = len(others) > 1
    goes = ("have left" if several else "has left") if are_gone else "leave" + "s" * (not several)
    return f"because {named} {goes} the run"


def _used_up(run: Run, report: ExitReport) -> str:
    used = _all_used(run.spec.limits.max_restarts)
    codes = {end.exit_code for end in run.starts.ended if end.code}
    alike = codes == {report.exit_code} and len(run.starts.ended) > 1
    return f"{used}; each start ended with exit code {report.exit_code}" if alike else used


def _all_used(most: int) -> str:
    return f"restart {most} of {most} is used up" if most > 1 else "the only restart is used up"


def _hopeless(run: Run, found: FirstCause, report: ExitReport) -> str:
    """Why another start would end alike; empty where it may not."""
    starts, seconds = run.starts, ran_seconds(run, found.failed)
    quick = seconds <= QUICK_SECONDS and not got_on(run, seconds)
    if quick and not cold.others(run) and found.then is Then.HOPELESS:
        return f"{_what_stays(found)}; it is not started again"
    if found.then is Then.SICK and starts.sick == found.slot.index:
        return f"{who(found.slot)} has failed twice because of its device; it is not started again"
    if quick and starts.alike and starts.alike == alike(found, report):
        most, left = run.spec.limits.max_restarts, run.spec.limits.max_restarts - starts.used
        unused = f"{left} of {most} restart{'s' * (most > 1)} {'were' if left > 1 else 'was'}"
        after = f"{seconds:.0f} s after the start"
        return f"it failed twice in the same way (numbers aside), {after}, so {unused} not used"
    stalled = starts.progress is not None and not got_on(run, seconds)
    if stalled and starts.stalled + 1 >= MOST_STALLED:
        return f"{MOST_STALLED} starts in a row did not get beyond step {starts.progress}"
    return ""


def _what_stays(found: FirstCause) -> str:
    if found.row == "not_started":
        return f"exit code {found.exit_code} means that it cannot be started"
    if found.row == "arguments":
        return "its arguments are wrong, which does not pass by itself"
    clue = found.judged.cause.clue
    named = _RAISED.match(clue.line) if clue is not None else None
    return f"a {named[1] if named else 'fault like this'} does not pass by itself"


def alike(found: FirstCause, report: ExitReport) -> str:
    """How a program ended, but for what changes from one end to the next.

    Whichever rank is the first: of a mistake that all make it is another one each time. Empty where
    only what followed from it is known, which is the same for every cause.
    """
    cause = found.judged.cause
    if cause.is_consequence:
        return ""
    words = "\n".join([report.message, *report.tail])
    if found.line is not None:
        words = found.line
    return f"{report.exit_code} {cause.row} {_CHANGING.sub('#', words)}"


def _backoff(run: Run, first: Slot) -> float:
    seconds = ran_seconds(run, first)
    if got_on(run, seconds) or seconds >= SHORT_SECONDS or not run.starts.short:
        return 0.0
    return min(LONGEST_BACKOFF_SECONDS, 2.0 ** min(run.starts.short - 1, 16))


# --- carried out ----------------------------------------------------------------------------------


def begin_again(run: Run, step: Again, found: FirstCause | None, now: float) -> str:
    """End this epoch, and begin with the next one. Returns what was decided, in words."""
    starts = run.starts
    first = found.failed if found is not None else None
    seconds = ran_seconds(run, first, now)
    _count(run, step, found, seconds)
    starts.ended = (*starts.ended, _end_of(run, step, found, seconds))[-MOST_ENDED:]
    starts.failed_at = now - seconds if first is None else (first.its_node.failed_at or now)
    asked, starts.asked = starts.asked, ""
    run.stop, run.verdict_at = False, None
    if step.gone:
        return _begin_without(run, step, now)
    _begin_anew(run)
    if step.after_seconds:
        starts.due_at = now + step.after_seconds
        enter(run, Phase.RESTARTING, now)
    else:
        _arm_again(run, now)
    return "the programs start again" if asked else starts.ended[-1].then


def _change_last(starts: Starts, end: EpochEnd) -> None:
    starts.ended = (*starts.ended[:-1], end)


def _begin_anew(run: Run) -> None:
    """What the nodes of the table have told of their programs is history."""
    for slot in run.of_table():
        node = slot.its_node
        if node.state is NodeState.EXITED:
            node.state = NodeState.JOINED
        node.exit = node.failed_at = node.ended_at = None
        node.progress = ""


def _begin_without(run: Run, step: Again, now: float) -> str:
    """Gather for the next epoch without these nodes: others come in their places."""
    ready = len([slot for slot in standbys(run) if slot not in step.gone])
    shrinks = run.spec.on_node_loss == "shrink"
    run.starts.replaced += min(ready, len(step.gone)) if shrinks else len(step.gone)
    run.departure = None
    why = run.starts.ended[-1].message
    said = [
        refill(run, slot, now) if slot.its_node.state in GONE else retire(run, slot, why, now)
        for slot in step.gone
    ]
    _begin_anew(run)
    gather_again(run, now)
    hurry(run, now)
    then = "; ".join(filter(None, [step.then, *said]))
    _change_last(run.starts, run.starts.ended[-1].model_copy(update={"then": then}))
    return then + check_gathered(run, now)


def _count(run: Run, step: Again, found: FirstCause | None, seconds: float) -> None:
    """What the next decision looks at."""
    starts, on = run.starts, got_on(run, seconds)
    report = found.report if found is not None else None
    is_quick = seconds <= QUICK_SECONDS and not on
    starts.used += step.counted
    starts.progress = max(
        (p for p in (starts.progress, progress_of(run)) if p is not None), default=None
    )
    if step.cold:  # but for its steps, what follows is judged as if it had not been
        starts.cold = True
        return
    starts.alike = alike(found, report) if found and report and is_quick else ""
    starts.sick = found.slot.index if found and found.then is Then.SICK else None
    starts.short = 0 if on else starts.short + (seconds < SHORT_SECONDS and step.counted)
    starts.stalled = 0 if on else starts.stalled + step.counted


def _end_of(run: Run, step: Again, found: FirstCause | None, seconds: float) -> EpochEnd:
    end = EpochEnd(
        epoch=run.epoch,
        ran_seconds=round(seconds, 3),
        message="its programs were stopped",
        progress=run.starts.progress,
        then=step.then,
        replaced=sorted(slot.index for slot in step.gone),
    )
    if found is None and step.gone:
        return _with_result(end, departures.end_of(run, step.gone[0]))
    if found is None or (found.report is None and not step.gone):
        stopped = features.result_of(run, "")
        return end if stopped is None else _with_result(end, stopped)
    code = Cause.PROGRAM_FAILED
    if step.gone or (found.report is not None and found.report.fenced):
        code = cause_of(found.slot, Cause.NODE_LOST)
    return _with_cause(end, found).model_copy(update={"code": code})


def _with_result(end: EpochEnd, result: Result) -> EpochEnd:
    return end.model_copy(update={name: getattr(result, name) for name in _OF_CAUSE})


def _with_cause(end: EpochEnd, found: FirstCause) -> EpochEnd:
    """The end of an epoch with its first cause."""
    cause = {"message": printable(found.words(), 600), "exit_code": found.exit_code}
    return end.model_copy(update=cause | found.fields())


def _arm_again(run: Run, now: float) -> str:
    """Seal the next table on the same nodes; one that has joined anew has all prove each other, as
    has one for which there is room now."""
    run.starts.due_at = None
    hurry(run, now)
    taking_part = run.taking_part()
    has_room = len(taking_part) < run.spec.max_nodes and bool(standbys(run))
    is_less = run.spec.outlives_nodes and len(taking_part) < len(run.starts.numbers)
    if has_room or is_less or any(slot.its_node.number is None for slot in taking_part):
        gather_again(run, now)
        return check_gathered(run, now) or "; the nodes gather again"
    renew_table(run, now)
    return ""


def backoff_over(run: Run, event: events.BackOffOver, now: float) -> Outcome:
    """The programs may start again."""
    return Outcome(f"the programs start again{_arm_again(run, now)}")


def restart_asked(run: Run, event: events.RestartAsked, now: float) -> Outcome:
    """Stop the programs, or wait no longer."""
    words = f"restart requested{reason_clause(event.reason)}"
    if run.phase is Phase.RESTARTING:
        return Outcome(f"{words}{_arm_again(run, now)}")
    run.starts.asked = event.reason
    begin_stop(run, now)
    return Outcome(f"{words}; stopping the programs")


def is_history(run: Run, report: ExitReport) -> bool:
    """Whether it tells of programs that the run has gone on from."""
    ended = run.starts.ended
    return bool(ended) and report.epoch <= ended[-1].epoch and not report.leaves


def _got_on_after_all(run: Run, report: ExitReport) -> None:
    """Take back what was counted of an epoch that has got further than was known: often only the
    node 0 knows the steps, and its program may be the last one to end."""
    starts, reached = run.starts, report.progress
    if reached is None or (starts.progress is not None and reached <= starts.progress):
        return
    starts.progress, starts.alike, starts.short, starts.stalled = reached, "", 0, 0
    if report.epoch == starts.ended[-1].epoch:
        _change_last(starts, starts.ended[-1].model_copy(update={"progress": reached}))


def told_late(run: Run, event: events.Exited, now: float) -> Outcome:
    """Keep what a node says of an epoch that is over: what was decided stays."""
    slot, report, starts = run.slots[event.slot], event.report, run.starts
    node = slot.its_node
    node.reported = report.epoch
    if run.phase is Phase.RESTARTING and node.state is NodeState.RUNNING:
        node.state = NodeState.JOINED
    _got_on_after_all(run, report)
    reason = f"{who(slot)} has ended its program of epoch {report.epoch}"
    failed_at = now - report.age_seconds
    failed = report.exit_code != 0 and not report.stopped
    if failed and report.epoch == starts.ended[-1].epoch:
        from rendezvous.run.first_cause import cause_of_late

        found = cause_of_late(run, slot, report, failed_at)
        if found is not None and _is_first_after_all(run, found, failed_at):
            starts.failed_at = failed_at
            starts.alike = alike(found, report) if starts.alike else ""
            _change_last(starts, _with_cause(starts.ended[-1], found))
            reason = f"{who(slot)} {words_of_exit(report)}, before the others"
    return Outcome(reason, slot.index, usual=not failed)


def _is_first_after_all(run: Run, found: FirstCause, failed_at: float) -> bool:
    """Whether a late report tells of the first cause; one of a consequence only where the others do
    as well."""
    from rendezvous.run.first_cause import is_consequence

    was_consequence = is_consequence(run.starts.ended[-1].cause)
    if was_consequence != found.judged.cause.is_consequence:
        return was_consequence
    return failed_at < run.starts.failed_at
