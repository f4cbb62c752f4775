"""The watch: it brings the news, it is the heart-beat, and shows when the registry is gone. Pure.

One watch is under way from the join until the node leaves. A registry that is away for a moment
disturbs nobody; after the orphan time-out it is given up, but not before one last try of full
length: it may have been this process that was stopped.
"""

from __future__ import annotations

from rendezvous.wire.errors import RegistryError, TooManyRequests
from worker.agent import attempt, inputs
from worker.agent.actions import Watch
from worker.agent.faults import SILENT, registry_lost
from worker.agent.notices import Note
from worker.agent.state import Cause, Member, Turn


def watch(turn: Turn, *, pause: bool = False) -> None:
    """Ask for the next news."""
    member = _member(turn)
    whole = member.poll + turn.node.rules.answer_seconds
    left = member.heard_at + turn.node.rules.orphan_timeout - turn.now
    limit, is_last = seconds_of_try(left, whole, had_last=member.had_last_try)
    if turn.node.ends is not None:  # a node that ends does so in its own time
        limit, is_last = whole, False
    turn.set_member(had_last_try=member.had_last_try or is_last)
    turn.begin(Watch, after=member.after, poll=member.poll, limit=limit, pause=pause)


def seconds_of_try(left: float, whole: float, *, had_last: bool) -> tuple[float, bool]:
    """How long to wait for the registry's answer, and whether that is the last whole try.

    Args:
        left: Seconds until this node gives its registry up.
        whole: Seconds within which a registry that is there answers.
        had_last: Whether the last whole try was made: those that follow one that failed at once
            have what is left.
    """
    if left > whole:
        return left - whole, False
    return (max(0.0, left), False) if had_last else (whole, True)


def answered(turn: Turn, said: inputs.Input) -> None:
    """Take in what came of a watch."""
    match said:
        case inputs.Viewed():
            _viewed(turn, said)
        case inputs.Late():
            _silent(turn, _member(turn).why_silent or SILENT, pause=False)
        case inputs.Failed(error=RegistryError() | TooManyRequests()):
            _silent(turn, said.error.message, pause=True)
        case inputs.Failed():
            turn.end(Cause.REFUSED, error=said.error)
        case inputs.Broken():
            turn.end(Cause.FAULT, error=said.error)


def _member(turn: Turn) -> Member:
    assert turn.node.member is not None
    return turn.node.member


def _viewed(turn: Turn, said: inputs.Viewed) -> None:
    view = said.view
    is_new = view.seq != _member(turn).after
    turn.set_member(
        after=view.seq,
        poll=view.poll_seconds,
        heard_at=turn.now,
        had_last_try=False,
        why_silent="",
    )
    turn.wait_for(Note.RUN_WAITS, view.topic, reason=view.reason)
    watch(turn)
    if is_new:
        attempt.take_in(turn, view)


def _silent(turn: Turn, problem: str, *, pause: bool) -> None:
    member, rules = _member(turn), turn.node.rules
    seconds = turn.now - member.heard_at
    turn.set_member(why_silent=problem)
    if turn.node.ends is None:
        if seconds >= rules.orphan_timeout and member.had_last_try:
            turn.end(Cause.LOST, error=registry_lost(rules, seconds, problem))
            return
        left = max(0.0, rules.orphan_timeout - seconds)
        turn.wait_for(Note.REGISTRY_SILENT, left=left, problem=problem)
    watch(turn, pause=pause)
