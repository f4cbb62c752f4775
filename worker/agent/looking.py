"""A look: somebody asks where the ranks of a run are, and each node answers once. Pure."""

from __future__ import annotations

from rendezvous.wire.watch import NodeView
from worker.agent.actions import AnswerLook
from worker.agent.state import Turn
from worker.program.family import Family, ranks_of

ANSWERS_A_SECOND = 500
"""Of all nodes together: the registry has other things to do."""


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
    turn.do(
        AnswerLook(
            look=view.look,
            epoch=agreed.table.epoch,
            program=number,
            delay=row.rank / ANSWERS_A_SECOND,
            why=why,
        )
    )


def pids_by_local_rank(family: Family, main: int | None, count: int) -> dict[int, int | None]:
    """The process of each local rank, as far as they are known; a program without children of its
    own that has one rank is that."""
    known = {child.ranks.local_rank: child.pid for child in ranks_of(family) if child.ranks}
    if not known and count == 1:
        known = {0: main} if main is not None else {}
    return {local: known.get(local) for local in range(count)}


def _program(turn: Turn) -> tuple[int | None, str]:
    """The one that can be looked at; else why there is none."""
    program = turn.node.program
    if program is None or program.started_at is None:
        return None, "its program has not been started yet"
    if program.gone:
        return None, "its program has ended"
    if program.serves:
        return None, "it serves the program of rank 0 and runs no other"
    return program.number, ""
