"""Compressed lists of nodes, as Slurm and pdsh write them: `n[001-003,7],gpu-[1-2]-a`. Pure."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator

from rendezvous.wire.types import MAX_NODES

_ITEM = re.compile(r"(?:[^\[\],\s]|\[[^\[\]\s]*\])+")
_PART = re.compile(r"\[([^\]]*)\]|([^\[]+)")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")


def expand(text: str) -> list[str]:
    """The nodes of a compressed list, in its order; raises ValueError when it is none."""
    names: list[str] = []
    for item in _items(text):
        parts = [_part(*part.groups()) for part in _PART.finditer(item)]
        if len(names) + math.prod(count for count, _ in parts) > MAX_NODES:
            raise ValueError(f"it names more than {MAX_NODES} nodes")
        names += ["".join(words) for words in itertools.product(*(texts for _, texts in parts))]
    return names


def _items(text: str) -> Iterator[str]:
    """What stands between the commas that are outside of brackets."""
    position = 0
    while True:
        item = _ITEM.match(text, position)
        if item is None:
            raise ValueError(f"a node name is missing at character {position + 1}")
        yield item[0]
        position = item.end()
        if position == len(text):
            return
        if text[position] != ",":
            raise ValueError(f"it cannot be read after character {position}")
        position += 1


def _part(numbers: str | None, plain: str) -> tuple[int, Iterable[str]]:
    """A plain text, or the numbers between brackets, as wide as the first of each range; counted
    first, since there may be far too many."""
    if numbers is None:
        return 1, [plain]
    ranges = [_range(word) for word in numbers.split(",")]
    texts = (f"{n:0{digits}d}" for first, last, digits in ranges for n in range(first, last + 1))
    return sum(last - first + 1 for first, last, _ in ranges), texts


def _range(word: str) -> tuple[int, int, int]:
    """First, last, digits."""
    match = _RANGE.fullmatch(word)
    if match is None:
        step = ", and a step (:N) is not read: write several entries" if ":" in word else ""
        raise ValueError(f"[{word}] is neither a number nor a range of numbers{step}")
    if int(match[1]) > int(match[2] or match[1]):
        raise ValueError(f"[{word}] runs backwards; write [{match[2]}-{match[1]}]")
    return int(match[1]), int(match[2] or match[1]), len(match[1])
