"""What the hook's thread answers; its form: `worker.look.answering`. Pure."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from rendezvous.wire.words import printable

_HEAD = re.compile(
    rb"(importing|imported|groups) ([0-9]{1,19}) "
    rb"([0-9]{1,8}) ([0-9]{1,8}) ([0-9]{1,8}) ([0-9]{1,8})\n"
)
_MOST_NAME, _MOST_MEMBERS = 200, 400
_STAGES: dict[bytes, Literal["importing", "imported", "groups"]] = {
    b"importing": "importing",
    b"imported": "imported",
    b"groups": "groups",
}


class Answer(NamedTuple):
    """One answer.

    Attributes:
        stage: How far the rank is with torch.
        now: When it was made, in nanoseconds on the recorders' clock.
        groups: The ranks of each process group, by its name.
        stacks: The text for `stacks_in`; empty: none.
        recorders: The JSON of each flight recorder, the general one and NCCL's; empty: none.
    """

    stage: Literal["importing", "imported", "groups"]
    now: int
    groups: dict[str, str]
    stacks: str
    recorders: tuple[bytes, bytes]


def answer_in(data: bytes) -> Answer | None:
    """The answer that these bytes are; None where they are none, or not all of it."""
    head = _HEAD.match(data)
    if head is None:
        return None
    parts, at = [], head.end()
    for size in map(int, head.groups()[2:]):
        parts.append(data[at : at + size])
        at += size
    if at != len(data):
        return None
    groups, stacks = (part.decode(errors="replace") for part in parts[:2])
    return Answer(
        stage=_STAGES[head[1]],
        now=int(head[2]),
        groups=dict(_group(line) for line in groups.split("\n") if line),
        stacks=stacks,
        recorders=(parts[2], parts[3]),
    )


def _group(line: str) -> tuple[str, str]:
    name, _, members = line.rpartition("\t")
    fits = len(members) <= _MOST_MEMBERS and re.fullmatch(r"[0-9,-]*", members)
    return group_name(name), members if fits else ""


def group_name(name: str) -> str:
    """A group's name, in one form wherever it comes from."""
    return printable(name, _MOST_NAME)
