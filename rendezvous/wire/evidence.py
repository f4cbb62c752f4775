"""What a node has seen of its program's end, as far as a cause may be told from it. Pure.

Times are offsets in seconds from the beginning of what the report tells of (its first failure),
negative before it: they stay true however long the report is on its way.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rendezvous.wire.types import OutputLine, ShortWords, Wire

MAX_RANKS = 256
MAX_CLUES = 32
MAX_FACTS = 32

Offset = Annotated[float, Field(ge=-10_000_000, le=10_000_000, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, le=1e18, allow_inf_nan=False)]
Rank = Annotated[int, Field(ge=0, lt=1 << 31)]


class RankEnd(Wire):
    """One rank of a node's program: how it ended, or that it went on."""

    rank: Rank
    exit_code: Annotated[int, Field(ge=0, le=255)] | None = Field(
        None, description="128 + n for signal n; none while it lives, or when it could not be read."
    )
    ended: Offset | None = Field(None, description="When; none while it lives.")
    state: Annotated[str, Field(max_length=1)] = Field(
        "", description="The letter of `/proc/PID/stat` when something first failed here."
    )


class Clue(Wire):
    """A line of the program's output that tells a cause, or what followed from one."""

    id: ShortWords = Field(description="The clue's name, see `rendezvous.cause.clues`.")
    line: OutputLine
    rank: Rank | None = Field(None, description="Whose output it is, where that is known.")
    at: Offset | None = Field(None, description="When it was read.")
    where: ShortWords = Field("", description="Of a traceback: file, line and function.")
    raised: bool = Field(False, description="It is the exception of a traceback.")
    last: bool = Field(False, description="Its rank has said nothing that counts after that.")


class Fact(Wire):
    """Something that the node's kernel, files or devices say, at the time of the failure."""

    kind: ShortWords = Field(description="The fact's name, see `rendezvous.cause.facts`.")
    path: ShortWords = Field("", description="Of the file system, control group or device.")
    value: Amount = 0.0
    limit: Amount = 0.0
    words: ShortWords = ""
    rank: Rank | None = None


class Evidence(Wire):
    """All that a node has seen of the end of its program."""

    ranks: Annotated[list[RankEnd], Field(max_length=MAX_RANKS)] = []
    clues: Annotated[list[Clue], Field(max_length=MAX_CLUES)] = []
    facts: Annotated[list[Fact], Field(max_length=MAX_FACTS)] = []
