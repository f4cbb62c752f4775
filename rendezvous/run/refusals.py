"""Who asks to join and is refused, while the run goes on: what is kept, told, and follows. Pure.

Rules
  - A node that asks for a slot while the one that holds it goes on polling is a second one. One
    that asks in the place of a node that has died is not: it waits until that is suspect.
  - What is kept is bounded, and written down the less often the longer a node asks. Who has proven
    nothing is kept by its address alone, among few, and decides nothing.
  - Where a launcher submits, another worker run may come in any case. In a symmetric start nobody
    else comes once as many nodes were seen as the run has slots: it cannot complete, if two of them
    go on asking for one slot. A platform that replaces a node may do so while the old one ends, and
    gives it the same name then: that is waited for longer.
"""

from __future__ import annotations

from collections.abc import Iterable

from rendezvous.frozen import frozen
from rendezvous.run import events
from rendezvous.run.decision import Outcome
from rendezvous.run.leases import Leases
from rendezvous.run.moves import failure, finish
from rendezvous.run.phases import Awaits
from rendezvous.run.records import RefusedJoin
from rendezvous.run.state import Run, Slot, nodes_text
from rendezvous.wire.errors import (
    Cause,
    ExitCode,
    Fenced,
    Mismatch,
    RequestError,
    RunOver,
    SlotTaken,
    TooLate,
)
from rendezvous.wire.node import JoinRequest, Refusal
from rendezvous.wire.refused import RefusedAsk, asker
from rendezvous.wire.run import Phase
from rendezvous.wire.words import printable, slots_text, spans_text

MOST = 32
MOST_STRANGERS = 4
_MOST_SAID = 3
_LEAST_GAP, _LONGEST_GAP = 2.0, 15.0
OVERLAP_SECONDS = 10.0
SAME_NAME_SECONDS = 40.0
"""A pod that is replaced goes on for 30 s, unless its job says otherwise."""


@frozen
class Asked:
    """How often a node has asked since that was written down last, and when it asked first."""

    first_at: float
    times: int


class Asks:
    """How often each has asked since that was written down last: bounded, and not journalled."""

    def __init__(self) -> None:
        self._asked: dict[str, Asked] = {}

    def count(self, who: str, now: float) -> Asked:
        """One more refused request of a node."""
        before = self._asked.pop(who, Asked(now, 0))
        if len(self._asked) >= 2 * MOST:
            del self._asked[next(iter(self._asked))]
        self._asked[who] = asked = Asked(before.first_at, before.times + 1)
        return asked

    def written(self, who: str) -> None:
        """They are in the journal."""
        if (asked := self._asked.get(who)) is not None:
            self._asked[who] = Asked(asked.first_at, 0)

    def forget(self, who: str) -> None:
        """It is in: whoever asks from there next is another process."""
        self._asked.pop(who, None)


def place(hostname: str, address: str, source: str = "") -> str:
    """A node that is not in the run, as a sentence names it."""
    via = f", from {source}" if source and address and source != address else ""
    where = f"{address or source}{via}"
    return f"{hostname} ({where})" if where else hostname


def holder_text(slot: Slot) -> str:
    """The node that has a slot; empty: none has."""
    node = slot.live_node()
    return place(node.join.hostname, node.join.candidates[0].address, node.source) if node else ""


def ask_of_join(run: Run, request: JoinRequest, error: RequestError, source: str) -> RefusedAsk:
    """What a refused join is kept as."""
    slot, address = run.slots[request.slot], request.candidates[0].address
    holder, me = holder_text(slot), place(request.hostname, address, source)
    if isinstance(error, SlotTaken):
        reason = f"{me} asks for slot {slot.index}, which {holder} holds"
    else:
        reason = f"{me} asked for slot {slot.index} and was refused: {error.message}"
    return RefusedAsk(
        slot=slot.index,
        hostname=request.hostname,
        address=address,
        source=source,
        code=error.code,
        reason=printable(reason, 600),
        hint=printable(error.hint, 600),
        holder=printable(holder, 253),
    )


def ask_of_refusal(run: Run, slot_index: int, refusal: Refusal, source: str) -> RefusedAsk:
    """What the refusal of a node is kept as that has no slot of its own here."""
    slot = run.slots[slot_index] if refusal.of_slot else None
    me = place(refusal.hostname, "", source)
    return RefusedAsk(
        slot=slot.index if slot is not None else None,
        hostname=refusal.hostname,
        source=source,
        code=refusal.code,
        reason=printable(f"{me} cannot take part: {refusal.reason}", 600),
        hint=refusal.hint,
        holder=printable(holder_text(slot), 253) if slot is not None else "",
    )


