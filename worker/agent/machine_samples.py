"""How this node's machine stands: told when its program starts, and now and then after. Pure.

Nobody waits for it: a registry that does not answer is told the next time. The nodes of a run tell
it one after the other, and the more there are, the less often each does.
"""

from __future__ import annotations

from worker.agent import inputs
from worker.agent.actions import Effect, SampleMachine
from worker.agent.notices import Note
from worker.agent.state import Turn

SAMPLE_SECONDS = 30.0
"""From one sample of a machine to the next."""
SAMPLES_A_SECOND = 30
"""Of all nodes together: the registry has other things to do."""


def go_on(turn: Turn) -> None:
    """Begin a sample that is due; one that is under way is dropped once it is not wanted."""
    if not _is_wanted(turn):
        turn.drop(_is_sample)
    elif any(at <= turn.now for at in due(turn)):
        assert turn.node.program is not None
        turn.set_program(sampled_at=turn.now)
        turn.begin(SampleMachine)


def due(turn: Turn) -> list[float]:
    """When to take the next sample: not before the last one is told."""
    program, agreed = turn.node.program, turn.node.agreed
    if not _is_wanted(turn) or any(turn.under_way(SampleMachine)):
        return []
    assert program is not None
    assert program.started_at is not None
    rows = agreed.table.rows if agreed is not None else []
    if program.sampled_at is not None:
        return [program.sampled_at + max(SAMPLE_SECONDS, len(rows) / SAMPLES_A_SECOND)]
    rank = next((row.rank for row in rows if row.slot == turn.node.rules.slot), 0)
    return [program.started_at + rank / SAMPLES_A_SECOND]


def answered(turn: Turn, said: inputs.Input) -> None:
    """It is told, or is not; where this machine cannot be read there are no more of them."""
    if isinstance(said, inputs.Broken):
        turn.say(Note.PART_BROKEN, what="reading this machine", error=repr(said.error))
        turn.set_member(takes_machine=False)


def _is_wanted(turn: Turn) -> bool:
    """Whether a program is here, on a registry that can be told, and a person wants it."""
    node = turn.node
    member, program = node.member, node.program
    if member is None or not member.takes_machine or not node.rules.samples:
        return False
    if node.ends is not None or program is None:
        return False
    return program.started_at is not None and not program.gone


def _is_sample(effect: Effect) -> bool:
    return isinstance(effect, SampleMachine)
