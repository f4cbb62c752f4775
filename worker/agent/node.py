"""The machine of one node: all that an agent decides, from joining to leaving. Pure.

    node, actions = begin(rules, now)
    node, actions = step(node, said, now)      due(node, now): when to say `Tick`

    joining -> watching: news -> attempt (visit, arm, go) -> following (the program) -> leaving

The watch and the program go on side by side. Whatever ends the node (the result, a signal, a fence,
a lost registry), the program and all that it started is ended first, the hosts file is put back,
and the cause is said. The shell around it (see `worker.agent`) carries out what is decided here.
"""

from __future__ import annotations

from worker.agent import attempt, following, joining, leaving, reports, watching
from worker.agent.actions import (
    Action,
    Arm,
    CloseClient,
    CloseRemote,
    CloseSocket,
    Connect,
    Effect,
    Flush,
    Join,
    Listen,
    LookAhead,
    MakeOffer,
    ReadTrouble,
    Refuse,
    RemoveHosts,
    RestoreHosts,
    Say,
    Start,
    Tell,
    Visit,
    Watch,
)
from worker.agent.inputs import (
    Armed,
    Broken,
    Done,
    Input,
    NetworkSaid,
    NotArmed,
    PartBroken,
    ProgramSeen,
    SignalCame,
    Started,
    Tick,
)
from worker.agent.notices import Note
from worker.agent.state import Node, Rules, Step, Turn

_DONE_WITHOUT: dict[type[Effect], str] = {
    RestoreHosts: "looking for what ended runs have left",
    Flush: "sending metrics",
    ReadTrouble: "reading NCCL's log",
    CloseRemote: "ending remote commands",
    CloseSocket: "closing the program's socket",
    CloseClient: "closing the connections",
}
"""What a node goes on without when it fails as nobody expected."""


def begin(rules: Rules, now: float) -> tuple[Node, tuple[Action, ...]]:
    """A node that starts, and what it does first; `now` is the shell's clock, in seconds."""
    turn = Turn(Node(rules), now)
    joining.begin(turn)
    return turn.node, tuple(turn.actions)


def step(node: Node, said: Input, now: float) -> tuple[Node, tuple[Action, ...]]:
    """Take one input in; returns the node after it, and what is to be done, in order."""
    if node.ends is not None and node.ends.step is Step.OVER:
        return node, ()
    turn = Turn(node, now)
    match said:
        case Tick():
            pass
        case SignalCame():
            leaving.signal_came(turn, said)
        case Started():
            following.started(turn, said.number)
        case ProgramSeen():
            following.seen(turn, said)
        case NetworkSaid():
            following.network_said(turn, said)
        case PartBroken():
            turn.say(Note.PART_BROKEN, what=said.what, error=repr(said.error))
        case _:
            if (asked := turn.close(said.number)) is None:
                return node, ()
            if isinstance(said, Broken) and (what := _DONE_WITHOUT.get(type(asked))):
                turn.say(Note.PART_BROKEN, what=what, error=repr(said.error))
            if isinstance(said, Armed | NotArmed | Done):
                turn.actions += [Say(notice) for notice in said.notices]
            _answered(turn, asked, said)
    reports.give_up_late(turn)
    following.look(turn)
    leaving.go_on(turn)
    leaving.hosts_await(turn)
    return turn.node, tuple(turn.actions)


def _answered(turn: Turn, asked: Effect, said: Input) -> None:
    """Go on with what came of an effect."""
    match asked:
        case Watch():
            watching.answered(turn, said)
        case Tell():
            reports.answered(turn, asked, said)
            leaving.answered(turn, asked, said)
        case Visit():
            attempt.visited(turn, asked, said)
        case Arm():
            attempt.armed(turn, asked, said)
        case Start():
            following.gone(turn, asked, said)
        case Flush():
            following.flushed(turn, asked)
        case ReadTrouble():
            following.trouble_read(turn, asked, said)
        case CloseRemote():
            following.remote_closed(turn)
        case CloseSocket() | CloseClient() | RemoveHosts():
            leaving.answered(turn, asked, said)
        case RestoreHosts() | Listen() | LookAhead() | Connect() | MakeOffer() | Join() | Refuse():
            joining.answered(turn, asked, said)


def due(node: Node, now: float) -> float | None:
    """When the machine wants to look at its clock; None: not before the next input."""
    turn = Turn(node, now)
    return min([*reports.due(turn), *following.due(turn), *leaving.due(turn)], default=None)
