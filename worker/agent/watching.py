"""The watch: it brings the news, it is the heart-beat, and shows when the registry is gone. Pure.

One watch is under way from the join until the node leaves. A registry that is away for a moment
disturbs nobody; after the orphan time-out it is given up, but not before one last try of full
length: it may have been this process that was stopped. One that has proven itself and says that it
cannot serve now is there: for an hour since its last real answer no time-out runs.

A node that arms for a table holds its next watch back for a moment: the acknowledgement goes with
it, on the same connection, and the registry has half as many requests to answer before the go. So
does one whose program is stopped and may start again: its end goes with the watch. What features
publish between watches goes in front of the next one that has nothing else to wait for, one message
at a time: a connection for it alone would stay open, and cost the registry more than all else that
it keeps of a node.
"""

from __future__ import annotations

from dataclasses import replace

from rendezvous.wire.errors import NOT_NOW_SECONDS, RegistryError, StorageFull, TooManyRequests
from rendezvous.wire.reports import AckReport, ExitReport
from rendezvous.wire.run import Phase
from rendezvous.wire.watch import NodeView
from worker.agent import (
    attempt,
    fencing,
    following,
    inputs,
    questions,
    reports,
    viewing,
)
from worker.agent.actions import Arm, Publish, Watch
from worker.agent.faults import SILENT, registry_lost
from worker.agent.notices import Note
from worker.agent.state import IN_ORDER, Cause, Member, Turn

HOLD_SECONDS = 0.2
"""How long a watch waits for an acknowledgement, or for a message to be published; and at most a
quarter of a poll."""
END_SECONDS = 1.0
"""How long for a program's end, and at most half a poll: no other news could end that sooner, and
who reports later opens a connection for it."""


def watch(turn: Turn, *, pause: bool = False) -> None:
    """Ask for the next news."""
    member = _member(turn)
    whole = member.poll + turn.node.rules.answer_seconds
    left = member.heard_at + turn.node.rules.orphan_timeout - turn.now
    limit, is_last = seconds_of_try(left, whole, had_last=member.had_last_try)
    if turn.node.ends is not None:  # a node that ends does so in its own time
        limit, is_last = whole, False
    is_last = member.had_last_try or is_last
    turn.set_member(had_last_try=is_last, held_at=None, asked_at=turn.now)
    brings, since = _to_bring(turn)
    program = turn.node.program
    turn.begin(
        Watch,
        after=member.after,
        poll=member.poll,
        limit=limit,
        pause=pause,
        brings=brings,
        since=since,
        question=member.question,
        views=member.views[-1] if member.views else None,
        importing=program is not None and program.importing and not program.gone,
    )


def _to_bring(turn: Turn) -> tuple[AckReport | ExitReport | None, float | None]:
    """What is to be told with a watch, and since when that is so; a node that ends tells it by
    itself. Nothing is armed for before the end of a program is told."""
    node = turn.node
    if node.ends is not None:
        return None, None
    if node.program is not None and node.program.end is not None:
        return node.program.end
    return (node.epoch.ack if node.epoch is not None else None), None


def _brought(turn: Turn, asked: Watch) -> None:
    """It needs not be told again."""
    epoch, program = turn.node.epoch, turn.node.program
    if epoch is not None and epoch.ack is not None and epoch.ack == asked.brings:
        turn.set(epoch=replace(epoch, ack=None))
    if program is not None and program.end == (asked.brings, asked.since):
        turn.set_program(end=None)


def go_on(turn: Turn) -> None:
    """Have the watch wait no longer, once there is nothing to wait for, or after a moment."""
    is_busy = any(turn.under_way(Arm, Publish)) or following.is_ending(turn)
    waits = is_busy and turn.node.ends is None
    if any(at <= turn.now or not waits for at in due(turn)):
        watch(turn)


def due(turn: Turn) -> list[float]:
    """When the watch that waits is to wait no longer; a node that leaves watches no more."""
    member, ends = turn.node.member, turn.node.ends
    leaves = ends is not None and (ends.step is not None or ends.cause not in IN_ORDER)
    if member is None or member.held_at is None or leaves:
        return []
    if following.is_ending(turn):
        return [member.held_at + min(END_SECONDS, member.poll / 2)]
    return [member.held_at + min(HOLD_SECONDS, member.poll / 4)]


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


def answered(turn: Turn, asked: Watch, said: inputs.Input) -> None:
    """Take in what came of a watch."""
    match said:
        case inputs.Viewed():
            _brought(turn, asked)
            _viewed(turn, said)
        case inputs.Late():
            _silent(turn, _member(turn).why_silent or SILENT, pause=False)
        case inputs.Failed(error=StorageFull()) if asked.brings is not None:
            _not_written(turn, asked)
        case inputs.Failed(error=RegistryError(told=True)):
            _not_now(turn, said.error.message)
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
    questions.asked(turn, view)
    viewing.asked(turn, view)
    turn.set_member(
        after=view.seq,
        poll=view.poll_seconds,
        answered_at=turn.now,
        heard_at=turn.now,
        known_at=_member(turn).asked_at,
        had_last_try=False,
        why_silent="",
    )
    fencing.renew(turn)
    if attempt.stands_by(turn, view):
        turn.wait_for(Note.STANDS_BY)
    else:
        turn.wait_for(Note.RUN_WAITS, view.topic, reason=view.reason)
    if is_new and _is_followed_soon(turn, view):
        turn.set_member(held_at=turn.now)
    elif not is_new and turn.node.publishes and turn.node.ends is None:
        turn.set(publishes=False)
        turn.begin(Publish)
        turn.set_member(held_at=turn.now)
    else:
        watch(turn)
    if is_new:
        attempt.take_in(turn, view)


def _is_followed_soon(turn: Turn, view: NodeView) -> bool:
    """Whether this node has something to say soon, on the connection that a watch would take."""
    if view.phase is Phase.ARMING:
        return True
    program = turn.node.program
    stops = view.stop and view.result is None and view.restarts is not None
    return stops and program is not None and not program.told


def _not_written(turn: Turn, asked: Watch) -> None:
    """The registry is there and cannot write: what it was told goes by itself until it can."""
    if asked.brings is not None and asked.brings == _to_bring(turn)[0]:
        _brought(turn, asked)
        reports.tell(turn, asked.brings, since=asked.since)
    turn.set_member(answered_at=turn.now, heard_at=turn.now, had_last_try=False, why_silent="")
    watch(turn)


def _not_now(turn: Turn, problem: str) -> None:
    """The registry is there, though it may not be so for ever: its database may be away."""
    if turn.now - _member(turn).answered_at > NOT_NOW_SECONDS:
        _silent(turn, problem, pause=True)
        return
    turn.set_member(heard_at=turn.now, had_last_try=False, why_silent=problem)
    if turn.node.ends is None:
        # One topic: replicas that take turns may say it in different words, every half a second.
        turn.wait_for(Note.REGISTRY_NOT_NOW, 0, run=turn.node.rules.run, problem=problem)
    watch(turn, pause=True)


def _silent(turn: Turn, problem: str, *, pause: bool) -> None:
    member, rules = _member(turn), turn.node.rules
    seconds = turn.now - member.heard_at
    turn.set_member(why_silent=problem)
    if turn.node.ends is None:
        if seconds >= rules.orphan_timeout and member.had_last_try:
            silent = turn.now - member.answered_at
            turn.end(Cause.LOST, error=registry_lost(rules, silent, problem))
            return
        left = max(0.0, rules.orphan_timeout - seconds)
        turn.wait_for(Note.REGISTRY_SILENT, left=left, problem=problem)
    watch(turn, pause=pause)
