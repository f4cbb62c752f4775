"""The sealed variables of the run: fetched after the join, needed before anything is armed. Pure.

They are fetched in front of the first watch, on the connection that is free then, while the nodes
wait for each other. The values are the shell's alone: here is only which of them are missing.
"""

from __future__ import annotations

from collections.abc import Sequence

from rendezvous.wire.errors import ArmingFailed, RegistryError, TooManyRequests
from rendezvous.wire.words import listed
from worker.agent import inputs, watching
from worker.agent.actions import FetchSecrets
from worker.agent.faults import SILENT
from worker.agent.notices import Note
from worker.agent.state import Cause, Turn

NOT_SENT = "its launcher has not sent them to this registry yet"


def fetch(turn: Turn, names: Sequence[str]) -> None:
    """Fetch these variables; this node has joined, and watches for the first time after it."""
    turn.set_member(lacks=tuple(names))
    turn.begin(FetchSecrets, limit=turn.node.rules.answer_seconds)


def answered(turn: Turn, asked: FetchSecrets, said: inputs.Input) -> None:
    """Go on with them, or try again.

    What a registry refuses for good it refuses the watch as well, which judges it.
    """
    match said:
        case inputs.Done():
            turn.set_member(lacks=())
        case inputs.NotSent():
            _again(turn, NOT_SENT)
        case inputs.Late():
            _again(turn, SILENT)
        case inputs.Failed(error=ArmingFailed()) | inputs.Broken():
            turn.end(Cause.FAULT, error=said.error)
        case inputs.Failed(error=RegistryError() | TooManyRequests()):
            _again(turn, said.error.message)
    if not asked.pause and turn.node.ends is None:
        watching.watch(turn)


def _again(turn: Turn, problem: str) -> None:
    member = turn.node.member
    if member is not None and turn.node.ends is None:
        turn.wait_for(Note.NO_SECRETS, names=listed(member.lacks), problem=problem)
        turn.begin(FetchSecrets, limit=turn.node.rules.answer_seconds, pause=True)
