"""Where the ranks are: a look is answered once, and a node in which nothing moves says so. Pure."""

from __future__ import annotations

from dataclasses import replace

from rendezvous.wire.reports import QuietReport
from rendezvous.wire.watch import NodeView
from worker.agent import inputs, reports
from worker.agent.actions import AnswerLook, Effect, Tell
from worker.agent.quiet import LEAST_SECONDS, NEVER_SECONDS, Quiet, Sample, seen
from worker.agent.state import Turn
from worker.program.family import Family, ranks_of

ANSWERS_A_SECOND = 1_000
"""Of all nodes together: the registry has other things to do."""
PACES_A_SECOND = 150
"""Where nobody waits for them, and each node asks for the registry's clock several times."""


def asked(turn: Turn, view: NodeView) -> None:
    """Answer a look that this node has not heard of before; it watches on meanwhile."""
    member, agreed = turn.node.member, turn.node.agreed
    if member is None or view.look is None or view.look == member.look:
        return
    turn.set_member(look=view.look)
    if agreed is None:
        return
    number, why = _program(turn)
    row = next(row for row in agreed.table.rows if row.slot == turn.node.rules.slot)
    in_a_second = ANSWERS_A_SECOND if view.pace_before is None else PACES_A_SECOND
    turn.do(
        AnswerLook(
            look=view.look,
            epoch=agreed.table.epoch,
            program=number,
            delay=row.node / in_a_second,
            why=why,
            pace_before=view.pace_before,
            nodes=len(agreed.table.rows),
        )
    )


def pids_by_local_rank(family: Family, main: int | None, count: int) -> dict[int, int | None]:
    """The process of each local rank, as far as they are known; a program without children of its
    own that has one rank is that."""
    known = {child.ranks.local_rank: child.pid for child in ranks_of(family) if child.ranks}
    if not known and count == 1:
        known = {0: main} if main is not None else {}
    return {local: known.get(local) for local in range(count)}


def sampled(turn: Turn, said: inputs.RanksSampled) -> None:
    """Tell when nothing has moved for long, and when something does again.

    A program that is being stopped, or has told its end, moves as it likes.
    """
    program = turn.node.program
    if program is None or program.number != said.number or program.gone or program.told:
        return
    if turn.node.member is None or program.stop_at is not None:
        return
    before = program.quiet or _unheard(turn, program.started_at)
    now = seen(before, said.sample, turn.now)
    told = now.silence(turn.now)
    if told != now.told:
        turn.drop(_tells_quiet)  # what it says is no longer so
        silent = turn.now - now.moved_at
        report = QuietReport(
            epoch=program.epoch, seconds=silent if told else None, early=told == "early"
        )
        reports.tell(turn, report, needed=False)
    turn.set_program(quiet=replace(now, told=told))


def _unheard(turn: Turn, started_at: float | None) -> Quiet:
    """Silence of a program that was not sampled yet: a person may have given a time for stalls."""
    timeout = turn.node.rules.stall_timeout
    least, judged = timeout or LEAST_SECONDS, timeout or NEVER_SECONDS
    since = started_at if started_at is not None else turn.now
    return Quiet(
        Sample(),
        since,
        sampled_at=since,
        least=min(LEAST_SECONDS, least),
        judged=min(NEVER_SECONDS, judged),
    )


def _tells_quiet(effect: Effect) -> bool:
    return isinstance(effect, Tell) and isinstance(effect.report, QuietReport)


def _program(turn: Turn) -> tuple[int | None, str]:
    """The one that can be looked at; else why there is none."""
    program = turn.node.program
    if program is None or program.started_at is None:
        return None, "its program has not been started yet"
    if program.gone:
        return None, "its program has ended"
    if program.serves:
        return None, "it serves the program of node 0 and runs no other"
    return program.number, ""
