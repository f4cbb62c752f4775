"""The fence: a node that cannot hear of its registry ends its program in time. Pure.

    last watch that was answered: sent at T -> T + fence - grace - 2 s: TERM -> T + fence: killed

What keeps the program knows that time as well: it kills it where the agent stands still. The
registry counts from when it last heard of a node, which is T or later, and starts a lost node's
ranks elsewhere once the time is over: two programs never run as the same ranks. A refusal, also one
that says "not now", moves nothing: it is not known whose registry has said so. The node itself goes
on watching, with empty hands, until its orphan time-out.
"""

from __future__ import annotations

from rendezvous.wire.reports import ExitReport
from rendezvous.wire.watch import FENCE_MARGIN_SECONDS, FENCE_POLLS
from worker.agent import following, reports
from worker.agent.actions import CloseRemote, MayRun
from worker.agent.notices import Note
from worker.agent.state import ProgramState, Turn


def go_on(turn: Turn) -> None:
    """End the program as soon as it is time; who wakes up later kills it at once."""
    times, program = _times(turn), _running(turn)
    if times is None or program is None:
        return
    stop_at, kill_at = times
    if program.stop_at is None and turn.now >= stop_at:
        turn.set_program(fenced=True)
        turn.say(Note.FENCED, seconds=turn.now - _known_at(turn))
        following.stop_all(turn)
    if not program.kill and turn.now >= kill_at:
        turn.say(Note.FENCE_OVER)
        following.kill_all(turn)


def allow(turn: Turn) -> None:
    """A program begins: what keeps it knows from the first until when it may run."""
    if (times := _times(turn)) is not None:
        turn.do(MayRun(times[1]))


def renew(turn: Turn) -> None:
    """The registry was heard of: what runs here may run for longer."""
    if _running(turn) is not None:
        allow(turn)


def due(turn: Turn) -> list[float]:
    """When to begin to stop the program, and when to kill it."""
    times, program = _times(turn), _running(turn)
    if times is None or program is None:
        return []
    stop_at, kill_at = times
    return [stop_at] * (program.stop_at is None) + [kill_at] * (not program.kill)


def is_too_late(turn: Turn) -> bool:
    """Whether a program that began now would have to end at once: the go was long on its way."""
    times = _times(turn)
    return times is not None and turn.now >= times[0]


def not_begun(turn: Turn, epoch: int) -> None:
    """Say of a program that it was ended before it began: the registry may begin the next one."""
    program = ProgramState(0, epoch, serves=True, stop_at=turn.now, told=True, gone=True)
    turn.set(program=program)
    turn.say(Note.FENCED, seconds=turn.now - _known_at(turn))
    report = ExitReport(epoch=epoch, exit_code=0, stopped=True, fenced=True)
    reports.tell(turn, report)


def _times(turn: Turn) -> tuple[float, float] | None:
    """When a program here is told to end, and when none is left; None: there is no fence."""
    member = turn.node.member
    if member is None or member.fence_timeout is None:
        return None
    fence = member.fence_timeout
    begins = fence - turn.node.rules.grace - FENCE_MARGIN_SECONDS
    least = min(fence, FENCE_POLLS * member.poll)  # a long grace is cut short instead
    return member.known_at + max(begins, least), member.known_at + fence


def _known_at(turn: Turn) -> float:
    assert turn.node.member is not None
    return turn.node.member.known_at


def _running(turn: Turn) -> ProgramState | None:
    """What runs here as this node's ranks, or for those of other nodes."""
    program = turn.node.program
    if program is None or (program.gone and not any(turn.under_way(CloseRemote))):
        return None
    return program
