"""From the start of a node until the registry has taken it in. Pure.

    hosts file as it was -> probes are answered -> look ahead -> connect -> offer -> join

The tries are steady, until the join time-out. What this node can never do, it tells the registry,
which would wait for it otherwise.
"""

from __future__ import annotations

from dataclasses import replace

from rendezvous.talk.failures import NobodyListens, OtherKey
from rendezvous.wire.errors import (
    ArmingFailed,
    Mismatch,
    RdzvError,
    RegistryError,
    SlotTaken,
    TooManyRequests,
    UsageError,
)
from rendezvous.wire.node import JoinRequest
from rendezvous.wire.words import few
from worker.agent import actions as do
from worker.agent import inputs, secrets, watching
from worker.agent.faults import join_timed_out, look_hangs, other_key
from worker.agent.notices import Note
from worker.agent.state import Cause, Joining, Member, Turn

LOOK_SECONDS = 2.0
STALE_SECONDS = 10.0
"""A hosts file that another process holds is waited for half as long."""
OTHER_KEY_SECONDS = 10.0
"""Who holds the registry's port with another key for so long is no former launch that is just
ending: node 0 cannot listen there."""
OFFER_SECONDS = 30.0
"""A machine is looked at within 2 s; where firmware answers late it may be more, but not this."""


def begin(turn: Turn) -> None:
    """The node starts."""
    turn.set(joining=Joining(turn.now))
    if turn.node.rules.early:
        turn.do(do.StartEarly())
    if turn.node.rules.hosts_file:
        turn.begin(do.RestoreHosts, limit=STALE_SECONDS)
    else:
        turn.begin(do.Listen)


def answered(turn: Turn, asked: do.Effect, said: inputs.Input) -> None:
    """Go on with what came of one of these steps."""
    match asked, said:
        case do.RestoreHosts(), _:
            if isinstance(said, inputs.Late):
                file = turn.node.rules.hosts_file
                turn.say(Note.STALE_HOSTS_HANG, file=file, seconds=asked.limit)
            turn.begin(do.Listen)
        case do.Listen(), inputs.Listening():
            _listening(turn, said)
        case do.LookAhead(), inputs.Done() | inputs.Late():
            turn.begin(do.Connect)
        case do.Connect(), inputs.Connected():
            _connected(turn, said)
        case do.MakeOffer(), inputs.Offered():
            _ask(turn, said.offer)
        case do.Join(), inputs.Joined():
            _joined(turn, said, asked.offer)
        case do.Refuse(), _:
            turn.end(Cause.FAULT, error=asked.error)
        case ((do.Connect() | do.Join()), inputs.Failed()):
            _not_yet(turn, asked, said.error)
        case do.MakeOffer(), inputs.Late():
            _cannot(turn, look_hangs(asked.limit))
        case _, inputs.Failed() | inputs.Broken():
            _cannot(turn, said.error)


def _joining(turn: Turn) -> Joining:
    assert turn.node.joining is not None
    return turn.node.joining


def _listening(turn: Turn, said: inputs.Listening) -> None:
    if said.port is None:
        turn.say(Note.NOT_LISTENING, problem=said.problem)
    turn.set(joining=replace(_joining(turn), probe_port=said.port))
    turn.begin(do.LookAhead, limit=LOOK_SECONDS)


def _connected(turn: Turn, said: inputs.Connected) -> None:
    port = _joining(turn).probe_port
    turn.begin(do.MakeOffer, base=said.base, probe_port=port, limit=OFFER_SECONDS)


def _ask(turn: Turn, offer: JoinRequest, *, pause: bool = False) -> None:
    turn.set(joining=replace(_joining(turn), asked_at=turn.now))
    turn.begin(do.Join, offer=offer, pause=pause)


def _joined(turn: Turn, said: inputs.Joined, offer: JoinRequest) -> None:
    reply, known_at = said.reply, _joining(turn).asked_at
    turn.set(
        joining=None,
        member=Member(
            offered=_signed(offer),
            after=reply.seq,
            poll=reply.poll_seconds,
            answered_at=turn.now,
            heard_at=turn.now,
            known_at=known_at,
            fence_timeout=reply.fence_timeout_seconds,
        ),
    )
    turn.say(
        Note.JOINED,
        run=turn.node.rules.run,
        base=said.base,
        slot=turn.node.rules.slot,
        incarnation=reply.incarnation,
        offer=few(f"{one.address} ({one.interface})" for one in offer.candidates),
    )
    if reply.secrets:
        secrets.fetch(turn, reply.secrets)
    else:
        watching.watch(turn)


def _signed(offer: JoinRequest) -> frozenset[str]:
    """The MACs of all rows that this node may have in a table."""
    pairs = ((one.mac, one.generation_mac) for one in (*offer.candidates, *offer.left_out))
    return frozenset(mac for pair in pairs for mac in pair if mac)


def _not_yet(turn: Turn, asked: do.Connect | do.Join, error: RdzvError) -> None:
    """Try again until the join time-out, unless the registry will never take this node."""
    if isinstance(error, Mismatch) and error.command_word is not None:
        turn.do(do.ShowWord(error.command_word))
    if isinstance(error, UsageError | ArmingFailed):
        _cannot(turn, error)
        return
    is_held = isinstance(error, SlotTaken) and not turn.node.rules.any_slot
    if not is_held and not isinstance(error, RegistryError | TooManyRequests):
        turn.end(Cause.REFUSED, error=error)
        return
    met = _met(_joining(turn), error, turn.now)
    turn.set(joining=met)
    since = met.other_key_since
    if isinstance(error, OtherKey) and since is not None and turn.now - since >= OTHER_KEY_SECONDS:
        _cannot(turn, other_key(turn.node.rules, error))
        return
    left = met.began_at + turn.node.rules.join_timeout - turn.now
    if left < 0:
        turn.end(Cause.REFUSED, error=join_timed_out(turn.node.rules, error, met.unheard))
        return
    turn.wait_for(Note.CANNOT_JOIN_YET, left=left, problem=error.message)
    if isinstance(asked, do.Join):
        _ask(turn, asked.offer, pause=True)
    else:
        turn.begin(do.Connect, pause=True)


def _met(joining: Joining, error: RdzvError, now: float) -> Joining:
    """What the tries have met so far, with one more."""
    since = joining.other_key_since
    return replace(
        joining,
        other_key_since=(now if since is None else since) if isinstance(error, OtherKey) else None,
        unheard=joining.unheard and isinstance(error, NobodyListens),
    )


def _cannot(turn: Turn, error: Exception) -> None:
    """This node cannot take part: the registry is to know, while it may still come up."""
    turn.begin(do.Refuse, error=error)
