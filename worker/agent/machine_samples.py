"""How this node's machine is: read when its program starts, and now and then after; and told. Pure.

It is told between two watches, on the connection that is free then: another one for each node would
cost the registry more than all else that it keeps of it. Nobody waits for it, and what is not taken
in is told the next time. The nodes of a run do it one after the other, and the more there are, the
less often each does.
"""

from __future__ import annotations

from worker.agent import inputs
from worker.agent.actions import Effect, ReadMachine, TellMachine
from worker.agent.notices import Note
from worker.agent.state import Turn

SAMPLE_SECONDS = 30.0
"""From one sample of a machine to the next."""
SAMPLES_A_SECOND = 30
"""Of all nodes together: the registry has other things to do."""


def go_on(turn: Turn) -> None:
    """Read the machine when that is due; what is under way is dropped once nobody wants it."""
    if not _is_wanted(turn):
        turn.drop(_is_sample)
    elif any(at <= turn.now for at in due(turn)):
        turn.set_program(sampled_at=turn.now)
        turn.begin(ReadMachine)


def due(turn: Turn) -> list[float]:
    """When to read it next: not before the last look at it has come back."""
    program, agreed = turn.node.program, turn.node.agreed
    if not _is_wanted(turn) or any(turn.under_way(ReadMachine)):
        return []
    assert program is not None
    assert program.started_at is not None
    rows = agreed.table.rows if agreed is not None else []
    if program.sampled_at is not None:
        return [program.sampled_at + max(SAMPLE_SECONDS, len(rows) / SAMPLES_A_SECOND)]
    node = next((row.node for row in rows if row.slot == turn.node.rules.slot), 0)
    return [program.started_at + node / SAMPLES_A_SECOND]


def read(turn: Turn, said: inputs.Input) -> None:
    """Keep it until it can be told; a machine that cannot be read is left alone from now on."""
    if isinstance(said, inputs.MachineRead):
        turn.set_program(sample=said.sample)
    elif isinstance(said, inputs.Broken):
        turn.say(Note.PART_BROKEN, what="reading this machine", error=repr(said.error))
        turn.set_member(is_unreadable=True)


def tell(turn: Turn) -> bool:
    """Tell what was read, in front of the next watch; whether there is something to tell."""
    program = turn.node.program
    if program is None or program.sample is None or not _is_wanted(turn):
        return False
    turn.set_program(sample=None)
    turn.begin(TellMachine, sample=program.sample)
    return True


def _is_wanted(turn: Turn) -> bool:
    """Whether a program is here, on a machine that can be read, and a person wants it."""
    node = turn.node
    member, program = node.member, node.program
    if member is None or member.is_unreadable or not node.rules.samples:
        return False
    if node.ends is not None or program is None:
        return False
    return program.started_at is not None and not program.gone


def _is_sample(effect: Effect) -> bool:
    return isinstance(effect, ReadMachine | TellMachine)
