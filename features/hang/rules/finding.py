"""What a rule has found, before it is said what it lacks. Pure."""

from __future__ import annotations

from collections.abc import Collection

from features.hang.rules.verdict import Rule, Source
from rendezvous.frozen import frozen


@frozen
class Finding:
    """A verdict without what is the same after every rule; see there."""

    rule: Rule
    sentence: str
    made_from: tuple[Source, ...] = ()
    odd: Collection[int] = ()
    certain: bool = False
    next_step: str = ""
    awaited: Collection[int] = ()
