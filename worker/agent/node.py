"""The machine of one node: all that an agent decides, from joining to leaving. Pure.

    node, actions = begin(rules, now)
    node, actions = step(node, said, now)      due(node, now): when to say `Tick`

    joining -> watching: news -> attempt (visit, arm, go) -> following (the program) -> leaving

The watch and the program go on side by side. Whatever ends the node (the result, a signal, a fence,
a lost registry), the program and all that it started is ended first, the hosts file is put back,
and the cause is said. The shell around it (see `worker.agent`) carries out what is decided here.
"""

from __future__ import annotations

import itertools

from worker.agent import actions as do
from worker.agent import (
    attempt,
    departing,
    fencing,
    following,
    inputs,
    joining,
    leaving,
    reports,
    secrets,
    watching,
    worlds,
)
from worker.agent.faults import words_of
from worker.agent.notices import Note
from worker.agent.state import Node, Rules, Step, Turn

_DONE_WITHOUT: dict[type[do.Effect], str] = {
    do.RestoreHosts: "cleaning up after ended runs",
    do.Flush: "sending the last of the program",
    do.ReadTrouble: "reading NCCL's log",
    do.CloseRemote: "ending remote commands",
    do.SendWords: "sending the last output of the ranks",
    do.CloseSocket: "closing the program's socket",
    do.CloseClient: "closing the connections",
}
"""What a node goes on without when it fails as nobody expected."""


def begin(rules: Rules, now: float) -> tuple[Node, tuple[do.Action, ...]]:
    """A node that starts, and what it does first; `now` is the shell's clock, in seconds."""
    turn = Turn(Node(rules), now)
    joining.begin(turn)
    return turn.node, tuple(turn.actions)


def step(node: Node, said: inputs.Input, now: float) -> tuple[Node, tuple[do.Action, ...]]:
    """Take one input in; returns the node after it, and what is to be done, in order."""
    if node.ends is not None and node.ends.step is Step.OVER:
        return node, ()
    turn = Turn(node, now)
    match said:
        case inputs.Tick():
            pass
        case inputs.SignalCame():
            leaving.signal_came(turn, said)
        case inputs.Exhausted():
            leaving.exhausted(turn, said)
        case inputs.DepartureNear():
            departing.came(turn, said)
        case inputs.Started():
            following.started(turn, said.number)
        case inputs.ProgramSeen():
            following.seen(turn, said)
        case inputs.WorldsSeen():
            worlds.seen(turn, said)
        case inputs.Importing():
            following.importing(turn, said)
        case inputs.Waits():
            following.waits(turn, said)
        case inputs.Publish():
            turn.set(publishes=True)
        case inputs.NetworkSaid():
            following.network_said(turn, said)
        case inputs.PartBroken():
            turn.say(Note.PART_BROKEN, what=said.what, error=words_of(said.error))
        case _:
            if (asked := turn.close(said.number)) is None:
                return node, ()
            what = _DONE_WITHOUT.get(type(asked))
            if what and isinstance(said, inputs.Failed | inputs.Broken):
                turn.say(Note.PART_BROKEN, what=what, error=words_of(said.error))
            if isinstance(said, inputs.Armed | inputs.NotArmed | inputs.Done):
                turn.actions += [do.Say(notice) for notice in said.notices]
            _answered(turn, asked, said)
    reports.give_up_late(turn)
    attempt.go_on(turn)
    fencing.go_on(turn)
    following.look(turn)
    leaving.go_on(turn)
    watching.go_on(turn)
    leaving.put_hosts_back(turn)
    return turn.node, tuple(turn.actions)


def _answered(turn: Turn, asked: do.Effect, said: inputs.Input) -> None:
    """Go on with what came of an effect."""
    match asked:
        case do.FetchSecrets():
            secrets.answered(turn, asked, said)
        case do.Watch():
            watching.answered(turn, asked, said)
        case do.Tell():
            reports.answered(turn, asked, said)
            leaving.answered(turn, asked, said)
        case do.Visit():
            attempt.visited(turn, asked, said)
        case do.Listen(again=True):
            attempt.listens_again(turn, said)
        case do.Arm():
            attempt.armed(turn, asked, said)
        case do.Start():
            following.gone(turn, said)
        case do.Flush():
            following.flushed(turn)
        case do.ReadTrouble():
            following.trouble_read(turn, said)
        case do.CloseRemote():
            following.remote_closed(turn)
        case do.SendWords() | do.CloseSocket() | do.CloseClient() | do.RemoveHosts():
            leaving.answered(turn, asked, said)
        case (
            do.RestoreHosts()
            | do.Listen()
            | do.LookAhead()
            | do.Connect()
            | do.MakeOffer()
            | do.Join()
            | do.Refuse()
        ):
            joining.answered(turn, asked, said)


def due(node: Node, now: float) -> float | None:
    """When the machine wants to look at its clock; None: not before the next input."""
    turn = Turn(node, now)
    parts = watching, reports, fencing, following, leaving
    return min(itertools.chain(*(part.due(turn) for part in parts)), default=None)
