"""What ranks say of the collective that they call, where torch finds that they differ. Pure.

Each rank's words of itself are what counts: those of another one are read in the form of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rendezvous.frozen import frozen
from rendezvous.wire.words import listed

_SAYS = re.compile(
    r"Rank (?P<rank>\d{1,9}) is running collective: CollectiveFingerPrint\("
    r"(?:SequenceNumber=(?P<number>\d+),? ?)?OpType=(?P<call>\w+)"
    r"(?:, ?TensorShape=\[(?P<size>[^\]]*)\]?)?"
    r"(?:, ?TensorDtypes=(?P<type>[\w ,]*?)(?:, ?Tensor|\)|$))?"
)
_WAITS = re.compile(
    r"Rank (?P<rank>\d{1,9})\] Watchdog caught .*?"
    r"SeqNum=(?P<number>\d+), OpType=(?P<call>\w+), NumelIn=(?P<size>\d+)(?P<type>)"
)
_NAMES = re.compile(r"but Rank (\d{1,9}) is running collective")


@frozen
class Call:
    """What one rank calls; what is not known is empty."""

    call: str
    size: str | None
    type: str | None
    number: str | None


@frozen
class Odd:
    """The ranks that call something else than most, and how; `ranks` is empty where none is odd."""

    ranks: tuple[int, ...]
    words: str


def is_of_calls(line: str) -> bool:
    """Return whether a line tells of collectives that differ."""
    return _SAYS.search(line) is not None


def odd_one(lines: Iterable[str]) -> Odd:
    """Find the ranks that call a different collective from most."""
    calls: dict[int, Call] = {}
    named: set[int] = set()
    for line in lines:
        if (match := _SAYS.search(line) or _WAITS.search(line)) is None:
            continue
        calls[int(match["rank"])] = Call(
            match["call"], match["size"], match["type"], match["number"]
        )
        named |= {int(found[1]) for found in _NAMES.finditer(line)}
    groups: dict[Call, list[int]] = {}
    for rank, call in sorted(calls.items()):
        groups.setdefault(call, []).append(rank)
    if not groups:
        return Odd((), "")
    most, *others = sorted(groups, key=lambda call: -len(groups[call]))
    usual = groups[most]
    if not others:
        # The odd one has said nothing itself.
        silent = tuple(named - calls.keys()) if len(usual) > 1 and len(named) == 1 else ()
        if not silent:
            return Odd((), "")
        usual_words = f"ranks {listed(map(str, usual))} call {most.call}"
        return Odd(silent, f"rank {silent[0]} calls something else where {usual_words}")
    ranks = tuple(rank for call in others for rank in groups[call])
    words = _difference(most, usual, others[0], groups[others[0]])
    return Odd(ranks if len(usual) > len(ranks) else (), words)


def _difference(most: Call, usual: list[int], odd: Call, ranks: list[int]) -> str:
    """What differs first: the operation, the type, the size, or the number of the call."""
    who = [f"rank{'s' * (len(each) > 1)} {listed(map(str, each))}" for each in (ranks, usual)]
    odd_s, most_s = ("s" if len(each) == 1 else "" for each in (ranks, usual))
    if odd.call != most.call:
        return f"{who[0]} call{odd_s} {odd.call} where {who[1]} call{most_s} {most.call}"
    for name, one, other in (("type", odd.type, most.type), ("size", odd.size, most.size)):
        if one != other and None not in (one, other):
            what = f"a tensor of {name} "
            one, other = (f"[{each}]" if name == "size" else each for each in (one, other))
            return (
                f"{who[0]} call{odd_s} {odd.call} with {what}{one} where {who[1]} "
                f"pass{'es' if most_s else ''} {other}"
            )
    return (
        f"{who[0]} call{odd_s} {odd.call} as number {odd.number} where {who[1]} "
        f"{'is' if most_s else 'are'} at number {most.number}"
    )
