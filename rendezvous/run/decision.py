"""A decision on an event, as it is journalled beside it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, TypeAdapter
from pydantic_core import to_json

from rendezvous.run.events import Event
from rendezvous.wire.types import Wire


@dataclass(frozen=True, slots=True)
class Outcome:
    """Effect of an event in words, and whose slot it was; `usual` when every node does the like."""

    reason: str
    slot: int | None = None
    usual: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision on one event, in words and as a change of the state.

    Attributes:
        outcome: Its words.
        changed: The fields of the run's state that it has changed, see `rendezvous.run.changes`.
        table: The canonical form of the table that it has sealed, if it has.
    """

    outcome: Outcome
    changed: dict[str, dict[str, Any]]
    table: bytes = b""


class _Entry(Wire):
    event: Event
    reason: Annotated[str, Field(min_length=1)]
    slot: int | None
    usual: bool
    changed: dict[str, dict[str, Any]]


_ENTRY: TypeAdapter[_Entry] = TypeAdapter(_Entry)


def dump_entry(event: Event, decision: Decision) -> bytes:
    """The body of a journal's record: JSON, and the table in a line of its own."""
    about = decision.outcome
    entry = {
        "event": event,
        "reason": about.reason,
        "slot": about.slot,
        "usual": about.usual,
        "changed": decision.changed,
    }
    written = to_json(entry)
    return written + b"\n" + decision.table if decision.table else written


def load_entry(body: bytes) -> tuple[Event, Decision]:
    """The inverse of `dump_entry`; raises pydantic.ValidationError."""
    head, _, table = body.partition(b"\n")
    entry = _ENTRY.validate_json(head)
    outcome = Outcome(entry.reason, entry.slot, entry.usual)
    return entry.event, Decision(outcome, entry.changed, table)
