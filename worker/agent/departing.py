"""A node that will go, and a program that is shown it: before anything is stopped. Pure.

The registry has the programs of all nodes stopped in time, so that their ranks can save one state
together. Without it this node ends its own program, as it does at any signal.
"""

from __future__ import annotations

from rendezvous.wire.reports import DepartReport
from rendezvous.wire.watch import NodeView
from worker.agent import actions as do
from worker.agent import inputs, reports
from worker.agent.notices import Note
from worker.agent.state import Departure, ProgramState, SignalTold, Turn

TELL_SECONDS = 1.0
"""How long a node that a signal ends waits until it is taken in: its time is short."""

_SAME_SECONDS = 1.0
"""By so much the times of one notice may differ: what tells of it takes a moment."""


def came(turn: Turn, said: inputs.DepartureNear) -> None:
    """Keep the first notice, and tell it."""
    if turn.node.departure is None and turn.node.ends is None:
        turn.set(departure=Departure(turn.now + said.seconds, said.words))
        turn.say(Note.DEPARTS, seconds=said.seconds, words=said.words)
        tell(turn)


def tell(turn: Turn) -> None:
    """Tell it of a program that runs; a later one is told of as it starts."""
    departure = turn.node.departure
    if departure is None or (program := _running(turn)) is None or program.departs:
        return
    seconds = max(0.0, departure.at - turn.now)
    turn.set_program(departs=True)
    report = DepartReport(epoch=program.epoch, seconds=seconds, words=departure.words)
    reports.tell(turn, report, since=turn.now, needed=False)


def tell_signal(turn: Turn, told: SignalTold) -> None:
    """Have all programs stopped before this node stops its own, also where a notice has said that
    it would go later."""
    if (program := _running(turn)) is None:
        return
    turn.set_program(departs=True)
    words = reports.words_of_signal(told.signal)
    report = DepartReport(epoch=program.epoch, words=words)
    reports.tell_once(turn, report, limit=TELL_SECONDS)


def _running(turn: Turn) -> ProgramState | None:
    """The program that runs, where the registry can still be told of it."""
    program = turn.node.program
    if turn.node.member is None or program is None:
        return None
    is_over = program.gone or program.left_behind or program.stop_at is not None
    return None if is_over else program


def show(turn: Turn, view: NodeView) -> None:
    """Show the program that a node will go: once, and again where all are stopped sooner; one that
    is being started, once it runs."""
    program, notice = turn.node.program, view.notice
    if notice is None or program is None or program.gone:
        return
    stop_at, before = turn.now + notice.seconds, program.shown_stop_at
    if before is not None and stop_at > before - _SAME_SECONDS:
        return
    turn.set_program(shown_stop_at=stop_at, notice=notice)
    show_kept(turn)


def show_kept(turn: Turn) -> None:
    """Show what came before the program ran."""
    program = turn.node.program
    if program is None or program.started_at is None or (notice := program.notice) is None:
        return
    turn.set_program(notice=None)
    turn.do(do.ShowDeparture(program.number, notice, turn.node.rules.notice_signal))
