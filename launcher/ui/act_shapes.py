"""The JSON that answers what a person asks of a run on its page. Pure; see `launcher.ui.shapes`."""

from __future__ import annotations

from typing import TypedDict


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


class Done(TypedDict):
    """What has come of an act."""

    words: str
