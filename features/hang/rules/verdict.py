"""What a look has found. Pure."""

from __future__ import annotations

from typing import Literal

from rendezvous.frozen import frozen

Rule = Literal[
    "stopped",
    "moving",
    "starting",
    "children",
    "cycle",
    "behind",
    "different",
    "all_inside",
    "odd_stack",
    "unclear",
    "nothing",
]
Source = Literal["recorder", "stacks", "/proc"]

MOST_ODD = 8
"""How many odd ranks a verdict names."""


@frozen
class Verdict:
    """Where a run hangs, or that it does not.

    Attributes:
        rule: The rule that fits.
        sentence: What was found: who, where, what the others wait for, and since when.
        next_step: What to try, in one sentence.
        odd: The odd ranks by their global numbers, the first few; none where no rank is blamed.
        odd_count: How many there are.
        waiting: How many ranks wait.
        of: How many ranks there are, as far as that is known.
        certain: Whether nothing that was seen speaks against it, and nothing that would count
            is missing.
        made_from: What it was made from.
        silent: Ranks that did not answer, as far as their numbers are known.
        silent_nodes: Slots of the nodes that have not answered.
        awaited: All ranks for which the others wait, also where none is blamed; none: not known.
    """

    rule: Rule
    sentence: str
    next_step: str = ""
    odd: tuple[int, ...] = ()
    odd_count: int = 0
    waiting: int = 0
    of: int = 0
    certain: bool = False
    made_from: tuple[Source, ...] = ()
    silent: tuple[int, ...] = ()
    silent_nodes: tuple[int, ...] = ()
    awaited: tuple[int, ...] = ()
