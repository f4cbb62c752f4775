"""What any phase may do to a run: enter another one, give the attempt up, end the run. Pure."""

from __future__ import annotations

from rendezvous.run.ends import last_output
from rendezvous.run.state import Attempt, Run, Slot
from rendezvous.run.tracked import TrackedSet
from rendezvous.wire.errors import Cause
from rendezvous.wire.reports import ExitReport
from rendezvous.wire.run import NodeState, Phase, Result
from rendezvous.wire.words import hint_for


def enter(run: Run, phase: Phase, now: float) -> None:
    """Begin a phase, in which every node that takes part is waited for."""
    run.phase, run.phase_since = phase, now
    run.waiting_for = TrackedSet(slot.index for slot in run.taking_part())
    run.seq += 1


def gather_again(run: Run, now: float, enough_since: float | None = None) -> None:
    """The attempt is dropped: nobody had started on its table. What it has shown stays readable."""
    old = run.attempt
    run.attempt = Attempt(enough_since, findings=old.findings, rounds=old.rounds)
    for slot in run.members():
        slot.its_node.state, slot.its_node.number = NodeState.JOINED, None
    if run.phase is not Phase.GATHERING:
        enter(run, Phase.GATHERING, now)


def failure(
    code: str,
    message: str,
    slot: Slot | None,
    hint: str = "",
    *,
    exit_code: int | None = None,
    report: ExitReport | None = None,
) -> Result:
    """The result of a run that failed, with its cause's own exit code if no other one is given."""
    if exit_code is None:
        assert isinstance(code, Cause)
        exit_code = code.exit_code
    node = slot.node if slot else None
    is_own = code != Cause.PROGRAM_FAILED or (report is not None and report.by_agent)
    return Result(
        status="failed",
        exit_code=int(exit_code),
        exit_code_of="rdzv" if is_own else "program",
        code=code,
        message=message,
        hint=hint,
        slot=slot.index if slot else None,
        node=node.number if node else None,
        hostname=node.join.hostname if node else "",
        rank=report.rank if report else None,
        tail=last_output(report) if report else [],
        log=report.log if report else "",
        cause=code,
    )


def begin_stop(run: Run, now: float, wait_seconds: float | None = None) -> None:
    """Tell everyone to stop. The verdict waits for other reports of earlier failures; where nothing
    has failed it waits for so long, or until something does."""
    at = now + (wait_seconds or run.spec.limits.verdict_seconds)
    run.verdict_at = at if run.verdict_at is None else min(at, run.verdict_at)
    if run.stop:
        return
    run.stop, run.stopped_at = True, now
    run.seq += 1


def finish(run: Run, now: float, result: Result) -> None:
    """End the run; the first result stays."""
    if run.phase is Phase.FINISHED:
        return
    if run.starts.ended:
        known = {"epochs": list(run.starts.ended), "restarts": run.starts.used}
        if run.starts.replaced:
            known["replacements"] = run.starts.replaced
        result = result.model_copy(update=known)
    run.result = result.model_copy(update={"hint": hint_for(run.id, result.hint)})
    run.finished_at = now
    run.stop, run.starts.due_at = True, None
    enter(run, Phase.FINISHED, now)