def ask_of_stranger(run: str, slot: int, source: str) -> RefusedAsk:
    """What is kept of somebody that has shown no token of this run."""
    words = f"a client at {source or 'an unknown address'} asked to join run '{run}' as slot {slot}"
    return RefusedAsk(
        source=source,
        code="unauthorized",
        reason=f"{words} with a token that is not of this run",
        hint="a node that was started with the RDZV_JOIN or RDZV_TOKEN of another launch, or with "
        "another RDZV_ID, does so",
        stranger=True,
    )


def decide_refused_join(
    run: Run,
    request: JoinRequest,
    error: RequestError,
    ask: RefusedAsk,
    asked: Asked,
    now: float,
    leases: Leases,
) -> events.JoinRefused | None:
    """What is written down of a join that is refused; None: it says nothing, or nothing new."""
    slot = run.slots[request.slot]
    holder = slot.live_node()
    if isinstance(error, SlotTaken):
        if holder is None or (request.any_slot and run.missing):
            return None
        heard_at = now - leases.silent_seconds((slot.index, holder.incarnation), now)
        if heard_at <= asked.first_at:  # it may be gone, and this one in its place
            return None
    elif isinstance(error, TooLate) or request.join_id in slot.joins:
        return None
    elif not isinstance(error, Fenced | RunOver | Mismatch) or run.phase is Phase.FINISHED:
        return None
    return written(run, ask, asked, now, held_by=holder.incarnation if holder else 0)


def written(
    run: Run, ask: RefusedAsk, asked: Asked, now: float, *, held_by: int = 0
) -> events.JoinRefused | None:
    """The event, unless the same was written down a moment ago."""
    known = run.refused.get(ask.who)
    if known is not None and known.held_by == held_by and now - known.last_at < _gap(known):
        return None
    told = {"times": asked.times, "first_seconds": round(max(0.0, now - asked.first_at), 3)}
    return events.JoinRefused(ask=ask.model_copy(update=told), held_by=held_by)


def decide_stranger(run: Run, ask: RefusedAsk, now: float) -> events.JoinRefused | None:
    """What is written down of somebody with no token of this run; None: there is no room for it.

    It is written down once: who has proven nothing does not fill a journal, however often it asks.
    """
    strangers = sum(one.ask.stranger for one in run.refused.values())
    is_new = ask.who not in run.refused and strangers < MOST_STRANGERS
    return written(run, ask, Asked(now, 1), now) if run.rules.is_forming and is_new else None


def _gap(known: RefusedJoin) -> float:
    return min(_LONGEST_GAP, max(_LEAST_GAP, (known.last_at - known.first_at) / 4))


def join_refused(run: Run, event: events.JoinRefused, now: float) -> Outcome:
    """Keep who asks and does not get in."""
    ask, refused = event.ask, dict(run.refused)
    known = refused.pop(ask.who, None)
    is_same = known is not None and known.held_by == event.held_by
    first_at = now - ask.first_seconds
    if known is not None:  # how long it is there beside another holder begins now
        first_at = known.first_at if is_same else now
    times = ask.times + (known.times if known is not None and is_same else 0)
    refused[ask.who] = RefusedJoin(ask, event.held_by, times, first_at, now)
    run.refused = dict([*refused.items()][-MOST:])
    usual = is_same or not run.rules.is_forming
    return Outcome(ask.reason, ask.slot, usual=usual)


def who_joins(request: JoinRequest) -> str:
    """By whom a join is kept, if it is refused."""
    return asker(request.slot, request.hostname, request.candidates[0].address)


def has_joined(run: Run, request: JoinRequest) -> None:
    """Forget that a node which is in was refused before."""
    if (who := who_joins(request)) in run.refused:
        run.refused = {other: one for other, one in run.refused.items() if other != who}


def told(run: Run, now: float) -> list[RefusedAsk]:
    """All that is kept, the newest last, for people."""
    return [
        one.ask.model_copy(
            update={
                "times": one.times,
                "first_seconds": round(max(0.0, now - one.first_at), 1),
                "last_seconds": round(max(0.0, now - one.last_at), 1),
            }
        )
        for one in run.refused.values()
    ]


def clause(run: Run) -> str:
    """What a sentence on nodes that are missing says of those that were refused; may be empty."""
    reasons = [one.ask.reason for one in _by_weight(run)]
    more = len(reasons) - _MOST_SAID
    shown = [*reasons[:_MOST_SAID], *([f"{more} more were refused"] if more > 0 else [])]
    return "".join(f"; {words}" for words in shown)


