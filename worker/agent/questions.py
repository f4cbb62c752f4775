"""Questions to this node: each that the watch brings is answered once. Pure."""

from __future__ import annotations

from rendezvous.wire.watch import NodeView
from worker.agent.actions import AnswerQuestion
from worker.agent.state import Turn

ANSWERS_A_SECOND = 1_000
"""Of all nodes together: the registry has other things to do."""
NOT_STARTED = "its program has not been started yet"


def asked(turn: Turn, view: NodeView) -> None:
    """Answer a question that this node has not heard of before; it watches on meanwhile."""
    member, agreed, question = turn.node.member, turn.node.agreed, view.question
    if member is None or question is None or question.number == member.question:
        return
    turn.set_member(question=question.number)
    if agreed is None:
        return
    number, why = _program(turn)
    row = next(row for row in agreed.table.rows if row.slot == turn.node.rules.slot)
    turn.do(
        AnswerQuestion(
            question=question,
            epoch=agreed.table.epoch,
            program=number,
            node=row.node,
            why=why,
        )
    )


def _program(turn: Turn) -> tuple[int | None, str]:
    """The one that can be looked at; else why there is none."""
    program = turn.node.program
    if program is None or program.started_at is None:
        return None, NOT_STARTED
    if program.gone:
        return None, "its program has ended"
    if program.serves:
        return None, "it serves the program of node 0 and runs no other"
    return program.number, ""
