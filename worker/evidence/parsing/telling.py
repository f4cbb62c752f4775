"""A fact, made of what was found: cut and cleaned to what a message may hold. Pure."""

from __future__ import annotations

from rendezvous.cause.facts import FactKind
from rendezvous.wire.evidence import Fact
from rendezvous.wire.words import printable
from worker.machine.groups import UNLIMITED

_MOST_LETTERS = 253


def fact(
    kind: FactKind,
    *,
    path: str = "",
    value: float = 0,
    limit: float = 0,
    words: str = "",
    rank: int | None = None,
) -> Fact:
    """A fact that a message can hold."""
    return Fact(
        kind=kind.value,
        path=printable(path, _MOST_LETTERS),
        value=_amount(value),
        limit=_amount(limit),
        words=printable(words, _MOST_LETTERS),
        rank=rank,
    )


def _amount(value: float) -> float:
    return float(min(max(value, 0), UNLIMITED))
