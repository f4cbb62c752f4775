"""Findings of features, and the stops that they ask for. Pure.

A feature decides by itself what it notes and asks for; here it is stored, and the end of the run is
worded by it. No feature is known by name.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from rendezvous.run import events
from rendezvous.run.decision import Outcome
from rendezvous.run.moves import begin_stop, failure
from rendezvous.run.state import Run
from rendezvous.wire.run import Result, Standing, Suspect
from rendezvous.wire.words import duration_text

M = TypeVar("M", bound=BaseModel)


class Remark(NamedTuple):
    """Observation of a feature, shown in the status while the programs run.

    Attributes:
        finding: What was found, with the time that has passed.
        lasting: The same, or `silence`, without times: it changes only when something happens.
        next_step: What to do about it; empty: nothing.
        suspect: Whom it names, where that is one rank or one node.
        silence: That nothing was printed or called for a while, for a reason that is not known.
    """

    finding: str = ""
    lasting: str = ""
    next_step: str = ""
    suspect: Suspect | None = None
    silence: str = ""

    def words(self, *, times: bool) -> str:
        """As the reason of the run has it."""
        return "; ".join(filter(None, (self.finding, self.silence))) if times else self.lasting


def data_of(run: Run, feature: str, kind: type[M]) -> M | None:
    """Read what a feature has noted; None: nothing, or another version of it did."""
    if (note := run.notes.get(feature)) is None:
        return None
    try:
        return kind.model_validate(note.data)
    except ValidationError:
        return None


def noted(run: Run, event: events.Noted, now: float) -> Outcome:
    """Keep what a feature has found, in the place of what it had found before."""
    others = {name: note for name, note in run.notes.items() if name != event.feature}
    run.notes = others if event.data is None else others | {event.feature: event}
    return Outcome(event.words, event.slot, usual=event.usual)


def standing(run: Run, now: float) -> Standing | None:
    """Return what a feature has found that is not over; None: nothing."""
    for note in run.notes.values():
        if (found := note.finding) is not None:
            words = found.words.replace("{time}", duration_text(now - note.since), 1)
            return found.model_copy(update={"words": words})
    return None


def stop_asked(run: Run, event: events.StopAsked, now: float) -> Outcome:
    """Stop the programs: what the feature has found is a failure now."""
    run.stop_asked = event
    begin_stop(run, now)
    return Outcome(event.reason, event.then.slot)


def result_of(run: Run, why: str) -> Result | None:
    """Return the result of a run whose programs a feature has stopped; None: none has."""
    if run.stop_asked is None:
        return None
    then = run.stop_asked.then
    words = f"{then.message}; {why}" if why else then.message
    slot = None if then.slot is None else run.slots[then.slot]
    result = failure(then.cause, words, slot, then.hint)
    return result.model_copy(update={"rank": then.rank, "certain": then.certain})