def hint(run: Run) -> str:
    """What those that were refused, or who has started them, can do; empty: nobody was."""
    found = _by_weight(run)
    if not found:
        return ""
    if found[0].ask.stranger and not run.spec.managed and len(found) == len(run.missing):
        return (
            "each node that is missing may be one of the clients with another token, of which the "
            "number is the same: set the same RDZV_TOKEN and RDZV_ID on all nodes"
        )
    is_rank = not run.spec.managed and _claims_place(found[0].ask)
    return numbers_hint(run) if is_rank else found[0].ask.hint


def numbers_hint(run: Run) -> str:
    """How each node of a symmetric start gets a slot."""
    missing = sorted(run.missing)
    without = f": no node has {spans_text(missing)}" if missing else ""
    return f"give every node its own NODE_RANK, 0 to {run.spec.slots - 1}{without}"


def evidence(run: Run, now: float) -> list[str]:
    """A line for each that was refused, for the result."""
    return [printable(ask.words, 600) for ask in told(run, now)]


def _by_weight(run: Run) -> list[RefusedJoin]:
    """Those that want a place first, and strangers last."""
    found = run.refused.values()
    return sorted(found, key=lambda one: (one.ask.stranger, not _claims_place(one.ask)))


def _claims_place(ask: RefusedAsk) -> bool:
    """Whether it has proven to be of this run, and is one too many for its slot."""
    return not ask.stranger and (ask.slot is None or ask.code == SlotTaken.code)


def cannot_complete(run: Run, now: float) -> events.CannotComplete | None:
    """The end of a symmetric start of which all nodes were seen, and two want one slot."""
    if run.spec.managed or run.rules.awaits is not Awaits.NODES or run.starts.ended:
        return None
    if run.present >= run.spec.min_nodes and not (0 in run.missing and run.needs(0)):
        return None
    claims = [one for one in run.refused.values() if _is_lasting(run, one, now)]
    if not claims or run.present + len(claims) < run.spec.slots:
        return None
    parts = _conflicts(run, [one.ask for one in claims])
    many = f"; and {len(parts) - _MOST_SAID} more" if len(parts) > _MOST_SAID else ""
    reason = (
        f"run '{run.id}' cannot complete: it expects {nodes_text(run.spec)} and that many came, "
        f"but {'; '.join(parts[:_MOST_SAID])}{many}; no node asks for "
        f"{slots_text(sorted(run.missing))}"
    )
    return events.CannotComplete(reason=reason, hint=numbers_hint(run))


def _is_lasting(run: Run, one: RefusedJoin, now: float) -> bool:
    """Whether a second node for a slot is there beside the first one for certain."""
    ask = one.ask
    if not _claims_place(ask):
        return False
    if ask.slot is None:  # it has ended
        return now - one.first_at >= OVERLAP_SECONDS
    node = run.slots[ask.slot].live_node()
    if node is None or node.incarnation != one.held_by:
        return False
    is_same = node.join.hostname == ask.hostname
    overlap = SAME_NAME_SECONDS if is_same else OVERLAP_SECONDS
    return one.last_at - one.first_at >= overlap and now - one.last_at <= 2 * _gap(one)


def _conflicts(run: Run, asks: Iterable[RefusedAsk]) -> list[str]:
    """A clause for each slot that several ask for, and for each node that has none."""
    by_slot: dict[int, list[str]] = {}
    others = []
    for ask in asks:
        if ask.slot is None:
            others.append(ask.reason)
        else:
            names = by_slot.setdefault(ask.slot, [holder_text(run.slots[ask.slot])])
            names.append(place(ask.hostname, ask.address))
    both = [_all_ask(names, slot) for slot, names in sorted(by_slot.items())]
    return [*both, *others]


def _all_ask(names: list[str], slot: int) -> str:
    shown = names[:_MOST_SAID]
    rest = len(names) - len(shown)
    last = f"{rest} more" if rest else shown.pop()
    each = "both" if len(names) == 2 else "all"
    return f"{', '.join(shown)} and {last} {each} ask for slot {slot}"


def never_completes(run: Run, event: events.CannotComplete, now: float) -> Outcome:
    """End the run for it."""
    result = failure(Cause.MISMATCH, event.reason, None, event.hint, exit_code=ExitCode.REFUSED)
    finish(run, now, result.model_copy(update={"evidence": evidence(run, now)}))
    return Outcome(event.reason)
