"""The worlds in which the ranks of a node took part, as their libraries have formed them. Pure."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rendezvous.wire.evidence import Rank
from rendezvous.wire.types import ShortWords, Wire, Words

MAX_WORLDS = 512
"""Most worlds of a node: one that has more reports none."""
MAX_PLACES = 64


class RankWorld(Wire):
    """The worlds of one size in which a rank took part, itself or by processes that it started."""

    rank: Rank = Field(description="Of the table, counted over all nodes.")
    library: ShortWords = Field(description="What formed them: `torch` or `jax`.")
    size: Annotated[int, Field(ge=1, lt=1 << 31)] = Field(description="Processes of each.")
    places: Annotated[list[Rank], Field(min_length=1, max_length=MAX_PLACES)] = Field(
        description="The ranks that they had there."
    )
    whole: bool = Field(False, description="Such a world has processes of this rank alone.")


RankWorlds = Annotated[list[RankWorld], Field(max_length=MAX_WORLDS)]


class WorldFound(Wire):
    """The ranks have never been in one world."""

    rule: Literal["node_alone", "process_alone", "several", "twice"]
    size: int = Field(description="Processes of the largest world.")
    total: int = Field(description="Processes of the table.")
    detail: Words
    next_step: Words = ""
