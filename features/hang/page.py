"""Looks on the page of a run: the act `look`, and whether something was found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypedDict

from features.hang.beside_ranks import beside_ranks
from features.hang.rules import groups_of, look_at
from features.hang.view import frame_text, head_words, one_look, ranks_of, unseen_lines
from features.hang.wire import RunLook, Stack
from launcher.ui import parts
from rendezvous.wire.words import hint_for, printable, spans_text

_MOST_FRAMES = 32
_MOST_PLACES = 64
_MOST_CHARACTERS = 600


class Place(TypedDict):
    """Where some ranks are.

    Attributes:
        ranks: As a span: `0-3,8`.
        head: `rank 5 (node 2, gpu-17), state S`.
        frames: The newest call first.
    """

    ranks: str
    head: str
    frames: list[str]


class Look(TypedDict):
    """Where all ranks are.

    Attributes:
        places: Those who are alone first.
        notes: Nodes that have not answered, and why.
    """

    sentence: str
    next_step: str
    places: list[Place]
    notes: list[str]


def _found(state: parts.State) -> Iterator[parts.Sample]:
    head = state["head"]
    yield (head["run"],), bool(head["finding"]) and not head["over"]


STALLED: Final = parts.Family(
    "rdzv_stalled",
    "gauge",
    "1: nothing moves; else 0.",
    ("run",),
)


class Part(parts.Part):
    """Lets a page that may act look at the ranks: the act `look` answers Look."""

    series = ((STALLED, _found),)

    def acts(self) -> Mapping[str, parts.Act]:
        """The look."""
        return {"look": self._look}

    async def _look(self, client: parts.RegistryClient) -> Look:
        """Where all ranks are now. Raises RdzvError."""
        run = self.run.state_dir.run
        found = await one_look(client, run)
        verdict = look_at(found, None)
        return {
            "sentence": printable(verdict.sentence, _MOST_CHARACTERS),
            "next_step": printable(hint_for(run, verdict.next_step), 600),
            "places": _places(found),
            "notes": [printable(line, _MOST_CHARACTERS) for line in unseen_lines(found)],
        }


def _places(found: RunLook) -> list[Place]:
    """Those with the fewest ranks first, as whoever is alone is looked for."""
    ranks: Mapping[int, object] = ranks_of(found)
    groups = sorted(groups_of(found), key=lambda group: (len(group[0]), group[0]))
    own = [
        _place(members, head_words(members, found, ranks_of(found)), stack)
        for members, stack in groups[:_MOST_PLACES]
        if set(members) <= ranks.keys()
    ]
    beside = beside_ranks(found)[: _MOST_PLACES - len(own)]
    return own + [_place(one.ranks, one.head, one.stack) for one in beside]


def _place(ranks: Sequence[int], head: str, stack: Stack | None) -> Place:
    frames = stack.frames[:_MOST_FRAMES] if stack is not None else []
    return {
        "ranks": spans_text(ranks),
        "head": printable(head, _MOST_CHARACTERS),
        "frames": [frame_text(one) for one in frames],
    }
