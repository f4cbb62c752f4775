"""The watch: it brings the news, it is the heart-beat, and shows when the registry is gone. Pure.

One watch is under way from the join until the node leaves. A registry that is away for a moment
disturbs nobody; after the orphan time-out it is given up, but not before one last try of full
length: it may have been this process that was stopped.

A node that arms for a table holds its next watch back for a moment: the acknowledgement goes with
it, on the same connection, and the registry has half as many requests to answer before the go. So
does one whose program is stopped and may start again: its end is reported on the connection that
the watch would take, and no other one has to be made for it.
"""

from __future__ import annotations

from dataclasses import replace

from rendezvous.wire.errors import RegistryError, StorageFull, TooManyRequests
from rendezvous.wire.reports import AckReport, ExitReport
from rendezvous.wire.run import Phase
from rendezvous.wire.watch import NodeView
from worker.agent import attempt, following, inputs, reports
from worker.agent.actions import Arm, Tell, Watch
from worker.agent.faults import SILENT, registry_lost
from worker.agent.notices import Note
from worker.agent.state import IN_ORDER, Cause, Member, Turn

HOLD_SECONDS = 0.2
"""How long a watch waits for an acknowledgement, or for a program's end, and at most a quarter of a
poll."""


def watch(turn: Turn, *, pause: bool = False) -> None:
    """Ask for the next news."""
    member = _member(turn)
    whole = member.poll + turn.node.rules.answer_seconds
    left = member.heard_at + turn.node.rules.orphan_timeout - turn.now
    limit, is_last = seconds_of_try(left, whole, had_last=member.had_last_try)
    if turn.node.ends is not None:  # a node that ends does so in its own time
        limit, is_last = whole, False
    turn.set_member(had_last_try=member.had_last_try or is_last, held_at=None)
    ack = turn.node.epoch.ack if turn.node.epoch and turn.node.ends is None else None
    turn.begin(Watch, after=member.after, poll=member.poll, limit=limit, pause=pause, ack=ack)


def go_on(turn: Turn) -> None:
    """Have the watch wait no longer, once there is nothing to wait for, or after a moment."""
    is_busy = any(turn.under_way(Arm)) or following.is_ending(turn)
    waits = is_busy and turn.node.ends is None
    if any(at <= turn.now or not waits for at in due(turn)):
        watch(turn)


def due(turn: Turn) -> list[float]:
    """When the watch that waits is to wait no longer; a node that leaves watches no more."""
    member, ends = turn.node.member, turn.node.ends
    leaves = ends is not None and (ends.step is not None or ends.cause not in IN_ORDER)
    if member is None or member.held_at is None or leaves:
        return []
    told = [tell.began_at for tell in turn.under_way(Tell) if isinstance(tell.report, ExitReport)]
    if told:  # whoever reports is heard of
        return [min(told) + member.poll / 2]
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
            epoch = turn.node.epoch
            if asked.ack is not None and epoch is not None and epoch.ack == asked.ack:
                turn.set(epoch=replace(epoch, ack=None))
            _viewed(turn, said)
        case inputs.Late():
            _silent(turn, _member(turn).why_silent or SILENT, pause=False)
        case inputs.Failed(error=StorageFull()) if asked.ack is not None:
            _not_written(turn, asked.ack)
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
    if is_new and _member(turn).acks_in_watch and _is_followed_soon(turn, view):
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


def _not_written(turn: Turn, ack: AckReport) -> None:
    """The registry is there and cannot write: the acknowledgement goes by itself until it can."""
    epoch = turn.node.epoch
    if epoch is not None and epoch.ack == ack and turn.node.ends is None:
        turn.set(epoch=replace(epoch, ack=None))
        reports.tell(turn, ack)
    turn.set_member(heard_at=turn.now, had_last_try=False, why_silent="")
    watch(turn)


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
